use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use portcullis_core::{Family, Protocol};
use tokio::sync::mpsc::UnboundedReceiver;

use super::wire::{self, Flow, Messages, Names, Socket};
use super::{Change, Element, Error, Others, Place, Ruleset, Skeleton, others};

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// What came to a frontend since it is there. Answers are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All that came.
    pub arrived: Count,
    /// What was dropped of it.
    pub dropped: Count,
}

/// The kernel's side: what is in our table, and how it is changed.
#[derive(Debug)]
pub(crate) struct Kernel {
    socket: Socket,
}

/// So often is read again what somebody changed meanwhile.
const READS: usize = 100;
/// So long is an element at most, with all that is about it in a message.
const ELEMENT: usize = 256;

impl Kernel {
    pub(crate) fn open() -> Result<Self, Error> {
        let socket = Socket::open().map_err(Error::kernel("open a netlink socket"))?;
        Ok(Self { socket })
    }

    /// What others change in our table, from now on.
    pub(crate) fn others(&self) -> Result<UnboundedReceiver<Others>, Error> {
        let follow = || others::follow(self.socket.port()?);
        follow().map_err(Error::kernel("tell what others change"))
    }

    /// The number of our table, if it is there.
    pub(crate) fn table(&mut self) -> Result<Option<u64>, Error> {
        let mut handle = None;
        let taken = |message: wire::Received<'_>| {
            handle = handle.or(wire::table_handle(message));
        };
        match self.socket.dump(&wire::table(), taken) {
            // Netfilter does not know whom to ask.
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => return Err(Error::NoNftables),
            outcome => outcome.map_err(Error::kernel("tell which tables it has"))?,
        };
        Ok(handle)
    }

    /// Makes the rules be these, in one step. Those that are known to be there stay untouched.
    pub(crate) fn load(&mut self, skeleton: &Skeleton, loaded: Option<&Skeleton>) -> Result<(), Error> {
        let names = self.names()?;
        self.socket.perform(&wire::load(skeleton, loaded, &names)).map_err(Error::rules)
    }

    /// Makes the table anew, whatever it was, in one step.
    pub(crate) fn replace(&mut self, ruleset: &Ruleset) -> Result<(), Error> {
        self.socket.perform(&wire::replace(ruleset)).map_err(Error::rules)
    }

    /// Removes all that is ours.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        self.socket.perform(&wire::remove()).map_err(Error::rules)
    }

    /// Makes these changes, in one step if they are not very many; each of them is made whole in any case.
    pub(crate) fn write(&mut self, changes: &[Change]) -> Result<(), Error> {
        let mut rest = changes;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(fitting(rest, self.socket.largest() / ELEMENT));
            rest = later;
            self.socket.perform(&wire::gather(batch)).map_err(Error::kernel("take elements of frontends"))?;
        }
        Ok(())
    }

    /// What is in the table, with rules that hold it.
    pub(crate) fn read(&mut self) -> Result<Ruleset, Error> {
        if self.table()?.is_none() {
            return Ok(Ruleset::default());
        }
        let names = self.names()?;
        let mut frontends: BTreeMap<Place, Vec<Element>> = BTreeMap::new();
        for set in wire::element_sets(&names) {
            for raw in self.elements(set)? {
                let (place, element) = wire::read_element(set, &raw).ok_or(Error::Foreign)?;
                frontends.entry(place).or_default().push(element);
            }
        }
        let mut skeleton = Skeleton::default();
        for (place, elements) in &mut frontends {
            // Rules come before elements, so that such a table would let everybody in while it is made good step by step.
            if elements.iter().any(is_frontend) != elements.contains(&Element::Arrived) {
                return Err(Error::Foreign);
            }
            elements.sort_unstable();
            skeleton.hold(*place, elements);
        }
        Ok(Ruleset { skeleton: Some(skeleton), frontends })
    }

    /// What came to each frontend.
    pub(crate) fn counters(&mut self) -> Result<BTreeMap<Place, Counters>, Error> {
        let mut counters: BTreeMap<Place, Counters> = BTreeMap::new();
        for set in ["arrived4", "arrived6", "dropped4", "dropped6"] {
            for raw in self.elements(set)? {
                let Some((place, count)) = wire::counted(set, &raw) else { continue };
                let counters = counters.entry(place).or_default();
                if set.starts_with("arrived") {
                    counters.arrived = count;
                } else {
                    counters.dropped = count;
                }
            }
        }
        Ok(counters)
    }

    /// Clients forget endpoints that do not stay.
    pub(crate) fn forget_clients(
        &mut self,
        family: Family,
        timeout: u32,
        stays: impl Fn(Place, SocketAddr) -> bool,
    ) -> Result<(), Error> {
        let set = wire::affinity_set(family, timeout);
        let clients = self.elements(&set)?;
        if let Some(batch) = wire::clients_to_forget(&set, &clients, &stays) {
            match self.socket.perform(&batch) {
                // One whose time ran out meanwhile takes the others along: they are tried one by one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    for client in &clients {
                        let alone = std::slice::from_ref(client);
                        if let Some(batch) = wire::clients_to_forget(&set, alone, &stays) {
                            let _ = self.socket.perform(&batch);
                        }
                    }
                }
                outcome => outcome.map_err(Error::Flows)?,
            }
        }
        Ok(())
    }

    /// Ends tracked UDP flows that are to end: they would go on to where they went.
    pub(crate) fn end_flows(
        &mut self,
        family: Family,
        ends: impl Fn(Place, SocketAddr) -> bool,
    ) -> Result<(), Error> {
        let mut ending: Vec<Flow> = Vec::new();
        let taken = |message: wire::Received<'_>| {
            ending.extend(wire::parse_flow(message).filter(|flow| {
                let place = Place::new(flow.to.ip(), flow.protocol, flow.to.port());
                flow.protocol == Protocol::UDP && place.is_ok_and(|place| ends(place, flow.answered_by))
            }));
        };
        self.socket.dump(&wire::flows(family, Protocol::UDP), taken).map_err(Error::Flows)?;
        for flow in ending {
            match self.socket.perform(&wire::delete_flow(&flow)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome.map_err(Error::Flows)?,
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<Names, Error> {
        let mut names = Names::default();
        for request in [wire::sets(), wire::chains()] {
            self.read_whole(&request, &mut names, wire::names)?;
        }
        Ok(names)
    }

    fn elements(&mut self, set: &str) -> Result<Vec<wire::Raw>, Error> {
        let mut elements = Vec::new();
        self.read_whole(&wire::list_elements(set), &mut elements, |message, elements| {
            elements.extend(wire::parse_elements(message));
        })?;
        Ok(elements)
    }

    /// Reads until nobody changed anything meanwhile. What is not there is empty.
    fn read_whole<T: Clone>(
        &mut self,
        request: &Messages,
        into: &mut T,
        take: impl Fn(wire::Received<'_>, &mut T),
    ) -> Result<(), Error> {
        let before = into.clone();
        for _ in 0..READS {
            into.clone_from(&before);
            match self.socket.dump(request, |message| take(message, into)) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(Error::kernel("tell what is in its table")(error)),
            }
        }
        Err(Error::Restless)
    }
}

fn is_frontend(element: &Element) -> bool {
    matches!(element, Element::Frontend(_))
}

/// How many of the first changes fit into one batch of so many elements; one has to in any case.
fn fitting(changes: &[Change], most: usize) -> usize {
    let mut elements = 0;
    let fits = |change: &&Change| {
        elements += change.len();
        elements <= most
    };
    changes.iter().take_while(fits).count().max(1)
}

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;

use nix::net::if_::if_nametoindex;
use portcullis_core::{Family, Protocol};
use tokio::sync::mpsc::UnboundedReceiver;

use super::kernel::Kernel;
use super::{
    Change, Counters, Error, Finish, Frontend, Interface, Mode, Others, Place, Plan, Ruleset, Skeleton,
    desired, difference, ruleset,
};

/// The datapath of the node whose network namespace the thread is in that opened it: everything else is done in that
/// namespace too, so every call has to come from it. Calls take their time, and none waits for anybody else.
///
/// What is in the kernel stays when this is dropped, and whoever opens it next takes it from there: no packet is lost and no
/// connection. [`Mode::None`] removes it.
#[derive(Debug)]
pub struct Datapath {
    kernel: Kernel,
    mode: Mode,
    interfaces: Vec<Interface>,
    frontends: BTreeMap<Place, Frontend>,
    /// Whether it was said what is wanted: until then, all that is in the kernel may be.
    told: bool,
    known: Option<Known>,
    stale: Stale,
}

/// So often is done again what an interface stood in the way of that went in the same moment.
const AGAIN: usize = 5;

/// What is under way to where it should not go any more.
#[derive(Debug, Default)]
struct Stale {
    /// Places with UDP flows that may be.
    flows: BTreeSet<Place>,
    /// Maps of clients, by family and seconds, in which some may be.
    clients: BTreeSet<(Family, u32)>,
}

/// What is known to be in the kernel, beside the elements of all frontends.
#[derive(Debug)]
struct Known {
    table: Option<u64>,
    skeleton: Option<Skeleton>,
    /// Interfaces with packets filtered as they arrive, each with its number: one that goes and comes back has another.
    in_force: BTreeMap<String, u32>,
}

impl Known {
    /// The rules that are there, where these interfaces are. One that went took its rules along, also if it is back, which looks the
    /// same.
    fn rules(&self, in_force: &BTreeMap<String, u32>) -> Option<Skeleton> {
        let mut skeleton = self.skeleton.clone()?;
        skeleton.interfaces.retain(|name| {
            let number = in_force.get(name).copied().or_else(|| if_nametoindex(name.as_str()).ok());
            number.is_some() && number == self.in_force.get(name).copied()
        });
        Some(skeleton)
    }
}

/// What a synchronisation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// How many frontends changed in the kernel.
    pub frontends: usize,
    /// How many elements came or went.
    pub elements: usize,
    /// Whether rules were loaded.
    pub rules: bool,
}

impl Datapath {
    /// Opens the datapath, without a look at what is there, and with nothing wanted.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            kernel: Kernel::open()?,
            mode: Mode::None,
            interfaces: Vec::new(),
            frontends: BTreeMap::new(),
            told: false,
            known: None,
            stale: Stale::default(),
        })
    }

    /// Takes those for wanted that are in the kernel, as ones of this cluster that keep others out and serve nobody. Once it was
    /// said what is wanted, and where another version left what this one cannot read, nothing is done.
    pub fn recall(&mut self, cluster: &str) -> Result<(), Error> {
        if self.told {
            return Ok(());
        }
        let there = match self.kernel.read() {
            Err(Error::Foreign) => return Ok(()),
            there => there?,
        };
        let frontends = there.frontends.iter();
        let frontends = frontends.filter_map(|(place, elements)| ruleset::filter(*place, elements, cluster));
        self.frontends = frontends.map(|frontend| (frontend.place(), frontend)).collect();
        Ok(())
    }

    /// Makes the kernel have these frontends, in this mode, and nothing else of ours. Of two at one place the last one counts.
    /// The first time it reads what is there, later only when something failed or somebody else removed the table.
    pub fn sync(
        &mut self,
        mode: Mode,
        interfaces: &[Interface],
        frontends: impl IntoIterator<Item = Frontend>,
    ) -> Result<Synced, Error> {
        let frontends = frontends.into_iter().map(|frontend| (frontend.place(), frontend)).collect();
        let before = std::mem::replace(&mut self.frontends, frontends);
        let before_mode = std::mem::replace(&mut self.mode, mode);
        self.interfaces = interfaces.to_vec();
        self.told = true;
        let Some(known) = self.take_known()? else { return self.start() };
        let done = self.go_on(&known, before_mode, &before);
        self.or_anew(done)
    }

    /// Has packets be filtered on these interfaces from the next change on, in place of those that were named before. What is on
    /// others stays untouched by it.
    pub fn filter_on(&mut self, interfaces: &[Interface]) {
        self.interfaces = interfaces.to_vec();
    }

    /// Changes some frontends: these come, in place of those that are at the same places, and those at `gone` go. How
    /// long it takes does not depend on how many others there are. Where endpoints of UDP went, the kernel looks through all
    /// that it tracks for their flows, which takes some milliseconds: such changes are better made together. Before the first
    /// [`Datapath::sync`] nothing is done.
    pub fn change(
        &mut self,
        come: impl IntoIterator<Item = Frontend>,
        gone: impl IntoIterator<Item = Place>,
    ) -> Result<Synced, Error> {
        let mut before = BTreeMap::new();
        let mut touched = BTreeSet::new();
        for place in gone {
            touched.insert(place);
            before.extend(self.frontends.remove(&place).map(|frontend| (place, frontend)));
        }
        for frontend in come {
            let place = frontend.place();
            // One that is as it was takes no work, unless it was to go.
            if !touched.contains(&place) && self.frontends.get(&place) == Some(&frontend) {
                continue;
            }
            if let Some(replaced) = self.frontends.insert(place, frontend)
                && touched.insert(place)
            {
                before.insert(place, replaced);
            }
            touched.insert(place);
        }
        if !self.told {
            return Ok(Synced::default());
        }
        let Some(known) = self.take_known()? else { return self.start() };
        let done = self.change_some(&known, &touched, &before);
        self.or_anew(done)
    }

    /// Takes nothing for granted any more: the next change reads what is there, and makes good what somebody else changed.
    pub fn doubt(&mut self) {
        self.known = None;
    }

    /// Whether there is a table of ours, whatever is in it.
    pub fn is_there(&mut self) -> Result<bool, Error> {
        Ok(self.kernel.table()?.is_some())
    }

    /// What others change in our table from now on. Whoever hears of it may [`Datapath::doubt`].
    pub fn others(&self) -> Result<UnboundedReceiver<Others>, Error> {
        self.kernel.others()
    }

    /// The frontends that are wanted.
    pub fn frontends(&self) -> impl Iterator<Item = &Frontend> {
        self.frontends.values()
    }

    /// The interfaces where packets are filtered as they arrive, before anything else sees them.
    pub fn in_force(&self) -> Vec<&str> {
        self.known.iter().flat_map(|known| known.in_force.keys()).map(String::as_str).collect()
    }

    /// What came to each frontend since it is there.
    pub fn counters(&mut self) -> Result<BTreeMap<Place, Counters>, Error> {
        if self.kernel.table()?.is_none() { Ok(BTreeMap::new()) } else { self.kernel.counters() }
    }

    /// What is known, if it is still true that there is the table. It is forgotten until the end of what is to be done, so that
    /// whatever fails in between makes the next one read anew.
    fn take_known(&mut self) -> Result<Option<Known>, Error> {
        let known = self.known.take();
        let table = self.kernel.table()?;
        Ok(known.filter(|known| known.table == table))
    }

    /// From whatever is in the kernel. Rules are loaded in any case: nobody knows what they were.
    fn start(&mut self) -> Result<Synced, Error> {
        let mut places: BTreeSet<Place> = self.frontends.keys().copied().collect();
        let mut forwards = self.mode == Mode::Nftables;
        let mut attempts = 0;
        let (in_force, wanted, taken_over) = loop {
            let in_force = self.present();
            let wanted = self.wanted(&in_force);
            let taken_over = self.kernel.read().and_then(|there| {
                places.extend(there.frontends.keys());
                forwards |= there.skeleton.as_ref().is_some_and(|skeleton| skeleton.forwards);
                let mut plan = difference(&there, &wanted);
                if wanted.skeleton.is_some() && plan.grow.is_none() {
                    plan.grow.clone_from(&there.skeleton);
                }
                self.follow(&plan, None)
            });
            attempts += 1;
            let is_over =
                attempts == AGAIN || !taken_over.as_ref().is_err_and(|error| may_be_gone(self.mode, error));
            if is_over {
                break (in_force, wanted, taken_over);
            }
        };
        let done = match (taken_over, &wanted.skeleton) {
            // What another version left may be in the way of what this one wants.
            (Err(Error::Foreign | Error::Rules(_)), Some(_)) => {
                self.kernel.replace(&wanted)?;
                let elements = wanted.frontends.values().map(Vec::len).sum();
                Synced { frontends: wanted.frontends.len(), elements, rules: true }
            }
            (Err(Error::Foreign), None) => {
                self.kernel.remove()?;
                Synced { rules: true, ..Synced::default() }
            }
            (outcome, _) => outcome?,
        };
        // Endpoints and frontends may have gone while nobody looked. Where others forward, flows are theirs.
        let flows = places.into_iter().filter(|place| forwards && place.protocol() == Protocol::UDP);
        self.stale.flows.extend(flows);
        self.stale.clients.extend(wanted.skeleton.iter().flat_map(|skeleton| skeleton.timeouts.clone()));
        self.known = Some(Known { table: self.kernel.table()?, skeleton: wanted.skeleton, in_force });
        self.end_stale()?;
        Ok(done)
    }

    /// From what is known to be in the kernel.
    fn go_on(
        &mut self,
        known: &Known,
        before_mode: Mode,
        before: &BTreeMap<Place, Frontend>,
    ) -> Result<Synced, Error> {
        let in_force = self.present();
        let mut there = desired(before.values(), before_mode, &[]);
        there.skeleton = known.rules(&in_force);
        let wanted = self.wanted(&in_force);
        let done = self.follow_from(known, &there, wanted, in_force)?;
        let places: BTreeSet<Place> = before.keys().chain(self.frontends.keys()).copied().collect();
        self.note_stale(before_mode, places, before);
        self.end_stale()?;
        Ok(done)
    }

    /// From what is known to be in the kernel, where only some frontends are others than they were, and maybe interfaces.
    fn change_some(
        &mut self,
        known: &Known,
        touched: &BTreeSet<Place>,
        before: &BTreeMap<Place, Frontend>,
    ) -> Result<Synced, Error> {
        let in_force = self.present();
        let mut there = desired(before.values(), self.mode, &[]);
        there.skeleton = known.rules(&in_force);
        let now = touched.iter().filter_map(|place| self.frontends.get(place));
        let mut wanted = desired(now, self.mode, &self.interfaces);
        // Rules that others need stay, and so do those that nobody needs: they cost next to nothing.
        if let (Some(wanted), Some(loaded)) = (&mut wanted.skeleton, &known.skeleton) {
            let (local, kept) = (std::mem::take(&mut wanted.local), std::mem::take(&mut wanted.kept));
            *wanted = wanted.union(loaded);
            (wanted.local, wanted.kept) = (local, kept);
            wanted.interfaces = in_force.keys().cloned().collect();
        }
        let done = self.follow_from(known, &there, wanted, in_force)?;
        self.note_stale(self.mode, touched.iter().copied(), before);
        self.end_stale()?;
        Ok(done)
    }

    /// Does what is missing between what is there and what is wanted.
    fn follow_from(
        &mut self,
        known: &Known,
        there: &Ruleset,
        wanted: Ruleset,
        in_force: BTreeMap<String, u32>,
    ) -> Result<Synced, Error> {
        let mut plan = difference(there, &wanted);
        // Something may be left of an interface that went.
        if wanted.skeleton.is_some() && in_force != known.in_force && plan.grow.is_none() {
            plan.grow.clone_from(&there.skeleton);
        }
        let done = self.follow(&plan, there.skeleton.as_ref())?;
        let table = if done.rules { self.kernel.table()? } else { known.table };
        self.known = Some(Known { table, skeleton: wanted.skeleton, in_force });
        Ok(done)
    }

    /// What was done; from the beginning, if an interface may have gone in the same moment.
    fn or_anew(&mut self, done: Result<Synced, Error>) -> Result<Synced, Error> {
        if done.as_ref().is_err_and(|problem| may_be_gone(self.mode, problem)) { self.start() } else { done }
    }

    /// The interfaces that are there, with their numbers. Rules for another would be refused, and all others with them.
    fn present(&self) -> BTreeMap<String, u32> {
        if self.mode != Mode::Filter {
            return BTreeMap::new();
        }
        let number = |interface: &Interface| {
            Some((interface.name.clone(), if_nametoindex(interface.name.as_str()).ok()?))
        };
        self.interfaces.iter().filter_map(number).collect()
    }

    fn wanted(&self, in_force: &BTreeMap<String, u32>) -> Ruleset {
        let mut wanted = desired(self.frontends.values(), self.mode, &self.interfaces);
        if let Some(skeleton) = &mut wanted.skeleton {
            skeleton.interfaces.retain(|name| in_force.contains_key(name));
        }
        wanted
    }

    /// Follows a plan, where these rules are known to be there.
    fn follow<'a>(&mut self, plan: &'a Plan, mut loaded: Option<&'a Skeleton>) -> Result<Synced, Error> {
        if let Some(skeleton) = &plan.grow {
            self.kernel.load(skeleton, loaded)?;
            loaded = Some(skeleton);
        }
        self.kernel.write(&plan.changes)?;
        match &plan.finish {
            Finish::Stay => {}
            Finish::Shrink(skeleton) => self.kernel.load(skeleton, loaded)?,
            Finish::Remove => self.kernel.remove()?,
        }
        Ok(Synced {
            frontends: plan.changes.len(),
            elements: plan.changes.iter().map(Change::len).sum(),
            rules: plan.grow.is_some() || plan.finish != Finish::Stay,
        })
    }

    /// Notes what would otherwise go on to an endpoint that is gone: UDP flows, which have no end of their own, and clients
    /// that keep an endpoint. Established connections of other protocols go on for as long as both ends want.
    fn note_stale(
        &mut self,
        before_mode: Mode,
        places: impl IntoIterator<Item = Place>,
        before: &BTreeMap<Place, Frontend>,
    ) {
        if self.mode != Mode::Nftables && before_mode != Mode::Nftables {
            return;
        }
        for place in places {
            let (before, now) = (before.get(&place), self.frontends.get(&place));
            if before == now && before_mode == self.mode {
                continue;
            }
            let goes = |endpoint: &SocketAddr| !now.is_some_and(|now| now.has(*endpoint));
            let ends = before.is_some_and(|before| before.endpoints().any(goes));
            // Before there was an endpoint, flows went to the node itself.
            let begins = before.is_none_or(|before| before.chosen().is_empty());
            if place.protocol() == Protocol::UDP && (ends || begins || before_mode != self.mode) {
                self.stale.flows.insert(place);
            }
            let gets_none = |endpoint: &SocketAddr| !now.is_some_and(|now| now.chosen().contains(endpoint));
            let lost = before.is_some_and(|before| before.chosen().iter().any(gets_none));
            let (had, has) = (before.and_then(Frontend::affinity), now.and_then(Frontend::affinity));
            if let Some(timeout) = had.filter(|_| lost || had != has) {
                self.stale.clients.insert((place.family(), timeout));
            }
        }
    }

    /// Ends what was noted; what fails stays noted.
    fn end_stale(&mut self) -> Result<(), Error> {
        self.end_flows()?;
        self.stale.flows.clear();
        self.forget_clients()?;
        self.stale.clients.clear();
        Ok(())
    }

    /// Ends UDP flows through some places to anything but their endpoints: also those that went to the node itself, before
    /// there was an endpoint.
    fn end_flows(&mut self) -> Result<(), Error> {
        let (places, frontends) = (&self.stale.flows, &self.frontends);
        let forwards = self.mode == Mode::Nftables;
        let concerned = |family: &Family| places.iter().any(|place| place.family() == *family);
        for family in Family::ALL.into_iter().filter(concerned) {
            self.kernel.end_flows(family, |place, endpoint| {
                // One at the address comes before one at all addresses of the node.
                let mut candidates = [place, place.at_node()].into_iter();
                let place = candidates.find(|place| frontends.contains_key(place) || places.contains(place));
                place.is_some_and(|place| {
                    let goes_on = |frontend: &Frontend| forwards && frontend.has(endpoint);
                    places.contains(&place) && !frontends.get(&place).is_some_and(goes_on)
                })
            })?;
        }
        Ok(())
    }

    /// Clients with an endpoint that is gone, or that is not kept any more, get any when they come back.
    fn forget_clients(&mut self) -> Result<(), Error> {
        let frontends = &self.frontends;
        for (family, timeout) in &self.stale.clients {
            self.kernel.forget_clients(*family, *timeout, |place, endpoint| {
                frontends.get(&place).is_some_and(|frontend| {
                    frontend.affinity() == Some(*timeout) && frontend.chosen().contains(&endpoint)
                })
            })?;
        }
        Ok(())
    }
}

/// Whether rules were refused since they are about an interface that is gone by now: it takes the whole step along. Kernels of late
/// take rules for interfaces that are not there.
fn may_be_gone(mode: Mode, problem: &Error) -> bool {
    let is_missing = |problem: &io::Error| problem.kind() == io::ErrorKind::NotFound;
    mode == Mode::Filter && matches!(problem, Error::Rules(problem) if is_missing(problem))
}

#[cfg(test)]
mod tests {
    use nix::libc::{EINVAL, ENOENT};

    use super::*;

    #[test]
    fn what_is_tried_again_at_once() {
        let rules = |code: i32| Error::rules(io::Error::from_raw_os_error(code));
        for (mode, problem, again) in [
            (Mode::Filter, rules(ENOENT), true),
            (Mode::Filter, rules(EINVAL), false),
            (Mode::Filter, Error::kernel("read")(io::Error::from_raw_os_error(ENOENT)), false),
            (Mode::Filter, Error::NotPermitted, false),
            // Only there rules are about interfaces.
            (Mode::Nftables, rules(ENOENT), false),
        ] {
            assert_eq!(may_be_gone(mode, &problem), again, "{mode:?} {problem:?}");
        }
    }
}

//! Rules, as the kernel's machine runs them: what is loaded goes into one register after the other, and is then looked up or
//! acted upon. What a rule does not find ends it, and the next one is tried.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_core::Family;

use super::message::Attributes;

/// The first of sixteen registers of four bytes.
const FIRST: u32 = 8;

const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

/// Which frontends a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those at the address that a packet goes to.
    Address,
    /// Those at every address of the node: their keys have the unspecified one.
    Node,
}

/// A rule as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    bytes: Vec<u8>,
    next: u32,
}

impl Rule {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), next: FIRST }
    }

    /// A rule for packets of a family.
    pub(crate) fn of(family: Family) -> Self {
        const NETWORK_PROTOCOL: u32 = 15;
        Self::new().meta(NETWORK_PROTOCOL).compare(true, &[protocol_family(family)])
    }

    /// Its expressions.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    // What is loaded.

    /// Where the packet goes to, as the key of a frontend.
    pub(crate) fn place(self, family: Family, scope: Scope) -> Self {
        let register = self.next;
        self.destination(family).only_in(scope, register, family).protocol().port()
    }

    /// Where the connection went to at first, as the key of a frontend.
    pub(crate) fn first_place(self, family: Family, scope: Scope) -> Self {
        const DESTINATION_PORT: u32 = 12;
        let (destination, length) = match family {
            Family::V4 => (20, 4),
            Family::V6 => (22, 16),
        };
        let register = self.next;
        self.original(destination, length)
            .only_in(scope, register, family)
            .protocol()
            .original(DESTINATION_PORT, 4)
    }

    /// Where the packet comes from, without its host bits.
    pub(crate) fn source(mut self, family: Family, length: u8) -> Self {
        let register = self.next;
        self = match family {
            Family::V4 => self.payload(NETWORK_HEADER, 12, 4),
            Family::V6 => self.payload(NETWORK_HEADER, 8, 16),
        };
        if length == family.bits() { self } else { self.mask(register, &mask(family, length)) }
    }

    /// Where the packet goes to by now.
    pub(crate) fn destination(self, family: Family) -> Self {
        match family {
            Family::V4 => self.payload(NETWORK_HEADER, 16, 4),
            Family::V6 => self.payload(NETWORK_HEADER, 24, 16),
        }
    }

    /// The port that the packet goes to by now.
    pub(crate) fn port(self) -> Self {
        self.payload(TRANSPORT_HEADER, 2, 2)
    }

    /// A number below `count`, drawn.
    pub(crate) fn draw(mut self, count: u32) -> Self {
        const RANDOM: u32 = 1;
        let register = self.take(4);
        self.expression("numgen", |data| {
            data.number(1, register);
            data.number(2, count);
            data.number(3, RANDOM);
        })
    }

    fn protocol(self) -> Self {
        const TRANSPORT_PROTOCOL: u32 = 16;
        self.meta(TRANSPORT_PROTOCOL)
    }

    /// An address that is loaded stays, or becomes the unspecified one. A plain constant would do, but nft cannot show it.
    fn only_in(self, scope: Scope, register: u32, family: Family) -> Self {
        match scope {
            Scope::Address => self,
            Scope::Node => self.mask(register, &mask(family, 0)),
        }
    }

    fn payload(mut self, header: u32, offset: u32, length: u32) -> Self {
        let register = self.take(length as usize);
        self.expression("payload", |data| {
            data.number(1, register);
            data.number(2, header);
            data.number(3, offset);
            data.number(4, length);
        })
    }

    fn meta(mut self, key: u32) -> Self {
        let register = self.take(4);
        self.expression("meta", |data| {
            data.number(1, register);
            data.number(2, key);
        })
    }

    /// What conntrack knows of the first packet.
    fn original(mut self, key: u32, length: usize) -> Self {
        let register = self.take(length);
        self.expression("ct", |data| {
            data.number(1, register);
            data.number(2, key);
            data.put(3, &[0]);
        })
    }

    /// What conntrack knows of the connection.
    fn conntrack(mut self, key: u32) -> Self {
        let register = self.take(4);
        self.expression("ct", |data| {
            data.number(1, register);
            data.number(2, key);
        })
    }

    // What has to be so.

    /// What is loaded is in this set.
    pub(crate) fn when_in(mut self, set: &str) -> Self {
        self.next = FIRST;
        self.expression("lookup", |data| {
            data.text(1, set);
            data.number(2, FIRST);
        })
    }

    /// What is loaded is not in this set.
    pub(crate) fn when_not_in(mut self, set: &str) -> Self {
        const INVERTED: u32 = 1;
        self.next = FIRST;
        self.expression("lookup", |data| {
            data.text(1, set);
            data.number(2, FIRST);
            data.number(5, INVERTED);
        })
    }

    /// The packet answers somebody.
    pub(crate) fn when_answer(self) -> Self {
        const DIRECTION: u32 = 1;
        self.conntrack(DIRECTION).compare(true, &[1])
    }

    /// The destination of the connection is not the one it had.
    pub(crate) fn when_translated(self) -> Self {
        const STATUS: u32 = 2;
        const DESTINATION_TRANSLATED: u32 = 1 << 5;
        self.conntrack(STATUS).mask(FIRST, &DESTINATION_TRANSLATED.to_ne_bytes()).compare(false, &[0; 4])
    }

    /// The packet goes to an address of this node other than loopback. That takes a look at the routes.
    pub(crate) fn when_for_this_node(self, family: Family) -> Self {
        const BY_DESTINATION: u32 = 2;
        const KIND_OF_ADDRESS: u32 = 3;
        const LOCAL: u32 = 2;
        let rule = self.destination(family);
        let mut rule = match family {
            Family::V4 => rule.mask(FIRST, &mask(family, 8)).compare(false, &[127, 0, 0, 0]),
            Family::V6 => rule.compare(false, &Ipv6Addr::LOCALHOST.octets()),
        };
        let register = rule.take(4);
        rule.expression("fib", |data| {
            data.number(1, register);
            data.number(2, KIND_OF_ADDRESS);
            data.number(3, BY_DESTINATION);
        })
        .compare(true, &LOCAL.to_ne_bytes())
    }

    /// What was loaded last, and nothing else, is this, or is not.
    fn compare(mut self, equal: bool, value: &[u8]) -> Self {
        self.next = FIRST;
        self.expression("cmp", |data| {
            data.number(1, FIRST);
            data.number(2, u32::from(!equal));
            data.nest(3, |data| data.put(1, value));
        })
    }

    fn mask(self, register: u32, mask: &[u8]) -> Self {
        self.expression("bitwise", |data| {
            data.number(1, register);
            data.number(2, register);
            data.number(3, u32::try_from(mask.len()).unwrap_or(0));
            data.nest(4, |data| data.put(1, mask));
            data.nest(5, |data| data.put(1, &vec![0; mask.len()]));
        })
    }

    // What is done.

    /// Goes on at the start of another chain, and comes back.
    pub(crate) fn jump(self, chain: &str) -> Self {
        self.verdict(-3, Some(chain))
    }

    /// Goes on at the start of another chain.
    pub(crate) fn goto(self, chain: &str) -> Self {
        self.verdict(-4, Some(chain))
    }

    /// Goes on where the chain was jumped to.
    pub(crate) fn back(self) -> Self {
        self.verdict(-5, None)
    }

    pub(crate) fn drop(self) -> Self {
        self.verdict(0, None)
    }

    fn verdict(self, code: i32, chain: Option<&str>) -> Self {
        const VERDICT_REGISTER: u32 = 0;
        self.expression("immediate", |data| {
            data.number(1, VERDICT_REGISTER);
            data.nest(2, |data| {
                data.nest(2, |verdict| {
                    verdict.put(1, &code.to_be_bytes());
                    if let Some(chain) = chain {
                        verdict.text(2, chain);
                    }
                });
            });
        })
    }

    /// The client is told that there is nobody.
    pub(crate) fn refuse(self) -> Self {
        const ICMP_OF_ITS_FAMILY: u32 = 2;
        const PORT_UNREACHABLE: u8 = 1;
        self.expression("reject", |data| {
            data.number(1, ICMP_OF_ITS_FAMILY);
            data.put(2, &[PORT_UNREACHABLE]);
        })
    }

    /// The connection goes to the endpoint that this map has for what is loaded.
    pub(crate) fn translate(mut self, family: Family, map: &str) -> Self {
        const DESTINATION: u32 = 1;
        self.next = FIRST;
        let (address, port) = (self.take(mask(family, 0).len()), self.next);
        self.expression("lookup", |data| {
            data.text(1, map);
            data.number(2, FIRST);
            data.number(3, address);
        })
        .expression("nat", |data| {
            data.number(1, DESTINATION);
            data.number(2, u32::from(protocol_family(family)));
            data.number(3, address);
            data.number(5, port);
        })
    }

    /// The endpoint sees the node as its client. Ports are drawn: otherwise two connections that leave in the same moment may
    /// get the same one, and one is lost.
    pub(crate) fn masquerade(self) -> Self {
        const FULLY_RANDOM: u32 = 1 << 4;
        self.expression("masq", |data| data.number(1, FULLY_RANDOM))
    }

    /// Notes in a map, for so many seconds, what `value` loads, under the key that is loaded.
    pub(crate) fn note(mut self, map: &str, seconds: u32, value: impl FnOnce(Self) -> Self) -> Self {
        const UPDATE: u32 = 1;
        let register = self.next;
        self = value(self);
        self.expression("dynset", |data| {
            data.text(1, map);
            data.number(3, UPDATE);
            data.number(4, FIRST);
            data.number(5, register);
            data.put(6, &(u64::from(seconds) * 1000).to_be_bytes());
        })
    }

    fn take(&mut self, length: usize) -> u32 {
        let register = self.next;
        self.next += u32::try_from(length.div_ceil(4)).unwrap_or(0);
        register
    }

    fn expression(mut self, name: &str, fill: impl FnOnce(&mut Attributes<'_>)) -> Self {
        Attributes::new(&mut self.bytes).nest(1, |expression| {
            expression.text(1, name);
            expression.nest(2, fill);
        });
        self
    }
}

/// What the kernel calls a family.
fn protocol_family(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

fn mask(family: Family, length: u8) -> Vec<u8> {
    let mask: IpAddr = match family {
        Family::V4 => Ipv4Addr::from(!u32::MAX.checked_shr(length.into()).unwrap_or(0)).into(),
        Family::V6 => Ipv6Addr::from(!u128::MAX.checked_shr(length.into()).unwrap_or(0)).into(),
    };
    match mask {
        IpAddr::V4(mask) => mask.octets().to_vec(),
        IpAddr::V6(mask) => mask.octets().to_vec(),
    }
}

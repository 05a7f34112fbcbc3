//! Sets, chains and elements of nftables. A key is its fields one after the other, each padded to four bytes, the registers
//! of the kernel's machine; all are in the order of the network but for the numbers of slots, which are the machine's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portcullis_core::{Cidr, Family, Protocol};

use super::super::{Change, Count, Element, Place, Ruleset, Verdict};
use super::layout::Names;
use super::message::{
    ACK, Attributes, CREATE, DUMP, Messages, NFTABLES, Received, attribute, attributes, text,
};

/// The one table.
pub(crate) const TABLE: &str = "portcullis";
/// The protocols that are forwarded.
const PROTOCOLS: [Protocol; 3] = [Protocol::TCP, Protocol::UDP, Protocol::SCTP];
/// The family of the table.
pub(crate) const INET: u8 = 1;

const GET_TABLE: u16 = NFTABLES + 1;
const GET_CHAIN: u16 = NFTABLES + 4;
const GET_SET: u16 = NFTABLES + 10;
const NEW_ELEMENTS: u16 = NFTABLES + 12;
const GET_ELEMENTS: u16 = NFTABLES + 13;
const DELETE_ELEMENTS: u16 = NFTABLES + 14;

const TABLE_NAME: u16 = 1;
const TABLE_HANDLE: u16 = 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;

const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
const LIST_ELEMENT: u16 = 1;
const KEY: u16 = 1;
const DATA: u16 = 2;
const USER_DATA: u16 = 6;
const EXPRESSION: u16 = 7;
const VALUE: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;

/// A list of elements is one attribute, whose length has sixteen bits.
const LIST: usize = 60_000;

/// Whether elements come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Add,
    Remove,
}

/// An element in the kernel's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    key: Vec<u8>,
    data: Option<Vec<u8>>,
    comment: Option<String>,
    count: Count,
}

/// One batch for these changes, all of which happen or none.
pub(crate) fn gather(changes: &[Change]) -> Messages {
    Messages::batch(|messages| {
        // What goes is first, since what comes may have the same key.
        write_all(messages, Direction::Remove, changes);
        write_all(messages, Direction::Add, changes);
    })
}

/// All elements of a ruleset.
pub(crate) fn write_ruleset(messages: &mut Messages, ruleset: &Ruleset) {
    let changes: Vec<Change> = ruleset
        .frontends
        .iter()
        .map(|(place, elements)| Change { place: *place, remove: Vec::new(), add: elements.clone() })
        .collect();
    write_all(messages, Direction::Add, &changes);
}

/// Addresses of the node in the sets of this name, in place of those that are there.
pub(crate) fn write_addresses(messages: &mut Messages, name: &str, addresses: &BTreeSet<IpAddr>) {
    for family in Family::ALL {
        let set = format!("{name}{}", digit(family));
        messages.add(DELETE_ELEMENTS, 0, INET, |attributes| {
            attributes.text(LIST_TABLE, TABLE);
            attributes.text(LIST_SET, &set);
        });
        let those = addresses.iter().filter(|address| Family::of(**address) == family);
        let those = those.map(|address| Raw::new(KeyBytes::new().address(address.to_canonical()).0));
        write_set(messages, Direction::Add, &set, those);
    }
}

fn write_all(messages: &mut Messages, direction: Direction, changes: &[Change]) {
    let mut sets: BTreeMap<SetName, Vec<(Place, &Element)>> = BTreeMap::new();
    for change in changes {
        let elements = match direction {
            Direction::Add => &change.add,
            Direction::Remove => &change.remove,
        };
        for element in elements {
            let set = SetName::of(change.place, element);
            sets.entry(set).or_default().push((change.place, element));
        }
    }
    for (set, elements) in sets {
        let raw = elements.into_iter().map(|(place, element)| Raw::of(place, element));
        write_set(messages, direction, &set.to_string(), raw);
    }
}

fn write_set(
    messages: &mut Messages,
    direction: Direction,
    set: &str,
    elements: impl IntoIterator<Item = Raw>,
) {
    let (kind, flags) = match direction {
        Direction::Add => (NEW_ELEMENTS, CREATE),
        Direction::Remove => (DELETE_ELEMENTS, 0),
    };
    let mut elements = elements.into_iter().peekable();
    while elements.peek().is_some() {
        messages.add(kind, flags, INET, |attributes| {
            attributes.text(LIST_TABLE, TABLE);
            attributes.text(LIST_SET, set);
            attributes.nest(LIST_ELEMENTS, |list| {
                let start = list.len();
                while list.len() - start < LIST
                    && let Some(raw) = elements.next()
                {
                    list.nest(LIST_ELEMENT, |attributes| raw.write(attributes, direction));
                }
            });
        });
    }
}

impl Raw {
    fn new(key: Vec<u8>) -> Self {
        Self { key, data: None, comment: None, count: Count::default() }
    }

    /// An element of a frontend, as it is written.
    fn of(place: Place, element: &Element) -> Self {
        let key = KeyBytes::new();
        match element {
            Element::Frontend(comment) => {
                Raw { comment: Some(comment.clone()), ..Raw::new(key.place(place).0) }
            }
            Element::Arrived | Element::Dropped | Element::Serve(_) | Element::Masquerade => {
                Raw::new(key.place(place).0)
            }
            Element::Admit(range) => Raw::new(key.address(range.addr()).place(place).0),
            Element::Slot(slot, endpoint) => Raw {
                data: Some(KeyBytes::new().endpoint(*endpoint).0),
                ..Raw::new(key.place(place).bytes(&slot.to_ne_bytes()).0)
            },
            Element::Hairpin(endpoint) => Raw::new(key.address(*endpoint).address(*endpoint).place(place).0),
            Element::Member(_, endpoint) => Raw::new(key.place(place).endpoint(*endpoint).0),
        }
    }

    fn write(&self, attributes: &mut Attributes<'_>, direction: Direction) {
        attributes.nest(KEY, |key| key.put(VALUE, &self.key));
        if direction == Direction::Remove {
            return;
        }
        if let Some(value) = &self.data {
            attributes.nest(DATA, |data| data.put(VALUE, value));
        }
        if let Some(comment) = &self.comment {
            attributes.put(USER_DATA, &comment_data(comment));
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut raw = Self::new(attribute(attribute(bytes, KEY)?, VALUE)?.to_vec());
        raw.data = attribute(bytes, DATA).and_then(|data| attribute(data, VALUE)).map(<[u8]>::to_vec);
        raw.comment = attribute(bytes, USER_DATA).and_then(comment_of);
        if let Some(counter) =
            attribute(bytes, EXPRESSION).and_then(|expression| attribute(expression, EXPRESSION_DATA))
        {
            raw.count =
                Count { packets: number(counter, COUNTER_PACKETS), bytes: number(counter, COUNTER_BYTES) };
        }
        Some(raw)
    }
}

fn number(bytes: &[u8], kind: u16) -> u64 {
    attribute(bytes, kind).and_then(<[u8]>::first_chunk).map_or(0, |number| u64::from_be_bytes(*number))
}

/// nft reads comments from what the kernel only keeps: a type, a length, and a text with a zero.
fn comment_data(comment: &str) -> Vec<u8> {
    let length = u8::try_from(comment.len() + 1).expect("comments are cut to 127 bytes");
    [&[0, length], comment.as_bytes(), &[0]].concat()
}

fn comment_of(data: &[u8]) -> Option<String> {
    match data {
        [0, length, rest @ ..] => Some(text(rest.get(..usize::from(*length))?)),
        _ => None,
    }
}

/// A set, by the parts of its name. There are few of them, and many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SetName {
    kind: &'static str,
    family: Family,
    number: Option<u32>,
}

impl SetName {
    /// Where an element is.
    fn of(place: Place, element: &Element) -> Self {
        let (kind, number) = match element {
            Element::Frontend(_) => ("frontend", None),
            Element::Arrived => ("arrived", None),
            Element::Dropped => ("dropped", None),
            Element::Admit(range) => ("admit", Some(u32::from(range.prefix_len()))),
            Element::Serve(Verdict::Pick(count)) => ("pick", Some(*count)),
            Element::Serve(Verdict::Refuse) => ("refuse", None),
            Element::Slot(..) => ("slot", None),
            Element::Masquerade => ("masquerade", None),
            Element::Hairpin(_) => ("hairpin", None),
            Element::Member(timeout, _) => ("member", Some(*timeout)),
        };
        SetName { kind, family: place.family(), number }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, digit(self.family))?;
        self.number.map_or(Ok(()), |number| write!(f, "_{number}"))
    }
}

/// What an element of this set says; `None` if it is none that we would write.
pub(crate) fn read_element(set: &str, raw: &Raw) -> Option<(Place, Element)> {
    let (kind, family, number) = split_name(set)?;
    let mut key = Key { bytes: &raw.key, family };
    let read = match kind {
        "frontend" => (key.place()?, Element::Frontend(raw.comment.clone().unwrap_or_default())),
        "arrived" => (key.place()?, Element::Arrived),
        "dropped" => (key.place()?, Element::Dropped),
        "admit" => {
            let range = Cidr::new(key.address()?, u8::try_from(number?).ok()?).ok()?;
            (key.place()?, Element::Admit(range))
        }
        "pick" => (key.place()?, Element::Serve(Verdict::Pick(number?))),
        "refuse" => (key.place()?, Element::Serve(Verdict::Refuse)),
        "slot" => {
            let place = key.place()?;
            let slot = u32::from_ne_bytes(*key.take(4)?.first_chunk()?);
            (place, Element::Slot(slot, Key { bytes: raw.data.as_ref()?, family }.endpoint()?))
        }
        "masquerade" => (key.place()?, Element::Masquerade),
        "hairpin" => {
            let (endpoint, itself) = (key.address()?, key.address()?);
            let place = key.place()?;
            (endpoint == itself).then_some((place, Element::Hairpin(endpoint)))?
        }
        "member" => (key.place()?, Element::Member(number?, key.endpoint()?)),
        _ => return None,
    };
    key.bytes.is_empty().then_some(read)
}

/// The parts of a set's name: `admit4_24` are `admit`, IPv4 and 24.
fn split_name(set: &str) -> Option<(&str, Family, Option<u32>)> {
    let (name, number) = match set.split_once('_') {
        Some((name, number)) => (name, Some(number.parse().ok()?)),
        None => (set, None),
    };
    let family = Family::ALL.into_iter().find(|family| name.ends_with(digit(*family)))?;
    Some((&name[..name.len() - 1], family, number))
}

/// Whether a set has elements that we write, rather than the kernel.
pub(crate) fn element_sets(names: &Names) -> impl Iterator<Item = &str> {
    names.sets.iter().map(String::as_str).filter(|set| {
        split_name(set).is_some_and(|(kind, ..)| {
            [
                "frontend",
                "arrived",
                "dropped",
                "admit",
                "pick",
                "refuse",
                "slot",
                "masquerade",
                "hairpin",
                "member",
            ]
            .contains(&kind)
        })
    })
}

/// The map in which the kernel keeps who has which endpoint.
pub(crate) fn affinity_set(family: Family, timeout: u32) -> String {
    format!("affinity{}_{timeout}", digit(family))
}

/// The set of endpoints that are kept for so many seconds.
pub(crate) fn member_set(family: Family, timeout: u32) -> String {
    format!("member{}_{timeout}", digit(family))
}

/// A batch that makes clients forget their endpoint, of those for whom `stays` says so.
pub(crate) fn clients_to_forget(
    set: &str,
    clients: &[Raw],
    stays: impl Fn(Place, SocketAddr) -> bool,
) -> Option<Messages> {
    let (_, family, _) = split_name(set)?;
    let forgets = |raw: &&Raw| {
        let mut key = Key { bytes: &raw.key, family };
        let place = key.address().and_then(|_client| key.place());
        let endpoint = raw.data.as_ref().and_then(|data| Key { bytes: data, family }.endpoint());
        !matches!((place, endpoint), (Some(place), Some(endpoint)) if stays(place, endpoint))
    };
    let gone: Vec<Raw> = clients.iter().filter(forgets).cloned().collect();
    (!gone.is_empty()).then(|| Messages::batch(|messages| write_set(messages, Direction::Remove, set, gone)))
}

/// What a counter of a frontend says.
pub(crate) fn counted(set: &str, raw: &Raw) -> Option<(Place, Count)> {
    let (_, family, _) = split_name(set)?;
    Some((Key { bytes: &raw.key, family }.place()?, raw.count))
}

/// Asks for the table.
pub(crate) fn table() -> Messages {
    let mut messages = Messages::default();
    messages.add(GET_TABLE, DUMP, INET, |_| ());
    messages
}

/// The number that the kernel gave to our table, if the message is about it. A new table has a new number.
pub(crate) fn table_handle(message: Received<'_>) -> Option<u64> {
    let attributes = message.rest.get(4..)?;
    (text(attribute(attributes, TABLE_NAME)?) == TABLE).then(|| number(attributes, TABLE_HANDLE))
}

/// Asks for all sets of the table.
pub(crate) fn sets() -> Messages {
    let mut messages = Messages::default();
    messages.add(GET_SET, DUMP, INET, |attributes| attributes.text(SET_TABLE, TABLE));
    messages
}

/// Asks for all chains of the table. The kernel tells those of others too.
pub(crate) fn chains() -> Messages {
    let mut messages = Messages::default();
    messages.add(GET_CHAIN, DUMP, INET, |attributes| attributes.text(CHAIN_TABLE, TABLE));
    messages
}

/// Takes the name of a set or chain of our table.
pub(crate) fn names(message: Received<'_>, names: &mut Names) {
    const NEW_CHAIN: u16 = NFTABLES + 3;
    const NEW_SET: u16 = NFTABLES + 9;
    let bytes = message.rest.get(4..).unwrap_or_default();
    if attribute(bytes, SET_TABLE).map(text).as_deref() != Some(TABLE) {
        return;
    }
    match message.kind {
        NEW_CHAIN => names.chains.extend(attribute(bytes, CHAIN_NAME).map(text)),
        NEW_SET => {
            let name = attribute(bytes, SET_NAME).map(text);
            // Those without a name of their own come and go with their rule.
            names.sets.extend(name.filter(|name| !name.starts_with("__")));
        }
        _ => {}
    }
}

/// Asks for all elements of a set.
pub(crate) fn list_elements(set: &str) -> Messages {
    let mut messages = Messages::default();
    messages.add(GET_ELEMENTS, DUMP | ACK, INET, |attributes| {
        attributes.text(LIST_TABLE, TABLE);
        attributes.text(LIST_SET, set);
    });
    messages
}

/// The elements that a message tells of.
pub(crate) fn parse_elements(message: Received<'_>) -> impl Iterator<Item = Raw> {
    message
        .attributes()
        .filter(|(kind, _)| *kind == LIST_ELEMENTS)
        .flat_map(|(_, list)| attributes(list))
        .filter_map(|(_, element)| Raw::read(element))
}

/// How names end that are about a family.
pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

/// A key, as far as it is written.
struct KeyBytes(Vec<u8>);

/// The longest key has two addresses of IPv6 and a place.
const LONGEST: usize = 56;

impl KeyBytes {
    fn new() -> Self {
        KeyBytes(Vec::with_capacity(LONGEST))
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.bytes(&address.octets()),
            IpAddr::V6(address) => self.bytes(&address.octets()),
        }
    }

    fn port(self, port: u16) -> Self {
        self.bytes(&port.to_be_bytes()).bytes(&[0, 0])
    }

    fn place(self, place: Place) -> Self {
        self.address(place.address()).bytes(&[place.protocol().number(), 0, 0, 0]).port(place.port())
    }

    fn endpoint(self, endpoint: SocketAddr) -> Self {
        self.address(endpoint.ip()).port(endpoint.port())
    }
}

/// What is left of a key.
struct Key<'a> {
    bytes: &'a [u8],
    family: Family,
}

impl<'a> Key<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn address(&mut self) -> Option<IpAddr> {
        Some(match self.family {
            Family::V4 => Ipv4Addr::from(*self.take(4)?.first_chunk::<4>()?).into(),
            Family::V6 => Ipv6Addr::from(*self.take(16)?.first_chunk::<16>()?).into(),
        })
    }

    fn port(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    fn place(&mut self) -> Option<Place> {
        let address = self.address()?;
        let protocol = Protocol::new(self.take(4)?[0]);
        PROTOCOLS.contains(&protocol).then_some(())?;
        Place::new(address, protocol, self.port()?).ok()
    }

    fn endpoint(&mut self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address()?, self.port()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::message::messages;
    use super::*;

    fn address(family: Family) -> BoxedStrategy<IpAddr> {
        match family {
            Family::V4 => (1..0xdfff_ffffu32).prop_map(|bits| Ipv4Addr::from(bits).into()).boxed(),
            Family::V6 => {
                (0x2000u128 << 112..0x3000 << 112).prop_map(|bits| Ipv6Addr::from(bits).into()).boxed()
            }
        }
    }

    fn element(family: Family) -> impl Strategy<Value = Element> {
        let endpoint = (address(family), 1..=u16::MAX).prop_map(SocketAddr::from);
        let range = (address(family), 0..=family.bits())
            .prop_map(|(address, length)| Cidr::new(address, length).unwrap().network());
        prop_oneof![
            "[ -~]{0,127}".prop_map(Element::Frontend),
            Just(Element::Arrived),
            Just(Element::Dropped),
            range.prop_map(Element::Admit),
            (1..1000u32).prop_map(|count| Element::Serve(Verdict::Pick(count))),
            Just(Element::Serve(Verdict::Refuse)),
            (any::<u32>(), endpoint.clone()).prop_map(|(slot, endpoint)| Element::Slot(slot, endpoint)),
            Just(Element::Masquerade),
            address(family).prop_map(Element::Hairpin),
            (1..86_400u32, endpoint).prop_map(|(timeout, endpoint)| Element::Member(timeout, endpoint)),
        ]
    }

    fn placed() -> impl Strategy<Value = (Place, Element)> {
        prop_oneof![Just(Family::V4), Just(Family::V6)].prop_flat_map(|family| {
            let place = (address(family), proptest::sample::select(PROTOCOLS.to_vec()), 1..=u16::MAX)
                .prop_map(|(address, protocol, port)| Place::new(address, protocol, port).unwrap());
            (place, element(family))
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read((place, element) in placed()) {
            let change = Change { place, remove: Vec::new(), add: vec![element.clone()] };
            let batch = gather(&[change]);
            let set = SetName::of(place, &element).to_string();
            let written: Vec<(u16, Vec<Raw>)> =
                messages(batch.bytes()).map(|message| (message.kind, parse_elements(message).collect())).collect();
            prop_assert_eq!(written.len(), 3);
            prop_assert_eq!(written[1].0, NEW_ELEMENTS);
            prop_assert_eq!(read_element(&set, &written[1].1[0]), Some((place, element)));
        }

        #[test]
        fn elements_of_two_places_never_have_the_same_key((one, element) in placed(), port in 1..=u16::MAX) {
            let other = Place::new(one.address(), one.protocol(), port).unwrap();
            prop_assume!(one != other);
            prop_assert_ne!(Raw::of(one, &element).key, Raw::of(other, &element).key);
        }

        #[test]
        fn whatever_the_kernel_says_is_survived(set in "[a-z]{1,9}[46](_[0-9]{1,3})?", key: Vec<u8>, data: Vec<u8>) {
            let raw = Raw { data: Some(data), ..Raw::new(key) };
            let _ = read_element(&set, &raw);
        }
    }

    #[test]
    fn long_lists_are_several_messages_of_one_batch() {
        let place = Place::new("192.0.2.1".parse().unwrap(), Protocol::TCP, 80).unwrap();
        let endpoint = |slot: u32| Element::Slot(slot, "10.0.0.1:80".parse().unwrap());
        let change = Change { place, remove: Vec::new(), add: (0..5000).map(endpoint).collect() };
        let batch = gather(&[change]);
        let counts: Vec<usize> =
            messages(batch.bytes()).map(|message| parse_elements(message).count()).collect();
        assert!(counts.len() > 3, "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 5000);
    }
}

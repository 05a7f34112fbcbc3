//! What the kernel says about links and addresses (rtnetlink), as values. Whatever is new or too short is left out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Interface, Interfaces, Network};

// Kinds of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
pub(super) const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
pub(super) const GET_ADDRESS: u16 = 22;

// Attributes of links and of addresses.
const LINK_NAME: u16 = 3;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;

const FLAG_LOOPBACK: u32 = 0x8;
/// Another machine has it, or that is still being found out.
const UNUSABLE: u32 = 0x08 | 0x40;

const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;

const HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;

/// A piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Link {
        index: u32,
        name: String,
        master: Option<u32>,
        is_loopback: bool,
        is_veth: bool,
    },
    LinkGone(u32),
    Address {
        index: u32,
        address: IpAddr,
        network: Network,
    },
    AddressGone {
        index: u32,
        address: IpAddr,
        network: Network,
    },
    /// All that was asked for has been told.
    Told,
    /// Something changed while it was: it may not fit together.
    Interrupted,
    /// What was asked for cannot be told.
    Refused(i32),
}

/// Asks for all links, or all addresses. `number` comes back with every answer.
pub(super) fn ask(kind: u16, number: u32) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + LINK_HEADER);
    let body = [0_u8; LINK_HEADER];
    let length = u32::try_from(HEADER + body.len()).unwrap_or_default();
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | DUMP).to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message
}

/// What a datagram says, with the number of the question that it answers, or 0.
pub(super) fn read(mut datagram: &[u8]) -> Vec<(u32, News)> {
    const INTERRUPTED: u16 = 0x10;
    let mut all = Vec::new();
    while let (Some(length), Some(kind), Some(flags), Some(number)) =
        (word(datagram, 0), half(datagram, 4), half(datagram, 6), word(datagram, 8))
    {
        let length = length as usize;
        let Some(body) = datagram.get(HEADER..length) else { break };
        if flags & INTERRUPTED != 0 {
            all.push((number, News::Interrupted));
        }
        let news = match kind {
            DONE => Some(News::Told),
            ERROR => word(body, 0).map(u32::cast_signed).filter(|code| *code != 0).map(News::Refused),
            // What bridges say about their parts is of another family, and goes when a part leaves them.
            NEW_LINK | DELETE_LINK if body.first() != Some(&0) => None,
            NEW_LINK => link(body),
            DELETE_LINK => word(body, 4).map(News::LinkGone),
            NEW_ADDRESS => address(body, true),
            DELETE_ADDRESS => address(body, false),
            _ => None,
        };
        all.extend(news.map(|news| (number, news)));
        let Some(rest) = datagram.get(length.next_multiple_of(4)..) else { break };
        datagram = rest;
    }
    all
}

fn link(body: &[u8]) -> Option<News> {
    let (index, flags) = (word(body, 4)?, word(body, 8)?);
    let (mut name, mut master, mut is_veth) = (None, None, false);
    for (kind, value) in attributes(body.get(LINK_HEADER..)?) {
        match kind {
            LINK_NAME => name = Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()),
            LINK_MASTER => master = word(value, 0).filter(|master| *master != 0),
            LINK_INFO => {
                let kind = attributes(value).into_iter().find(|(kind, _)| *kind == INFO_KIND);
                is_veth = kind.is_some_and(|(_, kind)| kind.strip_suffix(b"\0").unwrap_or(kind) == b"veth");
            }
            _ => {}
        }
    }
    let is_loopback = flags & FLAG_LOOPBACK != 0;
    Some(News::Link { index, name: name?, master, is_loopback, is_veth })
}

fn address(body: &[u8], comes: bool) -> Option<News> {
    let index = word(body, 4)?;
    let mut flags = u32::from(*body.get(2)?);
    let (mut address, mut local) = (None, None);
    for (kind, value) in attributes(body.get(ADDRESS_HEADER..)?) {
        match kind {
            ADDRESS => address = ip(value),
            // Where both ends of a line have an address, this is ours.
            LOCAL_ADDRESS => local = ip(value),
            ADDRESS_FLAGS => flags = word(value, 0)?,
            _ => {}
        }
    }
    let network = (*body.get(1)?, address.or(local)?);
    let address = local.or(address)?;
    Some(if comes && flags & UNUSABLE == 0 {
        News::Address { index, address, network }
    } else {
        News::AddressGone { index, address, network }
    })
}

/// Kinds and values of attributes.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    const KIND: u16 = 0x3fff;
    let mut all = Vec::new();
    while let (Some(length), Some(kind)) = (half(bytes, 0), half(bytes, 2)) {
        let length = usize::from(length);
        let Some(value) = bytes.get(4..length) else { break };
        all.push((kind & KIND, value));
        let Some(rest) = bytes.get(length.next_multiple_of(4)..) else { break };
        bytes = rest;
    }
    all
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(value) {
        return Some(IpAddr::V4(Ipv4Addr::from(four)));
    }
    <[u8; 16]>::try_from(value).ok().map(|sixteen| IpAddr::V6(Ipv6Addr::from(sixteen)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Interfaces {
    /// Takes a piece of news in.
    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Link { index, name, master, is_loopback, is_veth } => {
                let interface = self.links.entry(index).or_default();
                *interface = Interface {
                    name,
                    master,
                    is_loopback,
                    is_veth,
                    addresses: std::mem::take(&mut interface.addresses),
                };
            }
            News::LinkGone(index) => {
                self.links.remove(&index);
                self.networks.retain(|(of, _), _| *of != index);
            }
            News::Address { index, address, network } => {
                self.links.entry(index).or_default().addresses.insert(address);
                let networks = self.networks.entry((index, address)).or_default();
                // Of IPv6 an interface has each address once, whatever the kernel says of its network by now.
                if address.is_ipv6() {
                    networks.clear();
                }
                networks.insert(network);
            }
            News::AddressGone { index, address, network } => {
                if let Some(left) = self.networks.get_mut(&(index, address)) {
                    left.remove(&network);
                    if !left.is_empty() {
                        return;
                    }
                }
                self.networks.remove(&(index, address));
                if let Some(interface) = self.links.get_mut(&index) {
                    interface.addresses.remove(&address);
                }
            }
            News::Told | News::Interrupted | News::Refused(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn link_message(index: u32, name: &str, master: u32) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        body.extend(attribute(LINK_NAME, format!("{name}\0").as_bytes()));
        body.extend(attribute(LINK_MASTER, &master.to_ne_bytes()));
        message(NEW_LINK, 0, &body)
    }

    fn address_message(kind: u16, index: u32, flags: u32, address: &[u8]) -> Vec<u8> {
        let mut body = vec![2, 24, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend(attribute(ADDRESS, address));
        body.extend(attribute(ADDRESS_FLAGS, &flags.to_ne_bytes()));
        message(kind, 0, &body)
    }

    #[test]
    fn what_is_told_is_taken_in() {
        let mut interfaces = Interfaces::default();
        let mut tell = |bytes: &[u8]| {
            for (_, news) in read(bytes) {
                interfaces.take(news);
            }
            interfaces.clone()
        };
        tell(&[link_message(2, "enp3s0", 0), address_message(NEW_ADDRESS, 2, 0, &[192, 0, 2, 7])].concat());
        let found = tell(&link_message(3, "veth", 2));
        assert_eq!(found.find("veth").unwrap().master, Some(2));
        assert!(found.have("192.0.2.7".parse().unwrap()));
        // One that is still tried out does not count, nor one that another machine has.
        for flags in [0x40, 0x08] {
            let found = tell(&address_message(NEW_ADDRESS, 2, flags, &[192, 0, 2, 7]));
            assert!(!found.have("192.0.2.7".parse().unwrap()), "{flags}");
            tell(&address_message(NEW_ADDRESS, 2, 0, &[192, 0, 2, 7]));
        }
        // Another name keeps its addresses; what is gone has none.
        let found = tell(&link_message(2, "lan", 0));
        assert_eq!(found.find("lan").unwrap().addresses.len(), 1);
        tell(&address_message(DELETE_ADDRESS, 2, 0, &[192, 0, 2, 7]));
        let mut gone = vec![0; 4];
        gone.extend(2_u32.to_ne_bytes());
        gone.extend([0; 8]);
        assert_eq!(tell(&message(DELETE_LINK, 0, &gone)).iter().count(), 1);
    }

    #[test]
    fn an_answer_that_was_interrupted_says_so() {
        assert_eq!(read(&message(DONE, 0, &[0; 4])), [(7, News::Told)]);
        assert_eq!(read(&message(DONE, 0x10, &[0; 4])), [(7, News::Interrupted), (7, News::Told)]);
        assert_eq!(read(&message(ERROR, 0, &(-1_i32).to_ne_bytes())), [(7, News::Refused(-1))]);
    }

    #[test]
    fn nonsense_is_left_out() {
        let whole =
            [link_message(2, "enp3s0", 0), address_message(NEW_ADDRESS, 2, 0, &[1, 2, 3, 4])].concat();
        for end in 0..whole.len() {
            let _ = read(&whole[..end]);
        }
        for place in 0..whole.len() {
            let mut other = whole.clone();
            other[place] ^= 0xff;
            let _ = read(&other);
        }
        assert_eq!(read(&[0; 64]), []);
    }
}

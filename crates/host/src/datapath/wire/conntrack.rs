//! Connections that the kernel tracks.

use std::net::{IpAddr, SocketAddr};

use portcullis_core::{Family, Protocol};

use super::message::{ACK, CONNTRACK, DUMP, Messages, Received, attribute};

const GET: u16 = CONNTRACK + 1;
const DELETE: u16 = CONNTRACK + 2;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
const FILTER_ORIGINAL: u16 = 1;
const FILTER_REPLY: u16 = 2;
/// Of the original direction only the protocol is compared.
const BY_PROTOCOL: u32 = 1 << 3;

const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const PROTOCOL: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// A connection: where it goes as its client sees it, and who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) protocol: Protocol,
    pub(crate) to: SocketAddr,
    pub(crate) answered_by: SocketAddr,
    /// The kernel's name for it.
    original: Vec<u8>,
    zone: Option<Vec<u8>>,
    family: u8,
}

/// Asks for all connections of a family and a protocol. A kernel before 5.8 tells those of all protocols.
pub(crate) fn flows(family: Family, protocol: Protocol) -> Messages {
    let family = match family {
        Family::V4 => 2,
        Family::V6 => 10,
    };
    let mut messages = Messages::default();
    messages.add(GET, DUMP, family, |attributes| {
        attributes.nest(ORIGINAL, |tuple| {
            tuple.nest(TUPLE_PROTOCOL, |fields| fields.put(PROTOCOL, &[protocol.number()]));
        });
        attributes.nest(FILTER, |filter| {
            filter.put(FILTER_ORIGINAL, &BY_PROTOCOL.to_ne_bytes());
            filter.put(FILTER_REPLY, &0u32.to_ne_bytes());
        });
    });
    messages
}

/// The connection that a message tells of.
pub(crate) fn parse_flow(message: Received<'_>) -> Option<Flow> {
    let bytes = message.rest.get(4..)?;
    let (original, reply) = (attribute(bytes, ORIGINAL)?, attribute(bytes, REPLY)?);
    let protocol = *attribute(attribute(original, TUPLE_PROTOCOL)?, PROTOCOL)?.first()?;
    Some(Flow {
        protocol: Protocol::new(protocol),
        to: SocketAddr::new(address(original, [2, 4])?, port(original, DESTINATION_PORT)?),
        answered_by: SocketAddr::new(address(reply, [1, 3])?, port(reply, SOURCE_PORT)?),
        original: original.to_vec(),
        zone: attribute(bytes, ZONE).map(<[u8]>::to_vec),
        family: *message.rest.first()?,
    })
}

/// Makes the kernel forget a connection.
pub(crate) fn delete_flow(flow: &Flow) -> Messages {
    let mut messages = Messages::default();
    messages.add(DELETE, ACK, flow.family, |attributes| {
        attributes.put(ORIGINAL | 0x8000, &flow.original);
        if let Some(zone) = &flow.zone {
            attributes.put(ZONE, zone);
        }
    });
    messages
}

/// The address of a direction that has one of these numbers, for IPv4 and IPv6.
fn address(tuple: &[u8], [v4, v6]: [u16; 2]) -> Option<IpAddr> {
    let addresses = attribute(tuple, TUPLE_ADDRESSES)?;
    if let Some(address) = attribute(addresses, v4) {
        return Some(IpAddr::from(*address.first_chunk::<4>()?));
    }
    Some(IpAddr::from(*attribute(addresses, v6)?.first_chunk::<16>()?))
}

fn port(tuple: &[u8], kind: u16) -> Option<u16> {
    Some(u16::from_be_bytes(*attribute(attribute(tuple, TUPLE_PROTOCOL)?, kind)?.first_chunk()?))
}

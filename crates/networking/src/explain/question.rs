use std::net::IpAddr;

use portcullis_core::{Direction, Family, Protocol, Traffic};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::error::Error;
use crate::kinds::{Kind, VERSION};
use crate::resources::rule::{DIRECTION, PROTOCOL};

/// What is asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) who: Who,
    pub(super) packet: Packet,
}

/// Between whom.
#[derive(Debug)]
pub(super) enum Who {
    /// One of our ports and an address.
    One { port: Uuid, direction: Direction, remote: IpAddr, local: Option<IpAddr> },
    /// A sender and a receiver, of which one at least is a port of ours.
    Two { from: Named, to: Named, version: Option<i64> },
}

/// An end, by its port, by its address, or by both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) port: Option<Uuid>,
    pub(super) address: Option<IpAddr>,
}

/// What the packet carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) protocol: Protocol,
    /// Where it goes to, where the protocol has ports.
    pub(super) port: u16,
    pub(super) source_port: Option<u16>,
    pub(super) icmp_type: u8,
    pub(super) icmp_code: u8,
}

impl Packet {
    /// The same in the terms of rules. ICMP is the one of the family.
    pub(super) fn traffic(&self, family: Family) -> Traffic {
        if self.protocol.icmp_family().is_some() {
            return Traffic::icmp(family, self.icmp_type, Some(self.icmp_code));
        }
        let port = portcullis_core::PortRange::single(self.port);
        Traffic::ports(self.protocol, port).unwrap_or_else(|_| Traffic::of(self.protocol))
    }
}

/// The parts of a question.
pub(crate) const PARTS: [(&str, Kind); 14] = [
    ("source_ip", Kind::Address),
    ("destination_ip", Kind::Address),
    ("port_id", Kind::Id),
    ("direction", DIRECTION),
    ("remote_ip", Kind::Address),
    ("local_ip", Kind::Address),
    ("from_port_id", Kind::Id),
    ("to_port_id", Kind::Id),
    ("ip_version", VERSION),
    ("protocol", PROTOCOL),
    ("port", Kind::Number(0, 65_535)),
    ("source_port", Kind::Number(0, 65_535)),
    ("icmp_type", Kind::Number(0, 255)),
    ("icmp_code", Kind::Number(0, 255)),
];

impl Question {
    pub(super) fn read(body: &Value) -> Result<Self, Error> {
        let given = body.as_object().ok_or_else(|| Error::bad_request("Body contains invalid data"))?;
        let mut parts = Map::new();
        for (name, value) in given {
            let Some((_, kind)) = PARTS.iter().find(|(known, _)| known == name) else {
                return Err(Error::bad_request(format!("Unrecognized attribute(s) '{name}'")));
            };
            let value = kind.check(value).map_err(|reason| Error::invalid_attribute(name, reason))?;
            parts.insert(name.clone(), value);
        }
        let parts = Parts(parts);
        let one = ["port_id", "direction", "remote_ip", "local_ip"];
        let two = ["from_port_id", "to_port_id", "source_ip", "destination_ip", "ip_version"];
        let given = |names: &[&'static str]| names.iter().copied().find(|name| parts.0.contains_key(*name));
        if let (Some(one), Some(two)) = (given(&one), given(&two)) {
            return Err(Error::bad_request(format!(
                "'{one}' is about one port and '{two}' about two: ask one question"
            )));
        }
        let who = if parts.0.contains_key("port_id") {
            let remote: IpAddr = parts.parsed("remote_ip")?;
            let local: Option<IpAddr> = parts.text("local_ip").and_then(|text| text.parse().ok());
            if local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4()) {
                return Err(Error::invalid_input("local_ip and remote_ip are not of one family"));
            }
            let direction = match parts.required("direction")? {
                "egress" => Direction::Egress,
                _ => Direction::Ingress,
            };
            Who::One { port: parts.parsed("port_id")?, direction, remote, local }
        } else if given(&two).is_some() {
            between(&parts)?
        } else {
            return Err(Error::bad_request(
                "Failed to parse request. Required are 'source_ip' and 'destination_ip', 'from_port_id' and 'to_port_id', \
                 or 'port_id', 'direction' and 'remote_ip'",
            ));
        };
        Ok(Question { who, packet: packet(&parts)? })
    }
}

/// Who sends, and to whom.
fn between(parts: &Parts) -> Result<Who, Error> {
    let from = Named { port: parts.given("from_port_id")?, address: parts.given("source_ip")? };
    let to = Named { port: parts.given("to_port_id")?, address: parts.given("destination_ip")? };
    // Who asks in one way is told what is missing in the same.
    let by_port = from.port.is_some() || to.port.is_some();
    for (end, port, address) in [(from, "from_port_id", "source_ip"), (to, "to_port_id", "destination_ip")] {
        if end.port.is_none() && end.address.is_none() {
            return Err(missing(if by_port { port } else { address }));
        }
    }
    let version = parts.number("ip_version");
    let is_v4 = |end: Named| end.address.map(|address| address.is_ipv4());
    let families = [is_v4(from), is_v4(to), version.map(|version| version == 4)];
    let families: Vec<bool> = families.into_iter().flatten().collect();
    if families.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(Error::invalid_input("source_ip, destination_ip and ip_version are not of one family"));
    }
    if from.port.is_some() && from.port == to.port {
        return Err(itself());
    }
    Ok(Who::Two { from, to, version })
}

/// That both ends are one.
pub(super) fn itself() -> Error {
    Error::invalid_input("a port sends nothing to itself")
}

fn missing(name: &str) -> Error {
    Error::bad_request(format!("Failed to parse request. Required attribute '{name}' not specified"))
}

/// The checked parts of a question.
struct Parts(Map<String, Value>);

impl Parts {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn required(&self, name: &str) -> Result<&str, Error> {
        self.text(name).ok_or_else(|| missing(name))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T, Error> {
        self.required(name)?.parse().map_err(|_| missing(name))
    }

    fn given<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        self.0.contains_key(name).then(|| self.parsed(name)).transpose()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    fn small<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        self.number(name).and_then(|number| number.try_into().ok())
    }
}

fn packet(parts: &Parts) -> Result<Packet, Error> {
    let text = parts.required("protocol")?;
    let protocol: Protocol = text
        .parse()
        .map_err(|_| Error::invalid_attribute("protocol", format!("{} is not a protocol", json!(text))))?;
    let must_have_port = [Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&protocol);
    let is_icmp = protocol.icmp_family().is_some();
    let port: Option<u16> = parts.small("port");
    let icmp_type: Option<u8> = parts.small("icmp_type");
    if must_have_port && port.is_none() {
        return Err(missing("port"));
    }
    if is_icmp && icmp_type.is_none() {
        return Err(missing("icmp_type"));
    }
    Ok(Packet {
        protocol,
        port: port.unwrap_or_default(),
        source_port: parts.small("source_port"),
        icmp_type: icmp_type.unwrap_or_default(),
        icmp_code: parts.small("icmp_code").unwrap_or_default(),
    })
}

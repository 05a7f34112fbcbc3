//! Services at the addresses of nodes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use portcullis_core::Protocol;
use portcullis_host::datapath::{Counters, Datapath, Place};
use portcullis_kube_api::enforced::enforced;
use portcullis_kube_api::host::{assigned, held_by_another, wants_host};
use portcullis_kube_api::ingress::ranges::{Said, effective};
use serde::Serialize;

use super::{Row, address, age, in_few_words, or_none, unanswered};
use crate::config::Loaded;
use crate::exit::Failure;
use crate::output::{self, Format};

/// How a Service is reached.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reached {
    name: String,
    address: Option<String>,
    /// `80/tcp` and so on.
    ports: Vec<String>,
    /// Everyone, if there are none.
    ranges: Vec<String>,
    /// Whether anything keeps others out, if somebody said so.
    enforced: Option<bool>,
    /// Why it does not have what it asks for.
    blocked: Option<Blocked>,
    /// What came to it at the addresses of this machine, if that serves any.
    packets: Option<Packets>,
    #[serde(skip)]
    age: Option<String>,
}

#[derive(Debug, Serialize)]
struct Blocked {
    reason: String,
    message: String,
}

#[derive(Debug, Default, Serialize)]
struct Packets {
    arrived: u64,
    dropped: u64,
    /// The same at each address and port, and at its node ports.
    at: Vec<AtPlace>,
}

#[derive(Debug, Serialize)]
struct AtPlace {
    place: String,
    arrived: u64,
    dropped: u64,
}

pub(super) async fn look(loaded: &Loaded, client: &Client) -> Result<Vec<Reached>, Failure> {
    let given = &loaded.config.host;
    let found = Api::<Service>::all(client.clone()).list(&ListParams::default()).await;
    let found = found.map_err(|error| unanswered(&error))?;
    let ours = found.items.into_iter();
    let ours = ours.filter(|service| {
        wants_host(service, &given.class, given.without_class)
            || held_by_another(service, given.without_class).is_some()
    });
    let services: BTreeMap<String, Service> = ours.map(|service| (key(&service), service)).collect();
    // Who may not look at the packet filters of this machine is not told: most look from elsewhere.
    let counted = Datapath::open().and_then(|mut datapath| datapath.counters()).unwrap_or_default();
    Ok(services.iter().map(|(name, service)| reached(name, service, packets(service, &counted))).collect())
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

/// What the packet filters of this machine counted for a Service, if they have anything of it.
fn packets(service: &Service, counted: &BTreeMap<Place, Counters>) -> Option<Packets> {
    let mut all = Packets::default();
    for place in places(service) {
        let Some(counters) = counted.get(&place) else { continue };
        let (arrived, dropped) = (counters.arrived.packets, counters.dropped.packets);
        all.arrived += arrived;
        all.dropped += dropped;
        all.at.push(AtPlace { place: place.to_string(), arrived, dropped });
    }
    Some(all).filter(|all| !all.at.is_empty())
}

/// Where a Service may be reached: its ports at its addresses, and its node ports at all of them.
fn places(service: &Service) -> Vec<Place> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = ingress.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
    let addresses: Vec<IpAddr> = ingress.filter_map(|one| one.ip.as_deref()?.parse().ok()).collect();
    let everywhere = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    let of_port = |port: &ServicePort| {
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => Protocol::UDP,
            Some("SCTP") => Protocol::SCTP,
            _ => Protocol::TCP,
        };
        let at = |addresses: &[IpAddr], number: i32| -> Vec<Place> {
            let number = u16::try_from(number).unwrap_or_default();
            addresses.iter().filter_map(|address| Place::new(*address, protocol, number).ok()).collect()
        };
        let mut places = at(&addresses, port.port);
        places.extend(at(&everywhere, port.node_port.unwrap_or_default()));
        places
    };
    ports.flat_map(of_port).collect()
}

fn reached(name: &str, service: &Service, packets: Option<Packets>) -> Reached {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    // What is said of addresses is of the time before somebody else came to hold it.
    let held = held_by_another(service, true);
    let said = assigned(service).filter(|_| held.is_none());
    Reached {
        name: name.to_owned(),
        address: address(service),
        ports: ports
            .map(|port| {
                let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
                format!("{}/{protocol}", port.port)
            })
            .collect(),
        ranges: effective(Said::by(service)).ranges,
        enforced: enforced(service).map(|(is, _)| is),
        blocked: match said {
            Some(condition) if condition.status == "True" => None,
            Some(condition) => {
                Some(Blocked { reason: condition.reason.clone(), message: condition.message.clone() })
            }
            None if held.is_some() => held.map(|(finalizer, who)| Blocked {
                reason: "NotOurs".to_owned(),
                message: format!("It is held by {who}, by the finalizer {finalizer}: if that does not run any more, remove the finalizer."),
            }),
            None => Some(Blocked {
                reason: "NotSeen".to_owned(),
                message: "Nobody has looked at it yet: see whether Portcullis runs, with host.enabled and host.controller.".to_owned(),
            }),
        },
        packets,
        age: age(&service.metadata),
    }
}

impl Reached {
    /// Whether others are kept out, in one word.
    fn kept_out(&self) -> String {
        match (self.ranges.is_empty(), self.enforced) {
            (true, _) => "–",
            (false, Some(true)) => "yes",
            (false, Some(false)) => "no",
            (false, None) => "unknown",
        }
        .to_owned()
    }
}

/// The columns that it has in common with everything else.
pub(super) fn row(reached: &Reached) -> Row {
    Row {
        kind: "Service",
        name: reached.name.clone(),
        provider: Some("host".to_owned()),
        address: reached.address.clone(),
        open: in_few_words(&reached.ranges),
        enforced: reached.kept_out(),
        members: None,
        age: reached.age.clone(),
        note: reached.blocked.as_ref().map(|blocked| blocked.message.clone()).unwrap_or_default(),
    }
}

pub(super) fn shown(all: &[Reached], format: Format) -> Result<String, Failure> {
    Ok(match format {
        Format::Json => output::json(&all)?,
        Format::Yaml => output::yaml(&all)?,
        Format::Table if all.is_empty() => "There are no Services at addresses of nodes.\n".to_owned(),
        Format::Table => table(all),
    })
}

/// A table, and below it in sentences what blocks.
fn table(all: &[Reached]) -> String {
    let cells = all.iter().map(|one| {
        vec![
            one.name.clone(),
            or_none(one.address.clone()),
            one.ports.join(", "),
            in_few_words(&one.ranges),
            one.kept_out(),
            or_none(one.packets.as_ref().map(|packets| packets.arrived.to_string())),
            or_none(one.packets.as_ref().map(|packets| packets.dropped.to_string())),
            or_none(one.age.clone()),
            one.blocked.as_ref().map(|blocked| blocked.reason.clone()).unwrap_or_default(),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let head = ["NAME", "ADDRESS", "PORTS", "OPEN TO", "ENFORCED", "ARRIVED", "DROPPED", "AGE", "BLOCKED BY"];
    let mut text = output::table(&head, &cells);
    let blocked = all.iter().filter_map(|one| Some((&one.name, one.blocked.as_ref()?)));
    for (number, (name, blocked)) in blocked.enumerate() {
        let gap = if number == 0 { "\n" } else { "" };
        text.extend([gap, name, ": ", &blocked.message, "\n"]);
    }
    text
}

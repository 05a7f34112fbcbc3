//! What a Service asks of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use portcullis_core::{Admission, EmptyMeans, Family, Owner, Protocol, SourceRanges};
use portcullis_host::claims::{Claim, Name, Port};
use portcullis_host::datapath::{ClientAddress, Frontend, Place};
use portcullis_host::interfaces::Entry;
use portcullis_kube_api::host::{LISTEN_ADDRESSES, NODE_PORTS};
use portcullis_kube_api::source_ranges;

use super::others::external_ips;
use super::told::Item;

/// For how long a client keeps its endpoint, where a Service does not say.
const USUAL_AFFINITY: i32 = 10_800;

/// The name of a Service: `NAMESPACE/NAME`.
pub(super) fn name(service: &Service) -> Name {
    Name::from(format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()))
}

/// Whether this is the Service that it was before, and not another one of its name.
pub(super) fn is_same(before: Option<&Service>, now: Option<&Service>) -> bool {
    before.zip(now).is_some_and(|(before, now)| before.uid() == now.uid())
}

/// What a Service asks for.
pub(super) fn claim(service: &Service) -> Claim {
    let none = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    let created = service.metadata.creation_timestamp.as_ref();
    Claim {
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        ports: all_ports(spec),
        at: entries(service, spec),
        families: families(spec),
        held: held(service),
        node_ports: node_ports(spec),
        external: external(service, spec),
    }
}

/// The ports of addresses that people wrote on a Service: whoever forwards packets does so there, whoever looks after it.
fn external(service: &Service, spec: &ServiceSpec) -> BTreeSet<(IpAddr, Port)> {
    let ports = all_ports(spec);
    external_ips(service).flat_map(|address| ports.iter().map(move |port| (address, *port))).collect()
}

/// Whether the source ranges of a Service are to count for its node ports, too.
pub(super) fn covers_node_ports(service: &Service) -> bool {
    service.annotations().get(NODE_PORTS).is_some_and(|value| value == "true")
}

/// The port on which nodes tell whether they have an endpoint of a Service.
pub(super) fn health_check(spec: &ServiceSpec) -> Option<u16> {
    let port = spec.health_check_node_port.filter(|_| is_local(spec))?;
    u16::try_from(port).ok().filter(|port| *port > 0)
}

/// The ports of nodes that lead to a Service.
pub(super) fn node_ports(spec: &ServiceSpec) -> BTreeSet<Port> {
    let port = |port: &ServicePort| {
        let number = u16::try_from(port.node_port?).ok().filter(|number| *number > 0)?;
        Some(Port { protocol: protocol(port.protocol.as_deref()), number })
    };
    ports(spec).filter_map(port).collect()
}

/// The ports of a Service.
pub(super) fn all_ports(spec: &ServiceSpec) -> BTreeSet<Port> {
    let port = |port: &ServicePort| {
        Some(Port { protocol: protocol(port.protocol.as_deref()), number: number(port)? })
    };
    ports(spec).filter_map(port).collect()
}

fn ports(spec: &ServiceSpec) -> impl Iterator<Item = &ServicePort> {
    spec.ports.iter().flatten()
}

fn number(port: &ServicePort) -> Option<u16> {
    u16::try_from(port.port).ok().filter(|number| *number > 0)
}

fn protocol(name: Option<&str>) -> Protocol {
    match name {
        Some("UDP") => Protocol::UDP,
        Some("SCTP") => Protocol::SCTP,
        _ => Protocol::TCP,
    }
}

/// Where a Service wants to be reached. An annotation without anything in it names no address: who left a placeholder empty
/// does not mean all of them.
fn entries(service: &Service, spec: &ServiceSpec) -> Option<Vec<Entry>> {
    let split =
        |text: &str| text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(Entry::from).collect();
    let annotation = service.annotations().get(LISTEN_ADDRESSES).map(|text| split(text));
    annotation.or_else(|| spec.load_balancer_ip.as_deref().filter(|text| !text.is_empty()).map(split))
}

fn families(spec: &ServiceSpec) -> BTreeSet<Family> {
    let named = spec.ip_families.iter().flatten().filter_map(|family| match family.as_str() {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    });
    named.collect()
}

/// The addresses that a Service has, with its ports there, as far as whoever gave them to it said so.
fn held(service: &Service) -> Vec<(IpAddr, Option<Vec<Port>>)> {
    let ingress = ingress(service).filter_map(|one| {
        let ports = one.ports.as_ref().filter(|ports| !ports.is_empty()).map(|ports| {
            let port = |port: &PortStatus| {
                let number = u16::try_from(port.port).unwrap_or_default();
                Port { protocol: protocol(Some(&port.protocol)), number }
            };
            ports.iter().map(port).collect()
        });
        Some((one.ip.as_deref()?.parse().ok()?, ports))
    });
    ingress.collect()
}

/// Where the status of a Service says that it is reached: whoever forwards packets goes by that.
pub(super) fn told_at(service: &Service) -> Vec<(IpAddr, Port)> {
    let held = held(service).into_iter();
    let places = held.flat_map(|(address, ports)| {
        let all = || service.spec.as_ref().map(all_ports).unwrap_or_default().into_iter().collect();
        ports.unwrap_or_else(all).into_iter().map(move |port| (address, port))
    });
    places.collect()
}

/// What the status of a Service has.
pub(super) fn ingress(service: &Service) -> impl Iterator<Item = &LoadBalancerIngress> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.as_ref()).into_iter().flatten()
}

/// The addresses that a Service has.
pub(super) fn addresses(service: &Service) -> BTreeSet<IpAddr> {
    ingress(service).filter_map(|one| one.ip.as_deref()?.parse().ok()).collect()
}

/// Who may connect to a Service. Where that cannot be read, nobody: it is told, and nothing is opened by a slip.
pub(super) fn admission(service: &Service) -> Result<Admission, String> {
    source_ranges(service).map(|ranges| Admission { ranges, empty_means: EmptyMeans::Everyone })
}

/// Whether a Service limits who may connect.
pub(super) fn limits(service: &Service) -> bool {
    admission(service).map_or(true, |admission| !admission.ranges.ranges().is_empty())
}

/// What is kept of a slice of endpoints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Whose they are.
    pub(super) service: Name,
    /// Names and numbers of ports.
    ports: Vec<(Box<str>, u16)>,
    endpoints: Vec<End>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    addresses: Vec<IpAddr>,
    node: Option<Box<str>>,
    is_ready: bool,
    /// It is on its way out, and still serves.
    is_leaving: bool,
}

impl Slice {
    /// What is kept of one, under its name. One that is of no Service is of no interest.
    pub(super) fn item(slice: EndpointSlice) -> Item<Self> {
        let read = Self::read(&slice).map(Arc::new);
        let Item { name, version, .. } = Item::lean(slice);
        Item { name, version, object: read }
    }

    /// Its endpoints that are on a node, and ready.
    pub(super) fn ready_on(&self, node: &str) -> impl Iterator<Item = &End> {
        let here = move |endpoint: &&End| endpoint.is_ready && endpoint.node.as_deref() == Some(node);
        self.endpoints.iter().filter(here)
    }

    fn read(slice: &EndpointSlice) -> Option<Self> {
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let name = port.name.as_deref().unwrap_or_default();
            Some((Box::from(name), u16::try_from(port.port?).ok()?))
        });
        let endpoints = slice.endpoints.iter().map(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            // What is not said is so.
            let is_ready = conditions.and_then(|all| all.ready).unwrap_or(true);
            let is_serving = conditions.and_then(|all| all.serving).unwrap_or(is_ready);
            let leaves = conditions.and_then(|all| all.terminating).unwrap_or(false);
            End {
                addresses: endpoint.addresses.iter().filter_map(|text| text.parse().ok()).collect(),
                node: endpoint.node_name.as_deref().map(Box::from),
                is_ready,
                is_leaving: is_serving && leaves,
            }
        });
        Some(Slice { service: service_of(slice)?, ports: ports.collect(), endpoints: endpoints.collect() })
    }
}

/// What a node does for a Service at some of its addresses.
pub(super) struct Serving<'a> {
    pub(super) cluster: &'a str,
    /// The node.
    pub(super) node: &'a str,
    pub(super) service: &'a Service,
    pub(super) slices: Option<&'a BTreeMap<Name, Arc<Slice>>>,
}

impl Serving<'_> {
    /// Whose its frontends are, and who may connect to them.
    fn terms(&self) -> Option<(Owner, Admission)> {
        let nobody = || Admission { ranges: SourceRanges::listed([]), empty_means: EmptyMeans::Nobody };
        let admission = admission(self.service).unwrap_or_else(|_| nobody());
        let (namespace, name) = (self.service.namespace().unwrap_or_default(), self.service.name_any());
        Some((Owner::new(self.cluster, "Service", Some(namespace), name).ok()?, admission))
    }

    /// Frontends at some places that keep others out, and serve nobody.
    pub(super) fn filters(&self, places: &[Place]) -> Vec<Frontend> {
        let Some((owner, admission)) = self.terms().filter(|_| !places.is_empty()) else { return Vec::new() };
        let filter = |place: &Place| Frontend::new(*place, owner.clone(), admission.clone(), []).ok();
        places.iter().filter_map(filter).collect()
    }

    /// The frontends at these addresses, and at its node ports if its ranges are to count for them, but for some of those.
    pub(super) fn frontends(&self, addresses: &BTreeSet<IpAddr>, left_out: &BTreeSet<Port>) -> Vec<Frontend> {
        let Some(spec) = &self.service.spec else { return Vec::new() };
        let Some((owner, admission)) = self.terms() else { return Vec::new() };
        let covers_node_ports = covers_node_ports(self.service);
        let mut all = Vec::new();
        for port in ports(spec) {
            let protocol = protocol(port.protocol.as_deref());
            let mut places: Vec<Place> = number(port)
                .iter()
                .flat_map(|number| {
                    addresses.iter().filter_map(|address| Place::new(*address, protocol, *number).ok())
                })
                .collect();
            if covers_node_ports
                && let Some(number) = port.node_port.and_then(|port| u16::try_from(port).ok())
                && !left_out.contains(&Port { protocol, number })
            {
                let every = families(spec).into_iter().map(|family| match family {
                    Family::V4 => IpAddr::from([0, 0, 0, 0]),
                    Family::V6 => IpAddr::from([0_u16; 8]),
                });
                places.extend(every.filter_map(|every| Place::new(every, protocol, number).ok()));
            }
            for place in places {
                all.extend(self.frontend(spec, port, place, &owner, &admission));
            }
        }
        all
    }

    fn frontend(
        &self,
        spec: &ServiceSpec,
        port: &ServicePort,
        place: Place,
        owner: &Owner,
        admission: &Admission,
    ) -> Option<Frontend> {
        let is_local = is_local(spec);
        let (ready, leaving) = self.endpoints(port, place.family(), is_local);
        let frontend = Frontend::new(place, owner.clone(), admission.clone(), ready).ok()?;
        let frontend = frontend.with_terminating(leaving).ok()?;
        let frontend = frontend.with_client_address(if is_local {
            ClientAddress::Kept
        } else {
            ClientAddress::Masqueraded
        });
        if spec.session_affinity.as_deref() != Some("ClientIP") {
            return Some(frontend);
        }
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(USUAL_AFFINITY);
        frontend.with_affinity(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())).ok()
    }

    /// Endpoints that are ready, and those that are on their way out and still serve.
    fn endpoints(
        &self,
        port: &ServicePort,
        family: Family,
        only_here: bool,
    ) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let (mut ready, mut leaving) = (Vec::new(), Vec::new());
        for slice in self.slices.into_iter().flatten().map(|(_, slice)| slice) {
            let name = port.name.as_deref().unwrap_or_default();
            let Some((_, number)) = slice.ports.iter().find(|(found, _)| **found == *name) else { continue };
            for endpoint in &slice.endpoints {
                if only_here && endpoint.node.as_deref() != Some(self.node) {
                    continue;
                }
                let list = match (endpoint.is_ready, endpoint.is_leaving) {
                    (true, _) => &mut ready,
                    (false, true) => &mut leaving,
                    (false, false) => continue,
                };
                let addresses = endpoint.addresses.iter().filter(|address| Family::of(**address) == family);
                list.extend(addresses.map(|address| SocketAddr::new(*address, *number)));
            }
        }
        (ready, leaving)
    }

    /// How many endpoints of the Service are on this node and ready, as its health check tells.
    pub(super) fn ready_here(&self) -> usize {
        let here = self.slices.into_iter().flatten().flat_map(|(_, slice)| slice.ready_on(self.node));
        let addresses: BTreeSet<&IpAddr> = here.filter_map(|endpoint| endpoint.addresses.first()).collect();
        addresses.len()
    }
}

/// Whether a Service is served by nodes that have an endpoint of it, to which clients keep their addresses.
pub(super) fn is_local(spec: &ServiceSpec) -> bool {
    spec.external_traffic_policy.as_deref() == Some("Local")
}

/// Which Service endpoints are of.
fn service_of(slice: &EndpointSlice) -> Option<Name> {
    let service = slice.labels().get("kubernetes.io/service-name")?;
    Some(Name::from(format!("{}/{service}", slice.namespace().unwrap_or_default())))
}

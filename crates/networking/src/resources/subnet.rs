use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use portcullis_core::{Cidr, Family};
use portcullis_ovn::objects::{FixedIp, Ipv6Mode, Network, Pool, Port, Route, Subnet};
use portcullis_ovn::{Draft, Model};
use serde_json::{Value, json};
use uuid::Uuid;

use super::network::{Networks, is_shared};
use super::{Context, Few, Resource, common, find};
use crate::addresses::{automatic, ends, hosts, number, pools};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, NAME, VERSION, WORDS_OR_NULL, object, shown};
use crate::query::Query;
use crate::quota;

pub(crate) struct Subnets;

static ATTRIBUTES: LazyLock<Vec<Attribute<Subnet>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        common::name(),
        Attribute::new("network_id", Kind::Id, |subnet: &Subnet, _| json!(subnet.network)).required(),
        Attribute::new("ip_version", VERSION, |subnet: &Subnet, _| json!(version(subnet.family())))
            .post()
            .query(),
        Attribute::new("cidr", CIDR, |subnet: &Subnet, _| json!(subnet.cidr)).post().query(),
        Attribute::new("gateway_ip", Kind::AddressOrNull, |subnet: &Subnet, _| json!(subnet.gateway))
            .post()
            .put(),
        Attribute::new("allocation_pools", Kind::List(pool), |subnet: &Subnet, _| json!(subnet.pools))
            .post()
            .put(),
        Attribute::new("dns_nameservers", Kind::List(nameserver), |subnet: &Subnet, _| {
            json!(subnet.dns_nameservers)
        })
        .post()
        .put(),
        Attribute::new("host_routes", Kind::List(route), |subnet: &Subnet, _| json!(subnet.host_routes))
            .post()
            .put(),
        Attribute::new("enable_dhcp", Kind::Truth, |subnet: &Subnet, _| json!(subnet.dhcp)).post().put(),
        Attribute::new("ipv6_ra_mode", MODE, |subnet: &Subnet, _| json!(subnet.ipv6_ra_mode)).post(),
        Attribute::new("ipv6_address_mode", MODE, |subnet: &Subnet, _| json!(subnet.ipv6_address_mode))
            .post(),
        Attribute::new("service_types", Kind::Texts(NAME), |subnet: &Subnet, _| json!(subnet.service_types))
            .post()
            .put(),
        Attribute::new("subnetpool_id", WORDS_OR_NULL, |_: &Subnet, _| Value::Null),
        Attribute::new("segment_id", WORDS_OR_NULL, |_: &Subnet, _| Value::Null),
        Attribute::new("router:external", Kind::ReadOnly(|| json!({"type": "boolean"})), |subnet, view| {
            json!(view.model.get::<Network>(subnet.network).is_some_and(|network| network.external))
        }),
    ]);
    attributes
});

/// A range, or nothing; what it is not is told by its own error.
const CIDR: Kind = Kind::Custom(|value| Ok(value.clone()), || json!({"type": "string"}));

const MODE: Kind = Kind::WordOrNull(&["slaac", "dhcpv6-stateful", "dhcpv6-stateless"]);

fn version(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

fn entry<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    object(value)?
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("'{key}' is missing in '{}'", shown(value)))
}

fn checked(value: &Value, keys: &[(&str, Kind)]) -> Result<Value, String> {
    let mut checked = serde_json::Map::new();
    for (key, kind) in keys {
        entry(value, key)?;
        checked.insert((*key).to_owned(), kind.check(&value[*key])?);
    }
    match object(value)?.keys().find(|key| !checked.contains_key(*key)) {
        Some(key) => Err(format!("'{key}' is not known in '{}'", shown(value))),
        None => Ok(Value::Object(checked)),
    }
}

fn pool(value: &Value) -> Result<Value, String> {
    checked(value, &[("start", Kind::Address), ("end", Kind::Address)])
}

/// Where to send what is for a range; a router has these too.
pub(crate) fn route(value: &Value) -> Result<Value, String> {
    checked(value, &[("destination", Kind::Range), ("nexthop", Kind::Address)])
}

fn nameserver(value: &Value) -> Result<Value, String> {
    Kind::Address.check(value).map_err(|_| format!("'{}' is not a valid nameserver", shown(value)))
}

/// The routes of a request.
pub(crate) fn routes(input: &Input, name: &str) -> Option<Vec<Route>> {
    let list = input.list(name)?;
    Some(list.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect())
}

impl Resource for Subnets {
    type Object = Subnet;

    const NAME: &'static str = "subnet";
    const PLURAL: &'static str = "subnets";
    const COLLECTION: &'static str = "subnets";
    const FILTERS: &'static [&'static str] = &["shared"];

    fn attributes() -> &'static [Attribute<Subnet>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("SubnetNotFound", format!("Subnet {id} could not be found."))
    }

    fn is_visible(subnet: &Subnet, view: &View<'_>) -> bool {
        let network = view.model.get::<Network>(subnet.network);
        view.caller.owns(&subnet.meta.project)
            || network.is_some_and(|network| Networks::is_visible(network, view))
    }

    fn may_change(subnet: &Subnet, view: &View<'_>) -> bool {
        let network = view.model.get::<Network>(subnet.network);
        view.caller.owns(&subnet.meta.project)
            || network.is_some_and(|network| view.caller.owns(&network.meta.project))
    }

    fn near<'a>(model: &'a Model, project: &str) -> Vec<&'a Arc<Subnet>> {
        let networks = super::own_and_given::<Network>(model, project);
        let there = networks.into_iter().flat_map(|network| model.subnets_of_network(network.meta.id));
        model.of_project(project, None).chain(there).collect()
    }

    fn wants(subnet: &Subnet, _filter: &str, values: &[String], view: &View<'_>) -> bool {
        let network = view.model.get::<Network>(subnet.network);
        let is = network.is_some_and(|network| is_shared(network, view));
        values.iter().any(|value| value.eq_ignore_ascii_case("true") == is)
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, Subnet>> {
        if let Some(network) = query.one("network_id") {
            return Some(Box::new(model.subnets_of_network(network.parse().ok()?)));
        }
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let view = context.view(draft.model());
        let network_id: Uuid = input.some("network_id").unwrap_or_default();
        let network = Arc::clone(find::<Networks>(&view, &network_id.to_string())?);
        if !context.caller.owns(&network.meta.project) {
            return Err(Error::forbidden("create_subnet"));
        }
        let meta = common::meta(context, input)?;
        quota::check::<Subnet>(draft, context, &meta.project, 1)?;
        let cidr = checked_cidr(draft, &network, given_cidr(input)?, input)?;
        let gateway = match input.parsed::<IpAddr>("gateway_ip") {
            Some(gateway) => gateway,
            None => Some(usual_gateway(cidr)),
        };
        let mut subnet = Subnet {
            network: network_id,
            cidr,
            gateway,
            pools: Vec::new(),
            dns_nameservers: nameservers(input, NEW)?.unwrap_or_default(),
            host_routes: host_routes(input, cidr, NEW)?.unwrap_or_default(),
            dhcp: input.truth("enable_dhcp").unwrap_or(true),
            ipv6_ra_mode: mode(input, "ipv6_ra_mode"),
            ipv6_address_mode: mode(input, "ipv6_address_mode"),
            service_types: service_types(input)?.unwrap_or_default(),
            meta,
        };
        check_gateway(&subnet)?;
        check_modes(&subnet)?;
        super::network::check_mtu(&network, subnet.family())?;
        subnet.pools = match given_pools(input, cidr)? {
            Some(pools) => pools,
            None => pools(cidr, gateway),
        };
        check_gateway_beside_pools(&subnet)?;
        let id = subnet.meta.id;
        // Hosts that are there already make themselves an address in it.
        let automatic_for = subnet.is_auto().then(|| subnet.clone());
        draft.put(subnet);
        common::bump::<Network>(draft, context, network_id);
        if let Some(subnet) = automatic_for {
            give_automatic(draft, &subnet);
        }
        Ok(id)
    }

    fn update(draft: &mut Draft, context: &Context, old: &Arc<Subnet>, input: &Input) -> Result<(), Error> {
        let mut subnet = Subnet::clone(old);
        common::edit(&mut subnet.meta, context, input);
        if let Some(gateway) = input.parsed::<IpAddr>("gateway_ip") {
            if gateway != old.gateway {
                check_gateway_is_free(draft, old)?;
            }
            subnet.gateway = gateway;
            check_gateway(&subnet)?;
        }
        if let Some(pools) = given_pools(input, subnet.cidr)? {
            subnet.pools = pools;
        }
        check_gateway_beside_pools(&subnet)?;
        let id = old.meta.id.to_string();
        if let Some(nameservers) = nameservers(input, &id)? {
            subnet.dns_nameservers = nameservers;
        }
        if let Some(routes) = host_routes(input, subnet.cidr, &id)? {
            subnet.host_routes = routes;
        }
        if let Some(dhcp) = input.truth("enable_dhcp") {
            subnet.dhcp = dhcp;
            check_modes(&subnet)?;
        }
        if let Some(service_types) = service_types(input)? {
            subnet.service_types = service_types;
        }
        draft.put(subnet);
        Ok(())
    }

    fn delete(draft: &mut Draft, context: &Context, old: &Arc<Subnet>) -> Result<(), Error> {
        let id = old.meta.id;
        let ports: Vec<Arc<Port>> = draft.ports_of_subnet(id).cloned().collect();
        // What hosts made for themselves goes with the subnet.
        if ports.iter().any(|port| !old.is_auto() || port.is_router()) {
            return Err(Error::conflict(
                "SubnetInUse",
                format!(
                    "Unable to complete operation on subnet {id}: One or more ports have an IP allocation from this subnet."
                ),
            ));
        }
        for port in ports {
            draft.edit::<Port>(port.meta.id, |port| port.fixed_ips.retain(|fixed| fixed.subnet != id));
        }
        draft.remove::<Subnet>(id);
        common::bump::<Network>(draft, context, old.network);
        Ok(())
    }
}

fn give_automatic(draft: &mut Draft, subnet: &Subnet) {
    let ports: Vec<Arc<Port>> = draft
        .ports_of_network(subnet.network)
        .filter(|port| !port.device_owner.starts_with("network:") && !port.fixed_ips.is_empty())
        .cloned()
        .collect();
    for port in ports {
        let address = automatic(subnet, port.mac);
        draft.edit::<Port>(port.meta.id, |port| {
            port.fixed_ips.push(FixedIp { subnet: subnet.meta.id, address });
        });
    }
}

fn mode(input: &Input, name: &str) -> Option<Ipv6Mode> {
    match input.text(name).as_deref() {
        Some("slaac") => Some(Ipv6Mode::Slaac),
        Some("dhcpv6-stateful") => Some(Ipv6Mode::Dhcpv6Stateful),
        Some("dhcpv6-stateless") => Some(Ipv6Mode::Dhcpv6Stateless),
        _ => None,
    }
}

fn given_cidr(input: &Input) -> Result<Cidr, Error> {
    let Some(value) = input.get("cidr").filter(|value| !value.is_null()) else {
        return Err(Error::invalid(
            "BadRequest",
            "Bad subnets request: a subnetpool must be specified in the absence of a cidr.",
        ));
    };
    let text = value.as_str().filter(|text| text.contains('/'));
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::invalid_input(format!("{} is not in a CIDR format", shown(value))))
}

/// The first address of a host in IPv4; in IPv6 the one before it, which stands for any router there.
fn usual_gateway(cidr: Cidr) -> IpAddr {
    let first = match cidr.family() {
        Family::V4 => hosts(cidr).0,
        Family::V6 => ends(cidr).0,
    };
    crate::addresses::address(cidr.family(), first).unwrap_or_else(|| cidr.addr())
}

fn checked_cidr(draft: &Draft, network: &Network, cidr: Cidr, input: &Input) -> Result<Cidr, Error> {
    if let Some(Some(wanted)) = input.number("ip_version")
        && wanted != i64::from(version(cidr.family()))
    {
        return Err(Error::invalid_input(format!("cidr '{cidr}' does not match the ip_version '{wanted}'")));
    }
    let cidr = cidr.network();
    if cidr.prefix_len() == 0 {
        return Err(Error::invalid_input("0 is not allowed as CIDR prefix length"));
    }
    let multicast = match cidr.addr() {
        IpAddr::V4(address) => address.is_multicast(),
        IpAddr::V6(address) => address.is_multicast(),
    };
    if multicast {
        return Err(Error::invalid_input(format!("Multicast IP subnet {cidr} is not supported")));
    }
    if draft.subnets_of_network(network.meta.id).any(|other| other.cidr.overlaps(&cidr)) {
        return Err(Error::invalid_input(format!(
            "Requested subnet with cidr: {cidr} for network: {} overlaps with another subnet",
            network.meta.id
        )));
    }
    Ok(cidr)
}

fn check_gateway(subnet: &Subnet) -> Result<(), Error> {
    let Some(gateway) = subnet.gateway else { return Ok(()) };
    if Family::of(gateway) != subnet.family() {
        return Err(Error::invalid_input(format!(
            "gateway_ip '{gateway}' does not match the ip_version '{}'",
            version(subnet.family())
        )));
    }
    // Outside the subnet it may be; in it, it must be an address that a host can have.
    let (first, last) = ends(subnet.cidr);
    let edges = subnet.family() == Family::V4
        && last - first > 1
        && (number(gateway) == first || number(gateway) == last);
    if edges { Err(Error::invalid_input("Gateway is not valid on subnet")) } else { Ok(()) }
}

fn check_gateway_beside_pools(subnet: &Subnet) -> Result<(), Error> {
    let Some(gateway) = subnet.gateway else { return Ok(()) };
    match subnet.pools.iter().find(|pool| pool.contains(gateway)) {
        Some(pool) => Err(Error::conflict(
            "GatewayConflictWithAllocationPools",
            format!("Gateway ip {gateway} conflicts with allocation pool {}-{}.", pool.start, pool.end),
        )),
        None => Ok(()),
    }
}

fn check_gateway_is_free(draft: &Draft, subnet: &Subnet) -> Result<(), Error> {
    let Some(gateway) = subnet.gateway else { return Ok(()) };
    let holder = draft.holder(subnet.meta.id, gateway).and_then(|id| draft.get::<Port>(id));
    match holder.filter(|port| port.is_router()) {
        Some(port) => Err(Error::conflict(
            "GatewayIpInUse",
            format!(
                "Current gateway ip {gateway} already in use by port {}. Unable to update.",
                port.meta.id
            ),
        )),
        None => Ok(()),
    }
}

fn check_modes(subnet: &Subnet) -> Result<(), Error> {
    let modes = [("ipv6_ra_mode", subnet.ipv6_ra_mode), ("ipv6_address_mode", subnet.ipv6_address_mode)];
    let set: Vec<(&str, Ipv6Mode)> =
        modes.into_iter().filter_map(|(name, mode)| Some((name, mode?))).collect();
    let Some((name, _)) = set.first() else { return Ok(()) };
    if subnet.family() == Family::V4 {
        return Err(Error::invalid_input(format!("{name} is not valid when ip_version is 4")));
    }
    if !subnet.dhcp {
        return Err(Error::invalid_input(
            "ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False",
        ));
    }
    if let [(_, ra), (_, address)] = set.as_slice()
        && ra != address
    {
        return Err(Error::invalid_input(format!(
            "ipv6_ra_mode set to '{}' with ipv6_address_mode set to '{}' is not valid. If both attributes are set, they must \
             be the same value",
            ra.as_str(),
            address.as_str()
        )));
    }
    if set.iter().any(|(_, mode)| mode.is_auto()) && subnet.cidr.prefix_len() != 64 {
        return Err(Error::invalid_input(format!(
            "Invalid CIDR {} for IPv6 address mode. OpenStack uses the EUI-64 address format, which requires the prefix to be \
             /64",
            subnet.cidr
        )));
    }
    Ok(())
}

fn given_pools(input: &Input, cidr: Cidr) -> Result<Option<Vec<Pool>>, Error> {
    let Some(list) = input.list("allocation_pools") else { return Ok(None) };
    let pools: Vec<Pool> =
        list.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect();
    let (first, last) = hosts(cidr);
    let mut sorted = pools.clone();
    sorted.sort();
    for pool in &pools {
        let families = [pool.start, pool.end].map(Family::of);
        if families[0] != families[1] || families[0] != cidr.family() || pool.start > pool.end {
            return Err(Error::invalid(
                "InvalidAllocationPool",
                format!("The allocation pool {}-{} is not valid.", pool.start, pool.end),
            ));
        }
        if number(pool.start) < first || number(pool.end) > last {
            return Err(Error::invalid(
                "OutOfBoundsAllocationPool",
                format!(
                    "The allocation pool {}-{} spans beyond the subnet cidr {cidr}.",
                    pool.start, pool.end
                ),
            ));
        }
    }
    for pair in sorted.windows(2) {
        if pair[1].start <= pair[0].end {
            return Err(Error::conflict(
                "OverlappingAllocationPools",
                format!(
                    "Found overlapping allocation pools: {}-{} {}-{} for subnet {cidr}.",
                    pair[0].start, pair[0].end, pair[1].start, pair[1].end
                ),
            ));
        }
    }
    Ok(Some(pools))
}

/// What errors call a subnet that has no id yet.
const NEW: &str = "new subnet";

fn nameservers(input: &Input, subnet: &str) -> Result<Option<Vec<String>>, Error> {
    const MOST: usize = 5;
    let Some(servers) = input.parsed_list::<String>("dns_nameservers") else { return Ok(None) };
    if servers.len() > MOST {
        return Err(Error::invalid(
            "DNSNameServersExhausted",
            format!(
                "Unable to complete operation for {subnet}. The number of DNS nameservers exceeds the limit {MOST}."
            ),
        ));
    }
    let mut sorted = servers.clone();
    sorted.sort();
    sorted.dedup();
    if sorted.len() < servers.len() {
        return Err(Error::invalid_attribute("dns_nameservers", "Duplicate nameserver"));
    }
    Ok(Some(servers))
}

fn host_routes(input: &Input, cidr: Cidr, subnet: &str) -> Result<Option<Vec<Route>>, Error> {
    const MOST: usize = 20;
    let Some(routes) = routes(input, "host_routes") else { return Ok(None) };
    if routes.len() > MOST {
        return Err(Error::invalid(
            "HostRoutesExhausted",
            format!(
                "Unable to complete operation for {subnet}. The number of host routes exceeds the limit {MOST}."
            ),
        ));
    }
    for route in &routes {
        if route.destination.family() != cidr.family() || Family::of(route.nexthop) != cidr.family() {
            return Err(Error::invalid_input("Host routes must have the ip_version of the subnet"));
        }
    }
    Ok(Some(routes))
}

fn service_types(input: &Input) -> Result<Option<Vec<String>>, Error> {
    let Some(types) = input.parsed_list::<String>("service_types") else { return Ok(None) };
    // Whoever plugs ports in has owners of its own, but they all look so.
    match types.iter().find(|kind| !kind.contains(':')) {
        Some(kind) => Err(Error::invalid(
            "InvalidSubnetServiceType",
            format!("Subnet service type {kind} does not correspond to a valid device owner."),
        )),
        None => Ok(Some(types)),
    }
}

//! `/v2.0/network-ip-availabilities`: how many addresses networks have, and how many are taken.

use std::sync::Arc;

use portcullis_core::Family;
use portcullis_ovn::Model;
use portcullis_ovn::objects::{Network, Subnet};
use serde_json::{Map, Value, json};

use crate::addresses::{address, ends, hosts, number};
use crate::error::Error;
use crate::query::pairs;
use crate::request::Request;
use crate::resources::network::Networks;
use crate::resources::{Context, find};
use crate::server::{Answer, Networking};

/// Filters of the list.
pub(crate) const FILTERS: [&str; 5] = ["network_id", "network_name", "project_id", "tenant_id", "ip_version"];

/// What a request asks for.
#[derive(Default)]
struct Wanted {
    filters: Vec<(String, String)>,
    fields: Vec<String>,
}

impl Wanted {
    fn read(text: &str) -> Result<Self, Error> {
        let mut wanted = Wanted::default();
        for (key, value) in pairs(text) {
            match key.as_str() {
                "fields" => wanted.fields.push(value),
                name if FILTERS.contains(&name) => wanted.filters.push((key, value)),
                name => {
                    return Err(Error::bad_request(format!("['{name}'] is invalid attribute for filtering")));
                }
            }
        }
        Ok(wanted)
    }

    /// Whether a value of a filter is one of those asked for, or none is.
    fn takes(&self, name: &str, value: &str) -> bool {
        let mut values = self.filters.iter().filter(|(key, _)| key == name).peekable();
        values.peek().is_none() || values.any(|(_, wanted)| wanted == value)
    }

    fn has(&self, name: &str) -> bool {
        self.filters.iter().any(|(key, _)| key == name)
    }
}

pub(crate) fn list(networking: &Networking, request: &Request, context: &Context) -> Result<Answer, Error> {
    let wanted = Wanted::read(&request.query)?;
    let model = networking.store().model();
    let mut all = Vec::new();
    // Who is not an administrator has none to see.
    if context.caller.is_admin() {
        let networks = model.all::<Network>(None).filter(|network| {
            wanted.takes("network_id", &network.meta.id.to_string())
                && wanted.takes("network_name", &network.meta.name)
                && wanted.takes("project_id", &network.meta.project)
                && wanted.takes("tenant_id", &network.meta.project)
        });
        all.extend(networks.filter_map(|network| of_network(&model, network, &wanted)));
    }
    Ok(Answer::ok(json!({ "network_ip_availabilities": all })))
}

pub(crate) fn show(
    networking: &Networking,
    request: &Request,
    context: &Context,
    id: &str,
) -> Result<Answer, Error> {
    let wanted = Wanted::read(&request.query)?;
    let model = networking.store().model();
    let network = find::<Networks>(&context.view(&model), id)?;
    if !context.caller.is_admin() {
        return Err(Error::no_such_resource());
    }
    Ok(Answer::ok(json!({ "network_ip_availability": of_network(&model, network, &wanted) })))
}

/// Addresses of a subnet, or of all subnets of a network.
#[derive(Clone, Copy, Default)]
struct Counts {
    in_subnet: u128,
    in_pools: u128,
    used: u128,
    used_of_pools: u128,
}

impl Counts {
    fn of(model: &Model, subnet: &Subnet) -> Self {
        let (start, end) = ends(subnet.cidr);
        let (first, last) = match subnet.family() {
            Family::V4 => hosts(subnet.cidr),
            // Not even the network's own address is lost.
            Family::V6 => (start, end),
        };
        let within = |start: u128, end: u128| {
            let ends = (address(subnet.family(), start), address(subnet.family(), end));
            match ends {
                (Some(start), Some(end)) => model.taken(subnet.meta.id, start, end).count() as u128,
                _ => 0,
            }
        };
        let pools = || subnet.pools.iter().map(|pool| (number(pool.start), number(pool.end)));
        let in_pools =
            pools().map(|(start, end)| (end - start).saturating_add(1)).fold(0, u128::saturating_add);
        Counts {
            in_subnet: (last - first).saturating_add(1),
            // Without a pool all of them can be given.
            in_pools: if subnet.pools.is_empty() { (end - start).saturating_add(1) } else { in_pools },
            used: within(start, end),
            used_of_pools: pools().map(|(start, end)| within(start, end)).sum(),
        }
    }

    fn and(self, other: Self) -> Self {
        Counts {
            in_subnet: self.in_subnet.saturating_add(other.in_subnet),
            in_pools: self.in_pools.saturating_add(other.in_pools),
            used: self.used + other.used,
            used_of_pools: self.used_of_pools + other.used_of_pools,
        }
    }

    /// Adds what the API says of them.
    fn put_into(self, map: &mut Map<String, Value>) {
        map.insert("used_ips".into(), whole(self.used));
        map.insert("total_ips".into(), whole(self.in_pools));
        let mut details = Map::new();
        details.insert("total_ips_in_subnet".into(), whole(self.in_subnet));
        details.insert("total_ips_in_allocation_pool".into(), whole(self.in_pools));
        details.insert("used_ips_in_subnet".into(), whole(self.used));
        details.insert("used_ips_in_allocation_pool".into(), whole(self.used_of_pools));
        map.insert("ip_availability_details".into(), Value::Object(details));
    }
}

/// A number that may be larger than most programs count, as an IPv6 subnet's; then it is near enough.
#[allow(clippy::cast_precision_loss)]
fn whole(number: u128) -> Value {
    u64::try_from(number).map_or_else(|_| json!(number as f64), Value::from)
}

/// What the API says of a network; nothing if it has no subnet of a family that is asked for.
fn of_network(model: &Model, network: &Arc<Network>, wanted: &Wanted) -> Option<Value> {
    let version = |subnet: &Subnet| if subnet.family() == Family::V4 { 4 } else { 6 };
    let subnets: Vec<&Arc<Subnet>> = model
        .subnets_of_network(network.meta.id)
        .filter(|subnet| wanted.takes("ip_version", &version(subnet).to_string()))
        .collect();
    if subnets.is_empty() && wanted.has("ip_version") {
        return None;
    }
    let mut all = Counts::default();
    let mut shown = Vec::new();
    for subnet in subnets {
        let counts = Counts::of(model, subnet);
        all = all.and(counts);
        let mut map = Map::new();
        map.insert("subnet_id".into(), json!(subnet.meta.id));
        map.insert("subnet_name".into(), json!(subnet.meta.name));
        map.insert("ip_version".into(), json!(version(subnet)));
        map.insert("cidr".into(), json!(subnet.cidr));
        counts.put_into(&mut map);
        shown.push(Value::Object(map));
    }
    let mut map = Map::new();
    map.insert("network_id".into(), json!(network.meta.id));
    map.insert("network_name".into(), json!(network.meta.name));
    map.insert("project_id".into(), json!(network.meta.project));
    map.insert("tenant_id".into(), json!(network.meta.project));
    all.put_into(&mut map);
    map.insert("subnet_ip_availability".into(), Value::Array(shown));
    map.retain(|name, _| wanted.fields.is_empty() || wanted.fields.contains(name));
    Some(Value::Object(map))
}

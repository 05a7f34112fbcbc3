//! In which subnets a load balancer is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Problem, Scheme};

use super::look::Look;
use super::settings::Settings;
use super::snapshot::Shared;
use super::spec::Spec;
use super::words;
use crate::client::NewSubnet;
use crate::model::{RouteTable, Subnet};

const CLUSTER: &str = "kubernetes.io/cluster/";

/// Why subnets cannot be told yet, or at all.
pub(super) enum NoSubnets {
    Look(Look),
    Problem(Problem),
}

/// The subnets for a load balancer that is to be made, with the addresses it is to have there.
pub(super) fn choose(spec: &Spec, shared: &Shared, settings: &Settings) -> Result<Vec<NewSubnet>, NoSubnets> {
    let subnets =
        if spec.subnets.is_empty() { found(spec, shared, settings)? } else { given(spec, shared, settings)? };
    let fixed = [("eip-allocations", &spec.allocations), ("private-ipv4-addresses", &spec.private_addresses)];
    for (key, addresses) in fixed {
        if !addresses.is_empty() && addresses.len() != subnets.len() {
            return Err(NoSubnets::Problem(Problem::new(
                format!(
                    "{}: {} has {} entries, and the load balancer gets {} subnets: {}.",
                    spec.owner,
                    words::said(&spec.owner, key),
                    addresses.len(),
                    subnets.len(),
                    subnets.join(", ")
                ),
                "Nothing was made.",
                format!(
                    "Give one for each subnet, or name the subnets with {}.",
                    words::key(&spec.owner, "subnets")
                ),
            )));
        }
    }
    let at = |list: &[String], place: usize| list.get(place).cloned();
    let mapped = subnets.into_iter().enumerate().map(|(place, id)| NewSubnet {
        id,
        allocation: at(&spec.allocations, place),
        private_address: at(&spec.private_addresses, place),
    });
    Ok(mapped.collect())
}

/// Those that a Service names, by id or by the tag `Name`, in its order.
pub(super) fn given(spec: &Spec, shared: &Shared, settings: &Settings) -> Result<Vec<String>, NoSubnets> {
    let Some(known) = &shared.subnets else { return Err(NoSubnets::Look(Look::Subnets)) };
    let refused = |what: String, remedy: &str| {
        let what = format!("{}: {} {what}.", spec.owner, words::said(&spec.owner, "subnets"));
        Err(NoSubnets::Problem(Problem::new(what, "Nothing was changed.", remedy)))
    };
    let (mut ids, mut zones) = (Vec::new(), BTreeMap::new());
    for name in &spec.subnets {
        let named = |subnet: &&Subnet| subnet.id == *name || subnet.tags.get("Name") == Some(name);
        let matching: Vec<&Subnet> = known.iter().filter(named).collect();
        let subnet = match matching.as_slice() {
            [subnet] => *subnet,
            [] => {
                return refused(
                    format!("names `{name}`, which is not in {}", settings.vpc),
                    "Name subnets of that VPC.",
                );
            }
            _ => {
                return refused(
                    format!("names `{name}`, which several subnets are called"),
                    "Name it by its id.",
                );
            }
        };
        if !has_families(subnet, spec) {
            return refused(
                format!(
                    "names `{name}`, which has no addresses of IPv6, and the load balancer has both families"
                ),
                "Name subnets that have, or make the load balancer one for IPv4.",
            );
        }
        if let Some(other) = zones.insert(subnet.zone.as_str(), name) {
            let what = format!("names `{other}` and `{name}`, which are both in {}", subnet.zone);
            return refused(what, "Name one for each zone.");
        }
        ids.push(subnet.id.clone());
    }
    Ok(ids)
}

/// The best one of each zone.
fn found(spec: &Spec, shared: &Shared, settings: &Settings) -> Result<Vec<String>, NoSubnets> {
    let Some(known) = &shared.subnets else { return Err(NoSubnets::Look(Look::Subnets)) };
    let internal = spec.scheme == Scheme::Internal;
    let tables = match &shared.route_tables {
        Some(tables) => tables.as_slice(),
        None if internal => &[],
        None => return Err(NoSubnets::Look(Look::RouteTables)),
    };
    let role = if internal { "kubernetes.io/role/internal-elb" } else { "kubernetes.io/role/elb" };
    let own = format!("{CLUSTER}{}", settings.cluster);
    let mut best: BTreeMap<&str, (bool, bool, &Subnet)> = BTreeMap::new();
    for subnet in known.iter().filter(|subnet| {
        is_for(subnet, &own)
            && is_usual(&subnet.zone, settings)
            && (internal || is_public(subnet, tables))
            && has_families(subnet, spec)
    }) {
        let marked = subnet.tags.get(role).is_some_and(|value| value.is_empty() || value == "1");
        let rank = (!marked, !subnet.tags.contains_key(&own), subnet);
        let better = best
            .get(subnet.zone.as_str())
            .is_none_or(|known| (rank.0, rank.1, &rank.2.id) < (known.0, known.1, &known.2.id));
        if better {
            best.insert(&subnet.zone, rank);
        }
    }
    if best.is_empty() {
        let kind = if internal { "" } else { "public " };
        let both = if spec.dual_stack { " with IPv6" } else { "" };
        return Err(NoSubnets::Problem(Problem::new(
            format!(
                "{}: there is no {kind}subnet{both} for a load balancer in {}.",
                spec.owner, settings.vpc
            ),
            "Nothing was made.",
            format!("Tag subnets with {role}=1, or name them with {}.", words::key(&spec.owner, "subnets")),
        )));
    }
    Ok(best.into_values().map(|(_, _, subnet)| subnet.id.clone()).collect())
}

/// Whether a subnet is not for other clusters only.
fn is_for(subnet: &Subnet, own: &str) -> bool {
    let mut clusters = subnet.tags.keys().filter(|key| key.starts_with(CLUSTER)).peekable();
    clusters.peek().is_none() || clusters.any(|key| key == own)
}

/// Whether a subnet has addresses of all families that a load balancer is to have.
fn has_families(subnet: &Subnet, spec: &Spec) -> bool {
    !spec.dual_stack || !subnet.ranges6.is_empty()
}

/// Whether a zone is one of the region itself: `eu-west-1a`. Others are far away, and take part only when named.
fn is_usual(zone: &str, settings: &Settings) -> bool {
    settings.region.is_empty() || zone.strip_prefix(&settings.region).is_some_and(|rest| rest.len() == 1)
}

fn is_public(subnet: &Subnet, tables: &[RouteTable]) -> bool {
    let own = tables.iter().find(|table| table.subnets.contains(&subnet.id));
    own.or_else(|| tables.iter().find(|table| table.main)).is_some_and(|table| table.public)
}

/// The addresses of subnets.
pub(super) fn ranges(shared: &Shared, ids: &BTreeSet<String>) -> Option<Vec<portcullis_core::Cidr>> {
    let subnets = shared.subnets.as_ref()?.iter().filter(|subnet| ids.contains(&subnet.id));
    Some(subnets.flat_map(|subnet| subnet.range.iter().chain(&subnet.ranges6).copied()).collect())
}

/// Whether an address is in one of the subnets of the VPC.
pub(super) fn contain(shared: &Shared, address: IpAddr) -> bool {
    let mut ranges =
        shared.subnets.iter().flatten().flat_map(|subnet| subnet.range.iter().chain(&subnet.ranges6));
    ranges.any(|range| range.contains(address))
}

/// Whether an address is one of those that AWS sends to outside of the VPC, over what connects it to others.
pub(super) fn is_private(address: IpAddr) -> bool {
    const RANGES: [&str; 4] = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"];
    RANGES
        .iter()
        .any(|range| range.parse::<portcullis_core::Cidr>().is_ok_and(|range| range.contains(address)))
}

/// Whether AWS sends to an address at all.
pub(super) fn can_be_target(shared: &Shared, address: IpAddr) -> bool {
    is_private(address) || contain(shared, address)
}

//! Which addresses a port gets.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use portcullis_core::{Cidr, Family};
use portcullis_ovn::objects::{FixedIp, Network, Pool, Subnet};
use portcullis_ovn::{Mac, Model};
use uuid::Uuid;

use crate::error::Error;

/// An address as a number that can be counted with.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The address of a number, if the family has so many.
pub(crate) fn address(family: Family, number: u128) -> Option<IpAddr> {
    match family {
        Family::V4 => u32::try_from(number).ok().map(|number| IpAddr::V4(number.into())),
        Family::V6 => Some(IpAddr::V6(number.into())),
    }
}

/// The first and the last address of a range.
pub(crate) fn ends(cidr: Cidr) -> (u128, u128) {
    let first = number(cidr.network().addr());
    let hosts = u32::from(cidr.family().bits() - cidr.prefix_len());
    let size = if hosts == 128 { u128::MAX } else { (1 << hosts) - 1 };
    (first, first + size)
}

/// The addresses that hosts can have: not the network's own, and not IPv4's for everybody.
pub(crate) fn hosts(cidr: Cidr) -> (u128, u128) {
    let (first, last) = ends(cidr);
    match (cidr.family(), last - first) {
        // Of two addresses both are used, of one the one.
        (_, 0 | 1) => (first, last),
        (Family::V4, _) => (first + 1, last - 1),
        (Family::V6, _) => (first + 1, last),
    }
}

/// All addresses for hosts, except one.
pub(crate) fn pools(cidr: Cidr, except: Option<IpAddr>) -> Vec<Pool> {
    let (first, last) = hosts(cidr);
    let pool = |start: u128, end: u128| {
        let (start, end) = (address(cidr.family(), start)?, address(cidr.family(), end)?);
        Some(Pool { start, end })
    };
    let except = except.filter(|address| Family::of(*address) == cidr.family()).map(number);
    match except.filter(|except| (first..=last).contains(except)) {
        None => pool(first, last).into_iter().collect(),
        Some(except) => {
            let before = (except > first).then(|| pool(first, except - 1)).flatten();
            let after = (except < last).then(|| pool(except + 1, last)).flatten();
            before.into_iter().chain(after).collect()
        }
    }
}

/// The address that a host makes for itself in a subnet (EUI-64).
pub(crate) fn automatic(subnet: &Subnet, mac: Mac) -> IpAddr {
    let mac = mac.bytes();
    let host = u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
    let (first, _) = ends(subnet.cidr);
    IpAddr::V6(Ipv6Addr::from(first | u128::from(host)))
}

/// What a port asks for in one of its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) subnet: Option<Uuid>,
    pub(crate) address: Option<IpAddr>,
}

/// The port that addresses are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct For<'a> {
    pub(crate) network: &'a Network,
    pub(crate) port: Uuid,
    pub(crate) mac: Mac,
    pub(crate) device_owner: &'a str,
    /// What it has already.
    pub(crate) has: &'a [FixedIp],
}

impl For<'_> {
    fn is_router(&self) -> bool {
        self.device_owner.starts_with("network:router_")
    }
}

/// The most addresses of a port.
const MOST: usize = 5;

/// The addresses that a port asked for.
pub(crate) fn asked(model: &Model, port: For<'_>, asked: &[Asked]) -> Result<Vec<FixedIp>, Error> {
    if asked.len() > MOST && !port.device_owner.starts_with("network:") {
        return Err(Error::invalid_input("Exceeded maximum amount of fixed ips per port"));
    }
    let subnets: Vec<&Arc<Subnet>> = model.subnets_of_network(port.network.meta.id).collect();
    let mut given: Vec<FixedIp> = Vec::new();
    for wish in asked {
        let fixed = match (wish.subnet, wish.address) {
            (None, None) => {
                return Err(Error::invalid_input("IP allocation requires subnet_id or ip_address"));
            }
            (subnet, Some(address)) => exact(model, port, &subnets, subnet, address)?,
            (Some(id), None) => {
                let subnet = subnets.iter().find(|subnet| subnet.meta.id == id).ok_or_else(|| {
                    Error::invalid_input(format!(
                        "Failed to create port on network {}, because fixed_ips included invalid subnet {id}",
                        port.network.meta.id
                    ))
                })?;
                // What it has there it keeps.
                let kept = port.has.iter().find(|fixed| fixed.subnet == id && !given.contains(fixed));
                match kept {
                    Some(fixed) => *fixed,
                    None => next(model, port, &[subnet], &given).ok_or_else(|| exhausted(port.network))?,
                }
            }
        };
        if given.contains(&fixed) {
            return Err(Error::invalid_input(format!("Duplicate IP address '{}'", fixed.address)));
        }
        given.push(fixed);
    }
    // Hosts make these without being asked.
    if !port.is_router() && !given.is_empty() {
        for subnet in subnets.iter().filter(|subnet| subnet.is_auto() && serves(subnet, port.device_owner)) {
            if !given.iter().any(|fixed| fixed.subnet == subnet.meta.id)
                && asked.iter().all(|wish| wish.subnet.is_none())
            {
                given.push(FixedIp { subnet: subnet.meta.id, address: automatic(subnet, port.mac) });
            }
        }
    }
    Ok(given)
}

fn exhausted(network: &Network) -> Error {
    Error::conflict(
        "IpAddressGenerationFailure",
        format!("No more IP addresses available on network {}.", network.meta.id),
    )
}

/// One address that was named.
fn exact(
    model: &Model,
    port: For<'_>,
    subnets: &[&Arc<Subnet>],
    subnet: Option<Uuid>,
    address: IpAddr,
) -> Result<FixedIp, Error> {
    let subnet = match subnet {
        Some(id) => {
            let subnet = subnets.iter().find(|subnet| subnet.meta.id == id).ok_or_else(|| {
                Error::invalid_input(format!(
                    "Failed to create port on network {}, because fixed_ips included invalid subnet {id}",
                    port.network.meta.id
                ))
            })?;
            if !subnet.cidr.contains(address) {
                return Err(Error::invalid(
                    "InvalidIpForSubnet",
                    format!("IP address {address} is not a valid IP for the specified subnet."),
                ));
            }
            subnet
        }
        None => subnets.iter().find(|subnet| subnet.cidr.contains(address)).ok_or_else(|| {
            Error::invalid(
                "InvalidIpForNetwork",
                format!(
                    "IP address {address} is not a valid IP for any of the subnets on the specified network."
                ),
            )
        })?,
    };
    let (first, last) = ends(subnet.cidr);
    let is_edge = last - first > 1
        && (number(address) == first || (subnet.family() == Family::V4 && number(address) == last));
    if is_edge && !port.is_router() {
        return Err(Error::invalid(
            "InvalidIpForSubnet",
            format!("IP address {address} is not a valid IP for the specified subnet."),
        ));
    }
    if subnet.is_auto() && !port.is_router() && automatic(subnet, port.mac) != address {
        return Err(Error::invalid_input(format!(
            "IPv6 address {address} can not be directly assigned to a port on subnet {} since the subnet is configured for \
             automatic addresses",
            subnet.meta.id
        )));
    }
    match model.holder(subnet.meta.id, address) {
        Some(holder) if holder != port.port => Err(Error::conflict(
            "IpAddressAlreadyAllocated",
            format!("IP address {address} already allocated in subnet {}", subnet.meta.id),
        )),
        _ => Ok(FixedIp { subnet: subnet.meta.id, address }),
    }
}

/// Whether a subnet is for ports of such an owner.
fn serves(subnet: &Subnet, device_owner: &str) -> bool {
    subnet.service_types.is_empty()
        || subnet.service_types.iter().any(|kind| !kind.is_empty() && device_owner.starts_with(kind.as_str()))
}

/// The addresses of a port that did not ask: one of IPv4, one of IPv6 where they are given out, and those that hosts make.
pub(crate) fn usual(model: &Model, port: For<'_>) -> Result<Vec<FixedIp>, Error> {
    let all: Vec<&Arc<Subnet>> = model.subnets_of_network(port.network.meta.id).collect();
    // A subnet that is for such owners alone comes before those for everybody.
    let special: Vec<&Arc<Subnet>> = all
        .iter()
        .copied()
        .filter(|subnet| !subnet.service_types.is_empty() && serves(subnet, port.device_owner))
        .collect();
    let common: Vec<&Arc<Subnet>> =
        all.iter().copied().filter(|subnet| subnet.service_types.is_empty()).collect();
    let mut given = Vec::new();
    for family in Family::ALL {
        let suits = |subnet: &&&Arc<Subnet>| subnet.family() == family && !subnet.is_auto();
        let mut candidates: Vec<&Arc<Subnet>> = special.iter().filter(suits).copied().collect();
        if candidates.is_empty() {
            candidates = common.iter().filter(suits).copied().collect();
        }
        if candidates.is_empty() {
            continue;
        }
        given.push(next(model, port, &candidates, &given).ok_or_else(|| exhausted(port.network))?);
    }
    if !port.is_router() {
        for subnet in special.iter().chain(&common).filter(|subnet| subnet.is_auto()) {
            given.push(FixedIp { subnet: subnet.meta.id, address: automatic(subnet, port.mac) });
        }
    }
    if given.is_empty() && !all.is_empty() {
        return Err(Error::conflict(
            "IpAddressGenerationFailureNoMatchingSubnet",
            format!(
                "No valid service subnet for the given device owner, network {}, service type {}.",
                port.network.meta.id, port.device_owner
            ),
        ));
    }
    Ok(given)
}

/// A free address of the first subnet that has one.
fn next(model: &Model, port: For<'_>, subnets: &[&Arc<Subnet>], given: &[FixedIp]) -> Option<FixedIp> {
    subnets.iter().find_map(|subnet| {
        let address = if subnet.is_auto() && !port.is_router() {
            Some(automatic(subnet, port.mac))
        } else {
            subnet.pools.iter().find_map(|pool| free(model, subnet, *pool, given))
        };
        address.map(|address| FixedIp { subnet: subnet.meta.id, address })
    })
}

/// A free address of a pool: the one after all taken ones, or the first gap between them.
fn free(model: &Model, subnet: &Subnet, pool: Pool, given: &[FixedIp]) -> Option<IpAddr> {
    let family = subnet.family();
    let id = subnet.meta.id;
    let is_free = |address: &IpAddr| {
        subnet.gateway != Some(*address)
            && !given.iter().any(|fixed| fixed.subnet == id && fixed.address == *address)
            && model.holder(id, *address).is_none()
    };
    let (first, last) = (number(pool.start), number(pool.end));
    let highest = model.taken(id, pool.start, pool.end).next_back().map(number);
    let after = highest.map_or(first, |highest| highest.saturating_add(1));
    // What this port was given just now is not in the model yet, and is at most a few.
    let behind = (after..=last.min(after.saturating_add(16)))
        .filter_map(|number| address(family, number))
        .find(is_free);
    behind.or_else(|| {
        let mut expected = first;
        let mut gaps = Vec::new();
        for taken in model.taken(id, pool.start, pool.end).map(number) {
            gaps.extend((expected..taken).take(16));
            expected = taken.saturating_add(1);
            if gaps.len() >= 16 {
                break;
            }
        }
        gaps.into_iter().filter_map(|number| address(family, number)).find(is_free)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_ovn::objects::{Meta, Port};

    fn text(pools: &[Pool]) -> String {
        pools.iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pools_leave_the_gateway_out() {
        for (cidr, gateway, expected) in [
            ("10.0.0.0/24", Some("10.0.0.1"), "10.0.0.2-10.0.0.254"),
            ("10.0.0.0/24", Some("10.0.0.100"), "10.0.0.1-10.0.0.99 10.0.0.101-10.0.0.254"),
            ("10.0.0.0/24", Some("10.0.0.254"), "10.0.0.1-10.0.0.253"),
            ("10.0.0.0/24", None, "10.0.0.1-10.0.0.254"),
            ("10.0.0.0/24", Some("192.0.2.1"), "10.0.0.1-10.0.0.254"),
            ("10.0.0.0/31", None, "10.0.0.0-10.0.0.1"),
            ("10.0.0.7/32", None, "10.0.0.7-10.0.0.7"),
            ("2001:db8::/64", Some("2001:db8::1"), "2001:db8::2-2001:db8::ffff:ffff:ffff:ffff"),
        ] {
            let gateway = gateway.map(|gateway| gateway.parse().unwrap());
            assert_eq!(text(&pools(cidr.parse().unwrap(), gateway)), expected, "{cidr}");
        }
    }

    #[test]
    fn hosts_make_their_addresses() {
        let subnet = Subnet { cidr: "2001:db8::/64".parse().unwrap(), ..Subnet::default() };
        let address = automatic(&subnet, "fa:16:3e:00:00:01".parse().unwrap());
        assert_eq!(address.to_string(), "2001:db8::f816:3eff:fe00:1");
    }

    #[test]
    fn free_addresses_are_found_behind_and_between() {
        let subnet_id = Uuid::from_u128(1);
        let network =
            Network { meta: Meta { id: Uuid::from_u128(2), ..Meta::default() }, ..Network::default() };
        let cidr = "10.0.0.0/29".parse().unwrap();
        let mut model = Model::default();
        model.put(Subnet {
            meta: Meta { id: subnet_id, ..Meta::default() },
            network: network.meta.id,
            cidr,
            gateway: Some("10.0.0.1".parse().unwrap()),
            pools: pools(cidr, Some("10.0.0.1".parse().unwrap())),
            ..Subnet::default()
        });
        let mac = "fa:16:3e:00:00:01".parse().unwrap();
        let wish = For { network: &network, port: Uuid::from_u128(99), mac, device_owner: "", has: &[] };
        for number in 0..5 {
            let fixed_ips = usual(&model, wish).unwrap();
            assert_eq!(fixed_ips[0].address.to_string(), format!("10.0.0.{}", number + 2));
            let meta = Meta { id: Uuid::from_u128(100 + number), ..Meta::default() };
            model.put(Port { meta, network: network.meta.id, fixed_ips, ..Port::default() });
        }
        assert_eq!(usual(&model, wish).unwrap_err().kind, "IpAddressGenerationFailure");
        model.remove::<Port>(Uuid::from_u128(102));
        assert_eq!(usual(&model, wish).unwrap()[0].address.to_string(), "10.0.0.4");
    }
}

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{Cidr, Family};
use uuid::Uuid;

use super::{Desired, Scene, Wanted};
use crate::Mac;
use crate::objects::{Ipv6Mode, Subnet};
use crate::tables::DHCP_OPTIONS;

pub(super) fn rows(desired: &mut Desired, scene: Scene<'_>, subnet: Option<&Arc<Subnet>>) {
    let Some(subnet) = subnet else { return };
    let row = Wanted::of(&**subnet)
        .with("cidr", subnet.cidr.to_string())
        .map("options", dhcp_options(scene, subnet).unwrap_or_default());
    desired.row(DHCP_OPTIONS, subnet.meta.id, row);
}

/// What OVN's DHCP server answers in a subnet, if it is to answer at all.
pub(super) fn dhcp_options(scene: Scene<'_>, subnet: &Subnet) -> Option<BTreeMap<String, String>> {
    if !subnet.dhcp {
        return None;
    }
    let network = scene.model.get::<crate::objects::Network>(subnet.network)?;
    let mut options = BTreeMap::new();
    let mut set = |key: &str, value: String| drop(options.insert(key.to_owned(), value));
    let dns = |family| {
        let servers: Vec<&str> = subnet
            .dns_nameservers
            .iter()
            .map(String::as_str)
            .filter(|server| server.parse::<IpAddr>().is_ok_and(|server| Family::of(server) == family))
            .collect();
        (!servers.is_empty()).then(|| format!("{{{}}}", servers.join(", ")))
    };
    let domain = if network.dns_domain.is_empty() { &scene.options.dns_domain } else { &network.dns_domain };
    let domain = Some(domain.trim_end_matches('.')).filter(|domain| !domain.is_empty());
    let domain = domain.and_then(crate::dhcp::quoted);
    match subnet.family() {
        Family::V4 => {
            let server = subnet.gateway.unwrap_or_else(|| first_host(subnet.cidr));
            set("server_id", server.to_string());
            set("server_mac", server_mac(subnet.network).to_string());
            set("lease_time", scene.options.dhcp_lease.to_string());
            set("mtu", network.mtu.to_string());
            if let Some(gateway) = subnet.gateway {
                set("router", gateway.to_string());
            }
            if let Some(servers) = dns(Family::V4) {
                set("dns_server", servers);
            }
            if let Some(domain) = domain {
                set("domain_name", domain);
            }
            if !subnet.host_routes.is_empty() {
                // Who gets these ignores the router, so it is said again.
                let mut routes: Vec<String> = subnet
                    .host_routes
                    .iter()
                    .map(|route| format!("{},{}", route.destination.network(), route.nexthop))
                    .collect();
                if let Some(gateway) = subnet.gateway {
                    routes.push(format!("0.0.0.0/0,{gateway}"));
                }
                set("classless_static_route", format!("{{{}}}", routes.join(", ")));
            }
        }
        Family::V6 => {
            set("server_id", server_mac(subnet.network).to_string());
            if let Some(servers) = dns(Family::V6) {
                set("dns_server", servers);
            }
            if let Some(domain) = domain {
                set("domain_search", domain);
            }
            if subnet.ipv6_address_mode != Some(Ipv6Mode::Dhcpv6Stateful) {
                set("dhcpv6_stateless", "true".to_owned());
            }
        }
    }
    Some(options)
}

/// What the DHCP server of a network calls itself; the same for all of its subnets.
fn server_mac(network: Uuid) -> Mac {
    Mac::under([0x02, 0x70, 0x63], network)
}

/// The first address that a host can have.
fn first_host(cidr: Cidr) -> IpAddr {
    match cidr.network().addr() {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address).saturating_add(1)).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address).saturating_add(1)).into()),
    }
}

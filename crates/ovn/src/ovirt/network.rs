use portcullis_core::{Cidr, Family};
use portcullis_ovsdb::Row;
use uuid::Uuid;

use super::pools::pools;
use super::{Reader, filled, id_of, strange_key};
use crate::objects::{Ipv6Mode, Network, Pool, Subnet};
use crate::tables::{DHCP_OPTIONS, SWITCH, SWITCH_PORT};

/// What DHCP gives in a subnet of the provider.
const OPTIONS: [&str; 7] =
    ["server_id", "server_mac", "lease_time", "mtu", "router", "dns_server", "dhcpv6_stateless"];

impl Reader<'_> {
    /// Networks, with their subnets.
    pub(super) fn networks(&mut self) {
        for row in self.foreign(SWITCH) {
            if let Some(key) = strange_key(row, &["mtu"]) {
                self.find(SWITCH, row, format!("its external_ids have {key}, so another system has it"));
                continue;
            }
            if let Err(why) = self.network(row) {
                self.find(SWITCH, row, why);
            }
        }
        for row in self.foreign(DHCP_OPTIONS) {
            match self.subnet(row) {
                Ok(subnet) => {
                    self.ties.tie(subnet.network, row.uuid());
                    self.survey.subnets.push(subnet);
                }
                Err(why) => {
                    if let Some(network) = id_of(row, "ovirt_network_id").and_then(|id| id.parse().ok()) {
                        self.ties.tie(network, row.uuid());
                    }
                    self.find(DHCP_OPTIONS, row, why);
                }
            }
        }
    }

    fn network(&mut self, row: &Row) -> Result<(), String> {
        let id = row.uuid();
        let name = id_of(row, "ovirt_network_name").or(row.get("name").text()).unwrap_or_default();
        let mut network = Network {
            meta: self.meta(id, name),
            // Networks from before port security came say nothing, and then it is off.
            port_security: id_of(row, "ovirt_port_security")
                .is_some_and(|on| on.eq_ignore_ascii_case("true")),
            ..Network::default()
        };
        let subnets = self.foreign(DHCP_OPTIONS);
        let mut of_subnets = subnets.filter(|row| id_of(row, "ovirt_network_id") == Some(&id.to_string()));
        let mtu = id_of(row, "mtu")
            .or_else(|| of_subnets.find_map(|row| row.get("options").value_of("mtu").or(id_of(row, "mtu"))));
        if let Some(mtu) = mtu {
            network.mtu = mtu.parse().map_err(|_| format!("its MTU is {mtu}"))?;
        }
        let ports = self.members(row, "ports", SWITCH_PORT);
        let mut wires = ports.into_iter().filter(|port| port.get("type").text() == Some("localnet"));
        if let Some(wire) = wires.next() {
            self.ties.tie(id, wire.uuid());
            let options = wire.get("options");
            let physical = options.value_of("network_name").ok_or("its localnet port names no network")?;
            if options.entries().len() > 1 {
                return Err("its localnet port has options that would be lost".to_owned());
            }
            if let Some(column) =
                filled(wire, &["tag_request", "parent_name", "ha_chassis_group", "mirror_rules"])
            {
                return Err(format!("its localnet port has a {column}, which would be lost"));
            }
            network.physical = Some(physical.to_owned());
            network.vlan = match wire.get("tag").integer() {
                None => None,
                Some(tag) => Some(u16::try_from(tag).map_err(|_| format!("its VLAN is {tag}"))?),
            };
            self.survey.replaced.push((id, SWITCH, id, "ports", wire.uuid()));
        }
        if wires.next().is_some() {
            return Err("it is on several wires".to_owned());
        }
        self.survey.networks.push(network);
        Ok(())
    }

    fn subnet(&self, row: &Row) -> Result<Subnet, String> {
        let network = id_of(row, "ovirt_network_id");
        let network = network.ok_or("it has no ovirt_network_id, so it is no subnet of the provider")?;
        let network: Uuid = network.parse().map_err(|_| format!("its network is {network}"))?;
        let switch = self.replica.row(SWITCH, network).ok_or("its network is not there any more")?;
        let text = row.get("cidr").text().unwrap_or_default();
        let cidr: Cidr = text.parse().map_err(|_| format!("its range is {text}"))?;
        let options = row.get("options");
        let keys = options.entries().iter().filter_map(|(key, _)| key.as_text());
        if let Some(key) = keys.into_iter().find(|key| !OPTIONS.contains(key)) {
            return Err(format!("its DHCP option {key} would be lost"));
        }
        let gateway = match cidr.family() {
            Family::V4 => options.value_of("router"),
            Family::V6 => id_of(row, "router"),
        };
        let gateway = match gateway {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| format!("its gateway is {text}"))?),
        };
        let mode = match id_of(row, "ovirt_ipv6_address_mode") {
            None => None,
            Some("dhcpv6_stateful") => Some(Ipv6Mode::Dhcpv6Stateful),
            Some("dhcpv6_stateless") => Some(Ipv6Mode::Dhcpv6Stateless),
            Some(other) => return Err(format!("its way of giving IPv6 addresses is {other}")),
        };
        let dns = options.value_of("dns_server").unwrap_or_default();
        let servers = dns.split(['{', '}', ',', ' ']).filter(|server| !server.is_empty());
        let mut kept: Vec<Pool> =
            gateway.map(|gateway| Pool { start: gateway, end: gateway }).into_iter().collect();
        let excluded = switch.get("other_config").value_of("exclude_ips").unwrap_or_default();
        for range in excluded.split_whitespace() {
            let (start, end) = range.split_once("..").unwrap_or((range, range));
            let wrong = |_| format!("its network keeps the addresses {range}, which are none");
            kept.push(Pool { start: start.parse().map_err(wrong)?, end: end.parse().map_err(wrong)? });
        }
        Ok(Subnet {
            meta: self.meta(row.uuid(), id_of(row, "ovirt_name").unwrap_or_default()),
            network,
            cidr,
            gateway,
            pools: pools(cidr, &kept),
            dns_nameservers: servers.map(str::to_owned).collect(),
            ipv6_ra_mode: mode,
            ipv6_address_mode: mode,
            ..Subnet::default()
        })
    }
}

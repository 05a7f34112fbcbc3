use std::net::IpAddr;

use portcullis_core::{Cidr, Family};
use portcullis_ovsdb::Row;
use uuid::Uuid;

use super::{Reader, enabled, filled, id_of, strange_key};
use crate::Mac;
use crate::objects::{AddressPair, FixedIp, Port, Subnet};
use crate::tables::{PORT_GROUP, ROUTER, SWITCH, SWITCH_PORT};

impl Reader<'_> {
    /// Ports, those of routers among them.
    pub(super) fn ports(&mut self) {
        for switch in self.foreign(SWITCH) {
            for row in self.members(switch, "ports", SWITCH_PORT) {
                if row.get("type").text() == Some("localnet") {
                    continue;
                }
                self.ties.tie(switch.uuid(), row.uuid());
                match self.port(switch.uuid(), row) {
                    Ok(port) => {
                        let id = port.meta.id;
                        self.ties.tie(row.uuid(), id);
                        if id != row.uuid() {
                            self.survey.replaced.push((id, SWITCH, switch.uuid(), "ports", row.uuid()));
                            // The server may keep a weak reference that another one joins in the same transaction.
                            let filtered = self.drop_all.filter(|_| port.port_security).map(Row::uuid);
                            let groups = port.security_groups.iter().copied().chain(filtered);
                            let gone = groups.map(|group| (id, PORT_GROUP, group, "ports", row.uuid()));
                            self.survey.replaced.extend(gone);
                        }
                        self.survey.ports.push(port);
                    }
                    Err(why) => self.find(SWITCH_PORT, row, why),
                }
            }
        }
    }

    fn port(&mut self, network: Uuid, row: &Row) -> Result<Port, String> {
        let name = row.get("name").text().unwrap_or_default();
        let nic = id_of(row, "ovirt_nic_name");
        let nic = nic.ok_or("it has no ovirt_nic_name, so it is no port of the provider")?;
        if let Some(key) = strange_key(row, &[]) {
            return Err(format!("its external_ids have {key}, so another system has it"));
        }
        let id: Uuid =
            name.parse().map_err(|_| "its name, by which it is plugged in, is no uuid".to_owned())?;
        // The same number in other letters would be another name.
        if id.to_string() != name {
            return Err("its name, by which it is plugged in, is not written as uuids are".to_owned());
        }
        let columns = ["tag", "tag_request", "parent_name", "ha_chassis_group", "mirror_rules"];
        if let Some(column) = filled(row, &columns) {
            return Err(format!("it has a {column}, which would be lost"));
        }
        let options = row.get("options");
        let keys = options.entries().iter().filter_map(|(key, _)| key.as_text());
        if let Some(key) = keys.into_iter().find(|key| !matches!(*key, "requested-chassis" | "router-port")) {
            return Err(format!("its option {key} would be lost"));
        }
        let port = Port {
            meta: self.meta(id, nic),
            network,
            admin_state_up: enabled(row),
            device_id: id_of(row, "ovirt_device_id").unwrap_or_default().to_owned(),
            device_owner: id_of(row, "ovirt_device_owner").unwrap_or_default().to_owned(),
            security_groups: self.groups_of(row),
            port_security: self.is_filtered(row),
            host: options.value_of("requested-chassis").unwrap_or_default().to_owned(),
            ..Port::default()
        };
        match row.get("type").text() {
            Some("") | None => self.machine(row, port),
            Some("router") => self.interface(row, port),
            Some(other) => Err(format!("it is a port of type {other}, which the API does not have")),
        }
    }

    /// A port for a machine.
    fn machine(&self, row: &Row, port: Port) -> Result<Port, String> {
        if port.device_owner == Port::ROUTER_INTERFACE || port.device_owner == Port::ROUTER_GATEWAY {
            return Err("it says that a router has it, and none has".to_owned());
        }
        let mut lines: Vec<&str> = row.get("addresses").texts().collect();
        if !port.port_security {
            lines.retain(|line| *line != "unknown");
        }
        let [line] = lines.as_slice() else {
            return Err(format!("it has {} hardware addresses", lines.len()));
        };
        let (mac, addresses) = line.split_once(' ').unwrap_or((line, ""));
        let mac: Mac = mac.parse().map_err(|_| format!("its hardware address is {mac}"))?;
        let addresses = match addresses.trim() {
            "dynamic" => {
                let given = row.get("dynamic_addresses").text().and_then(|text| text.split_once(' '));
                match given {
                    Some((_, addresses)) => addresses,
                    None if self.subnets_of(port.network).next().is_none() => "",
                    None => {
                        return Err("OVN has not given it an address yet: is ovn-northd running?".to_owned());
                    }
                }
            }
            fixed => fixed,
        };
        let mut fixed_ips = Vec::new();
        for address in addresses.split_whitespace() {
            let address: IpAddr = address.parse().map_err(|_| format!("its address is {address}"))?;
            fixed_ips.push(self.fixed_ip(port.network, address)?);
        }
        let guard: Vec<&str> = row.get("port_security").texts().collect();
        let guarded = guard.len() == 1 && guard[0].parse() == Ok(mac);
        if port.port_security && !guarded {
            return Err(format!(
                "it is filtered, and may speak as {} instead of {mac} only",
                guard.join(" and ")
            ));
        }
        if !port.port_security && !guard.is_empty() {
            return Err(format!("it is not filtered, and yet may speak as {} only", guard.join(" and ")));
        }
        // The provider checks the hardware address only. With an address of its own a port would be held to that.
        let families: &[Family] =
            if port.port_security && !fixed_ips.is_empty() { &[Family::V4, Family::V6] } else { &[] };
        let pair =
            |family: &Family| AddressPair { address: Cidr::everything(*family).to_string(), mac: None };
        Ok(Port { mac, fixed_ips, address_pairs: families.iter().map(pair).collect(), ..port })
    }

    /// A port that a router has.
    fn interface(&mut self, row: &Row, port: Port) -> Result<Port, String> {
        let name = row.get("options").value_of("router-port").unwrap_or_default();
        let end = self.router_ports.get(name).copied();
        let (router, end) = end.ok_or_else(|| format!("its other end, {name}, is not there"))?;
        self.ties.tie(row.uuid(), router);
        let mac = end.get("mac").text().unwrap_or_default();
        let mac: Mac = mac.parse().map_err(|_| format!("its hardware address is {mac}"))?;
        let mut fixed_ips = Vec::new();
        for text in end.get("networks").texts() {
            let range: Cidr = text.parse().map_err(|_| format!("its router has the address {text}"))?;
            let fixed = self.fixed_ip(port.network, range.addr())?;
            let subnet = self.subnets_of(port.network).find(|subnet| subnet.meta.id == fixed.subnet);
            if subnet.is_none_or(|subnet| subnet.cidr.prefix_len() != range.prefix_len()) {
                return Err(format!("its router has the address {text}, whose length is not its subnet's"));
            }
            fixed_ips.push(fixed);
        }
        if end.get("ipv6_ra_configs").entries().is_empty() {
            // A router that does not tell IPv6 hosts of itself must not begin to.
            let here = |subnet: &&mut Subnet| fixed_ips.iter().any(|fixed| fixed.subnet == subnet.meta.id);
            self.survey.subnets.iter_mut().filter(here).for_each(|subnet| subnet.ipv6_ra_mode = None);
        }
        if !enabled(end) {
            return Err(format!("its other end, {name}, is switched off, and would be on"));
        }
        let columns = ["gateway_chassis", "ha_chassis_group", "options", "peer", "ipv6_prefix"];
        if let Some(column) = filled(end, &columns) {
            return Err(format!("its other end, {name}, has {column}, which would be lost"));
        }
        let is_gateway = self.replica.row(ROUTER, router).and_then(|row| id_of(row, "ovirt_gateway_port"))
            == Some(&port.meta.id.to_string());
        let device_owner = if is_gateway { Port::ROUTER_GATEWAY } else { Port::ROUTER_INTERFACE };
        self.survey.replaced.push((port.meta.id, ROUTER, router, "ports", end.uuid()));
        Ok(Port {
            mac,
            fixed_ips,
            device_id: router.to_string(),
            device_owner: device_owner.to_owned(),
            // OVN does not ask where a router is.
            host: String::new(),
            ..port
        })
    }

    fn fixed_ip(&self, network: Uuid, address: IpAddr) -> Result<FixedIp, String> {
        let subnet = self.subnets_of(network).find(|subnet| subnet.cidr.contains(address));
        let subnet = subnet.ok_or_else(|| format!("its address {address} is in no subnet of its network"))?;
        Ok(FixedIp { subnet: subnet.meta.id, address })
    }
}

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use portcullis_core::{Cidr, Direction, Family, GroupId, Mismatch, Protocol};
use portcullis_ovn::acl::NOBODY;
use portcullis_ovn::objects::{AddressGroup, Port, Rule, SecurityGroup};
use portcullis_ovn::{Mac, Model};
use uuid::Uuid;

use super::question::Packet;
use super::text;
use crate::access;
use crate::attributes::View;
use crate::error::Error;
use crate::kinds::range;

/// A port of ours, a packet's direction there, and the addresses of both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    pub(super) model: &'a Model,
    pub(super) port: &'a Arc<Port>,
    pub(super) direction: Direction,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
}

/// What happens there, and what every rule says.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) end: End<'a>,
    pub(super) packet: Packet,
    pub(super) decision: Decision<'a>,
    pub(super) rules: Vec<Say<'a>>,
    /// Whether answers pass by themselves; nothing if no group is asked.
    pub(super) stateful: Option<bool>,
}

/// A rule of the port's groups, and why it does not let the packet pass.
pub(super) type Say<'a> = (&'a Arc<Rule>, Option<String>);

/// Who has the say.
#[derive(Debug)]
pub(super) enum Decision<'a> {
    /// The port is down.
    Down,
    /// Nothing is filtered there.
    Unfiltered,
    /// The port may not speak in that name, or is not the one spoken to.
    Guard(IpAddr),
    /// What a port needs to have an address passes by itself.
    BuiltIn(&'static str),
    Rule(&'a Arc<Rule>),
    /// No rule lets it pass.
    DenyAll,
}

impl Decision<'_> {
    pub(super) fn passes(&self) -> bool {
        matches!(self, Decision::Unfiltered | Decision::BuiltIn(_) | Decision::Rule(_))
    }

    /// For programs.
    pub(super) fn by(&self) -> &'static str {
        match self {
            Decision::Down => "port-down",
            Decision::Unfiltered => "port-security-off",
            Decision::Guard(_) => "address-guard",
            Decision::BuiltIn(_) => "built-in",
            Decision::Rule(_) => "rule",
            Decision::DenyAll => "deny-all",
        }
    }

    /// For people.
    pub(super) fn text(&self, view: &View<'_>) -> String {
        match self {
            Decision::Down => "the port's admin_state_up is false".to_owned(),
            Decision::Unfiltered => "port security is off: nothing is filtered".to_owned(),
            Decision::Guard(address) => format!("{address} is not an address of the port"),
            Decision::BuiltIn(what) => format!("{what} passes by itself"),
            Decision::Rule(rule) => match text::group(view, rule.group) {
                Some(group) => format!("{} of group {group}", text::rule(view, rule)),
                None => "a rule of a group of another project".to_owned(),
            },
            Decision::DenyAll => "no rule of any of the port's groups allows it".to_owned(),
        }
    }
}

impl<'a> End<'a> {
    fn family(&self) -> Family {
        Family::of(self.remote)
    }

    pub(super) fn decide(self, packet: &Packet) -> Result<Said<'a>, Error> {
        let groups: Vec<&Arc<SecurityGroup>> =
            self.port.security_groups.iter().filter_map(|id| self.model.get(*id)).collect();
        let rules = self.rules(packet, &groups)?;
        let allowing = rules.iter().find(|(_, mismatch)| mismatch.is_none()).map(|(rule, _)| *rule);
        let decision = if !self.port.admin_state_up {
            Decision::Down
        } else if !self.port.port_security {
            Decision::Unfiltered
        } else if !self.is_own(packet) {
            Decision::Guard(self.local)
        } else if let Some(what) = self.built_in(packet) {
            Decision::BuiltIn(what)
        } else {
            allowing.map_or(Decision::DenyAll, Decision::Rule)
        };
        let stateful = self.port.port_security.then(|| groups.first().map(|group| group.stateful)).flatten();
        Ok(Said { end: self, packet: *packet, decision, rules, stateful })
    }

    /// What each rule says.
    fn rules(&self, packet: &Packet, groups: &[&Arc<SecurityGroup>]) -> Result<Vec<Say<'a>>, Error> {
        let seen = portcullis_core::Packet::new(
            self.direction,
            self.local,
            self.remote,
            packet.traffic(self.family()),
        )
        .map_err(Error::invalid_input)?;
        let mut said = Vec::new();
        for group in groups {
            let own: Vec<&Arc<Rule>> = self.model.rules_of_group(group.meta.id).collect();
            let remotes = own.iter().filter(|rule| self.is_remote(rule));
            let remotes = remotes.filter_map(|rule| remote_of(rule));
            let seen = seen.clone().with_remote_groups(remotes);
            for rule in own {
                let decided = access::peer(rule).and_then(|peer| access::decided(rule, peer));
                let mismatch = match &decided {
                    // It cannot be matched, so it never is.
                    None => Some("it matches nothing".to_owned()),
                    Some(decided) => portcullis_core::mismatch(decided, &seen).map(|mismatch| {
                        match (mismatch, rule.remote_address_group) {
                            (Mismatch::NotInGroup(address, _), None) => {
                                format!("{address} is in no port of that group")
                            }
                            (Mismatch::NotInGroup(address, _), Some(_)) => {
                                format!("{address} is not in that address group")
                            }
                            (mismatch, _) => mismatch.to_string(),
                        }
                    }),
                };
                said.push((rule, mismatch));
            }
        }
        Ok(said)
    }

    /// Whether the other end is in the group that a rule names.
    fn is_remote(&self, rule: &Rule) -> bool {
        let in_group = |group: Uuid| {
            access::addresses_of_group(self.model, group, self.family()).any(|address| address == self.remote)
        };
        let in_addresses = |group: Uuid| {
            let group = self.model.get::<AddressGroup>(group);
            group.is_some_and(|group| group.addresses.iter().any(|range| range.contains(self.remote)))
        };
        rule.remote_group.is_some_and(in_group) || rule.remote_address_group.is_some_and(in_addresses)
    }

    /// Whether the local address is one that the port may use, as OVN's `port_security` has it: of each hardware address
    /// its own addresses, or any if none is named where there are none to be had.
    fn is_own(&self, packet: &Packet) -> bool {
        let port = self.port;
        let mut names: Vec<(Mac, Vec<Cidr>)> =
            vec![(port.mac, port.fixed_ips.iter().map(|fixed| Cidr::host(fixed.address)).collect())];
        for pair in &port.address_pairs {
            let mac = pair.mac.unwrap_or(port.mac);
            let Some(range) = range(&pair.address) else { continue };
            match names.iter_mut().find(|(known, _)| *known == mac) {
                Some((_, ranges)) => ranges.push(range),
                None => names.push((mac, vec![range])),
            }
        }
        if self.model.subnets_of_network(port.network).next().is_some() {
            for (_, ranges) in names.iter_mut().filter(|(_, ranges)| ranges.is_empty()) {
                ranges.extend(NOBODY.map(Cidr::host));
            }
        }
        names.iter().any(|(mac, ranges)| {
            ranges.is_empty()
                || ranges.iter().any(|range| range.contains(self.local))
                || ranges.iter().any(|range| range.family() == self.family())
                    && self.is_nameless(*mac, packet)
        })
    }

    /// Whether the local address is one that everybody with an address of the family may use.
    fn is_nameless(&self, mac: Mac, packet: &Packet) -> bool {
        match (self.local, self.direction) {
            // Who has no address yet asks for one.
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Direction::Egress) => self.asks_dhcp(packet).is_some(),
            (IpAddr::V4(_), Direction::Egress) => false,
            (IpAddr::V4(address), Direction::Ingress) => address.is_broadcast() || address.is_multicast(),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Direction::Egress) => {
                packet.protocol == Protocol::ICMPV6 && [131, 135, 143].contains(&packet.icmp_type)
            }
            (IpAddr::V6(address), direction) => {
                address == link_local(mac) || direction == Direction::Ingress && address.is_multicast()
            }
        }
    }

    fn asks_dhcp(&self, packet: &Packet) -> Option<&'static str> {
        if packet.protocol != Protocol::UDP {
            return None;
        }
        let ports = |source: u16, port: u16| {
            packet.port == port && packet.source_port.is_none_or(|given| given == source)
        };
        match self.remote {
            IpAddr::V4(Ipv4Addr::BROADCAST) if ports(68, 67) => Some("DHCP"),
            IpAddr::V6(ALL_DHCP) if ports(546, 547) => Some("DHCPv6"),
            _ => None,
        }
    }

    /// What passes without a rule: see the rows of a network in `portcullis_ovn`, and OVN's own. Wherever it has ACLs, it lets all of
    /// these discoveries pass before it asks them.
    fn built_in(&self, packet: &Packet) -> Option<&'static str> {
        if self.direction == Direction::Egress
            && let Some(what) = self.asks_dhcp(packet)
        {
            let mut subnets = self.model.subnets_of_network(self.port.network);
            return subnets.any(|subnet| subnet.dhcp && subnet.family() == self.family()).then_some(what);
        }
        if self.family() == Family::V4 || packet.protocol.icmp_family().is_none() {
            return None;
        }
        let source = if self.direction == Direction::Egress { self.local } else { self.remote };
        let target = if self.direction == Direction::Egress { self.remote } else { self.local };
        match packet.icmp_type {
            135 | 136 if packet.icmp_code == 0 => Some("neighbour discovery"),
            133 | 134 if packet.icmp_code == 0 => Some("router discovery"),
            130..=132 if in_link_local(source) => Some("multicast listener discovery"),
            143 if target == IpAddr::V6(ALL_MLD) => Some("multicast listener discovery"),
            _ => None,
        }
    }
}

const ALL_DHCP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const ALL_MLD: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// The address that a host makes for itself from its hardware address.
fn link_local(mac: Mac) -> Ipv6Addr {
    let mac = mac.bytes();
    let host = u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
    Ipv6Addr::from(0xfe80 << 112 | u128::from(host))
}

fn in_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn remote_of(rule: &Rule) -> Option<GroupId> {
    rule.remote_group.or(rule.remote_address_group).and_then(access::group_id)
}

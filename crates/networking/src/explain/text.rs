//! Explanations in the words of people.

use portcullis_core::{Cidr, Direction, Family, Protocol};
use portcullis_ovn::objects::{AddressGroup, Meta, Network, Port, Rule, SecurityGroup};
use portcullis_ovn::{Model, acl};
use uuid::Uuid;

use super::end::{Decision, Said};
use crate::attributes::View;
use crate::resources::Resource;
use crate::resources::address_group::AddressGroups;
use crate::resources::port::Ports;
use crate::resources::rule::Rules;
use crate::resources::security_group::SecurityGroups;

/// What something is called: its name, if it has one.
pub(super) fn name(meta: &Meta) -> String {
    if meta.name.is_empty() { meta.id.to_string() } else { meta.name.clone() }
}

/// What a group is called by who may know of it.
pub(super) fn group(view: &View<'_>, id: Uuid) -> Option<String> {
    let group = view.model.get::<SecurityGroup>(id)?;
    SecurityGroups::is_visible(group, view).then(|| name(&group.meta))
}

/// What a network is called.
pub(super) fn network(model: &Model, id: Uuid) -> String {
    model.get::<Network>(id).map_or_else(String::new, |network| name(&network.meta))
}

/// `in tcp 22 from group dev`.
pub(super) fn rule(view: &View<'_>, rule: &Rule) -> String {
    let (way, preposition) = match rule.direction {
        Direction::Ingress => ("in", "from"),
        Direction::Egress => ("out", "to"),
    };
    let traffic = acl::traffic(rule).map_or_else(|| "nothing".to_owned(), |traffic| traffic.to_string());
    let peer = match (&rule.remote_prefix, rule.remote_group, rule.remote_address_group) {
        (Some(prefix), ..) => prefix.clone(),
        (None, Some(id), _) => {
            let name = group(view, id);
            let name =
                name.map_or_else(|| "a group of another project".into(), |name| format!("group {name}"));
            format!("{name} over {}", rule.ethertype)
        }
        (None, None, Some(id)) => {
            let group = view.model.get::<AddressGroup>(id);
            let name = match group.filter(|group| AddressGroups::is_visible(group, view)) {
                Some(group) => format!("address group {}", name(&group.meta)),
                None => "an address group of another project".to_owned(),
            };
            format!("{name} over {}", rule.ethertype)
        }
        (None, None, None) => format!("everyone over {}", rule.ethertype),
    };
    format!("{way} {traffic} {preposition} {peer}")
}

/// What happens at a port, as a small table.
pub(super) fn of_end(view: &View<'_>, said: &Said<'_>) -> String {
    let port = said.end.port;
    let network = network(view.model, port.network);
    let verdict = if said.decision.passes() { "ALLOW" } else { "DROP" };
    let mut rows: Vec<[String; 4]> = said
        .rules
        .iter()
        .filter(|(rule, _)| rule.direction == said.end.direction && Rules::is_visible(rule, view))
        .map(|(own, mismatch)| {
            let mark = if mismatch.is_none() { "✓" } else { "✗" };
            let why = mismatch.clone().unwrap_or_default();
            [mark.to_owned(), group(view, own.group).unwrap_or_default(), rule(view, own), why]
        })
        .collect();
    let mark = if said.decision.passes() { "✓" } else { "✗" };
    rows.push([
        mark.to_owned(),
        said.decision.by().to_owned(),
        said.decision.text(view),
        "decided here".to_owned(),
    ]);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (groups, rules) = (width(1), width(2));
    let mut text = format!(
        "{} (port {}, network {network}, {})  {verdict}\n",
        name(&port.meta),
        port.meta.id,
        said.end.local
    );
    for [mark, group, rule, why] in rows {
        text.push_str(format!("  {mark} {group:groups$}  {rule:rules$}  {why}").trim_end());
        text.push('\n');
    }
    if let Some(command) = to_allow(view, said) {
        text.extend(["To allow it:  ", &command, "\n"]);
    }
    text
}

/// The command that would let a dropped packet pass, if who asks can give it.
pub(super) fn to_allow(view: &View<'_>, said: &Said<'_>) -> Option<String> {
    let port = said.end.port;
    let may = Ports::may_change(port, view);
    match &said.decision {
        Decision::Down if may => Some(format!("openstack port set --enable {}", port.meta.id)),
        Decision::Guard(address) if may => {
            Some(format!("openstack port set --allowed-address ip-address={address} {}", port.meta.id))
        }
        Decision::DenyAll if port.security_groups.is_empty() => may.then(|| group_command(view.model, port)),
        Decision::DenyAll => {
            let mut groups =
                port.security_groups.iter().filter_map(|id| view.model.get::<SecurityGroup>(*id));
            let own = groups.find(|group| SecurityGroups::may_change(group, view))?;
            Some(rule_command(view.model, said, own.meta.id))
        }
        _ => None,
    }
}

/// A port without a group needs one before any rule.
fn group_command(model: &Model, port: &Port) -> String {
    let default = model.default_group(&port.meta.project).map(|group| group.meta.id);
    let group = default.map_or_else(|| "default".to_owned(), |id| id.to_string());
    format!("openstack port set --security-group {group} {}", port.meta.id)
}

fn rule_command(model: &Model, said: &Said<'_>, group: Uuid) -> String {
    let (end, packet) = (&said.end, &said.packet);
    let family = Family::of(end.remote);
    let mut words = vec!["openstack security group rule create".to_owned(), argument(model, group)];
    if end.direction == Direction::Egress {
        words.push("--egress".to_owned());
    }
    if family == Family::V6 {
        words.push("--ethertype IPv6".to_owned());
    }
    if packet.protocol.icmp_family().is_some() {
        let protocol = Protocol::icmp(family);
        words.push(format!(
            "--protocol {protocol} --icmp-type {} --icmp-code {}",
            packet.icmp_type, packet.icmp_code
        ));
    } else {
        words.push(format!("--protocol {}", packet.protocol));
        if [Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&packet.protocol) {
            words.push(format!("--dst-port {}", packet.port));
        }
    }
    words.push(format!("--remote-ip {}", Cidr::host(end.remote)));
    words.join(" ")
}

/// A group as a word of a command: by name where that is plain and only its own.
fn argument(model: &Model, id: Uuid) -> String {
    let is_plain = |name: &str| {
        !name.starts_with('-') && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match model.get::<SecurityGroup>(id) {
        Some(group) if !group.meta.name.is_empty() && is_plain(&group.meta.name) => {
            let name = &group.meta.name;
            let mut same =
                model.named::<SecurityGroup>(name).filter(|other| other.meta.project == group.meta.project);
            if same.nth(1).is_none() { name.clone() } else { id.to_string() }
        }
        _ => id.to_string(),
    }
}

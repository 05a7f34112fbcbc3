//! A change, for people: what happens to which object, and who may reach what before and after.

use std::collections::BTreeSet;

use portcullis_core::{
    Access, Calls, Change, Detail, Direction, Family, GroupId, Owner, Peer as CorePeer, PlanError, PlanView,
    PortRange, Protocol, Reach, ReachChange, Rule, Sign, Traffic,
};

use super::settings::Settings;
use super::snapshot::{Group, Holding, Snapshot};
use super::spec::{Spec, transports};
use super::step::{Place, Step};
use crate::SecurityGroupMode;
use crate::model::{Peer, Permission, Permissions, SecurityGroup};

/// What would be done for an owner, from what is there now to what would be there then.
pub(super) fn plan(
    owner: &Owner,
    spec: Option<&Spec>,
    settings: &Settings,
    before: &Snapshot,
    after: &Snapshot,
    steps: &[(Place, Step)],
) -> Result<PlanView, PlanError> {
    let mode = match settings.mode {
        SecurityGroupMode::Managed => "Managed",
        SecurityGroupMode::Unmanaged => "Unmanaged",
    };
    let place = format!("aws-nlb in {} (mode {mode})", settings.vpc);
    let mut changes = Changes::default();
    for (_, step) in steps {
        changes.add(step, before, after);
    }
    let calls = Calls {
        all: steps.len(),
        destructive: steps.iter().filter(|(_, step)| step.is_destructive()).count(),
    };
    let change = |direction| ReachChange {
        before: reach(owner, before, direction, None),
        after: reach(owner, after, direction, spec),
    };
    let access = Access { ingress: change(Direction::Ingress), egress: change(Direction::Egress) };
    PlanView::new(owner.clone(), place, changes.0, calls, access)
}

/// Objects in the order in which they are dealt with.
#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn object(&mut self, sign: Sign, kind: &str, name: &str) -> &mut Change {
        let place = self.0.iter().position(|change| change.kind == kind && change.name == name);
        let place = place.unwrap_or_else(|| {
            self.0.push(Change::new(sign, kind, name));
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    fn part(&mut self, kind: &str, name: &str, detail: Detail) {
        self.object(Sign::Update, kind, name).details.push(detail);
    }

    fn add(&mut self, step: &Step, before: &Snapshot, after: &Snapshot) {
        let named =
            |id: &str| name_of(id, before).or_else(|| name_of(id, after)).unwrap_or_else(|| id.to_owned());
        let plain = |columns: &[&str], why: &str| Detail::new(Sign::Update, columns.iter().copied(), why);
        match step {
            Step::CreateGroup { name, .. } => {
                self.object(Sign::Create, GROUP, name);
            }
            Step::DeleteGroup { group } => {
                self.object(Sign::Delete, GROUP, &named(group));
            }
            Step::Permit { group, direction, permissions } => {
                self.rules(&named(group), Sign::Create, *direction, permissions, &named);
            }
            Step::Forbid { group, direction, permissions } => {
                self.rules(&named(group), Sign::Delete, *direction, permissions, &named);
            }
            Step::TagGroup { group, tags } => {
                for (key, value) in tags {
                    self.part(GROUP, &named(group), plain(&["tag", key, value], ""));
                }
            }
            Step::UntagGroup { group, keys } => {
                for key in keys {
                    self.part(GROUP, &named(group), Detail::new(Sign::Delete, ["tag", key], ""));
                }
            }
            Step::CreateBalancer(new) => {
                let groups: Vec<String> = new.groups.iter().map(|id| named(id)).collect();
                let change = self.object(Sign::Create, BALANCER, &new.name);
                let subnets: Vec<&str> = new.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
                for (name, value) in [
                    ("scheme", new.scheme.clone()),
                    ("addresses", new.ip_address_type.clone()),
                    ("subnets", subnets.join(", ")),
                    ("groups", if groups.is_empty() { "none".to_owned() } else { groups.join(", ") }),
                ] {
                    change.details.push(Detail::new(Sign::Create, [name.to_owned(), value], ""));
                }
            }
            Step::DeleteBalancer { balancer } => {
                self.object(Sign::Delete, BALANCER, &named(balancer));
            }
            Step::SetGroups { balancer, groups } => {
                let groups: Vec<String> = groups.iter().map(|id| named(id)).collect();
                self.part(BALANCER, &named(balancer), plain(&["groups", &groups.join(", ")], ""));
            }
            Step::SetSubnets { balancer, subnets } => {
                self.part(BALANCER, &named(balancer), plain(&["subnets", &subnets.join(", ")], ""));
            }
            Step::SetIpAddressType { balancer, kind } => {
                self.part(BALANCER, &named(balancer), plain(&["addresses", kind], ""));
            }
            Step::SetAttributes { balancer, attributes } => {
                for (key, value) in attributes {
                    self.part(BALANCER, &named(balancer), plain(&[key, value], ""));
                }
            }
            _ => self.add_more(step, &named),
        }
    }

    fn add_more(&mut self, step: &Step, named: &dyn Fn(&str) -> String) {
        let plain = |columns: &[&str]| Detail::new(Sign::Update, columns.iter().copied(), "");
        match step {
            Step::CreatePool(new) => {
                let change = self.object(Sign::Create, POOL, &new.name);
                let check = &new.health_check;
                let to = format!("{} {}", new.protocol.to_lowercase(), new.port);
                change.details.push(Detail::new(Sign::Create, ["to", &to], "target port"));
                let how = format!(
                    "{} {}{} every {} s",
                    check.protocol.to_lowercase(),
                    check.port,
                    check.path.as_deref().unwrap_or_default(),
                    check.interval
                );
                change.details.push(Detail::new(Sign::Create, ["checked by", &how], ""));
            }
            Step::DeletePool { pool } => {
                self.object(Sign::Delete, POOL, &named(pool));
            }
            Step::Check { pool, check } => {
                let how =
                    format!("{} {} every {} s", check.protocol.to_lowercase(), check.port, check.interval);
                self.part(POOL, &named(pool), plain(&["checked by", &how]));
            }
            Step::SetPoolAttributes { pool, attributes } => {
                for (key, value) in attributes {
                    self.part(POOL, &named(pool), plain(&[key, value]));
                }
            }
            Step::Register { pool, targets } => {
                let count = targets.len().to_string();
                self.part(POOL, &named(pool), Detail::new(Sign::Create, ["targets", &count], ""));
            }
            Step::Deregister { pool, targets } => {
                let count = targets.len().to_string();
                self.part(POOL, &named(pool), Detail::new(Sign::Delete, ["targets", &count], ""));
            }
            Step::CreateListener { balancer, listener, .. } => {
                let port = format!("{} {}", listener.protocol.to_lowercase(), listener.port);
                let to = format!("to {}", named(&listener.target_group));
                self.part(
                    BALANCER,
                    &named(balancer),
                    Detail::new(Sign::Create, ["listener", &port, &to], ""),
                );
            }
            Step::ModifyListener { listener, .. } => {
                let port = format!("{} {}", listener.protocol.to_lowercase(), listener.port);
                self.object(Sign::Update, LISTENER, &port)
                    .details
                    .push(plain(&["to", &named(&listener.target_group)]));
            }
            Step::DeleteListener { port, .. } => {
                {
                    self.object(Sign::Delete, LISTENER, &port.to_string());
                };
            }
            Step::Tag { arns, tags } => {
                for (key, value) in tags {
                    for arn in arns {
                        self.part(TAGGED, &named(arn), plain(&["tag", key, value]));
                    }
                }
            }
            Step::Untag { arns, keys } => {
                for (arn, key) in arns.iter().flat_map(|arn| keys.iter().map(move |key| (arn, key))) {
                    self.part(TAGGED, &named(arn), Detail::new(Sign::Delete, ["tag", key], ""));
                }
            }
            _ => {}
        }
    }

    fn rules(
        &mut self,
        group: &str,
        sign: Sign,
        direction: Direction,
        permissions: &Permissions,
        named: &dyn Fn(&str) -> String,
    ) {
        for permission in permissions.keys() {
            let (word, side) = match direction {
                Direction::Ingress => ("in", "from"),
                Direction::Egress => ("out", "to"),
            };
            let peer = match &permission.peer {
                Peer::Group(id) => named(id),
                other => other.to_string(),
            };
            let why = match (direction, permission.protocol.as_str()) {
                (Direction::Ingress, "icmp" | "icmpv6") => "path MTU discovery",
                (Direction::Ingress, _) => "",
                (Direction::Egress, "-1") => "what AWS gives every new group",
                (Direction::Egress, _) => "to the targets",
            };
            let columns = [word.to_owned(), permission.traffic(), format!("{side} {peer}")];
            self.part(GROUP, group, Detail::new(sign, columns, why));
        }
    }
}

const GROUP: &str = "security group";
const BALANCER: &str = "load balancer";
const POOL: &str = "target group";
const LISTENER: &str = "listener";
const TAGGED: &str = "tags";

/// The name of an object.
fn name_of(id: &str, snapshot: &Snapshot) -> Option<String> {
    for holding in snapshot.holdings.values() {
        let group = holding.groups.get(id).map(|found| &found.group.name);
        let balancer = holding.balancers.get(id).map(|found| &found.balancer.name);
        let pool = holding.pools.get(id).map(|found| &found.group.name);
        if let Some(name) = group.or(balancer).or(pool) {
            return Some(name.clone());
        }
        for found in holding.balancers.values() {
            let listeners = found.listeners.iter().flatten();
            if let Some((port, _)) = listeners.into_iter().find(|(_, listener)| listener.arn == id) {
                return Some(format!("{} {port}", found.balancer.name));
            }
        }
    }
    None
}

/// Who may reach an owner's load balancer, or what it may reach.
fn reach(owner: &Owner, snapshot: &Snapshot, direction: Direction, spec: Option<&Spec>) -> Reach {
    let Some(holding) = snapshot.holdings.get(owner) else { return Reach::nobody() };
    let mut rules = Vec::new();
    for balancer in holding.balancers.values() {
        let groups: Vec<&SecurityGroup> = balancer
            .balancer
            .groups
            .iter()
            .filter_map(|id| {
                let own = holding.groups.get(id).map(|found: &Group| &found.group);
                own.or_else(|| snapshot.shared.groups.get(id))
            })
            .collect();
        if direction == Direction::Egress {
            let permissions = groups.iter().flat_map(|group| group.egress.keys());
            rules.extend(permissions.filter_map(|one| rule(direction, one, one.from, one.to)));
            continue;
        }
        for (port, listener) in balancer.listeners.iter().flatten() {
            for transport in transports(&listener.protocol) {
                let port = i32::from(*port);
                let lets_in = |one: &&Permission| {
                    one.protocol == "-1"
                        || (one.protocol == *transport
                            && one.from.is_none_or(|from| from <= port)
                            && one.to.is_none_or(|to| port <= to))
                };
                let all: BTreeSet<Permission> = groups
                    .iter()
                    .flat_map(|group| group.ingress.keys())
                    .filter(lets_in)
                    .map(|one| Permission { protocol: (*transport).to_owned(), ..one.clone() })
                    .collect();
                rules.extend(all.iter().filter_map(|one| rule(direction, one, Some(port), Some(port))));
                if balancer.balancer.groups.is_empty() {
                    // The nodes see the clients' addresses, and let in whom the Service names.
                    let clients: BTreeSet<Peer> = spec.map(|spec| spec.clients.clone()).unwrap_or_default();
                    let clients = clients.into_iter().map(|peer| Permission {
                        protocol: (*transport).to_owned(),
                        from: Some(port),
                        to: Some(port),
                        peer,
                    });
                    rules.extend(clients.filter_map(|one| rule(direction, &one, Some(port), Some(port))));
                }
            }
        }
    }
    Reach::of(direction, &rules)
}

/// Who is let in by the groups of an owner's load balancer, whatever it listens on.
pub(super) fn admitted(holding: &Holding, snapshot: &Snapshot) -> Reach {
    let attached = holding.balancers.values().flat_map(|found| &found.balancer.groups);
    let groups = attached.filter_map(|id| {
        let own = holding.groups.get(id).map(|found| &found.group);
        own.or_else(|| snapshot.shared.groups.get(id))
    });
    let rules: Vec<Rule> = groups
        .flat_map(|group| group.ingress.keys())
        .filter_map(|one| rule(Direction::Ingress, one, one.from, one.to))
        .collect();
    Reach::of(Direction::Ingress, &rules)
}

/// A rule as the core has it; none for what only AWS can say, such as the ranges of a prefix list.
fn rule(direction: Direction, permission: &Permission, from: Option<i32>, to: Option<i32>) -> Option<Rule> {
    let (family, peer) = match &permission.peer {
        Peer::Range(range) if range.is_everything() => (range.family(), CorePeer::Everyone),
        Peer::Range(range) => (range.family(), CorePeer::Range(*range)),
        Peer::Group(id) => (Family::V4, CorePeer::Group(GroupId::new(id.clone()).ok()?)),
        Peer::PrefixList(_) => return None,
    };
    let ports = || PortRange::new(u16::try_from(from?).ok()?, u16::try_from(to?).ok()?).ok();
    let traffic = match permission.protocol.as_str() {
        "tcp" => Traffic::ports(Protocol::TCP, ports()?).ok()?,
        "udp" => Traffic::ports(Protocol::UDP, ports()?).ok()?,
        "-1" => Traffic::ANY,
        _ => return None,
    };
    Rule::new(direction, family, traffic, peer).ok()
}

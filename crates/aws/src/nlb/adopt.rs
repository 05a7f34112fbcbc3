//! Load balancers that another controller made: taking them over, and giving them back.
//!
//! What is written on objects says whose they are. Taking one over writes the owner on all that belongs to it, and changes
//! nothing else: the steps from there to what is wanted are those of any other load balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use portcullis_core::{Cidr, Owner, Problem, Target, Want};

use super::node_side::backend_owner;
use super::provider::Provider;
use super::refresh::owner_of;
use super::settings::NodeRules;
use super::snapshot::PART_KEY;
use super::{names, rules};
use crate::client::CallError;
use crate::model::{LoadBalancer, Peer, Permission, Permissions, SecurityGroup, Tags, TargetGroup};

/// So many objects can be tagged by one call.
const AT_ONCE: usize = 20;

/// Another controller that makes network load balancers for Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The service controller of cloud-provider-aws.
    CloudProvider,
    /// The AWS Load Balancer Controller.
    LoadBalancerController,
}

impl Maker {
    /// The name by which it is known.
    pub fn name(self) -> &'static str {
        match self {
            Maker::CloudProvider => "cloud-provider-aws",
            Maker::LoadBalancerController => "aws-load-balancer-controller",
        }
    }

    /// Who made something for an owner, by what is written on it.
    fn of(tags: &Tags, owner: &Owner) -> Option<Self> {
        let service = format!("{}/{}", owner.namespace().unwrap_or_default(), owner.name());
        let is = |key: &str, value: &str| tags.get(key).is_some_and(|found| found == value);
        if is("elbv2.k8s.aws/cluster", owner.cluster()) && is("service.k8s.aws/stack", &service) {
            return Some(Maker::LoadBalancerController);
        }
        let cluster = format!("kubernetes.io/cluster/{}", owner.cluster());
        (is("kubernetes.io/service-name", &service) && tags.contains_key(&cluster))
            .then_some(Maker::CloudProvider)
    }

    /// Whether a group of a load balancer was made for it, and not given by somebody.
    fn made(self, group: &SecurityGroup, owner: &Owner) -> bool {
        match self {
            // A part of the name depends on what it was started with.
            Maker::CloudProvider => {
                group.tags.get(&format!("kubernetes.io/cluster/{}", owner.cluster())).map(String::as_str)
                    == Some("owned")
                    && group.description == names::GROUP_DESCRIPTION
                    && group.name.starts_with(&names::shape(owner))
            }
            Maker::LoadBalancerController => {
                Maker::of(&group.tags, owner) == Some(self)
                    && group.tags.get("service.k8s.aws/resource").map(String::as_str)
                        == Some("ManagedLBSecurityGroup")
            }
        }
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What belongs to the load balancer of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estate {
    /// Who made it.
    pub maker: Maker,
    /// Whether it is ours already.
    pub is_ours: bool,
    /// The load balancer.
    pub balancer: LoadBalancer,
    /// Its target groups, by their ARNs.
    pub pools: BTreeSet<String>,
    /// The groups that were made for it.
    pub groups: BTreeSet<String>,
    /// Rules for it alone in the groups of the nodes, by group.
    pub rules: BTreeMap<String, Permissions>,
    /// All groups in which something is let in for it.
    pub(super) nodes: Vec<SecurityGroup>,
}

/// How cloud-provider-aws marks rules of the nodes that are for one load balancer.
fn their_marks(balancer: &str) -> [String; 2] {
    ["client", "health"].map(|what| format!("kubernetes.io/rule/nlb/{what}={balancer}"))
}

/// How it marks rules about the size of packets, which are for all of its load balancers.
const THEIR_SIZE_MARK: &str = "kubernetes.io/rule/nlb/mtu";

/// The rules of a group that cloud-provider-aws made for a load balancer. Where all of its load balancers are checked on
/// one port it has one rule for that, with the mark of the first: `own` are the ports that are for this one alone.
fn their_rules(group: &SecurityGroup, balancer: &str, own: &BTreeSet<u16>) -> Permissions {
    let marks = their_marks(balancer);
    let is_own_port = |rule: &Permission| {
        rule.from == rule.to && rule.from.is_some_and(|port| own.iter().any(|own| i32::from(*own) == port))
    };
    let is_client = |mark: &str| mark.starts_with("kubernetes.io/rule/nlb/client=");
    let is_mark = |mark: &str| is_client(mark) || mark.starts_with("kubernetes.io/rule/nlb/health=");
    let own = |mark: &str| marks.iter().any(|own| own == mark);
    let has_others = group.ingress.values().any(|mark| is_mark(mark) && !own(mark));
    let is_for_others = |rule: &Permission, mark: &str| has_others && mark == marks[1] && !is_own_port(rule);
    // A rule about the size of packets goes along if no other load balancer has the same clients.
    let others: BTreeSet<&Peer> = group
        .ingress
        .iter()
        .filter(|(_, mark)| is_client(mark) && !own(mark))
        .map(|(permission, _)| &permission.peer)
        .collect();
    let clients: BTreeSet<&Peer> = group
        .ingress
        .iter()
        .filter(|(_, mark)| **mark == marks[0])
        .map(|(permission, _)| &permission.peer)
        .collect();
    let is_size = |permission: &Permission, mark: &str| {
        mark == THEIR_SIZE_MARK && clients.contains(&permission.peer) && !others.contains(&permission.peer)
    };
    let is_its = |permission: &Permission, mark: &str| {
        own(mark) && !is_for_others(permission, mark) || is_size(permission, mark)
    };
    let found = group.ingress.iter().filter(|(permission, mark)| is_its(permission, mark));
    found.map(|(permission, mark)| (permission.clone(), mark.clone())).collect()
}

/// The ports that are for these target groups alone: those of their targets, and those on which no other one checks its
/// own.
fn own_ports(own: &[&TargetGroup], others: &[&TargetGroup]) -> BTreeSet<u16> {
    let checks = |pools: &[&TargetGroup]| -> BTreeSet<u16> {
        pools.iter().filter_map(|pool| pool.health_check.port.parse().ok()).collect()
    };
    let taken = checks(others);
    let checked = checks(own).into_iter().filter(|port| !taken.contains(port));
    own.iter().map(|pool| pool.port).chain(checked).collect()
}

/// The rules of a group with that mark.
fn marked(group: &SecurityGroup, mark: &str) -> Permissions {
    let found = group.ingress.iter().filter(|(_, found)| *found == mark);
    found.map(|(permission, mark)| (permission.clone(), mark.clone())).collect()
}

/// Rules of ours as cloud-provider-aws would mark them, so that it knows them as its own.
pub(super) fn as_theirs(
    rules: &Permissions,
    balancer: &LoadBalancer,
    subnets: &BTreeSet<Cidr>,
) -> Permissions {
    let [client, health] = their_marks(&balancer.name);
    let marked = rules.keys().map(|permission| {
        let mark = match &permission.peer {
            _ if permission.protocol.starts_with("icmp") => THEIR_SIZE_MARK,
            Peer::Range(range) if subnets.contains(range) => &health,
            _ => &client,
        };
        (permission.clone(), mark.to_owned())
    });
    marked.collect()
}

impl Provider {
    /// What there is for a Service at an address, whoever made it.
    pub async fn estate(&self, owner: &Owner, address: &str) -> Result<Estate, Problem> {
        let unseen = |error: CallError| {
            let remedy = super::provider::remedy_of_who_looks(&error);
            Problem::new(format!("{owner}: {error}."), "Nothing was changed.", remedy)
        };
        let balancers = self.client().load_balancers().await.map_err(unseen)?;
        let found = balancers
            .into_iter()
            .find(|found| found.kind == "network" && found.dns_name.eq_ignore_ascii_case(address));
        let Some(balancer) = found else {
            return Err(Problem::new(
                format!("{owner}: no network load balancer has its address {address}."),
                "Nothing was changed.",
                "Only network load balancers of this account and region can be taken over; one of another kind has to be made anew.",
            ));
        };
        if balancer.vpc != self.settings().vpc {
            return Err(Problem::new(
                format!(
                    "{owner}: load balancer {} is in VPC {}, and the cluster is in {}.",
                    balancer.name,
                    balancer.vpc,
                    self.settings().vpc
                ),
                "Nothing was changed.",
                "Look at the VPC in the configuration, and at whether this is the right cluster.",
            ));
        }
        let pools = self.client().target_groups().await.map_err(unseen)?;
        let (pools, others): (Vec<&TargetGroup>, Vec<&TargetGroup>) =
            pools.iter().partition(|pool| pool.load_balancers.contains(&balancer.arn));
        let ports = own_ports(&pools, &others);
        let pools: Vec<String> = pools.into_iter().map(|pool| pool.arn.clone()).collect();
        let arns: Vec<String> = [balancer.arn.clone()].into_iter().chain(pools.clone()).collect();
        let tags = self.client().tags(&arns).await.map_err(unseen)?;
        let vpc = [self.settings().vpc.clone()];
        let groups = self.client().security_groups(&[("vpc-id", &vpc)]).await.map_err(unseen)?;
        let none = Tags::new();
        let written = |arn: &String| tags.get(arn).unwrap_or(&none);
        let whose = owner_of(written(&balancer.arn), owner.cluster());
        if let Some(other) = whose.as_ref().filter(|whose| *whose != owner) {
            return Err(Problem::new(
                format!("{owner}: load balancer {} is of {other}.", balancer.name),
                "Nothing was changed.",
                "Leave it to its owner.",
            ));
        }
        let is_ours = whose.is_some();
        let Some(maker) = Maker::of(written(&balancer.arn), owner) else {
            return Err(Problem::new(
                format!(
                    "{owner}: neither {} nor {} made load balancer {} for it, by what is written on it.",
                    Maker::CloudProvider,
                    Maker::LoadBalancerController,
                    balancer.name
                ),
                "Nothing was changed.",
                "What others made is theirs: give the Service a load balancer of its own.",
            ));
        };
        let is_theirs = |group: &&SecurityGroup| {
            balancer.groups.contains(&group.id)
                && (maker.made(group, owner) || group.tags.contains_key(Owner::ADOPTED_KEY))
        };
        let (own, shared) = (rules::mark(owner), rules::mark(&backend_owner(self.settings())));
        let (mut rules, mut nodes) = (BTreeMap::new(), Vec::new());
        for group in &groups {
            // Somebody may have stopped before all of them were marked.
            let mut found = their_rules(group, &balancer.name, &ports);
            found.extend(marked(group, &own));
            if !found.is_empty() || is_ours && !marked(group, &shared).is_empty() {
                nodes.push(group.clone());
            }
            if !found.is_empty() {
                rules.insert(group.id.clone(), found);
            }
        }
        // cloud-provider-aws knows its target groups by the load balancer that they belong to.
        let is_their_pool =
            |arn: &String| maker == Maker::CloudProvider || Maker::of(written(arn), owner) == Some(maker);
        Ok(Estate {
            maker,
            is_ours,
            pools: pools.into_iter().filter(is_their_pool).collect(),
            groups: groups.iter().filter(is_theirs).map(|group| group.id.clone()).collect(),
            rules,
            nodes,
            balancer,
        })
    }

    /// What is wrong with what is wanted, if anything, before anything is looked at.
    pub fn check(&self, want: &Want) -> Result<(), Problem> {
        match &want.target {
            Target::Present(wanted) => self.spec(want, wanted).map(drop),
            Target::Gone => Ok(()),
        }
    }

    /// Writes on all of it that it is of that owner. The load balancer comes first: as long as it is known as ours, its
    /// rules stay.
    pub async fn adopt(&self, owner: &Owner, estate: &Estate) -> Result<(), CallError> {
        let mut tags: Tags =
            owner.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        tags.insert(Owner::ADOPTED_KEY.to_owned(), estate.maker.name().to_owned());
        // Listeners, too: a role may be allowed to change only what carries the tags.
        let listeners = self.client().listeners(&estate.balancer.arn).await?;
        let listeners = listeners.into_iter().map(|listener| listener.arn);
        let parts = estate.pools.iter().cloned().chain(listeners);
        let arns: Vec<String> = [estate.balancer.arn.clone()].into_iter().chain(parts).collect();
        for some in arns.chunks(AT_ONCE) {
            self.client().add_tags(some, &tags).await?;
        }
        for (place, group) in estate.groups.iter().enumerate() {
            let mut tags = tags.clone();
            tags.insert(PART_KEY.to_owned(), (place + 1).to_string());
            self.client().create_tags(std::slice::from_ref(group), &tags).await?;
        }
        // What is marked as ours would be closed where the nodes' groups are not ours to open.
        if self.settings().node_rules == NodeRules::Off {
            return Ok(());
        }
        let mark = rules::mark(owner);
        for (group, rules) in &estate.rules {
            let marked = rules.keys().map(|permission| (permission.clone(), mark.clone())).collect();
            self.client().describe_permissions(group, &marked).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HealthCheck;

    fn owner() -> Owner {
        Owner::new("demo", "Service", Some("shop".to_owned()), "web").unwrap()
    }

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn makers_are_known_by_what_they_write() {
        let theirs = [("kubernetes.io/service-name", "shop/web"), ("kubernetes.io/cluster/demo", "owned")];
        assert_eq!(Maker::of(&tags(&theirs), &owner()), Some(Maker::CloudProvider));
        let controllers = [("elbv2.k8s.aws/cluster", "demo"), ("service.k8s.aws/stack", "shop/web")];
        assert_eq!(Maker::of(&tags(&controllers), &owner()), Some(Maker::LoadBalancerController));
        for others in [
            [("kubernetes.io/service-name", "shop/other"), ("kubernetes.io/cluster/demo", "owned")],
            [("kubernetes.io/service-name", "shop/web"), ("kubernetes.io/cluster/else", "owned")],
            [("elbv2.k8s.aws/cluster", "else"), ("service.k8s.aws/stack", "shop/web")],
            [("elbv2.k8s.aws/cluster", "demo"), ("ingress.k8s.aws/stack", "shop/web")],
        ] {
            assert_eq!(Maker::of(&tags(&others), &owner()), None, "{others:?}");
        }
    }

    #[test]
    fn rules_about_sizes_go_along_with_the_last_of_their_clients() {
        let range = |text: &str| Peer::Range(text.parse().unwrap());
        let port = |port, peer| Permission::ports("tcp", port, port, peer);
        let size = |peer| Permission { protocol: "icmp".to_owned(), from: Some(3), to: Some(4), peer };
        let client = |name: &str| format!("kubernetes.io/rule/nlb/client={name}");
        let group = SecurityGroup {
            ingress: [
                (port(30_080, range("192.0.2.0/24")), client("a1")),
                (port(30_080, range("198.51.100.0/24")), client("a1")),
                (port(30_081, range("198.51.100.0/24")), client("a2")),
                (port(30_080, range("10.0.1.0/24")), "kubernetes.io/rule/nlb/health=a1".to_owned()),
                (size(range("192.0.2.0/24")), THEIR_SIZE_MARK.to_owned()),
                (size(range("198.51.100.0/24")), THEIR_SIZE_MARK.to_owned()),
                (port(22, range("192.0.2.0/24")), "somebody's".to_owned()),
            ]
            .into(),
            ..SecurityGroup::default()
        };
        let ports = BTreeSet::from([30_080]);
        let found: Vec<String> = their_rules(&group, "a1", &ports).keys().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "icmp 3/4 192.0.2.0/24",
                "tcp 30080 10.0.1.0/24",
                "tcp 30080 192.0.2.0/24",
                "tcp 30080 198.51.100.0/24"
            ]
        );
        let balancer = LoadBalancer { name: "a1".to_owned(), ..LoadBalancer::default() };
        let subnets = ["10.0.1.0/24".parse().unwrap()].into();
        let rules = their_rules(&group, "a1", &ports);
        assert_eq!(as_theirs(&rules, &balancer, &subnets), rules, "given back as they were");
    }

    #[test]
    fn a_rule_that_the_checks_of_others_need_stays() {
        let port = |port| Permission::ports("tcp", port, port, Peer::Range("10.0.1.0/24".parse().unwrap()));
        let mark = |what: &str, name: &str| format!("kubernetes.io/rule/nlb/{what}={name}");
        let checked = |port: u16, check: &str| TargetGroup {
            port,
            health_check: HealthCheck { port: check.to_owned(), ..HealthCheck::default() },
            ..TargetGroup::default()
        };
        let (one, local, other) =
            (checked(30_080, "10256"), checked(30_081, "31000"), checked(30_090, "10256"));
        let ports = own_ports(&[&one, &local], &[&other]);
        assert_eq!(ports, [30_080, 30_081, 31_000].into());
        let mut group = SecurityGroup {
            ingress: [10_256, 30_080, 31_000].map(|number| (port(number), mark("health", "a1"))).into(),
            ..SecurityGroup::default()
        };
        let found = |group: &SecurityGroup, ports: &BTreeSet<u16>| their_rules(group, "a1", ports).len();
        assert_eq!(found(&group, &ports), 3, "nobody else is there");
        group.ingress.insert(port(30_090), mark("client", "a2"));
        assert_eq!(found(&group, &ports), 2, "the rule for the probe is for the other, too");
        assert!(!their_rules(&group, "a1", &ports).contains_key(&port(10_256)));
        assert_eq!(own_ports(&[&one, &local], &[]), [10_256, 30_080, 30_081, 31_000].into());
    }
}

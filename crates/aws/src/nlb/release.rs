//! Load balancers that were taken over are given back to who made them.
//!
//! First the nodes let in what the other controller wants, then the Service is its again, and when it looks after the load
//! balancer, what says that it is ours is taken off. Until then it can still be known as ours.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::{Cidr, Direction, Family, Owner, Problem, Target, Want};

use super::adopt::{Estate, Maker, as_theirs};
use super::execute::tag_filter;
use super::names;
use super::node_side::backend_owner;
use super::provider::Provider;
use super::refresh::owner_of;
use super::rules::{self, OwnNodeRules};
use super::settings::NodeRules;
use super::spec::Spec;
use crate::client::{CallError, Cause};
use crate::model::{Peer, Permission, Permissions, SecurityGroup, Tags};

/// What all keys of ours start with.
const OUR_KEYS: &str = "portcullis.dev/";

/// What was changed in the nodes' groups for the controller that a load balancer is given back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenRules {
    /// Rules that were added, by group.
    added: BTreeMap<String, Permissions>,
    /// Rules that were marked anew, by group, with the marks that they had.
    marked: BTreeMap<String, Permissions>,
}

impl Provider {
    /// Has the nodes let in what cloud-provider-aws would have them let in, marked as its own: so it finds all as it wants
    /// it, and packets come through all the time. The AWS Load Balancer Controller has rules for all of its load balancers.
    /// If that fails midway, what was opened is closed again.
    pub async fn give_back_rules(&self, want: &Want, estate: &Estate) -> Result<GivenRules, Problem> {
        let mut given = GivenRules::default();
        let Target::Present(wanted) = &want.target else { return Ok(given) };
        // Who opens the nodes by themselves is not helped.
        if estate.maker != Maker::CloudProvider || self.settings().node_rules == NodeRules::Off {
            return Ok(given);
        }
        let (spec, _) = self.spec(want, wanted)?;
        let Err(error) = self.give_rules(&spec, estate, &mut given).await else { return Ok(given) };
        let what = format!("{}: {error}.", want.owner);
        Err(match self.take_back_rules(&given).await {
            Ok(()) => Problem::new(
                what,
                "It is still ours, and nothing was opened.",
                "Run the command again once that is mended.",
            ),
            Err(left) => Problem::new(
                what,
                format!("It is still ours. {}", left.state),
                "Run the command again once that is mended; or `portcullis adopt`, which closes these.",
            ),
        })
    }

    async fn give_rules(
        &self,
        spec: &Spec,
        estate: &Estate,
        given: &mut GivenRules,
    ) -> Result<(), CallError> {
        let ids: Vec<String> = estate.balancer.subnets.iter().cloned().collect();
        let subnets = self.client().subnets(&[("subnet-id", &ids)]).await?;
        let ranges: Vec<Cidr> = subnets.iter().filter_map(|subnet| subnet.range).collect();
        let from = OwnNodeRules::Clients { subnets: ranges.clone() };
        let rules = rules::own_node_rules(spec, &from);
        let theirs = as_theirs(&rules, &estate.balancer, &ranges.into_iter().collect());
        for group in &estate.nodes {
            let (there, missing): (Permissions, Permissions) =
                theirs.clone().into_iter().partition(|(rule, _)| group.ingress.contains_key(rule));
            let own = estate.rules.get(&group.id);
            let is_other = |(rule, mark): &(Permission, String)| {
                own.and_then(|own| own.get(rule)).is_some_and(|had| had != mark)
            };
            let there: Permissions = there.into_iter().filter(is_other).collect();
            // AWS may have done what it does not answer: all that is tried counts as done.
            if !missing.is_empty() {
                given.added.insert(group.id.clone(), missing.clone());
                self.client().change_permissions(&group.id, Direction::Ingress, true, &missing).await?;
            }
            if !there.is_empty() {
                let had = there.keys().map(|rule| (rule.clone(), group.ingress[rule].clone())).collect();
                given.marked.insert(group.id.clone(), had);
                self.client().describe_permissions(&group.id, &there).await?;
            }
        }
        Ok(())
    }

    /// Closes again what was opened for the other controller, since the Service did not become its own. The problem says
    /// what is left open.
    pub async fn take_back_rules(&self, given: &GivenRules) -> Result<(), Problem> {
        let (mut left, mut first) = (Vec::new(), None);
        for (group, rules) in &given.added {
            if let Err(error) = self.forbid_what_is_there(group, rules).await {
                left.push(in_words(group, rules));
                first.get_or_insert(error);
            }
        }
        for (group, rules) in &given.marked {
            if let Err(error) = self.client().describe_permissions(group, rules).await {
                left.push(in_words(group, rules));
                first.get_or_insert(error);
            }
        }
        let Some(error) = first else { return Ok(()) };
        Err(Problem::new(
            format!("{error}."),
            format!("What was opened for the other controller is still open: {}.", left.join("; ")),
            "Run the command again; or `portcullis adopt`, which closes these.",
        ))
    }

    async fn forbid_what_is_there(&self, group: &str, rules: &Permissions) -> Result<(), CallError> {
        match self.client().change_permissions(group, Direction::Ingress, false, rules).await {
            Err(error) if error.cause == Cause::NotFound => {}
            done => return done,
        }
        let found = self.client().security_groups(&[("group-id", &[group.to_owned()])]).await?;
        let ingress = found.into_iter().next().map(|group| group.ingress).unwrap_or_default();
        let there: Permissions =
            ingress.into_iter().filter(|(rule, mark)| rules.get(rule) == Some(mark)).collect();
        if there.is_empty() {
            return Ok(());
        }
        self.client().change_permissions(group, Direction::Ingress, false, &there).await
    }

    /// Whether the load balancer does without the group that all of ours have: by its absence the other controller shows
    /// that it keeps the groups. One that never had it is without it from the start.
    pub async fn is_without_ours(&self, owner: &Owner, estate: &Estate) -> Result<bool, CallError> {
        let found = self.client().load_balancer_by_name(&estate.balancer.name).await?;
        let Some(found) = found else { return Ok(true) };
        let backend = names::backend_group(owner.cluster());
        let vpc = [self.settings().vpc.clone()];
        let groups = self.client().security_groups(&[("vpc-id", &vpc), ("group-name", &[backend])]).await?;
        let ours = |group: &&SecurityGroup| {
            owner_of(&group.tags, owner.cluster()).as_ref() == Some(&backend_owner(self.settings()))
        };
        Ok(!groups.iter().filter(ours).any(|group| found.groups.contains(&group.id)))
    }

    /// Takes away what we made for it and the other controller has no use for: rules of the nodes, groups that the load
    /// balancer does not have any more, and target groups that nobody sends to. What cannot go yet is told.
    pub async fn take_away_own(&self, owner: &Owner, estate: &Estate) -> Result<Vec<String>, CallError> {
        self.forbid_own_rules(owner, estate).await?;
        let mut left = self.take_away_pools(owner, estate).await?;
        left.extend(self.take_away_groups(owner, estate).await?);
        Ok(left)
    }

    async fn take_away_pools(&self, owner: &Owner, estate: &Estate) -> Result<Vec<String>, CallError> {
        let mut pools = self.client().target_groups().await?;
        let is_near = |of: &BTreeSet<String>| of.is_empty() || of.contains(&estate.balancer.arn);
        pools.retain(|pool| pool.vpc == self.settings().vpc && is_near(&pool.load_balancers));
        let arns: Vec<String> = pools.iter().map(|pool| pool.arn.clone()).collect();
        let tags = self.client().tags(&arns).await?;
        let mut left = Vec::new();
        for pool in pools.iter().filter(|pool| tags.get(&pool.arn).is_some_and(|tags| is_made(tags, owner))) {
            let told = format!("target group {}", pool.name);
            if pool.load_balancers.is_empty() {
                left.extend(gone(&told, self.client().delete_target_group(&pool.arn).await)?);
            } else if estate.maker == Maker::LoadBalancerController {
                // cloud-provider-aws takes over whatever the load balancer sends to.
                left.push(format!("{told}, to which {} still sends", estate.balancer.name));
            }
        }
        Ok(left)
    }

    async fn take_away_groups(&self, owner: &Owner, estate: &Estate) -> Result<Vec<String>, CallError> {
        let made: Vec<SecurityGroup> = self.own_groups(owner).await?;
        let made: Vec<SecurityGroup> = made.into_iter().filter(|group| is_made(&group.tags, owner)).collect();
        if made.is_empty() {
            return Ok(Vec::new());
        }
        let balancer = self.client().load_balancer_by_name(&estate.balancer.name).await?;
        let used = balancer.map(|found| found.groups).unwrap_or_default();
        let (used, unused): (Vec<&SecurityGroup>, Vec<&SecurityGroup>) =
            made.iter().partition(|group| used.contains(&group.id));
        let mut left: Vec<String> = used
            .into_iter()
            .map(|group| {
                format!("security group {} ({}), which {} has", group.id, group.name, estate.balancer.name)
            })
            .collect();
        for group in unused {
            let told = format!("security group {} ({})", group.id, group.name);
            left.extend(gone(&told, self.client().delete_security_group(&group.id).await)?);
        }
        Ok(left)
    }

    /// Closes what the nodes let in for it by rules of ours: the other controller has its own.
    async fn forbid_own_rules(&self, owner: &Owner, estate: &Estate) -> Result<(), CallError> {
        let ids: Vec<String> = estate.nodes.iter().map(|group| group.id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mark = rules::mark(owner);
        for group in self.client().security_groups(&[("group-id", &ids)]).await? {
            let own: Permissions = group.ingress.into_iter().filter(|(_, found)| *found == mark).collect();
            if !own.is_empty() {
                self.client().change_permissions(&group.id, Direction::Ingress, false, &own).await?;
            }
        }
        Ok(())
    }

    /// The groups that are of an owner, by what is written on them.
    async fn own_groups(&self, owner: &Owner) -> Result<Vec<SecurityGroup>, CallError> {
        let cluster = [owner.cluster().to_owned()];
        let mut groups =
            self.client().security_groups(&[(&tag_filter(Owner::CLUSTER_KEY), &cluster)]).await?;
        groups.retain(|group| owner_of(&group.tags, owner.cluster()).as_ref() == Some(owner));
        Ok(groups)
    }

    /// Takes off all that says that it is ours. Its groups let everything out again, as its maker had them: it would not
    /// open a port there. The load balancer comes last: as long as it is ours, this can be done again.
    pub async fn let_go(&self, owner: &Owner, estate: &Estate) -> Result<(), CallError> {
        let all =
            Permissions::from([(Permission::all(Peer::Range(Cidr::everything(Family::V4))), String::new())]);
        let is_adopted = |group: &SecurityGroup| group.tags.contains_key(Owner::ADOPTED_KEY);
        for group in self.own_groups(owner).await?.into_iter().filter(is_adopted) {
            if all.keys().any(|permission| !group.egress.contains_key(permission)) {
                self.client().change_permissions(&group.id, Direction::Egress, true, &all).await?;
            }
            // What only names the nodes' groups would hold on to these for nothing.
            let narrow: Permissions =
                group.egress.iter().filter(|(rule, _)| !all.contains_key(*rule)).map(owned).collect();
            if !narrow.is_empty() {
                self.client().change_permissions(&group.id, Direction::Egress, false, &narrow).await?;
            }
            self.client().delete_tags(&group.id, &ours(&group.tags)).await?;
        }
        let listeners = self.client().listeners(&estate.balancer.arn).await?;
        let listeners = listeners.into_iter().map(|listener| listener.arn);
        let parts: Vec<String> = estate.pools.iter().cloned().chain(listeners).collect();
        for arns in [parts, vec![estate.balancer.arn.clone()]] {
            for (arn, tags) in self.client().tags(&arns).await? {
                let keys = ours(&tags);
                if !keys.is_empty() {
                    self.client().remove_tags(&[arn], &keys).await?;
                }
            }
        }
        Ok(())
    }
}

fn owned((permission, mark): (&Permission, &String)) -> (Permission, String) {
    (permission.clone(), mark.clone())
}

/// The keys of ours.
fn ours(tags: &Tags) -> Vec<String> {
    tags.keys().filter(|key| key.starts_with(OUR_KEYS)).cloned().collect()
}

/// Whether we made something for an owner, rather than took it over.
fn is_made(tags: &Tags, owner: &Owner) -> bool {
    owner_of(tags, owner.cluster()).as_ref() == Some(owner) && !tags.contains_key(Owner::ADOPTED_KEY)
}

/// What is left of something that was to go.
fn gone(what: &str, outcome: Result<(), CallError>) -> Result<Option<String>, CallError> {
    match outcome {
        Ok(()) => Ok(None),
        Err(error) if error.cause == Cause::NotFound => Ok(None),
        Err(error) if error.cause == Cause::InUse => Ok(Some(format!("{what}: {}", error.message))),
        Err(error) => Err(error),
    }
}

/// Rules of a group, in words.
fn in_words(group: &str, rules: &Permissions) -> String {
    let rules: Vec<String> = rules.keys().map(ToString::to_string).collect();
    format!("{} in group {group}", rules.join(", "))
}

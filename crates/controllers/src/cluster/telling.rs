//! What is said of a load balancer in its status.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use portcullis_kube_api::cluster::{
    AssignedMember, DutyWord, LoadBalancerStatus, MemberStatus, is_paused_itself,
};

use super::admitted::is_within;
use super::asked;
use super::conditions::{self, EndpointLook, InfrastructureLook, Look};
use super::controller::Context;
use super::found::{Made, Surroundings, references, words};
use super::kinds::Lack;
use super::membership::{Elsewhere, Membership, is_active};
use super::moving::is_bound_to;
use super::reconcile::{Failed, PATIENCE};
use super::thing::{Infrastructure, LoadBalancer};
use crate::events::Weight;

/// How a load balancer was found to stand.
#[derive(Clone, Copy)]
pub(super) struct Standing<'a> {
    pub(super) main: Option<&'a Made>,
    pub(super) others: &'a [Made],
    /// Members, as clients find them.
    pub(super) shown: &'a Membership,
    /// Whether clients may be sent to what is named.
    pub(super) is_checked: bool,
    pub(super) refusals: &'a [String],
    pub(super) refused: &'a [String],
    pub(super) unread: &'a [String],
    pub(super) endpoint: &'a EndpointLook,
    pub(super) infrastructure: &'a InfrastructureLook,
}

impl Context {
    /// Says in its status how it stands.
    pub(super) async fn tell(
        &self,
        balancer: &LoadBalancer,
        standing: &Standing<'_>,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let Standing { main, others, shown, is_checked, refusals, .. } = *standing;
        let all: Vec<&Made> = main.into_iter().chain(others).collect();
        let old = others.iter().find(|old| main.is_some() && !is_checked && is_serving(old));
        let served_by = old.map(words);
        let bound = others.iter().find(|(_, old)| is_bound_to(balancer, old, main));
        let look = Look {
            generation: balancer.metadata.generation,
            refusals,
            refused: standing.refused,
            paused: &named(&all, |(_, made)| is_paused_itself(made)),
            deleted: &named(&Vec::from_iter(main), |(_, made)| made.is_going()),
            unread: standing.unread,
            has_ranges: all
                .iter()
                .all(|(_, made)| has_ranges(made, balancer.spec.allowed_source_ranges.as_deref())),
            membership: shown,
            endpoint: standing.endpoint,
            infrastructure: standing.infrastructure,
            served_by: served_by.as_deref(),
            bound_to: bound.map(|(_, old)| old.name()),
        };
        let mut status = seen(balancer, shown, all.first().copied());
        status.address = place(&balancer.status.address, main, others, is_checked);
        status.infrastructure_refs = references(main, others);
        conditions::conditions(&mut status, &look, &Time(now));
        if !refusals.is_empty() && status != balancer.status {
            let object = balancer.object_ref(self.balancers.resource());
            let message = refusals.join("; ");
            self.events.tell_of(&object, Weight::Warning, "InvalidSpec", &message).await;
        }
        self.write_status(balancer, status).await
    }

    /// Whether an endpoint that is known answers, as far as it was asked.
    pub(super) fn asked(&self, balancer: &LoadBalancer, endpoint: EndpointLook) -> EndpointLook {
        let (EndpointLook::NotAsked, Some(given)) = (&endpoint, balancer.spec.endpoint()) else {
            return endpoint;
        };
        let key = (balancer.namespace().to_owned(), balancer.name().to_owned());
        match self.probes.answer(&key, given) {
            None => EndpointLook::NotAsked,
            Some(Ok(())) => EndpointLook::Answers,
            Some(Err(why)) => EndpointLook::Silent(why),
        }
    }

    /// Objects of a kind are not known. If they cannot be seen, it must not be done as if there were none.
    pub(super) async fn tell_lack(
        &self,
        balancer: &LoadBalancer,
        lack: Lack,
    ) -> Result<Option<Duration>, Failed> {
        let why = lack.to_string();
        self.tell_missing(balancer, InfrastructureLook::UnknownKind(why.clone())).await?;
        match lack {
            Lack::NoKind(_) => Ok(Some(PATIENCE)),
            Lack::Unseen(_) => Err(why),
        }
    }

    /// Something is not there that it cannot do without.
    pub(super) async fn tell_missing(
        &self,
        balancer: &LoadBalancer,
        infrastructure: InfrastructureLook,
    ) -> Result<(), Failed> {
        let membership = Membership { targets: balancer.status.targets.clone(), ..Membership::default() };
        let is_given = balancer.spec.endpoint().is_some();
        let endpoint = if is_given { EndpointLook::NotAsked } else { EndpointLook::Unknown };
        let look = Look {
            generation: balancer.metadata.generation,
            refusals: &asked::refusals(&balancer.spec),
            refused: &[],
            paused: &[],
            deleted: &[],
            unread: &[],
            has_ranges: is_within(
                balancer.status.allowed_source_ranges.as_deref(),
                balancer.spec.allowed_source_ranges.as_deref(),
            ),
            membership: &membership,
            endpoint: &self.asked(balancer, endpoint),
            infrastructure: &infrastructure,
            served_by: None,
            bound_to: None,
        };
        let mut status = balancer.status.clone();
        conditions::conditions(&mut status, &look, &Time(Timestamp::now()));
        self.write_status(balancer, status).await
    }

    /// It is paused; these could not be let go although their Cluster goes.
    pub(super) async fn tell_paused(
        &self,
        balancer: &LoadBalancer,
        refused: &[String],
    ) -> Result<(), Failed> {
        let mut status = balancer.status.clone();
        conditions::paused(&mut status.conditions, balancer.metadata.generation, &Time(Timestamp::now()));
        let paused = status.conditions.iter_mut().find(|condition| condition.type_ == "Paused");
        if let Some(paused) = paused.filter(|_| !refused.is_empty()) {
            let words =
                format!(" Its Cluster goes, and does not wait: {}. It is tried again.", refused.join("; "));
            paused.message.push_str(&words);
        }
        self.write_status(balancer, status).await
    }

    /// Clients that use another name need it in the certificate of the API servers.
    pub(super) async fn warn_of_names(&self, balancer: &LoadBalancer, around: &Surroundings) {
        let Some((_, plane)) = around.plane.as_ref() else { return };
        let Some(kubeadm) = &plane.spec.kubeadm_config_spec else { return };
        let names = &kubeadm.cluster_configuration.api_server.cert_sans;
        for alternate in &balancer.spec.alternate_endpoints {
            if names.contains(&alternate.host)
                || balancer.status.observed_generation == balancer.metadata.generation
            {
                continue;
            }
            let message = format!(
                "{} is an alternate endpoint, and not among the certSANs of {}: clients that use it will not trust its certificate",
                alternate.host,
                plane.name()
            );
            let object = balancer.object_ref(self.balancers.resource());
            self.events.tell_of(&object, Weight::Warning, "NameNotInCertificate", &message).await;
        }
    }
}

/// How a load balancer stands, without where it is found and what is to be known about it.
fn seen(balancer: &LoadBalancer, membership: &Membership, made: Option<&Made>) -> LoadBalancerStatus {
    let mut status = balancer.status.clone();
    status.observed_generation = balancer.metadata.generation;
    status.target_kind = balancer.spec.target_kind().to_string();
    status.target_selector = balancer.spec.selection(balancer.name()).text();
    status.targets.clone_from(&membership.targets);
    status.active_targets = membership.active();
    if let Some((_, made)) = made {
        status.allowed_source_ranges.clone_from(&made.status.allowed_source_ranges);
    }
    status
}

/// Where clients find a load balancer: at what is named, once that serves or nothing else is there; until then, and again if it serves
/// no more, at what does. What is not known of any is no reason to take an address away.
fn place(before: &str, main: Option<&Made>, others: &[Made], is_checked: bool) -> String {
    let address = |(_, made): &Made| Some(made.status.address.clone()).filter(|address| !address.is_empty());
    if let Some(main) = main.filter(|_| is_checked) {
        return address(main).unwrap_or_else(|| before.to_owned());
    }
    let serving: Vec<String> = others.iter().filter(|old| is_serving(old)).filter_map(address).collect();
    let stays = serving.is_empty() || serving.iter().any(|address| address == before);
    if stays { before.to_owned() } else { serving[0].clone() }
}

/// Who gets connections by what makes a load balancer.
fn active_in((_, made): &Made) -> impl Iterator<Item = &MemberStatus> {
    let members = made.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    let serving: BTreeSet<&str> = members
        .filter(|member| member.duty == DutyWord::Serve && !made.is_going())
        .map(|member| member.name.as_str())
        .collect();
    let told = made.status.members.iter();
    told.filter(move |told| is_active(told) && serving.contains(told.name.as_str()))
}

pub(super) fn is_serving(made: &Made) -> bool {
    active_in(made).next().is_some()
}

/// How members are by what else makes a load balancer.
pub(super) fn elsewhere(all: &[&Made], made: Option<&Made>) -> Elsewhere {
    let others = || all.iter().filter(|other| made.is_none_or(|made| !std::ptr::eq(**other, made)));
    Elsewhere {
        active: others().flat_map(|other| active_in(other)).cloned().collect(),
        there: others().flat_map(|other| there_in(other)).collect(),
    }
}

/// Who has not left what makes a load balancer, as it was asked and as it is.
fn there_in((_, made): &Made) -> impl Iterator<Item = (AssignedMember, MemberStatus)> {
    let is_current = made.status.observed_generation == made.metadata.generation;
    let members = made.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    members.filter_map(move |member| {
        let told = made.status.members.iter().find(|told| told.name == member.name);
        let told = told.cloned().unwrap_or_default();
        let has_left = is_current && member.duty == DutyWord::Leave && told.status == "removed";
        (!has_left).then(|| (member.clone(), told))
    })
}

/// Whether a provider speaks of these ranges, or of narrower ones: it was asked for them, and has no others.
fn has_ranges(made: &Infrastructure, asked: Option<&[String]>) -> bool {
    let wanted =
        made.spec.assignment.as_ref().and_then(|assignment| assignment.allowed_source_ranges.as_deref());
    let told = made.status.allowed_source_ranges.as_deref();
    // One of others may not tell what it has: then it has what it was asked for when it looked last.
    let is_current = made.status.observed_generation == made.metadata.generation;
    is_within(wanted, asked) && (is_within(told, asked) || (told.is_none() && is_current))
}

/// Those of what makes a load balancer that are so.
fn named(all: &[&Made], is: impl Fn(&Made) -> bool) -> Vec<String> {
    all.iter().filter(|made| is(made)).map(|made| words(made)).collect()
}

/// What cannot be read of what makes a load balancer.
pub(super) fn unread(all: &[&Made]) -> Vec<String> {
    let why = |made: &&Made| {
        let why = made.0.unread(made.1.namespace(), made.1.name())?;
        Some(format!("{}: {why}", words(made)))
    };
    all.iter().filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portcullis_kube_api::cluster::Flavour;
    use serde_json::json;

    use super::*;
    use crate::cluster::shelf::Shelf;

    /// Where clients are sent, with what is named and what made it before: each has an address, and says of one member where it is.
    #[test]
    fn clients_are_sent_to_who_serves() {
        let shelf = Arc::new(Shelf::new(crate::cluster::thing::resource(Flavour::Own.haproxy()), None));
        let made = |address: &str, status: &str, duty: &str, is_going: bool| -> Made {
            let mut metadata = json!({"name": address, "namespace": "a", "generation": 1});
            if is_going {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let member = json!({"name": "m", "duty": duty});
            let made = json!({
                "metadata": metadata,
                "spec": {"assignment": {"loadBalancer": "lb", "members": [member]}},
                "status": {"address": address, "members": [{"name": "m", "status": status}]},
            });
            (Arc::clone(&shelf), Arc::new(serde_json::from_value(made).unwrap()))
        };
        let serves = |address| made(address, "active", "Serve", false);
        let waits = |address| made(address, "adding", "Serve", false);
        let leaves = |address| made(address, "active", "Leave", false);
        let goes = |address| made(address, "active", "Serve", true);
        for (what, main, others, is_checked, expected) in [
            ("it is alone, and known before anybody answers", Some(waits("new")), vec![], true, "new"),
            ("nothing is known of it", Some(waits("")), vec![], true, "before"),
            ("the old one serves", Some(waits("new")), vec![serves("old")], false, "old"),
            ("the new one serves", Some(serves("new")), vec![serves("old")], true, "new"),
            ("nobody does", Some(waits("new")), vec![waits("old")], false, "before"),
            ("the old one is left", Some(waits("new")), vec![leaves("old")], false, "before"),
            ("the old one goes", Some(waits("new")), vec![goes("old")], false, "before"),
            ("nothing is named", None, vec![waits("one"), serves("other")], false, "other"),
            ("who has clients keeps them", None, vec![serves("one"), serves("before")], false, "before"),
            ("there is nothing", None, vec![], true, "before"),
        ] {
            assert_eq!(place("before", main.as_ref(), &others, is_checked), expected, "{what}");
        }
    }

    #[test]
    fn a_provider_speaks_of_the_ranges_that_it_was_asked_for_and_has() {
        let (asked, narrower, wider) = (json!(["10.0.0.0/8"]), json!(["10.0.0.0/9"]), json!(["10.0.0.0/7"]));
        let nothing = json!(null);
        for (wanted, told, is_current, expected) in [
            (&asked, &asked, true, true),
            (&asked, &narrower, false, true),
            (&asked, &wider, true, false),
            // It was not asked yet, and has what it had.
            (&nothing, &nothing, true, false),
            (&wider, &wider, true, false),
            // It does not tell what it has, or everyone gets in: what it said before it looked is of something else.
            (&asked, &nothing, false, false),
            (&asked, &nothing, true, true),
        ] {
            let made: Infrastructure = serde_json::from_value(json!({
                "metadata": {"name": "lb", "namespace": "a", "generation": 2},
                "spec": {"assignment": {"allowedSourceRanges": wanted}},
                "status": {
                    "allowedSourceRanges": told,
                    "observedGeneration": if is_current { 2 } else { 1 },
                },
            }))
            .unwrap();
            let found = has_ranges(&made, Some(&["10.0.0.0/8".to_owned()]));
            assert_eq!(found, expected, "{wanted} {told} {is_current}");
        }
        // Whoever asks for nothing does not wait for anybody.
        let made: Infrastructure =
            serde_json::from_value(json!({"metadata": {"name": "lb", "generation": 2}})).unwrap();
        assert!(has_ranges(&made, None));
    }
}

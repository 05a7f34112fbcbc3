//! From one provider to another: what made a load balancer before goes on until the new one serves, and a while longer.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::cluster::{Assignment, DutyWord, Endpoint, is_paused_itself};
use tracing::info;

use super::admitted::narrowed;
use super::asked;
use super::controller::Context;
use super::found::{Made, not_changed};
use super::membership::{GRACE, Membership};
use super::reconcile::{Again, has_heard};
use super::thing::{Infrastructure, LoadBalancer};

/// What makes a load balancer, and what did before.
#[derive(Clone, Copy)]
pub(super) struct Swap<'a> {
    pub(super) balancer: &'a LoadBalancer,
    pub(super) main: Option<&'a Made>,
    pub(super) others: &'a [Made],
    /// Members of what is named, or of what made it before while nothing is.
    pub(super) membership: &'a Membership,
    /// Whether what is named serves.
    pub(super) serves: bool,
    pub(super) everything_goes: bool,
    pub(super) now: Timestamp,
}

impl Context {
    /// Everything else that still makes this load balancer: it did so before its reference was changed. It goes on until the new
    /// one serves, and a while longer; then its members leave it. Gives who has left all of them.
    pub(super) async fn retire(
        &self,
        swap: &Swap<'_>,
        situation: impl Fn(Option<&Made>, Duration) -> Membership,
        again: &mut Again,
        refused: &mut Vec<String>,
    ) -> Option<BTreeSet<String>> {
        let Swap { balancer, main, others, membership, serves, everything_goes, now } = *swap;
        let mut done: Option<BTreeSet<String>> = None;
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        for old in others {
            let (shelf, made) = old;
            let Some(assignment) = made.spec.assignment.as_ref() else { continue };
            let serves = serves && !is_bound_to(balancer, made, main);
            // If the new one does not serve any more, this one goes on, however far it had got. So does what is paused.
            let is_paused = is_paused_itself(made);
            let since = (serves && !is_paused)
                .then(|| assignment.replaced_since.as_ref().map_or(now, |since| since.0));
            let mut decided = situation(Some(old), drain);
            let mut released = decided.released.clone();
            if let Some(since) = since {
                let until = since.checked_add(drain).unwrap_or(Timestamp::MAX);
                if now < until {
                    again.at(Some(until), now);
                } else {
                    let by = until.checked_add(drain).unwrap_or(Timestamp::MAX);
                    let is_current = made.status.observed_generation == made.metadata.generation;
                    let has_left = |name: &str| {
                        is_current
                            && made
                                .status
                                .members
                                .iter()
                                .any(|told| told.name == name && told.status == "removed")
                    };
                    for member in &mut decided.members {
                        (member.duty, member.by) = (DutyWord::Leave, Some(Time(by)));
                    }
                    let all_left = decided.members.iter().all(|member| has_left(&member.name));
                    if all_left || now >= by.checked_add(GRACE).unwrap_or(Timestamp::MAX) {
                        info!(
                            namespace = balancer.namespace(),
                            name = balancer.name(),
                            old = made.name(),
                            "what made it before has no members any more, and is given up"
                        );
                        if let Err(why) = self.unassign(shelf, made).await {
                            refused.push(not_changed(old, &why));
                        }
                        continue;
                    }
                    released.extend(
                        decided
                            .members
                            .iter()
                            .map(|member| member.name.clone())
                            .filter(|name| has_left(name)),
                    );
                    // After that it may take a while until that is told.
                    let next = if now < by { by } else { by.checked_add(GRACE).unwrap_or(Timestamp::MAX) };
                    again.at(Some(next), now);
                }
            }
            again.at(decided.again, now);
            // Who is to be kept out is kept out by both.
            let asked = balancer.spec.allowed_source_ranges.as_deref();
            let wanted = Assignment {
                members: decided.members.clone(),
                allowed_source_ranges: narrowed(assignment.allowed_source_ranges.as_deref(), asked),
                replaced_since: since.map(Time),
                ..assignment.clone()
            };
            if *assignment != wanted
                && !is_paused
                && let Err(why) = self.write_assignment(shelf, made, &wanted).await
            {
                refused.push(not_changed(old, &why));
                released.retain(|name| {
                    everything_goes || decided.overdue.contains(name) || has_heard(old, &decided, name)
                });
            }
            let known: BTreeSet<&String> = decided.members.iter().map(|member| &member.name).collect();
            // Who it never had has left it.
            let absent = membership.released.iter().filter(|name| !known.contains(name)).cloned();
            let left: BTreeSet<String> = released.iter().cloned().chain(absent).collect();
            done = Some(match done {
                Some(done) => done.intersection(&left).cloned().collect(),
                None => left,
            });
        }
        done
    }
}

/// Whether clients look for a load balancer at the address of what made it before, which nothing else can have.
pub(super) fn is_bound_to(balancer: &LoadBalancer, old: &Infrastructure, main: Option<&Made>) -> bool {
    let Some(endpoint) = balancer.spec.endpoint() else { return false };
    let is_at = |address: &str| endpoint.is_same(&Endpoint { host: address.to_owned(), port: endpoint.port });
    is_at(&old.status.address) && main.is_none_or(|(_, main)| !is_at(&main.status.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        for (host, address, is_bound) in [
            ("2001:DB8:0::1", "2001:db8::1", true),
            ("Lb.Example.com", "lb.example.com.", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "", false),
        ] {
            let endpoint = json!({"host": host, "port": 443});
            let balancer = json!({"metadata": {"name": "lb"}, "spec": {"endpoint": endpoint}});
            let old = json!({"metadata": {"name": "old"}, "status": {"address": address}});
            let balancer: LoadBalancer = serde_json::from_value(balancer).unwrap();
            let old: Infrastructure = serde_json::from_value(old).unwrap();
            assert_eq!(is_bound_to(&balancer, &old, None), is_bound, "{host} {address}");
        }
    }
}

//! From one provider to another: what made a load balancer before goes on until the new one serves, and a while longer.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::cluster::{Assignment, DutyWord, is_paused_itself};
use tracing::info;

use super::asked;
use super::controller::Context;
use super::membership::{GRACE, Membership};
use super::reconcile::{Again, Failed, Made};
use super::thing::{Infrastructure, LoadBalancer};

impl Context {
    /// Everything else that still makes this load balancer: it did so before its reference was changed. It goes on until the new
    /// one serves, and a while longer; then its members leave it. Gives who has left all of them.
    #[allow(clippy::too_many_arguments, reason = "what a move is about")]
    pub(super) async fn retire(
        &self,
        balancer: &LoadBalancer,
        main: Option<&Made>,
        others: &[Made],
        membership: &Membership,
        situation: impl Fn(Option<&Made>, Duration) -> Membership,
        now: Timestamp,
        again: &mut Again,
    ) -> Result<Option<BTreeSet<String>>, Failed> {
        let mut done: Option<BTreeSet<String>> = None;
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        for old in others {
            let (shelf, made) = old;
            let Some(assignment) = made.spec.assignment.as_ref() else { continue };
            let serves =
                main.is_some() && !membership.active().is_empty() && !is_bound_to(balancer, made, main);
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
                        self.unassign(shelf, made).await?;
                        continue;
                    }
                    released.extend(
                        decided
                            .members
                            .iter()
                            .map(|member| member.name.clone())
                            .filter(|name| has_left(name)),
                    );
                    again.at(Some(by), now);
                }
            }
            again.at(decided.again, now);
            let known: BTreeSet<&String> = decided.members.iter().map(|member| &member.name).collect();
            // Who it never had has left it.
            let absent = membership.released.iter().filter(|name| !known.contains(name)).cloned();
            let left: BTreeSet<String> = released.iter().cloned().chain(absent).collect();
            done = Some(match done {
                Some(done) => done.intersection(&left).cloned().collect(),
                None => left,
            });
            let wanted = Assignment {
                members: decided.members,
                replaced_since: since.map(Time),
                ..assignment.clone()
            };
            if *assignment != wanted && !is_paused {
                self.write_assignment(shelf, made, &wanted).await?;
            }
        }
        Ok(done)
    }
}

/// Whether clients look for a load balancer at the address of what made it before, which nothing else can have.
pub(super) fn is_bound_to(balancer: &LoadBalancer, old: &Infrastructure, main: Option<&Made>) -> bool {
    let host = balancer.spec.endpoint().map(|endpoint| endpoint.host.as_str());
    let address = Some(old.status.address.as_str()).filter(|address| !address.is_empty());
    address.is_some()
        && host == address
        && main.is_none_or(|(_, main)| Some(main.status.address.as_str()) != host)
}

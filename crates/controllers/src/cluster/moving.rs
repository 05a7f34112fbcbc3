//! From one provider to another: what made a load balancer before goes on until the new one serves, and a while longer.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::cluster::{Assignment, DutyWord, Endpoint, is_paused_itself};
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

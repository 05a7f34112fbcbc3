//! What is to be known about an `IngressController`. Types, statuses and reasons are what programs look at, and are those
//! of OpenShift; `SourceRangesEnforced` is our own. Messages are for people.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::ingress::ranges::{Evaluation, Place, evaluations};
use portcullis_kube_api::ingress::{Condition, ConditionStatus};

use super::{Look, deployment, enforcement};

/// All conditions, and when they have to be looked at again although nothing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Ours, in a fixed order, and after them those of others.
    pub all: Vec<Condition>,
    /// After which time one of them changes by itself.
    pub again: Option<Duration>,
    /// Where ranges stand that an administrator has to move to the spec.
    pub to_be_moved: Vec<Place>,
}

/// Every type that is ours to write. Some of them are only taken away: whoever wrote them before looks after them no more.
const OURS: [&str; 18] = [
    "Admitted",
    "DeploymentAvailable",
    "DeploymentReplicasMinAvailable",
    "DeploymentReplicasAllAvailable",
    "DeploymentRollingOut",
    "LoadBalancerManaged",
    "LoadBalancerReady",
    "LoadBalancerProgressing",
    "SourceRangesEnforced",
    "DNSManaged",
    "DNSReady",
    "CanaryChecksSucceeding",
    "PodsScheduled",
    "Available",
    "Progressing",
    "Degraded",
    "Upgradeable",
    "EvaluationConditionsDetected",
];

/// What has to be so, or it is degraded; and for how long it may be otherwise.
const HEALTHY: [(&str, Duration); 5] = [
    ("Admitted", Duration::ZERO),
    ("DeploymentAvailable", Duration::from_secs(30)),
    ("DeploymentReplicasMinAvailable", Duration::from_secs(60)),
    ("DeploymentReplicasAllAvailable", Duration::from_secs(3600)),
    ("LoadBalancerReady", Duration::from_secs(90)),
];

/// What is to be known about an `IngressController` by what is known of it.
pub fn conditions(look: &Look<'_>) -> Conditions {
    let mut all = vec![admitted(look)];
    all.extend(deployment::of(look.deployment, look.router_failures));
    all.push(load_balancer_managed(look));
    if look.is_balanced() {
        all.push(load_balancer_ready(look));
    }
    all.push(load_balancer_progressing(look));
    // Ranges that nobody could apply are told of, too.
    if look.is_balanced() || !look.controller.wanted_ranges().is_empty() {
        let (is, reason, message) = enforcement::enforced(look);
        all.push(condition("SourceRangesEnforced", is, reason, &message));
    }
    all.push(dns_managed());
    // Only now: how long something has been so decides about the rest.
    let before = &look.controller.status.conditions;
    keep_times(&mut all, before, look.now);
    let (degraded, again) = degraded(&all, look.now);
    all.extend([available(&all), progressing(&all), degraded, upgradeable(), evaluation(look)]);
    keep_times(&mut all, before, look.now);
    let others = before.iter().filter(|found| !OURS.contains(&found.type_.as_str()));
    all.extend(others.cloned());
    let to_be_moved = to_be_moved(look).into_iter().map(|found| found.place).collect();
    Conditions { all, again, to_be_moved }
}

pub(super) fn condition(type_: &str, status: ConditionStatus, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: None,
    }
}

/// Since when each is what it is: since before, if it was so.
pub(super) fn keep_times(all: &mut [Condition], before: &[Condition], now: Timestamp) {
    for condition in all {
        let same = before.iter().find(|old| old.type_ == condition.type_ && old.status == condition.status);
        let since = same.and_then(|old| old.last_transition_time.clone());
        condition.last_transition_time = Some(since.unwrap_or_else(|| whole_seconds(now)));
    }
}

/// The API keeps no parts of a second: what is compared with it must have none.
fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn admitted(look: &Look<'_>) -> Condition {
    if look.refusals.is_empty() {
        return condition("Admitted", ConditionStatus::True, "Valid", &several(look.told.iter().cloned()));
    }
    let message = format!(
        "It cannot be carried out, and what is there stays as it is: {}",
        several(look.refusals.iter().cloned())
    );
    condition("Admitted", ConditionStatus::False, "Invalid", &message)
}

fn load_balancer_managed(look: &Look<'_>) -> Condition {
    let type_ = look.strategy.type_.as_str();
    let (status, reason, message) = if look.is_balanced() {
        let message = format!("The strategy {type_} has a load balancer, which is looked after.");
        (ConditionStatus::True, "WantedByEndpointPublishingStrategy", message)
    } else {
        let message = format!("The strategy {type_} has no load balancer.");
        (ConditionStatus::False, "EndpointPublishingStrategyExcludesManagedLoadBalancer", message)
    };
    condition("LoadBalancerManaged", status, reason, &message)
}

fn load_balancer_ready(look: &Look<'_>) -> Condition {
    let not =
        |reason: &str, message: &str| condition("LoadBalancerReady", ConditionStatus::False, reason, message);
    let Some(service) = look.service else {
        return not("ServiceNotFound", "There is no load balancer Service.");
    };
    let key = look.service_key();
    let addresses =
        service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    if addresses.is_some_and(|addresses| !addresses.is_empty()) {
        let message = format!("The load balancer of Service {key} has an address.");
        return condition("LoadBalancerReady", ConditionStatus::True, "LoadBalancerProvisioned", &message);
    }
    match look.sync_failure {
        Some(why) => not(
            "SyncLoadBalancerFailed",
            &format!(
                "The load balancer of Service {key} cannot be made: {why} The Events of the Service tell more."
            ),
        ),
        None => not(
            "LoadBalancerPending",
            &format!(
                "The load balancer of Service {key} has no address yet. If it stays so, see whether a controller for load balancers runs."
            ),
        ),
    }
}

fn load_balancer_progressing(look: &Look<'_>) -> Condition {
    let is =
        |status, reason: &str, message: &str| condition("LoadBalancerProgressing", status, reason, message);
    if !look.is_balanced() {
        return is(ConditionStatus::False, "LoadBalancerNotProgressing", "There is no load balancer.");
    }
    if look.strategy.load_balancer.is_none() {
        let message = "status.endpointPublishingStrategy.loadBalancer is not set.";
        return is(ConditionStatus::Unknown, "StatusIncomplete", message);
    }
    if look.service.is_none() {
        let why = several(look.failures.iter().cloned());
        let message = match (why.is_empty(), look.refusals) {
            (false, _) => why,
            (true, []) => "The load balancer Service is not made yet.".to_owned(),
            (true, _) => "There is no load balancer Service. See Admitted.".to_owned(),
        };
        return is(ConditionStatus::True, "NoService", &message);
    }
    let failures = look.failures.iter().cloned();
    let waiting = look.replacements.iter().map(|replacement| replacement.message.clone());
    let to_be_moved = to_be_moved(look).into_iter().map(|found| found.message);
    let why = several(failures.chain(waiting).chain(to_be_moved));
    if why.is_empty() {
        let message = match look.refusals {
            [] => format!("Service {} is as wanted.", look.service_key()),
            _ => format!("Service {} is as it was admitted last. See Admitted.", look.service_key()),
        };
        return is(ConditionStatus::False, "LoadBalancerNotProgressing", &message);
    }
    let message = format!("Something is not as wanted yet: {why}");
    is(ConditionStatus::True, "OperandsProgressing", &message)
}

/// Names are the administrator's: no record is written here.
fn dns_managed() -> Condition {
    let message = "No DNS record is written. Have the names of its domain lead to its address.";
    condition("DNSManaged", ConditionStatus::False, "NoDNSZones", message)
}

/// Nothing that is known here stands against a newer version.
fn upgradeable() -> Condition {
    condition("Upgradeable", ConditionStatus::True, "Upgradeable", "")
}

fn evaluation(look: &Look<'_>) -> Condition {
    let why = several(to_be_moved(look).into_iter().map(|found| found.message));
    let (status, reason, message) = if why.is_empty() {
        (ConditionStatus::False, "NoEvaluationCondition", "Nothing has to be moved.".to_owned())
    } else {
        let message = format!("Something stands where a later version may not take it from: {why}");
        (ConditionStatus::True, "OperandsEvaluationConditionsDetected", message)
    };
    condition("EvaluationConditionsDetected", status, reason, &message)
}

/// What an administrator has to move to the spec.
fn to_be_moved(look: &Look<'_>) -> Vec<Evaluation> {
    if !look.is_balanced() || look.service.is_none() {
        return Vec::new();
    }
    let name = look.controller.name();
    evaluations(name, &look.service_key(), look.controller.wanted_ranges(), look.said())
}

fn available(all: &[Condition]) -> Condition {
    let missing =
        ["DeploymentAvailable", "LoadBalancerReady"].into_iter().filter_map(|type_| find(all, type_));
    let missing: Vec<&Condition> = missing.filter(|found| found.status != ConditionStatus::True).collect();
    if missing.is_empty() {
        return condition("Available", ConditionStatus::True, "", "");
    }
    let message = format!("It cannot serve: {}", in_words(&missing));
    condition("Available", ConditionStatus::False, "IngressControllerUnavailable", &message)
}

fn progressing(all: &[Condition]) -> Condition {
    let moving =
        ["LoadBalancerProgressing", "DeploymentRollingOut"].into_iter().filter_map(|type_| find(all, type_));
    let moving = moving.filter(|found| found.status != ConditionStatus::False);
    let moving: Vec<&Condition> =
        moving.filter(|found| !deployment::SETTLING.contains(&found.reason.as_str())).collect();
    if moving.is_empty() {
        return condition("Progressing", ConditionStatus::False, "", "");
    }
    let message = format!("It is not yet as wanted: {}", in_words(&moving));
    condition("Progressing", ConditionStatus::True, "IngressControllerProgressing", &message)
}

/// Whether something has been wrong for too long; if not, when that has to be asked again.
fn degraded(all: &[Condition], now: Timestamp) -> (Condition, Option<Duration>) {
    let (mut wrong, mut again) = (Vec::new(), None::<Duration>);
    for (type_, grace) in HEALTHY {
        let Some(found) = find(all, type_).filter(|found| found.status != ConditionStatus::True) else {
            continue;
        };
        let since = found.last_transition_time.as_ref().map_or(now, |time| time.0);
        let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        match grace.checked_sub(elapsed).filter(|left| !left.is_zero()) {
            Some(left) => again = Some(again.map_or(left, |other| other.min(left))),
            None => wrong.push(found),
        }
    }
    if wrong.is_empty() {
        return (condition("Degraded", ConditionStatus::False, "", ""), again);
    }
    let message = format!("Something is wrong: {}", in_words(&wrong));
    (condition("Degraded", ConditionStatus::True, "DegradedConditions", &message), again)
}

fn find<'a>(all: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    all.iter().find(|condition| condition.type_ == type_)
}

fn in_words(conditions: &[&Condition]) -> String {
    let word = |status: &ConditionStatus| match status {
        ConditionStatus::True => "True".to_owned(),
        ConditionStatus::False => "False".to_owned(),
        ConditionStatus::Unknown => "Unknown".to_owned(),
        ConditionStatus::Other(other) => other.clone(),
    };
    let each = conditions.iter().map(|found| {
        format!("{}={} ({}: {})", found.type_, word(&found.status), found.reason, found.message)
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Sentences, each once: one as it is, several in brackets, and of very many the first.
pub(super) fn several(sentences: impl IntoIterator<Item = String>) -> String {
    const FEW: usize = 10;
    let mut told: Vec<String> = Vec::new();
    for sentence in sentences {
        if !told.contains(&sentence) {
            told.push(sentence);
        }
    }
    if let [one] = &mut *told {
        return std::mem::take(one);
    }
    let more = told.len().saturating_sub(FEW);
    told.truncate(FEW);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    if told.is_empty() { String::new() } else { format!("[{}]", told.join(", ")) }
}

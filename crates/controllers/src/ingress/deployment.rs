//! What is said about the routers of an `IngressController`.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portcullis_kube_api::ingress::{Condition, ConditionStatus};

use super::conditions::{condition, several};

/// Whether they serve, whether enough of them do, whether all do, and whether they are being replaced.
pub(super) fn of(deployment: Option<&Deployment>, failures: &[String]) -> Vec<Condition> {
    let why = several(failures.iter().cloned());
    let Some(deployment) = deployment else {
        let message = format!("The Deployment of the routers is not there yet. {why}");
        let message = message.trim_end();
        return vec![
            condition("DeploymentAvailable", ConditionStatus::False, "DeploymentUnavailable", message),
            condition("DeploymentRollingOut", ConditionStatus::True, "DeploymentRollingOut", message),
        ];
    };
    let status = deployment.status.clone().unwrap_or_default();
    let key = {
        let metadata = &deployment.metadata;
        format!(
            "{}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        )
    };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = status.available_replicas.unwrap_or(0);
    let least = wanted - unavailable(deployment, wanted);
    let met = |met: bool| if met { ConditionStatus::True } else { ConditionStatus::False };
    let count = format!("Deployment {key}: {available} of {wanted} routers serve");
    vec![
        is_available(&key, &status),
        condition(
            "DeploymentReplicasMinAvailable",
            met(available >= least),
            if available >= least {
                "DeploymentMinimumReplicasMet"
            } else {
                "DeploymentMinimumReplicasNotMet"
            },
            &format!("{count}, and at least {least} have to."),
        ),
        condition(
            "DeploymentReplicasAllAvailable",
            met(available >= wanted),
            if available >= wanted {
                "DeploymentReplicasAvailable"
            } else {
                "DeploymentReplicasNotAvailable"
            },
            &format!("{count}."),
        ),
        is_rolling_out(&key, deployment, &status, &why),
    ]
}

fn is_available(key: &str, status: &DeploymentStatus) -> Condition {
    let told = status.conditions.iter().flatten().find(|condition| condition.type_ == "Available");
    let why = told.and_then(|told| told.message.clone()).unwrap_or_default();
    match told.map(|told| told.status.as_str()) {
        Some("True") => condition(
            "DeploymentAvailable",
            ConditionStatus::True,
            "DeploymentAvailable",
            &format!("Deployment {key} has enough routers that serve."),
        ),
        Some("False") => condition(
            "DeploymentAvailable",
            ConditionStatus::False,
            "DeploymentUnavailable",
            &format!("Deployment {key} has too few routers that serve: {why} Its pods say why."),
        ),
        _ => condition(
            "DeploymentAvailable",
            ConditionStatus::Unknown,
            "DeploymentAvailabilityUnknown",
            &format!("Deployment {key} does not say yet whether its routers serve."),
        ),
    }
}

/// Reasons for which routers change although nobody asks for others: they are no news of a rollout.
pub(super) const SETTLING: [&str; 2] = ["ReplicasStabilizing", "PodsStarting"];

fn is_rolling_out(key: &str, deployment: &Deployment, status: &DeploymentStatus, why: &str) -> Condition {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let updated = status.updated_replicas.unwrap_or(0);
    let (all, available) = (status.replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
    let seen = status.observed_generation >= deployment.metadata.generation;
    let is = |status, reason, message: &str| condition("DeploymentRollingOut", status, reason, message);
    if !why.is_empty() {
        return is(ConditionStatus::True, "DeploymentRollingOut", why);
    }
    if !seen {
        let message = format!("Deployment {key} was changed just now.");
        return is(ConditionStatus::True, "DeploymentRollingOut", &message);
    }
    if updated >= wanted && all <= updated && available >= updated {
        let message = format!("All routers of Deployment {key} are as wanted.");
        return is(ConditionStatus::False, "DeploymentNotRollingOut", &message);
    }
    let told = status.conditions.iter().flatten().find(|condition| condition.type_ == "Progressing");
    let complete = told.is_some_and(|told| told.reason.as_deref() == Some("NewReplicaSetAvailable"));
    let reason = match complete && updated == wanted {
        true if all != wanted => SETTLING[0],
        true if available < wanted => SETTLING[1],
        _ => "DeploymentRollingOut",
    };
    let message = format!(
        "Deployment {key}: {updated} of {wanted} routers are new, {} are old, and {available} serve.",
        all - updated
    );
    is(ConditionStatus::True, reason, &message)
}

/// As many as may be away. Kubernetes takes a quarter where nothing is said, and one where it would not get on otherwise.
fn unavailable(deployment: &Deployment, wanted: i32) -> i32 {
    let rolling = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref()?.rolling_update.clone());
    let rolling = rolling.unwrap_or_default();
    let of = |given: Option<IntOrString>, round: i32| match given {
        Some(IntOrString::Int(number)) => number.clamp(0, wanted),
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            (wanted * percent.clamp(0, 100) + round) / 100
        }
        None => (wanted * 25 + round) / 100,
    };
    let (away, surge) = (of(rolling.max_unavailable, 0), of(rolling.max_surge, 99));
    if away == 0 && surge == 0 { 1.min(wanted) } else { away }
}

//! The `ClusterOperator` `ingress`, where OpenShift's configuration is installed: how all `IngressControllers` stand, in one
//! place.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_kube_api::ingress::{Condition, ConditionStatus};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::conditions::{condition, keep_times};
use super::controller::Context;
use super::{IngressSettings, Stand};
use crate::cluster::shelf::is_of_object;

/// Its name.
const NAME: &str = "ingress";

/// The `IngressController` that a cluster cannot do without.
const MAIN: &str = "default";

/// How long changes are gathered, since many come at once.
const GATHER: Duration = Duration::from_secs(1);

/// How often it is looked at although nothing changed: it, or its type, may have come or gone.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// What is said of all of them together.
pub fn summary(all: &BTreeMap<String, Stand>) -> Vec<Condition> {
    vec![
        main_one(all, "Available"),
        progressing(all),
        main_one(all, "Degraded"),
        upgradeable(all),
        evaluation(all),
    ]
}

/// What only the main one decides.
fn main_one(all: &BTreeMap<String, Stand>, type_: &str) -> Condition {
    let is = |status, reason: &str, message: &str| condition(type_, status, reason, message);
    let wanted = type_ == "Available";
    let Some(main) = all.get(MAIN) else {
        let status = if wanted { ConditionStatus::False } else { ConditionStatus::True };
        return is(status, "IngressDoesNotExist", &format!("There is no IngressController {MAIN}."));
    };
    let Some(found) = find(main, type_) else {
        let reason = format!("IngressDoesNotHave{type_}Condition");
        let message =
            format!("IngressController {MAIN} does not say whether it is {}.", type_.to_lowercase());
        return is(ConditionStatus::Unknown, &reason, &message);
    };
    let message = |usual: &str| {
        let why = if found.message.is_empty() { usual } else { &found.message };
        format!("IngressController {MAIN}: {why}")
    };
    match (&found.status, wanted) {
        (ConditionStatus::True, true) => {
            is(ConditionStatus::True, "IngressAvailable", &message("it serves."))
        }
        (ConditionStatus::False, true) => {
            is(ConditionStatus::False, "IngressUnavailable", &message("it does not serve."))
        }
        (ConditionStatus::True, false) => {
            is(ConditionStatus::True, "IngressDegraded", &message("it is degraded."))
        }
        (ConditionStatus::False, false) => {
            is(ConditionStatus::False, "IngressNotDegraded", &message("nothing is wrong."))
        }
        _ => is(
            ConditionStatus::Unknown,
            &format!("Ingress{type_}StatusUnknown"),
            &message("that is not known."),
        ),
    }
}

fn progressing(all: &BTreeMap<String, Stand>) -> Condition {
    let moving = which(all, "Progressing", &ConditionStatus::True);
    let away = all.iter().filter(|(_, stand)| {
        find(stand, "Available").is_none_or(|found| found.status != ConditionStatus::True)
    });
    let away: Vec<&str> = away.map(|(name, _)| name.as_str()).collect();
    let message = if !moving.is_empty() {
        moving
    } else if all.is_empty() {
        "There is no IngressController.".to_owned()
    } else if !away.is_empty() {
        format!("Not every IngressController serves: {}.", few(&away))
    } else {
        return condition("Progressing", ConditionStatus::False, "AsExpected", "All are as wanted.");
    };
    condition("Progressing", ConditionStatus::True, "Reconciling", &message)
}

fn upgradeable(all: &BTreeMap<String, Stand>) -> Condition {
    let against = which(all, "Upgradeable", &ConditionStatus::False);
    if against.is_empty() {
        return condition("Upgradeable", ConditionStatus::True, "IngressControllersUpgradeable", "");
    }
    condition("Upgradeable", ConditionStatus::False, "IngressControllersNotUpgradeable", &against)
}

fn evaluation(all: &BTreeMap<String, Stand>) -> Condition {
    let type_ = "EvaluationConditionsDetected";
    let found = which(all, type_, &ConditionStatus::True);
    if found.is_empty() {
        return condition(type_, ConditionStatus::False, "AsExpected", "Nothing has to be moved.");
    }
    condition(type_, ConditionStatus::True, "IngressControllersHaveEvaluationConditions", &found)
}

/// Those of whom a condition is so, and the words of the first few of them.
fn which(all: &BTreeMap<String, Stand>, type_: &str, status: &ConditionStatus) -> String {
    let told = all.iter().filter_map(|(name, stand)| {
        let found = find(stand, type_).filter(|found| found.status == *status)?;
        Some(format!("IngressController {name}: {}", found.message))
    });
    super::conditions::several(told)
}

/// The first few names.
fn few(names: &[&str]) -> String {
    const FEW: usize = 10;
    let more = names.len().saturating_sub(FEW);
    let listed = names.iter().take(FEW).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

fn find<'a>(stand: &'a Stand, type_: &str) -> Option<&'a Condition> {
    stand.conditions.iter().find(|found| found.type_ == type_)
}

impl Context {
    /// Keeps it as it should be, where there is such a thing.
    pub(super) async fn sum_up(&self) {
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterOperator");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clusteroperators");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut failures = 0;
        loop {
            // Whether something changed or it is simply time, it is looked at.
            let _ = timeout(pause(failures), self.standing.changed()).await;
            sleep(GATHER).await;
            let all = self.standing.all();
            // Who is not looked at yet may be well; who goes may wait for others for long.
            let mut stay = self.controllers.state().into_iter();
            if stay.any(|one| one.metadata.deletion_timestamp.is_none() && !all.contains_key(one.name())) {
                continue;
            }
            match tell(&api, &resource, &self.settings, &all).await {
                Ok(true) => failures = 0,
                // There is no such type here. It may come.
                Ok(false) => sleep(LOOK_AGAIN).await,
                Err(problem) => {
                    failures += 1;
                    // Who lost against somebody else decides anew, on what they wrote.
                    let lost = matches!(&problem, kube::Error::Api(status) if status.code == 409);
                    if !lost {
                        warn!(%problem, "the ClusterOperator {NAME} cannot be written");
                    }
                }
            }
        }
    }
}

/// How long is waited for news: not for long after failures.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => LOOK_AGAIN,
        count => GATHER.saturating_mul(2_u32.saturating_pow(count - 1)).min(LOOK_AGAIN),
    }
}

/// Says how all stand, if that is something else. Whether there is such a type.
async fn tell(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    settings: &IngressSettings,
    all: &BTreeMap<String, Stand>,
) -> Result<bool, kube::Error> {
    let found = match api.get(NAME).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 404 && settings.observe => return Ok(false),
        // Without such a type nobody may make one either.
        Err(kube::Error::Api(status)) if status.code == 404 && !is_of_object(&status) => return Ok(false),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            match api.create(&PostParams::default(), &new(resource)).await {
                Ok(made) => made,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
                Err(problem) => return Err(problem),
            }
        }
        Err(problem) => return Err(problem),
    };
    let Some(status) = changed(&found.data["status"], all, settings, Timestamp::now()) else {
        return Ok(true);
    };
    if settings.observe {
        info!(%status, "this would be the status of the ClusterOperator {NAME}");
        return Ok(true);
    }
    // Refused if somebody wrote meanwhile: the list of conditions is written as a whole, and others' are in it.
    let version = found.metadata.resource_version.as_ref();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
    api.patch_status(NAME, &PatchParams::default(), &patch).await.map(|_| true)
}

fn new(resource: &ApiResource) -> DynamicObject {
    DynamicObject::new(NAME, resource).data(json!({"spec": {}}))
}

/// What its status has to be given, if that is something else. What others said there stays; versions are the business of
/// who installs releases.
fn changed(
    there: &Value,
    all: &BTreeMap<String, Stand>,
    settings: &IngressSettings,
    now: Timestamp,
) -> Option<Value> {
    let before: Vec<Condition> = serde_json::from_value(there["conditions"].clone()).unwrap_or_default();
    let mut conditions = summary(all);
    keep_times(&mut conditions, &before, now);
    let is_ours = |type_: &str| conditions.iter().any(|ours| ours.type_ == type_);
    let others: Vec<Condition> = before.iter().filter(|found| !is_ours(&found.type_)).cloned().collect();
    conditions.extend(others);
    let status = json!({
        "conditions": conditions,
        "relatedObjects": [
            {"group": "", "resource": "namespaces", "name": settings.namespace},
            {"group": "", "resource": "namespaces", "name": settings.router.namespace},
            {"group": "operator.openshift.io", "resource": "ingresscontrollers", "namespace": settings.namespace, "name": ""},
        ],
    });
    let same = status["relatedObjects"] == there["relatedObjects"]
        && before.len() == conditions.len()
        && conditions.iter().all(|one| before.contains(one));
    (!same).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(told: &[(&str, ConditionStatus)]) -> Stand {
        let conditions = told.iter().map(|(type_, is)| condition(type_, is.clone(), "", "So it is."));
        Stand { conditions: conditions.collect(), to_be_moved: Vec::new() }
    }

    fn well() -> Stand {
        use ConditionStatus::{False, True};
        stand(&[
            ("Available", True),
            ("Progressing", False),
            ("Degraded", False),
            ("Upgradeable", True),
            ("EvaluationConditionsDetected", False),
        ])
    }

    fn told(all: &[(&str, Stand)]) -> Vec<String> {
        let all = all.iter().map(|(name, stand)| ((*name).to_owned(), stand.clone())).collect();
        let found = summary(&all).into_iter();
        found.map(|found| format!("{}={:?}/{}", found.type_, found.status, found.reason)).collect()
    }

    const WELL: [&str; 5] = [
        "Available=True/IngressAvailable",
        "Progressing=False/AsExpected",
        "Degraded=False/IngressNotDegraded",
        "Upgradeable=True/IngressControllersUpgradeable",
        "EvaluationConditionsDetected=False/AsExpected",
    ];

    #[test]
    fn all_are_summed_up() {
        use ConditionStatus::{False, True, Unknown};
        let with = |type_: &str, is: ConditionStatus| {
            let mut stand = well();
            stand.conditions.retain(|found| found.type_ != type_);
            stand.conditions.push(condition(type_, is, "", "So it is."));
            stand
        };
        let without = |type_: &str| {
            let mut stand = well();
            stand.conditions.retain(|found| found.type_ != type_);
            stand
        };
        let moving = "Progressing=True/Reconciling";
        for (what, all, differs) in [
            ("well", vec![("default", well()), ("shop", well())], vec![]),
            (
                "none",
                vec![],
                vec!["Available=False/IngressDoesNotExist", moving, "Degraded=True/IngressDoesNotExist"],
            ),
            (
                "the main one is down",
                vec![("default", with("Available", False))],
                vec!["Available=False/IngressUnavailable", moving],
            ),
            (
                "another one is down",
                vec![("default", well()), ("shop", with("Available", False))],
                vec![moving],
            ),
            (
                "the main one is degraded",
                vec![("default", with("Degraded", True))],
                vec!["Degraded=True/IngressDegraded"],
            ),
            ("another one is degraded", vec![("default", well()), ("shop", with("Degraded", True))], vec![]),
            ("one is moving", vec![("default", well()), ("shop", with("Progressing", True))], vec![moving]),
            (
                "it does not say",
                vec![("default", without("Available"))],
                vec!["Available=Unknown/IngressDoesNotHaveAvailableCondition", moving],
            ),
            (
                "it does not know",
                vec![("default", with("Degraded", Unknown))],
                vec!["Degraded=Unknown/IngressDegradedStatusUnknown"],
            ),
            (
                "ranges have to be moved",
                vec![("default", well()), ("shop", with("EvaluationConditionsDetected", True))],
                vec!["EvaluationConditionsDetected=True/IngressControllersHaveEvaluationConditions"],
            ),
            (
                "one cannot go on",
                vec![("default", well()), ("shop", with("Upgradeable", False))],
                vec!["Upgradeable=False/IngressControllersNotUpgradeable"],
            ),
        ] {
            let type_of = |told: &str| told.split('=').next().unwrap_or_default().to_owned();
            let expected = WELL.map(|usual| {
                (*differs.iter().find(|other| type_of(other) == type_of(usual)).unwrap_or(&usual)).to_owned()
            });
            assert_eq!(told(&all), expected, "{what}");
        }
    }

    #[test]
    fn after_failures_it_is_tried_again_soon() {
        let pauses: Vec<u64> = [0, 1, 2, 3, 9, 10, 40].map(|count| pause(count).as_secs()).into();
        assert_eq!(pauses, [300, 1, 2, 4, 256, 300, 300]);
    }

    #[test]
    fn words_of_many_stay_short() {
        let all = (0..1000)
            .map(|number| (format!("shop-{number}"), stand(&[("Progressing", ConditionStatus::True)])));
        let found = progressing(&all.collect());
        assert!(found.message.len() < 1000, "{}", found.message);
        assert!(found.message.contains("and 990 more"), "{}", found.message);
    }
}

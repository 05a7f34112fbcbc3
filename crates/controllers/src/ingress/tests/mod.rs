mod enforcement;
mod status;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::{Condition, ConditionStatus, IngressController};
use serde_json::{Value, json};

use super::*;
use crate::router::{Replacement, RouterSettings, strategy};

const NOW: &str = "2026-01-01T12:00:00Z";

/// All that a look is made of.
struct Known {
    controller: IngressController,
    deployment: Option<Deployment>,
    service: Option<Service>,
    refusals: Vec<String>,
    failures: Vec<String>,
    router_failures: Vec<String>,
    replacements: Vec<Replacement>,
    sync_failure: Option<&'static str>,
    enforcer: Enforcer,
    now: Timestamp,
}

fn settings() -> RouterSettings {
    RouterSettings { image: "router".to_owned(), ..RouterSettings::default() }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn controller(type_: &str, ranges: &[&str]) -> IngressController {
    let load_balancer = json!({"scope": "External", "allowedSourceRanges": ranges});
    read(json!({
        "metadata": {"name": "shop", "namespace": "operator", "generation": 3},
        "spec": {"domain": "shop.example.com", "endpointPublishingStrategy": {"type": type_, "loadBalancer": load_balancer}},
    }))
}

fn deployment(available: i32, says: &str) -> Deployment {
    read(json!({
        "metadata": {"name": "router-shop", "namespace": "openshift-ingress", "generation": 1},
        "spec": {"replicas": 4, "selector": {}, "template": {}, "strategy": {"rollingUpdate": {"maxUnavailable": "25%"}}},
        "status": {
            "observedGeneration": 1, "replicas": 4, "updatedReplicas": 4, "availableReplicas": available,
            "conditions": [
                {"type": "Available", "status": says, "message": "It says so."},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ],
        },
    }))
}

fn service(ranges: &[&str], annotation: Option<&str>) -> Service {
    let annotations = annotation.map(|text| json!({SOURCE_RANGES: text}));
    read(json!({
        "metadata": {"name": "router-shop", "namespace": "openshift-ingress", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ranges, "ipFamilies": ["IPv4"], "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    }))
}

/// One with nothing to tell.
fn settled() -> Known {
    Known {
        controller: controller("LoadBalancerService", &[]),
        deployment: Some(deployment(4, "True")),
        service: Some(service(&[], None)),
        refusals: Vec::new(),
        failures: Vec::new(),
        router_failures: Vec::new(),
        replacements: Vec::new(),
        sync_failure: None,
        enforcer: Enforcer::Unknown,
        now: NOW.parse().unwrap(),
    }
}

impl Known {
    fn look<T>(&self, then: impl FnOnce(&Look<'_>) -> T) -> T {
        then(&Look {
            controller: &self.controller,
            strategy: &strategy(&self.controller, &settings()),
            domain: self.controller.wanted_domain(),
            refusals: &self.refusals,
            told: &[],
            deployment: self.deployment.as_ref(),
            service: self.service.as_ref(),
            failures: &self.failures,
            router_failures: &self.router_failures,
            replacements: &self.replacements,
            sync_failure: self.sync_failure,
            enforcer: &self.enforcer,
            now: self.now,
        })
    }

    fn conditions(&self) -> Conditions {
        self.look(conditions)
    }

    fn find(&self, type_: &str) -> Condition {
        self.conditions().all.into_iter().find(|found| found.type_ == type_).unwrap()
    }

    /// The conditions as `Type=Status/Reason`.
    fn told(&self) -> Vec<String> {
        let all = self.conditions().all.into_iter();
        all.map(|found| format!("{}={:?}/{}", found.type_, found.status, found.reason)).collect()
    }
}

fn edited(edit: impl FnOnce(&mut Known)) -> Known {
    let mut known = settled();
    edit(&mut known);
    known
}

const SETTLED: [&str; 15] = [
    "Admitted=True/Valid",
    "DeploymentAvailable=True/DeploymentAvailable",
    "DeploymentReplicasMinAvailable=True/DeploymentMinimumReplicasMet",
    "DeploymentReplicasAllAvailable=True/DeploymentReplicasAvailable",
    "DeploymentRollingOut=False/DeploymentNotRollingOut",
    "LoadBalancerManaged=True/WantedByEndpointPublishingStrategy",
    "LoadBalancerReady=True/LoadBalancerProvisioned",
    "LoadBalancerProgressing=False/LoadBalancerNotProgressing",
    "SourceRangesEnforced=Unknown/NoSourceRanges",
    "DNSManaged=False/NoDNSZones",
    "Available=True/",
    "Progressing=False/",
    "Degraded=False/",
    "Upgradeable=True/Upgradeable",
    "EvaluationConditionsDetected=False/NoEvaluationCondition",
];

const MOVE: [&str; 3] = [
    "LoadBalancerProgressing=True/OperandsProgressing",
    "Progressing=True/IngressControllerProgressing",
    "EvaluationConditionsDetected=True/OperandsEvaluationConditionsDetected",
];

/// What it is about, what is known, and which conditions differ from one with nothing to tell.
type Case = (&'static str, Known, Vec<&'static str>);

fn about_ranges() -> Vec<Case> {
    vec![
        ("nothing", settled(), vec![]),
        (
            "a field by hand",
            edited(|known| known.service = Some(service(&["192.0.2.0/24"], None))),
            [&MOVE[..], &["SourceRangesEnforced=Unknown/NotKnown"]].concat(),
        ),
        (
            "an annotation by hand",
            edited(|known| known.service = Some(service(&[], Some("192.0.2.0/24")))),
            [&MOVE[..], &["SourceRangesEnforced=Unknown/NotKnown"]].concat(),
        ),
        (
            "ranges by the spec",
            edited(|known| {
                known.controller = controller("LoadBalancerService", &["192.0.2.0/24"]);
                known.service = Some(service(&["192.0.2.0/24"], None));
            }),
            vec!["SourceRangesEnforced=Unknown/NotKnown"],
        ),
        (
            "ranges that the Service refuses",
            edited(|known| {
                known.controller = controller("LoadBalancerService", &["192.0.2.0/24"]);
                known.failures = vec!["Service openshift-ingress/router-shop was refused.".to_owned()];
            }),
            vec![MOVE[0], MOVE[1], "SourceRangesEnforced=False/NotApplied"],
        ),
        (
            "a scope that waits",
            edited(|known| {
                known.replacements =
                    vec![Replacement { what: "scope".into(), message: "The scope waits.".into() }];
            }),
            vec![MOVE[0], MOVE[1]],
        ),
    ]
}

fn about_objects() -> Vec<Case> {
    vec![
        (
            "no Service",
            edited(|known| known.service = None),
            vec![
                "LoadBalancerReady=False/ServiceNotFound",
                "LoadBalancerProgressing=True/NoService",
                "SourceRangesEnforced=Unknown/NoService",
                "Available=False/IngressControllerUnavailable",
                MOVE[1],
            ],
        ),
        (
            "no address",
            edited(|known| known.service.as_mut().unwrap().status = None),
            vec![
                "LoadBalancerReady=False/LoadBalancerPending",
                "Available=False/IngressControllerUnavailable",
            ],
        ),
        (
            "no load balancer",
            edited(|known| {
                known.service.as_mut().unwrap().status = None;
                known.sync_failure = Some("no subnet is left.");
            }),
            vec![
                "LoadBalancerReady=False/SyncLoadBalancerFailed",
                "Available=False/IngressControllerUnavailable",
            ],
        ),
        (
            "a refusal",
            edited(|known| known.refusals = vec!["spec.domain: a domain is required".to_owned()]),
            vec!["Admitted=False/Invalid", "Degraded=True/DegradedConditions"],
        ),
        (
            "a router that is down",
            edited(|known| known.deployment = Some(deployment(3, "True"))),
            vec![
                "DeploymentReplicasAllAvailable=False/DeploymentReplicasNotAvailable",
                "DeploymentRollingOut=True/PodsStarting",
            ],
        ),
        (
            "routers that are down",
            edited(|known| known.deployment = Some(deployment(0, "False"))),
            vec![
                "DeploymentAvailable=False/DeploymentUnavailable",
                "DeploymentReplicasMinAvailable=False/DeploymentMinimumReplicasNotMet",
                "DeploymentReplicasAllAvailable=False/DeploymentReplicasNotAvailable",
                "DeploymentRollingOut=True/PodsStarting",
                "Available=False/IngressControllerUnavailable",
            ],
        ),
        (
            "a Deployment that is refused",
            edited(|known| known.router_failures = vec!["It was refused.".to_owned()]),
            vec!["DeploymentRollingOut=True/DeploymentRollingOut", MOVE[1]],
        ),
        (
            "a router too many",
            edited(|known| known.deployment.as_mut().unwrap().status.as_mut().unwrap().replicas = Some(5)),
            vec!["DeploymentRollingOut=True/ReplicasStabilizing"],
        ),
        (
            "a router that is not new yet",
            edited(|known| {
                known.deployment.as_mut().unwrap().status.as_mut().unwrap().updated_replicas = Some(3);
            }),
            vec!["DeploymentRollingOut=True/DeploymentRollingOut", MOVE[1]],
        ),
        (
            "a new version",
            edited(|known| known.deployment.as_mut().unwrap().metadata.generation = Some(2)),
            vec!["DeploymentRollingOut=True/DeploymentRollingOut", MOVE[1]],
        ),
    ]
}

#[test]
fn what_is_told() {
    for (what, known, differs) in about_ranges().into_iter().chain(about_objects()) {
        let type_of = |told: &str| told.split('=').next().unwrap_or_default().to_owned();
        let expected = SETTLED.map(|usual| {
            let other = differs.iter().find(|told| type_of(told) == type_of(usual));
            (*other.unwrap_or(&usual)).to_owned()
        });
        assert_eq!(known.told(), expected, "{what}");
    }
}

#[test]
fn without_a_load_balancer() {
    for type_ in ["HostNetwork", "NodePortService", "Private"] {
        let known = edited(|known| {
            known.controller = controller(type_, &["192.0.2.0/24"]);
            known.service = None;
        });
        let told = known.told();
        let excluded = "LoadBalancerManaged=False/EndpointPublishingStrategyExcludesManagedLoadBalancer";
        assert!(told.iter().any(|told| told == excluded), "{told:?}");
        assert!(told.iter().any(|told| told == "Available=True/"), "{told:?}");
        let resting = "LoadBalancerProgressing=False/LoadBalancerNotProgressing";
        assert!(told.iter().any(|told| told == resting), "{told:?}");
        assert!(!told.iter().any(|told| told.starts_with("LoadBalancerReady")), "{told:?}");
        let enforced = |told: &[String]| told.iter().find(|told| told.starts_with("SourceRanges")).cloned();
        assert_eq!(enforced(&told).as_deref(), Some("SourceRangesEnforced=False/NotApplied"));
        let without = edited(|known| known.controller = controller(type_, &[]));
        assert_eq!(enforced(&without.told()), None, "{type_}: there is nothing to say");
    }
}

#[test]
fn times_stay_while_nothing_changes() {
    let mut known = settled();
    let first = known.conditions().all;
    assert!(first.iter().all(|found| found.last_transition_time.as_ref().unwrap().0 == known.now));
    let foreign = Condition { type_: "Painted".to_owned(), ..Condition::default() };
    known.controller.status.conditions = [first, vec![foreign.clone()]].concat();
    known.now = "2026-01-01T13:00:00.5Z".parse().unwrap();
    assert_eq!(known.conditions().all, known.controller.status.conditions, "others' conditions stay, too");
    known.service = None;
    for (type_, time) in [("LoadBalancerReady", "2026-01-01T13:00:00Z"), ("Admitted", NOW)] {
        let found = known.find(type_);
        assert_eq!(found.last_transition_time.unwrap().0.to_string(), time, "{type_}");
    }
}

/// For how long something may be wrong.
#[test]
fn grace() {
    let mut known = edited(|known| known.service.as_mut().unwrap().status = None);
    let begun = known.now;
    let mut after = |seconds: i64| {
        let before = known.conditions().all;
        known.controller.status.conditions = before;
        known.now = Timestamp::from_second(begun.as_second() + seconds).unwrap();
        (known.find("Degraded").status, known.conditions().again)
    };
    assert_eq!(after(0), (ConditionStatus::False, Some(Duration::from_secs(90))));
    assert_eq!(after(89), (ConditionStatus::False, Some(Duration::from_secs(1))));
    assert_eq!(after(90), (ConditionStatus::True, None));
    let known = edited(|known| known.deployment = Some(deployment(0, "False")));
    assert_eq!(known.conditions().again, Some(Duration::from_secs(30)));
    let mut later = edited(|known| known.deployment = Some(deployment(0, "False")));
    later.controller.status.conditions = known.conditions().all;
    later.now = Timestamp::from_second(known.now.as_second() + 31).unwrap();
    let degraded = later.find("Degraded");
    assert_eq!(degraded.status, ConditionStatus::True);
    assert!(
        degraded
            .message
            .starts_with("Something is wrong: DeploymentAvailable=False (DeploymentUnavailable: "),
        "{}",
        degraded.message
    );
    assert_eq!(later.conditions().again, Some(Duration::from_secs(29)), "the others have longer");
}

#[test]
fn several_sentences() {
    let several =
        |sentences: &[&str]| super::conditions::several(sentences.iter().map(|text| (*text).to_owned()));
    assert_eq!(several(&[]), "");
    assert_eq!(several(&["a"]), "a");
    assert_eq!(several(&["a", "a"]), "a");
    assert_eq!(several(&["a", "b", "a"]), "[a, b]");
    let many: Vec<String> = (0..4096).map(|number| number.to_string()).collect();
    assert_eq!(super::conditions::several(many), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 4086 more]");
}

#[test]
fn the_words_of_both() {
    let known = edited(|known| known.service = Some(service(&["10.0.0.0/8"], Some("192.0.2.0/24"))));
    let found = known.find("EvaluationConditionsDetected").message;
    let (_, list) = found.split_once(": ").unwrap();
    assert!(list.starts_with("[Service openshift-ingress/router-shop has the annotation "), "{found}");
    assert!(list.ends_with("remove them from the Service.]"), "{found}");
    let progressing = known.find("Progressing").message;
    assert!(progressing.contains("LoadBalancerProgressing=True (OperandsProgressing: "), "{progressing}");
}

//! `IngressControllers`: where they are reached, by whom, who says so, and what blocks them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use portcullis_controllers::router::{belongs_to, is_internal};
use portcullis_kube_api::ingress::ranges::{Place, Said, effective};
use portcullis_kube_api::ingress::{ConditionStatus, IngressController, OWNING_LABEL, PublishingType, Scope};
use serde::Serialize;

use super::{Row, address, age, in_few_words, or_none, unanswered};
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};

/// How one is reached.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reached {
    name: String,
    domain: Option<String>,
    /// `LoadBalancerService` and so on.
    strategy: String,
    scope: Option<String>,
    /// Whose load balancer it is.
    provider: Option<String>,
    address: Option<String>,
    /// Its load balancer Service, by namespace and name. Without one nobody gets in.
    service: Option<String>,
    /// Everyone, if there are none and it has a load balancer Service.
    ranges: Vec<String>,
    ranges_from: From,
    enforced: Option<Told>,
    /// What keeps it from being as wanted.
    blocked: Vec<Told>,
    /// How many serve.
    routers: i32,
    #[serde(skip)]
    age: Option<String>,
}

/// Where ranges come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum From {
    /// There are none.
    Nowhere,
    /// The spec of the `IngressController`.
    Spec,
    /// Somebody wrote them into the field of the Service.
    ServiceField,
    /// Somebody wrote them into an annotation of the Service.
    ServiceAnnotation,
}

/// What a condition says.
#[derive(Debug, PartialEq, Serialize)]
struct Told {
    condition: String,
    status: ConditionStatus,
    reason: String,
    message: String,
}

pub(super) async fn look(loaded: &Loaded, client: &Client) -> Result<Vec<Reached>, Failure> {
    let given = &loaded.config.ingress_controllers;
    let controllers: Api<IngressController> = Api::namespaced(client.clone(), &given.namespace);
    let controllers = controllers.list(&ListParams::default()).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => {
            Failure::new(Exit::Lacking, "this cluster has no IngressControllers: the type is not installed")
                .note("Install it: portcullis crds | kubectl apply --server-side -f -")
        }
        error => unanswered(&error),
    })?;
    let services: Api<Service> = Api::namespaced(client.clone(), &given.router.namespace);
    let services = services.list(&ListParams::default().labels(OWNING_LABEL)).await;
    let services = services.map_err(|error| unanswered(&error))?.items;
    let services: BTreeMap<String, Service> =
        services.into_iter().map(|service| (service.name_any(), service)).collect();
    let reached = controllers.items.iter().map(|controller| {
        let service = services.get(&format!("router-{}", controller.name()));
        reached(controller, service.filter(|found| is_of(found, controller)))
    });
    Ok(reached.collect())
}

fn is_of(service: &Service, controller: &IngressController) -> bool {
    belongs_to(&service.metadata, controller.name())
}

fn reached(controller: &IngressController, service: Option<&Service>) -> Reached {
    let status = &controller.status;
    let admitted = status.endpoint_publishing_strategy.as_ref();
    let strategy = admitted.or(controller.spec.endpoint_publishing_strategy.as_ref());
    let balancer = strategy.and_then(|strategy| strategy.load_balancer.as_ref());
    let said = service.map(Said::by).unwrap_or_default();
    let found = effective(said);
    let wanted = controller.wanted_ranges();
    let domain = Some(status.domain.as_str()).filter(|domain| !domain.is_empty());
    Reached {
        name: controller.name().to_owned(),
        domain: domain.or(controller.wanted_domain()).map(str::to_owned),
        service: service
            .map(|found| format!("{}/{}", found.namespace().unwrap_or_default(), found.name_any())),
        strategy: strategy.map_or_else(|| "–".to_owned(), |strategy| strategy.type_.as_str().to_owned()),
        scope: balancer.map(|balancer| scope(&balancer.scope, service)),
        provider: service.and_then(|service| {
            let class = service.spec.as_ref()?.load_balancer_class.as_deref()?;
            Some(class.strip_prefix("portcullis.dev/").unwrap_or(class).to_owned())
        }),
        address: service.and_then(address),
        ranges_from: match found.place {
            None => From::Nowhere,
            Some(Place::Field) if said.field == wanted => From::Spec,
            Some(Place::Field) => From::ServiceField,
            Some(Place::Annotation) => From::ServiceAnnotation,
        },
        ranges: found.ranges,
        enforced: told(controller, "SourceRangesEnforced"),
        blocked: blocked(controller),
        routers: status.available_replicas,
        age: age(&controller.metadata),
    }
}

/// The scope that is there, and the one that is wanted, if it is another.
fn scope(wanted: &Scope, service: Option<&Service>) -> String {
    let wanted = match wanted {
        Scope::Internal => "Internal",
        Scope::External => "External",
        Scope::Other(other) => other,
    };
    match service.map(is_internal) {
        Some(true) if wanted != "Internal" => format!("Internal, {wanted} wanted"),
        Some(false) if wanted == "Internal" => "External, Internal wanted".to_owned(),
        _ => wanted.to_owned(),
    }
}

fn told(controller: &IngressController, type_: &str) -> Option<Told> {
    let found = controller.status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(Told {
        condition: type_.to_owned(),
        status: found.status.clone(),
        reason: found.reason.clone(),
        message: found.message.clone(),
    })
}

/// What keeps one from being as wanted, the root of it first.
fn blocked(controller: &IngressController) -> Vec<Told> {
    let unwanted = [
        ("Admitted", ConditionStatus::True),
        ("LoadBalancerProgressing", ConditionStatus::False),
        ("LoadBalancerReady", ConditionStatus::True),
        ("DeploymentRollingOut", ConditionStatus::False),
        ("DeploymentAvailable", ConditionStatus::True),
    ];
    let found = unwanted
        .into_iter()
        .filter_map(|(type_, wanted)| told(controller, type_).filter(|told| told.status != wanted));
    let mut all: Vec<Told> = found.collect();
    // Routers that are not there at all are told of once.
    all.dedup_by(|later, first| later.message == first.message);
    all
}

impl Reached {
    /// Who may reach it, in few words.
    fn open(&self) -> String {
        if self.strategy != PublishingType::LoadBalancerService.as_str() {
            return "–".to_owned();
        }
        if self.ranges.is_empty() && self.service.is_none() {
            return "nobody".to_owned();
        }
        in_few_words(&self.ranges)
    }

    /// Whether there are ranges, or should be.
    fn is_about_ranges(&self, told: &Told) -> bool {
        !self.ranges.is_empty() || told.reason == "NotApplied"
    }

    /// Whether others are kept out, in one word.
    fn kept_out(&self) -> String {
        let Some(told) = self.enforced.as_ref().filter(|told| self.is_about_ranges(told)) else {
            return "–".to_owned();
        };
        match told.status {
            ConditionStatus::True => "yes".to_owned(),
            ConditionStatus::False => format!("no: {}", told.reason),
            _ => "unknown".to_owned(),
        }
    }
}

/// The columns that it has in common with everything else.
pub(super) fn row(reached: &Reached) -> Row {
    Row {
        kind: "IngressController",
        name: reached.name.clone(),
        provider: reached.provider.clone(),
        address: reached.address.clone(),
        open: reached.open(),
        enforced: reached.kept_out(),
        members: None,
        age: reached.age.clone(),
        note: reached.blocked.first().map(|told| told.message.clone()).unwrap_or_default(),
    }
}

pub(super) fn shown(all: &[Reached], format: Format) -> Result<String, Failure> {
    Ok(match format {
        Format::Json => output::json(&all)?,
        Format::Yaml => output::yaml(&all)?,
        Format::Table if all.is_empty() => "There are no IngressControllers.\n".to_owned(),
        Format::Table => table(all),
    })
}

/// A table, and below it in sentences what blocks.
fn table(all: &[Reached]) -> String {
    let cells: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let from = match one.ranges_from {
                From::Nowhere => "–",
                From::Spec => "its spec",
                From::ServiceField => "the Service's field",
                From::ServiceAnnotation => "the Service's annotation",
            };
            let blocked: Vec<&str> = one.blocked.iter().map(|told| told.reason.as_str()).collect();
            vec![
                one.name.clone(),
                or_none(one.domain.clone()),
                one.scope.clone().unwrap_or_else(|| one.strategy.clone()),
                or_none(one.address.clone()),
                one.open(),
                from.to_owned(),
                one.kept_out(),
                or_none(one.age.clone()),
                blocked.join(", "),
            ]
        })
        .collect();
    let headers = ["NAME", "DOMAIN", "SCOPE", "ADDRESS", "OPEN TO", "FROM", "ENFORCED", "AGE", "BLOCKED BY"];
    let mut text = output::table(&headers, &cells);
    for one in all {
        let is_news = |told: &&Told| {
            one.is_about_ranges(told)
                && (told.status == ConditionStatus::False || told.reason == "NotAppliedYet")
        };
        let not_kept_out = one.enforced.iter().filter(is_news);
        for told in one.blocked.iter().chain(not_kept_out).filter(|told| !told.message.is_empty()) {
            text.extend(["\n", &one.name, ": ", &told.message, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_kube_api::SOURCE_RANGES;
    use serde_json::{Value, json};

    fn one(ranges: &Value, conditions: &Value, service: &Value) -> Reached {
        let controller: IngressController = serde_json::from_value(json!({
            "metadata": {"name": "shop"},
            "spec": {"endpointPublishingStrategy": {
                "type": "LoadBalancerService", "loadBalancer": {"scope": "External", "allowedSourceRanges": ranges},
            }},
            "status": {
                "domain": "shop.example.com",
                "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"scope": "External"}},
                "conditions": conditions,
            },
        }))
        .unwrap();
        let service: Option<Service> = serde_json::from_value(service.clone()).unwrap();
        reached(&controller, service.as_ref())
    }

    #[test]
    fn ranges_come_from_somewhere() {
        let field = |ranges: &[&str]| json!({"spec": {"loadBalancerSourceRanges": ranges}});
        let annotated = json!({"metadata": {"annotations": {SOURCE_RANGES: "10.0.0.0/8"}}});
        for (spec, service, from, open) in [
            (json!([]), Value::Null, From::Nowhere, "nobody"),
            (json!(["10.0.0.0/8"]), Value::Null, From::Nowhere, "nobody"),
            (json!([]), field(&[]), From::Nowhere, "everyone"),
            (json!(["10.0.0.0/8"]), field(&["10.0.0.0/8"]), From::Spec, "10.0.0.0/8"),
            (json!([]), field(&["10.0.0.0/8"]), From::ServiceField, "10.0.0.0/8"),
            (json!([]), annotated, From::ServiceAnnotation, "10.0.0.0/8"),
            (
                json!(["::/1", "::/2", "::/3", "::/4", "::/5"]),
                field(&["::/1", "::/2", "::/3", "::/4", "::/5"]),
                From::Spec,
                "::/1, ::/2, ::/3 and 2 more",
            ),
        ] {
            let found = one(&spec, &json!([]), &service);
            assert_eq!((found.ranges_from, found.open().as_str()), (from, open), "{spec} {service}");
        }
    }

    #[test]
    fn what_blocks_is_told_below() {
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": format!("{type_} says so.")});
        let conditions = json!([
            condition("Admitted", "False", "Invalid"),
            condition("LoadBalancerReady", "True", "LoadBalancerProvisioned"),
            condition("DeploymentRollingOut", "True", "DeploymentRollingOut"),
            condition("SourceRangesEnforced", "False", "NodePortsOpen"),
        ]);
        let service = json!({
            "spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "a.example.com"}, {"ip": "192.0.2.1"}]}},
        });
        let text = table(&[one(&json!(["10.0.0.0/8"]), &conditions, &service)]);
        let expected = "\
NAME  DOMAIN            SCOPE     ADDRESS                   OPEN TO     FROM      ENFORCED           AGE  BLOCKED BY
shop  shop.example.com  External  a.example.com, 192.0.2.1  10.0.0.0/8  its spec  no: NodePortsOpen  –    Invalid, DeploymentRollingOut

shop: Admitted says so.

shop: DeploymentRollingOut says so.

shop: SourceRangesEnforced says so.
";
        assert_eq!(text, expected);
    }
}

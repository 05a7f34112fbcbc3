use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portcullis_kube_api::ingress::{
    AwsLoadBalancerType, ConditionStatus, IngressController, Scope, refusals,
};

use crate::router::{Platform, RouterSettings, domain};

/// Why an `IngressController` cannot be carried out, if it cannot: by itself, or because another one of `all` serves its
/// domain.
pub fn admission<'a>(
    controller: &IngressController,
    all: impl IntoIterator<Item = &'a IngressController>,
    settings: &RouterSettings,
) -> Vec<String> {
    let mut wrong = refusals(controller);
    wrong.extend(not_made_here(controller, settings));
    let Some(domain) = domain(controller, settings) else {
        wrong.push("spec.domain: a domain is required, since none is configured for all; set one, such as `apps.example.com`".to_owned());
        return wrong;
    };
    // Who serves it already goes on; of those who do not, the oldest.
    let mine = rank(controller);
    let mut rivals = all.into_iter().filter(|other| {
        other.metadata.uid != controller.metadata.uid
            && self::domain(other, settings).is_some_and(|other| other.eq_ignore_ascii_case(domain))
            && rank(other) < mine
    });
    if let Some(rival) = rivals.next() {
        let (namespace, name) = (rival.metadata.namespace.as_deref().unwrap_or_default(), rival.name());
        wrong.push(format!(
            "spec.domain: `{domain}` conflicts with: {name}. IngressController {namespace}/{name} serves it; choose another domain"
        ));
    }
    wrong
}

/// A type of load balancer that whoever makes them here does not make.
fn not_made_here(controller: &IngressController, settings: &RouterSettings) -> Option<String> {
    let aws = controller.wanted_load_balancer()?.provider_parameters.as_ref()?.aws.as_ref()?;
    (settings.network_only && aws.type_ == AwsLoadBalancerType::Classic).then(|| {
        format!(
            "spec.endpointPublishingStrategy.loadBalancer.providerParameters.aws.type: `Classic` is not made by the class {}; set `NLB`",
            settings.load_balancer_class.as_deref().unwrap_or_default()
        )
    })
}

/// What is asked of a load balancer, and cannot be said to whoever makes it: a sentence for each place.
pub fn unsaid(controller: &IngressController, settings: &RouterSettings) -> Vec<String> {
    const PLACE: &str = "spec.endpointPublishingStrategy.loadBalancer";
    let Some(wanted) = controller.wanted_load_balancer() else { return Vec::new() };
    let mut told = Vec::new();
    if wanted.scope == Scope::Internal && matches!(settings.platform, Platform::BareMetal | Platform::Other) {
        told.push(format!(
            "{PLACE}.scope: this platform has no word for `Internal`, so the load balancer may be reached from everywhere; limit it by allowedSourceRanges, or configure the platform"
        ));
    }
    let given = wanted.provider_parameters.as_ref();
    let aws = given.is_some_and(|given| given.aws.is_some()) && settings.platform != Platform::Aws;
    if aws {
        told.push(format!(
            "{PLACE}.providerParameters.aws: this platform is another, and nothing is done about it"
        ));
    }
    told
}

/// Who comes first.
fn rank(controller: &IngressController) -> (bool, Option<Time>, Option<String>) {
    let admitted = controller.status.conditions.iter().find(|condition| condition.type_ == "Admitted");
    let waits = admitted.is_none_or(|admitted| admitted.status != ConditionStatus::True);
    let metadata = &controller.metadata;
    (waits, metadata.creation_timestamp.clone(), metadata.uid.clone())
}

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portcullis_kube_api::ingress::{ConditionStatus, IngressController, refusals};

use crate::router::{RouterSettings, domain};

/// Why an `IngressController` cannot be carried out, if it cannot: by itself, or because another one of `all` serves its
/// domain.
pub fn admission<'a>(
    controller: &IngressController,
    all: impl IntoIterator<Item = &'a IngressController>,
    settings: &RouterSettings,
) -> Vec<String> {
    let mut wrong = refusals(controller);
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

/// Who comes first.
fn rank(controller: &IngressController) -> (bool, Option<Time>, Option<String>) {
    let admitted = controller.status.conditions.iter().find(|condition| condition.type_ == "Admitted");
    let waits = admitted.is_none_or(|admitted| admitted.status != ConditionStatus::True);
    let metadata = &controller.metadata;
    (waits, metadata.creation_timestamp.clone(), metadata.uid.clone())
}

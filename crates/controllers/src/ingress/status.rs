use portcullis_kube_api::ingress::{EndpointPublishingStrategy, IngressControllerStatus};

use super::{Conditions, Look};
use crate::router::{as_made, selector};

/// The status of an `IngressController` by what is known of it.
///
/// What cannot be carried out does not show in it: what was admitted before is still what is there.
pub fn status(look: &Look<'_>, conditions: &Conditions) -> IngressControllerStatus {
    let controller = look.controller;
    let before = &controller.status;
    let refused = !look.refusals.is_empty();
    let kept = |given: String, old: &String| if refused { old.clone() } else { given };
    let strategy = match &before.endpoint_publishing_strategy {
        Some(old) if refused => Some(old.clone()),
        None if refused => None,
        _ => Some(look.strategy.clone()),
    };
    let available = look.deployment.and_then(|deployment| deployment.status.as_ref()?.available_replicas);
    IngressControllerStatus {
        available_replicas: available.unwrap_or(0),
        selector: selector(controller),
        domain: kept(look.domain.unwrap_or_default().to_owned(), &before.domain),
        endpoint_publishing_strategy: strategy.map(|strategy| as_it_is(strategy, look)),
        conditions: conditions.all.clone(),
        namespace_selector: controller.spec.namespace_selector.clone(),
        route_selector: controller.spec.route_selector.clone(),
        observed_generation: controller.metadata.generation,
    }
}

/// The ranges in the status are those that count, whoever wrote them; and what a load balancer keeps as long as it stands is
/// what it has.
fn as_it_is(mut strategy: EndpointPublishingStrategy, look: &Look<'_>) -> EndpointPublishingStrategy {
    if let Some(load_balancer) = &mut strategy.load_balancer {
        let ranges = look.effective().ranges;
        load_balancer.allowed_source_ranges = (!ranges.is_empty()).then_some(ranges);
        if let Some(service) = look.service {
            as_made(load_balancer, service);
        }
    }
    strategy
}

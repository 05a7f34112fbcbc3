//! Services of type `LoadBalancer`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use portcullis_aws::Held;
use portcullis_kube_api::ingress::ranges::{Said, effective};
use portcullis_kube_api::{enforced, foreign_finalizer, wants_load_balancer};

use super::super::plan::class;
use super::{Row, age, unanswered};
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::roles::services::{self, Nodes};

pub(super) async fn rows(loaded: &Loaded, client: &Client, members: bool) -> Result<Vec<Row>, Failure> {
    let provider = services::provider(loaded, Nodes::Cluster(client)).await?;
    let found = Api::<Service>::all(client.clone()).list(&ListParams::default()).await;
    let found = found.map_err(|error| unanswered(&error))?;
    let class = class(loaded);
    let ours = found.items.into_iter().filter(|service| wants_load_balancer(service, &class));
    let mut services: BTreeMap<String, Service> = ours.map(|service| (key(&service), service)).collect();
    let held = provider.holdings(members).await;
    let held = held.map_err(|error| Failure::new(Exit::Failed, format!("AWS cannot be asked. {error}")))?;
    let mut rows = Vec::new();
    for held in held {
        let name = format!("{}/{}", held.owner.namespace().unwrap_or_default(), held.owner.name());
        let service = services.remove(&name);
        rows.push(row(name, service.as_ref(), Some(&held)));
    }
    rows.extend(services.into_iter().map(|(name, service)| row(name, Some(&service), None)));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn row(name: String, service: Option<&Service>, held: Option<&Held>) -> Row {
    let balancer = held.and_then(|held| held.balancer.as_ref());
    let grouped = held.is_some_and(|held| held.has_groups);
    let note = match (service, balancer) {
        (None, _) => "there is no such Service: it is taken away once that is sure".to_owned(),
        (Some(service), _) if foreign_finalizer(service).is_some() => {
            let (_, who) = foreign_finalizer(service).unwrap_or_default();
            format!("{who} looks after it")
        }
        (Some(_), None) => "no load balancer yet: `kubectl describe` says why".to_owned(),
        (Some(_), Some(_)) if !grouped => "without a security group; the nodes limit its clients".to_owned(),
        (Some(_), Some(_)) => String::new(),
    };
    let note = match service.and_then(enforced::enforced) {
        Some((false, why)) if note.is_empty() => why.to_owned(),
        _ => note,
    };
    Row {
        kind: "Service",
        name,
        provider: Some("aws-nlb".to_owned()),
        address: balancer.map(|(_, address)| address.clone()),
        open: match held {
            Some(held) if grouped && held.open.is_nobody() => "nobody".to_owned(),
            Some(held) if grouped => held.open.to_string(),
            _ => "–".to_owned(),
        },
        enforced: balancer.map_or_else(|| "–".to_owned(), |_| kept_out(service, grouped)),
        members: held.and_then(|held| held.members),
        age: service.and_then(|service| age(&service.metadata)),
        note,
    }
}

/// Whether others are kept out, as was said on the Service; and by what is there, where nobody is limited or there is no Service.
fn kept_out(service: Option<&Service>, grouped: bool) -> String {
    let limited = service.is_some_and(|service| effective(Said::by(service)).place.is_some());
    let said = service.and_then(enforced::enforced).map(|(is_so, _)| is_so);
    match (said, grouped) {
        (Some(false), _) => "no",
        // Nobody said so yet, or of other ranges than it has.
        (None, _) if limited => "unknown",
        (_, true) => "yes",
        (_, false) => "on the nodes",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_said_on_the_service_counts() {
        let service = |ranges: &[&str], status: Option<&str>| -> Service {
            let said = status.map(|status| {
                json!({
                    "type": enforced::ENFORCED, "status": status, "reason": "Said",
                    "message": "Groups let in 192.0.2.0/24, and nobody else.", "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            });
            let conditions: Vec<_> = said.into_iter().collect();
            let written =
                json!({"spec": {"loadBalancerSourceRanges": ranges}, "status": {"conditions": conditions}});
            serde_json::from_value(written).unwrap()
        };
        let range = &["192.0.2.0/24"];
        for (service, grouped, expected) in [
            (Some(service(range, Some("True"))), true, "yes"),
            (Some(service(range, Some("True"))), false, "on the nodes"),
            (Some(service(range, Some("False"))), true, "no"),
            (Some(service(&["10.0.0.0/8"], Some("True"))), true, "unknown"),
            (Some(service(range, None)), true, "unknown"),
            (Some(service(&[], None)), true, "yes"),
            (None, true, "yes"),
        ] {
            assert_eq!(kept_out(service.as_ref(), grouped), expected, "{service:?}");
        }
    }
}

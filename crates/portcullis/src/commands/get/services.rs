//! Services of type `LoadBalancer`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use portcullis_aws::Held;
use portcullis_kube_api::{foreign_finalizer, wants_load_balancer};

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
        enforced: match (balancer, grouped) {
            (None, _) => "–",
            (Some(_), true) => "yes",
            (Some(_), false) => "on the nodes",
        }
        .to_owned(),
        members: held.and_then(|held| held.members),
        age: service.and_then(|service| age(&service.metadata)),
        note,
    }
}

//! `LoadBalancers` of clusters: where they are found, by whom, and where their members are.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use portcullis_kube_api::cluster::{Condition, LoadBalancerSpec, LoadBalancerStatus, Object, condition};
use serde::Serialize;

use super::{Row, age, in_few_words, or_none, unanswered};
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::roles::cluster_api::flavour;

/// How one stands.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Balanced {
    name: String,
    cluster: String,
    provider: Option<String>,
    endpoint: Option<String>,
    address: Option<String>,
    /// Absent is everyone, an empty list is nobody.
    open_to: Option<Vec<String>>,
    enforced: Option<String>,
    members: Vec<Member>,
    /// What keeps it from being as wanted.
    blocked: Vec<String>,
    #[serde(skip)]
    age: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Member {
    name: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

pub(super) async fn look(loaded: &Loaded, client: &Client) -> Result<Vec<Balanced>, Failure> {
    let given = &loaded.config.cluster_api;
    let kind = flavour(given.types).load_balancer();
    let resource = ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: format!("{}/{}", kind.group, kind.version),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    };
    let api: Api<DynamicObject> = match &given.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let found = api.list(&ListParams::default()).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => {
            Failure::new(Exit::Lacking, "this cluster has no LoadBalancers: the type is not installed")
                .note("Install it: portcullis crds --only cluster-api | kubectl apply --server-side -f -")
        }
        error => unanswered(&error),
    })?;
    let read = found.items.into_iter().filter_map(|object| {
        let value = serde_json::to_value(object).ok()?;
        serde_json::from_value::<Object<LoadBalancerSpec, LoadBalancerStatus>>(value).ok()
    });
    Ok(read.map(|object| balanced(&object)).collect())
}

fn balanced(object: &Object<LoadBalancerSpec, LoadBalancerStatus>) -> Balanced {
    let (spec, status) = (&object.spec, &object.status);
    let wrong = |type_: &str, bad: &str| {
        let found = condition(&status.conditions, type_).filter(|found| found.status == bad)?;
        Some(told(found))
    };
    let blocked = [
        ("Degraded", "True"),
        ("Available", "False"),
        ("InfrastructureReady", "False"),
        ("EndpointReady", "False"),
        ("Paused", "True"),
        ("Deleting", "True"),
    ];
    let members = status.targets.iter().map(|target| Member {
        name: target.name.clone(),
        status: target.status.clone(),
        connections: target.connections,
        message: target.message.clone(),
    });
    Balanced {
        name: format!("{}/{}", object.namespace(), object.name()),
        cluster: spec.cluster_name.clone(),
        provider: spec
            .infrastructure_ref
            .as_ref()
            .map(|reference| format!("{}/{}", reference.kind, reference.name)),
        endpoint: spec.endpoint().map(ToString::to_string),
        address: Some(status.address.clone()).filter(|address| !address.is_empty()),
        open_to: status.allowed_source_ranges.clone(),
        enforced: condition(&status.conditions, "SourceRangesEnforced").map(|said| said.status.clone()),
        members: members.collect(),
        blocked: blocked.into_iter().filter_map(|(type_, bad)| wrong(type_, bad)).collect(),
        age: age(&object.metadata),
    }
}

fn told(condition: &Condition) -> String {
    if condition.message.is_empty() { condition.reason.clone() } else { condition.message.clone() }
}

impl Balanced {
    fn open(&self) -> String {
        match &self.open_to {
            Some(ranges) if ranges.is_empty() => "nobody".to_owned(),
            Some(ranges) => in_few_words(ranges),
            None => "everyone".to_owned(),
        }
    }

    fn enforced(&self) -> String {
        match self.enforced.as_deref() {
            Some("True") => "yes",
            Some(_) => "no",
            None => "–",
        }
        .to_owned()
    }

    fn active(&self) -> usize {
        self.members.iter().filter(|member| member.status == "active").count()
    }
}

pub(super) fn row(found: &Balanced) -> Row {
    Row {
        kind: "LoadBalancer",
        name: found.name.clone(),
        provider: found.provider.clone(),
        address: found.address.clone(),
        open: found.open(),
        enforced: found.enforced(),
        members: Some((found.active(), found.members.len())),
        age: found.age.clone(),
        note: found.blocked.first().cloned().unwrap_or_default(),
    }
}

pub(super) fn shown(all: &[Balanced], format: Format) -> Result<String, Failure> {
    if format == Format::Json {
        return Ok(output::json(&all)?);
    }
    if format == Format::Yaml {
        return Ok(output::yaml(&all)?);
    }
    if all.is_empty() {
        return Ok("There are no LoadBalancers.\n".to_owned());
    }
    let cells: Vec<Vec<String>> = all
        .iter()
        .map(|found| {
            let moving = found.members.iter().filter(|member| member.status != "active");
            let moving: Vec<String> = moving
                .map(|member| match member.connections {
                    Some(count) => format!("{} {} ({count} connections)", member.name, member.status),
                    None => format!("{} {}", member.name, member.status),
                })
                .collect();
            vec![
                found.name.clone(),
                found.cluster.clone(),
                or_none(found.provider.clone()),
                or_none(found.endpoint.clone()),
                or_none(found.address.clone()),
                found.open(),
                found.enforced(),
                format!("{}/{}", found.active(), found.members.len()),
                moving.join(", "),
                or_none(found.age.clone()),
                found.blocked.first().cloned().unwrap_or_default(),
            ]
        })
        .collect();
    let headers = [
        "NAME",
        "CLUSTER",
        "PROVIDER",
        "ENDPOINT",
        "ADDRESS",
        "OPEN TO",
        "ENFORCED",
        "ACTIVE",
        "ON THE WAY",
        "AGE",
        "",
    ];
    Ok(output::table(&headers, &cells))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_on_their_way_and_what_is_wrong_are_shown() {
        let object = serde_json::from_value(json!({
            "metadata": {"namespace": "fleet", "name": "lb"},
            "spec": {
                "clusterName": "c", "endpoint": {"host": "api.example.com", "port": 443},
                "infrastructureRef": {"kind": "HAProxyLoadBalancer", "name": "lb"},
            },
            "status": {
                "address": "192.0.2.1", "allowedSourceRanges": [],
                "targets": [{"name": "a", "status": "active"}, {"name": "b", "status": "draining", "connections": 3}],
                "conditions": [
                    {"type": "SourceRangesEnforced", "status": "True", "reason": "Enforced", "message": ""},
                    {"type": "Degraded", "status": "True", "reason": "LastMember", "message": "b stays."},
                ],
            },
        }));
        let text = shown(&[balanced(&object.unwrap())], Format::Table).unwrap();
        for words in
            ["fleet/lb", "api.example.com:443", "nobody", "1/2", "b draining (3 connections)", "b stays."]
        {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
        assert_eq!(shown(&[], Format::Table).unwrap(), "There are no LoadBalancers.\n");
    }
}

use portcullis_core::{Direction, Family};
use portcullis_ovn::objects::{AddressGroup, Rule, SecurityGroup};
use portcullis_ovn::{Model, Stored};
use serde::Serialize;
use uuid::Uuid;

use super::{is_told, project};
use crate::error::Error;
use crate::request::Request;
use crate::resources::Context;
use crate::server::{Answer, Networking};

/// The file.
#[derive(Debug, Serialize)]
struct File {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    address_groups: Vec<Ranges>,
    security_groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
struct Ranges {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    description: String,
    addresses: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Group {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    description: String,
    stateful: bool,
    rules: Vec<Allowed>,
}

/// A rule; what it does not say is not limited.
#[derive(Debug, Serialize)]
struct Allowed {
    direction: Direction,
    ethertype: Family,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_range_min: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_range_max: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_ip_prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_address_group: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
}

/// Answers with the groups of a project.
pub(crate) fn answer(networking: &Networking, request: &Request, context: &Context) -> Result<Answer, Error> {
    let project = project(request, context)?;
    let model = networking.store().model();
    let file = File {
        address_groups: sorted(
            model.of_project(&project, None).map(|group| addresses(&model, group)),
            |group| (group.name.clone(), group.id),
        ),
        security_groups: sorted(
            model.of_project(&project, None).map(|group| of_group(&model, &project, group)),
            |group| (group.name.clone(), group.id),
        ),
    };
    let text = serde_saphyr::to_string(&file)
        .map_err(|error| Error::bad_request(format!("The groups cannot be written as YAML: {error}")))?;
    Ok(Answer::yaml(text))
}

/// By name, so that two files can be compared.
fn sorted<T, K: Ord>(items: impl Iterator<Item = T>, key: impl FnMut(&T) -> K) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_by_cached_key(key);
    items
}

fn id_if_needed<T: Stored>(model: &Model, object: &T) -> Option<Uuid> {
    (!is_told(model, object)).then(|| object.id())
}

fn addresses(model: &Model, group: &AddressGroup) -> Ranges {
    Ranges {
        name: group.meta.name.clone(),
        id: id_if_needed(model, group),
        description: group.meta.description.clone(),
        addresses: group.addresses.iter().map(ToString::to_string).collect(),
    }
}

fn of_group(model: &Model, project: &str, group: &SecurityGroup) -> Group {
    let rules = model.rules_of_group(group.meta.id).map(|rule| allowed(model, project, rule));
    Group {
        name: group.meta.name.clone(),
        id: id_if_needed(model, group),
        description: group.meta.description.clone(),
        stateful: group.stateful,
        rules: sorted(rules, |rule| format!("{rule:?}")),
    }
}

fn allowed(model: &Model, project: &str, rule: &Rule) -> Allowed {
    Allowed {
        direction: rule.direction,
        ethertype: rule.ethertype,
        protocol: rule.protocol.clone(),
        port_range_min: rule.port_min,
        port_range_max: rule.port_max,
        remote_ip_prefix: rule.remote_prefix.clone(),
        remote_group: rule.remote_group.map(|id| called::<SecurityGroup>(model, project, id)),
        remote_address_group: rule.remote_address_group.map(|id| called::<AddressGroup>(model, project, id)),
        description: rule.meta.description.clone(),
    }
}

/// What a rule calls the other end: by name within the project, by id elsewhere.
fn called<T: Stored>(model: &Model, project: &str, id: Uuid) -> String {
    match model.get::<T>(id) {
        Some(object) if object.meta().project == project && is_told(model, &**object) => {
            object.meta().name.clone()
        }
        _ => id.to_string(),
    }
}

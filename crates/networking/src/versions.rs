//! What the server speaks: its version and its extensions.

use axum::http::Method;
use serde_json::{Value, json};

use crate::error::Error;
use crate::openapi;
use crate::request::Request;
use crate::server::Answer;

/// What is served besides the core of the API: alias, name, what it is.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("address-group", "Address group", "Support address group"),
    (
        "network-ip-availability",
        "Network IP Availability",
        "Provides IP availability data for each network and subnet.",
    ),
    ("quotas", "Quota management support", "Expose functions for quotas management per project"),
    (
        "quota_details",
        "Quota details management support",
        "Expose functions for quotas usage statistics per project",
    ),
    (
        "network-ip-availability-details",
        "Network IP Availability Details Extension",
        "Add ip_availability_details attribute to network-ip-availabilities resource.",
    ),
    (
        "quota-check-limit-default",
        "Quota engine limit check by default",
        "The resource usage is checked before a new limit is set",
    ),
    ("quota-check-limit", "Quota engine limit check", "Checks the resource usage before a limit is set"),
    ("rbac-policies", "RBAC Policies", "Policies that give projects access to the resources of others"),
    ("rbac-security-groups", "rbac-security-groups", "Security groups can be shared by RBAC policies"),
    ("rbac-address-group", "rbac-address-group", "Address groups can be shared by RBAC policies"),
    (
        "security-groups-default-rules",
        "Default rules for security groups",
        "Configure the rules that new security groups get",
    ),
    ("security-group", "security-group", "The security groups extension."),
    ("port-security", "Port Security", "Provides port security"),
    (
        "standard-attr-description",
        "standard-attr-description",
        "Extension to add descriptions to standard attributes",
    ),
    (
        "standard-attr-revisions",
        "Resource revision numbers",
        "This extension will display the revision number of neutron resources.",
    ),
    (
        "revision-if-match",
        "If-Match constraints based on revision_number",
        "Extension indicating that If-Match based on revision_number is supported.",
    ),
    (
        "standard-attr-timestamp",
        "Resource timestamps",
        "Adds created_at and updated_at fields to all Neutron resources that have Neutron standard attributes.",
    ),
    (
        "standard-attr-tag",
        "Tag support for resources with standard attribute",
        "Enables to set tag on resources with standard attribute.",
    ),
];

/// Answers what needs no token.
pub(crate) fn answer(request: &Request, path: &[&str]) -> Option<Result<Answer, Error>> {
    if request.method != Method::GET {
        return None;
    }
    let answer = match path {
        [] => Answer::ok(json!({"versions": [version(request)]})),
        ["v2.0"] => Answer::ok(json!({"resources": []})),
        // The end of the name was taken off with the address.
        ["v2.0", "openapi"] => Answer::ok(openapi::document().clone()),
        ["v2.0", "extensions"] => {
            let all: Vec<Value> = EXTENSIONS.iter().map(extension).collect();
            Answer::ok(json!({"extensions": all}))
        }
        ["v2.0", "extensions", alias] => {
            return Some(match EXTENSIONS.iter().find(|(known, ..)| known == alias) {
                Some(known) => Ok(Answer::ok(json!({"extension": extension(known)}))),
                None => Err(Error::not_found(
                    "ExtensionsNotFound",
                    format!("Extensions not found: extension={alias}."),
                )),
            });
        }
        [first, ..] if *first != "v2.0" => return Some(Err(Error::no_such_resource())),
        _ => return None,
    };
    Some(Ok(answer))
}

fn version(request: &Request) -> Value {
    json!({
        "id": "v2.0",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": format!("{}/v2.0/", request.origin)}],
    })
}

fn extension((alias, name, description): &(&str, &str, &str)) -> Value {
    json!({
        "alias": alias,
        "name": name,
        "description": description,
        "links": [],
        "updated": "2026-01-01T10:00:00-00:00",
    })
}

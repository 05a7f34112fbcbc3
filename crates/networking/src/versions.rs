//! What the server speaks: its version and its extensions.

use axum::http::Method;
use serde_json::{Value, json};

use crate::error::Error;
use crate::openapi;
use crate::request::Request;
use crate::server::Answer;

/// What is served besides the core of the API: alias, name, what it is. What is not here is not served.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("address-group", "Address groups", "Sets of addresses that security group rules can name."),
    ("allowed-address-pairs", "Allowed address pairs", "Further addresses that a port may use."),
    ("binding", "Port binding", "Where a port is plugged in."),
    (
        "ext-gw-mode",
        "Gateway mode of routers",
        "Whether a router translates the addresses of what leaves it.",
    ),
    ("external-net", "External networks", "Networks that routers may have their gateway in."),
    ("extra_dhcp_opt", "Extra DHCP options", "Options that a port's machine gets by DHCP."),
    ("extraroute", "Extra routes", "Static routes of routers."),
    (
        "extraroute-atomic",
        "Atomic extra routes",
        "Static routes can be added and removed without naming the others.",
    ),
    ("filter-validation", "Filter validation", "A list that is filtered by an unknown attribute is refused."),
    ("fip-port-details", "Ports of floating addresses", "A floating address shows the port it is given to."),
    ("ip-substring-filtering", "Address parts", "Ports can be found by a part of their address."),
    ("net-mtu", "Largest packets", "Networks show the size of the largest packet."),
    ("net-mtu-writable", "Settable largest packets", "The size of the largest packet can be set."),
    ("pagination", "Pages", "Lists can be read page by page."),
    (
        "port-security",
        "Port security",
        "Whether a port is filtered, and kept from using addresses of others.",
    ),
    ("project-id", "Projects", "Objects show their project under its newer name too."),
    ("provider", "Physical networks", "Networks on a wire that was there before."),
    (
        "revision-if-match",
        "Conditional changes",
        "A change can be made to depend on the revision of an object.",
    ),
    ("router", "Routers", "Routers and floating addresses."),
    ("security-group", "Security groups", "Groups of rules for ports."),
    ("security-groups-normalized-cidr", "Normalised ranges", "Rules show their range without needless bits."),
    (
        "security-groups-remote-address-group",
        "Remote address groups",
        "The other end of a rule can be an address group.",
    ),
    (
        "security-groups-rules-belongs-to-default-sg",
        "Rules of default groups",
        "Rules show whether their group is a project's default one.",
    ),
    ("sorting", "Sorting", "Lists can be sorted."),
    ("standard-attr-description", "Descriptions", "Objects can be described."),
    ("standard-attr-revisions", "Revisions", "Objects count their changes."),
    ("standard-attr-tag", "Tags", "Objects can be tagged."),
    ("standard-attr-timestamp", "Moments", "Objects tell when they were made and last changed."),
    ("stateful-security-group", "Stateless groups", "A group can let answers pass by rules only."),
    (
        "subnet-external-network",
        "Subnets of external networks",
        "Subnets show whether their network is external.",
    ),
    ("subnet-service-types", "Subnets for some ports", "A subnet can be for ports of some owners only."),
    ("tag-creation", "Creation of tags", "Several tags can be added at once."),
    (
        "floating-ip-router-writable",
        "Routers of floating addresses",
        "The router of a floating address can be chosen.",
    ),
    ("network-ip-availability", "Free addresses", "How many addresses of a network are used."),
    ("network-ip-availability-details", "Free addresses in detail", "The same, by subnet and by pool."),
    (
        "port-mac-address-regenerate",
        "New hardware addresses",
        "A port can be given another hardware address.",
    ),
    ("quota-check-limit", "Checked quotas", "A quota can be refused if more is used already."),
    ("quota-check-limit-default", "Quotas checked by default", "A quota is refused if more is used already."),
    ("quota_details", "Quotas in detail", "How much of a quota is used."),
    ("quotas", "Quotas", "How much a project may have."),
    ("rbac-address-group", "Shared address groups", "Address groups can be given to other projects."),
    ("rbac-policies", "Sharing", "Objects can be given to other projects."),
    ("rbac-security-groups", "Shared groups", "Security groups can be given to other projects."),
    ("security-groups-default-rules", "Rules of new groups", "The rules that new groups get can be chosen."),
];

/// Answers what needs no token.
pub(crate) fn answer(request: &Request, path: &[&str]) -> Option<Result<Answer, Error>> {
    if request.method != Method::GET {
        return None;
    }
    let answer = match path {
        [] => Answer::ok(json!({"versions": [version(request)]})),
        ["v2.0"] => Answer::ok(json!({"resources": resources(request)})),
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

/// What there is, and where.
const RESOURCES: &[(&str, &str)] = &[
    ("network", "networks"),
    ("subnet", "subnets"),
    ("port", "ports"),
    ("router", "routers"),
    ("floatingip", "floatingips"),
    ("security_group", "security-groups"),
    ("security_group_rule", "security-group-rules"),
    ("address_group", "address-groups"),
    ("default_security_group_rule", "default-security-group-rules"),
    ("rbac_policy", "rbac-policies"),
    ("quota", "quotas"),
    ("network_ip_availability", "network-ip-availabilities"),
    ("extension", "extensions"),
];

fn resources(request: &Request) -> Vec<Value> {
    let show = |(name, collection): &(&str, &str)| {
        let href = format!("{}/v2.0/{collection}", request.origin);
        json!({"name": name, "collection": collection, "links": [{"rel": "self", "href": href}]})
    };
    RESOURCES.iter().map(show).collect()
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

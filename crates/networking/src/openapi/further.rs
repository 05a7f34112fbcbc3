//! What is served besides the resources.

use axum::http::Method;
use serde_json::{Value, json};

use super::Document;
use super::operation::{Operation, content, in_query, list_of, object, refer, schema, wrapped};
use crate::resources::Resource;
use crate::resources::address_group::AddressGroups;
use crate::resources::router::Routers;
use crate::resources::rule::Rules;
use crate::resources::security_group::SecurityGroups;
use crate::{availability, explain, quota};

impl Document {
    /// What routers have besides.
    pub(super) fn routers(&mut self) {
        let (tag, text) = (Routers::PLURAL, json!({"type": "string"}));
        let asked = object(json!({"subnet_id": text, "port_id": text}));
        let joined = object(json!({
            "id": text, "network_id": text, "port_id": text, "subnet_id": text, "project_id": text, "tenant_id": text,
            "subnet_ids": {"type": "array", "items": text},
            "tags": {"type": "array", "items": text},
        }));
        for (action, summary) in [
            ("add_router_interface", "Connect a network, by a subnet of it or by a port"),
            ("remove_router_interface", "Disconnect a network"),
        ] {
            let change = Operation::new(tag, summary)
                .takes(asked.clone())
                .answers("200", "what was connected, or not any more", joined.clone())
                .changes();
            self.path(&format!("/v2.0/routers/{{id}}/{action}"), &Method::PUT, change);
        }
        let route = object(json!({"destination": text, "nexthop": text}));
        let routes = object(json!({"routes": {"type": "array", "items": route}}));
        for (action, summary) in
            [("add_extraroutes", "Add routes"), ("remove_extraroutes", "Take routes away")]
        {
            let change = Operation::new(tag, summary)
                .takes(wrapped(Routers::NAME, routes.clone()))
                .answers("200", "the router as it is now", wrapped(Routers::NAME, schema(Routers::NAME)))
                .changes();
            self.path(&format!("/v2.0/routers/{{id}}/{action}"), &Method::PUT, change);
        }
    }

    /// What groups have besides.
    pub(super) fn groups(&mut self) {
        let tag = SecurityGroups::PLURAL;
        let mut rule = self.schemas[&format!("{}_create", Rules::NAME)].clone();
        rule["required"] = json!(["direction"]);
        // What was read can be sent back.
        rule["additionalProperties"] = json!(true);
        self.schemas.insert("security_group_rule_wanted".into(), rule);
        let replace = Operation::new(tag, "Replace all rules of a group in one transaction")
            .takes(wrapped(Rules::PLURAL, list_of("security_group_rule_wanted")))
            .answers(
                "200",
                "the group as it is now",
                wrapped(SecurityGroups::NAME, schema(SecurityGroups::NAME)),
            )
            .changes()
            .conditional();
        self.path("/v2.0/security-groups/{id}/rules", &Method::PUT, replace);

        let project =
            || in_query("project_id", json!({"type": "string"}), "another project, for administrators");
        let mut export = Operation::new(tag, "The groups of a project as a file").parameter(project());
        let file = content("application/yaml", json!({"type": "object"}));
        export.0["responses"]["200"] = json!({"description": "the file", "content": file});
        self.path("/v2.0/security-groups/export", &Method::GET, export);
        let names = json!({"type": "array", "items": {"type": "string"}});
        let told = object(json!({"created": names, "changed": names, "unchanged": names, "deleted": names}));
        let mut import =
            Operation::new(tag, "Make the groups of a project those of a file, in one transaction")
                .answers("200", "what became of the groups", wrapped("import", told))
                .parameter(project())
                .parameters(&["prune"])
                .changes();
        import.0["requestBody"] = json!({"required": true, "content": file});
        self.path("/v2.0/security-groups/import", &Method::PUT, import);

        for (action, summary) in
            [("add_addresses", "Add addresses"), ("remove_addresses", "Take addresses away")]
        {
            let addresses = json!({"type": "array", "items": {"type": "string"}});
            let change = Operation::new(AddressGroups::PLURAL, summary)
                .takes(wrapped("addresses", addresses))
                .answers(
                    "200",
                    "the group as it is now",
                    wrapped(AddressGroups::NAME, schema(AddressGroups::NAME)),
                )
                .changes();
            self.path(&format!("/v2.0/address-groups/{{id}}/{action}"), &Method::PUT, change);
        }
    }

    pub(super) fn quotas(&mut self) {
        let of = |value: Value| {
            let limits = quota::DEFAULTS.iter().map(|(name, _)| ((*name).to_owned(), value.clone()));
            object(Value::Object(limits.collect()))
        };
        let limit = json!({"type": "integer", "minimum": -1, "description": "-1 is without limit"});
        let count = json!({"type": "integer"});
        self.schemas.insert("quota".into(), of(limit.clone()));
        let detail = object(json!({"limit": limit, "used": count, "reserved": count}));
        self.schemas.insert("quota_details".into(), of(detail));
        let tag = "quotas";
        let one = || wrapped("quota", schema("quota"));
        let own = "/v2.0/quotas/{project}";
        let list = Operation::new(tag, "Projects with limits of their own").answers(
            "200",
            "their limits",
            wrapped("quotas", list_of("quota")),
        );
        self.path("/v2.0/quotas", &Method::GET, list);
        let show = Operation::new(tag, "A project's limits").answers("200", "they", one());
        self.path(own, &Method::GET, show);
        let mut wanted = self.schemas["quota"].clone();
        for name in ["force", "check_limit"] {
            wanted["properties"][name] = json!({"type": "boolean"});
        }
        let change =
            Operation::new(tag, "Set limits").takes(wrapped("quota", wanted)).answers("200", "they", one());
        self.path(own, &Method::PUT, change.changes());
        let delete = Operation::new(tag, "Back to the usual limits").answers_nothing();
        self.path(own, &Method::DELETE, delete.changes());
        let usual = Operation::new(tag, "The usual limits").answers("200", "they", one());
        self.path(&format!("{own}/default"), &Method::GET, usual);
        let details = Operation::new(tag, "Limits and what is used of them").answers(
            "200",
            "they",
            wrapped("quota", schema("quota_details")),
        );
        self.path(&format!("{own}/details"), &Method::GET, details);
        for word in ["tenant", "project"] {
            let inner = object(json!({ format!("{word}_id"): {"type": "string"} }));
            let who =
                Operation::new(tag, "The project of who asks").answers("200", "it", wrapped(word, inner));
            self.path(&format!("/v2.0/quotas/{word}"), &Method::GET, who);
        }
    }

    pub(super) fn availability(&mut self) {
        // An IPv6 subnet has more addresses than an integer counts.
        let (text, count) = (json!({"type": "string"}), json!({"type": "number"}));
        let details = object(json!({
            "total_ips_in_subnet": count, "total_ips_in_allocation_pool": count,
            "used_ips_in_subnet": count, "used_ips_in_allocation_pool": count,
        }));
        let subnet = object(json!({
            "subnet_id": text, "subnet_name": text, "ip_version": count, "cidr": text,
            "used_ips": count, "total_ips": count, "ip_availability_details": details,
        }));
        let network = object(json!({
            "network_id": text, "network_name": text, "project_id": text, "tenant_id": text,
            "used_ips": count, "total_ips": count, "ip_availability_details": details,
            "subnet_ip_availability": {"type": "array", "items": subnet},
        }));
        let name = "network_ip_availability";
        self.schemas.insert(name.into(), network);
        let tag = "network_ip_availabilities";
        let mut list = Operation::new(tag, "How many addresses networks have")
            .answers("200", "for administrators, all", wrapped(tag, list_of(name)))
            .parameters(&["fields"]);
        for filter in availability::FILTERS {
            list = list.parameter(in_query(filter, json!({"type": "string"}), "only those with this value"));
        }
        self.path("/v2.0/network-ip-availabilities", &Method::GET, list);
        let show = Operation::new(tag, "How many addresses a network has")
            .answers("200", "for administrators", wrapped(name, schema(name)))
            .parameters(&["fields"]);
        self.path("/v2.0/network-ip-availabilities/{id}", &Method::GET, show);
    }

    pub(super) fn explain(&mut self) {
        let parts = explain::PARTS.iter().map(|(name, kind)| ((*name).to_owned(), kind.schema()));
        let mut question = object(Value::Object(parts.collect()));
        question["required"] = json!(["protocol"]);
        question["additionalProperties"] = json!(false);
        question["description"] = json!(
            "The addresses of both ends, or two ports; or a port, a direction and an address at the other end. And what the \
             packet carries."
        );
        let (text, verdict) =
            (json!({"type": "string"}), json!({"type": "string", "enum": ["allow", "drop"]}));
        let rule = object(json!({
            "rule_id": text, "group_id": text, "group": text, "rule": text,
            "allows": {"type": "boolean"}, "why_not": {"type": ["string", "null"]},
        }));
        let by = ["rule", "deny-all", "built-in", "address-guard", "port-security-off", "port-down"];
        let decided = object(json!({
            "by": {"type": "string", "enum": by}, "text": text, "rule_id": text, "group_id": text,
        }));
        let end = object(json!({
            "port_id": text, "network_id": text, "direction": text, "local_ip": text, "remote_ip": text,
            "verdict": verdict, "stateful": {"type": ["boolean", "null"]}, "decided": decided,
            "rules": {"type": "array", "items": rule}, "to_allow": {"type": ["string", "null"]},
        }));
        let answer = object(json!({
            "verdict": verdict, "ends": {"type": "array", "items": end}, "text": text, "path": text,
        }));
        let operation = Operation::new("explain", "Whether a packet passes, and who says so")
            .takes(question)
            .answers("200", "the verdict, and what every rule says", wrapped("explain", answer));
        self.path("/v2.0/explain", &Method::POST, operation);
    }

    pub(super) fn versions(&mut self) {
        let tag = "versions";
        let things = || json!({"type": "array", "items": {"type": "object"}});
        for (path, summary, answer) in [
            ("/", "The versions of the API", wrapped("versions", things())),
            ("/v2.0", "What this version has", wrapped("resources", things())),
            ("/v2.0/extensions", "What is served besides the core", wrapped("extensions", things())),
            ("/v2.0/openapi.json", "This document", json!({"type": "object"})),
        ] {
            self.path(
                path,
                &Method::GET,
                Operation::new(tag, summary).answers("200", "it", answer).without_token(),
            );
        }
        let mut extension = Operation::new(tag, "One extension")
            .answers("200", "it", wrapped("extension", json!({"type": "object"})))
            .without_token();
        extension.0["responses"]["404"] = refer("responses", "404");
        self.path("/v2.0/extensions/{alias}", &Method::GET, extension);
    }
}

//! The API's own description (`OpenAPI` 3.1), made from the tables that it works by. Served at `/v2.0/openapi.json`.

mod further;
mod operation;

use std::sync::LazyLock;

use axum::http::Method;
use serde_json::{Map, Value, json};

use self::operation::{Operation, in_path, in_query, list_of, object, refusals, schema, wrapped};
use crate::attributes::{Attribute, Post};
use crate::kinds::NAME;
use crate::resources::Resource;
use crate::resources::address_group::AddressGroups;
use crate::resources::default_rule::DefaultRules;
use crate::resources::floating_ip::FloatingIps;
use crate::resources::network::Networks;
use crate::resources::port::Ports;
use crate::resources::rbac_policy::RbacPolicies;
use crate::resources::router::Routers;
use crate::resources::rule::Rules;
use crate::resources::security_group::SecurityGroups;
use crate::resources::subnet::Subnets;

/// The document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let mut document = Document::new();
        document.resource::<Networks>();
        document.resource::<Subnets>();
        document.resource::<Ports>();
        document.resource::<Routers>();
        document.resource::<FloatingIps>();
        document.resource::<SecurityGroups>();
        document.resource::<Rules>();
        document.resource::<AddressGroups>();
        document.resource::<DefaultRules>();
        document.resource::<RbacPolicies>();
        document.routers();
        document.groups();
        document.quotas();
        document.availability();
        document.explain();
        document.versions();
        document.finish()
    });
    &DOCUMENT
}

struct Document {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

/// The schema of the attributes that pass a test.
fn attributes<T>(all: &[Attribute<T>], which: impl Fn(&Attribute<T>) -> bool) -> Value {
    let chosen = all.iter().filter(|attribute| which(attribute));
    let properties: Map<String, Value> = chosen
        .map(|attribute| {
            let mut schema = attribute.kind.schema();
            if attribute.admin_sees || attribute.admin_sets.is_some() {
                let says = if attribute.admin_sees {
                    "for administrators only"
                } else {
                    "set by administrators only"
                };
                schema["description"] = json!(says);
            }
            (attribute.name.to_owned(), schema)
        })
        .collect();
    object(Value::Object(properties))
}

impl Document {
    fn new() -> Self {
        let mut schemas = Map::new();
        let text = json!({"type": "string"});
        schemas.insert(
            "error".into(),
            wrapped("NeutronError", object(json!({"type": text, "message": text, "detail": text}))),
        );
        let code = json!({"type": "integer"});
        schemas.insert(
            "no_token".into(),
            wrapped("error", object(json!({"code": code, "title": text, "message": text}))),
        );
        schemas.insert(
            "dry_run".into(),
            wrapped(
                "dry_run",
                object(json!({
                    "transaction": {"type": "array", "items": {"type": "object"},
                        "description": "the operations on the northbound database (RFC 7047)"},
                    "result": {"description": "what the answer would be"},
                    "reach": {"type": "object",
                        "description": "which ports could be reached by whom that cannot now, and the other way round",
                        "properties": {
                            "changes": {"type": "array", "items": {"type": "object"},
                                "description": "the project's ports, those with the same change together"},
                            "others": {"type": "integer",
                                "description": "how many ports of other projects would have a change"},
                            "ways": {"type": "object",
                                "description": "where routers and floating IPs lead that they do not now, and the other way round"},
                        }},
                })),
            ),
        );
        Document { paths: Map::new(), schemas }
    }

    fn path(&mut self, path: &str, method: &Method, operation: Operation) {
        let mut operation = operation;
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            operation = operation.parameter(in_path(name));
        }
        let entry = self.paths.entry(path.to_owned()).or_insert_with(|| json!({}));
        entry[method.as_str().to_lowercase()] = operation.0;
    }

    fn resource<R: Resource>(&mut self) {
        let (one, several) = (R::NAME, R::PLURAL);
        let all = R::attributes();
        self.schemas.insert(one.into(), attributes(all, |_| true));
        let mut create = attributes(all, |attribute| attribute.post != Post::No);
        let required = all.iter().filter(|attribute| attribute.post == Post::Required);
        create["required"] = required.map(|attribute| attribute.name).collect();
        create["additionalProperties"] = json!(false);
        self.schemas.insert(format!("{one}_create"), create);
        let mut update = attributes(all, |attribute| attribute.put);
        update["additionalProperties"] = json!(false);
        self.schemas.insert(format!("{one}_update"), update);

        let shown = wrapped(one, schema(one));
        let (create, update) = (format!("{one}_create"), format!("{one}_update"));
        let collection = format!("/v2.0/{}", R::COLLECTION);
        let mut list = Operation::new(several, "List those that who asks may see")
            .answers("200", "those asked for", wrapped(several, list_of(one)))
            .parameters(&["fields", "sort_key", "sort_dir", "limit", "marker", "page_reverse"]);
        for attribute in all.iter().filter(|attribute| attribute.filter) {
            list = list.parameter(in_query(
                attribute.name,
                json!({"type": "string"}),
                "only those with this value",
            ));
        }
        let is_attribute =
            |name: &str| all.iter().any(|attribute| attribute.name == name && attribute.filter);
        for name in R::FILTERS.iter().filter(|name| !is_attribute(name)) {
            list =
                list.parameter(in_query(name, json!({"type": "string"}), "only those of which this holds"));
        }
        self.path(&collection, &Method::GET, list);
        let both = |one_schema: Value, list: Value| json!({"anyOf": [wrapped(one, one_schema), wrapped(several, list)]});
        let answer = || both(schema(one), list_of(one));
        let make = Operation::new(several, "Create one, or several at once")
            .takes(both(schema(&create), list_of(&create)))
            .answers("201", "created", answer())
            .answers("200", "there already, where `idempotent` was asked for", answer())
            .parameters(&["idempotent"])
            .changes();
        self.path(&collection, &Method::POST, make);
        let own = format!("{collection}/{{id}}");
        let show =
            Operation::new(several, "Show one").answers("200", "it", shown.clone()).parameters(&["fields"]);
        self.path(&own, &Method::GET, show);
        let change = Operation::new(several, "Change one")
            .takes(wrapped(one, schema(&update)))
            .answers("200", "as it is now", shown)
            .changes()
            .conditional();
        self.path(&own, &Method::PUT, change);
        let delete = Operation::new(several, "Delete one").answers_nothing().changes().conditional();
        self.path(&own, &Method::DELETE, delete);
        if all.iter().any(|attribute| attribute.name == "tags") {
            self.tags(several, &own);
        }
    }

    fn tags(&mut self, tag: &str, own: &str) {
        let list = json!({"type": "array", "items": {"type": "string", "maxLength": NAME}});
        let tags = wrapped("tags", list);
        let path = format!("{own}/tags");
        let show = Operation::new(tag, "Show its tags").answers("200", "its tags", tags.clone());
        self.path(&path, &Method::GET, show);
        let replace = Operation::new(tag, "Replace its tags").takes(tags.clone()).answers(
            "200",
            "its tags",
            tags.clone(),
        );
        self.path(&path, &Method::PUT, replace.changes());
        let add =
            Operation::new(tag, "Add tags").takes(tags.clone()).answers("200", "those that were added", tags);
        self.path(&path, &Method::POST, add.changes());
        let clear = Operation::new(tag, "Take all tags away").answers_nothing();
        self.path(&path, &Method::DELETE, clear.changes());
        let path = format!("{path}/{{tag}}");
        let has = Operation::new(tag, "Whether it has a tag").answers_nothing();
        self.path(&path, &Method::GET, has);
        let add = Operation::new(tag, "Add a tag").answers("201", "added", json!({}));
        self.path(&path, &Method::PUT, add.changes());
        let remove = Operation::new(tag, "Take a tag away").answers_nothing();
        self.path(&path, &Method::DELETE, remove.changes());
    }

    fn finish(self) -> Value {
        let text = json!({"type": "string"});
        let flag = |name: &str, what: &str| in_query(name, json!({"type": "boolean"}), what);
        let texts = json!({"type": "array", "items": text});
        let parameters = json!({
            "fields": in_query("fields", texts.clone(), "only these attributes"),
            "sort_key": in_query("sort_key", texts, "what they are sorted by"),
            "sort_dir": in_query("sort_dir", json!({"type": "array", "items": {"enum": ["asc", "desc"]}}), "how they are sorted"),
            "limit": in_query("limit", json!({"type": "integer", "minimum": 0}), "how many at most"),
            "marker": in_query("marker", json!({"type": "string", "format": "uuid"}), "the last one of the page before"),
            "page_reverse": flag("page_reverse", "the page before instead"),
            "dry_run": flag("dry_run", "change nothing, and tell what would be"),
            "idempotent": flag("idempotent", "what is there already is not made again"),
            "prune": flag("prune", "delete the groups that the file does not have"),
            "if_match": {"name": "If-Match", "in": "header", "schema": text,
                "description": "`revision_number=N`: only if it still has this revision"},
        });
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Portcullis Networking API",
                "version": "2.0",
                "description": "The OpenStack Networking API v2.0 on OVN, and what goes beyond it.",
            },
            "security": [{"token": []}],
            "paths": self.paths,
            "components": {
                "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
                "parameters": parameters,
                "responses": refusals(),
                "schemas": self.schemas,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PORTCULLIS_OVERWRITE=1 cargo test -p portcullis-networking openapi` writes it anew.
    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let text = format!("{:#}\n", document());
        if std::env::var_os("PORTCULLIS_OVERWRITE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == text,
            "docs/openapi.json is not what is served any more. To refresh it: \
             PORTCULLIS_OVERWRITE=1 cargo test -p portcullis-networking openapi"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(entries) => {
                    for (key, value) in entries {
                        match value {
                            Value::String(text) if key == "$ref" => found.push(text),
                            value => references(value, found),
                        }
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        references(document(), &mut found);
        assert!(!found.is_empty());
        for reference in found {
            assert!(document().pointer(&reference[1..]).is_some(), "{reference}");
        }
    }
}

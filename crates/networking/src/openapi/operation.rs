//! Operations, and the small pieces that they are made of.

use serde_json::{Map, Value, json};

/// A reference to something that is described once.
pub(super) fn refer(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

pub(super) fn schema(name: &str) -> Value {
    refer("schemas", name)
}

/// An object of that much: the entries of a JSON object.
pub(super) fn object(properties: Value) -> Value {
    with(json!({"type": "object"}), "properties", properties)
}

/// The same with one entry more.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    object[name] = value;
    object
}

/// An object of one entry, as bodies are.
pub(super) fn wrapped(name: &str, inner: Value) -> Value {
    with(object(with(json!({}), name, inner)), "required", json!([name]))
}

pub(super) fn list_of(name: &str) -> Value {
    json!({"type": "array", "items": schema(name)})
}

pub(super) fn content(kind: &str, schema: Value) -> Value {
    with(json!({}), kind, with(json!({}), "schema", schema))
}

/// An operation, put together piece by piece.
pub(super) struct Operation(pub(super) Value);

impl Operation {
    pub(super) fn new(tag: &str, summary: &str) -> Self {
        let mut responses = Map::new();
        for status in ["400", "401", "403", "404", "405", "413", "503"] {
            responses.insert(status.to_owned(), refer("responses", status));
        }
        Operation(json!({"tags": [tag], "summary": summary, "responses": responses, "parameters": []}))
    }

    pub(super) fn answers(mut self, status: &str, what: &str, schema: Value) -> Self {
        self.0["responses"][status] =
            json!({"description": what, "content": content("application/json", schema)});
        self
    }

    pub(super) fn answers_nothing(mut self) -> Self {
        self.0["responses"]["204"] = json!({"description": "done"});
        self
    }

    pub(super) fn takes(mut self, schema: Value) -> Self {
        self.0["requestBody"] = json!({"required": true, "content": content("application/json", schema)});
        self
    }

    pub(super) fn parameter(mut self, parameter: Value) -> Self {
        if let Some(parameters) = self.0["parameters"].as_array_mut() {
            parameters.push(parameter);
        }
        self
    }

    pub(super) fn parameters(self, names: &[&str]) -> Self {
        names.iter().fold(self, |operation, name| operation.parameter(refer("parameters", name)))
    }

    /// One that changes something: it can be a dry run, and it can be in the way of something.
    pub(super) fn changes(mut self) -> Self {
        self.0["responses"]["409"] = refer("responses", "409");
        let dry = json!({"description": "on a dry run, what would be done",
            "content": content("application/json", schema("dry_run"))});
        let told = &mut self.0["responses"]["200"];
        match told["content"]["application/json"]["schema"].take() {
            Value::Null => *told = dry,
            own => told["content"]["application/json"]["schema"] = json!({"anyOf": [own, schema("dry_run")]}),
        }
        self.parameters(&["dry_run"])
    }

    /// One that can be for a certain revision only.
    pub(super) fn conditional(mut self) -> Self {
        self.0["responses"]["412"] = refer("responses", "412");
        self.parameters(&["if_match"])
    }

    pub(super) fn without_token(mut self) -> Self {
        self.0["security"] = json!([]);
        if let Some(responses) = self.0["responses"].as_object_mut() {
            responses.retain(|status, _| status == "200");
        }
        self
    }
}

/// Why a request may be refused.
pub(super) fn refusals() -> Value {
    let refusals = [
        ("400", "the request makes no sense"),
        ("401", "there is no valid token"),
        ("403", "who asks may not do it"),
        ("404", "it is not there, or not for who asks"),
        ("405", "it cannot be done to such objects"),
        ("409", "it cannot be done as things are"),
        ("412", "it has another revision"),
        ("413", "the request is too large"),
        ("503", "the database cannot be used now"),
    ];
    let refused = |(status, what): (&str, &str)| {
        let error = if status == "401" { "no_token" } else { "error" };
        let refused = json!({"description": what, "content": content("application/json", schema(error))});
        (status.to_owned(), refused)
    };
    Value::Object(refusals.into_iter().map(refused).collect())
}

pub(super) fn in_path(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
}

pub(super) fn in_query(name: &str, schema: Value, what: &str) -> Value {
    with(json!({"name": name, "in": "query", "description": what}), "schema", schema)
}

//! What an object has, attribute by attribute. One table per resource says how a value is checked, who may set and who
//! may see it, and where it comes from: requests, answers, filters, sorting and the API's document all follow it.

use portcullis_ovn::Model;
use serde_json::{Map, Value};

use crate::caller::Caller;
use crate::error::Error;
use crate::kinds::Kind;

/// What an answer is seen against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub model: &'a Model,
    pub caller: &'a Caller,
}

/// Whether a request to create may, or must, have an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    No,
    Optional,
    Required,
}

/// One attribute of a resource.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[derive(Debug)]
pub(crate) struct Attribute<T: 'static> {
    pub name: &'static str,
    pub kind: Kind,
    pub post: Post,
    pub put: bool,
    pub get: fn(&T, &View<'_>) -> Value,
    /// Only administrators see it.
    pub admin_sees: bool,
    /// Only administrators give it a value other than this one.
    pub admin_sets: Option<fn() -> Value>,
    pub filter: bool,
    pub sort: bool,
}

impl<T> Attribute<T> {
    /// One that can be read.
    pub(crate) fn new(name: &'static str, kind: Kind, get: fn(&T, &View<'_>) -> Value) -> Self {
        let plain = kind.is_plain();
        Attribute {
            name,
            kind,
            post: Post::No,
            put: false,
            get,
            admin_sees: false,
            admin_sets: None,
            filter: plain,
            sort: plain,
        }
    }

    /// That a request to create must have.
    pub(crate) fn required(self) -> Self {
        Attribute { post: Post::Required, ..self }
    }

    /// That a request to create may have.
    pub(crate) fn post(self) -> Self {
        Attribute { post: Post::Optional, ..self }
    }

    /// That a request to change may have.
    pub(crate) fn put(self) -> Self {
        Attribute { put: true, ..self }
    }

    /// That only administrators see and set.
    pub(crate) fn admin(self) -> Self {
        Attribute { admin_sees: true, ..self.admin_sets(|| Value::Null) }
    }

    /// That only administrators set to something other than this.
    pub(crate) fn admin_sets(self, default: fn() -> Value) -> Self {
        Attribute { admin_sets: Some(default), ..self }
    }

    /// That lists can be filtered by, though it holds several values.
    pub(crate) fn filter(self) -> Self {
        Attribute { filter: true, ..self }
    }

    /// That lists can be filtered and sorted by, though its values are checked in a way of its own.
    pub(crate) fn query(self) -> Self {
        Attribute { filter: true, sort: true, ..self }
    }

    /// That lists cannot be sorted or filtered by.
    pub(crate) fn no_query(self) -> Self {
        Attribute { filter: false, sort: false, ..self }
    }
}

/// The checked attributes of a request. An attribute may be absent, which changes nothing, or null, which takes away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input(pub Map<String, Value>);

impl Input {
    /// Whether the request speaks of it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// What the request says; nothing if it does not speak of it.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    /// Yes or no.
    pub(crate) fn truth(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// What can be read from a text, such as an id or an address. `Some(None)` for null.
    #[allow(clippy::option_option, reason = "nothing said, null and a value are three things")]
    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Option<Option<T>> {
        self.0.get(name).map(|value| value.as_str().and_then(|text| text.parse().ok()))
    }

    /// The same of something that cannot be null.
    pub(crate) fn some<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.parsed(name).flatten()
    }

    /// A whole number. `Some(None)` for null.
    #[allow(clippy::option_option, reason = "nothing said, null and a value are three things")]
    pub(crate) fn number(&self, name: &str) -> Option<Option<i64>> {
        self.0.get(name).map(Value::as_i64)
    }

    /// The members of a list.
    pub(crate) fn list(&self, name: &str) -> Option<&[Value]> {
        self.0.get(name).map(|value| value.as_array().map_or(&[][..], Vec::as_slice))
    }

    /// What can be read from the texts of a list.
    pub(crate) fn parsed_list<T: std::str::FromStr>(&self, name: &str) -> Option<Vec<T>> {
        Some(self.list(name)?.iter().filter_map(|value| value.as_str()?.parse().ok()).collect())
    }
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Update,
}

/// Checks the attributes of a request, and gives them in their canonical form.
pub(crate) fn check<T>(
    attributes: &[Attribute<T>],
    action: Action,
    resource: &str,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Input, Error> {
    let known = |name: &str| attributes.iter().find(|attribute| attribute.name == name);
    let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|name| known(name).is_none()).collect();
    if !unknown.is_empty() {
        return Err(Error::bad_request(format!("Unrecognized attribute(s) '{}'", unknown.join(", "))));
    }
    for attribute in attributes {
        let present = given.contains_key(attribute.name);
        match action {
            Action::Create if present && attribute.post == Post::No => {
                return Err(Error::bad_request(format!(
                    "Attribute '{}' not allowed in POST",
                    attribute.name
                )));
            }
            Action::Create if !present && attribute.post == Post::Required => {
                return Err(Error::bad_request(format!(
                    "Failed to parse request. Required attribute '{}' not specified",
                    attribute.name
                )));
            }
            Action::Update if present && !attribute.put => {
                return Err(Error::bad_request(format!(
                    "Cannot update read-only attribute {}",
                    attribute.name
                )));
            }
            _ => {}
        }
    }
    let mut input = Map::new();
    for (name, value) in given {
        let Some(attribute) = known(name) else { continue };
        let value = attribute.kind.check(value).map_err(|reason| Error::invalid_attribute(name, reason))?;
        // In a change the usual value is one like any other: it undoes what an administrator set.
        let is_default =
            |default: fn() -> Value| action == Action::Create && (value == default() || value.is_null());
        if attribute.admin_sets.is_some_and(|default| !is_default(default)) && !caller.is_admin() {
            let verb = if action == Action::Create { "create" } else { "update" };
            return Err(Error::forbidden(&format!("{verb}_{resource}:{name}")));
        }
        input.insert(name.clone(), value);
    }
    Ok(Input(input))
}

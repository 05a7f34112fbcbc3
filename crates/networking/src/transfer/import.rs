use std::collections::BTreeSet;

use portcullis_core::Cidr;
use portcullis_ovn::objects::{AddressGroup, SecurityGroup};
use portcullis_ovn::{Draft, Stored};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{ADDRESS_GROUPS, GROUPS, project, yaml};
use crate::attributes::{Action, Input, check};
use crate::error::Error;
use crate::kinds::list;
use crate::query::flag;
use crate::request::Request;
use crate::resources::address_group::AddressGroups;
use crate::resources::security_group::{SecurityGroups, create_bare, ensure_default};
use crate::resources::{Context, Resource, common, rule_set};
use crate::server::{Answer, Networking, changeable};

/// Makes a project's groups those of the file in the body, in one transaction. Groups that the file does not have stay,
/// unless `prune` is asked for.
pub(crate) async fn answer(
    networking: &Networking,
    request: &Request,
    context: Context,
) -> Result<Answer, Error> {
    if !context.caller.is_member() {
        return Err(Error::forbidden("create_security_group"));
    }
    let text = std::str::from_utf8(&request.body).map_err(|_| Error::bad_request("The file is not UTF-8"))?;
    let file = yaml::read(text).map_err(Error::bad_request)?;
    let project = project(request, &context)?;
    let prune = flag(&request.query, "prune")?;
    networking
        .change(context, move |draft, context| {
            let mut import = Import { context, project: &project, told: Told::default() };
            import.all(draft, &file, prune)?;
            Ok(Answer::ok(json!({ "import": import.told.shown() })))
        })
        .await
}

/// What became of the groups, by name.
#[derive(Debug, Default)]
struct Told {
    created: Vec<String>,
    changed: Vec<String>,
    unchanged: Vec<String>,
    deleted: Vec<String>,
}

impl Told {
    fn shown(&self) -> Value {
        json!({
            "created": self.created,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "deleted": self.deleted,
        })
    }
}

struct Import<'a> {
    context: &'a Context,
    project: &'a str,
    told: Told,
}

/// An entry of the file, and the object that it is about.
struct Entry<'a> {
    id: Uuid,
    /// The id that the file knows it by, which may be that of a group elsewhere.
    known_as: Option<Uuid>,
    name: String,
    is_new: bool,
    attributes: &'a Map<String, Value>,
}

/// How an object is made.
type Create = fn(&mut Draft, &Context, &Input) -> Result<Uuid, Error>;

impl Import<'_> {
    fn all(&mut self, draft: &mut Draft, file: &Value, prune: bool) -> Result<(), Error> {
        let file = file.as_object().ok_or_else(|| Error::bad_request("The file is not a map"))?;
        let unknown: Vec<&str> =
            file.keys().map(String::as_str).filter(|key| ![GROUPS, ADDRESS_GROUPS].contains(key)).collect();
        if !unknown.is_empty() {
            return Err(Error::bad_request(format!("Unrecognized attribute(s) '{}'", unknown.join(", "))));
        }
        ensure_default(draft, self.context, self.project)?;
        let addresses =
            self.entries::<AddressGroups>(draft, file.get(ADDRESS_GROUPS), AddressGroups::create)?;
        for entry in &addresses {
            self.addresses(draft, entry)?;
        }
        let groups = self.entries::<SecurityGroups>(draft, file.get(GROUPS), create_bare)?;
        for entry in &groups {
            self.group(draft, entry, &groups, &addresses)?;
        }
        if prune {
            self.prune::<SecurityGroups>(draft, &groups, |group| group.is_default)?;
            if file.contains_key(ADDRESS_GROUPS) {
                self.prune::<AddressGroups>(draft, &addresses, |_| false)?;
            }
        }
        Ok(())
    }

    /// The objects of a list of the file; those that are missing are made.
    fn entries<'f, R: Resource>(
        &self,
        draft: &mut Draft,
        items: Option<&'f Value>,
        with_rules: Create,
    ) -> Result<Vec<Entry<'f>>, Error> {
        let mut entries: Vec<Entry<'f>> = Vec::new();
        let items = items.filter(|items| !items.is_null());
        let items = items.map_or(Ok(&[][..]), list);
        for item in items.map_err(|reason| Error::invalid_attribute(R::PLURAL, reason))? {
            let attributes =
                item.as_object().ok_or_else(|| Error::bad_request("Body contains invalid data"))?;
            let name = attributes.get("name").and_then(Value::as_str).map(str::to_owned);
            let name = name.ok_or_else(|| {
                Error::bad_request("Failed to parse request. Required attribute 'name' not specified")
            })?;
            let known_as =
                attributes.get("id").and_then(Value::as_str).and_then(|id| Uuid::try_parse(id).ok());
            let found = self.found::<R>(draft, known_as, &name)?;
            if entries.iter().any(|entry| Some(entry.id) == found) {
                return Err(Error::conflict("Conflict", format!("The file has {} '{name}' twice.", R::NAME)));
            }
            let id = if let Some(id) = found {
                id
            } else {
                let own = json!({"name": name, "project_id": self.project});
                let input = self.checked::<R>(Action::Create, &own)?;
                // Who brings its rules gets no others first, which would count.
                let create = if attributes.contains_key("rules") { with_rules } else { R::create };
                create(draft, self.context, &input)?
            };
            entries.push(Entry { id, known_as, name, is_new: found.is_none(), attributes });
        }
        Ok(entries)
    }

    /// The object that the file speaks of, if it is there.
    fn found<R: Resource>(&self, draft: &Draft, id: Option<Uuid>, name: &str) -> Result<Option<Uuid>, Error> {
        if let Some(object) = id.and_then(|id| draft.get::<R::Object>(id))
            && object.meta().project == self.project
        {
            return Ok(id);
        }
        if id.is_some() || name.is_empty() {
            return Ok(None);
        }
        let mut same = draft.named::<R::Object>(name).filter(|object| object.meta().project == self.project);
        match (same.next(), same.next()) {
            (Some(_), Some(_)) => Err(ambiguous(name)),
            (found, _) => Ok(found.map(|object| object.id())),
        }
    }

    fn checked<R: Resource>(&self, action: Action, attributes: &Value) -> Result<Input, Error> {
        let attributes = attributes.as_object().cloned().unwrap_or_default();
        check(R::attributes(), action, R::NAME, &self.context.caller, &attributes)
    }

    /// Says what became of an object that was there, or was made.
    fn tell<T: Stored>(&mut self, draft: &Draft, entry: &Entry<'_>, before: Option<u64>) {
        let after = draft.get::<T>(entry.id).map(|object| object.meta().revision);
        let list = match (entry.is_new, before == after) {
            (true, _) => &mut self.told.created,
            (false, true) => &mut self.told.unchanged,
            (false, false) => &mut self.told.changed,
        };
        list.push(entry.name.clone());
    }

    fn addresses(&mut self, draft: &mut Draft, entry: &Entry<'_>) -> Result<(), Error> {
        let old = changeable::<AddressGroups>(draft, self.context, entry.id, "update", None)?;
        let mut wanted = entry.attributes.clone();
        wanted.remove("id");
        let input = self.checked::<AddressGroups>(Action::Create, &Value::Object(wanted))?;
        let mut group = AddressGroup::clone(&old);
        if let Some(addresses) = input.parsed_list::<Cidr>("addresses") {
            group.addresses = addresses.into_iter().collect();
        }
        common::describe(&mut group.meta, &input);
        if group != *old {
            common::touch(&mut group.meta, self.context);
            draft.put(group);
        }
        self.tell::<AddressGroup>(draft, entry, Some(old.meta.revision));
        Ok(())
    }

    fn group(
        &mut self,
        draft: &mut Draft,
        entry: &Entry<'_>,
        groups: &[Entry<'_>],
        addresses: &[Entry<'_>],
    ) -> Result<(), Error> {
        let old = changeable::<SecurityGroups>(draft, self.context, entry.id, "update", None)?;
        let mut wanted = entry.attributes.clone();
        wanted.remove("id");
        let rules = wanted.remove("rules");
        let input = self.checked::<SecurityGroups>(Action::Update, &Value::Object(wanted))?;
        let differs = entry.name != old.meta.name
            || input.text("description").is_some_and(|text| text != old.meta.description)
            || input.truth("stateful").is_some_and(|stateful| stateful != old.stateful);
        if differs {
            SecurityGroups::update(draft, self.context, &old, &input)?;
        }
        if let Some(rules) = rules {
            let mut inputs = Vec::new();
            for rule in list(&rules).map_err(|reason| Error::invalid_attribute("rules", reason))? {
                let rule =
                    rule.as_object().ok_or_else(|| Error::bad_request("Body contains invalid data"))?;
                let mut rule = rule.clone();
                let remote = rule.remove("remote_group");
                self.remote::<SecurityGroups>(draft, &mut rule, "remote_group_id", remote, groups)?;
                let remote = rule.remove("remote_address_group");
                self.remote::<AddressGroups>(draft, &mut rule, "remote_address_group_id", remote, addresses)?;
                inputs.push(Value::Object(rule));
            }
            let inputs =
                rule_set::given(&json!({ "security_group_rules": inputs }), &self.context.caller, entry.id)?;
            rule_set::replace(draft, self.context, entry.id, &inputs)?;
        }
        self.tell::<SecurityGroup>(draft, entry, Some(old.meta.revision));
        Ok(())
    }

    /// Puts the id of a rule's other end in the place of what the file calls it.
    fn remote<R: Resource>(
        &self,
        draft: &Draft,
        rule: &mut Map<String, Value>,
        attribute: &str,
        called: Option<Value>,
        entries: &[Entry<'_>],
    ) -> Result<(), Error> {
        let Some(called) = called.filter(|called| !called.is_null()) else { return Ok(()) };
        let called = called.as_str().ok_or_else(|| Error::invalid_attribute(attribute, "it is no name"))?;
        let id = match Uuid::try_parse(called) {
            Ok(id) => entries.iter().find(|entry| entry.known_as == Some(id)).map_or(id, |entry| entry.id),
            Err(_) => self.found::<R>(draft, None, called)?.ok_or_else(|| R::not_found(called))?,
        };
        rule.insert(attribute.to_owned(), json!(id));
        Ok(())
    }

    /// Deletes what the file does not have.
    fn prune<R: Resource>(
        &mut self,
        draft: &mut Draft,
        entries: &[Entry<'_>],
        keep: impl Fn(&R::Object) -> bool,
    ) -> Result<(), Error> {
        let known: BTreeSet<Uuid> = entries.iter().map(|entry| entry.id).collect();
        let gone: Vec<_> = draft
            .of_project::<R::Object>(self.project, None)
            .filter(|object| !known.contains(&object.id()) && !keep(object))
            .cloned()
            .collect();
        for object in gone {
            R::delete(draft, self.context, &object)?;
            self.told.deleted.push(object.meta().name.clone());
        }
        Ok(())
    }
}

fn ambiguous(name: &str) -> Error {
    Error::conflict(
        "Conflict",
        format!("Several groups are called '{name}': the file must give the id of the one."),
    )
}

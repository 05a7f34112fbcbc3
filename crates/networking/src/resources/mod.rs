//! The resources of the API, one file each, and what they have in common.

pub(crate) mod address_group;
pub(crate) mod common;
pub(crate) mod default_rule;
pub(crate) mod floating_ip;
pub(crate) mod network;
pub(crate) mod port;
pub(crate) mod quota;
pub(crate) mod rbac_policy;
pub(crate) mod router;
pub(crate) mod rule;
pub(crate) mod rule_set;
mod same;
pub(crate) mod security_group;
pub(crate) mod subnet;

use std::cmp::Ordering;
use std::sync::Arc;

use portcullis_ovn::{Draft, Model, Stored};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::Settings;
use crate::attributes::{Attribute, Input, View};
use crate::caller::Caller;
use crate::error::Error;
use crate::query::{Query, encoded};

/// Who asks, when, under which settings.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub caller: Arc<Caller>,
    /// In seconds since 1970.
    pub now: i64,
    pub settings: Arc<Settings>,
    /// Whether nothing is to be changed, only told.
    pub dry_run: bool,
}

impl Context {
    pub(crate) fn view<'a>(&'a self, model: &'a Model) -> View<'a> {
        View { model, caller: &self.caller }
    }
}

/// A kind of object with its place in the API.
pub(crate) trait Resource: Send + Sync + 'static {
    type Object: Stored;

    /// In the words of a body: `security_group`.
    const NAME: &'static str;
    /// Several: `security_groups`.
    const PLURAL: &'static str;
    /// In an address: `security-groups`.
    const COLLECTION: &'static str;
    /// Filters besides the attributes; [`Resource::wants`] knows them.
    const FILTERS: &'static [&'static str] = &[];

    /// Attributes that the server chooses where a request to create says null.
    const CHOSEN: &'static [&'static str] = &[];

    fn attributes() -> &'static [Attribute<Self::Object>];

    /// The object of an id.
    fn get(model: &Model, id: Uuid) -> Option<&Arc<Self::Object>> {
        model.get(id)
    }

    /// That it is not there, or not for who asks.
    fn not_found(id: &str) -> Error;

    /// Whether who asks may know of an object.
    fn is_visible(object: &Self::Object, view: &View<'_>) -> bool {
        view.caller.owns(&object.meta().project)
    }

    /// Whether who asks may change an object it may know of.
    fn may_change(object: &Self::Object, view: &View<'_>) -> bool {
        view.caller.owns(&object.meta().project)
    }

    /// Whether who asks may remove an object it may know of.
    fn may_delete(object: &Self::Object, view: &View<'_>) -> bool {
        Self::may_change(object, view)
    }

    /// What somebody is told who may know of an object and may not change it.
    fn refusal(_object: &Self::Object, _view: &View<'_>, verb: &str) -> Error {
        Error::forbidden(&format!("{verb}_{}", Self::NAME))
    }

    /// The objects that a project may know of, and perhaps others: its own, those that policies give it, and what comes
    /// with them. A project's list costs what the project has, not what everybody has.
    fn near<'a>(model: &'a Model, project: &str) -> Vec<&'a Arc<Self::Object>> {
        own_and_given(model, project)
    }

    /// What a filter of [`Resource::FILTERS`] says.
    fn wants(_object: &Self::Object, _filter: &str, _values: &[String], _view: &View<'_>) -> bool {
        true
    }

    /// Fewer objects than all, of which those asked for are among; nothing if there is no short way to them.
    fn few<'a>(_query: &Query, _model: &'a Model) -> Option<Few<'a, Self::Object>> {
        None
    }

    /// The project that has to get something before a list is shown.
    fn needs_before_list(_model: &Model, _context: &Context, _query: &Query) -> Option<String> {
        None
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error>;

    /// Makes several at once, all or none.
    fn create_all(draft: &mut Draft, context: &Context, inputs: &[Input]) -> Result<Vec<Uuid>, Error> {
        inputs.iter().map(|input| Self::create(draft, context, input)).collect()
    }

    /// Whether a request to create could have made an object that has all that it asks for.
    fn is_meant(_object: &Self::Object, _input: &Input) -> bool {
        true
    }

    /// An object that is as a request to create wants one.
    fn same(draft: &Draft, context: &Context, input: &Input) -> Result<Option<Uuid>, Error>
    where
        Self: Sized,
    {
        same::by_attributes::<Self>(draft, context, input)
    }

    fn update(
        draft: &mut Draft,
        context: &Context,
        old: &Arc<Self::Object>,
        input: &Input,
    ) -> Result<(), Error>;
    fn delete(draft: &mut Draft, context: &Context, old: &Arc<Self::Object>) -> Result<(), Error>;
}

/// Objects that are looked up one after the other.
pub(crate) type Few<'a, T> = Box<dyn Iterator<Item = &'a Arc<T>> + 'a>;

/// Makes those that are not there already, and says whether there was one.
pub(crate) fn ensure_all<R: Resource>(
    draft: &mut Draft,
    context: &Context,
    inputs: &[Input],
) -> Result<(Vec<Uuid>, bool), Error> {
    let mut made = false;
    let mut ids = Vec::new();
    for input in inputs {
        let id = if let Some(id) = R::same(draft, context, input)? {
            id
        } else {
            made = true;
            R::create(draft, context, input)?
        };
        ids.push(id);
    }
    Ok((ids, made))
}

/// An object as its attributes.
pub(crate) fn shown<R: Resource>(object: &R::Object, view: &View<'_>, fields: &[String]) -> Value {
    let mut map = Map::new();
    for attribute in R::attributes() {
        let seen = !attribute.admin_sees || view.caller.is_admin();
        if seen && (fields.is_empty() || fields.iter().any(|field| field == attribute.name)) {
            map.insert(attribute.name.to_owned(), (attribute.get)(object, view));
        }
    }
    Value::Object(map)
}

/// The object of an id, if who asks may know of it.
pub(crate) fn find<'a, R: Resource>(view: &View<'a>, id: &str) -> Result<&'a Arc<R::Object>, Error> {
    let object = Uuid::try_parse(id).ok().and_then(|id| R::get(view.model, id));
    object.filter(|object| R::is_visible(object, view)).ok_or_else(|| R::not_found(id))
}

/// How many objects a member's list may look at that are not its own.
const BESIDES: usize = 64;

/// Objects of which those that a query is about are among, in order of their ids, each once; nothing if that is all of
/// them. A project's list costs what the project has, however much the others have of what it looks for.
fn candidates<'a, R: Resource>(view: &View<'a>, query: &Query) -> Option<Vec<&'a Arc<R::Object>>> {
    let model = view.model;
    let few = R::few(query, model);
    let mut some: Vec<&Arc<R::Object>> = if view.caller.is_admin() {
        let project = query.one("project_id").or_else(|| query.one("tenant_id"));
        few.or_else(|| Some(Box::new(model.of_project(project?, None))))?.collect()
    } else {
        let project = &view.caller.project;
        let own = usize::try_from(model.count::<R::Object>(project)).unwrap_or(usize::MAX);
        // Among all, a page of one's own comes together sooner than all of one's own.
        let sooner = |page: usize| page.saturating_mul(model.total::<R::Object>()) / own.max(1) < own;
        if query.filters.is_empty() && is_by_id(query) && query.limit.is_some_and(sooner) {
            return None;
        }
        let most = own.max(BESIDES);
        let few: Option<Vec<_>> = few.map(|few| few.take(most.saturating_add(1)).collect());
        few.filter(|few| few.len() <= most).unwrap_or_else(|| R::near(model, project))
    };
    some.sort_by_key(|object| object.id());
    some.dedup_by_key(|object| object.id());
    Some(some)
}

/// Whether a list comes as the model has it: by ids, from the first on.
fn is_by_id(query: &Query) -> bool {
    (query.sort.is_empty() || query.sort == [("id".to_owned(), true)]) && !query.reverse
}

/// The objects that a query is about, and where to go on.
pub(crate) fn list<'a, R: Resource>(view: &View<'a>, query: &Query, address: &str) -> Result<Value, Error> {
    let attributes = R::attributes();
    let wanted = |object: &&Arc<R::Object>| {
        R::is_visible(object, view)
            && query.wants(attributes, object, view)
            && query
                .filters
                .iter()
                .filter(|(name, _)| R::FILTERS.contains(&name.as_str()))
                .all(|(name, values)| R::wants(object, name, values, view))
    };
    let marker = query.marker.as_ref().map(|id| find::<R>(view, id)).transpose()?;
    let by_id = is_by_id(query);
    let most = query.limit.unwrap_or(usize::MAX);
    let candidates = candidates::<R>(view, query);
    let mut found: Vec<&Arc<R::Object>> = match candidates {
        // By id, and nothing shorter: the model goes straight to the page.
        None if by_id => view.model.all(marker.map(|marker| marker.id())).filter(wanted).take(most).collect(),
        Some(some) if by_id => {
            let seen = marker.map_or(0, |marker| some.partition_point(|object| object.id() <= marker.id()));
            some.into_iter().skip(seen).filter(wanted).take(most).collect()
        }
        candidates => {
            let keyed = |object: &'a Arc<R::Object>| (query.keys(attributes, object, view), object);
            let order = |one: &(Vec<Value>, &Arc<R::Object>), other: &(Vec<Value>, &Arc<R::Object>)| {
                query.order(&one.0, &other.0).then_with(|| one.1.id().cmp(&other.1.id()))
            };
            let mut found: Vec<_> = match candidates {
                Some(some) => some.into_iter().filter(wanted).map(keyed).collect(),
                None => view.model.all(None).filter(wanted).map(keyed).collect(),
            };
            found.sort_by(order);
            if query.reverse {
                found.reverse();
            }
            let side = if query.reverse { Ordering::Less } else { Ordering::Greater };
            let marker = marker.map(keyed);
            found
                .into_iter()
                .filter(|object| marker.as_ref().is_none_or(|marker| order(object, marker) == side))
                .take(most)
                .map(|(_, object)| object)
                .collect()
        }
    };
    if query.reverse {
        found.reverse();
    }
    let mut answer = Map::new();
    if let Some(limit) = query.limit {
        let links = links::<R>(query, limit, &found, address);
        answer.insert(format!("{}_links", R::PLURAL), Value::Array(links));
    }
    let shown: Vec<Value> = found.into_iter().map(|object| shown::<R>(object, view, &query.fields)).collect();
    answer.insert(R::PLURAL.to_owned(), Value::Array(shown));
    Ok(Value::Object(answer))
}

/// Where the pages before and after are. As Neutron has it, only a page that is not full says that it is the last one in
/// its direction, and behind an empty one comes the first of the other direction: clients walk to and fro by that.
fn links<R: Resource>(query: &Query, limit: usize, found: &[&Arc<R::Object>], address: &str) -> Vec<Value> {
    let link = |rel: &str, marker: Option<&&Arc<R::Object>>, reverse: bool| {
        let mut pairs: Vec<(String, String)> = Vec::new();
        pairs.push(("limit".into(), limit.to_string()));
        pairs.extend(marker.map(|object| ("marker".into(), object.id().to_string())));
        if reverse {
            pairs.push(("page_reverse".into(), "True".into()));
        }
        for (name, values) in &query.filters {
            pairs.extend(values.iter().map(|value| (name.clone(), value.clone())));
        }
        pairs.extend(query.fields.iter().map(|field| ("fields".to_owned(), field.clone())));
        for (key, ascending) in &query.sort {
            pairs.push(("sort_key".into(), key.clone()));
            pairs.push(("sort_dir".into(), if *ascending { "asc" } else { "desc" }.into()));
        }
        let pairs: Vec<String> =
            pairs.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
        json!({"rel": rel, "href": format!("{address}?{}", pairs.join("&"))})
    };
    let mut links = Vec::new();
    let full = found.len() >= limit;
    if full || query.reverse {
        links.push(link("next", found.last(), false));
    }
    if full || !query.reverse {
        links.push(link("previous", found.first(), true));
    }
    links
}

/// The objects of a project, and those that policies give it.
fn own_and_given<'a, T: Stored>(model: &'a Model, project: &str) -> Vec<&'a Arc<T>> {
    let policies = model.policies_for(project).chain(model.policies_for("*"));
    let given = policies.filter_map(|policy| model.get::<T>(policy.object));
    model.of_project::<T>(project, None).chain(given).collect()
}

/// The objects of an id or a name that is asked for, which are few.
fn by_id_or_name<'a, T: Stored>(query: &Query, model: &'a Model) -> Option<Few<'a, T>> {
    if let Some((_, ids)) = query.filters.iter().find(|(name, _)| name == "id") {
        let ids: Vec<Uuid> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        return Some(Box::new(ids.into_iter().filter_map(|id| model.get(id))));
    }
    let name = query.one("name").filter(|name| !name.is_empty())?;
    Some(Box::new(model.named(name)))
}

/// Removes what was said about who else may use an object, with the object.
fn remove_policies(draft: &mut Draft, object: Uuid) {
    let policies: Vec<Uuid> = draft.policies_of(object).map(|policy| policy.meta.id).collect();
    for policy in policies {
        draft.remove::<portcullis_ovn::objects::RbacPolicy>(policy);
    }
}

#[cfg(test)]
mod tests {
    use portcullis_ovn::objects::{FixedIp, Meta, Network, Port, SecurityGroup, Subnet};

    use super::port::Ports;
    use super::security_group::SecurityGroups;
    use super::*;

    /// A thousand projects, each with a default group, and with a port in a network of the first one's.
    fn many() -> Model {
        let mut model = Model::default();
        let meta = |id: u128, project: u128| Meta {
            id: Uuid::from_u128(id),
            project: format!("p{project}"),
            ..Meta::default()
        };
        let network = Uuid::from_u128(1);
        model.put(Network { meta: meta(1, 0), ..Network::default() });
        for number in 0..1000 {
            let name = "default".to_owned();
            let group = SecurityGroup {
                meta: Meta { name, ..meta(2000 + number, number) },
                ..SecurityGroup::default()
            };
            model.put(SecurityGroup { is_default: true, ..group });
            model.put(Port { meta: meta(4000 + number, number), network, ..Port::default() });
        }
        model
    }

    #[test]
    fn a_list_costs_what_the_project_has() {
        let model = many();
        let caller = Caller { project: "p7".into(), roles: vec!["member".into()], ..Caller::default() };
        let view = View { model: &model, caller: &caller };
        let query = |name: &str, value: String| Query {
            filters: vec![(name.into(), vec![value])],
            ..Query::default()
        };
        let ids = |found: Option<Vec<&Arc<Port>>>| -> Vec<u128> {
            found.unwrap().into_iter().map(|port| port.meta.id.as_u128()).collect()
        };
        let groups = candidates::<SecurityGroups>(&view, &query("name", "default".into())).unwrap();
        assert_eq!(groups.iter().map(|group| group.meta.id.as_u128()).collect::<Vec<_>>(), [2007]);
        for query in [query("device_id", String::new()), query("network_id", Uuid::from_u128(1).to_string())]
        {
            assert_eq!(ids(candidates::<Ports>(&view, &query)), [4007], "{query:?}");
        }

        // Who has most of them gets a page straight from all; who has few gets what is its own.
        let mut many = model.clone();
        for number in 0..5000 {
            let meta = Meta { id: Uuid::from_u128(10_000 + number), project: "p7".into(), ..Meta::default() };
            many.put(Port { meta, ..Port::default() });
        }
        let page = Query { limit: Some(100), ..Query::default() };
        let of = |project: &str| {
            let caller = Caller { project: project.into(), ..caller.clone() };
            candidates::<Ports>(&View { model: &many, caller: &caller }, &page).map(|found| found.len())
        };
        assert_eq!((of("p7"), of("p9")), (None, Some(1)));

        let admin = Caller { roles: vec!["admin".into()], ..caller.clone() };
        let view = View { model: &model, caller: &admin };
        assert_eq!(ids(candidates::<Ports>(&view, &query("project_id", "p9".into()))), [4009]);
        assert!(candidates::<Ports>(&view, &Query::default()).is_none());
        let twice = Query {
            filters: vec![("id".into(), vec![Uuid::from_u128(4009).to_string(); 2])],
            ..Query::default()
        };
        assert_eq!(ids(candidates::<Ports>(&view, &twice)), [4009]);
    }

    #[test]
    fn an_address_leads_to_its_port() {
        let mut model = many();
        let (network, subnet) = (Uuid::from_u128(1), Uuid::from_u128(3));
        let meta = |id: u128| Meta { id: Uuid::from_u128(id), ..Meta::default() };
        model.put(Subnet { meta: meta(3), network, ..Subnet::default() });
        let address = "10.0.0.7".parse().unwrap();
        let mac = "fa:16:3e:00:00:07".parse().unwrap();
        let fixed_ips = vec![FixedIp { subnet, address }];
        model.put(Port { meta: meta(9000), network, mac, fixed_ips, ..Port::default() });
        let admin = Caller { roles: vec!["admin".into()], ..Caller::default() };
        let view = View { model: &model, caller: &admin };
        for (name, value) in [("fixed_ips", "ip_address=10.0.0.7"), ("mac_address", "fa:16:3e:00:00:07")] {
            let query = Query { filters: vec![(name.into(), vec![value.into()])], ..Query::default() };
            let found = candidates::<Ports>(&view, &query).unwrap();
            assert_eq!(found.iter().map(|port| port.meta.id.as_u128()).collect::<Vec<_>>(), [9000], "{name}");
        }
    }
}

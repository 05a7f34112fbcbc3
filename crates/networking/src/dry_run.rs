//! What a change would do, without doing it.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::{Direction, Reach};
use portcullis_ovn::objects::{Kind, Port, Rule};
use portcullis_ovn::{Draft, Model, Store};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::access;
use crate::resources::port::Ports;
use crate::resources::{Context, Resource};
use crate::server::{Answer, Content};

/// How many ports are named that have the same change.
const NAMED: usize = 200;

/// Tells what a change would do to the database and to who reaches whom, and what it would be answered with.
pub(crate) fn told(store: &Store, draft: &Draft, context: &Context, answer: Answer) -> Answer {
    let transaction = store.transaction(draft);
    let result = match answer.body {
        Content::Json(value) => value,
        Content::Nothing | Content::Yaml(_) => Value::Null,
    };
    Answer::ok(json!({"dry_run": {
        "transaction": transaction,
        "result": result,
        "reach": reach(draft, context),
    }}))
}

/// What decides on a port's packets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Filter {
    /// It is not there, or it is down.
    Closed,
    /// Nothing is filtered.
    Open,
    Groups(Vec<Uuid>),
}

impl Filter {
    fn of(model: &Model, port: Uuid) -> Self {
        match model.get::<Port>(port) {
            Some(port) if !port.admin_state_up => Filter::Closed,
            Some(port) if !port.port_security => Filter::Open,
            Some(port) => {
                let mut groups = port.security_groups.clone();
                groups.sort_unstable();
                Filter::Groups(groups)
            }
            None => Filter::Closed,
        }
    }

    fn reach(&self, model: &Model, direction: Direction) -> Reach {
        match self {
            Filter::Closed => Reach::nobody(),
            Filter::Open => access::everything(direction),
            Filter::Groups(groups) => access::reach(model, groups, direction),
        }
    }
}

/// The ports whose traffic may change.
fn affected(draft: &Draft) -> BTreeSet<Uuid> {
    let mut ports = BTreeSet::new();
    let mut groups = BTreeSet::new();
    for model in [draft.base(), draft.model()] {
        for (kind, id) in draft.touched() {
            match kind {
                Kind::Rule => groups.extend(model.get::<Rule>(id).map(|rule| rule.group)),
                Kind::SecurityGroup => drop(groups.insert(id)),
                Kind::AddressGroup => groups.extend(model.rules_to(id).map(|rule| rule.group)),
                Kind::Port => {
                    ports.insert(id);
                    // Who lets the port's groups in lets its addresses in.
                    let own = model.get::<Port>(id).map_or(&[][..], |port| &port.security_groups);
                    groups.extend(own.iter().flat_map(|group| model.rules_to(*group)).map(|rule| rule.group));
                }
                _ => {}
            }
        }
    }
    for model in [draft.base(), draft.model()] {
        let members = groups.iter().flat_map(|group| model.ports_of_group(*group));
        ports.extend(members.map(|port| port.meta.id));
    }
    // Routers and the like are no ends of traffic.
    ports.retain(|id| {
        let port = draft.get::<Port>(*id).or_else(|| draft.base().get::<Port>(*id));
        port.is_some_and(|port| !port.device_owner.starts_with("network:"))
    });
    ports
}

/// What becomes reachable and what unreachable: ports with the same change together.
fn reach(draft: &Draft, context: &Context) -> Value {
    let (before, after): (&Model, &Model) = (draft.base(), draft.model());
    let mut ports_of: BTreeMap<(Filter, Filter), Vec<Uuid>> = BTreeMap::new();
    for port in affected(draft) {
        let filters = (Filter::of(before, port), Filter::of(after, port));
        ports_of.entry(filters).or_default().push(port);
    }
    let mut changes: Vec<(Value, Vec<Uuid>)> = Vec::new();
    for ((old, new), ports) in ports_of {
        let mut change = Map::new();
        for (direction, name) in [(Direction::Ingress, "ingress"), (Direction::Egress, "egress")] {
            let (old, new) = (old.reach(before, direction), new.reach(after, direction));
            let mut parts = Map::new();
            for (part, reach) in
                [("opened", Reach::widened(&old, &new)), ("closed", Reach::widened(&new, &old))]
            {
                if !reach.is_nobody() {
                    parts.insert(part.to_owned(), json!({"text": reach.to_string(), "entries": reach}));
                }
            }
            if !parts.is_empty() {
                change.insert(name.to_owned(), Value::Object(parts));
            }
        }
        let change = Value::Object(change);
        match changes.iter_mut().find(|(known, _)| *known == change) {
            _ if change == json!({}) => {}
            Some((_, known)) => known.extend(ports),
            None => changes.push((change, ports)),
        }
    }
    let shown: Vec<Value> = changes
        .into_iter()
        .map(|(mut change, ports)| {
            let visible = |id: &&Uuid| {
                let seen = |model: &Model| {
                    model.get::<Port>(**id).is_some_and(|port| Ports::is_visible(port, &context.view(model)))
                };
                seen(after) || seen(before)
            };
            let named: Vec<&Uuid> = ports.iter().filter(visible).take(NAMED).collect();
            change["ports"] = json!(named);
            change["count"] = json!(ports.len());
            change
        })
        .collect();
    json!({ "changes": shown })
}

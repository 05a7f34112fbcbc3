//! What a change would do, without doing it.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use portcullis_core::{Direction, Reach};
use portcullis_ovn::objects::{FloatingIp, Kind, Port, Router, Rule};
use portcullis_ovn::{Draft, Model, Store};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::access;
use crate::attributes::View;
use crate::error::Error;
use crate::resources::address_group::AddressGroups;
use crate::resources::floating_ip::FloatingIps;
use crate::resources::network::Networks;
use crate::resources::port::Ports;
use crate::resources::router::Routers;
use crate::resources::rule::Rules;
use crate::resources::security_group::SecurityGroups;
use crate::resources::subnet::Subnets;
use crate::resources::{Context, Resource};
use crate::server::{Answer, Content};

/// How many ports are named that have the same change.
const NAMED: usize = 200;

/// Decides on a change and tells what it would be.
pub(crate) async fn answer(
    store: Store,
    context: Context,
    mut decide: impl FnMut(&mut Draft, &Context) -> Result<Answer, Error> + Send + 'static,
) -> Result<Answer, Error> {
    let tell = move || {
        let mut draft = Draft::new(store.model());
        let answer = decide(&mut draft, &context)?;
        Ok(told(&store, &draft, &context, answer))
    };
    // Where many ports are in large groups it takes a while, in which other requests are not to wait.
    let told = tokio::task::spawn_blocking(tell).await;
    told.unwrap_or_else(|error| {
        Err(Error::new(StatusCode::INTERNAL_SERVER_ERROR, "HTTPInternalServerError", error.to_string()))
    })
}

/// Tells what a change would do to the database and to who reaches whom, and what it would be answered with.
fn told(store: &Store, draft: &Draft, context: &Context, answer: Answer) -> Answer {
    let mut transaction = json!(store.transaction(draft));
    if let Some(operations) = transaction.as_array_mut() {
        operations.retain(|operation| !is_hidden(draft, context, operation));
    }
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

/// Whether an operation is on the row of an object that who asks may not know of.
fn is_hidden(draft: &Draft, context: &Context, operation: &Value) -> bool {
    fn hides<R: Resource>(view: &View<'_>, id: Uuid) -> bool {
        R::get(view.model, id).is_some_and(|object| !R::is_visible(object, view))
    }
    let row = operation.pointer("/where/0/2/1").and_then(Value::as_str);
    let Some(id) = row.and_then(|row| Uuid::try_parse(row).ok()) else { return false };
    [draft.base().as_ref(), draft.model()].into_iter().any(|model| {
        let view = context.view(model);
        hides::<Networks>(&view, id)
            || hides::<Subnets>(&view, id)
            || hides::<Ports>(&view, id)
            || hides::<Routers>(&view, id)
            || hides::<FloatingIps>(&view, id)
            || hides::<SecurityGroups>(&view, id)
            || hides::<Rules>(&view, id)
            || hides::<AddressGroups>(&view, id)
    })
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
}

/// What groups let through, each looked at once.
struct Reaches<'a> {
    view: View<'a>,
    of_group: BTreeMap<(Uuid, Direction), Reach>,
}

impl<'a> Reaches<'a> {
    fn new(view: View<'a>) -> Self {
        Reaches { view, of_group: BTreeMap::new() }
    }

    fn of_group(&mut self, group: Uuid, direction: Direction) -> &Reach {
        let view = self.view;
        self.of_group.entry((group, direction)).or_insert_with(|| access::reach(&view, group, direction))
    }

    fn of(&mut self, filter: &Filter, direction: Direction) -> Reach {
        match filter {
            Filter::Closed => Reach::nobody(),
            Filter::Open => access::everything(direction),
            Filter::Groups(groups) => groups
                .iter()
                .fold(Reach::nobody(), |reach, group| reach.union(self.of_group(*group, direction))),
        }
    }
}

/// Whether a port is filtered as before, by groups that let through what they did.
fn is_as_before(
    (before, old): (&mut Reaches<'_>, &Filter),
    (after, new): (&mut Reaches<'_>, &Filter),
    direction: Direction,
) -> bool {
    let same = |group: &Uuid| before.of_group(*group, direction) == after.of_group(*group, direction);
    old == new && matches!(new, Filter::Groups(groups) if groups.iter().all(same))
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

/// What becomes reachable and what unreachable: ports with the same change together. Of other projects' ports only how
/// many they are: what their groups let through is theirs to know.
fn reach(draft: &Draft, context: &Context) -> Value {
    let (before, after): (&Model, &Model) = (draft.base(), draft.model());
    let is_own = |id: Uuid| {
        let mut ports = [after, before].into_iter().filter_map(|model| model.get::<Port>(id));
        ports.any(|port| context.caller.owns(&port.meta.project))
    };
    let mut ports_of: BTreeMap<(Filter, Filter, bool), Vec<Uuid>> = BTreeMap::new();
    for port in affected(draft) {
        let filters = (Filter::of(before, port), Filter::of(after, port), is_own(port));
        ports_of.entry(filters).or_default().push(port);
    }
    let (mut was, mut will_be) = (Reaches::new(context.view(before)), Reaches::new(context.view(after)));
    let mut others = 0;
    let mut changes: Vec<(Value, Vec<Uuid>)> = Vec::new();
    for ((old, new, is_own), ports) in ports_of {
        let mut change = Map::new();
        for (direction, name) in [(Direction::Ingress, "ingress"), (Direction::Egress, "egress")] {
            if is_as_before((&mut was, &old), (&mut will_be, &new), direction) {
                continue;
            }
            let (old, new) = (was.of(&old, direction), will_be.of(&new, direction));
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
            _ if !is_own => others += ports.len(),
            Some((_, known)) => known.extend(ports),
            None => changes.push((change, ports)),
        }
    }
    let shown: Vec<Value> = changes
        .into_iter()
        .map(|(mut change, ports)| {
            change["ports"] = ports.iter().take(NAMED).map(|id| json!(id)).collect();
            change["count"] = json!(ports.len());
            change
        })
        .collect();
    let (had, has) = (ways(draft, before, context), ways(draft, after, context));
    json!({
        "changes": shown,
        "others": others,
        "ways": {
            "opened": has.difference(&had).collect::<Vec<_>>(),
            "closed": had.difference(&has).collect::<Vec<_>>(),
        },
    })
}

/// Where packets can go by the routers and floating addresses that are changed, as far as who asks may know of them.
fn ways(draft: &Draft, model: &Model, context: &Context) -> BTreeSet<String> {
    let view = context.view(model);
    let mut ways = BTreeSet::new();
    let mut routers = BTreeSet::new();
    for (kind, id) in draft.touched() {
        match kind {
            Kind::Router => drop(routers.insert(id)),
            Kind::Port => routers.extend(
                [draft.base(), draft.model()].into_iter().filter_map(|model| model.get::<Port>(id)?.router()),
            ),
            Kind::FloatingIp => {
                let floating =
                    model.get::<FloatingIp>(id).filter(|found| FloatingIps::is_visible(found, &view));
                let led =
                    floating.and_then(|found| Some((found.address, found.fixed_address?, found.fixed_port?)));
                ways.extend(led.map(|(from, to, port)| format!("{from} leads to {to} of port {port}")));
            }
            _ => {}
        }
    }
    let routers = routers.into_iter().filter_map(|id| model.get::<Router>(id));
    for router in routers.filter(|router| router.admin_state_up && Routers::is_visible(router, &view)) {
        let id = router.meta.id;
        for port in model.ports_of_router(id).filter(|port| port.admin_state_up) {
            let addresses = port.fixed_ips.iter().map(|fixed| fixed.address);
            ways.extend(
                addresses.map(|address| format!("router {id} is {address} in network {}", port.network)),
            );
        }
        let routes = router.routes.iter().map(|route| (route.destination, route.nexthop));
        ways.extend(routes.map(|(to, hop)| format!("router {id} sends what is for {to} to {hop}")));
    }
    ways
}

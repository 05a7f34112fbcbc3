//! `POST /v2.0/explain`: whether a packet passes, and who says so.
//!
//! It is about the first packet of a connection. A stateful group lets the answer pass by itself; with a stateless one
//! each way is a question of its own.

mod end;
mod question;
mod text;

use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::Direction;
use portcullis_ovn::Model;
use portcullis_ovn::objects::{Network, Port, Router, Subnet};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) use self::question::PARTS;

use self::end::{End, Said};
use self::question::{Named, Packet, Question, Who};
use crate::attributes::View;
use crate::error::Error;
use crate::request::Request;
use crate::resources::port::Ports;
use crate::resources::router::Routers;
use crate::resources::rule::Rules;
use crate::resources::{Context, Resource, find};
use crate::server::{Answer, Networking};

/// Answers a question.
pub(crate) fn answer(networking: &Networking, request: &Request, context: &Context) -> Result<Answer, Error> {
    let body = request.json()?;
    let question = Question::read(body.get("explain").unwrap_or(&body))?;
    let model = networking.store().model();
    let view = context.view(&model);
    let port = |id: Uuid| find::<Ports>(&view, &id.to_string());
    let packet = &question.packet;
    let (ends, path) = match &question.who {
        Who::One { port: id, direction, remote, local } => {
            let port = port(*id)?;
            let local = match local {
                Some(local) => *local,
                None => address_of(port, |address| address.is_ipv4() == remote.is_ipv4())?,
            };
            (vec![said(&model, port, packet, *direction, local, *remote)?], None)
        }
        Who::Two { from, to, version } => between(&view, packet, *from, *to, *version)?,
    };
    let is_joined = path.as_ref().is_none_or(Result::is_ok);
    let passes = is_joined && ends.iter().all(|end| end.decision.passes());
    let mut lines: Vec<String> = ends.iter().map(|end| text::of_end(&view, end)).collect();
    if let Some(Err(why)) = &path {
        lines.push(format!("{why}\n"));
    }
    let mut explained = json!({
        "verdict": verdict(passes),
        "ends": ends.iter().map(|end| shown(&view, end)).collect::<Vec<_>>(),
        "text": lines.concat(),
    });
    if let Some(path) = path {
        explained["path"] = json!(path.unwrap_or_else(|why| why));
    }
    Ok(Answer::ok(json!({ "explain": explained })))
}

/// What each end says that is a port of ours, and how packets get from one to the other if both are.
fn between<'a>(
    view: &View<'a>,
    packet: &Packet,
    from: Named,
    to: Named,
    version: Option<i64>,
) -> Result<(Vec<Said<'a>>, Option<Path>), Error> {
    let (sender, receiver) = (port_of(view, from, "from_port_id")?, port_of(view, to, "to_port_id")?);
    let is_v4 = from.address.or(to.address).map(|address| address.is_ipv4());
    let is_v4 = is_v4.or_else(|| version.map(|version| version == 4));
    let has = |port: Option<&Arc<Port>>, v4: bool| {
        port.is_none_or(|port| port.fixed_ips.iter().any(|fixed| fixed.address.is_ipv4() == v4))
    };
    // Without a word on it, the first family that both have.
    let is_wanted = |address: &IpAddr, other: Option<&Arc<Port>>| {
        is_v4.map_or_else(|| has(other, address.is_ipv4()), |v4| address.is_ipv4() == v4)
    };
    let address =
        |end: Named, port: Option<&Arc<Port>>, wanted: &dyn Fn(&IpAddr) -> bool| match (end.address, port) {
            (Some(address), _) => Ok(address),
            (None, Some(port)) => address_of(port, wanted),
            (None, None) => Err(Error::invalid_input("an end has neither a port nor an address")),
        };
    let source = address(from, sender, &|address| is_wanted(address, receiver))?;
    let target = address(to, receiver, &|address| address.is_ipv4() == source.is_ipv4())?;
    let mut ends = Vec::new();
    if let Some(port) = sender {
        ends.push(said(view.model, port, packet, Direction::Egress, source, target)?);
    }
    if let Some(port) = receiver {
        ends.push(said(view.model, port, packet, Direction::Ingress, target, source)?);
    }
    match (sender, receiver) {
        (Some(one), Some(other)) if one.meta.id == other.meta.id => Err(question::itself()),
        (Some(sender), Some(receiver)) => Ok((ends, Some(path(view, (sender, source), (receiver, target))))),
        (None, None) => Err(Error::invalid_input(format!(
            "neither {source} nor {target} is an address of a port: one end must be a port of yours"
        ))),
        _ => Ok((ends, None)),
    }
}

/// The port that is meant by a name; nothing if it is an address that none has of whom who asks may know.
fn port_of<'a>(view: &View<'a>, named: Named, part: &str) -> Result<Option<&'a Arc<Port>>, Error> {
    let address = match (named.port, named.address) {
        (Some(id), _) => return find::<Ports>(view, &id.to_string()).map(Some),
        (None, Some(address)) => address,
        (None, None) => return Ok(None),
    };
    let model = view.model;
    let subnets = model.all::<Subnet>(None).filter(|subnet| subnet.cidr.contains(address));
    let holders = subnets.filter_map(|subnet| model.get::<Port>(model.holder(subnet.meta.id, address)?));
    // What keeps a floating address is plugged into nothing.
    let holders = holders.filter(|port| !port.is_floating_ip() && Ports::is_visible(port, view));
    let holders: Vec<&Arc<Port>> = holders.collect();
    if let [_, _, ..] = holders.as_slice() {
        let names: Vec<String> = holders
            .iter()
            .map(|port| format!("{} (network {})", port.meta.id, text::network(model, port.network)))
            .collect();
        return Err(Error::invalid_input(format!(
            "{address} is an address of several ports: say which by {part}: {}",
            names.join(", ")
        )));
    }
    Ok(holders.first().copied())
}

/// How packets get from one port to another; or why they do not.
type Path = Result<String, String>;

fn verdict(passes: bool) -> &'static str {
    if passes { "allow" } else { "drop" }
}

fn said<'a>(
    model: &'a Model,
    port: &'a Arc<Port>,
    packet: &Packet,
    direction: Direction,
    local: IpAddr,
    remote: IpAddr,
) -> Result<Said<'a>, Error> {
    End { model, port, direction, local, remote }.decide(packet)
}

/// The first address of a port that is as it should be.
fn address_of(port: &Port, wanted: impl Fn(&IpAddr) -> bool) -> Result<IpAddr, Error> {
    let mut addresses = port.fixed_ips.iter().map(|fixed| fixed.address);
    addresses.find(wanted).ok_or_else(|| {
        Error::invalid_input(format!(
            "port {} has no address of the family of the other end: give one as local_ip",
            port.meta.id
        ))
    })
}

/// How packets get from one port to another; or that they do not.
fn path(view: &View<'_>, from: (&Port, IpAddr), to: (&Port, IpAddr)) -> Path {
    let model = view.model;
    if from.0.network == to.0.network {
        return Ok("the same network".to_owned());
    }
    let others: Vec<Uuid> = routers(model, to).collect();
    let common = routers(model, from).find(|router| others.contains(router));
    let Some(router) = common.and_then(|router| model.get::<Router>(router)) else {
        let name =
            |id: Uuid| model.get::<Network>(id).map_or_else(|| id.to_string(), |n| text::name(&n.meta));
        return Err(format!(
            "no router joins the networks {} and {}: it would be up, with interfaces that are up in the subnets of {} and {}",
            name(from.0.network),
            name(to.0.network),
            from.1,
            to.1
        ));
    };
    let is_known = Routers::is_visible(router, view);
    Ok(if is_known { format!("router {}", router.meta.id) } else { "a router of another project".to_owned() })
}

/// The routers that carry packets to and from an address of a port.
fn routers(model: &Model, (port, address): (&Port, IpAddr)) -> impl Iterator<Item = Uuid> {
    let subnet = port.fixed_ips.iter().find(|fixed| fixed.address == address).map(|fixed| fixed.subnet);
    let doors = subnet.into_iter().flat_map(|subnet| model.ports_of_subnet(subnet));
    doors.filter(|door| door.admin_state_up).filter_map(move |door| {
        let router = model.get::<Router>(door.router()?).filter(|router| router.admin_state_up)?;
        // Outside, what comes from inside is seen in the router's name.
        let hides = door.device_owner == Port::ROUTER_GATEWAY
            && address.is_ipv4()
            && router.gateway.as_ref().is_some_and(|gateway| gateway.snat);
        (!hides).then_some(router.meta.id)
    })
}

fn shown(view: &View<'_>, said: &Said<'_>) -> Value {
    let rules: Vec<Value> = said
        .rules
        .iter()
        .filter(|(rule, _)| Rules::is_visible(rule, view))
        .map(|(rule, mismatch)| {
            json!({
                "rule_id": rule.meta.id,
                "group_id": rule.group,
                "group": text::group(view, rule.group),
                "rule": text::rule(view, rule),
                "allows": mismatch.is_none(),
                "why_not": mismatch,
            })
        })
        .collect();
    let mut decided = json!({"by": said.decision.by(), "text": said.decision.text(view)});
    if let end::Decision::Rule(rule) = &said.decision
        && Rules::is_visible(rule, view)
    {
        decided["rule_id"] = json!(rule.meta.id);
        decided["group_id"] = json!(rule.group);
    }
    json!({
        "port_id": said.end.port.meta.id,
        "network_id": said.end.port.network,
        "direction": said.end.direction,
        "local_ip": said.end.local,
        "remote_ip": said.end.remote,
        "verdict": verdict(said.decision.passes()),
        "stateful": said.stateful,
        "decided": decided,
        "rules": rules,
        "to_allow": text::to_allow(view, said),
    })
}

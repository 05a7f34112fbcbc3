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
use portcullis_ovn::objects::{Network, Port, Router};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) use self::question::PARTS;

use self::end::{End, Said};
use self::question::{Packet, Question, Who};
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
        Who::Two { from, to, version } => {
            let (from, to) = (port(*from)?, port(*to)?);
            let wanted = |address: &IpAddr| version.is_none_or(|version| address.is_ipv4() == (version == 4));
            let has =
                |port: &Port, v4: bool| port.fixed_ips.iter().any(|fixed| fixed.address.is_ipv4() == v4);
            let sender = address_of(from, |address| wanted(address) && has(to, address.is_ipv4()))?;
            let receiver = address_of(to, |address| address.is_ipv4() == sender.is_ipv4())?;
            let ends = vec![
                said(&model, from, packet, Direction::Egress, sender, receiver)?,
                said(&model, to, packet, Direction::Ingress, receiver, sender)?,
            ];
            (ends, Some(path(&view, (from, sender), (to, receiver))))
        }
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
fn path(view: &View<'_>, from: (&Port, IpAddr), to: (&Port, IpAddr)) -> Result<String, String> {
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

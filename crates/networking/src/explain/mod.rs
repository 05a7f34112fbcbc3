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
use portcullis_ovn::objects::{Network, Port};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) use self::question::PARTS;

use self::end::{End, Said};
use self::question::{Packet, Question, Who};
use crate::error::Error;
use crate::request::Request;
use crate::resources::port::Ports;
use crate::resources::{Context, find};
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
            (ends, Some(path(&model, from, to)))
        }
    };
    let is_joined = path.as_ref().is_none_or(Result::is_ok);
    let passes = is_joined && ends.iter().all(|end| end.decision.passes());
    let mut lines: Vec<String> = ends.iter().map(|end| text::of_end(&model, end)).collect();
    if let Some(Err(why)) = &path {
        lines.push(format!("{why}\n"));
    }
    let mut explained = json!({
        "verdict": verdict(passes),
        "ends": ends.iter().map(|end| shown(&model, end)).collect::<Vec<_>>(),
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
fn path(model: &Model, from: &Port, to: &Port) -> Result<String, String> {
    if from.network == to.network {
        return Ok("the same network".to_owned());
    }
    let routers = |network: Uuid| model.ports_of_network(network).filter_map(|port| port.router());
    let common = routers(from.network).find(|router| routers(to.network).any(|other| other == *router));
    common.map(|router| format!("router {router}")).ok_or_else(|| {
        let name =
            |id: Uuid| model.get::<Network>(id).map_or_else(|| id.to_string(), |n| text::name(&n.meta));
        format!("no router joins the networks {} and {}", name(from.network), name(to.network))
    })
}

fn shown(model: &Model, said: &Said<'_>) -> Value {
    let rules: Vec<Value> = said
        .rules
        .iter()
        .map(|(rule, mismatch)| {
            json!({
                "rule_id": rule.meta.id,
                "group_id": rule.group,
                "group": text::group(model, rule.group),
                "rule": text::rule(model, rule),
                "allows": mismatch.is_none(),
                "why_not": mismatch,
            })
        })
        .collect();
    let mut decided = json!({"by": said.decision.by(), "text": said.decision.text(model)});
    if let end::Decision::Rule(rule) = &said.decision {
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
        "to_allow": text::to_allow(model, said),
    })
}

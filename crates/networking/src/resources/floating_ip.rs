use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use portcullis_core::Family;
use portcullis_ovn::objects::{FloatingIp, Meta, Network, Port, Router};
use portcullis_ovn::{Draft, Model};
use serde_json::{Value, json};
use uuid::Uuid;

use super::network::Networks;
use super::port::{Ports, new_mac};
use super::{Context, Few, Resource, common, find};
use crate::addresses::{self, Asked, For};
use crate::attributes::{Attribute, Input};
use crate::error::Error;
use crate::kinds::{Kind, WORDS};
use crate::query::Query;
use crate::quota;

pub(crate) struct FloatingIps;

static ATTRIBUTES: LazyLock<Vec<Attribute<FloatingIp>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        Attribute::new("floating_ip_address", Kind::AddressOrNull, |floating: &FloatingIp, _| {
            json!(floating.address)
        })
        .post()
        .admin_sets(|| Value::Null),
        Attribute::new("floating_network_id", Kind::Id, |floating: &FloatingIp, _| json!(floating.network))
            .required(),
        Attribute::new("subnet_id", Kind::IdOrNull, |floating: &FloatingIp, view| {
            let keeper = view.model.get::<Port>(floating.port);
            let fixed =
                keeper.and_then(|port| port.fixed_ips.iter().find(|fixed| fixed.address == floating.address));
            json!(fixed.map(|fixed| fixed.subnet))
        })
        .post()
        .no_query(),
        Attribute::new("port_id", Kind::IdOrNull, |floating: &FloatingIp, _| json!(floating.fixed_port))
            .post()
            .put(),
        Attribute::new("fixed_ip_address", Kind::AddressOrNull, |floating: &FloatingIp, _| {
            json!(floating.fixed_address)
        })
        .post()
        .put(),
        Attribute::new("router_id", Kind::IdOrNull, |floating: &FloatingIp, _| json!(floating.router))
            .post()
            .put(),
        Attribute::new("status", WORDS, |floating: &FloatingIp, _| {
            json!(if floating.router.is_some() { "ACTIVE" } else { "DOWN" })
        }),
        Attribute::new("port_details", DETAILS, |floating: &FloatingIp, view| {
            let port = floating.fixed_port.and_then(|port| view.model.get::<Port>(port));
            port.map_or(Value::Null, |port| {
                let fields = [
                    "name",
                    "network_id",
                    "mac_address",
                    "admin_state_up",
                    "status",
                    "device_id",
                    "device_owner",
                ]
                .map(str::to_owned);
                super::shown::<Ports>(port, view, &fields)
            })
        })
        .no_query(),
    ]);
    attributes
});

const DETAILS: Kind = Kind::ReadOnly(|| json!({"type": ["object", "null"]}));

impl Resource for FloatingIps {
    type Object = FloatingIp;

    const NAME: &'static str = "floatingip";
    const PLURAL: &'static str = "floatingips";
    const COLLECTION: &'static str = "floatingips";
    const CHOSEN: &'static [&'static str] =
        &["floating_ip_address", "subnet_id", "fixed_ip_address", "router_id"];

    fn attributes() -> &'static [Attribute<FloatingIp>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("FloatingIPNotFound", format!("Floating IP {id} could not be found"))
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, FloatingIp>> {
        if let Some(port) = query.one("port_id") {
            return Some(Box::new(model.floating_ips_of_port(port.parse().ok()?)));
        }
        if let Some(router) = query.one("router_id") {
            return Some(Box::new(model.floating_ips_of_router(router.parse().ok()?)));
        }
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let network: Uuid = input.some("floating_network_id").unwrap_or_default();
        let network = Arc::clone(find::<Networks>(&context.view(draft.model()), &network.to_string())?);
        if !network.external {
            return Err(bad_request(format!("Network {} is not a valid external network", network.meta.id)));
        }
        if !draft.subnets_of_network(network.meta.id).any(|subnet| subnet.family() == Family::V4) {
            let message = format!("Network {} does not contain any IPv4 subnet", network.meta.id);
            return Err(bad_request(message));
        }
        let mut meta = common::meta(context, input)?;
        quota::check::<FloatingIp>(draft, context, &meta.project, 1)?;
        meta.revision = 0;
        let id = meta.id;
        let keeper = keeper(draft, context, &network, id, input)?;
        let address = keeper.fixed_ips.iter().map(|fixed| fixed.address).find(IpAddr::is_ipv4);
        let address = address.ok_or_else(|| {
            Error::invalid(
                "ExternalIpAddressExhausted",
                format!("Unable to find any IP address on external network {}.", network.meta.id),
            )
        })?;
        let mut floating = FloatingIp {
            network: network.meta.id,
            address,
            port: keeper.meta.id,
            fixed_port: None,
            fixed_address: None,
            router: None,
            meta,
        };
        give(draft, context, &mut floating, &Wish::of(input, input.some("port_id")))?;
        draft.put(keeper);
        draft.put(floating);
        Ok(id)
    }

    fn update(
        draft: &mut Draft,
        context: &Context,
        old: &Arc<FloatingIp>,
        input: &Input,
    ) -> Result<(), Error> {
        let mut floating = FloatingIp::clone(old);
        common::edit(&mut floating.meta, context, input);
        // Once there was nothing else to say about it, and saying nothing took it away: that is still so.
        if input.0.is_empty() || input.has("port_id") {
            give(draft, context, &mut floating, &Wish::of(input, input.some("port_id")))?;
        } else if input.has("fixed_ip_address") || input.has("router_id") {
            give(draft, context, &mut floating, &Wish::of(input, old.fixed_port))?;
        }
        draft.put(floating);
        Ok(())
    }

    fn delete(draft: &mut Draft, _context: &Context, old: &Arc<FloatingIp>) -> Result<(), Error> {
        draft.remove::<Port>(old.port);
        draft.remove::<FloatingIp>(old.meta.id);
        Ok(())
    }
}

/// The port in the outside network that keeps the address.
fn keeper(
    draft: &Draft,
    context: &Context,
    network: &Network,
    id: Uuid,
    input: &Input,
) -> Result<Port, Error> {
    let meta = Meta { id: Uuid::new_v4(), created: context.now, updated: context.now, ..Meta::default() };
    let mac = new_mac(draft, context, network.meta.id);
    let wish = For { network, port: meta.id, mac, device_owner: Port::FLOATING_IP, has: &[] };
    let asked = Asked { subnet: input.some("subnet_id"), address: input.some("floating_ip_address") };
    let fixed_ips = if asked == Asked::default() {
        addresses::usual(draft, wish)?.into_iter().filter(|fixed| fixed.address.is_ipv4()).collect()
    } else {
        addresses::asked(draft, wish, &[asked])?
    };
    Ok(Port {
        network: network.meta.id,
        mac,
        fixed_ips,
        device_id: id.to_string(),
        device_owner: Port::FLOATING_IP.to_owned(),
        port_security: false,
        meta,
        ..Port::default()
    })
}

/// Whom the address is to be given to.
struct Wish {
    port: Option<Uuid>,
    fixed: Option<IpAddr>,
    router: Option<Uuid>,
}

impl Wish {
    fn of(input: &Input, port: Option<Uuid>) -> Self {
        Wish { port, fixed: input.some("fixed_ip_address"), router: input.some("router_id") }
    }
}

/// Gives the address to a port, or takes it back.
fn give(draft: &Draft, context: &Context, floating: &mut FloatingIp, wish: &Wish) -> Result<(), Error> {
    let Some(id) = wish.port else {
        if wish.fixed.is_some() {
            return Err(bad_request("fixed_ip_address cannot be specified without a port_id"));
        }
        (floating.fixed_port, floating.fixed_address, floating.router) = (None, None, None);
        return Ok(());
    };
    let port = find::<Ports>(&context.view(draft.model()), &id.to_string())?;
    // The owner of a network sees all ports there, and has not all of them to give addresses to.
    if port.meta.project != floating.meta.project && !context.caller.is_admin() {
        return Err(bad_request(format!(
            "Cannot process floating IP association with Port {id}, since that port is owned by a different project"
        )));
    }
    let inside: Vec<_> = port.fixed_ips.iter().filter(|known| known.address.is_ipv4()).collect();
    let chosen = match (wish.fixed, inside.as_slice()) {
        (Some(address), _) => *inside
            .iter()
            .find(|known| known.address == address)
            .ok_or_else(|| bad_request(format!("Port {id} does not have fixed ip {address}")))?,
        (None, [only]) => only,
        (None, []) => {
            return Err(bad_request(format!(
                "Cannot add floating IP to port {id} that has no fixed IPv4 addresses"
            )));
        }
        (None, _) => {
            return Err(bad_request(format!(
                "Port {id} has multiple fixed IPv4 addresses. Must provide a specific IPv4 address when assigning a floating IP"
            )));
        }
    };
    let is_taken = draft.floating_ips_of_port(id).any(|other| {
        other.meta.id != floating.meta.id
            && other.fixed_address == Some(chosen.address)
            && other.network == floating.network
    });
    if is_taken {
        return Err(Error::conflict(
            "FloatingIPPortAlreadyAssociated",
            format!(
                "Cannot associate floating IP {} ({}) with port {id} using fixed IP {}, as that fixed IP already has a floating IP on \
                 external network {}.",
                floating.address, floating.meta.id, chosen.address, floating.network
            ),
        ));
    }
    let router = match wish.router {
        Some(router) => named_way(draft, context, floating.network, router)?,
        None => way(draft, floating.network, chosen.subnet).ok_or_else(|| {
            Error::not_found(
                "ExternalGatewayForFloatingIPNotFound",
                format!(
                    "External network {} is not reachable from subnet {}.  Therefore, cannot associate Port {id} with a Floating \
                     IP.",
                    floating.network, chosen.subnet
                ),
            )
        })?,
    };
    floating.fixed_port = Some(id);
    floating.fixed_address = Some(chosen.address);
    floating.router = Some(router);
    Ok(())
}

/// A router that was named, if it leads to the outside network.
fn named_way(draft: &Draft, context: &Context, outside: Uuid, router: Uuid) -> Result<Uuid, Error> {
    let view = context.view(draft.model());
    let found = find::<super::router::Routers>(&view, &router.to_string())?;
    if found.gateway.as_ref().is_some_and(|gateway| gateway.network == outside) {
        return Ok(router);
    }
    Err(Error::conflict("Conflict", format!("Router {router} has no external gateway on network {outside}.")))
}

/// The router between a subnet and an outside network; the one that the subnet's hosts send to, if there are several.
fn way(draft: &Draft, outside: Uuid, subnet: Uuid) -> Option<Uuid> {
    let leads = |router: &Uuid| {
        let router = draft.get::<Router>(*router);
        router.and_then(|router| router.gateway.as_ref()).is_some_and(|gateway| gateway.network == outside)
    };
    let gateway = draft.get::<portcullis_ovn::objects::Subnet>(subnet).and_then(|subnet| subnet.gateway);
    let mut found: Vec<(bool, Uuid)> = draft
        .ports_of_subnet(subnet)
        .filter(|port| port.device_owner == Port::ROUTER_INTERFACE)
        .filter_map(|port| {
            let is_gateway =
                port.fixed_ips.iter().any(|fixed| fixed.subnet == subnet && Some(fixed.address) == gateway);
            Some((!is_gateway, port.router()?))
        })
        .filter(|(_, router)| leads(router))
        .collect();
    found.sort();
    found.first().map(|(_, router)| *router)
}

fn bad_request(message: impl std::fmt::Display) -> Error {
    Error::invalid("BadRequest", format!("Bad floatingip request: {message}."))
}

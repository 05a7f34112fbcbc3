use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use portcullis_core::Family;
use portcullis_ovn::objects::{FixedIp, Gateway, Meta, Network, Port, RbacPolicy, Route, Router, Subnet};
use portcullis_ovn::{Draft, Model};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::network::Networks;
use super::port::{Ports, new_mac};
use super::subnet::{Subnets, route, routes};
use super::{Context, Few, Resource, common, find};
use crate::addresses::{self, Asked, For};
use crate::attributes::{Attribute, Input};
use crate::error::Error;
use crate::kinds::{Kind, LIST, NAME, WORDS, WORDS_OR_NULL, object, shown};
use crate::query::Query;
use crate::quota;
use crate::server::changeable;

pub(crate) struct Routers;

static ATTRIBUTES: LazyLock<Vec<Attribute<Router>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        common::name(),
        Attribute::new("admin_state_up", Kind::Truth, |router: &Router, _| json!(router.admin_state_up))
            .post()
            .put(),
        Attribute::new("status", WORDS, |_: &Router, _| json!("ACTIVE")),
        Attribute::new("external_gateway_info", GATEWAY, |router: &Router, view| {
            router.gateway.as_ref().map_or(Value::Null, |gateway| {
                let addresses = view.model.get::<Port>(gateway.port).map(|port| port.fixed_ips.clone());
                let show = |fixed: FixedIp| json!({"subnet_id": fixed.subnet, "ip_address": fixed.address});
                let addresses: Vec<Value> = addresses.unwrap_or_default().into_iter().map(show).collect();
                json!({
                    "network_id": gateway.network,
                    "enable_snat": gateway.snat,
                    "external_fixed_ips": addresses,
                })
            })
        })
        .post()
        .put(),
        Attribute::new("routes", Kind::List(route), |router: &Router, _| json!(router.routes)).put(),
        Attribute::new("availability_zone_hints", Kind::Texts(NAME), |_: &Router, _| json!([])).post(),
        Attribute::new("availability_zones", LIST, |_: &Router, _| json!([])).no_query(),
        Attribute::new("flavor_id", WORDS_OR_NULL, |_: &Router, _| Value::Null),
    ]);
    attributes
});

const GATEWAY: Kind = Kind::Custom(gateway, || {
    json!({"type": ["object", "null"], "properties": {
        "network_id": {"type": "string", "format": "uuid"},
        "enable_snat": {"type": "boolean"},
        "external_fixed_ips": {"type": "array", "items": {"type": "object"}},
    }})
});

fn gateway(value: &Value) -> Result<Value, String> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let mut checked = Map::new();
    for (key, value) in object(value)? {
        let value = match key.as_str() {
            "network_id" => Kind::Id.check(value)?,
            "enable_snat" => Kind::Truth.check(value)?,
            "external_fixed_ips" => Kind::List(super::port::fixed_ip).check(value)?,
            _ => return Err(format!("'{key}' is not known in '{}'", shown(value))),
        };
        checked.insert(key.clone(), value);
    }
    // No network is no gateway.
    Ok(if checked.is_empty() { Value::Null } else { Value::Object(checked) })
}

impl Resource for Routers {
    type Object = Router;

    const NAME: &'static str = "router";
    const PLURAL: &'static str = "routers";
    const COLLECTION: &'static str = "routers";

    fn attributes() -> &'static [Attribute<Router>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("RouterNotFound", format!("Router {id} could not be found"))
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, Router>> {
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let mut meta = common::meta(context, input)?;
        quota::check::<Router>(draft, context, &meta.project, 1)?;
        meta.revision = 1;
        let id = meta.id;
        draft.put(Router {
            meta,
            admin_state_up: input.truth("admin_state_up").unwrap_or(true),
            gateway: None,
            routes: Vec::new(),
        });
        if let Some(wanted) = input.get("external_gateway_info") {
            set_gateway(draft, context, id, wanted, "create_router")?;
        }
        Ok(id)
    }

    fn update(draft: &mut Draft, context: &Context, old: &Arc<Router>, input: &Input) -> Result<(), Error> {
        let id = old.meta.id;
        draft.edit::<Router>(id, |router| {
            common::edit(&mut router.meta, context, input);
            if let Some(up) = input.truth("admin_state_up") {
                router.admin_state_up = up;
            }
        });
        if let Some(wanted) = input.get("external_gateway_info") {
            set_gateway(draft, context, id, wanted, "update_router")?;
        }
        if let Some(routes) = routes(input, "routes") {
            set_routes(draft, id, routes)?;
        }
        Ok(())
    }

    fn delete(draft: &mut Draft, _context: &Context, old: &Arc<Router>) -> Result<(), Error> {
        let id = old.meta.id;
        let inside = draft.ports_of_router(id).filter(|port| port.device_owner == Port::ROUTER_INTERFACE);
        let inside: Vec<String> = inside.map(|port| port.meta.id.to_string()).collect();
        if !inside.is_empty() {
            return Err(Error::conflict(
                "RouterInUse",
                format!("Router {id} has ports still attached: {}", inside.join(", ")),
            ));
        }
        if draft.floating_ips_of_router(id).next().is_some() {
            return Err(Error::conflict("RouterInUse", format!("Router {id} still has floating IPs")));
        }
        if let Some(gateway) = &old.gateway {
            draft.remove::<Port>(gateway.port);
        }
        draft.remove::<Router>(id);
        Ok(())
    }
}

/// Gives a router a way out, another one, or none.
fn set_gateway(
    draft: &mut Draft,
    context: &Context,
    id: Uuid,
    wanted: &Value,
    action: &str,
) -> Result<(), Error> {
    let Some(router) = draft.get::<Router>(id).cloned() else { return Ok(()) };
    let Some(network) = wanted.get("network_id").and_then(Value::as_str) else {
        if wanted.is_object() {
            return Err(Error::invalid_attribute("external_gateway_info", "'network_id' is missing"));
        }
        return clear_gateway(draft, &router);
    };
    for name in ["enable_snat", "external_fixed_ips"] {
        if wanted.get(name).is_some() && !context.caller.is_admin() {
            return Err(Error::forbidden(&format!("{action}:external_gateway_info:{name}")));
        }
    }
    let network = Arc::clone(find::<Networks>(&context.view(draft.model()), network)?);
    if !network.external {
        return Err(bad_request(format!("Network {} is not an external network", network.meta.id)));
    }
    let snat = wanted.get("enable_snat").and_then(Value::as_bool);
    let asked: Option<Vec<Asked>> = wanted.get("external_fixed_ips").and_then(Value::as_array).map(|list| {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        list.iter()
            .map(|value| Asked {
                subnet: text(value, "subnet_id").and_then(|id| id.parse().ok()),
                address: text(value, "ip_address").and_then(|address| address.parse().ok()),
            })
            .collect()
    });
    let same = router.gateway.as_ref().filter(|gateway| gateway.network == network.meta.id).cloned();
    if same.is_none() && router.gateway.is_some() {
        clear_gateway(draft, &router)?;
    }
    check_outside(draft, &router, &network)?;
    let known = same.as_ref().and_then(|gateway| draft.get::<Port>(gateway.port)).cloned();
    let (port, mac, has) = match &known {
        Some(port) => (port.meta.id, port.mac, port.fixed_ips.clone()),
        None => (Uuid::new_v4(), new_mac(draft, context, network.meta.id), Vec::new()),
    };
    let wish = For { network: &network, port, mac, device_owner: Port::ROUTER_GATEWAY, has: &has };
    let fixed_ips = match asked.filter(|asked| !asked.is_empty()) {
        Some(asked) => addresses::asked(draft, wish, &asked)?,
        None if !has.is_empty() => has.clone(),
        None => addresses::usual(draft, wish)?,
    };
    match known {
        Some(known) if known.fixed_ips == fixed_ips => {}
        Some(_) => draft.edit::<Port>(port, |port| {
            port.fixed_ips = fixed_ips;
            common::touch(&mut port.meta, context);
        }),
        None => draft.put(Port {
            // It belongs to nobody, so that nobody has it counted.
            meta: Meta { id: port, created: context.now, updated: context.now, ..Meta::default() },
            network: network.meta.id,
            mac,
            fixed_ips,
            device_id: id.to_string(),
            device_owner: Port::ROUTER_GATEWAY.to_owned(),
            port_security: false,
            ..Port::default()
        }),
    }
    let snat = snat.or(same.map(|gateway| gateway.snat)).unwrap_or(true);
    draft
        .edit::<Router>(id, |router| router.gateway = Some(Gateway { network: network.meta.id, port, snat }));
    Ok(())
}

fn clear_gateway(draft: &mut Draft, router: &Router) -> Result<(), Error> {
    let id = router.meta.id;
    let Some(gateway) = &router.gateway else { return Ok(()) };
    if draft.floating_ips_of_router(id).next().is_some() {
        return Err(Error::conflict(
            "RouterExternalGatewayInUseByFloatingIp",
            format!(
                "Gateway cannot be updated for router {id}, since a gateway to external network {} is required by one or more \
                 floating IPs.",
                gateway.network
            ),
        ));
    }
    draft.remove::<Port>(gateway.port);
    draft.edit::<Router>(id, |router| router.gateway = None);
    let routes = draft.get::<Router>(id).map(|router| router.routes.clone()).unwrap_or_default();
    check_routes(draft, id, &routes).map_err(|_| {
        Error::conflict(
            "RouterInterfaceInUseByRoute",
            format!("Router interface for gateway network {} on router {id} cannot be deleted, as it is required by one or more routes.", gateway.network),
        )
    })
}

/// Whether the addresses of the way out are not those of a network inside.
fn check_outside(draft: &Draft, router: &Router, network: &Network) -> Result<(), Error> {
    for outside in draft.subnets_of_network(network.meta.id) {
        for (_, inside) in connected(draft, router.meta.id) {
            if inside.network != network.meta.id && inside.cidr.overlaps(&outside.cidr) {
                return Err(overlap(&inside, outside));
            }
        }
    }
    Ok(())
}

fn overlap(new: &Subnet, known: &Subnet) -> Error {
    bad_request(format!(
        "Cidr {} of subnet {} overlaps with cidr {} of subnet {}",
        new.cidr, new.meta.id, known.cidr, known.meta.id
    ))
}

/// The addresses of a router, with their subnets.
fn connected(model: &Model, router: Uuid) -> Vec<(FixedIp, Subnet)> {
    let ports = model.ports_of_router(router);
    let fixed = ports.flat_map(|port| port.fixed_ips.clone());
    fixed.filter_map(|fixed| Some((fixed, Subnet::clone(model.get::<Subnet>(fixed.subnet)?)))).collect()
}

/// The most routes of a router.
const MOST_ROUTES: usize = 30;

fn set_routes(draft: &mut Draft, id: Uuid, routes: Vec<Route>) -> Result<(), Error> {
    check_routes(draft, id, &routes)?;
    draft.edit::<Router>(id, |router| router.routes = routes);
    Ok(())
}

fn check_routes(draft: &Draft, id: Uuid, routes: &[Route]) -> Result<(), Error> {
    let invalid = |reason: &str| {
        let shown = serde_json::to_string(routes).unwrap_or_default();
        Error::invalid("InvalidRoutes", format!("Invalid format for routes: {shown}, {reason}"))
    };
    if routes.len() > MOST_ROUTES {
        return Err(Error::invalid(
            "RoutesExhausted",
            format!(
                "Unable to complete operation for {id}. The number of routes exceeds the maximum {MOST_ROUTES}."
            ),
        ));
    }
    let connected = connected(draft, id);
    for (place, route) in routes.iter().enumerate() {
        if routes[..place].contains(route) {
            return Err(Error::invalid_attribute("routes", "Duplicate hostroute"));
        }
        if route.destination.family() != Family::of(route.nexthop) {
            return Err(invalid("the destination and the nexthop are not of the same ip_version"));
        }
        if !connected.iter().any(|(_, subnet)| subnet.cidr.contains(route.nexthop)) {
            return Err(invalid("the nexthop is not connected with router"));
        }
        if connected.iter().any(|(fixed, _)| fixed.address == route.nexthop) {
            return Err(invalid("the nexthop is used by router"));
        }
    }
    Ok(())
}

/// Adds routes to those of a router, or takes them away.
pub(crate) fn change_routes(
    draft: &mut Draft,
    context: &Context,
    id: Uuid,
    body: &Value,
    add: bool,
) -> Result<(), Error> {
    let given = body
        .pointer("/router/routes")
        .ok_or_else(|| Error::bad_request("Unable to find 'routes' in request body"))?;
    let given =
        Kind::List(route).check(given).map_err(|reason| Error::invalid_attribute("routes", reason))?;
    let given = Input(std::iter::once(("routes".to_owned(), given)).collect());
    let given = routes(&given, "routes").unwrap_or_default();
    let mut all = draft.get::<Router>(id).map(|router| router.routes.clone()).unwrap_or_default();
    for route in given {
        all.retain(|known| *known != route);
        if add {
            all.push(route);
        }
    }
    set_routes(draft, id, all)?;
    common::bump::<Router>(draft, context, id);
    Ok(())
}

/// What a request about an interface names.
struct Named {
    subnet: Option<Uuid>,
    port: Option<Uuid>,
}

fn named(body: &Value) -> Result<Named, Error> {
    let id = |name: &str| -> Result<Option<Uuid>, Error> {
        match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let id = Kind::Id.check(value).map_err(|reason| Error::invalid_attribute(name, reason))?;
                Ok(id.as_str().and_then(|id| id.parse().ok()))
            }
        }
    };
    if !body.is_object() {
        return Err(bad_request("Either subnet_id or port_id must be specified"));
    }
    Ok(Named { subnet: id("subnet_id")?, port: id("port_id")? })
}

/// Connects a router to a subnet, or by a port.
pub(crate) fn add_interface(
    draft: &mut Draft,
    context: &Context,
    router: &Router,
    body: &Value,
) -> Result<Value, Error> {
    let named = named(body)?;
    let id = router.meta.id;
    let (port, subnet) = match (named.subnet, named.port) {
        (Some(_), Some(_)) => return Err(bad_request("Cannot specify both subnet-id and port-id")),
        (None, None) => return Err(bad_request("Either subnet_id or port_id must be specified")),
        (Some(subnet), None) => (by_subnet(draft, context, router, subnet)?, subnet),
        (None, Some(port)) => by_port(draft, context, router, port)?,
    };
    common::bump::<Router>(draft, context, id);
    answer(draft, router, port, subnet)
}

fn answer(draft: &Draft, router: &Router, port: Uuid, subnet: Uuid) -> Result<Value, Error> {
    let port = draft.get::<Port>(port).ok_or_else(|| Ports::not_found(&port.to_string()))?;
    let subnets: Vec<Uuid> = port.fixed_ips.iter().map(|fixed| fixed.subnet).collect();
    Ok(interface(router, port, subnet, &subnets))
}

fn interface(router: &Router, port: &Port, subnet: Uuid, subnets: &[Uuid]) -> Value {
    json!({
        "id": router.meta.id,
        "tenant_id": router.meta.project,
        "project_id": router.meta.project,
        "port_id": port.meta.id,
        "network_id": port.network,
        "subnet_id": subnet,
        "subnet_ids": subnets,
    })
}

fn by_subnet(draft: &mut Draft, context: &Context, router: &Router, id: Uuid) -> Result<Uuid, Error> {
    let subnet = Arc::clone(find::<Subnets>(&context.view(draft.model()), &id.to_string())?);
    check_gives_way(draft, context, &subnet)?;
    let Some(gateway) = subnet.gateway else {
        return Err(bad_request("Subnet for router interface must have a gateway IP"));
    };
    if subnet.family() == Family::V6 && subnet.ipv6_ra_mode.is_none() && subnet.ipv6_address_mode.is_some() {
        return Err(bad_request(format!(
            "IPv6 subnet {id} configured to receive RAs from an external router cannot be added to Neutron Router."
        )));
    }
    check_new_subnets(draft, router, std::slice::from_ref(&*subnet))?;
    let fixed = FixedIp { subnet: id, address: gateway };
    if draft.holder(id, gateway).is_some() {
        return Err(Error::conflict(
            "IpAddressAlreadyAllocated",
            format!("IP address {gateway} already allocated in subnet {id}"),
        ));
    }
    // A second IPv6 subnet of a network is one more address of the port that is there.
    let shared = draft.ports_of_router(router.meta.id).find(|port| {
        let six = |fixed: &FixedIp| fixed.address.is_ipv6();
        port.device_owner == Port::ROUTER_INTERFACE
            && port.network == subnet.network
            && subnet.family() == Family::V6
            && port.fixed_ips.iter().all(six)
    });
    if let Some(port) = shared.map(|port| port.meta.id) {
        draft.edit::<Port>(port, |port| port.fixed_ips.push(fixed));
        return Ok(port);
    }
    quota::check::<Port>(draft, context, &router.meta.project, 1)?;
    let meta = Meta {
        id: Uuid::new_v4(),
        project: router.meta.project.clone(),
        created: context.now,
        updated: context.now,
        ..Meta::default()
    };
    let port = Port {
        network: subnet.network,
        mac: new_mac(draft, context, subnet.network),
        fixed_ips: vec![fixed],
        device_id: router.meta.id.to_string(),
        device_owner: Port::ROUTER_INTERFACE.to_owned(),
        port_security: false,
        meta,
        ..Port::default()
    };
    let id = port.meta.id;
    draft.put(port);
    Ok(id)
}

/// Whether who asks may be the gateway of a subnet. That everybody may use the network is not enough: the first to ask
/// would have the traffic of all the others.
fn check_gives_way(draft: &Draft, context: &Context, subnet: &Subnet) -> Result<(), Error> {
    let caller = &context.caller;
    let is_given = |policy: &Arc<RbacPolicy>| {
        policy.action == "access_as_shared" && policy.target == caller.project && !caller.project.is_empty()
    };
    let network = draft.get::<Network>(subnet.network);
    let may = caller.owns(&subnet.meta.project)
        || network.is_some_and(|network| caller.owns(&network.meta.project))
        || draft.policies_of(subnet.network).any(is_given);
    if may {
        return Ok(());
    }
    Err(bad_request(format!(
        "Cannot add interface to router because subnet {} is not owned by project making the request",
        subnet.meta.id
    )))
}

fn by_port(draft: &mut Draft, context: &Context, router: &Router, id: Uuid) -> Result<(Uuid, Uuid), Error> {
    // It becomes another thing, without a filter.
    let port = changeable::<Ports>(draft, context, id, "update", None)?;
    if !port.device_id.is_empty() {
        return Err(Error::conflict(
            "PortInUse",
            format!(
                "Unable to complete operation on port {id} for network {}. Port already has an attached device {}.",
                port.network, port.device_id
            ),
        ));
    }
    let subnets: Vec<Subnet> = port
        .fixed_ips
        .iter()
        .filter_map(|fixed| draft.get::<Subnet>(fixed.subnet))
        .map(|subnet| (**subnet).clone())
        .collect();
    let Some(first) = subnets.first() else {
        return Err(bad_request("Router port must have at least one fixed IP"));
    };
    if subnets.iter().filter(|subnet| subnet.family() == Family::V4).count() > 1 {
        return Err(bad_request("Cannot have multiple IPv4 subnets on router port"));
    }
    check_new_subnets(draft, router, &subnets)?;
    let first = first.meta.id;
    draft.edit::<Port>(id, |port| {
        port.device_id = router.meta.id.to_string();
        Port::ROUTER_INTERFACE.clone_into(&mut port.device_owner);
        // What a router forwards is filtered where it arrives.
        port.port_security = false;
        port.security_groups = Vec::new();
        port.address_pairs = Vec::new();
        common::touch(&mut port.meta, context);
    });
    Ok((id, first))
}

fn check_new_subnets(draft: &Draft, router: &Router, new: &[Subnet]) -> Result<(), Error> {
    for subnet in new {
        for (_, known) in connected(draft, router.meta.id) {
            if known.meta.id == subnet.meta.id {
                return Err(bad_request(format!("Router already has a port on subnet {}", subnet.meta.id)));
            }
            if known.cidr.overlaps(&subnet.cidr) {
                return Err(overlap(subnet, &known));
            }
        }
    }
    Ok(())
}

/// Disconnects a router from a subnet, or from a port.
pub(crate) fn remove_interface(
    draft: &mut Draft,
    context: &Context,
    router: &Router,
    body: &Value,
) -> Result<Value, Error> {
    let named = named(body)?;
    let id = router.meta.id;
    let interfaces = || draft.ports_of_router(id).filter(|port| port.device_owner == Port::ROUTER_INTERFACE);
    let (port, subnet) = match (named.port, named.subnet) {
        (None, None) => return Err(bad_request("Either subnet_id or port_id must be specified")),
        (Some(port), subnet) => {
            let found = interfaces().find(|known| known.meta.id == port).cloned().ok_or_else(|| {
                Error::not_found(
                    "RouterInterfaceNotFound",
                    format!("Router {id} does not have an interface with id {port}"),
                )
            })?;
            if let Some(subnet) = subnet
                && !found.fixed_ips.iter().any(|fixed| fixed.subnet == subnet)
            {
                return Err(Error::invalid(
                    "SubnetMismatchForPort",
                    format!("Subnet on port {port} does not match the requested subnet {subnet}."),
                ));
            }
            (found, None)
        }
        (None, Some(subnet)) => {
            find::<Subnets>(&context.view(draft.model()), &subnet.to_string())?;
            let on = |port: &&Arc<Port>| port.fixed_ips.iter().any(|fixed| fixed.subnet == subnet);
            let found = interfaces().find(on).cloned().ok_or_else(|| {
                Error::not_found(
                    "RouterInterfaceNotFoundForSubnet",
                    format!("Router {id} has no interface on subnet {subnet}"),
                )
            })?;
            (found, Some(subnet))
        }
    };
    let gone: Vec<Uuid> = match subnet {
        Some(subnet) => vec![subnet],
        None => port.fixed_ips.iter().map(|fixed| fixed.subnet).collect(),
    };
    check_unused(draft, router, &gone)?;
    let whole = port.fixed_ips.iter().all(|fixed| gone.contains(&fixed.subnet));
    if whole {
        draft.remove::<Port>(port.meta.id);
    } else {
        draft.edit::<Port>(port.meta.id, |port| port.fixed_ips.retain(|fixed| !gone.contains(&fixed.subnet)));
    }
    let routes = draft.get::<Router>(id).map(|router| router.routes.clone()).unwrap_or_default();
    if check_routes(draft, id, &routes).is_err() {
        return Err(Error::conflict(
            "RouterInterfaceInUseByRoute",
            format!(
                "Router interface for subnet {} on router {id} cannot be deleted, as it is required by one or more routes.",
                gone.first().copied().unwrap_or_default()
            ),
        ));
    }
    common::bump::<Router>(draft, context, id);
    let subnet = subnet.or_else(|| gone.first().copied()).unwrap_or_default();
    Ok(interface(router, &port, subnet, &gone))
}

/// Whether no floating address leads through these subnets.
fn check_unused(draft: &Draft, router: &Router, subnets: &[Uuid]) -> Result<(), Error> {
    let id = router.meta.id;
    for floating in draft.floating_ips_of_router(id) {
        let inside: Option<IpAddr> = floating.fixed_address;
        let port = floating.fixed_port.and_then(|port| draft.get::<Port>(port));
        let uses = port
            .into_iter()
            .flat_map(|port| &port.fixed_ips)
            .any(|fixed| Some(fixed.address) == inside && subnets.contains(&fixed.subnet));
        if uses {
            return Err(Error::conflict(
                "RouterInterfaceInUseByFloatingIP",
                format!(
                    "Router interface for subnet {} on router {id} cannot be deleted, as it is required by one or more floating \
                     IPs.",
                    subnets.first().copied().unwrap_or_default()
                ),
            ));
        }
    }
    Ok(())
}

fn bad_request(message: impl std::fmt::Display) -> Error {
    Error::invalid("BadRequest", format!("Bad router request: {message}."))
}

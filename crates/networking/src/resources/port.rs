use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use portcullis_core::{Cidr, Family};
use portcullis_ovn::objects::{
    AddressPair, DhcpOption, FloatingIp, Network, Port, Router, SecurityGroup, Subnet,
};
use portcullis_ovn::{Draft, Mac, Model, dhcp};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::network::Networks;
use super::security_group::{SecurityGroups, ensure_default};
use super::{Context, Few, Resource, common, find};
use crate::addresses::{self, Asked, For};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, NAME, VERSION, WORDS, list, object, shown};
use crate::query::Query;
use crate::quota;

pub(crate) struct Ports;

static ATTRIBUTES: LazyLock<Vec<Attribute<Port>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        common::name(),
        Attribute::new("network_id", Kind::Id, |port: &Port, _| json!(port.network)).required(),
        Attribute::new("admin_state_up", Kind::Truth, |port: &Port, _| json!(port.admin_state_up)).post().put(),
        Attribute::new("status", WORDS, |port: &Port, _| json!(status(port))),
        Attribute::new("mac_address", MAC, |port: &Port, _| json!(port.mac)).post().put().filter(),
        Attribute::new("fixed_ips", FIXED_IPS, |port: &Port, _| {
            let show = |fixed: &portcullis_ovn::objects::FixedIp| {
                json!({"subnet_id": fixed.subnet, "ip_address": fixed.address})
            };
            port.fixed_ips.iter().map(show).collect()
        })
        .post()
        .put(),
        Attribute::new("device_id", Kind::Text(NAME), |port: &Port, _| json!(port.device_id)).post().put(),
        Attribute::new("device_owner", Kind::Text(NAME), |port: &Port, _| json!(port.device_owner)).post().put(),
        Attribute::new("security_groups", GROUPS, |port: &Port, _| json!(port.security_groups))
            .post()
            .put()
            .filter(),
        Attribute::new("port_security_enabled", Kind::Truth, |port: &Port, _| json!(port.port_security)).post().put(),
        Attribute::new("allowed_address_pairs", PAIRS, |port: &Port, _| {
            let show = |pair: &AddressPair| {
                json!({"ip_address": pair.address, "mac_address": pair.mac.unwrap_or(port.mac)})
            };
            port.address_pairs.iter().map(show).collect()
        })
        .post()
        .put(),
        Attribute::new("extra_dhcp_opts", Kind::List(dhcp_option), |port: &Port, _| {
            let show = |option: &DhcpOption| {
                let version = if option.version == Family::V4 { 4 } else { 6 };
                json!({"opt_name": option.name, "opt_value": option.value, "ip_version": version})
            };
            port.dhcp_options.iter().map(show).collect()
        })
        .post()
        .put(),
        Attribute::new("binding:host_id", Kind::TextOrNull(NAME), |port: &Port, _| json!(port.host))
            .post()
            .put()
            .admin(),
        Attribute::new("binding:profile", Kind::Object, |port: &Port, _| {
            serde_json::from_str(&port.profile).unwrap_or_else(|_| json!({}))
        })
        .post()
        .put()
        .admin(),
        Attribute::new("binding:vnic_type", VNIC_TYPE, |port: &Port, _| json!(port.vnic_type)).post().put(),
        Attribute {
            admin_sees: true,
            ..Attribute::new("binding:vif_type", WORDS, |port: &Port, _| {
                json!(if port.host.is_empty() { "unbound" } else { "ovs" })
            })
        },
        Attribute {
            admin_sees: true,
            ..Attribute::new("binding:vif_details", Kind::ReadOnly(|| json!({"type": "object"})), |port: &Port, _| {
                if port.host.is_empty() { json!({}) } else { json!({"port_filter": true, "connectivity": "l2"}) }
            })
            .no_query()
        },
        Attribute::new("ip_allocation", WORDS, |_: &Port, _| json!("immediate")),
    ]);
    attributes
});

const VNIC_TYPE: Kind = Kind::Word(&[
    "normal",
    "direct",
    "macvtap",
    "baremetal",
    "direct-physical",
    "virtio-forwarder",
    "smart-nic",
    "remote-managed",
    "vdpa",
    "accelerator-direct",
    "accelerator-direct-physical",
]);

/// Nothing asks for a new one.
const MAC: Kind = Kind::Custom(
    |value| if value.is_null() { Ok(Value::Null) } else { Kind::Mac.check(value) },
    || json!({"type": ["string", "null"], "pattern": "^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$"}),
);

const PAIRS: Kind = Kind::List(address_pair);

/// No addresses is an empty list; nothing at all is no answer to which ones.
const FIXED_IPS: Kind = Kind::Custom(
    |value| list(value)?.iter().map(fixed_ip).collect(),
    || json!({"type": "array", "items": {"type": "object"}}),
);

/// Nothing asks for those that a port has which does not ask.
const GROUPS: Kind = Kind::Custom(
    |value| if value.is_null() { Ok(Value::Null) } else { Kind::Ids.check(value) },
    || json!({"type": ["array", "null"], "items": Kind::Id.schema()}),
);

fn status(port: &Port) -> &'static str {
    if port.admin_state_up && (port.up || port.is_router()) { "ACTIVE" } else { "DOWN" }
}

fn only<'a>(value: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let entries = object(value)?;
    match entries.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("'{key}' is not known in '{}'", shown(value))),
        None => Ok(entries),
    }
}

/// An address that is asked for.
pub(crate) fn fixed_ip(value: &Value) -> Result<Value, String> {
    let entries = only(value, &["subnet_id", "ip_address", "dns_name"])?;
    let mut checked = Map::new();
    if let Some(address) = entries.get("ip_address").filter(|address| !address.is_null()) {
        checked.insert("ip_address".into(), Kind::Address.check(address)?);
    }
    if let Some(subnet) = entries.get("subnet_id").filter(|subnet| !subnet.is_null()) {
        checked.insert("subnet_id".into(), Kind::Id.check(subnet)?);
    }
    Ok(Value::Object(checked))
}

fn address_pair(value: &Value) -> Result<Value, String> {
    let entries = only(value, &["ip_address", "mac_address"])?;
    let mut checked = Map::new();
    let address = entries
        .get("ip_address")
        .and_then(Value::as_str)
        .ok_or("AllowedAddressPair must contain ip_address")?;
    // An address stays one; a range stays as it was written.
    let address = if let Ok(address) = address.parse::<IpAddr>() {
        address.to_canonical().to_string()
    } else {
        let range = address.parse::<Cidr>();
        let range = range.map_err(|_| format!("'{address}' is not a valid IP address or subnet"))?;
        let is_mapped = range.family() == Family::V4 && address.contains(':');
        if is_mapped { range.network().to_string() } else { address.to_owned() }
    };
    checked.insert("ip_address".into(), json!(address));
    if let Some(mac) = entries.get("mac_address").filter(|mac| !mac.is_null()) {
        checked.insert("mac_address".into(), Kind::Mac.check(mac)?);
    }
    Ok(Value::Object(checked))
}

fn dhcp_option(value: &Value) -> Result<Value, String> {
    let entries = only(value, &["opt_name", "opt_value", "ip_version", "id"])?;
    let name = entries.get("opt_name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or("'opt_name' is missing")?;
    Kind::Text(64).check(&json!(name))?;
    let text = match entries.get("opt_value") {
        None | Some(Value::Null) => Value::Null,
        Some(text) => Kind::Text(255).check(text)?,
    };
    let version = match entries.get("ip_version") {
        None | Some(Value::Null) => json!(4),
        Some(version) => VERSION.check(version)?,
    };
    let family = if version == 6 { Family::V6 } else { Family::V4 };
    if let Some(text) = text.as_str() {
        dhcp::check(family, name, text)?;
    }
    Ok(json!({"opt_name": name, "opt_value": text, "ip_version": version}))
}

impl Resource for Ports {
    type Object = Port;

    const NAME: &'static str = "port";
    const PLURAL: &'static str = "ports";
    const COLLECTION: &'static str = "ports";
    const FILTERS: &'static [&'static str] = &["fixed_ips", "ip_allocation"];
    const CHOSEN: &'static [&'static str] = &["mac_address", "security_groups"];

    fn attributes() -> &'static [Attribute<Port>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("PortNotFound", format!("Port {id} could not be found."))
    }

    fn is_visible(port: &Port, view: &View<'_>) -> bool {
        owns(port, view)
    }

    fn may_delete(port: &Port, view: &View<'_>) -> bool {
        owns(port, view)
    }

    fn near<'a>(model: &'a Model, project: &str) -> Vec<&'a Arc<Port>> {
        let networks = model.of_project::<Network>(project, None);
        let there = networks.flat_map(|network| model.ports_of_network(network.meta.id));
        model.of_project(project, None).chain(there).collect()
    }

    fn wants(port: &Port, filter: &str, values: &[String], _view: &View<'_>) -> bool {
        if filter != "fixed_ips" {
            return true;
        }
        // Values of one key are alternatives; all keys must be met, not always by the same address.
        ["ip_address", "subnet_id", "ip_address_substr"].into_iter().all(|key| {
            let mut wanted =
                values.iter().filter_map(|value| value.split_once('=')).filter(|(k, _)| *k == key).peekable();
            wanted.peek().is_none()
                || wanted.any(|(_, value)| {
                    port.fixed_ips.iter().any(|fixed| match key {
                        "ip_address" => value.parse() == Ok(fixed.address),
                        "subnet_id" => value.parse() == Ok(fixed.subnet),
                        _ => fixed.address.to_string().contains(value),
                    })
                })
        })
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, Port>> {
        if let Some(device) = query.one("device_id") {
            return Some(Box::new(model.ports_of_device(device)));
        }
        if let Some(network) = query.one("network_id") {
            return Some(Box::new(model.ports_of_network(network.parse().ok()?)));
        }
        if let Some(group) = query.one("security_groups") {
            return Some(Box::new(model.ports_of_group(group.parse().ok()?)));
        }
        if let Some(subnet) = only_value(query, "subnet_id") {
            return Some(Box::new(model.ports_of_subnet(subnet.parse().ok()?)));
        }
        if let Some(address) = only_value(query, "ip_address") {
            let address: IpAddr = address.parse().ok()?;
            let subnets = model.all::<Subnet>(None).map(|subnet| subnet.meta.id);
            let holders = subnets.filter_map(move |subnet| model.holder(subnet, address));
            return Some(Box::new(holders.filter_map(|port| model.get(port))));
        }
        if let Some(mac) = query.one("mac_address") {
            let mac: Mac = mac.parse().ok()?;
            let networks = model.all::<Network>(None).map(|network| network.meta.id);
            let ports = networks.flat_map(move |network| model.ports_with_mac(network, mac));
            return Some(Box::new(ports.filter_map(|port| model.get(port))));
        }
        super::by_id_or_name(query, model)
    }

    /// What a router has, or a floating address, is no port for a machine that asks for any.
    fn is_meant(port: &Port, input: &Input) -> bool {
        input.has("device_owner") || !port.device_owner.starts_with("network:")
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let network_id: Uuid = input.some("network_id").unwrap_or_default();
        let network = Arc::clone(find::<Networks>(&context.view(draft.model()), &network_id.to_string())?);
        check_usable(draft, context, &network)?;
        check_rights(context, &network, input, CREATE)?;
        let mut meta = common::meta(context, input)?;
        quota::check::<Port>(draft, context, &meta.project, 1)?;
        meta.revision = 1;
        let device_owner = input.text("device_owner").unwrap_or_default();
        let mac = match input.some::<Mac>("mac_address") {
            Some(mac) => mac_if_free(draft, &network, mac)?,
            None => new_mac(draft, context, network_id),
        };
        let mut port = Port {
            network: network_id,
            admin_state_up: input.truth("admin_state_up").unwrap_or(true),
            mac,
            device_id: input.text("device_id").unwrap_or_default(),
            port_security: input
                .truth("port_security_enabled")
                .unwrap_or(network.port_security && !device_owner.starts_with("network:")),
            device_owner,
            dhcp_options: dhcp_options(input, &[]),
            host: input.text("binding:host_id").unwrap_or_default(),
            vnic_type: input.text("binding:vnic_type").unwrap_or_else(|| "normal".to_owned()),
            profile: profile(input).unwrap_or_default(),
            meta,
            ..Port::default()
        };
        let wish =
            For { network: &network, port: port.meta.id, mac, device_owner: &port.device_owner, has: &[] };
        port.fixed_ips = match asked(input) {
            Some(asked) => addresses::asked(draft, wish, &asked)?,
            None => addresses::usual(draft, wish)?,
        };
        let default = ensure_default(draft, context, &port.meta.project.clone())?;
        name_device(draft, context, &mut port)?;
        let named = input.get("security_groups").is_some_and(Value::is_array);
        port.security_groups = match groups(draft, context, input)?.filter(|_| named) {
            Some(groups) => groups,
            None if port.port_security && !port.device_owner.starts_with("network:") => {
                default.into_iter().collect()
            }
            None => Vec::new(),
        };
        if let Some(pairs) = address_pairs(input)? {
            port.address_pairs = pairs;
        }
        if !port.port_security && !port.security_groups.is_empty() {
            return Err(Error::invalid(
                "PortSecurityAndIPRequiredForSecurityGroups",
                "Port security must be enabled and port must have an IP address in order to use security groups.",
            ));
        }
        check_together(draft, &port)?;
        let id = port.meta.id;
        draft.put(port);
        Ok(id)
    }

    fn update(draft: &mut Draft, context: &Context, old: &Arc<Port>, input: &Input) -> Result<(), Error> {
        let Some(network) = draft.get::<Network>(old.network).cloned() else {
            return Err(Networks::not_found(&old.network.to_string()));
        };
        check_rights(context, &network, input, UPDATE)?;
        let mut port = Port::clone(old);
        common::edit(&mut port.meta, context, input);
        if let Some(up) = input.truth("admin_state_up") {
            port.admin_state_up = up;
        }
        if let Some(device) = input.text("device_id") {
            port.device_id = device;
        }
        if let Some(owner) = input.text("device_owner") {
            port.device_owner = owner;
        }
        if (&port.device_id, &port.device_owner) != (&old.device_id, &old.device_owner) {
            name_device(draft, context, &mut port)?;
        }
        if let Some(host) = input.get("binding:host_id") {
            host.as_str().unwrap_or_default().clone_into(&mut port.host);
        }
        if let Some(vnic_type) = input.text("binding:vnic_type") {
            port.vnic_type = vnic_type;
        }
        if let Some(profile) = profile(input) {
            port.profile = profile;
        }
        let mac = input.parsed::<Mac>("mac_address");
        let mac = mac.map(|mac| mac.unwrap_or_else(|| new_mac(draft, context, old.network)));
        if let Some(mac) = mac.filter(|mac| *mac != old.mac) {
            if !old.host.is_empty() || old.up {
                return Err(Error::conflict(
                    "PortBound",
                    format!(
                        "Unable to complete operation on port {}, port is already bound, port type: ovs, old_mac {}, new_mac {mac}.",
                        old.meta.id, old.mac
                    ),
                ));
            }
            port.mac = mac_if_free(draft, &network, mac)?;
            // The machine makes itself other addresses of it.
            for fixed in &mut port.fixed_ips {
                let subnet = draft.get::<Subnet>(fixed.subnet).filter(|subnet| subnet.is_auto());
                if let Some(subnet) = subnet
                    && fixed.address == addresses::automatic(subnet, old.mac)
                {
                    fixed.address = addresses::automatic(subnet, mac);
                }
            }
        }
        if let Some(asked) = asked(input) {
            let has = old.fixed_ips.clone();
            let wish = For {
                network: &network,
                port: old.meta.id,
                mac: port.mac,
                device_owner: &port.device_owner,
                has: &has,
            };
            port.fixed_ips = addresses::asked(draft, wish, &asked)?;
            check_floating(draft, &port)?;
        }
        if input.has("extra_dhcp_opts") {
            port.dhcp_options = dhcp_options(input, &old.dhcp_options);
        }
        if let Some(groups) = groups(draft, context, input)? {
            port.security_groups = groups;
        }
        if let Some(on) = input.truth("port_security_enabled") {
            port.port_security = on;
        }
        if let Some(pairs) = address_pairs(input)? {
            port.address_pairs = pairs;
        }
        if !port.port_security && !port.security_groups.is_empty() {
            return Err(if input.has("security_groups") && !old.port_security {
                Error::invalid(
                    "PortSecurityAndIPRequiredForSecurityGroups",
                    "Port security must be enabled and port must have an IP address in order to use security groups.",
                )
            } else {
                Error::conflict(
                    "PortSecurityPortHasSecurityGroup",
                    "Port has security group associated. Cannot disable port security or IP address until security group is \
                     removed.",
                )
            });
        }
        check_together(draft, &port)?;
        check_kept(draft, context, old, &port)?;
        draft.put(port);
        Ok(())
    }

    fn delete(draft: &mut Draft, context: &Context, old: &Arc<Port>) -> Result<(), Error> {
        let id = old.meta.id;
        if is_kept(draft, old) {
            return Err(Error::conflict(
                "ServicePortInUse",
                format!(
                    "Port {id} cannot be deleted directly via the port API: has device owner {}.",
                    old.device_owner
                ),
            ));
        }
        release(draft, context, id);
        draft.remove::<Port>(id);
        Ok(())
    }
}

/// The only value of a key that addresses are asked for by.
fn only_value<'a>(query: &'a Query, key: &str) -> Option<&'a str> {
    let (_, values) = query.filters.iter().find(|(name, _)| name == "fixed_ips")?;
    let mut values =
        values.iter().filter_map(|value| value.split_once('=')).filter(|(known, _)| *known == key);
    values.next().filter(|_| values.next().is_none()).map(|(_, value)| value)
}

/// Whether a port is who asks's, or in its network: it may see and remove it. What the port is only its own project says.
fn owns(port: &Port, view: &View<'_>) -> bool {
    let network = view.model.get::<Network>(port.network);
    view.caller.owns(&port.meta.project)
        || network.is_some_and(|network| view.caller.owns(&network.meta.project))
}

/// Whether a router or a floating address has a port, which is then changed through them.
fn is_kept(model: &Model, port: &Port) -> bool {
    let of_router = port.router().is_some_and(|router| model.get::<Router>(router).is_some());
    let floating = || model.get::<FloatingIp>(port.device_id.parse().ok()?);
    of_router || port.is_floating_ip() && floating().is_some_and(|floating| floating.port == port.meta.id)
}

/// What a router has is not filtered, and what was not must not go on so as something else.
fn check_kept(draft: &Draft, context: &Context, old: &Port, new: &Port) -> Result<(), Error> {
    let is_same = old.device_owner == new.device_owner
        && old.device_id == new.device_id
        && old.mac == new.mac
        && old.port_security == new.port_security
        && old.security_groups == new.security_groups
        && old.address_pairs == new.address_pairs;
    if is_same || context.caller.is_admin() || !is_kept(draft, old) {
        return Ok(());
    }
    Err(Error::conflict(
        "ServicePortInUse",
        format!(
            "Port {} cannot be changed so via the port API: has device owner {}. Use remove_router_interface to take it from a \
             router.",
            old.meta.id, old.device_owner
        ),
    ))
}

/// Whether who asks may say that a port is that device's: a router joins all networks that it has a port in, so only who
/// has the router gives it one.
fn name_device(draft: &Draft, context: &Context, port: &mut Port) -> Result<(), Error> {
    let Some(id) = port.router() else { return Ok(()) };
    let router = draft.get::<Router>(id);
    if router.is_some_and(|router| !context.caller.owns(&router.meta.project)) {
        return Err(Error::conflict(
            "DeviceIDNotOwnedByTenant",
            format!(
                "The following device_id {id} is not owned by your project or matches another project router."
            ),
        ));
    }
    // Written in another way it would be the same router, and not be found by it.
    port.device_id = id.to_string();
    Ok(())
}

/// Whether a port still has the addresses that floating ones lead to: the next one to have them would be reached instead.
fn check_floating(draft: &Draft, port: &Port) -> Result<(), Error> {
    let has = |address: IpAddr| port.fixed_ips.iter().any(|fixed| fixed.address == address);
    let mut inside = draft.floating_ips_of_port(port.meta.id).filter_map(|floating| floating.fixed_address);
    if inside.all(has) {
        return Ok(());
    }
    Err(Error::invalid(
        "BadRequest",
        format!(
            "Bad port request: Cannot update the fixed_ips of the port {}, because its original fixed_ip has been associated to \
             a floating ip.",
            port.meta.id
        ),
    ))
}

/// Takes floating addresses away from a port.
pub(crate) fn release(draft: &mut Draft, context: &Context, port: Uuid) {
    let floating: Vec<Uuid> = draft.floating_ips_of_port(port).map(|floating| floating.meta.id).collect();
    for id in floating {
        draft.edit::<FloatingIp>(id, |floating| {
            (floating.fixed_port, floating.fixed_address, floating.router) = (None, None, None);
            common::touch(&mut floating.meta, context);
        });
    }
}

/// Whether who asks may plug into a network: its own, or one that is shared. An external one alone is for routers.
fn check_usable(draft: &Draft, context: &Context, network: &Network) -> Result<(), Error> {
    let view = context.view(draft.model());
    if context.caller.owns(&network.meta.project) || super::network::is_shared(network, &view) {
        Ok(())
    } else {
        Err(Error::forbidden(CREATE))
    }
}

const CREATE: &str = "create_port";
const UPDATE: &str = "update_port";

/// What only the owner of a network may ask for.
const OF_NETWORK_OWNER: [&str; 3] = ["mac_address", "port_security_enabled", "allowed_address_pairs"];

fn check_rights(context: &Context, network: &Network, input: &Input, action: &str) -> Result<(), Error> {
    if context.caller.owns(&network.meta.project) {
        return Ok(());
    }
    if let Some(name) = OF_NETWORK_OWNER.iter().find(|name| input.has(name)) {
        return Err(Error::forbidden(&format!("{action}:{name}")));
    }
    // Without the addresses that it was given it would be nobody, or somebody else.
    if action == UPDATE && input.has("fixed_ips") {
        return Err(Error::forbidden(&format!("{action}:fixed_ips")));
    }
    // A subnet may be chosen by everybody, an address only by the owner.
    let chooses = asked(input).is_some_and(|asked| asked.iter().any(|wish| wish.address.is_some()));
    if chooses {
        return Err(Error::forbidden(&format!("{action}:fixed_ips:ip_address")));
    }
    if input.text("device_owner").is_some_and(|owner| owner.starts_with("network:")) {
        return Err(Error::forbidden(&format!("{action}:device_owner")));
    }
    Ok(())
}

fn asked(input: &Input) -> Option<Vec<Asked>> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let one = |value: &Value| Asked {
        subnet: text(value, "subnet_id").and_then(|id| id.parse().ok()),
        address: text(value, "ip_address").and_then(|address| address.parse().ok()),
    };
    Some(input.list("fixed_ips")?.iter().map(one).collect())
}

fn profile(input: &Input) -> Option<String> {
    let profile = input.get("binding:profile")?;
    let is_empty = profile.as_object().is_none_or(Map::is_empty);
    Some(if is_empty { String::new() } else { profile.to_string() })
}

fn mac_if_free(draft: &Draft, network: &Network, mac: Mac) -> Result<Mac, Error> {
    if draft.ports_with_mac(network.meta.id, mac).next().is_none() {
        return Ok(mac);
    }
    Err(Error::conflict(
        "MacAddressInUse",
        format!(
            "Unable to complete operation for network {}. The mac address {mac} is in use.",
            network.meta.id
        ),
    ))
}

/// A hardware address that nobody has in a network.
pub(crate) fn new_mac(draft: &Draft, context: &Context, network: Uuid) -> Mac {
    loop {
        let mac = Mac::under(context.settings.mac_base, Uuid::new_v4());
        if draft.ports_with_mac(network, mac).next().is_none() {
            return mac;
        }
    }
}

fn groups(draft: &Draft, context: &Context, input: &Input) -> Result<Option<Vec<Uuid>>, Error> {
    let Some(ids) = input.parsed_list::<Uuid>("security_groups") else { return Ok(None) };
    let view = context.view(draft.model());
    for id in &ids {
        let group = draft.get::<SecurityGroup>(*id).filter(|group| SecurityGroups::is_visible(group, &view));
        group.ok_or_else(|| Error::group_not_found(*id))?;
    }
    Ok(Some(ids))
}

fn address_pairs(input: &Input) -> Result<Option<Vec<AddressPair>>, Error> {
    const MOST: usize = 10;
    let Some(list) = input.list("allowed_address_pairs") else { return Ok(None) };
    if list.len() > MOST {
        return Err(Error::invalid(
            "AllowedAddressPairExhausted",
            format!("The number of allowed address pair exceeds the maximum {MOST}."),
        ));
    }
    let mut pairs: Vec<AddressPair> = Vec::new();
    for value in list {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let pair = AddressPair {
            address: text("ip_address").unwrap_or_default().to_owned(),
            mac: text("mac_address").and_then(|mac| mac.parse().ok()),
        };
        if pairs.contains(&pair) {
            return Err(Error::invalid(
                "DuplicateAddressPairInRequest",
                format!(
                    "Request contains duplicate address pair: mac_address {} ip_address {}.",
                    pair.mac.map_or_else(|| "None".to_owned(), |mac| mac.to_string()),
                    pair.address
                ),
            ));
        }
        pairs.push(pair);
    }
    Ok(Some(pairs))
}

/// The options after a request: one without a value is gone, the others are added or changed.
fn dhcp_options(input: &Input, old: &[DhcpOption]) -> Vec<DhcpOption> {
    let mut given: BTreeMap<(&str, Family), Option<&str>> = BTreeMap::new();
    for value in input.list("extra_dhcp_opts").unwrap_or_default() {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let version = if value.get("ip_version") == Some(&json!(6)) { Family::V6 } else { Family::V4 };
        given.insert((text("opt_name").unwrap_or_default(), version), text("opt_value"));
    }
    let is_kept = |option: &&DhcpOption| !given.contains_key(&(option.name.as_str(), option.version));
    let kept = old.iter().filter(is_kept).cloned();
    let new = given.iter().filter_map(|((name, version), value)| {
        Some(DhcpOption { name: (*name).to_owned(), value: (*value)?.to_owned(), version: *version })
    });
    kept.chain(new).collect()
}

/// What must hold between the parts of a port.
fn check_together(draft: &Draft, port: &Port) -> Result<(), Error> {
    if !port.port_security && !port.address_pairs.is_empty() {
        return Err(Error::conflict(
            "AddressPairAndPortSecurityRequired",
            "Port Security must be enabled in order to have allowed address pairs on a port.",
        ));
    }
    let groups = port.security_groups.iter().filter_map(|id| draft.get::<SecurityGroup>(*id));
    let kinds: BTreeSet<bool> = groups.map(|group| group.stateful).collect();
    if kinds.len() > 1 {
        return Err(Error::conflict(
            "SecurityGroupConflict",
            "Error Cannot apply both stateful and stateless security groups on the same port at the same time while \
             attempting the operation.",
        ));
    }
    Ok(())
}

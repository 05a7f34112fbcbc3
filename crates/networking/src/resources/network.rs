use std::sync::{Arc, LazyLock};

use portcullis_core::Family;
use portcullis_ovn::objects::{FloatingIp, Network, Port, RbacPolicy, Subnet};
use portcullis_ovn::{Draft, Model};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Context, Few, Resource, common};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, LIST, NAME, SAID, WORDS, WORDS_OR_NULL};
use crate::query::Query;
use crate::quota;

pub(crate) struct Networks;

static ATTRIBUTES: LazyLock<Vec<Attribute<Network>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        common::name(),
        Attribute::new("admin_state_up", Kind::Truth, |network: &Network, _| json!(network.admin_state_up))
            .post()
            .put(),
        Attribute::new("status", WORDS, |_: &Network, _| json!("ACTIVE")),
        Attribute::new("subnets", LIST, |network: &Network, view| {
            view.model.subnets_of_network(network.meta.id).map(|subnet| json!(subnet.meta.id)).collect()
        })
        .no_query(),
        Attribute::new("shared", Kind::Truth, |network: &Network, view| json!(is_shared(network, view)))
            .post()
            .put()
            .admin_sets(|| json!(false)),
        Attribute::new("router:external", Kind::Truth, |network: &Network, _| json!(network.external))
            .post()
            .put()
            .admin_sets(|| json!(false)),
        Attribute::new("is_default", Kind::Truth, |network: &Network, _| json!(network.is_default))
            .post()
            .put()
            .admin_sets(|| json!(false)),
        Attribute::new("mtu", Kind::Number(0, 65_535), |network: &Network, _| json!(network.mtu))
            .post()
            .put(),
        Attribute::new("port_security_enabled", Kind::Truth, |network: &Network, _| {
            json!(network.port_security)
        })
        .post()
        .put(),
        Attribute::new("dns_domain", DOMAIN, |network: &Network, _| json!(network.dns_domain)).post().put(),
        Attribute::new(
            "provider:network_type",
            Kind::WordOrNull(&["flat", "vlan", "geneve"]),
            |network, _| json!(network_type(network)),
        )
        .post()
        .admin(),
        Attribute::new("provider:physical_network", Kind::TextOrNull(NAME), |network: &Network, _| {
            json!(network.physical)
        })
        .post()
        .admin(),
        Attribute::new("provider:segmentation_id", Kind::NumberOrNull(1, 4094), |network: &Network, _| {
            json!(network.vlan)
        })
        .post()
        .admin(),
        Attribute::new("availability_zone_hints", Kind::Texts(NAME), |_: &Network, _| json!([])).post(),
        Attribute::new("availability_zones", LIST, |_: &Network, _| json!([])).no_query(),
        Attribute::new("ipv4_address_scope", WORDS_OR_NULL, |_: &Network, _| Value::Null),
        Attribute::new("ipv6_address_scope", WORDS_OR_NULL, |_: &Network, _| Value::Null),
        Attribute::new("l2_adjacency", SAID, |_: &Network, _| json!(true)),
    ]);
    attributes
});

/// A domain name, or an empty text. It goes into what OVN's DHCP server answers.
const DOMAIN: Kind = Kind::Custom(
    |value| {
        let domain = Kind::Text(NAME).check(value)?;
        let text = domain.as_str().unwrap_or_default();
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if text.is_empty() || text.strip_suffix('.').unwrap_or(text).split('.').all(is_label) {
            return Ok(domain);
        }
        Err(format!(
            "'{text}' is not a domain name: write letters, digits and hyphens, at most 63 between two dots"
        ))
    },
    || json!({"type": "string", "maxLength": NAME}),
);

fn network_type(network: &Network) -> &'static str {
    match (&network.physical, network.vlan) {
        (Some(_), Some(_)) => "vlan",
        (Some(_), None) => "flat",
        (None, _) => "geneve",
    }
}

/// Whether who asks may use a network of another.
pub(crate) fn is_shared(network: &Network, view: &View<'_>) -> bool {
    is_given(view.model, network.meta.id, "access_as_shared", &view.caller.project)
}

/// Whether a policy lets a project, or everybody, do something with an object.
pub(crate) fn is_given(model: &Model, object: Uuid, action: &str, project: &str) -> bool {
    model
        .policies_of(object)
        .any(|policy| policy.action == action && (policy.target == "*" || policy.target == project))
}

impl Resource for Networks {
    type Object = Network;

    const NAME: &'static str = "network";
    const PLURAL: &'static str = "networks";
    const COLLECTION: &'static str = "networks";

    fn attributes() -> &'static [Attribute<Network>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("NetworkNotFound", format!("Network {id} could not be found."))
    }

    fn is_visible(network: &Network, view: &View<'_>) -> bool {
        view.caller.owns(&network.meta.project)
            || is_shared(network, view)
            || is_given(view.model, network.meta.id, "access_as_external", &view.caller.project)
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, Network>> {
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let mut meta = common::meta(context, input)?;
        meta.revision = 1;
        quota::check::<Network>(draft, context, &meta.project, 1)?;
        let physical = input.text("provider:physical_network").is_some();
        let network = Network {
            admin_state_up: input.truth("admin_state_up").unwrap_or(true),
            mtu: mtu(context, input, physical)?,
            port_security: input.truth("port_security_enabled").unwrap_or(context.settings.port_security),
            external: input.truth("router:external").unwrap_or(false),
            is_default: input.truth("is_default").unwrap_or(false),
            dns_domain: input.text("dns_domain").unwrap_or_default(),
            physical: input.text("provider:physical_network"),
            vlan: vlan(input)?,
            meta,
        };
        let id = network.meta.id;
        check_provider(&network, input)?;
        let (external, shared) = (network.external, input.truth("shared").unwrap_or(false));
        let project = network.meta.project.clone();
        draft.put(network);
        super::security_group::ensure_default(draft, context, &project)?;
        set_policy(draft, context, id, "access_as_external", external);
        set_policy(draft, context, id, "access_as_shared", shared);
        Ok(id)
    }

    fn update(draft: &mut Draft, context: &Context, old: &Arc<Network>, input: &Input) -> Result<(), Error> {
        let id = old.meta.id;
        let mut network = Network::clone(old);
        common::edit(&mut network.meta, context, input);
        if let Some(up) = input.truth("admin_state_up") {
            network.admin_state_up = up;
        }
        // One that was there before there was a limit may be said again.
        if input.has("mtu") && input.number("mtu").flatten() != Some(i64::from(old.mtu)) {
            network.mtu = mtu(context, input, old.physical.is_some())?;
            for family in Family::ALL {
                if draft.subnets_of_network(id).any(|subnet| subnet.family() == family) {
                    check_mtu(&network, family)?;
                }
            }
        }
        if let Some(on) = input.truth("port_security_enabled") {
            network.port_security = on;
        }
        if let Some(domain) = input.text("dns_domain") {
            network.dns_domain = domain;
        }
        if let Some(is_default) = input.truth("is_default") {
            network.is_default = is_default;
        }
        if let Some(external) = input.truth("router:external") {
            let gateway = |port: &&Arc<Port>| {
                port.device_owner == Port::ROUTER_GATEWAY || port.device_owner == Port::FLOATING_IP
            };
            if !external && draft.ports_of_network(id).any(|port| gateway(&port)) {
                return Err(Error::conflict(
                    "ExternalNetworkInUse",
                    format!(
                        "External network {id} cannot be updated to be made non-external, since it has existing gateway ports."
                    ),
                ));
            }
            network.external = external;
            set_policy(draft, context, id, "access_as_external", external);
        }
        if let Some(shared) = input.truth("shared") {
            if !shared {
                check_unshare(draft, &network)?;
            }
            set_policy(draft, context, id, "access_as_shared", shared);
        }
        draft.put(network);
        Ok(())
    }

    fn delete(draft: &mut Draft, _context: &Context, old: &Arc<Network>) -> Result<(), Error> {
        let id = old.meta.id;
        // Floating addresses that nobody uses go with the network they are of.
        let unused: Vec<(Uuid, Uuid)> = draft
            .ports_of_network(id)
            .filter(|port| port.is_floating_ip())
            .filter_map(|port| Some((port, draft.get::<FloatingIp>(port.device_id.parse().ok()?)?)))
            // What a port is for, its owner says; whose it is, the floating address.
            .filter(|(port, floating)| floating.port == port.meta.id && floating.fixed_port.is_none())
            .map(|(port, floating)| (floating.meta.id, port.meta.id))
            .collect();
        for (floating, port) in unused {
            draft.remove::<FloatingIp>(floating);
            draft.remove::<Port>(port);
        }
        let ports: Vec<String> = draft.ports_of_network(id).map(|port| port.meta.id.to_string()).collect();
        if !ports.is_empty() {
            return Err(Error::conflict(
                "NetworkInUse",
                format!(
                    "Unable to complete operation on network {id}. There are one or more ports still in use on the network, id \
                     for these ports is: {}.",
                    ports.join(",")
                ),
            ));
        }
        let subnets: Vec<Uuid> = draft.subnets_of_network(id).map(|subnet| subnet.meta.id).collect();
        for subnet in subnets {
            draft.remove::<Subnet>(subnet);
        }
        super::remove_policies(draft, id);
        draft.remove::<Network>(id);
        Ok(())
    }
}

/// The largest packet: what was asked, if the wire carries it, or all that it carries.
fn mtu(context: &Context, input: &Input, physical: bool) -> Result<u32, Error> {
    let most = if physical { context.settings.physical_mtu } else { context.settings.mtu };
    match input.number("mtu").flatten() {
        None | Some(0) => Ok(most),
        Some(mtu) => u32::try_from(mtu)
            .ok()
            .filter(|mtu| *mtu <= most)
            .ok_or_else(|| Error::invalid_input(format!("Requested MTU is too big, maximum is {most}"))),
    }
}

/// Whether packets of a family can be as small as they must be able to be.
pub(crate) fn check_mtu(network: &Network, family: Family) -> Result<(), Error> {
    let least = match family {
        Family::V4 => 68,
        Family::V6 => 1280,
    };
    if network.mtu >= least {
        return Ok(());
    }
    let message = format!("MTU of {} is not valid, subnet requires a minimum of {least}", network.meta.id);
    Err(Error::conflict("NetworkMTUSubnetConflict", message))
}

fn vlan(input: &Input) -> Result<Option<u16>, Error> {
    match input.number("provider:segmentation_id") {
        Some(Some(vlan)) => u16::try_from(vlan)
            .map(Some)
            .map_err(|_| Error::invalid_attribute("provider:segmentation_id", "out of range")),
        _ => Ok(None),
    }
}

/// What the words about the wire say together.
fn check_provider(network: &Network, input: &Input) -> Result<(), Error> {
    let Some(kind) = input.text("provider:network_type") else {
        return match (&network.physical, network.vlan) {
            (None, Some(_)) => {
                Err(Error::invalid_input("provider:segmentation_id requires provider:physical_network"))
            }
            _ => Ok(()),
        };
    };
    let says = match (kind.as_str(), &network.physical, network.vlan) {
        ("geneve", None, None) | ("flat", Some(_), None) | ("vlan", Some(_), Some(_)) => return Ok(()),
        ("geneve", Some(_), _) => "provider:physical_network specified for geneve provider network",
        ("geneve", None, Some(_)) => "provider:segmentation_id of a geneve network is chosen by OVN",
        (_, None, _) => "provider:physical_network required for this type of network",
        ("flat", ..) => "provider:segmentation_id specified for flat provider network",
        _ => "provider:segmentation_id required for vlan provider network",
    };
    Err(Error::invalid_input(says))
}

/// Makes the policy that lets everybody do something with a network, or takes it away.
fn set_policy(draft: &mut Draft, context: &Context, network: Uuid, action: &str, present: bool) {
    let of_action = draft.policies_of(network).filter(|policy| policy.action == action);
    // What is not external any more is nobody's way out; what is not everybody's may still be somebody's.
    let all = action == "access_as_external";
    let old: Vec<Uuid> = of_action
        .filter(|policy| policy.target == "*" || all && !present)
        .map(|policy| policy.meta.id)
        .collect();
    match (old.as_slice(), present) {
        (ids, false) => ids.iter().for_each(|id| draft.remove::<RbacPolicy>(*id)),
        ([], true) => {
            let project = draft.get::<Network>(network).map(|network| network.meta.project.clone());
            let mut policy = super::rbac_policy::everybody("network", network, action);
            policy.meta.project = project.unwrap_or_else(|| context.caller.project.clone());
            draft.put(policy);
        }
        _ => {}
    }
}

/// Whether nobody would lose what they use of a network if it were not everybody's any more.
fn check_unshare(draft: &Draft, network: &Network) -> Result<(), Error> {
    let policy = super::rbac_policy::everybody("network", network.meta.id, "access_as_shared");
    if super::rbac_policy::is_needed(draft, &policy, None) {
        return Err(Error::conflict(
            "InvalidSharedSetting",
            format!(
                "Unable to reconfigure sharing settings for network {}. Multiple projects are using it.",
                network.meta.id
            ),
        ));
    }
    Ok(())
}

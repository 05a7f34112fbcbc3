use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use portcullis_ovn::objects::{AddressGroup, Meta, Network, Port, RbacPolicy, Router, SecurityGroup};
use portcullis_ovn::{Draft, Model};
use serde_json::json;
use uuid::Uuid;

use super::address_group::AddressGroups;
use super::network::Networks;
use super::security_group::SecurityGroups;
use super::{Context, Few, Resource, common, find};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, NAME, shown};
use crate::query::Query;
use crate::quota;

pub(crate) struct RbacPolicies;

static ATTRIBUTES: LazyLock<Vec<Attribute<RbacPolicy>>> = LazyLock::new(|| {
    vec![
        Attribute::new("id", Kind::Id, |policy: &RbacPolicy, _| json!(policy.meta.id)),
        Attribute::new("project_id", Kind::Text(NAME), |policy: &RbacPolicy, _| json!(policy.meta.project))
            .post(),
        Attribute::new("tenant_id", Kind::Text(NAME), |policy: &RbacPolicy, _| json!(policy.meta.project))
            .post(),
        Attribute::new("object_type", OBJECT_TYPE, |policy: &RbacPolicy, _| json!(policy.object_type))
            .required()
            .query(),
        Attribute::new("object_id", Kind::Id, |policy: &RbacPolicy, _| json!(policy.object)).required(),
        Attribute::new("action", Kind::Text(NAME), |policy: &RbacPolicy, _| json!(policy.action)).required(),
        Attribute::new("target_tenant", TARGET, |policy: &RbacPolicy, _| json!(policy.target))
            .required()
            .put()
            .query(),
    ]
});

/// What can be given, and for what.
const GIVEN: [(&str, &[&str]); 3] =
    [(NETWORK, &[SHARED, EXTERNAL]), (SECURITY_GROUP, &[SHARED]), (ADDRESS_GROUP, &[SHARED])];
const NETWORK: &str = "network";
const SECURITY_GROUP: &str = "security_group";
const ADDRESS_GROUP: &str = "address_group";
const SHARED: &str = "access_as_shared";
const EXTERNAL: &str = "access_as_external";

/// Spaces and case do not count. What it is not is told by its own error.
const OBJECT_TYPE: Kind = Kind::Custom(
    |value| Ok(json!(shown(value).trim().to_lowercase())),
    || json!({"type": "string", "enum": [NETWORK, SECURITY_GROUP, ADDRESS_GROUP]}),
);

/// A project, or `*`. What it is not is told by its own error.
const TARGET: Kind =
    Kind::Custom(|value| Ok(json!(shown(value))), || json!({"type": "string", "maxLength": NAME}));

/// Something that everybody may do with an object.
pub(crate) fn everybody(object_type: &str, object: Uuid, action: &str) -> RbacPolicy {
    RbacPolicy {
        meta: Meta { id: Uuid::new_v4(), ..Meta::default() },
        object_type: object_type.to_owned(),
        object,
        action: action.to_owned(),
        target: "*".to_owned(),
    }
}

impl Resource for RbacPolicies {
    type Object = RbacPolicy;

    const NAME: &'static str = "rbac_policy";
    const PLURAL: &'static str = "rbac_policies";
    const COLLECTION: &'static str = "rbac-policies";

    fn attributes() -> &'static [Attribute<RbacPolicy>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("RbacPolicyNotFound", format!("RBAC policy of type unknown with ID {id} not found"))
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, RbacPolicy>> {
        if let Some(object) = query.one("object_id") {
            return Some(Box::new(model.policies_of(object.parse().ok()?)));
        }
        if let Some(target) = query.one("target_tenant") {
            return Some(Box::new(model.policies_for(target)));
        }
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let policy = RbacPolicy {
            meta: common::meta(context, input)?,
            object_type: input.text("object_type").unwrap_or_default(),
            object: input.some("object_id").unwrap_or_default(),
            action: input.text("action").unwrap_or_default(),
            target: target(context, input, "create")?,
        };
        let Some((_, actions)) = GIVEN.iter().find(|(name, _)| *name == policy.object_type) else {
            return Err(Error::invalid_input(format!(
                "'{}' is not a valid RBAC object type",
                policy.object_type
            )));
        };
        check_owner(context, &context.view(draft), &policy)?;
        if !actions.contains(&policy.action.as_str()) {
            return Err(Error::invalid(
                "InvalidActionForType",
                format!(
                    "Invalid action '{}' for object type '{}'. Valid actions: {}",
                    policy.action,
                    policy.object_type,
                    actions.join(", ")
                ),
            ));
        }
        check_new(draft, &policy)?;
        quota::check::<RbacPolicy>(draft, context, &policy.meta.project, 1)?;
        let id = policy.meta.id;
        count(draft, context, &policy);
        if policy.action == EXTERNAL {
            draft.edit::<Network>(policy.object, |network| network.external = true);
        }
        draft.put(policy);
        Ok(id)
    }

    fn update(
        draft: &mut Draft,
        context: &Context,
        old: &Arc<RbacPolicy>,
        input: &Input,
    ) -> Result<(), Error> {
        if !input.has("target_tenant") {
            return Ok(());
        }
        let policy = RbacPolicy { target: target(context, input, "update")?, ..RbacPolicy::clone(old) };
        check_owner(context, &context.view(draft), old)?;
        if policy.target == old.target {
            return Ok(());
        }
        check_new(draft, &policy)?;
        check_withdraw(draft, old, Some(&policy.target))?;
        count(draft, context, &policy);
        draft.put(policy);
        Ok(())
    }

    fn delete(draft: &mut Draft, context: &Context, old: &Arc<RbacPolicy>) -> Result<(), Error> {
        check_withdraw(draft, old, None)?;
        draft.remove::<RbacPolicy>(old.meta.id);
        count(draft, context, old);
        if old.action == EXTERNAL && !draft.policies_of(old.object).any(|policy| policy.action == EXTERNAL) {
            draft.edit::<Network>(old.object, |network| network.external = false);
        }
        Ok(())
    }
}

/// Whom a request is about. Only administrators give to everybody.
fn target(context: &Context, input: &Input, verb: &str) -> Result<String, Error> {
    let target = input.text("target_tenant").unwrap_or_default();
    if target != "*" && Uuid::try_parse(&target).is_err() {
        return Err(Error::invalid_input(format!(
            "'{target}' is not a valid target project ID; expected a UUID or '*'"
        )));
    }
    if target == "*" && !context.caller.is_admin() {
        return Err(Error::forbidden(&format!("{verb}_rbac_policy:target_tenant")));
    }
    Ok(target)
}

/// Whether who asks may give the object away.
fn check_owner(context: &Context, view: &View<'_>, policy: &RbacPolicy) -> Result<(), Error> {
    let id = policy.object.to_string();
    let owner = match policy.object_type.as_str() {
        NETWORK => find::<Networks>(view, &id).map(|network| &network.meta.project),
        SECURITY_GROUP => find::<SecurityGroups>(view, &id).map(|group| &group.meta.project),
        _ => find::<AddressGroups>(view, &id).map(|group| &group.meta.project),
    };
    // A request with an object that is not there is a wrong one; its own address was found.
    let owner = owner.map_err(|error| Error::invalid_input(error.message.trim_end_matches('.')))?;
    if context.caller.owns(owner) {
        Ok(())
    } else {
        Err(Error::invalid_input("Only admins can manipulate policies on objects they do not own"))
    }
}

fn check_new(draft: &Draft, policy: &RbacPolicy) -> Result<(), Error> {
    let is_same = |other: &Arc<RbacPolicy>| other.action == policy.action && other.target == policy.target;
    if draft.policies_of(policy.object).any(is_same) {
        return Err(Error::conflict(
            "DuplicateRbacPolicy",
            "An RBAC policy already exists with those values.",
        ));
    }
    Ok(())
}

/// Counts a change of the object that a policy is about.
fn count(draft: &mut Draft, context: &Context, policy: &RbacPolicy) {
    match policy.object_type.as_str() {
        NETWORK => common::bump::<Network>(draft, context, policy.object),
        SECURITY_GROUP => common::bump::<SecurityGroup>(draft, context, policy.object),
        _ => common::bump::<AddressGroup>(draft, context, policy.object),
    }
}

/// Whether nobody would lose what they use of an object if a policy were not there, or were for another.
fn check_withdraw(draft: &Draft, policy: &RbacPolicy, instead: Option<&str>) -> Result<(), Error> {
    let why = if is_needed(draft, policy, instead) {
        "other projects use it, and no other policy lets them"
    } else if policy.action == EXTERNAL && policy.target == "*" && is_default(draft, policy.object) {
        "Default external networks must be shared to everyone."
    } else {
        return Ok(());
    };
    Err(Error::conflict(
        "RbacPolicyInUse",
        format!(
            "RBAC policy on object {} cannot be removed because other objects depend on it.\nDetails: {why}",
            policy.object
        ),
    ))
}

fn is_default(model: &Model, network: Uuid) -> bool {
    model.get::<Network>(network).is_some_and(|network| network.is_default)
}

/// Whether some project uses an object that only this policy lets it use.
pub(crate) fn is_needed(model: &Model, policy: &RbacPolicy, instead: Option<&str>) -> bool {
    let covers = |target: &str, project: &str| target == "*" || target == project;
    let other = |project: &str| {
        instead.is_some_and(|target| covers(target, project))
            || model.policies_of(policy.object).any(|other| {
                let is_other = (&other.action, &other.target) != (&policy.action, &policy.target);
                is_other && other.action == policy.action && covers(&other.target, project)
            })
    };
    users(model, policy).into_iter().any(|project| covers(&policy.target, project) && !other(project))
}

/// The projects that use another's object in the way that a policy lets them.
fn users<'a>(model: &'a Model, policy: &RbacPolicy) -> BTreeSet<&'a str> {
    let id = policy.object;
    let owner = match policy.object_type.as_str() {
        NETWORK => model.get::<Network>(id).map(|network| &network.meta.project),
        SECURITY_GROUP => model.get::<SecurityGroup>(id).map(|group| &group.meta.project),
        _ => model.get::<AddressGroup>(id).map(|group| &group.meta.project),
    };
    let users: BTreeSet<&str> = match (policy.object_type.as_str(), policy.action.as_str()) {
        (NETWORK, EXTERNAL) => {
            let gateways =
                model.ports_of_network(id).filter(|port| port.device_owner == Port::ROUTER_GATEWAY);
            let routers = gateways.filter_map(|port| model.get::<Router>(port.router()?));
            routers.map(|router| router.meta.project.as_str()).collect()
        }
        (NETWORK, _) => model
            .ports_of_network(id)
            .filter(|port| !port.device_owner.starts_with("network:"))
            .map(|port| port.meta.project.as_str())
            .chain(model.subnets_of_network(id).map(|subnet| subnet.meta.project.as_str()))
            .collect(),
        (SECURITY_GROUP, _) => model.ports_of_group(id).map(|port| port.meta.project.as_str()).collect(),
        _ => model.rules_to(id).map(|rule| rule.meta.project.as_str()).collect(),
    };
    users.into_iter().filter(|project| owner.is_none_or(|owner| owner != project)).collect()
}

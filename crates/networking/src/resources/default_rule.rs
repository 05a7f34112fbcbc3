use std::sync::{Arc, LazyLock};

use portcullis_core::{Direction, Family};
use portcullis_ovn::objects::{AddressGroup, Meta, Rule, RuleTemplate, SecurityGroup};
use portcullis_ovn::{Draft, Model};
use serde_json::{Value, json};
use uuid::Uuid;

use super::address_group::AddressGroups;
use super::{Context, Few, Resource, common, rule};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, NAME};
use crate::query::Query;

/// The rules that new groups get.
pub(crate) struct DefaultRules;

static ATTRIBUTES: LazyLock<Vec<Attribute<RuleTemplate>>> = LazyLock::new(|| {
    vec![
        Attribute::new("id", Kind::Id, |template: &RuleTemplate, _| json!(template.meta.id)),
        Attribute::new("direction", rule::DIRECTION, |template: &RuleTemplate, _| {
            json!(template.rule.direction)
        })
        .required(),
        Attribute::new("ethertype", rule::ETHERTYPE, |template: &RuleTemplate, _| {
            json!(template.rule.ethertype)
        })
        .post()
        .query(),
        Attribute::new("protocol", rule::PROTOCOL, |template: &RuleTemplate, _| {
            json!(template.rule.protocol)
        })
        .post()
        .query(),
        Attribute::new("port_range_min", rule::PORT, |template: &RuleTemplate, _| {
            json!(template.rule.port_min)
        })
        .post(),
        Attribute::new("port_range_max", rule::PORT, |template: &RuleTemplate, _| {
            json!(template.rule.port_max)
        })
        .post(),
        Attribute::new("remote_ip_prefix", rule::PREFIX, |template: &RuleTemplate, _| {
            json!(template.rule.remote_prefix)
        })
        .post()
        .query(),
        Attribute::new("remote_group_id", REMOTE_GROUP, |template: &RuleTemplate, _| {
            if template.remote_is_parent { json!(PARENT) } else { json!(template.rule.remote_group) }
        })
        .post()
        .query(),
        Attribute::new("remote_address_group_id", Kind::IdOrNull, |template: &RuleTemplate, _| {
            json!(template.rule.remote_address_group)
        })
        .post(),
        Attribute::new("description", Kind::Text(NAME), |template: &RuleTemplate, _| {
            json!(template.meta.description)
        })
        .post(),
        Attribute::new("used_in_default_sg", Kind::Truth, |template: &RuleTemplate, _| {
            json!(template.in_default)
        })
        .required(),
        Attribute::new("used_in_non_default_sg", Kind::Truth, |template: &RuleTemplate, _| {
            json!(template.in_others)
        })
        .required(),
    ]
});

/// The word for the group that a rule will be in.
const PARENT: &str = "PARENT";

const REMOTE_GROUP: Kind = Kind::Custom(
    |value| if value == PARENT { Ok(value.clone()) } else { Kind::IdOrNull.check(value) },
    || json!({"type": ["string", "null"], "description": "a group's id, or PARENT for the new group itself"}),
);

/// Everything out, for all groups; into a default group, what comes from its other members. They are in force without
/// being stored; one that was deleted is stored as removed.
static USUAL: LazyLock<Vec<Arc<RuleTemplate>>> = LazyLock::new(|| {
    let template = |number: u128, direction, ethertype, remote_is_parent, in_others| {
        let way = if direction == Direction::Egress { "egress" } else { "ingress" };
        Arc::new(RuleTemplate {
            meta: Meta {
                id: Uuid::from_u128(0x7275_6c65_0000_4000_8000_0000_0000_0000 + number),
                // Neutron's clients know these by their words.
                description: format!("Legacy default SG rule for {way} traffic"),
                ..Meta::default()
            },
            rule: Rule { direction, ethertype, ..Rule::default() },
            remote_is_parent,
            in_default: true,
            in_others,
            removed: false,
        })
    };
    vec![
        template(1, Direction::Egress, Family::V4, false, true),
        template(2, Direction::Egress, Family::V6, false, true),
        template(3, Direction::Ingress, Family::V4, true, false),
        template(4, Direction::Ingress, Family::V6, true, false),
    ]
});

/// The rules that new groups get: the usual ones that nobody removed, and those that somebody added.
pub(crate) fn in_force(model: &Model) -> impl Iterator<Item = &Arc<RuleTemplate>> {
    let usual = USUAL.iter().filter(|template| model.get::<RuleTemplate>(template.meta.id).is_none());
    usual.chain(model.all::<RuleTemplate>(None).filter(|template| !template.removed))
}

/// Whether the other end of a template's rule is there; a rule about one that is not would allow nothing.
pub(crate) fn has_remote(model: &Model, template: &RuleTemplate) -> bool {
    let rule = &template.rule;
    rule.remote_group.is_none_or(|id| model.get::<SecurityGroup>(id).is_some())
        && rule.remote_address_group.is_none_or(|id| model.get::<AddressGroup>(id).is_some())
}

impl Resource for DefaultRules {
    type Object = RuleTemplate;

    const NAME: &'static str = "default_security_group_rule";
    const PLURAL: &'static str = "default_security_group_rules";
    const COLLECTION: &'static str = "default-security-group-rules";

    fn attributes() -> &'static [Attribute<RuleTemplate>] {
        &ATTRIBUTES
    }

    fn get(model: &Model, id: Uuid) -> Option<&Arc<RuleTemplate>> {
        in_force(model).find(|template| template.meta.id == id)
    }

    fn not_found(id: &str) -> Error {
        Error::not_found(
            "DefaultSecurityGroupRuleNotFound",
            format!("Default Security Group rule {id} does not exist"),
        )
    }

    fn is_visible(_template: &RuleTemplate, _view: &View<'_>) -> bool {
        true
    }

    fn may_change(_template: &RuleTemplate, view: &View<'_>) -> bool {
        view.caller.is_admin()
    }

    fn few<'a>(_query: &Query, model: &'a Model) -> Option<Few<'a, RuleTemplate>> {
        Some(Box::new(in_force(model)))
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        if !context.caller.is_admin() {
            return Err(Error::forbidden("create_default_security_group_rule"));
        }
        let template = wanted(draft, context, input)?;
        if let Some(same) = in_force(draft).find(|other| is_twice(other, &template)) {
            return Err(Error::conflict(
                "DefaultSecurityGroupRuleExists",
                format!("Default Security group rule already exists. Rule id is {}.", same.meta.id),
            ));
        }
        let id = template.meta.id;
        draft.put(template);
        Ok(id)
    }

    fn same(draft: &Draft, context: &Context, input: &Input) -> Result<Option<Uuid>, Error> {
        let template = wanted(draft, context, input)?;
        let is_same = |other: &&Arc<RuleTemplate>| {
            (other.in_default, other.in_others) == (template.in_default, template.in_others)
                && allows_same(other, &template)
        };
        Ok(in_force(draft).find(is_same).map(|same| same.meta.id))
    }

    fn update(
        _draft: &mut Draft,
        _context: &Context,
        _old: &Arc<RuleTemplate>,
        _input: &Input,
    ) -> Result<(), Error> {
        // No attribute can be changed, so nothing is left to change.
        Ok(())
    }

    fn delete(draft: &mut Draft, _context: &Context, old: &Arc<RuleTemplate>) -> Result<(), Error> {
        let is_usual = USUAL.iter().any(|template| template.meta.id == old.meta.id);
        if is_usual {
            draft.put(RuleTemplate { removed: true, ..RuleTemplate::clone(old) });
        } else {
            draft.remove::<RuleTemplate>(old.meta.id);
        }
        Ok(())
    }
}

/// The template that a request asks for.
fn wanted(draft: &Draft, context: &Context, input: &Input) -> Result<RuleTemplate, Error> {
    let remote_is_parent = input.get("remote_group_id") == Some(&Value::from(PARENT));
    let mut asked = input.clone();
    if remote_is_parent {
        // It is the name of no group.
        asked.0.remove("remote_group_id");
    }
    let template = RuleTemplate {
        meta: common::meta(context, input)?,
        rule: rule::traffic(&asked)?,
        remote_is_parent,
        in_default: input.truth("used_in_default_sg").unwrap_or(false),
        in_others: input.truth("used_in_non_default_sg").unwrap_or(false),
        removed: false,
    };
    if remote_is_parent
        && (template.rule.remote_prefix.is_some() || template.rule.remote_address_group.is_some())
    {
        return Err(rule::several_remotes());
    }
    if !has_remote(draft, &template) {
        return Err(match (template.rule.remote_group, template.rule.remote_address_group) {
            (Some(group), _) => Error::group_not_found(group),
            (None, group) => AddressGroups::not_found(&group.unwrap_or_default().to_string()),
        });
    }
    Ok(template)
}

/// Whether some group would get the same rule from both.
fn is_twice(one: &RuleTemplate, other: &RuleTemplate) -> bool {
    let together = one.in_default && other.in_default || one.in_others && other.in_others;
    together && allows_same(one, other)
}

fn allows_same(one: &RuleTemplate, other: &RuleTemplate) -> bool {
    one.remote_is_parent == other.remote_is_parent && rule::key(&one.rule) == rule::key(&other.rule)
}

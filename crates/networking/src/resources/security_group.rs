use std::sync::{Arc, LazyLock};

use portcullis_ovn::objects::{Meta, Rule, RuleTemplate, SecurityGroup};
use portcullis_ovn::{Draft, Model};
use serde_json::json;
use uuid::Uuid;

use super::rule::Rules;
use super::{Context, Few, Resource, common, network};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, LIST, SAID};
use crate::query::Query;
use crate::quota;

pub(crate) struct SecurityGroups;

static ATTRIBUTES: LazyLock<Vec<Attribute<SecurityGroup>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        common::name(),
        Attribute::new("stateful", Kind::Truth, |group: &SecurityGroup, _| json!(group.stateful))
            .post()
            .put(),
        Attribute::new("shared", SAID, |group, view| json!(is_shared(group, view))),
        Attribute::new("security_group_rules", LIST, |group: &SecurityGroup, view| {
            let rules = view.model.rules_of_group(group.meta.id);
            rules.map(|rule| super::shown::<Rules>(rule, view, &[])).collect()
        })
        .no_query(),
    ]);
    attributes
});

fn is_shared(group: &SecurityGroup, view: &View<'_>) -> bool {
    network::is_given(view.model, group.meta.id, "access_as_shared", &view.caller.project)
}

/// The name of the group that ports get which name none.
pub(crate) const DEFAULT: &str = "default";

impl Resource for SecurityGroups {
    type Object = SecurityGroup;

    const NAME: &'static str = "security_group";
    const PLURAL: &'static str = "security_groups";
    const COLLECTION: &'static str = "security-groups";

    fn attributes() -> &'static [Attribute<SecurityGroup>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("SecurityGroupNotFound", format!("Security group {id} does not exist"))
    }

    fn is_visible(group: &SecurityGroup, view: &View<'_>) -> bool {
        view.caller.owns(&group.meta.project) || is_shared(group, view)
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, SecurityGroup>> {
        super::by_id_or_name(query, model)
    }

    fn needs_before_list(model: &Model, context: &Context, query: &Query) -> Option<String> {
        let asked = query.one("project_id").or_else(|| query.one("tenant_id"));
        let project = asked.filter(|project| context.caller.owns(project)).unwrap_or(&context.caller.project);
        // Whatever an administrator types is not a project.
        let is_project = Uuid::try_parse(project).is_ok() || project == context.caller.project;
        (is_project && model.default_group(project).is_none()).then(|| project.to_owned())
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let group = wanted(draft, context, input)?;
        add(draft, context, group)
    }

    fn update(
        draft: &mut Draft,
        context: &Context,
        old: &Arc<SecurityGroup>,
        input: &Input,
    ) -> Result<(), Error> {
        let id = old.meta.id;
        if old.is_default && input.text("name").is_some_and(|name| name != old.meta.name) {
            return Err(Error::conflict(
                "SecurityGroupCannotUpdateDefault",
                "Updating default security group not allowed.",
            ));
        }
        if !old.is_default && input.text("name").is_some_and(|name| name.eq_ignore_ascii_case(DEFAULT)) {
            return Err(default_exists());
        }
        let mut group = SecurityGroup::clone(old);
        common::edit(&mut group.meta, context, input);
        if let Some(stateful) = input.truth("stateful") {
            if stateful != old.stateful && draft.ports_of_group(id).next().is_some() {
                return Err(in_use(id));
            }
            group.stateful = stateful;
        }
        draft.put(group);
        Ok(())
    }

    fn delete(draft: &mut Draft, context: &Context, old: &Arc<SecurityGroup>) -> Result<(), Error> {
        let id = old.meta.id;
        if draft.ports_of_group(id).next().is_some() {
            return Err(in_use(id));
        }
        if old.is_default && !context.caller.is_admin() {
            return Err(Error::conflict(
                "SecurityGroupCannotRemoveDefault",
                "Insufficient rights for removing default security group.",
            ));
        }
        let own: Vec<Uuid> = draft.rules_of_group(id).map(|rule| rule.meta.id).collect();
        // Without the group, a rule about it would allow nothing.
        let about: Vec<Arc<Rule>> = draft.rules_to(id).filter(|rule| rule.group != id).cloned().collect();
        for rule in about {
            draft.remove::<Rule>(rule.meta.id);
            common::bump::<SecurityGroup>(draft, context, rule.group);
        }
        for rule in own {
            draft.remove::<Rule>(rule);
        }
        super::remove_policies(draft, id);
        draft.remove::<SecurityGroup>(id);
        Ok(())
    }
}

/// The group that a request asks for.
fn wanted(draft: &mut Draft, context: &Context, input: &Input) -> Result<SecurityGroup, Error> {
    let meta = common::meta(context, input)?;
    ensure_default(draft, context, &meta.project)?;
    if meta.name.eq_ignore_ascii_case(DEFAULT) {
        return Err(default_exists());
    }
    quota::check::<SecurityGroup>(draft, context, &meta.project, 1)?;
    let stateful = input.truth("stateful").unwrap_or(true);
    Ok(SecurityGroup { meta, stateful, is_default: false })
}

/// Makes a group without any rule, for who has rules for it.
pub(crate) fn create_bare(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
    let mut group = wanted(draft, context, input)?;
    group.meta.revision = 1;
    let id = group.meta.id;
    draft.put(group);
    Ok(id)
}

fn default_exists() -> Error {
    Error::conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
}

fn in_use(id: Uuid) -> Error {
    Error::conflict("SecurityGroupInUse", format!("Security Group {id} in use."))
}

/// Makes a project's default group, if it has none yet.
pub(crate) fn ensure_default(
    draft: &mut Draft,
    context: &Context,
    project: &str,
) -> Result<Option<Uuid>, Error> {
    if project.is_empty() {
        return Ok(None);
    }
    if let Some(group) = draft.default_group(project) {
        return Ok(Some(group.meta.id));
    }
    let meta = Meta {
        id: Uuid::new_v4(),
        project: project.to_owned(),
        name: DEFAULT.to_owned(),
        description: "Default security group".to_owned(),
        created: context.now,
        updated: context.now,
        ..Meta::default()
    };
    add(draft, context, SecurityGroup { meta, stateful: true, is_default: true }).map(Some)
}

/// Adds a group with the rules that the templates say.
fn add(draft: &mut Draft, context: &Context, group: SecurityGroup) -> Result<Uuid, Error> {
    let id = group.meta.id;
    let templates: Vec<Arc<RuleTemplate>> = super::default_rule::in_force(draft)
        .filter(|template| if group.is_default { template.in_default } else { template.in_others })
        .filter(|template| super::default_rule::has_remote(draft, template))
        .cloned()
        .collect();
    let project = group.meta.project.clone();
    // The rules belong to the group, but a project that may have none gets no group either.
    if !group.is_default {
        quota::check::<Rule>(draft, context, &project, templates.len() as u64)?;
    }
    let mut group = group;
    group.meta.revision = templates.len() as u64 + 1;
    draft.put(group);
    for template in templates {
        let meta = Meta {
            id: Uuid::new_v4(),
            project: project.clone(),
            created: context.now,
            updated: context.now,
            ..Meta::default()
        };
        let remote_group = if template.remote_is_parent { Some(id) } else { template.rule.remote_group };
        draft.put(Rule { meta, group: id, remote_group, ..template.rule.clone() });
    }
    Ok(id)
}

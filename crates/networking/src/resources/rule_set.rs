//! `PUT /v2.0/security-groups/{id}/rules`: all rules of a group at once.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_ovn::Draft;
use portcullis_ovn::objects::{Rule, SecurityGroup};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::rule::{self, Rules};
use super::security_group::SecurityGroups;
use super::{Context, Resource, common};
use crate::attributes::{Action, Input, Post, check};
use crate::caller::Caller;
use crate::error::Error;
use crate::quota;
use crate::request::Request;
use crate::server::{Answer, Networking, changeable, object};

/// Answers with the group as it then is.
pub(crate) async fn answer(
    networking: &Networking,
    request: &Request,
    context: Context,
    id: &str,
) -> Result<Answer, Error> {
    let id = Uuid::try_parse(id).map_err(|_| SecurityGroups::not_found(id))?;
    let (body, revision) = (request.json()?, request.revision()?);
    networking
        .change(context, move |draft, context| {
            changeable::<SecurityGroups>(draft, context, id, "update", revision)?;
            replace(draft, context, id, &given(&body, &context.caller, id)?)?;
            Ok(Answer::ok(json!({ SecurityGroups::NAME: object::<SecurityGroups>(draft, context, id) })))
        })
        .await
}

/// The rules of a body `{"security_group_rules": […]}`. What only ever is read may be there, so that what was read can
/// be changed and sent back.
pub(crate) fn given(body: &Value, caller: &Caller, group: Uuid) -> Result<Vec<Input>, Error> {
    let list = body.get(Rules::PLURAL).and_then(Value::as_array);
    let list = list
        .ok_or_else(|| Error::bad_request(format!("Unable to find '{}' in request body", Rules::PLURAL)))?;
    let is_read_only = |name: &str| {
        Rules::attributes().iter().any(|attribute| attribute.name == name && attribute.post == Post::No)
    };
    list.iter()
        .map(|item| {
            let item = item.as_object().ok_or_else(|| Error::bad_request("Body contains invalid data"))?;
            let mut attributes: Map<String, Value> = item.clone();
            attributes.retain(|name, _| !is_read_only(name));
            attributes.entry("security_group_id").or_insert_with(|| json!(group));
            check(Rules::attributes(), Action::Create, Rules::NAME, caller, &attributes)
        })
        .collect()
}

/// Gives a group these rules and no others. One that it has already stays what it is, under its id.
pub(crate) fn replace(
    draft: &mut Draft,
    context: &Context,
    group: Uuid,
    inputs: &[Input],
) -> Result<(), Error> {
    let wanted: Vec<Rule> =
        inputs.iter().map(|input| rule::wanted(draft, context, input)).collect::<Result<_, _>>()?;
    let old: Vec<_> = draft.rules_of_group(group).cloned().collect();
    // Too many are refused before anybody compares them.
    if let Some(rule) = wanted.first() {
        let more = wanted.len().saturating_sub(old.len());
        quota::check::<Rule>(draft, context, &rule.meta.project, more as u64)?;
    }
    rule::check_together(&wanted)?;
    if wanted.iter().any(|rule| rule.group != group) {
        return Err(rule::several_groups());
    }
    let keys: BTreeSet<rule::Key> = wanted.iter().map(rule::key).collect();
    let mut changed = false;
    for rule in &old {
        if !keys.contains(&rule::key(rule)) {
            draft.remove::<Rule>(rule.meta.id);
            changed = true;
        }
    }
    let old: BTreeMap<rule::Key, _> = old.into_iter().map(|rule| (rule::key(&rule), rule)).collect();
    for rule in wanted {
        match old.get(&rule::key(&rule)) {
            None => {
                quota::check::<Rule>(draft, context, &rule.meta.project, 1)?;
                draft.put(rule);
                changed = true;
            }
            // Words about a rule can change without the rule.
            Some(old) if old.meta.description != rule.meta.description => {
                draft.edit::<Rule>(old.meta.id, |kept| {
                    kept.meta.description = rule.meta.description;
                    common::touch(&mut kept.meta, context);
                });
                changed = true;
            }
            Some(_) => {}
        }
    }
    if changed {
        common::bump::<SecurityGroup>(draft, context, group);
    }
    Ok(())
}

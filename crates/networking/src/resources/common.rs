//! What most resources have.

use portcullis_ovn::objects::Meta;
use portcullis_ovn::{Draft, Stored};
use serde_json::json;
use uuid::Uuid;

use super::Context;
use crate::attributes::{Attribute, Input};
use crate::error::Error;
use crate::kinds::{COUNT, Kind, LIST, MOMENT, NAME};
use crate::time::written;

/// The attributes that all objects with a project have, except their name.
pub(crate) fn attributes<T: Stored>() -> Vec<Attribute<T>> {
    vec![
        Attribute::new("id", Kind::Id, |object: &T, _| json!(object.meta().id)),
        Attribute::new("project_id", Kind::Text(NAME), |object: &T, _| json!(object.meta().project)).post(),
        Attribute::new("tenant_id", Kind::Text(NAME), |object: &T, _| json!(object.meta().project)).post(),
        Attribute::new("description", Kind::Text(NAME), |object: &T, _| json!(object.meta().description))
            .post()
            .put(),
        Attribute::new("tags", LIST, |object: &T, _| json!(object.meta().tags)).no_query(),
        Attribute::new("created_at", MOMENT, |object: &T, _| json!(written(object.meta().created))),
        Attribute::new("updated_at", MOMENT, |object: &T, _| json!(written(object.meta().updated))),
        Attribute::new("revision_number", COUNT, |object: &T, _| json!(object.meta().revision)),
    ]
}

/// The name of an object, which may be empty.
pub(crate) fn name<T: Stored>() -> Attribute<T> {
    Attribute::new("name", Kind::Text(NAME), |object: &T, _| json!(object.meta().name)).post().put()
}

/// The beginnings of an object.
pub(crate) fn meta(context: &Context, input: &Input) -> Result<Meta, Error> {
    Ok(Meta {
        id: Uuid::new_v4(),
        project: project(context, input)?,
        name: input.text("name").unwrap_or_default(),
        description: input.text("description").unwrap_or_default(),
        tags: std::collections::BTreeSet::new(),
        created: context.now,
        updated: context.now,
        revision: 0,
    })
}

/// Whose an object will be: its maker's, unless an administrator says otherwise.
pub(crate) fn project(context: &Context, input: &Input) -> Result<String, Error> {
    let given = input.text("project_id").or_else(|| input.text("tenant_id"));
    match given {
        Some(project) if !context.caller.owns(&project) => Err(Error::bad_request(
            "Specifying 'project_id' other than the authenticated project in request is not allowed for the current user.",
        )),
        Some(project) => Ok(project),
        None => Ok(context.caller.project.clone()),
    }
}

/// Takes over a new name and description, and counts the change.
pub(crate) fn edit(meta: &mut Meta, context: &Context, input: &Input) {
    describe(meta, input);
    touch(meta, context);
}

/// Takes over a new name and description.
pub(crate) fn describe(meta: &mut Meta, input: &Input) {
    if let Some(name) = input.text("name") {
        meta.name = name;
    }
    if let Some(description) = input.text("description") {
        meta.description = description;
    }
}

/// Counts a change.
pub(crate) fn touch(meta: &mut Meta, context: &Context) {
    meta.updated = context.now;
    meta.revision += 1;
}

/// Counts a change of an object that something else changed.
pub(crate) fn bump<T: Stored>(draft: &mut Draft, context: &Context, id: Uuid) {
    draft.edit::<T>(id, |object| touch(object.meta_mut(), context));
}

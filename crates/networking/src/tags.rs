//! Tags of objects.

use std::collections::BTreeSet;

use axum::http::Method;
use portcullis_ovn::{Draft, Stored};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::Error;
use crate::kinds::Kind;
use crate::request::Request;
use crate::resources::{Context, Resource, find};
use crate::server::{Answer, Networking, changeable};

/// The longest tag.
const LONGEST: usize = 255;

/// Answers a request about the tags of an object.
pub(crate) async fn answer<R: Resource>(
    networking: &Networking,
    request: &Request,
    context: Context,
    id: &str,
    rest: &[&str],
) -> Result<Answer, Error> {
    if !R::attributes().iter().any(|attribute| attribute.name == "tags") {
        return Err(Error::no_such_resource());
    }
    let id = Uuid::try_parse(id).map_err(|_| R::not_found(id))?;
    match (&request.method, rest) {
        (&Method::GET, []) => {
            let model = networking.store().model();
            let object = find::<R>(&context.view(&model), &id.to_string())?;
            Ok(Answer::ok(json!({"tags": object.meta().tags})))
        }
        (&Method::GET, [tag]) => {
            let model = networking.store().model();
            let object = find::<R>(&context.view(&model), &id.to_string())?;
            if object.meta().tags.contains(*tag) { Ok(Answer::nothing()) } else { Err(not_found(tag)) }
        }
        (&Method::PUT, []) => {
            let tags = given(&request.json()?)?;
            edit::<R>(networking, request, context, id, move |known| {
                known.clone_from(&tags);
                Ok(Answer::ok(json!({"tags": tags})))
            })
            .await
        }
        (&Method::POST, []) => {
            let tags = given(&request.json()?)?;
            edit::<R>(networking, request, context, id, move |known| {
                known.extend(tags.iter().cloned());
                Ok(Answer::ok(json!({"tags": tags})))
            })
            .await
        }
        (&Method::PUT, [tag]) => {
            let tag = checked(tag)?;
            edit::<R>(networking, request, context, id, move |known| {
                known.insert(tag.clone());
                Ok(Answer::created(Value::Null))
            })
            .await
        }
        (&Method::DELETE, []) => {
            edit::<R>(networking, request, context, id, |known| {
                known.clear();
                Ok(Answer::nothing())
            })
            .await
        }
        (&Method::DELETE, [tag]) => {
            let tag = (*tag).to_owned();
            edit::<R>(networking, request, context, id, move |known| {
                if known.remove(&tag) { Ok(Answer::nothing()) } else { Err(not_found(&tag)) }
            })
            .await
        }
        _ => Err(Error::no_such_resource()),
    }
}

fn not_found(tag: &str) -> Error {
    Error::not_found("TagNotFound", format!("Tag {tag} could not be found."))
}

async fn edit<R: Resource>(
    networking: &Networking,
    request: &Request,
    context: Context,
    id: Uuid,
    edit: impl Fn(&mut BTreeSet<String>) -> Result<Answer, Error> + Send + 'static,
) -> Result<Answer, Error> {
    let revision = request.revision()?;
    let decide = move |draft: &mut Draft, context: &Context| {
        let old = changeable::<R>(draft, context, id, "update", revision)?;
        let mut object = R::Object::clone(&old);
        let answer = edit(&mut object.meta_mut().tags)?;
        if object.meta().tags != old.meta().tags {
            object.meta_mut().updated = context.now;
            object.meta_mut().revision += 1;
            draft.put(object);
        }
        Ok(answer)
    };
    networking.change(context, decide).await
}

fn given(body: &Value) -> Result<BTreeSet<String>, Error> {
    let tags = body.get("tags").ok_or_else(|| Error::invalid_input("Invalid tags body"))?;
    let tags = Kind::Texts(LONGEST).check(tags).map_err(Error::invalid_input)?;
    Ok(tags.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn checked(tag: &str) -> Result<String, Error> {
    if tag.chars().count() <= LONGEST && !tag.contains('\0') {
        Ok(tag.to_owned())
    } else {
        Err(Error::invalid_input(format!("'{tag}' exceeds maximum length of {LONGEST}")))
    }
}

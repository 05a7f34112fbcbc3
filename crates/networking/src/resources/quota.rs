//! `/v2.0/quotas`: how much projects may have, and have.

use axum::http::{Method, StatusCode};
use portcullis_ovn::Model;
use portcullis_ovn::objects::{Meta, Quota};
use serde_json::{Map, Value, json};

use super::Context;
use crate::error::Error;
use crate::kinds::{Kind, NAME, shown};
use crate::quota::{DEFAULTS, default_limit, limit, row_of, used};
use crate::request::Request;
use crate::server::{Answer, Networking};

/// The largest limit that Neutron's database takes.
const MOST: i64 = 2_147_483_647;

/// Answers a request; the rest of its path is what comes after `quotas`.
pub(crate) async fn answer(
    networking: &Networking,
    request: &Request,
    context: Context,
    rest: &[&str],
) -> Result<Answer, Error> {
    let model = networking.store().model();
    match (request.method.clone(), rest) {
        (Method::GET, []) => list(&model, &context),
        (Method::GET, [word @ ("tenant" | "project")]) => {
            Ok(Answer::ok(json!({ *word: { format!("{word}_id"): context.caller.project } })))
        }
        (Method::GET, [project]) => {
            check_reader(&context, project)?;
            Ok(Answer::ok(json!({ "quota": limits(&model, &context, project) })))
        }
        (Method::GET, [project, "default"]) => {
            check_reader(&context, project)?;
            let limits =
                DEFAULTS.iter().map(|(name, _)| ((*name).to_owned(), default_limit(&context, name).into()));
            Ok(Answer::ok(json!({ "quota": limits.collect::<Map<_, Value>>() })))
        }
        (Method::GET, [project, "details"]) => {
            if !context.caller.owns(project) {
                return Err(Error::new(
                    StatusCode::FORBIDDEN,
                    "AdminRequired",
                    "User does not have admin privileges: Only admin is authorized to access quotas for another project.",
                ));
            }
            Ok(Answer::ok(json!({ "quota": details(&model, &context, project) })))
        }
        (Method::PUT, [project]) => update(networking, request, context, project).await,
        (Method::DELETE, [project]) => delete(networking, context, project).await,
        (Method::POST, []) => Err(Error::new(
            StatusCode::NOT_IMPLEMENTED,
            "HTTPNotImplemented",
            "POST requests are not supported on this resource.",
        )),
        _ => Err(Error::no_such_resource()),
    }
}

/// Whether who asks may know a project's limits.
fn check_reader(context: &Context, project: &str) -> Result<(), Error> {
    if context.caller.owns(project) { Ok(()) } else { Err(Error::forbidden("get_quota")) }
}

/// The projects with limits of their own, as far as who asks may know.
fn list(model: &Model, context: &Context) -> Result<Answer, Error> {
    if !context.caller.is_manager() {
        return Err(Error::forbidden("get_quota"));
    }
    let quotas = model.all::<Quota>(None).map(|quota| &quota.meta.project);
    let shown: Vec<Value> = quotas
        .filter(|project| context.caller.owns(project))
        .map(|project| {
            let mut all = limits(model, context, project);
            all.insert("project_id".to_owned(), json!(project));
            all.insert("tenant_id".to_owned(), json!(project));
            Value::Object(all)
        })
        .collect();
    Ok(Answer::ok(json!({ "quotas": shown })))
}

fn limits(model: &Model, context: &Context, project: &str) -> Map<String, Value> {
    let limit = |name: &str| (name.to_owned(), limit(model, context, project, name).into());
    DEFAULTS.iter().map(|(name, _)| limit(name)).collect()
}

fn details(model: &Model, context: &Context, project: &str) -> Map<String, Value> {
    let detail = |name: &str| {
        let limit = limit(model, context, project, name);
        // What is asked for is there at once, or not at all.
        (name.to_owned(), json!({"limit": limit, "used": used(model, project, name), "reserved": 0}))
    };
    DEFAULTS.iter().map(|(name, _)| detail(name)).collect()
}

async fn update(
    networking: &Networking,
    request: &Request,
    context: Context,
    project: &str,
) -> Result<Answer, Error> {
    if !context.caller.is_admin() {
        return Err(Error::forbidden("update_quota"));
    }
    let mut given = request.one("quota")?;
    let force = match given.remove("force") {
        Some(force) => {
            Kind::Truth.check(&force).map_err(|reason| Error::invalid_attribute("force", reason))?
        }
        None => Value::Bool(false),
    };
    let force = force == Value::Bool(true);
    // What it asks for is done unless `force` is given.
    given.remove("check_limit");
    let given = checked(&given)?;
    let project = Kind::Text(NAME).check(&json!(project));
    let project = project.map_err(|reason| Error::invalid_attribute("project_id", reason))?;
    let project = project.as_str().unwrap_or_default().to_owned();
    networking
        .change(context, move |draft, context| {
            for (name, limit) in &given {
                let used = used(draft, &project, name);
                if !force && u64::try_from(*limit).is_ok_and(|limit| used > limit) {
                    return Err(Error::bad_request(format!(
                        "Quota limit {limit} for {name} must be greater than or equal to already used {used}"
                    )));
                }
            }
            let id = row_of(&project);
            let mut quota = draft.get::<Quota>(id).map(|quota| Quota::clone(quota)).unwrap_or_default();
            quota.meta = Meta { id, project: project.clone(), ..quota.meta };
            quota.limits.extend(given.iter().cloned());
            if !quota.limits.is_empty() {
                draft.put(quota);
            }
            Ok(Answer::ok(json!({ "quota": limits(draft, context, &project) })))
        })
        .await
}

/// The limits that a request asks for.
fn checked(given: &Map<String, Value>) -> Result<Vec<(String, i64)>, Error> {
    let is_known = |name: &str| DEFAULTS.iter().any(|(known, _)| *known == name);
    let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    if !unknown.is_empty() {
        return Err(Error::bad_request(format!("Unrecognized attribute(s) '{}'", unknown.join(", "))));
    }
    let mut limits = Vec::new();
    for (name, value) in given {
        let number = Kind::Number(i64::MIN, i64::MAX)
            .check(value)
            .map_err(|_| Error::invalid_input(format!("'{}' is not an integer", shown(value))))?;
        let limit = Kind::Number(-1, MOST).check(&number);
        let limit = limit.map_err(|reason| Error::invalid_attribute(name, reason))?;
        limits.push((name.clone(), limit.as_i64().unwrap_or(-1)));
    }
    Ok(limits)
}

async fn delete(networking: &Networking, context: Context, project: &str) -> Result<Answer, Error> {
    if !context.caller.is_admin() {
        return Err(Error::forbidden("delete_quota"));
    }
    let project = project.to_owned();
    networking
        .change(context, move |draft, _| {
            let id = row_of(&project);
            if draft.get::<Quota>(id).is_none() {
                return Err(Error::not_found(
                    "TenantQuotaNotFound",
                    format!("Quota for project {project} could not be found."),
                ));
            }
            draft.remove::<Quota>(id);
            Ok(Answer::nothing())
        })
        .await
}

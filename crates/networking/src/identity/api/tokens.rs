//! Tokens of v3: made, shown, revoked.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Answer, Ask, Identity};
use crate::identity::catalog::Service;
use crate::identity::directory::{Directory, Project, User};
use crate::identity::failure::Failure;
use crate::identity::local::{Session, Who};
use crate::identity::secret::Secret;
use crate::identity::token::Claims;
use crate::time;

#[derive(Deserialize)]
struct Body {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    identity: Shown,
    #[serde(default)]
    scope: Option<Value>,
}

/// How who asks shows who it is.
#[derive(Deserialize)]
struct Shown {
    methods: Vec<String>,
    #[serde(default)]
    password: Option<ByPassword>,
    #[serde(default)]
    token: Option<ByToken>,
}

#[derive(Deserialize)]
struct ByPassword {
    user: NamedUser,
}

#[derive(Deserialize)]
struct ByToken {
    id: Secret,
}

#[derive(Deserialize)]
struct NamedUser {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    domain: Option<Named>,
    password: Secret,
}

/// Something by its id, or by its name.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

impl Named {
    /// The id of a domain; of one that is not there, one that nothing has.
    fn domain(&self, directory: &Directory) -> String {
        match (&self.id, &self.name) {
            (Some(id), _) => id.clone(),
            (None, Some(name)) => {
                directory.domain_named(name).map(|domain| domain.id.clone()).unwrap_or_default()
            }
            (None, None) => String::new(),
        }
    }
}

#[derive(Deserialize)]
struct NamedProject {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    domain: Option<Named>,
}

/// `POST /v3/auth/tokens`.
pub(super) async fn create(identity: &Identity, ask: &Ask) -> Result<Answer, Failure> {
    let Body { auth } = ask.json()?;
    let (user, before) = who(identity, &auth.identity).await?;
    let project = match &auth.scope {
        None => preferred(identity, &user)?,
        Some(scope) => scoped(identity, &user, scope)?,
    };
    let (token, session) = identity.local.issue(user, project, before.as_ref()).await?;
    let body = shown(identity, ask, &session);
    Ok(Answer { subject: Some(token), ..Answer::new(StatusCode::CREATED, body) })
}

/// The user, and what the token says by which it showed that it is it.
async fn who(identity: &Identity, given: &Shown) -> Result<(Arc<User>, Option<Claims>), Failure> {
    let missing = |what: &str| Failure::bad_request(format!("Expecting to find {what} in identity."));
    match given.methods.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["password"] => {
            let user = &given.password.as_ref().ok_or_else(|| missing("password"))?.user;
            let who = match (&user.id, &user.name, &user.domain) {
                (Some(id), _, _) => Who::Id(id.clone()),
                (None, Some(name), Some(domain)) => {
                    Who::Name(domain.domain(identity.local.directory()), name.clone())
                }
                (None, Some(_), None) => return Err(missing("the user's domain")),
                (None, None, _) => return Err(missing("the user's id or name")),
            };
            Ok((identity.local.log_in(&who, &user.password).await?, None))
        }
        ["token"] => {
            let token = &given.token.as_ref().ok_or_else(|| missing("token"))?.id;
            let session = identity.local.session(token.reveal())?;
            Ok((session.user, Some(session.claims)))
        }
        _ => Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "Attempted to authenticate with an unsupported method: there is password, and token.",
        )),
    }
}

/// The project that a token is to be for.
fn scoped(identity: &Identity, user: &User, scope: &Value) -> Result<Option<Arc<Project>>, Failure> {
    if scope == "unscoped" || scope.get("unscoped").is_some() || scope.is_null() {
        return Ok(None);
    }
    let Some(project) = scope.get("project") else {
        return Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "Tokens are for projects here, not for domains or the system: ask for a project.",
        ));
    };
    let wrong = || Failure::bad_request("A project is given by its id, or by its name and its domain.");
    let project = NamedProject::deserialize(project).map_err(|_| wrong())?;
    let (directory, model) = (identity.local.directory(), identity.local.model()?);
    let found = match (&project.id, &project.name, &project.domain) {
        (Some(id), _, _) => directory.project(&model, id),
        (None, Some(name), Some(domain)) => directory.project_named(&model, &domain.domain(directory), name),
        _ => return Err(wrong()),
    };
    usable(user, found).map(Some)
}

/// The project of a user that names none, if it has one and a role in it.
pub(super) fn preferred(identity: &Identity, user: &User) -> Result<Option<Arc<Project>>, Failure> {
    let Some(id) = &user.default_project else { return Ok(None) };
    let project = identity.local.directory().project(&*identity.local.model()?, id);
    Ok(usable(user, project).ok())
}

/// A project, if it is there and the user has a role in it: which of these it is, is not told.
pub(super) fn usable(user: &User, project: Option<Arc<Project>>) -> Result<Arc<Project>, Failure> {
    project.filter(|project| project.enabled && !user.roles_in(&project.id).is_empty()).ok_or_else(|| {
        Failure::new(
            StatusCode::UNAUTHORIZED,
            format!("The user {} has no role in that project, or there is no such project.", user.name),
        )
    })
}

/// `GET /v3/auth/tokens`.
pub(super) fn show(identity: &Identity, ask: &Ask, session: &Session) -> Result<Answer, Failure> {
    let subject = subject(identity, ask)?;
    if subject.user.id != session.user.id && !session.is_admin() && !session.has("service") {
        return Err(Failure::not_allowed("validate_token"));
    }
    Ok(Answer::ok(shown(identity, ask, &subject)))
}

/// `DELETE /v3/auth/tokens`.
pub(super) async fn revoke(identity: &Identity, ask: &Ask, session: &Session) -> Result<Answer, Failure> {
    let subject = subject(identity, ask)?;
    if subject.user.id != session.user.id && !session.is_admin() {
        return Err(Failure::not_allowed("revoke_token"));
    }
    identity.local.revoke(&subject.claims).await?;
    Ok(Answer::nothing())
}

/// Who has the token that the request is about.
fn subject(identity: &Identity, ask: &Ask) -> Result<Session, Failure> {
    let token = ask.subject.as_deref();
    let token = token.ok_or_else(|| Failure::bad_request("The request needs a header X-Subject-Token."))?;
    known(identity, token)
}

/// Who has a token that is asked about: that it is not valid is no failure of who asks.
pub(super) fn known(identity: &Identity, token: &str) -> Result<Session, Failure> {
    identity.local.session(token).map_err(|failure| match failure.status {
        StatusCode::UNAUTHORIZED => Failure::new(StatusCode::NOT_FOUND, "Could not find that token."),
        _ => failure,
    })
}

/// `GET /v3/auth/catalog`.
pub(super) fn catalog(identity: &Identity, ask: &Ask) -> Answer {
    ask.list("catalog", identity.services(ask).iter().map(Service::in_catalog))
}

fn shown(identity: &Identity, ask: &Ask, session: &Session) -> Value {
    let directory = identity.local.directory();
    let domain = |id: &str| {
        let name = directory.domain(id).map(|domain| domain.name.as_str());
        json!({"id": id, "name": name.unwrap_or(id)})
    };
    let Session { claims, user, project, roles } = session;
    let mut audit_ids = vec![claims.id.as_str()];
    audit_ids.extend(claims.chain.as_deref());
    let mut token = Map::new();
    token.insert("methods".into(), json!(claims.methods));
    token.insert(
        "user".into(),
        json!({"id": user.id, "name": user.name, "domain": domain(&user.domain), "password_expires_at": null}),
    );
    token.insert("audit_ids".into(), json!(audit_ids));
    token.insert("expires_at".into(), json!(moment(claims.expires)));
    token.insert("issued_at".into(), json!(moment(claims.issued)));
    if let Some(project) = project {
        let scope = json!({"id": project.id, "name": project.name, "domain": domain(&project.domain)});
        token.insert("project".into(), scope);
        token.insert("is_domain".into(), json!(false));
        let roles: Vec<Value> = roles.iter().map(|role| json!({"id": role.id, "name": role.name})).collect();
        token.insert("roles".into(), json!(roles));
        if ask.flag("nocatalog") != Some(true) {
            let services = identity.services(ask);
            let catalog: Vec<Value> = services.iter().map(Service::in_catalog).collect();
            token.insert("catalog".into(), json!(catalog));
        }
    }
    json!({ "token": token })
}

/// `2026-11-16T01:40:45.000000Z`: some clients insist on the fraction.
fn moment(seconds: i64) -> String {
    let written = time::written(seconds);
    format!("{}.000000Z", written.trim_end_matches('Z'))
}

//! Identity v2.0, which oVirt's engine speaks: no domains, and tenants for projects.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Ask, Identity, tokens};
use crate::identity::catalog::Service;
use crate::identity::directory::{Project, User};
use crate::identity::failure::Failure;
use crate::identity::local::{Session, Who};
use crate::identity::secret::Secret;
use crate::time;

/// Where users and projects without a domain are.
const DOMAIN: &str = "default";

#[derive(Deserialize)]
struct Body {
    auth: Auth,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Auth {
    #[serde(default)]
    password_credentials: Option<Credentials>,
    #[serde(default)]
    token: Option<ById>,
    #[serde(default)]
    tenant_id: Option<String>,
    #[serde(default)]
    tenant_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credentials {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    user_id: Option<String>,
    password: Secret,
}

#[derive(Deserialize)]
struct ById {
    id: Secret,
}

/// `POST /v2.0/tokens`.
pub(super) async fn create(identity: &Identity, ask: &Ask) -> Result<Answer, Failure> {
    let Body { auth } = ask.json()?;
    let (user, before) = match (&auth.password_credentials, &auth.token) {
        (Some(Credentials { username: Some(name), password, .. }), _) => {
            let who = Who::Name(DOMAIN.to_owned(), name.clone());
            (identity.local.log_in(&who, password).await?, None)
        }
        (Some(Credentials { user_id: Some(id), password, .. }), _) => {
            (identity.local.log_in(&Who::Id(id.clone()), password).await?, None)
        }
        (None, Some(token)) => {
            let session = identity.local.session(token.id.reveal())?;
            (session.user, Some(session.claims))
        }
        _ => {
            return Err(Failure::bad_request(
                "Expecting to find passwordCredentials with a username, or a token, in auth.",
            ));
        }
    };
    let project = project(identity, &auth, &user)?;
    let (token, session) = identity.local.issue(user, project, before.as_ref()).await?;
    Ok(Answer::ok(access(identity, ask, &session, token.reveal())))
}

/// The project that a token is to be for. oVirt need not name one: it is the first that the user has a role in then.
fn project(identity: &Identity, auth: &Auth, user: &User) -> Result<Option<Arc<Project>>, Failure> {
    let (directory, model) = (identity.local.directory(), identity.local.model()?);
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    match (given(&auth.tenant_id), given(&auth.tenant_name)) {
        (Some(id), _) => tokens::usable(user, directory.project(&model, &id)).map(Some),
        (None, Some(name)) => tokens::usable(user, directory.project_named(&model, DOMAIN, &name)).map(Some),
        (None, None) => {
            let assigned = user.assignments.iter().filter_map(|assignment| assignment.project.as_deref());
            let mut assigned =
                assigned.filter_map(|id| tokens::usable(user, directory.project(&model, id)).ok());
            let preferred = tokens::preferred(identity, user)?.or_else(|| assigned.next());
            Ok(preferred.or_else(|| directory.projects_of(&model, user).into_iter().next()))
        }
    }
}

/// `GET /v2.0/tokens/{token}`.
pub(super) fn show(identity: &Identity, ask: &Ask, token: &str) -> Result<Answer, Failure> {
    let session = identity.session(ask)?;
    let subject = tokens::known(identity, token)?;
    if subject.user.id != session.user.id && !session.is_admin() && !session.has("service") {
        return Err(Failure::not_allowed("validate_token"));
    }
    Ok(Answer::ok(access(identity, ask, &subject, token)))
}

/// `GET /v2.0/tenants`.
pub(super) fn tenants(identity: &Identity, ask: &Ask) -> Result<Answer, Failure> {
    let session = identity.session(ask)?;
    let projects = identity.local.directory().projects_of(&*identity.local.model()?, &session.user);
    let tenants: Vec<Value> = projects.iter().map(|project| tenant(project)).collect();
    Ok(Answer::ok(json!({"tenants": tenants, "tenants_links": []})))
}

fn tenant(project: &Project) -> Value {
    json!({
        "id": project.id, "name": project.name, "description": project.description,
        "enabled": project.enabled,
    })
}

fn access(identity: &Identity, ask: &Ask, session: &Session, token: &str) -> Value {
    let Session { claims, user, project, roles } = session;
    let mut audit_ids = vec![claims.id.as_str()];
    audit_ids.extend(claims.chain.as_deref());
    let mut token = json!({
        "id": token, "issued_at": time::written(claims.issued), "expires": time::written(claims.expires),
        "audit_ids": audit_ids,
    });
    let mut catalog = Vec::new();
    if let Some(project) = project {
        token["tenant"] = tenant(project);
        catalog = identity.services(ask).iter().map(Service::in_old_catalog).collect();
    }
    let ids: Vec<&str> = roles.iter().map(|role| role.id.as_str()).collect();
    let names: Vec<Value> = roles.iter().map(|role| json!({"name": role.name})).collect();
    json!({"access": {
        "token": token,
        "user": {
            "id": user.id, "name": user.name, "username": user.name, "roles": names, "roles_links": [],
        },
        "serviceCatalog": catalog,
        "metadata": {"is_admin": 0, "roles": ids},
    }})
}

//! What users are in projects: `/v3/projects/{id}/users/{id}/roles`.

use axum::http::Method;
use portcullis_ovn::Draft;
use portcullis_ovn::objects::{self, Grant};
use uuid::Uuid;

use super::{Answer, Ask, Identity, listings, users};
use crate::identity::failure::Failure;
use crate::identity::local::Session;

/// Answers a request about the roles of a user in a project, or about one of them.
pub(super) async fn answer(
    identity: &Identity,
    ask: &Ask,
    session: &Session,
    (project, user): (&str, &str),
    role: &[&str],
) -> Result<Answer, Failure> {
    let action = match (&ask.method, role) {
        (&Method::GET, []) => "list_grants",
        (&Method::GET, [_]) => "check_grant",
        (&Method::PUT, [_]) => "create_grant",
        (&Method::DELETE, [_]) => "revoke_grant",
        _ => return Err(Failure::no_such_resource()),
    };
    if !session.is_admin() {
        return Err(Failure::not_allowed(action));
    }
    let (directory, model) = (identity.local.directory(), identity.local.model()?);
    if let [role] = role {
        directory.role(role).ok_or_else(|| Failure::not_found("role", role))?;
    }
    let known = directory.user(&model, user).ok_or_else(|| Failure::not_found("user", user))?;
    let project = directory.project(&model, project).ok_or_else(|| Failure::not_found("project", project))?;
    let [role] = role else {
        let given = known.given_in(&project.id);
        return Ok(ask.list("roles", given.iter().map(|role| listings::role(ask, role))));
    };
    let grant = Grant { project: project.id.clone(), role: (*role).to_owned() };
    if ask.method == Method::GET {
        let given = known.given_in(&project.id).iter().any(|given| given.id == grant.role);
        return if given { Ok(Answer::nothing()) } else { Err(no_such(&grant, user)) };
    }
    let id = users::changeable(identity, session, user, action)?;
    if ask.method == Method::PUT {
        give(identity, id, grant).await?;
    } else {
        take(identity, id, grant).await?;
    }
    Ok(Answer::nothing())
}

async fn give(identity: &Identity, user: Uuid, grant: Grant) -> Result<(), Failure> {
    let local = identity.local.clone();
    let decide = move |draft: &mut Draft| {
        // It may have been deleted meanwhile, and with it all that users were there.
        let project = local.directory().project(draft, &grant.project);
        project.ok_or_else(|| Failure::not_found("project", &grant.project))?;
        let mut stored = stored(draft, user)?;
        if stored.assignments.insert(grant.clone()) {
            draft.put(stored);
        }
        Ok::<(), Failure>(())
    };
    Ok(identity.local.store().change(decide).await?)
}

async fn take(identity: &Identity, user: Uuid, grant: Grant) -> Result<(), Failure> {
    let decide = move |draft: &mut Draft| {
        let mut stored = stored(draft, user)?;
        if !stored.assignments.remove(&grant) {
            return Err(no_such(&grant, &user.simple().to_string()));
        }
        draft.put(stored);
        Ok(())
    };
    Ok(identity.local.store().change(decide).await?)
}

fn stored(draft: &Draft, user: Uuid) -> Result<objects::User, Failure> {
    let stored = draft.get::<objects::User>(user);
    let stored = stored.ok_or_else(|| Failure::not_found("user", &user.simple().to_string()))?;
    Ok(objects::User::clone(stored))
}

fn no_such(grant: &Grant, user: &str) -> Failure {
    let Grant { project, role } = grant;
    Failure::not_found(
        "role assignment with role",
        &format!("{role}, user or group: {user}, project, domain, or system: {project}"),
    )
}

//! Projects: those of the configuration, and those that administrators create.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use portcullis_ovn::objects::{self, Meta};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Answer, Ask, Identity};
use crate::identity::directory::{Project, User, uuid_of};
use crate::identity::failure::Failure;
use crate::identity::local::{Local, Session};
use crate::time;

/// A name is no longer.
const LONGEST_NAME: usize = 64;

#[derive(Deserialize)]
struct Body {
    project: Given,
}

/// What a client says about a project.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Given {
    name: Option<String>,
    domain_id: Option<String>,
    description: Option<String>,
    enabled: Option<bool>,
    parent_id: Option<String>,
    is_domain: Option<bool>,
    tags: Option<BTreeSet<String>>,
}

impl Given {
    fn check(&self) -> Result<(), Failure> {
        // The database's server takes no text with this character, and closes the connection over it.
        let texts = self.name.iter().chain(&self.description).chain(self.tags.iter().flatten());
        if texts.into_iter().any(|text| text.contains('\0')) {
            return Err(Failure::bad_request("A text has a character NUL, which cannot be stored."));
        }
        if let Some(name) = &self.name
            && (name.trim().is_empty() || name.chars().count() > LONGEST_NAME)
        {
            return Err(Failure::bad_request(format!(
                "A project's name has 1 to {LONGEST_NAME} characters."
            )));
        }
        if self.is_domain == Some(true) {
            return Err(Failure::bad_request("A project cannot act as a domain here."));
        }
        Ok(())
    }
}

/// `GET /v3/projects`.
pub(super) fn list(identity: &Identity, ask: &Ask, session: &Session) -> Result<Answer, Failure> {
    if !session.is_admin() {
        return Err(Failure::not_allowed("list_projects"));
    }
    let projects = identity.local.directory().all_projects(&*identity.local.model()?);
    let wanted = projects.iter().filter(|project| {
        ask.wants("name", &project.name)
            && ask.wants("domain_id", &project.domain)
            && ask.wants("parent_id", &project.domain)
            && ask.flag("enabled").is_none_or(|enabled| enabled == project.enabled)
            && ask.flag("is_domain") != Some(true)
    });
    Ok(ask.list("projects", wanted.map(|project| shown(ask, project))))
}

/// `GET /v3/auth/projects` and `GET /v3/users/{id}/projects`.
pub(super) fn of_user(identity: &Identity, ask: &Ask, user: &User) -> Result<Answer, Failure> {
    let projects = identity.local.directory().projects_of(&*identity.local.model()?, user);
    Ok(ask.list("projects", projects.iter().map(|project| shown(ask, project))))
}

/// `GET /v3/projects/{id}`.
pub(super) fn show(identity: &Identity, ask: &Ask, session: &Session, id: &str) -> Result<Answer, Failure> {
    let allowed = session.is_admin() || !session.user.roles_in(id).is_empty();
    let project = identity.local.directory().project(&*identity.local.model()?, id);
    match project {
        Some(project) if allowed => Ok(Answer::ok(json!({ "project": shown(ask, &project) }))),
        None if allowed => Err(Failure::not_found("project", id)),
        _ => Err(Failure::not_allowed("get_project")),
    }
}

/// `POST /v3/projects`.
pub(super) async fn create(identity: &Identity, ask: &Ask, session: &Session) -> Result<Answer, Failure> {
    if !session.is_admin() {
        return Err(Failure::not_allowed("create_project"));
    }
    let Body { project: given } = ask.json()?;
    given.check()?;
    let name = given.name.clone().ok_or_else(|| Failure::bad_request("A project needs a name."))?;
    let own = || session.project.as_ref().map_or(&session.user.domain, |project| &project.domain).clone();
    let domain = given.domain_id.clone().unwrap_or_else(own);
    if identity.local.directory().domain(&domain).is_none() {
        return Err(Failure::not_found("domain", &domain));
    }
    if given.parent_id.as_ref().is_some_and(|parent| *parent != domain) {
        return Err(Failure::bad_request("Projects have no projects below them here: leave parent_id out."));
    }
    let local = identity.local.clone();
    let now = time::now();
    let stored = objects::Project {
        meta: Meta {
            id: Uuid::new_v4(),
            name,
            description: given.description.unwrap_or_default(),
            tags: given.tags.unwrap_or_default(),
            created: now,
            updated: now,
            ..Meta::default()
        },
        domain,
        enabled: given.enabled.unwrap_or(true),
    };
    let project = Project::from(&stored);
    let decide = move |draft: &mut portcullis_ovn::Draft| {
        refuse_twin(&local, draft, &stored)?;
        draft.put(stored.clone());
        Ok::<(), Failure>(())
    };
    identity.local.store().change(decide).await?;
    Ok(Answer::new(StatusCode::CREATED, json!({ "project": shown(ask, &project) })))
}

/// `PATCH /v3/projects/{id}`.
pub(super) async fn update(
    identity: &Identity,
    ask: &Ask,
    session: &Session,
    id: &str,
) -> Result<Answer, Failure> {
    let uuid = changeable(identity, session, id, "update_project")?;
    let Body { project: given } = ask.json()?;
    given.check()?;
    let local = identity.local.clone();
    let missing = Failure::not_found("project", id);
    let decide = move |draft: &mut portcullis_ovn::Draft| {
        let mut stored = objects::Project::clone(draft.get(uuid).ok_or_else(|| missing.clone())?);
        if given.domain_id.as_ref().is_some_and(|domain| *domain != stored.domain) {
            return Err(Failure::bad_request("A project stays in its domain."));
        }
        let given = given.clone();
        stored.meta.name = given.name.unwrap_or(stored.meta.name);
        stored.meta.description = given.description.unwrap_or(stored.meta.description);
        stored.meta.tags = given.tags.unwrap_or(stored.meta.tags);
        stored.enabled = given.enabled.unwrap_or(stored.enabled);
        stored.meta.updated = time::now();
        stored.meta.revision += 1;
        refuse_twin(&local, draft, &stored)?;
        let project = Project::from(&stored);
        draft.put(stored);
        Ok(project)
    };
    let project = identity.local.store().change(decide).await?;
    Ok(Answer::ok(json!({ "project": shown(ask, &project) })))
}

/// `DELETE /v3/projects/{id}`.
pub(super) async fn delete(identity: &Identity, session: &Session, id: &str) -> Result<Answer, Failure> {
    let uuid = changeable(identity, session, id, "delete_project")?;
    let missing = Failure::not_found("project", id);
    let decide = move |draft: &mut portcullis_ovn::Draft| {
        draft.get::<objects::Project>(uuid).ok_or_else(|| missing.clone())?;
        draft.remove::<objects::Project>(uuid);
        let id = uuid.simple().to_string();
        let named = |user: &objects::User| {
            user.default_project == id || user.assignments.iter().any(|grant| grant.project == id)
        };
        let users = draft.all::<objects::User>(None).filter(|user| named(user));
        for user in users.map(|user| user.meta.id).collect::<Vec<_>>() {
            draft.edit(user, |user: &mut objects::User| {
                user.assignments.retain(|grant| grant.project != id);
                if user.default_project == id {
                    user.default_project.clear();
                }
            });
        }
        Ok::<(), Failure>(())
    };
    identity.local.store().change(decide).await?;
    Ok(Answer::nothing())
}

/// The number of a project that the API created, if who asks may change it.
fn changeable(identity: &Identity, session: &Session, id: &str, action: &str) -> Result<Uuid, Failure> {
    if !session.is_admin() {
        return Err(Failure::not_allowed(action));
    }
    let project = identity.local.directory().project(&*identity.local.model()?, id);
    match project {
        Some(project) if project.configured => Err(Failure::forbidden(format!(
            "The project {} is in the configuration (identity.local.projects): change it there.",
            project.name
        ))),
        _ => uuid_of(id).ok_or_else(|| Failure::not_found("project", id)),
    }
}

/// A name is a domain's only once.
fn refuse_twin(
    local: &Local,
    model: &portcullis_ovn::Model,
    project: &objects::Project,
) -> Result<(), Failure> {
    let same = local.directory().project_named(model, &project.domain, &project.meta.name);
    if same.is_none_or(|same: Arc<Project>| uuid_of(&same.id) == Some(project.meta.id)) {
        return Ok(());
    }
    let message = format!(
        "Conflict occurred attempting to store project - it is not permitted to have two projects with the \
         same name in the same domain : {}.",
        project.meta.name
    );
    Err(Failure::new(StatusCode::CONFLICT, message))
}

fn shown(ask: &Ask, project: &Project) -> Value {
    json!({
        "id": project.id, "name": project.name, "domain_id": project.domain, "parent_id": project.domain,
        "description": project.description, "enabled": project.enabled, "is_domain": false,
        "tags": project.tags, "options": {},
        "links": {"self": format!("{}/v3/projects/{}", ask.base, project.id)},
    })
}

//! Users: those of the configuration, and those that administrators create.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use portcullis_ovn::objects::{self, Meta};
use portcullis_ovn::{Draft, Model};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Answer, Ask, Identity};
use crate::identity::directory::{User, uuid_of};
use crate::identity::failure::Failure;
use crate::identity::local::{Local, Session, Who};
use crate::identity::password::PasswordHash;
use crate::identity::secret::Secret;
use crate::time;

/// A name is no longer.
const LONGEST_NAME: usize = 255;
/// Exceptions from rules that there are none of here: they are kept, and change nothing.
const OPTIONS: [&str; 4] = [
    "ignore_change_password_upon_first_use",
    "ignore_lockout_failure_attempts",
    "ignore_password_expiry",
    "ignore_user_inactivity",
];

#[derive(Deserialize)]
struct Body<T> {
    user: T,
}

/// What a client says about something that may also be nothing.
#[derive(Clone, Default)]
enum Said<T> {
    #[default]
    Unsaid,
    Null,
    Is(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Said::Null, Said::Is))
    }
}

impl<T: Default> Said<T> {
    /// What it is after this, if it was `old` before.
    fn or(self, old: T) -> T {
        match self {
            Said::Unsaid => old,
            Said::Null => T::default(),
            Said::Is(new) => new,
        }
    }

    fn given(&self) -> Option<&T> {
        if let Said::Is(value) = self { Some(value) } else { None }
    }
}

/// What a client says about a user. What else it says is not kept.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Given {
    name: Option<String>,
    domain_id: Option<String>,
    enabled: Option<bool>,
    password: Said<Secret>,
    description: Said<String>,
    email: Said<String>,
    default_project_id: Said<String>,
    options: BTreeMap<String, Value>,
}

impl Given {
    fn check(&self) -> Result<(), Failure> {
        let others = [&self.description, &self.email, &self.default_project_id];
        // The database's server takes no text with this character, and closes the connection over it.
        if self
            .name
            .iter()
            .chain(others.iter().filter_map(|text| text.given()))
            .any(|text| text.contains('\0'))
        {
            return Err(Failure::bad_request("A text has a character NUL, which cannot be stored."));
        }
        if let Some(name) = &self.name
            && (name.trim().is_empty() || name.chars().count() > LONGEST_NAME)
        {
            return Err(Failure::bad_request(format!("A user's name has 1 to {LONGEST_NAME} characters.")));
        }
        if self.password.given().is_some_and(|password| password.reveal().is_empty()) {
            return Err(Failure::bad_request("A password is not empty: leave it out, or say null."));
        }
        for (name, value) in &self.options {
            let known = OPTIONS.contains(&name.as_str()) && (value.is_boolean() || value.is_null());
            if !known {
                return Err(Failure::bad_request(format!(
                    "The options of users are {}: each is true, false or null.",
                    OPTIONS.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Makes a user what was said; its password is up to others.
    fn apply(self, user: &mut objects::User) {
        user.meta.name = self.name.unwrap_or(std::mem::take(&mut user.meta.name));
        user.meta.description = self.description.or(std::mem::take(&mut user.meta.description));
        user.email = self.email.or(std::mem::take(&mut user.email));
        user.default_project = self.default_project_id.or(std::mem::take(&mut user.default_project));
        if user.enabled && self.enabled == Some(false) {
            // Its tokens stay ended when it is enabled again.
            user.epoch += 1;
        }
        user.enabled = self.enabled.unwrap_or(user.enabled);
        for (name, value) in self.options {
            match value.as_bool() {
                Some(value) => drop(user.options.insert(name, value)),
                None => drop(user.options.remove(&name)),
            }
        }
    }
}

/// `GET /v3/users`.
pub(super) fn list(identity: &Identity, ask: &Ask, session: &Session) -> Result<Answer, Failure> {
    if !session.is_admin() {
        return Err(Failure::not_allowed("list_users"));
    }
    let model = identity.local.model()?;
    let users = identity.local.directory().all_users(&model);
    let wanted = users.iter().filter(|user| {
        ask.wants("name", &user.name)
            && ask.wants("domain_id", &user.domain)
            && ask.flag("enabled").is_none_or(|enabled| enabled == user.enabled)
    });
    Ok(ask.list("users", wanted.map(|user| shown(ask, &model, user))))
}

/// `GET /v3/users/{id}`.
pub(super) fn show(identity: &Identity, ask: &Ask, session: &Session, id: &str) -> Result<Answer, Failure> {
    if session.user.id != id && !session.is_admin() {
        return Err(Failure::not_allowed("get_user"));
    }
    let model = identity.local.model()?;
    let user = identity.local.directory().user(&model, id);
    let user = user.ok_or_else(|| Failure::not_found("user", id))?;
    Ok(Answer::ok(json!({ "user": shown(ask, &model, &user) })))
}

/// `POST /v3/users`.
pub(super) async fn create(identity: &Identity, ask: &Ask, session: &Session) -> Result<Answer, Failure> {
    if !session.is_admin() {
        return Err(Failure::not_allowed("create_user"));
    }
    let Body::<Given> { user: given } = ask.json()?;
    given.check()?;
    if given.name.is_none() {
        return Err(Failure::bad_request("A user needs a name."));
    }
    let own = || session.project.as_ref().map_or(&session.user.domain, |project| &project.domain).clone();
    let domain = given.domain_id.clone().unwrap_or_else(own);
    if identity.local.directory().domain(&domain).is_none() {
        return Err(Failure::not_found("domain", &domain));
    }
    let now = time::now();
    let meta = Meta { id: Uuid::new_v4(), created: now, updated: now, ..Meta::default() };
    let password = match given.password.given() {
        Some(password) => identity.local.hash(password).await?.reveal().to_owned(),
        None => String::new(),
    };
    let mut stored = objects::User { meta, domain, enabled: true, password, ..objects::User::default() };
    given.apply(&mut stored);
    let (id, local) = (stored.meta.id, identity.local.clone());
    let decide = move |draft: &mut Draft| {
        refuse_twin(&local, draft, &stored)?;
        draft.put(stored.clone());
        Ok::<_, Failure>(draft.model().clone())
    };
    let model = identity.local.store().change(decide).await?;
    Ok(Answer::new(StatusCode::CREATED, answer(identity, ask, &model, id)?))
}

/// `PATCH /v3/users/{id}`.
pub(super) async fn update(
    identity: &Identity,
    ask: &Ask,
    session: &Session,
    id: &str,
) -> Result<Answer, Failure> {
    let uuid = changeable(identity, session, id, "update_user")?;
    let Body::<Given> { user: given } = ask.json()?;
    given.check()?;
    let password = match &given.password {
        Said::Unsaid => None,
        Said::Null => Some(String::new()),
        Said::Is(password) => Some(identity.local.hash(password).await?.reveal().to_owned()),
    };
    let local = identity.local.clone();
    let missing = Failure::not_found("user", id);
    let decide = move |draft: &mut Draft| {
        let mut stored = objects::User::clone(draft.get(uuid).ok_or_else(|| missing.clone())?);
        if given.domain_id.as_ref().is_some_and(|domain| *domain != stored.domain) {
            return Err(Failure::bad_request("A user stays in its domain."));
        }
        given.clone().apply(&mut stored);
        stored.password = password.clone().unwrap_or(stored.password);
        stored.meta.updated = time::now();
        stored.meta.revision += 1;
        refuse_twin(&local, draft, &stored)?;
        draft.put(stored);
        Ok(draft.model().clone())
    };
    let model = identity.local.store().change(decide).await?;
    Ok(Answer::ok(answer(identity, ask, &model, uuid)?))
}

/// `DELETE /v3/users/{id}`.
pub(super) async fn delete(identity: &Identity, session: &Session, id: &str) -> Result<Answer, Failure> {
    let uuid = changeable(identity, session, id, "delete_user")?;
    let missing = Failure::not_found("user", id);
    let decide = move |draft: &mut Draft| {
        draft.get::<objects::User>(uuid).ok_or_else(|| missing.clone())?;
        draft.remove::<objects::User>(uuid);
        Ok::<(), Failure>(())
    };
    identity.local.store().change(decide).await?;
    Ok(Answer::nothing())
}

/// A new password, from who knows the old one.
#[derive(Deserialize)]
struct Renewed {
    original_password: Secret,
    password: Secret,
}

/// `POST /v3/users/{id}/password`.
pub(super) async fn change_password(identity: &Identity, ask: &Ask, id: &str) -> Result<Answer, Failure> {
    let Body::<Renewed> { user: given } = ask.json()?;
    if given.password.reveal().is_empty() {
        return Err(Failure::bad_request("A password is not empty."));
    }
    let user = identity.local.log_in(&Who::Id(id.to_owned()), &given.original_password).await?;
    let uuid = own_row(&user)?;
    let known = user.password.as_ref().map(PasswordHash::reveal).unwrap_or_default().to_owned();
    let new = identity.local.hash(&given.password).await?;
    let decide = move |draft: &mut Draft| {
        let mut stored = objects::User::clone(draft.get(uuid).ok_or_else(Failure::unauthorized)?);
        // Somebody else may have changed it meanwhile: who knew the one before does not know this one.
        if stored.password != known {
            return Err(Failure::unauthorized());
        }
        new.reveal().clone_into(&mut stored.password);
        stored.meta.updated = time::now();
        stored.meta.revision += 1;
        draft.put(stored);
        Ok(())
    };
    identity.local.store().change(decide).await?;
    Ok(Answer::nothing())
}

/// The number of a user that the API created, if who asks may change it.
pub(super) fn changeable(
    identity: &Identity,
    session: &Session,
    id: &str,
    action: &str,
) -> Result<Uuid, Failure> {
    if !session.is_admin() {
        return Err(Failure::not_allowed(action));
    }
    let user = identity.local.directory().user(&*identity.local.model()?, id);
    own_row(&*user.ok_or_else(|| Failure::not_found("user", id))?)
}

/// The number of a user, if it is not in the configuration.
fn own_row(user: &User) -> Result<Uuid, Failure> {
    if user.configured {
        return Err(Failure::forbidden(format!(
            "The user {} is in the configuration (identity.local.users): change it there.",
            user.name
        )));
    }
    uuid_of(&user.id).ok_or_else(|| Failure::not_found("user", &user.id))
}

/// A name is a domain's only once.
fn refuse_twin(local: &Local, model: &Model, user: &objects::User) -> Result<(), Failure> {
    let same = local.directory().user_named(model, &user.domain, &user.meta.name);
    if same.is_none_or(|same: Arc<User>| uuid_of(&same.id) == Some(user.meta.id)) {
        return Ok(());
    }
    let message = format!(
        "Conflict occurred attempting to store user - Duplicate entry found with name {} at domain ID {}.",
        user.meta.name, user.domain
    );
    Err(Failure::new(StatusCode::CONFLICT, message))
}

/// What is answered about a user that was just stored.
fn answer(identity: &Identity, ask: &Ask, model: &Model, id: Uuid) -> Result<Value, Failure> {
    let id = id.simple().to_string();
    let user = identity.local.directory().user(model, &id);
    let user = user.ok_or_else(|| Failure::not_found("user", &id))?;
    Ok(json!({ "user": shown(ask, model, &user) }))
}

fn shown(ask: &Ask, model: &Model, user: &User) -> Value {
    let mut shown = json!({
        "id": user.id, "name": user.name, "domain_id": user.domain, "enabled": user.enabled,
        "password_expires_at": null, "options": {},
        "links": {"self": format!("{}/v3/users/{}", ask.base, user.id)},
    });
    let stored = if user.configured { None } else { uuid_of(&user.id) };
    if let Some(stored) = stored.and_then(|id| model.get::<objects::User>(id)) {
        shown["options"] = json!(stored.options);
        let texts = [
            ("description", &stored.meta.description),
            ("email", &stored.email),
            ("default_project_id", &stored.default_project),
        ];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            shown[key] = json!(text);
        }
    }
    shown
}

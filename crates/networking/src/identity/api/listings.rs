//! What is only read: domains, roles, who is what where, and the catalog as resources.

use serde_json::{Value, json};

use super::{Answer, Ask, Identity, projects};
use crate::identity::directory::{Domain, Role};
use crate::identity::failure::Failure;
use crate::identity::local::Session;

/// Answers a GET below `/v3`.
pub(super) fn answer(
    identity: &Identity,
    ask: &Ask,
    session: &Session,
    path: &[&str],
) -> Result<Answer, Failure> {
    let directory = identity.local.directory();
    let admin = |action: &str| if session.is_admin() { Ok(()) } else { Err(Failure::not_allowed(action)) };
    match path {
        ["auth", "domains"] => Ok(ask.list("domains", [])),
        ["auth", "system"] => Ok(ask.list("system", [])),
        ["domains"] => {
            admin("list_domains")?;
            let wanted = directory
                .domains
                .iter()
                .filter(|domain| ask.wants("name", &domain.name) && ask.flag("enabled") != Some(false));
            Ok(ask.list("domains", wanted.map(|known| domain(ask, known))))
        }
        ["domains", id] => {
            let own = session.user.domain == *id
                || session.project.as_ref().is_some_and(|project| project.domain == *id);
            if !own {
                admin("get_domain")?;
            }
            let known = directory.domain(id).ok_or_else(|| Failure::not_found("domain", id))?;
            Ok(Answer::ok(json!({ "domain": domain(ask, known) })))
        }
        ["users", id, what @ ("projects" | "groups")] => {
            if session.user.id != *id {
                admin(&format!("list_user_{what}"))?;
            }
            let known = directory.user(&*identity.local.model()?, id);
            let known = known.ok_or_else(|| Failure::not_found("user", id))?;
            match *what {
                "projects" => projects::of_user(identity, ask, &known),
                _ => Ok(ask.list("groups", [])),
            }
        }
        ["roles"] => {
            admin("list_roles")?;
            // Roles of domains there are none.
            let wanted = directory
                .roles
                .iter()
                .filter(|role| ask.wants("name", &role.name) && ask.parameter("domain_id").is_none());
            Ok(ask.list("roles", wanted.map(|known| role(ask, known))))
        }
        ["roles", id] => {
            admin("get_role")?;
            let known = directory.role(id).ok_or_else(|| Failure::not_found("role", id))?;
            Ok(Answer::ok(json!({ "role": role(ask, known) })))
        }
        ["role_assignments"] => {
            // Everybody may know what it is itself.
            if ask.parameter("user.id") != Some(&session.user.id) {
                admin("list_role_assignments")?;
            }
            assignments(identity, ask)
        }
        ["services" | "endpoints" | "regions", ..] => catalog(identity, ask, session, path),
        _ => Err(Failure::no_such_resource()),
    }
}

fn domain(ask: &Ask, domain: &Domain) -> Value {
    json!({
        "id": domain.id, "name": domain.name, "description": "", "enabled": true, "tags": [], "options": {},
        "links": {"self": format!("{}/v3/domains/{}", ask.base, domain.id)},
    })
}

pub(super) fn role(ask: &Ask, role: &Role) -> Value {
    json!({
        "id": role.id, "name": role.name, "domain_id": null, "description": null, "options": {},
        "links": {"self": format!("{}/v3/roles/{}", ask.base, role.id)},
    })
}

/// Who is what where. Who is something in all projects is listed for each.
fn assignments(identity: &Identity, ask: &Ask) -> Result<Answer, Failure> {
    let directory = identity.local.directory();
    let model = identity.local.model()?;
    let projects = directory.all_projects(&model);
    let (effective, names) = (ask.flag("effective") == Some(true), ask.flag("include_names") == Some(true));
    let domain = |id: &str| {
        let name = directory.domain(id).map(|domain| domain.name.as_str());
        json!({"id": id, "name": name.unwrap_or(id)})
    };
    let mut found = Vec::new();
    let nobody =
        ["group.id", "scope.domain.id", "scope.system"].iter().any(|key| ask.parameter(key).is_some());
    for user in directory.all_users(&model).iter().filter(|user| !nobody && ask.wants("user.id", &user.id)) {
        for assignment in &user.assignments {
            let roles = if effective { &assignment.roles } else { &assignment.given };
            for project in projects.iter().filter(|project| {
                assignment.project.as_ref().is_none_or(|id| *id == project.id)
                    && ask.wants("scope.project.id", &project.id)
            }) {
                for role in roles.iter().filter(|role| ask.wants("role.id", &role.id)) {
                    let address = format!(
                        "{}/v3/projects/{}/users/{}/roles/{}",
                        ask.base, project.id, user.id, role.id
                    );
                    let mut entry = json!({
                        "role": {"id": role.id}, "user": {"id": user.id},
                        "scope": {"project": {"id": project.id}}, "links": {"assignment": address},
                    });
                    if names {
                        entry["role"]["name"] = json!(role.name);
                        entry["user"]["name"] = json!(user.name);
                        entry["user"]["domain"] = domain(&user.domain);
                        entry["scope"]["project"]["name"] = json!(project.name);
                        entry["scope"]["project"]["domain"] = domain(&project.domain);
                    }
                    found.push(entry);
                }
            }
        }
    }
    Ok(ask.list("role_assignments", found))
}

fn catalog(identity: &Identity, ask: &Ask, session: &Session, path: &[&str]) -> Result<Answer, Failure> {
    let region = &identity.local.settings().region;
    let (kind, collection, items): (_, _, Vec<Value>) = match path[0] {
        "regions" => {
            let links = json!({"self": format!("{}/v3/regions/{region}", ask.base)});
            let shown = json!({"id": region, "description": "", "parent_region_id": null, "links": links});
            ("region", "regions", vec![shown])
        }
        _ if !session.is_admin() => return Err(Failure::not_allowed(&format!("list_{}", path[0]))),
        "services" => {
            let services = identity.services(ask);
            let wanted = services
                .iter()
                .filter(|service| ask.wants("type", service.kind) && ask.wants("name", service.name));
            ("service", "services", wanted.map(|service| service.shown(&ask.base)).collect())
        }
        _ => {
            let services = identity.services(ask);
            let all = services.iter().flat_map(|service| service.endpoints(&ask.base));
            let wanted = all.filter(|endpoint| {
                let is = |key: &str| ask.wants(key, endpoint[key].as_str().unwrap_or_default());
                is("service_id") && is("interface") && is("region_id")
            });
            ("endpoint", "endpoints", wanted.collect())
        }
    };
    match path {
        [_] => Ok(ask.list(collection, items)),
        [_, id] => {
            let found = items.into_iter().find(|item| item["id"] == *id);
            let found = found.ok_or_else(|| Failure::not_found(kind, id))?;
            Ok(Answer::ok(json!({ kind: found })))
        }
        _ => Err(Failure::no_such_resource()),
    }
}

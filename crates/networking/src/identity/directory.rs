//! Who there is: the configuration, checked and ready to be looked up in, and what the API created.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use portcullis_ovn::Model;
use portcullis_ovn::objects;
use uuid::Uuid;

use super::password::PasswordHash;
use super::settings::{ProjectSettings, RoleSettings, Settings, UserSettings};

/// Something in the configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct SettingsError {
    /// Where, from the section on: `users[0].assignments[1].project`.
    pub at: String,
    pub what: String,
}

impl SettingsError {
    pub(super) fn new(at: impl Into<String>, what: impl Into<String>) -> Self {
        SettingsError { at: at.into(), what: what.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) id: String,
    pub(super) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) id: String,
    pub(super) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Project {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) domain: String,
    pub(super) description: String,
    pub(super) enabled: bool,
    pub(super) tags: BTreeSet<String>,
    /// Whether it is in the configuration: the API cannot change it then.
    pub(super) configured: bool,
}

impl From<&objects::Project> for Project {
    fn from(stored: &objects::Project) -> Self {
        Project {
            id: stored.meta.id.simple().to_string(),
            name: stored.meta.name.clone(),
            domain: stored.domain.clone(),
            description: stored.meta.description.clone(),
            enabled: stored.enabled,
            tags: stored.meta.tags.clone(),
            configured: false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) domain: String,
    pub(super) enabled: bool,
    pub(super) password: Option<PasswordHash>,
    /// What its tokens carry, to end with its password.
    pub(super) fingerprint: String,
    pub(super) assignments: Vec<Assignment>,
    /// The project of its tokens if it names none.
    pub(super) default_project: Option<String>,
    /// Whether it is in the configuration: the API cannot change it then.
    pub(super) configured: bool,
}

/// What a user is somewhere.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    /// A project's id; none for all projects.
    pub(super) project: Option<String>,
    /// As they were given.
    pub(super) given: Vec<Arc<Role>>,
    /// With those that they imply.
    pub(super) roles: Vec<Arc<Role>>,
}

impl User {
    /// What it is in a project, the implied roles too; nothing, if it has no part in it.
    pub(super) fn roles_in(&self, project: &str) -> Vec<Arc<Role>> {
        self.collected(project, |assignment| &assignment.roles)
    }

    /// What it is in a project, as it was given.
    pub(super) fn given_in(&self, project: &str) -> Vec<Arc<Role>> {
        self.collected(project, |assignment| &assignment.given)
    }

    fn collected(&self, project: &str, roles_of: fn(&Assignment) -> &Vec<Arc<Role>>) -> Vec<Arc<Role>> {
        let mut roles: Vec<Arc<Role>> = Vec::new();
        for assignment in &self.assignments {
            if assignment.project.as_deref().is_none_or(|id| id == project) {
                for role in roles_of(assignment) {
                    if !roles.iter().any(|known| known.id == role.id) {
                        roles.push(Arc::clone(role));
                    }
                }
            }
        }
        roles
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) domains: Vec<Domain>,
    pub(super) roles: Vec<Arc<Role>>,
    pub(super) users: Vec<Arc<User>>,
    users_by_id: HashMap<String, Arc<User>>,
    /// By its id, a role with all that it implies.
    with_implied: HashMap<String, Vec<Arc<Role>>>,
    projects: BTreeMap<String, Arc<Project>>,
}

impl Directory {
    /// Checks what was configured.
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let domains = domains(settings)?;
        let projects = projects(settings, &domains)?;
        let roles = roles(&settings.roles)?;
        let mut users = Vec::new();
        let mut users_by_id = HashMap::new();
        for (number, given) in settings.users.iter().enumerate() {
            let at = format!("users[{number}]");
            let user = Arc::new(user(given, &at, &domains, &projects, &roles)?);
            if users.iter().any(|known: &Arc<User>| known.name == user.name && known.domain == user.domain) {
                return Err(SettingsError::new(
                    at,
                    format!("there are two users {} in domain {}", user.name, user.domain),
                ));
            }
            if users_by_id.insert(user.id.clone(), Arc::clone(&user)).is_some() {
                return Err(SettingsError::new(at, format!("there are two users with id {}", user.id)));
            }
            users.push(user);
        }
        let with_implied = roles.values().map(|known| {
            let given = std::slice::from_ref(&known.role);
            (known.role.id.clone(), with_implied(given, &roles))
        });
        let with_implied = with_implied.collect();
        let roles = roles.into_values().map(|known| known.role).collect();
        Ok(Directory { domains, roles, users, users_by_id, with_implied, projects })
    }

    /// The user of an id, from the configuration or from the API.
    pub(super) fn user(&self, model: &Model, id: &str) -> Option<Arc<User>> {
        if let Some(user) = self.users_by_id.get(id) {
            return Some(Arc::clone(user));
        }
        let stored = model.get::<objects::User>(uuid_of(id)?)?;
        Some(Arc::new(self.created(stored)))
    }

    pub(super) fn user_named(&self, model: &Model, domain: &str, name: &str) -> Option<Arc<User>> {
        let configured = self.users.iter().find(|user| user.name == name && user.domain == domain);
        configured.cloned().or_else(|| {
            let mut named = model.named::<objects::User>(name);
            named.find(|stored| stored.domain == domain).map(|stored| Arc::new(self.created(stored)))
        })
    }

    /// All users, those of the configuration first.
    pub(super) fn all_users(&self, model: &Model) -> Vec<Arc<User>> {
        let stored = model.all::<objects::User>(None).map(|stored| Arc::new(self.created(stored)));
        let stored = stored.filter(|user| !self.users_by_id.contains_key(&user.id));
        self.users.iter().cloned().chain(stored).collect()
    }

    /// One hash of every cost that there is, whoever logs in, so that the time does not tell whose was checked. Among
    /// them is the one of who logs in, if there is one.
    pub(super) fn hashes(&self, model: &Model, own: Option<&PasswordHash>) -> Vec<PasswordHash> {
        let mut hashes: BTreeMap<&str, PasswordHash> = BTreeMap::new();
        let configured = self.users.iter().filter_map(|user| user.password.as_ref());
        for hash in own.into_iter().chain(configured) {
            hashes.entry(PasswordHash::cost(hash.reveal())).or_insert_with(|| hash.clone());
        }
        for stored in model.all::<objects::User>(None) {
            let cost = PasswordHash::cost(&stored.password);
            // Most have the same: what is known already is not taken apart again.
            if !hashes.contains_key(cost)
                && let Ok(hash) = PasswordHash::parse(&stored.password)
            {
                hashes.insert(cost, hash);
            }
        }
        hashes.into_values().collect()
    }

    /// A user that the API created.
    pub(super) fn created(&self, stored: &objects::User) -> User {
        let mut assignments: Vec<Assignment> = Vec::new();
        for grant in &stored.assignments {
            // A role that is not configured any more is none.
            let Some(given) = self.role(&grant.role) else { continue };
            let roles = self.with_implied.get(&given.id).map(Vec::as_slice).unwrap_or_default();
            match assignments.iter_mut().find(|known| known.project.as_ref() == Some(&grant.project)) {
                None => assignments.push(Assignment {
                    project: Some(grant.project.clone()),
                    given: vec![Arc::clone(given)],
                    roles: roles.to_vec(),
                }),
                Some(known) => {
                    known.given.push(Arc::clone(given));
                    let new: Vec<_> = roles.iter().filter(|role| !known.roles.contains(role)).collect();
                    known.roles.extend(new.into_iter().cloned());
                }
            }
        }
        let password = PasswordHash::parse(&stored.password).ok();
        User {
            id: stored.meta.id.simple().to_string(),
            name: stored.meta.name.clone(),
            domain: stored.domain.clone(),
            enabled: stored.enabled,
            fingerprint: password.as_ref().map(|hash| hash.fingerprint(stored.epoch)).unwrap_or_default(),
            password,
            assignments,
            default_project: Some(stored.default_project.clone()).filter(|project| !project.is_empty()),
            configured: false,
        }
    }

    pub(super) fn domain(&self, id: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.id == id)
    }

    pub(super) fn domain_named(&self, name: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.name.eq_ignore_ascii_case(name))
    }

    pub(super) fn role(&self, id: &str) -> Option<&Arc<Role>> {
        self.roles.iter().find(|role| role.id == id)
    }

    /// The project of an id, from the configuration or from the API.
    pub(super) fn project(&self, model: &Model, id: &str) -> Option<Arc<Project>> {
        if let Some(project) = self.projects.get(id) {
            return Some(Arc::clone(project));
        }
        let stored = model.get::<objects::Project>(uuid_of(id)?)?;
        Some(Arc::new(Project::from(&**stored)))
    }

    pub(super) fn project_named(&self, model: &Model, domain: &str, name: &str) -> Option<Arc<Project>> {
        let configured =
            self.projects.values().find(|project| project.name == name && project.domain == domain);
        configured.cloned().or_else(|| {
            let mut named = model.named::<objects::Project>(name);
            named.find(|stored| stored.domain == domain).map(|stored| Arc::new(Project::from(&**stored)))
        })
    }

    /// All projects, those of the configuration first.
    pub(super) fn all_projects(&self, model: &Model) -> Vec<Arc<Project>> {
        let stored = model.all::<objects::Project>(None).map(|stored| Arc::new(Project::from(&**stored)));
        let stored = stored.filter(|project| !self.projects.contains_key(&project.id));
        self.projects.values().cloned().chain(stored).collect()
    }

    /// The enabled projects that a user has a role in.
    pub(super) fn projects_of(&self, model: &Model, user: &User) -> Vec<Arc<Project>> {
        let mut projects = self.all_projects(model);
        projects.retain(|project| project.enabled && !user.roles_in(&project.id).is_empty());
        projects
    }
}

/// The number in the id of a project or of a user that the API created, which is written without dashes.
pub(super) fn uuid_of(id: &str) -> Option<Uuid> {
    (id.len() == 32).then(|| Uuid::try_parse(id).ok()).flatten()
}

/// The id of something that has none in the configuration: the same on every server, and after every restart.
pub(super) fn derived_id(what: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("portcullis:{what}").as_bytes()).simple().to_string()
}

fn domains(settings: &Settings) -> Result<Vec<Domain>, SettingsError> {
    let mut domains: Vec<Domain> = Vec::new();
    for (number, given) in settings.domains.iter().enumerate() {
        let at = format!("domains[{number}]");
        if given.id.is_empty() || given.name.is_empty() {
            return Err(SettingsError::new(at, "a domain needs an id and a name"));
        }
        // Names of domains are looked up without regard to case.
        let same = |known: &Domain| known.id == given.id || known.name.eq_ignore_ascii_case(&given.name);
        if domains.iter().any(same) {
            return Err(SettingsError::new(at, format!("there are two domains {}", given.name)));
        }
        domains.push(Domain { id: given.id.clone(), name: given.name.clone() });
    }
    Ok(domains)
}

fn check_domain(domains: &[Domain], id: &str, at: &str) -> Result<(), SettingsError> {
    if domains.iter().any(|domain| domain.id == id) {
        return Ok(());
    }
    let known: Vec<&str> = domains.iter().map(|domain| domain.id.as_str()).collect();
    let what = format!("there is no domain with id {id}; there is {}", known.join(", "));
    Err(SettingsError::new(format!("{at}.domain"), what))
}

fn projects(
    settings: &Settings,
    domains: &[Domain],
) -> Result<BTreeMap<String, Arc<Project>>, SettingsError> {
    let mut projects = BTreeMap::new();
    for (number, given) in settings.projects.iter().enumerate() {
        let at = format!("projects[{number}]");
        let project = project(given, &at)?;
        check_domain(domains, &project.domain, &at)?;
        let same_name = |known: &Arc<Project>| known.name == project.name && known.domain == project.domain;
        if projects.values().any(same_name) {
            let what = format!("there are two projects {} in domain {}", project.name, project.domain);
            return Err(SettingsError::new(at, what));
        }
        let id = project.id.clone();
        if projects.insert(id.clone(), Arc::new(project)).is_some() {
            return Err(SettingsError::new(at, format!("there are two projects with id {id}")));
        }
    }
    Ok(projects)
}

/// The id of a project of the configuration, unless what is given cannot be one.
pub(super) fn project_id(given: &ProjectSettings) -> Option<String> {
    match &given.id {
        None => Some(derived_id(&format!("project:{}/{}", given.domain, given.name))),
        Some(id) => uuid_of(id).map(|uuid| uuid.simple().to_string()),
    }
}

fn project(given: &ProjectSettings, at: &str) -> Result<Project, SettingsError> {
    if given.name.is_empty() || given.name == "*" {
        return Err(SettingsError::new(format!("{at}.name"), "a project needs a name, other than *"));
    }
    let id = project_id(given).ok_or_else(|| {
        let given = given.id.as_deref().unwrap_or_default();
        let what = format!("the id of a project is 32 hexadecimal digits, not {given}");
        SettingsError::new(format!("{at}.id"), what)
    })?;
    Ok(Project {
        id,
        name: given.name.clone(),
        domain: given.domain.clone(),
        description: given.description.clone(),
        enabled: true,
        tags: BTreeSet::new(),
        configured: true,
    })
}

/// A role, and by name those that it directly implies.
struct Known {
    role: Arc<Role>,
    implies: Vec<String>,
}

fn roles(settings: &[RoleSettings]) -> Result<BTreeMap<String, Known>, SettingsError> {
    let mut roles = BTreeMap::new();
    for (number, given) in settings.iter().enumerate() {
        let at = format!("roles[{number}]");
        if given.name.is_empty() {
            return Err(SettingsError::new(format!("{at}.name"), "a role needs a name"));
        }
        if let Some(missing) =
            given.implies.iter().find(|name| !settings.iter().any(|role| &role.name == *name))
        {
            return Err(SettingsError::new(format!("{at}.implies"), format!("there is no role {missing}")));
        }
        let id = given.id.clone().unwrap_or_else(|| derived_id(&format!("role:{}", given.name)));
        if id.is_empty() || roles.values().any(|known: &Known| known.role.id == id) {
            let what = format!("the id of a role is its own: {id:?} is empty, or another's");
            return Err(SettingsError::new(format!("{at}.id"), what));
        }
        let role = Arc::new(Role { id, name: given.name.clone() });
        let known = Known { role, implies: given.implies.clone() };
        if roles.insert(given.name.clone(), known).is_some() {
            return Err(SettingsError::new(at, format!("there are two roles {}", given.name)));
        }
    }
    Ok(roles)
}

/// Roles, and all that they imply, however indirectly.
fn with_implied(given: &[Arc<Role>], roles: &BTreeMap<String, Known>) -> Vec<Arc<Role>> {
    let mut all = given.to_vec();
    let mut next = 0;
    while let Some(role) = all.get(next) {
        let implied = roles.get(&role.name).map(|known| known.implies.as_slice()).unwrap_or_default();
        for name in implied {
            if let Some(known) = roles.get(name)
                && !all.iter().any(|present| present.id == known.role.id)
            {
                all.push(Arc::clone(&known.role));
            }
        }
        next += 1;
    }
    all
}

fn user(
    given: &UserSettings,
    at: &str,
    domains: &[Domain],
    projects: &BTreeMap<String, Arc<Project>>,
    roles: &BTreeMap<String, Known>,
) -> Result<User, SettingsError> {
    if given.name.is_empty() {
        return Err(SettingsError::new(format!("{at}.name"), "a user needs a name"));
    }
    check_domain(domains, &given.domain, at)?;
    let id = given.id.clone().unwrap_or_else(|| derived_id(&format!("user:{}/{}", given.domain, given.name)));
    if id.is_empty() {
        return Err(SettingsError::new(format!("{at}.id"), "the id of a user is not empty: leave it out"));
    }
    let mut assignments = Vec::new();
    for (number, assignment) in given.assignments.iter().enumerate() {
        let at = format!("{at}.assignments[{number}]");
        let project = match assignment.project.as_str() {
            "*" => None,
            wanted => {
                let named =
                    |project: &&Arc<Project>| project.name == wanted && project.domain == given.domain;
                let found = projects.get(wanted).or_else(|| projects.values().find(named));
                let what = || format!("there is no project {wanted}: add it to projects");
                let found = found.ok_or_else(|| SettingsError::new(format!("{at}.project"), what()))?;
                Some(found.id.clone())
            }
        };
        if assignment.roles.is_empty() {
            let what =
                "a user without a role has no part in a project: name a role, or remove the assignment";
            return Err(SettingsError::new(format!("{at}.roles"), what));
        }
        let given = assignment.roles.iter().map(|name| {
            let known = roles.get(name).ok_or_else(|| {
                let names: Vec<&str> = roles.keys().map(String::as_str).collect();
                let what = format!("there is no role {name}; there is {}", names.join(", "));
                SettingsError::new(format!("{at}.roles"), what)
            })?;
            Ok(Arc::clone(&known.role))
        });
        let given = given.collect::<Result<Vec<_>, _>>()?;
        let roles = with_implied(&given, roles);
        assignments.push(Assignment { project, given, roles });
    }
    Ok(User {
        id,
        name: given.name.clone(),
        domain: given.domain.clone(),
        enabled: true,
        password: given.password.clone(),
        fingerprint: given.password.as_ref().map(|hash| hash.fingerprint(0)).unwrap_or_default(),
        assignments,
        default_project: None,
        configured: true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn directory(settings: &Value) -> Result<Directory, String> {
        let settings: Settings = serde_json::from_value(settings.clone()).map_err(|e| e.to_string())?;
        Directory::new(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn ids_are_the_documented_ones() {
        // uuidgen --sha1 --namespace @url --name portcullis:project:default/admin
        let directory = directory(&json!({"projects": [{"name": "admin"}]})).unwrap();
        let project = directory.project_named(&Model::default(), "default", "admin").unwrap();
        assert_eq!(project.id, "45645ddc93d655e5ad5b70a158bbb798");
    }

    #[test]
    fn roles_bring_those_that_they_imply() {
        let directory = directory(&json!({
            "projects": [{"name": "a"}, {"name": "b"}],
            "users": [
                {"name": "root", "assignments": [{"project": "*", "roles": ["admin"]}]},
                {"name": "ann", "assignments": [
                    {"project": "a", "roles": ["member"]}, {"project": "b", "roles": ["reader", "service"]},
                ]},
            ],
        }))
        .unwrap();
        let roles = |user: &str, project: &str| {
            let id = derived_id(&format!("project:default/{project}"));
            let user = directory.user_named(&Model::default(), "default", user).unwrap();
            user.roles_in(&id).iter().map(|role| role.name.clone()).collect::<Vec<_>>().join(" ")
        };
        for (user, project, expected) in [
            ("root", "a", "admin manager member reader"),
            ("root", "created later", "admin manager member reader"),
            ("ann", "a", "member reader"),
            ("ann", "b", "reader service"),
            ("ann", "c", ""),
        ] {
            assert_eq!(roles(user, project), expected, "{user} in {project}");
        }
    }

    /// What is checked for somebody is as much work as for anybody else.
    #[test]
    fn who_logs_in_does_not_change_which_costs_are_checked() {
        let hash = |cost: &str| format!("$argon2id$v=19${cost}$c29tZXNhbHQ$FOig+vISZ3yS71gn1f9RXQ");
        let (cheap, dear) = (hash("m=64,t=1,p=1"), hash("m=128,t=2,p=1"));
        let users =
            json!([{"name": "a", "password": cheap}, {"name": "b", "password": cheap}, {"name": "c"}]);
        let directory = directory(&json!({ "users": users })).unwrap();
        let mut model = Model::default();
        let stored = |name: &str, password: &str| objects::User {
            meta: objects::Meta { id: Uuid::new_v4(), name: name.into(), ..objects::Meta::default() },
            domain: "default".into(),
            password: password.into(),
            ..objects::User::default()
        };
        for user in [stored("d", &dear), stored("e", &dear), stored("f", ""), stored("g", "broken")] {
            model.put(user);
        }
        for name in ["a", "b", "c", "d", "e", "f", "g", "nobody"] {
            let user = directory.user_named(&model, "default", name);
            let own = user.and_then(|user| user.password.clone());
            let hashes = directory.hashes(&model, own.as_ref());
            let costs: Vec<&str> = hashes.iter().map(|hash| PasswordHash::cost(hash.reveal())).collect();
            assert_eq!(costs, ["$argon2id$v=19$m=128,t=2,p=1", "$argon2id$v=19$m=64,t=1,p=1"], "{name}");
            assert!(own.is_none_or(|own| hashes.contains(&own)), "{name}");
        }
    }

    #[test]
    fn a_circle_of_roles_ends() {
        let roles = json!([{"name": "x", "implies": ["y"]}, {"name": "y", "implies": ["x"]}]);
        let users = json!([{"name": "u", "assignments": [{"project": "*", "roles": ["x"]}]}]);
        let directory = directory(&json!({"roles": roles, "users": users})).unwrap();
        assert_eq!(directory.users[0].roles_in("p").len(), 2);
    }

    #[test]
    fn what_cannot_be_is_said_with_its_place() {
        let user = |assignment: Value| json!({"users": [{"name": "u", "assignments": [assignment]}]});
        for (settings, expected) in [
            (json!({"domains": [{"id": "", "name": "x"}]}), "domains[0]: a domain needs an id and a name"),
            (
                json!({"projects": [{"name": "a"}, {"name": "a"}]}),
                "projects[1]: there are two projects a in domain default",
            ),
            (
                json!({"projects": [{"name": "a", "id": "7"}]}),
                "projects[0].id: the id of a project is 32 hexadecimal digits, not 7",
            ),
            (
                json!({"projects": [{"name": "a", "domain": "x"}]}),
                "projects[0].domain: there is no domain with id x; there is default",
            ),
            (
                json!({"users": [{"name": "a"}, {"name": "a"}]}),
                "users[1]: there are two users a in domain default",
            ),
            (json!({"roles": [{"name": "a", "implies": ["b"]}]}), "roles[0].implies: there is no role b"),
            (
                json!({"domains": [{"id": "a", "name": "Default"}, {"id": "b", "name": "default"}]}),
                "domains[1]: there are two domains default",
            ),
            (
                json!({"roles": [{"name": "a", "id": "1"}, {"name": "b", "id": "1"}]}),
                r#"roles[1].id: the id of a role is its own: "1" is empty, or another's"#,
            ),
            (
                json!({"roles": [{"name": "a", "id": ""}]}),
                r#"roles[0].id: the id of a role is its own: "" is empty, or another's"#,
            ),
            (
                json!({"users": [{"name": "u", "id": ""}]}),
                "users[0].id: the id of a user is not empty: leave it out",
            ),
            (
                user(json!({"project": "*", "roles": []})),
                "users[0].assignments[0].roles: a user without a role has no part in a project: name a role, or remove \
                 the assignment",
            ),
            (
                user(json!({"project": "p", "roles": ["member"]})),
                "users[0].assignments[0].project: there is no project p: add it to projects",
            ),
            (
                user(json!({"project": "*", "roles": ["boss"]})),
                "users[0].assignments[0].roles: there is no role boss; there is admin, manager, member, reader, service",
            ),
        ] {
            assert_eq!(directory(&settings).err().as_deref(), Some(expected));
        }
        let error = directory(&json!({"users": [{"name": "u", "password": "hunter2"}]})).unwrap_err();
        assert!(error.contains("argon2") && !error.contains("hunter2"), "{error}");
    }
}

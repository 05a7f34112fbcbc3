//! What can be set about identity, and its defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::directory::project_id;
use super::password::PasswordHash;
use super::period::Period;
use super::secret::Secret;

/// Who there is, and what tokens are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Settings {
    pub domains: Vec<DomainSettings>,
    /// Projects that are always there. Others can be created by the API.
    pub projects: Vec<ProjectSettings>,
    pub roles: Vec<RoleSettings>,
    pub users: Vec<UserSettings>,
    pub token_lifetime: Period,
    /// A file with the secret that tokens are signed with, 32 characters at least. Without it the secret is kept in
    /// the northbound database, where whoever may read that database can read it.
    pub token_key_file: Option<PathBuf>,
    pub region: String,
    pub catalog: CatalogSettings,
}

impl Default for Settings {
    fn default() -> Self {
        let role = |name: &str, implies: &[&str]| RoleSettings {
            name: name.to_owned(),
            id: None,
            implies: implies.iter().map(ToString::to_string).collect(),
        };
        Settings {
            domains: vec![DomainSettings { id: "default".to_owned(), name: "Default".to_owned() }],
            projects: Vec::new(),
            roles: vec![
                role("admin", &["manager"]),
                role("manager", &["member"]),
                role("member", &["reader"]),
                role("reader", &[]),
                role("service", &[]),
            ],
            users: Vec::new(),
            token_lifetime: Period::seconds(3600),
            token_key_file: None,
            region: "RegionOne".to_owned(),
            catalog: CatalogSettings::default(),
        }
    }
}

impl Settings {
    /// The id of the project that has this id or this name.
    pub fn project_id(&self, name_or_id: &str) -> Option<String> {
        let named = self.projects.iter().find(|project| project.name == name_or_id);
        let same = |id: &String| id.eq_ignore_ascii_case(name_or_id);
        named.and_then(project_id).or_else(|| self.projects.iter().filter_map(project_id).find(same))
    }
}

/// What users and projects have their names in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainSettings {
    pub id: String,
    pub name: String,
}

/// Who has objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSettings {
    pub name: String,
    /// 32 hexadecimal digits. Without it, those of the name-based (version 5) uuid in the namespace of URLs for
    /// `portcullis:project:<domain>/<name>`: what `uuidgen --sha1 --namespace @url --name …` prints, without dashes.
    #[serde(default)]
    pub id: Option<String>,
    /// The id of its domain.
    #[serde(default = "default_domain")]
    pub domain: String,
    #[serde(default)]
    pub description: String,
}

/// What a user may be in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleSettings {
    pub name: String,
    /// Without it, it is made from `portcullis:role:<name>` as a project's is.
    #[serde(default)]
    pub id: Option<String>,
    /// The roles that who has this one has too.
    #[serde(default)]
    pub implies: Vec<String>,
}

/// Somebody, or something, that can log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserSettings {
    pub name: String,
    /// Without it, it is made from `portcullis:user:<domain>/<name>` as a project's is.
    #[serde(default)]
    pub id: Option<String>,
    /// The id of its domain.
    #[serde(default = "default_domain")]
    pub domain: String,
    /// What its password is recognised by. Who has none cannot log in.
    #[serde(default)]
    pub password: Option<PasswordHash>,
    #[serde(default)]
    pub assignments: Vec<AssignmentSettings>,
}

/// What a user is in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSettings {
    /// Its id, or its name if it is in the user's domain; `*` for all projects, those that the API creates too.
    pub project: String,
    pub roles: Vec<String>,
}

/// Where clients find the services. What is not given is where the client found this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CatalogSettings {
    /// Such as `https://cloud.example.com:9696`.
    pub network: Option<String>,
    /// Such as `https://cloud.example.com:35357/v3`.
    pub identity: Option<String>,
}

/// An existing Keystone, and who we are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeystoneSettings {
    /// Such as `https://keystone.example.com:5000/v3`.
    pub url: String,
    /// Who signs its certificate; without it, whom the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Who asks it. The user needs the role `service` or `admin` in the project.
    pub user: String,
    /// The name of the user's domain.
    pub user_domain: String,
    pub project: String,
    /// The name of the project's domain.
    pub project_domain: String,
    pub password: Option<Secret>,
    /// A file with the password, instead.
    pub password_file: Option<PathBuf>,
    /// For how long an answer is believed: so long can a revoked token still be used.
    pub cache: Period,
    /// How long to wait for an answer.
    pub timeout: Period,
}

impl Default for KeystoneSettings {
    fn default() -> Self {
        KeystoneSettings {
            url: String::new(),
            ca_file: None,
            user: "neutron".to_owned(),
            user_domain: "Default".to_owned(),
            project: "service".to_owned(),
            project_domain: "Default".to_owned(),
            password: None,
            password_file: None,
            cache: Period::seconds(60),
            timeout: Period::seconds(10),
        }
    }
}

fn default_domain() -> String {
    "default".to_owned()
}

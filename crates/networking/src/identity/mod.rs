//! Who may use the Networking API: the OpenStack Identity API v3, and v2.0 for old oVirt engines.
//!
//! [`Local`] knows users, of the configuration and of the API, and gives them signed tokens, which any server on the same northbound
//! database can check by itself; [`Identity`] serves it. [`Keystone`] asks an existing Keystone instead.

mod api;
mod cache;
mod catalog;
mod client;
mod directory;
mod failure;
mod keystone;
mod local;
mod password;
mod period;
mod secret;
mod settings;
mod token;

pub use api::{Identity, join};
pub use directory::SettingsError;
pub use keystone::Keystone;
pub use local::Local;
pub use password::PasswordHash;
pub use period::Period;
pub use secret::Secret;
pub use settings::{
    AssignmentSettings, CatalogSettings, DomainSettings, KeystoneSettings, ProjectSettings, RoleSettings,
    Settings, UserSettings,
};

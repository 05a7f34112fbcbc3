//! Identity on a real northbound database.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod hostile;
mod joined;
mod keystone;
mod listen;
mod projects;
mod real_keystone;
mod silence;
mod tokens;
mod users;
mod v2;

use std::time::Duration;

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use portcullis_networking::identity::{Identity, Local, Settings};
use portcullis_ovn::{Options, Store, StoreSettings};
use portcullis_testkit::parts::ovn::Ovn;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt;

/// Longer than anything takes: a test that hangs would not say where.
const PATIENCE: Duration = Duration::from_secs(60);

fn northbound() -> (tempfile::TempDir, Ovn) {
    let directory = tempfile::tempdir().unwrap();
    let ovn = Ovn::start(directory.path(), directory.path(), None).unwrap();
    (directory, ovn)
}

async fn store(ovn: &Ovn) -> Store {
    let store = Store::start(StoreSettings {
        remotes: vec![ovn.northbound().parse().unwrap()],
        tls: None,
        durable: false,
        coexist: false,
        read_only: false,
        options: Options::default(),
    });
    timeout(PATIENCE, store.opened()).await.expect("the database can be reached").unwrap();
    store
}

/// A hash that is quick to check: good for nothing but tests.
fn hash(password: &str) -> String {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
    let hash: phc::PasswordHash = argon2.hash_password_with_salt(password.as_bytes(), b"somesalt").unwrap();
    hash.to_string()
}

fn settings() -> Value {
    json!({
        "domains": [{"id": "default", "name": "Default"}, {"id": "other", "name": "Other"}],
        "projects": [
            {"name": "admin"}, {"name": "demo", "id": "0123456789abcdef0123456789ABCDEF"},
            {"name": "demo", "domain": "other"},
        ],
        "users": [
            {"name": "admin", "password": hash("root secret"),
                "assignments": [{"project": "admin", "roles": ["admin"]}]},
            {"name": "ann", "password": hash("ann secret"), "assignments": [{"project": "demo", "roles": ["member"]}]},
            {"name": "admin@internal", "password": hash("ovirt secret"),
                "assignments": [{"project": "admin", "roles": ["admin"]}, {"project": "demo", "roles": ["member"]}]},
            {"name": "everywhere", "password": hash("wide secret"), "assignments": [{"project": "*", "roles": ["member"]}]},
            {"name": "service", "password": hash("service secret"),
                "assignments": [{"project": "admin", "roles": ["service"]}]},
            {"name": "locked out"},
        ],
    })
}

const DEMO: &str = "0123456789abcdef0123456789abcdef";

/// One server, and the database that it is on.
#[derive(Clone)]
struct Server {
    local: Local,
    router: Router,
}

impl Server {
    async fn start(ovn: &Ovn) -> Self {
        Self::with(ovn, settings()).await
    }

    async fn with(ovn: &Ovn, settings: Value) -> Self {
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let local = Local::new(store(ovn).await, settings).unwrap();
        let router = Identity::new(local.clone(), false, Some(9696)).router();
        Server { local, router }
    }

    async fn ask(&self, method: &str, path: &str, token: &str, body: Option<Value>) -> Answer {
        self.ask_about(method, path, token, "", body).await
    }

    async fn ask_about(
        &self,
        method: &str,
        path: &str,
        token: &str,
        subject: &str,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("Host", "cloud.example:35357");
        if !token.is_empty() {
            request = request.header("X-Auth-Token", token);
        }
        if !subject.is_empty() {
            request = request.header("X-Subject-Token", subject);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let answer = self.router.clone().oneshot(request.body(body).unwrap());
        let response = timeout(PATIENCE, answer).await.expect("every request has an answer").unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.ask("GET", path, token, None).await
    }

    /// Logs in with a password.
    async fn log_in(&self, name: &str, password: &str, scope: Value) -> Answer {
        let user = json!({"name": name, "domain": {"id": "default"}, "password": password});
        let identity = json!({"methods": ["password"], "password": {"user": user}});
        self.ask("POST", "/v3/auth/tokens", "", Some(json!({"auth": {"identity": identity, "scope": scope}})))
            .await
    }

    /// A token for a project.
    async fn token(&self, name: &str, password: &str, project: &str) -> String {
        let scope = json!({"project": {"name": project, "domain": {"name": "Default"}}});
        let answer = self.log_in(name, password, scope).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.token()
    }

    async fn admin(&self) -> String {
        self.token("admin", "root secret", "admin").await
    }

    async fn ann(&self) -> String {
        self.token("ann", "ann secret", "demo").await
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    fn token(&self) -> String {
        self.headers["x-subject-token"].to_str().unwrap().to_owned()
    }

    /// The names in a list.
    fn names(&self, collection: &str) -> Vec<&str> {
        let items = self.body[collection].as_array().unwrap_or_else(|| panic!("{}", self.body));
        items.iter().map(|item| item["name"].as_str().unwrap()).collect()
    }
}

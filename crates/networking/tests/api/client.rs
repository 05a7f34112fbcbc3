//! A server on a northbound database of its own, asked without a socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use portcullis_networking::{Authenticate, Caller, Error, Networking, Settings};
use portcullis_ovn::{Options, Store, StoreSettings};
use portcullis_ovsdb::Transaction;
use portcullis_testkit::parts::ovn::Ovn;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;
use uuid::Uuid;

/// A token says it all: `user:project:role,role`.
pub(crate) struct Words;

impl Authenticate for Words {
    fn caller<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Caller>, Error>> + Send + 'a>> {
        let parts: Vec<&str> = token.split(':').collect();
        let caller = match parts[..] {
            [user, project, roles] => Ok(Arc::new(Caller {
                user: user.to_owned(),
                project: project.to_owned(),
                project_name: project.to_owned(),
                roles: roles.split(',').map(str::to_owned).collect(),
            })),
            _ => Err(Error::unauthorized()),
        };
        Box::pin(std::future::ready(caller))
    }
}

/// The tests of a binary share a runtime, so that what one of them started lives on for the others.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub(crate) struct Api {
    pub(crate) ovn: Ovn,
    store: Store,
    router: Router,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Reply {
    /// The name of the error.
    pub(crate) fn kind(&self) -> &str {
        self.body["NeutronError"]["type"].as_str().unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.body["NeutronError"]["message"].as_str().unwrap_or_default()
    }
}

/// The server that most tests share; each has projects of its own.
pub(crate) fn shared() -> &'static Arc<Api> {
    static SHARED: LazyLock<Arc<Api>> = LazyLock::new(Api::start);
    &SHARED
}

impl Api {
    pub(crate) fn start() -> Arc<Self> {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Arc<Self> {
        Self::under(Settings::default(), options)
    }

    pub(crate) fn under(settings: Settings, options: Options) -> Arc<Self> {
        let ovn = portcullis_testkit::ovn();
        let remotes = vec![ovn.northbound().parse().unwrap()];
        let (store, router) = RUNTIME.block_on(async {
            let store = Store::start(StoreSettings {
                remotes,
                tls: None,
                durable: false,
                coexist: false,
                read_only: false,
                options,
            });
            store.opened().await.unwrap();
            let router = Networking::new(store.clone(), settings, Arc::new(Words), false).router();
            (store, router)
        });
        Arc::new(Api { ovn, store, router })
    }

    /// What is not in the database as the objects need it.
    pub(crate) fn drift(&self) -> Transaction {
        self.store.drift()
    }

    /// Every change leaves the database exactly as its objects need it.
    #[track_caller]
    pub(crate) fn assert_no_drift(&self) {
        let drift = self.drift();
        assert!(drift.is_empty(), "{}", serde_json::to_string_pretty(&drift).unwrap());
    }

    /// Somebody with a role in a new project.
    pub(crate) fn user(self: &Arc<Self>, role: &str) -> User {
        self.user_of(&Uuid::new_v4().simple().to_string(), role)
    }

    pub(crate) fn user_of(self: &Arc<Self>, project: &str, role: &str) -> User {
        User { api: Arc::clone(self), project: project.to_owned(), role: role.to_owned() }
    }

    pub(crate) fn admin(self: &Arc<Self>) -> User {
        self.user("admin")
    }
}

/// Somebody who asks.
pub(crate) struct User {
    api: Arc<Api>,
    pub(crate) project: String,
    role: String,
}

impl User {
    /// The same project, in another role.
    pub(crate) fn with(&self, role: &str) -> User {
        self.api.user_of(&self.project, role)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> Reply {
        self.send_if(method, path, body, None)
    }

    /// Sends a request that holds only under a condition.
    pub(crate) fn send_if(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Body>,
        condition: Option<&str>,
    ) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(format!("/v2.0/{path}"))
            .header("x-auth-token", format!("somebody:{}:{}", self.project, self.role));
        let request = match condition {
            Some(condition) => request.header("if-match", condition),
            None => request,
        };
        let request = request.body(body.into()).unwrap();
        let router = self.api.router.clone();
        RUNTIME.block_on(async move {
            let response = router.oneshot(request).await.unwrap();
            let (status, headers) = (response.status(), response.headers().clone());
            let number = headers["x-openstack-request-id"].to_str().unwrap();
            assert!(number.strip_prefix("req-").is_some_and(|id| Uuid::try_parse(id).is_ok()), "{number}");
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let body = serde_json::from_str(&text).unwrap_or(Value::Null);
            Reply { status, headers, text, body }
        })
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let reply = self.send("GET", path, Body::empty());
        assert_eq!(reply.status, StatusCode::OK, "GET {path}: {}", reply.text);
        reply.body
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, body.to_string())
    }

    pub(crate) fn put(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, body.to_string())
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, Body::empty())
    }

    /// Makes an object, and gives it back.
    pub(crate) fn make(&self, collection: &str, name: &str, attributes: Value) -> Value {
        let reply = self.post(collection, json!({ name: attributes }));
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
        reply.body[name].clone()
    }

    pub(crate) fn network(&self) -> String {
        id(&self.make("networks", "network", json!({"name": "n"})))
    }

    pub(crate) fn subnet(&self, network: &str, cidr: &str) -> String {
        let version = if cidr.contains(':') { 6 } else { 4 };
        let subnet = json!({"network_id": network, "cidr": cidr, "ip_version": version});
        id(&self.make("subnets", "subnet", subnet))
    }

    pub(crate) fn group(&self, name: &str) -> String {
        id(&self.make("security-groups", "security_group", json!({"name": name})))
    }

    pub(crate) fn rule(&self, attributes: Value) -> String {
        id(&self.make("security-group-rules", "security_group_rule", attributes))
    }

    pub(crate) fn port(&self, attributes: Value) -> Value {
        self.make("ports", "port", attributes)
    }
}

pub(crate) fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

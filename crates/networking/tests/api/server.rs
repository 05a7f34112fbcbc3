use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use portcullis_networking::{Authenticate, Caller, Error, Networking, Settings};
use portcullis_ovn::{Options, Store, StoreSettings};
use portcullis_testkit::parts::ovn::Ovn;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A token says who has it: `user:project:role`.
struct Trusting;

impl Authenticate for Trusting {
    fn caller<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Caller>, Error>> + Send + 'a>> {
        Box::pin(async move {
            let mut parts = token.split(':').map(str::to_owned);
            let mut part = || parts.next().ok_or_else(Error::unauthorized);
            let (user, project, role) = (part()?, part()?, part()?);
            Ok(Arc::new(Caller { user, project_name: project.clone(), project, roles: vec![role] }))
        })
    }
}

/// The API, as one of its clients sees it.
pub(crate) struct Server {
    pub store: Store,
    router: Router,
}

/// A client with a token.
#[derive(Clone)]
pub(crate) struct Client {
    router: Router,
    token: String,
}

impl Server {
    pub(crate) async fn start(ovn: &Ovn) -> Self {
        Self::with(ovn, Options::default(), Settings::default()).await
    }

    pub(crate) async fn with(ovn: &Ovn, options: Options, settings: Settings) -> Self {
        let store = Store::start(StoreSettings {
            remotes: vec![ovn.northbound().parse().unwrap()],
            tls: None,
            durable: false,
            coexist: false,
            read_only: false,
            options,
        });
        store.opened().await.unwrap();
        let router = Networking::new(store.clone(), settings, Arc::new(Trusting), false).router();
        Server { store, router }
    }

    pub(crate) fn client(&self, project: &str, role: &str) -> Client {
        Client { router: self.router.clone(), token: format!("someone:{project}:{role}") }
    }

    /// Every change leaves the database exactly as its objects need it.
    #[track_caller]
    pub(crate) fn assert_no_drift(&self) {
        let drift = self.store.drift();
        assert!(drift.is_empty(), "{}", serde_json::to_string_pretty(&drift).unwrap());
    }
}

impl Client {
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/v2.0/{path}"))
            .header("x-auth-token", &self.token)
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        (status, body)
    }

    /// Makes an object, and gives it.
    pub(crate) async fn create(&self, name: &str, attributes: Value) -> Value {
        let path = format!("{}s", name.replace('_', "-"));
        let (status, body) = self.ask("POST", &path, Some(json!({name: attributes}))).await;
        assert_eq!(status, 201, "{body}");
        body[name].clone()
    }

    /// Changes an object, and gives it.
    pub(crate) async fn update(&self, name: &str, id: &Value, attributes: Value) -> Value {
        let path = format!("{}s/{}", name.replace('_', "-"), id.as_str().unwrap());
        let (status, body) = self.ask("PUT", &path, Some(json!({name: attributes}))).await;
        assert_eq!(status, 200, "{body}");
        body[name].clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub(crate) async fn delete(&self, path: &str) {
        let (status, body) = self.ask("DELETE", path, None).await;
        assert_eq!(status, 204, "{body}");
    }
}

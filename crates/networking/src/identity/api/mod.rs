//! The Identity API over HTTP: which request goes where.

mod grants;
mod listings;
mod projects;
mod tokens;
mod users;
mod v2;
mod versions;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::any;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::catalog::Service;
use super::failure::Failure;
use super::local::{Local, Session};
use super::token::Token;
use crate::listen::read;
use crate::query::{decoded, pairs};

/// The largest request that is read, in bytes: more than any needs.
const LARGEST: usize = 64 << 10;

/// The Identity API. Cloned, it is the same.
#[derive(Clone, Debug)]
pub struct Identity {
    local: Local,
    secure: bool,
    network_port: Option<u16>,
}

impl Identity {
    /// The API for the users of `local`. `secure` is whether clients come by HTTPS; `network_port` is where on this
    /// machine the Networking API is, if it is not on the same port.
    pub fn new(local: Local, secure: bool, network_port: Option<u16>) -> Self {
        Identity { local, secure, network_port }
    }

    /// Its routes.
    pub fn router(self) -> Router {
        Router::new().fallback(serve).with_state(self)
    }

    /// The services, as this client should address them.
    fn services(&self, ask: &Ask) -> [Service; 2] {
        let settings = self.local.settings();
        let service = |kind, name, url| Service { kind, name, url, region: settings.region.clone() };
        let network = settings.catalog.network.clone().unwrap_or_else(|| ask.network_url(self.network_port));
        let identity = settings.catalog.identity.clone().unwrap_or_else(|| format!("{}/v3", ask.base));
        [service("network", "neutron", network), service("identity", "keystone", identity)]
    }

    async fn answer(&self, ask: &Ask) -> Result<Answer, Failure> {
        let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
        match (&ask.method, path.as_slice()) {
            (&Method::GET, []) => Ok(versions::all(ask)),
            (&Method::GET, ["v3"]) => Ok(versions::v3(ask)),
            (_, ["v3", rest @ ..]) => self.v3(ask, rest).await,
            (&Method::GET, ["v2.0"]) => Ok(versions::v2(ask)),
            (&Method::POST, ["v2.0", "tokens"]) => v2::create(self, ask).await,
            (&Method::GET, ["v2.0", "tokens", token]) => v2::show(self, ask, token),
            (&Method::GET, ["v2.0", "tenants"]) => v2::tenants(self, ask),
            _ => Err(Failure::no_such_resource()),
        }
    }

    async fn v3(&self, ask: &Ask, path: &[&str]) -> Result<Answer, Failure> {
        if path == ["auth", "tokens"] && ask.method == Method::POST {
            return tokens::create(self, ask).await;
        }
        // Who knows the old password needs no token.
        if let (&Method::POST, ["users", id, "password"]) = (&ask.method, path) {
            return users::change_password(self, ask, id).await;
        }
        let session = self.session(ask)?;
        match (&ask.method, path) {
            (&Method::GET, ["auth", "tokens"]) => tokens::show(self, ask, &session),
            (&Method::DELETE, ["auth", "tokens"]) => tokens::revoke(self, ask, &session).await,
            (&Method::GET, ["auth", "projects"]) => projects::of_user(self, ask, &session.user),
            (&Method::GET, ["auth", "catalog"]) => Ok(tokens::catalog(self, ask)),
            (&Method::GET, ["projects"]) => projects::list(self, ask, &session),
            (&Method::POST, ["projects"]) => projects::create(self, ask, &session).await,
            (&Method::GET, ["projects", id]) => projects::show(self, ask, &session, id),
            (&Method::PATCH, ["projects", id]) => projects::update(self, ask, &session, id).await,
            (&Method::DELETE, ["projects", id]) => projects::delete(self, &session, id).await,
            (_, ["projects", project, "users", user, "roles", role @ ..]) => {
                grants::answer(self, ask, &session, (project, user), role).await
            }
            (&Method::GET, ["users"]) => users::list(self, ask, &session),
            (&Method::POST, ["users"]) => users::create(self, ask, &session).await,
            (&Method::GET, ["users", id]) => users::show(self, ask, &session, id),
            (&Method::PATCH, ["users", id]) => users::update(self, ask, &session, id).await,
            (&Method::DELETE, ["users", id]) => users::delete(self, &session, id).await,
            (&Method::GET, path) => listings::answer(self, ask, &session, path),
            _ => Err(Failure::no_such_resource()),
        }
    }

    /// Who asks.
    fn session(&self, ask: &Ask) -> Result<Session, Failure> {
        self.local.session(ask.token.as_deref().ok_or_else(Failure::unauthorized)?)
    }
}

/// A request, taken apart. It holds tokens and perhaps a password, so it is never printed.
struct Ask {
    method: Method,
    path: Vec<String>,
    query: Vec<(String, String)>,
    scheme: String,
    host: String,
    /// Where this API is, as the client sees it.
    base: String,
    token: Option<String>,
    /// The token that the request is about.
    subject: Option<String>,
    body: Vec<u8>,
}

impl Ask {
    fn new(method: Method, path: &str, query: &str, headers: &HeaderMap, secure: bool) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST.as_str()).unwrap_or("localhost").to_owned();
        let scheme = text("x-forwarded-proto").unwrap_or(if secure { "https" } else { "http" }).to_owned();
        let mut path: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decoded).collect();
        let mut base = format!("{scheme}://{host}");
        // Where a proxy, or the Networking API's own port, has it among others.
        if path.first().is_some_and(|first| first == "identity") {
            path.remove(0);
            base.push_str("/identity");
        }
        Ask {
            // What is asked for without its body is decided in the same way.
            method: if method == Method::HEAD { Method::GET } else { method },
            path,
            query: pairs(query),
            scheme,
            host,
            base,
            token: text("x-auth-token").map(str::to_owned),
            subject: text("x-subject-token").map(str::to_owned),
            body: Vec::new(),
        }
    }

    fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::bad_request(format!("The body of the request cannot be used: {error}."))
        })
    }

    /// The value of a parameter; of one that is only named, it is empty.
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a value is what a filter asks for, if it is there.
    fn wants(&self, filter: &str, value: &str) -> bool {
        self.parameter(filter).is_none_or(|wanted| wanted == value)
    }

    /// Whether a parameter is there and does not say no.
    fn flag(&self, name: &str) -> Option<bool> {
        self.parameter(name).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "no"))
    }

    /// Where the Networking API is, as the client sees it.
    fn network_url(&self, port: Option<u16>) -> String {
        let Some(port) = port else { return format!("{}://{}", self.scheme, self.host) };
        // An IPv6 address has colons too, in brackets.
        let name = match self.host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => name,
            _ => &self.host,
        };
        format!("{}://{name}:{port}", self.scheme)
    }

    /// A list, as the API writes it.
    fn list(&self, collection: &str, items: impl IntoIterator<Item = Value>) -> Answer {
        let items: Vec<Value> = items.into_iter().collect();
        let address = format!("{}/{}", self.base, self.path.join("/"));
        let links = json!({"self": address, "previous": null, "next": null});
        Answer::ok(json!({ collection: items, "links": links, "truncated": false }))
    }
}

/// What a request is answered with.
struct Answer {
    status: StatusCode,
    body: Option<Value>,
    /// The token that the answer is about.
    subject: Option<Token>,
}

impl Answer {
    fn new(status: StatusCode, body: Value) -> Self {
        Answer { status, body: Some(body), subject: None }
    }

    fn ok(body: Value) -> Self {
        Self::new(StatusCode::OK, body)
    }

    fn nothing() -> Self {
        Answer { status: StatusCode::NO_CONTENT, body: None, subject: None }
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        if let Some(body) = self.body {
            *response.body_mut() = Body::from(body.to_string());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(token) = self.subject
            && let Ok(mut value) = HeaderValue::from_str(token.reveal())
        {
            value.set_sensitive(true);
            response.headers_mut().insert("x-subject-token", value);
        }
        response
    }
}

async fn serve(State(identity): State<Identity>, request: HttpRequest) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let bodiless = parts.method == Method::HEAD;
    let query = parts.uri.query().unwrap_or_default();
    let mut ask = Ask::new(parts.method, parts.uri.path(), query, &parts.headers, identity.secure);
    let answer = match read(body, LARGEST).await {
        Ok(bytes) => {
            ask.body = bytes.into();
            identity.answer(&ask).await
        }
        Err(unread) => Err(unread.into()),
    };
    let mut response = answer.map_or_else(|failure| failure.into_response(&ask.base), Answer::into_response);
    if bodiless {
        *response.body_mut() = Body::empty();
    }
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("X-Auth-Token"));
    if let Ok(id) = HeaderValue::from_str(&format!("req-{}", Uuid::new_v4())) {
        headers.insert("x-openstack-request-id", id);
    }
    response
}

/// Both APIs on one port: identity under `/v3`, `/identity` and the two old addresses that the Networking API has not;
/// everything else, `/` too, is the Networking API's.
pub fn join(networking: Router, identity: &Identity) -> Router {
    let paths = ["/v3", "/v3/", "/v3/{*path}", "/identity", "/identity/", "/identity/{*path}"];
    let old = ["/v2.0/tokens", "/v2.0/tokens/{token}", "/v2.0/tenants"];
    let mut joined = Router::new().fallback_service(networking);
    for path in paths.into_iter().chain(old) {
        joined = joined.route(path, any(serve).with_state(identity.clone()));
    }
    joined
}

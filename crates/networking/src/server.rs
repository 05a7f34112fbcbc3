//! The server: which request goes where.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use portcullis_ovn::{Draft, Rejected, Store, StoreError, Stored};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::attributes::{Action, Input, check};
use crate::caller::Caller;
use crate::error::Error;
use crate::listen::{Unread, discard, read};
use crate::query::{Query, flag};
use crate::request::Request;
use crate::resources::address_group::{self, AddressGroups};
use crate::resources::default_rule::DefaultRules;
use crate::resources::floating_ip::FloatingIps;
use crate::resources::network::Networks;
use crate::resources::port::Ports;
use crate::resources::quota;
use crate::resources::rbac_policy::RbacPolicies;
use crate::resources::router::{self, Routers};
use crate::resources::rule::Rules;
use crate::resources::rule_set;
use crate::resources::security_group::{self, SecurityGroups};
use crate::resources::subnet::Subnets;
use crate::resources::{Context, Resource, ensure_all, find, list, shown};
use crate::{Settings, availability, dry_run, explain, tags, time, transfer, versions};

/// Knows who has a token.
pub trait Authenticate: Send + Sync + 'static {
    /// Who has it, if it is valid now.
    fn caller<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Caller>, Error>> + Send + 'a>>;
}

/// The Networking API. Cloned, it is the same.
#[derive(Clone)]
pub struct Networking {
    store: Store,
    settings: Arc<Settings>,
    identity: Arc<dyn Authenticate>,
    secure: bool,
}

impl std::fmt::Debug for Networking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Networking").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What a request is answered with.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Content,
}

/// The body of an answer.
pub(crate) enum Content {
    Nothing,
    Json(Value),
    Yaml(String),
}

impl Answer {
    pub(crate) fn ok(body: Value) -> Self {
        Answer { status: StatusCode::OK, body: Content::Json(body) }
    }

    pub(crate) fn created(body: Value) -> Self {
        Answer { status: StatusCode::CREATED, body: Content::Json(body) }
    }

    pub(crate) fn nothing() -> Self {
        Answer { status: StatusCode::NO_CONTENT, body: Content::Nothing }
    }

    pub(crate) fn yaml(text: String) -> Self {
        Answer { status: StatusCode::OK, body: Content::Yaml(text) }
    }

    fn into_response(self) -> Response<Body> {
        let (body, kind) = match self.body {
            Content::Nothing => (Body::empty(), None),
            Content::Json(value) => (Body::from(value.to_string()), Some("application/json")),
            Content::Yaml(text) => (Body::from(text), Some("application/yaml")),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        if let Some(kind) = kind {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        response
    }
}

/// Does something with the resource that a collection is about.
macro_rules! for_resource {
    ($collection:expr, $resource:ident => $then:expr) => {
        match $collection {
            "networks" => for_resource!(@ Networks, $resource, $then),
            "subnets" => for_resource!(@ Subnets, $resource, $then),
            "ports" => for_resource!(@ Ports, $resource, $then),
            "routers" => for_resource!(@ Routers, $resource, $then),
            "floatingips" => for_resource!(@ FloatingIps, $resource, $then),
            "security-groups" => for_resource!(@ SecurityGroups, $resource, $then),
            "security-group-rules" => for_resource!(@ Rules, $resource, $then),
            "address-groups" => for_resource!(@ AddressGroups, $resource, $then),
            "default-security-group-rules" => for_resource!(@ DefaultRules, $resource, $then),
            "rbac-policies" => for_resource!(@ RbacPolicies, $resource, $then),
            _ => Err(Error::no_such_resource()),
        }
    };
    (@ $type:ident, $resource:ident, $then:expr) => {{
        type $resource = $type;
        $then
    }};
}

impl Networking {
    /// The API on a store, for who has a token. `secure` is whether clients come by HTTPS.
    pub fn new(store: Store, settings: Settings, identity: Arc<dyn Authenticate>, secure: bool) -> Self {
        Networking { store, settings: Arc::new(settings), identity, secure }
    }

    /// Its routes.
    pub fn router(self) -> Router {
        Router::new().fallback(serve).with_state(self)
    }

    /// Who asks comes before what it sends: who is not known cannot make the server keep a body.
    async fn attend(&self, mut request: Request, body: Body) -> Result<Answer, Error> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        if let Some(answer) = versions::answer(&request, &path) {
            return answer;
        }
        let caller = match &request.token {
            Some(token) => self.identity.caller(token).await,
            None => Err(Error::unauthorized()),
        };
        match caller {
            Ok(caller) => {
                request.body = read(body, self.settings.max_body).await?.into();
                self.answer(&request, caller).await
            }
            Err(error) => {
                discard(body, self.settings.max_body).await;
                Err(error)
            }
        }
    }

    async fn answer(&self, request: &Request, caller: Arc<Caller>) -> Result<Answer, Error> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        if !self.store.is_open() {
            let why = self.store.state().err().unwrap_or_else(|| "it is being looked at".into());
            return Err(StoreError::Unavailable(why.to_string()).into());
        }
        if !caller.is_reader() {
            return Err(Error::forbidden("project_reader"));
        }
        let context = Context {
            caller,
            now: time::now(),
            settings: Arc::clone(&self.settings),
            dry_run: flag(&request.query, "dry_run")?,
        };
        let collection = path.get(1).copied().unwrap_or_default();
        match (&request.method, path.get(1..).unwrap_or_default()) {
            (&Method::GET, ["security-groups", "export"]) => transfer::export(self, request, &context),
            (&Method::PUT, ["security-groups", "import"]) => transfer::import(self, request, context).await,
            (&Method::POST, ["explain"]) => explain::answer(self, request, &context),
            (_, ["quotas", rest @ ..]) => quota::answer(self, request, context, rest).await,
            (&Method::GET, ["network-ip-availabilities"]) => availability::list(self, request, &context),
            (&Method::GET, ["network-ip-availabilities", id]) => {
                availability::show(self, request, &context, id)
            }
            (&Method::GET, [_]) => for_resource!(collection, R => self.list::<R>(request, &context).await),
            (&Method::POST, [_]) => for_resource!(collection, R => self.create::<R>(request, context).await),
            (&Method::GET, [_, id]) => for_resource!(collection, R => self.show::<R>(request, &context, id)),
            (&Method::PUT, [_, id]) => {
                for_resource!(collection, R => self.update::<R>(request, context, id).await)
            }
            (&Method::DELETE, [_, id]) => {
                for_resource!(collection, R => self.delete::<R>(request, context, id).await)
            }
            (&Method::PUT, ["address-groups", id, action @ ("add_addresses" | "remove_addresses")]) => {
                let (body, add) = (request.json()?, *action == "add_addresses");
                self.act::<AddressGroups>(request, context, id, move |draft, context, id| {
                    address_group::change_addresses(draft, context, id, &body, add)
                })
                .await
            }
            (
                &Method::PUT,
                ["routers", id, action @ ("add_router_interface" | "remove_router_interface")],
            ) => self.connect(request, context, id, *action == "add_router_interface").await,
            (&Method::PUT, ["routers", id, action @ ("add_extraroutes" | "remove_extraroutes")]) => {
                let (body, add) = (request.json()?, *action == "add_extraroutes");
                self.act::<Routers>(request, context, id, move |draft, context, id| {
                    router::change_routes(draft, context, id, &body, add)
                })
                .await
            }
            (&Method::PUT, ["security-groups", id, "rules"]) => {
                rule_set::answer(self, request, context, id).await
            }
            (_, [_, id, "tags", rest @ ..]) => {
                for_resource!(collection, R => tags::answer::<R>(self, request, context, id, rest).await)
            }
            (_, [_] | [_, _]) => for_resource!(collection, R => Err(Error::method_not_allowed::<R>())),
            _ => Err(Error::no_such_resource()),
        }
    }

    async fn list<R: Resource>(&self, request: &Request, context: &Context) -> Result<Answer, Error> {
        let query = Query::read(&request.query, R::attributes(), R::FILTERS)?;
        let mut model = self.store.model();
        if let Some(project) = R::needs_before_list(&model, context, &query) {
            let context = context.clone();
            let ensure =
                move |draft: &mut Draft| security_group::ensure_default(draft, &context, &project).map(drop);
            match self.store.change(ensure).await {
                // Who may or can not change anything now can still look at what there is.
                Err(Rejected::Store(
                    StoreError::ReadOnly | StoreError::Unavailable(_) | StoreError::InDoubt,
                )) => {}
                made => made?,
            }
            model = self.store.model();
        }
        let address = format!("{}/v2.0/{}", request.origin, R::COLLECTION);
        list::<R>(&context.view(&model), &query, &address).map(Answer::ok)
    }

    fn show<R: Resource>(&self, request: &Request, context: &Context, id: &str) -> Result<Answer, Error> {
        let query = Query::read(&request.query, R::attributes(), R::FILTERS)?;
        let model = self.store.model();
        let view = context.view(&model);
        let object = find::<R>(&view, id)?;
        Ok(Answer::ok(json!({ R::NAME: shown::<R>(object, &view, &query.fields) })))
    }

    async fn create<R: Resource>(&self, request: &Request, context: Context) -> Result<Answer, Error> {
        let (given, bulk) = request.several(R::NAME, R::PLURAL)?;
        if !context.caller.is_member() {
            return Err(Error::forbidden(&format!("create_{}", R::NAME)));
        }
        let inputs: Vec<Input> = given
            .iter()
            .map(|given| check(R::attributes(), Action::Create, R::NAME, &context.caller, given))
            .collect::<Result<_, _>>()?;
        let idempotent = flag(&request.query, "idempotent")?;
        self.change(context, move |draft, context| {
            let (ids, made) = if idempotent {
                ensure_all::<R>(draft, context, &inputs)?
            } else {
                (R::create_all(draft, context, &inputs)?, true)
            };
            let mut objects = ids.into_iter().filter_map(|id| object::<R>(draft, context, id));
            let body = if bulk {
                json!({ R::PLURAL: objects.collect::<Vec<_>>() })
            } else {
                json!({ R::NAME: objects.next() })
            };
            Ok(if made { Answer::created(body) } else { Answer::ok(body) })
        })
        .await
    }

    async fn update<R: Resource>(
        &self,
        request: &Request,
        context: Context,
        id: &str,
    ) -> Result<Answer, Error> {
        let given: Map<String, Value> = request.one(R::NAME)?;
        let revision = request.revision()?;
        // Whether it is there comes before whether it can be changed so.
        let model = self.store.model();
        let known = find::<R>(&context.view(&model), id)?.id();
        let input = check(R::attributes(), Action::Update, R::NAME, &context.caller, &given)?;
        self.change(context, move |draft, context| {
            let old = changeable::<R>(draft, context, known, "update", revision)?;
            R::update(draft, context, &old, &input)?;
            Ok(Answer::ok(json!({ R::NAME: object::<R>(draft, context, known) })))
        })
        .await
    }

    async fn delete<R: Resource>(
        &self,
        request: &Request,
        context: Context,
        id: &str,
    ) -> Result<Answer, Error> {
        let revision = request.revision()?;
        let known = Uuid::try_parse(id).map_err(|_| R::not_found(id))?;
        self.change(context, move |draft, context| {
            let old = changeable::<R>(draft, context, known, "delete", revision)?;
            R::delete(draft, context, &old)?;
            Ok(Answer::nothing())
        })
        .await
    }

    /// Does something else to an object, and answers with it.
    pub(crate) async fn act<R: Resource>(
        &self,
        request: &Request,
        context: Context,
        id: &str,
        act: impl Fn(&mut Draft, &Context, Uuid) -> Result<(), Error> + Send + 'static,
    ) -> Result<Answer, Error> {
        let id = Uuid::try_parse(id).map_err(|_| R::not_found(id))?;
        let revision = request.revision()?;
        self.change(context, move |draft, context| {
            changeable::<R>(draft, context, id, "update", revision)?;
            act(draft, context, id)?;
            Ok(Answer::ok(json!({ R::NAME: object::<R>(draft, context, id) })))
        })
        .await
    }

    /// Makes a change and answers as the decision says; on a dry run, tells what it would be.
    pub(crate) async fn change(
        &self,
        context: Context,
        mut decide: impl FnMut(&mut Draft, &Context) -> Result<Answer, Error> + Send + 'static,
    ) -> Result<Answer, Error> {
        if context.dry_run {
            return dry_run::answer(self.store.clone(), context, decide).await;
        }
        Ok(self.store.change(move |draft| decide(draft, &context)).await?)
    }

    /// Connects a router, or disconnects it.
    async fn connect(
        &self,
        request: &Request,
        context: Context,
        id: &str,
        add: bool,
    ) -> Result<Answer, Error> {
        let id = Uuid::try_parse(id).map_err(|_| Routers::not_found(id))?;
        let (body, revision) = (request.json()?, request.revision()?);
        self.change(context, move |draft, context| {
            let router = changeable::<Routers>(draft, context, id, "update", revision)?;
            let act = if add { router::add_interface } else { router::remove_interface };
            act(draft, context, &router, &body).map(Answer::ok)
        })
        .await
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

impl From<Unread> for Error {
    fn from(unread: Unread) -> Self {
        let (status, kind, message) = match unread {
            Unread::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "HTTPRequestEntityTooLarge",
                "The body of the request is too large.",
            ),
            Unread::Late => (
                StatusCode::REQUEST_TIMEOUT,
                "HTTPRequestTimeout",
                "The body of the request did not come in time.",
            ),
            Unread::Broken => {
                (StatusCode::BAD_REQUEST, "HTTPBadRequest", "The body of the request cannot be read.")
            }
        };
        Error::new(status, kind, message)
    }
}

/// An object as it would be.
pub(crate) fn object<R: Resource>(draft: &Draft, context: &Context, id: Uuid) -> Option<Value> {
    let view = context.view(draft.model());
    R::get(draft, id).map(|object| shown::<R>(object, &view, &[]))
}

/// The object of an id, if who asks may change it and it is as it should be.
pub(crate) fn changeable<R: Resource>(
    draft: &Draft,
    context: &Context,
    id: Uuid,
    verb: &str,
    revision: Option<u64>,
) -> Result<Arc<R::Object>, Error> {
    let view = context.view(draft.model());
    let object = Arc::clone(find::<R>(&view, &id.to_string())?);
    let may = if verb == "delete" { R::may_delete } else { R::may_change };
    if !context.caller.is_member() || !may(&object, &view) {
        return Err(R::refusal(&object, &view, verb));
    }
    match revision {
        Some(number) if number != object.meta().revision => Err(Error::new(
            StatusCode::PRECONDITION_FAILED,
            "RevisionNumberConstraintFailed",
            format!("Constrained to {number}, but current revision is {}", object.meta().revision),
        )),
        _ => Ok(object),
    }
}

async fn serve(State(networking): State<Networking>, request: HttpRequest) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let request = Request::new(parts.method, parts.uri.path(), query, &parts.headers, networking.secure);
    let answer = networking.attend(request, body).await;
    let mut response = answer.map_or_else(Error::into_response, Answer::into_response);
    let id = format!("req-{}", Uuid::new_v4());
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-openstack-request-id", id);
    }
    response
}

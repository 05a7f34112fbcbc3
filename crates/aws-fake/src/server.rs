//! Answers requests.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::fake::Shared;
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::service::Service;
use crate::{Call, End, Fault, Logged, ec2, elb, form, identity, signature, xml};

/// Nobody sends more.
const LARGEST: usize = 8 * 1024 * 1024;

/// The connection is to be closed without an answer.
#[derive(Debug)]
struct Hush;

impl std::fmt::Display for Hush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed without an answer")
    }
}

impl std::error::Error for Hush {}

/// Serves until it is told to stop.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: Arc<Notify>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let stream = tokio::select! {
            () = stop.notified() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let service = service_fn(|request| answer(&shared, request));
            // Whoever goes away has no use for an answer.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(shared: &Shared, request: hyper::Request<Incoming>) -> Result<Response<Full<Bytes>>, Hush> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.map_err(|_| Hush)?.to_bytes();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let asked = Asked { method: head.method, target, headers: head.headers, body };
    let id = Uuid::new_v4();
    let (service, outcome) = asked.answer(shared).await?;
    let (status, text) = match outcome {
        Ok((action, content)) => (200, xml::answer(service, &action, &content, id)),
        Err(refusal) => (refusal.status, xml::refusal(service, &refusal, id)),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml;charset=UTF-8"));
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        headers.insert("x-amzn-requestid", id);
    }
    Ok(response)
}

struct Asked {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

type Answered = (Service, Result<(String, String), Refusal>);

impl Asked {
    async fn answer(&self, shared: &Shared) -> Result<Answered, Hush> {
        let (service, action, parameters) = match self.read() {
            Ok(read) => read,
            Err(refusal) => return Ok((Service::Ec2, Err(refusal))),
        };
        if shared.is_frozen() {
            return Err(Hush);
        }
        let mutating =
            !["Describe", "Get", "Simulate", "Assume"].iter().any(|start| action.starts_with(start));
        let key = signature::claimed_key(&self.headers);
        let call = Call { number: shared.next(), action: action.clone(), mutating, key, parameters };
        let fault = shared.fault(&call);
        let latency = match fault {
            Fault::Latency(latency) => shared.latency() + latency,
            _ => shared.latency(),
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
            if shared.is_frozen() {
                return Err(Hush);
            }
        }
        let mut machine = shared.machine();
        let outcome = match &fault {
            Fault::DropBefore => {
                machine.log.push(Logged { call, end: End::Lost });
                return Err(Hush);
            }
            Fault::Throttle => Err(Refusal::throttled(service)),
            Fault::InternalError => Err(Refusal::broken(service)),
            Fault::Error(code, status) => {
                Err(Refusal::new(code, "Somebody wanted it so").with_status(*status))
            }
            Fault::None | Fault::DropAfter | Fault::Latency(_) => self.act(&mut machine, service, &call),
        };
        let unheard = fault == Fault::DropAfter;
        let end = match &outcome {
            Ok(_) if unheard => End::DoneUnheard,
            Ok(_) => End::Done,
            Err(_) if unheard => End::Lost,
            Err(refusal) => End::Refused(refusal.code.clone()),
        };
        machine.log.push(Logged { call, end });
        drop(machine);
        if unheard { Err(Hush) } else { Ok((service, outcome.map(|content| (action, content)))) }
    }

    fn read(&self) -> Result<(Service, String, BTreeMap<String, String>), Refusal> {
        let malformed = |message: String| Refusal::new("MalformedQueryString", message).with_status(404);
        if self.method != Method::POST || self.target != "/" {
            return Err(malformed("Calls are POST requests for /".to_owned()));
        }
        let form = "application/x-www-form-urlencoded";
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with(form) {
            return Err(malformed(format!("The content is `{kind}`, and not `{form}`")));
        }
        let text = std::str::from_utf8(&self.body).map_err(|error| malformed(error.to_string()))?;
        let mut parameters = form::decode(text).map_err(malformed)?;
        let missing = |name| Refusal::new("MissingAction", format!("The request has no {name}"));
        let version = parameters.remove("Version").ok_or_else(|| missing("Version"))?;
        let action = parameters.remove("Action").ok_or_else(|| missing("Action"))?;
        let service = Service::of_version(&version).ok_or_else(|| invalid_action(&action))?;
        Ok((service, action, parameters))
    }

    fn act(&self, machine: &mut Machine, service: Service, call: &Call) -> Result<String, Refusal> {
        let config = machine.config.clone();
        let check = || {
            signature::check(service, &config.region, &self.target, &self.headers, &self.body, |key| {
                let known =
                    Some((config.credentials.clone(), None)).filter(|_| key == config.credentials.key);
                let session = || {
                    let (credentials, token) = machine.sessions.get(key)?;
                    Some((credentials.clone(), Some(token.clone())))
                };
                known.or_else(session)
            })
        };
        // Whoever has nothing but a token of somebody else cannot sign.
        if call.action != identity::UNSIGNED {
            check()?;
        }
        let now = machine.now();
        if let Some(limits) = &config.rate_limits {
            let usual = match (service, call.mutating) {
                (Service::Ec2, true) => limits.ec2_changes,
                (Service::Ec2, false) => limits.ec2_reads,
                (_, true) => limits.elb_changes,
                (_, false) => limits.elb_reads,
            };
            let limit = limits.own.get(&call.action).copied().unwrap_or(usual);
            let own = limits.own.contains_key(&call.action);
            let bucket = match (service, call.mutating) {
                (Service::Elb, _) if own => "registrations",
                (Service::Elb, true) => "changes",
                (Service::Elb, false) => "looks",
                _ => &call.action,
            };
            if !machine.buckets.take(bucket, limit, now) {
                return Err(Refusal::throttled(service));
            }
        }
        if machine.denied.contains(&call.action) {
            return Err(Refusal::denied(service, &call.action));
        }
        machine.settle();
        let request = Request::new(service, &call.parameters)?;
        let done = match service {
            Service::Ec2 => ec2::act(machine, &call.action, request),
            Service::Elb => elb::act(machine, &call.action, request),
            Service::Sts | Service::Iam => identity::act(machine, &call.action, request),
        };
        if call.mutating && done.is_ok() {
            machine.keep();
        }
        done
    }
}

/// Nobody knows that action.
pub(crate) fn invalid_action(action: &str) -> Refusal {
    Refusal::new("InvalidAction", format!("The action {action} is not valid for this web service."))
}

//! Calls of AWS's APIs: signed, limited, tried again where that helps.

mod credentials;
mod ec2;
mod elb;
mod endpoint;
mod error;
mod limits;
mod parameters;
mod xml;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tracing::debug;

use credentials::Kept;
pub use credentials::{CredentialsError, load};
pub(crate) use elb::{NewListener, NewLoadBalancer, NewSubnet, NewTargetGroup, TAGGED};
pub use endpoint::{Endpoint, Endpoints};
pub use error::{CallError, Cause};
pub use limits::{Limit, Limits};
pub(crate) use parameters::Parameters;
pub(crate) use xml::Element;

/// A client, to be shared: clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    credentials: Kept,
    endpoints: Endpoints,
    options: Options,
    calls: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

/// How calls are made.
#[derive(Debug)]
pub struct Options {
    /// How many are made in a second.
    pub limits: Limits,
    /// How often one is made at most.
    pub attempts: u32,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// How long the first pause between two attempts is at most; each further one is twice as long.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            limits: Limits::default(),
            attempts: 6,
            timeout: Duration::from_secs(30),
            pause: Duration::from_millis(500),
        }
    }
}

/// No answer of AWS is larger.
const LARGEST: usize = 64 * 1024 * 1024;

/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(20);

impl Client {
    /// A client with these credentials.
    pub fn new(credentials: SharedCredentialsProvider, endpoints: Endpoints, options: Options) -> Self {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(trusted())
            .https_or_http()
            .enable_http1()
            .build();
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        let credentials = Kept::new(credentials);
        Client(Arc::new(Inner { http, credentials, endpoints, options, calls: Mutex::default() }))
    }

    /// How many calls were made so far, by action and by how they ended: `ok`, or the cause.
    pub fn calls(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it calls.
    pub fn endpoints(&self) -> &Endpoints {
        &self.0.endpoints
    }

    /// Calls an action until it succeeds, or trying again makes no sense.
    pub(crate) async fn call(
        &self,
        endpoint: &Endpoint,
        action: &'static str,
        parameters: &Parameters,
    ) -> Result<Element, CallError> {
        let body = parameters.encode(action, endpoint.version);
        let options = &self.0.options;
        let mut attempt = 1;
        loop {
            options.limits.turn(endpoint, action).await;
            let start = Instant::now();
            let sent = tokio::time::timeout(options.timeout, self.send(endpoint, action, &body)).await;
            let outcome = sent.unwrap_or_else(|_| {
                let message = format!("no answer within {} s", options.timeout.as_secs());
                Err(CallError::unavailable(action, message))
            });
            self.count(action, outcome.as_ref().err());
            let error = match outcome {
                Ok(answer) => {
                    debug!(action, attempt, took = ?start.elapsed(), "called AWS");
                    return Ok(answer);
                }
                Err(error) => error,
            };
            debug!(action, attempt, took = ?start.elapsed(), %error, "AWS did not do it");
            // Those that AWS does not take may have been renewed since.
            let is_renewed = error.cause == Cause::Credentials
                && error.code.is_some()
                && attempt == 1
                && self.0.credentials.forget().await;
            let may_pass = is_renewed || matches!(error.cause, Cause::Throttled | Cause::Unavailable);
            if !may_pass || attempt >= options.attempts {
                return Err(error);
            }
            let pause = pause(options.pause, attempt, dice());
            if error.cause == Cause::Throttled {
                options.limits.pause(endpoint, action, Instant::now() + pause);
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    fn count(&self, action: &'static str, error: Option<&CallError>) {
        let end = match error.map(|error| error.cause) {
            None => "ok",
            Some(Cause::Throttled) => "throttled",
            Some(Cause::Unavailable) => "unavailable",
            Some(Cause::Denied) => "denied",
            Some(Cause::Credentials) => "credentials",
            Some(Cause::NotFound) => "not found",
            Some(Cause::Exists) => "exists",
            Some(Cause::InUse) => "in use",
            Some(Cause::Limit) => "limit",
            Some(Cause::Invalid) => "invalid",
        };
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry((action, end)).or_default() += 1;
    }

    /// Calls once.
    async fn send(
        &self,
        endpoint: &Endpoint,
        action: &'static str,
        body: &str,
    ) -> Result<Element, CallError> {
        let request = self.request(endpoint, action, body).await?;
        let unavailable = |what: String| CallError::unavailable(action, what);
        let answer =
            self.0.http.request(request).await.map_err(|error| {
                unavailable(format!("{} cannot be reached: {}", endpoint.url, chain(&error)))
            })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| unavailable(format!("the answer broke off: {error}")))?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        let parsed = Element::parse(&text);
        if status == StatusCode::OK {
            return parsed.map_err(|error| unavailable(format!("the answer makes no sense: {error}")));
        }
        Err(refusal(action, status, parsed.ok().as_ref(), &text))
    }

    async fn request(
        &self,
        endpoint: &Endpoint,
        action: &'static str,
        body: &str,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
        let credentials = self.0.credentials.get().await.map_err(|error| CallError {
            cause: credentials::cause(&error),
            ..CallError::unavailable(action, format!("there are no credentials: {}", chain(&error)))
        })?;
        let identity = credentials.into();
        let broken = |error: &dyn std::error::Error| CallError {
            cause: Cause::Invalid,
            ..CallError::unavailable(action, format!("it cannot be signed: {error}"))
        };
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&endpoint.signing_region)
            .name(&endpoint.signing_name)
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| broken(&error))?
            .into();
        let host = endpoint.host();
        let mut headers = vec![("host", host.as_str()), ("content-type", FORM)];
        headers.extend(endpoint.headers.iter().map(|(name, value)| (*name, value.as_str())));
        let payload = SignableBody::Bytes(body.as_bytes());
        let signable = SignableRequest::new("POST", &endpoint.url, headers.iter().copied(), payload)
            .map_err(|error| broken(&error))?;
        let (instructions, _) = sign(signable, &parameters).map_err(|error| broken(&error))?.into_parts();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&endpoint.url)
            .header("user-agent", concat!("portcullis/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(|error| broken(&error))?;
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|error| broken(&error))?;
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }

    /// All pages of a list. `read` gives what is on a page, and the mark with which the next one is asked for.
    pub(crate) async fn pages<T>(
        &self,
        endpoint: &Endpoint,
        action: &'static str,
        parameters: Parameters,
        asked: &str,
        read: impl Fn(&Element) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, CallError> {
        let (mut all, mut mark) = (Vec::new(), None::<String>);
        loop {
            let answer =
                self.call(endpoint, action, &parameters.clone().set_some(asked, mark.as_ref())).await?;
            let (page, next) = read(&answer);
            all.extend(page);
            if next.is_some() && next == mark {
                return Err(CallError::unavailable(action, "a list has the same page again and again"));
            }
            match next {
                Some(next) => mark = Some(next),
                None => return Ok(all),
            }
        }
    }
}

/// TLS to whom this machine trusts.
fn trusted() -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    // What cannot be read is not trusted; who needs it hears of it when connecting.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}

/// Why AWS refused, by what it wrote.
fn refusal(action: &'static str, status: StatusCode, answer: Option<&Element>, text: &str) -> CallError {
    let error = answer.and_then(|answer| match answer.child("Errors") {
        Some(errors) => errors.child("Error"),
        None => answer.child("Error"),
    });
    let code = error.and_then(|error| error.optional("Code"));
    let message = error.and_then(|error| error.optional("Message")).unwrap_or_else(|| {
        let start: String = text.chars().filter(|character| !character.is_control()).take(200).collect();
        format!("{status} {start}").trim_end().to_owned()
    });
    let request_id =
        answer.and_then(|answer| answer.optional("RequestId").or_else(|| answer.optional("RequestID")));
    let cause = error::cause(code.as_deref().unwrap_or_default(), status.as_u16());
    CallError { action, cause, code, message, request_id }
}

/// How long to wait after an attempt, from the first on: somewhere up to twice as long each time, by `dice` from 0 to 1, so
/// that those who were refused together do not come back together.
fn pause(first: Duration, attempt: u32, dice: f64) -> Duration {
    let longest = first.saturating_mul(2_u32.pow(attempt.clamp(1, 11) - 1)).min(LONGEST);
    longest.mul_f64(0.3 + 0.7 * dice)
}

/// Anything from 0 to 1.
fn dice() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness all pauses are the shortest, which is no harm.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_spread() {
        let first = Duration::from_millis(500);
        for (attempt, longest) in [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 20.0), (1000, 20.0)] {
            let [least, middle, most] = [0.0, 0.5, 1.0].map(|dice| pause(first, attempt, dice).as_secs_f64());
            assert!((least - 0.3 * longest).abs() < 1e-6, "{attempt}: {least}");
            assert!((middle - 0.65 * longest).abs() < 1e-6, "{attempt}: {middle}");
            assert!((most - longest).abs() < 1e-6, "{attempt}: {most}");
        }
    }

    #[test]
    fn dice_fall_everywhere() {
        let thrown: Vec<f64> = (0..1000).map(|_| dice()).collect();
        assert!(thrown.iter().all(|dice| (0.0..=1.0).contains(dice)));
        for tenth in (0..10_u8).map(|tenth| f64::from(tenth) / 10.0) {
            assert!(thrown.iter().any(|dice| (tenth..tenth + 0.1).contains(dice)), "none from {tenth} on");
        }
    }
}

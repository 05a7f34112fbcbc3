//! Identity from an existing Keystone: it is asked about every token, and its answers are believed for a while.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::cache::Cache;
use super::client::HttpClient;
use super::directory::SettingsError;
use super::secret::Secret;
use super::settings::KeystoneSettings;
use crate::caller::Caller;
use crate::error::Error;
use crate::server::Authenticate;
use crate::time;

/// For how long a token that Keystone does not know is not asked about again.
const REFUSED: Duration = Duration::from_secs(5);
/// For how long it is not tried again to log in.
const PAUSE: Duration = Duration::from_secs(1);
/// How many tokens are remembered.
const MOST: usize = 10_000;
/// No token is longer.
const LONGEST: usize = 8 << 10;

/// See the module. Cloned, it is the same.
#[derive(Clone, Debug)]
pub struct Keystone {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    http: HttpClient,
    settings: KeystoneSettings,
    password: Secret,
    known: Cache<Arc<Caller>>,
    /// Apart from the others: who makes tokens up cannot push them out.
    refused: Cache<()>,
    own: Mutex<Own>,
}

/// The token by which we ask.
#[derive(Debug, Default)]
struct Own {
    token: Option<Secret>,
    /// When and why there was none, for those that waited meanwhile.
    failed: Option<(Instant, Error)>,
}

impl Keystone {
    /// Checks the settings. Keystone is asked when there is a token.
    pub fn new(settings: KeystoneSettings) -> Result<Self, SettingsError> {
        if settings.url.is_empty() {
            return Err(SettingsError::new(
                "url",
                "set it to Keystone's address, such as https://host:5000/v3",
            ));
        }
        let url = settings.url.trim_end_matches('/').trim_end_matches("/v3").to_owned() + "/v3";
        let http = HttpClient::new(&url, settings.ca_file.as_deref(), settings.timeout.as_duration())?;
        let password = password(&settings)?;
        let (known, refused) = (Cache::new(MOST), Cache::new(MOST));
        let own = Mutex::default();
        Ok(Keystone { inner: Arc::new(Inner { http, settings, password, known, refused, own }) })
    }

    /// Whether who is on the way to it can read passwords and tokens.
    pub fn is_exposed(&self) -> bool {
        self.inner.http.is_exposed()
    }

    async fn find(&self, token: &str) -> Result<Arc<Caller>, Error> {
        let now = Instant::now();
        if let Some(caller) = self.inner.known.get(token, now) {
            return Ok(caller);
        }
        if token.len() > LONGEST || self.inner.refused.get(token, now).is_some() {
            return Err(Error::unauthorized());
        }
        let Ok(mut subject) = HeaderValue::from_str(token) else { return Err(Error::unauthorized()) };
        subject.set_sensitive(true);
        let Some((caller, remaining)) = self.validate(&subject).await? else {
            self.inner.refused.put(token, (), now + REFUSED, now);
            return Err(Error::unauthorized());
        };
        let caller = Arc::new(caller);
        let until = now + remaining.min(self.inner.settings.cache.as_duration());
        self.inner.known.put(token, Arc::clone(&caller), until, now);
        Ok(caller)
    }

    /// Whose token it is, and for how much longer it is valid; none, if it is not.
    async fn validate(&self, subject: &HeaderValue) -> Result<Option<(Caller, Duration)>, Error> {
        let mut own = self.own_token(None).await?;
        let mut renewed = false;
        loop {
            let request = Request::get("/auth/tokens?nocatalog")
                .header("x-auth-token", own.reveal())
                .header("x-subject-token", subject)
                .body(Body::empty())
                .map_err(|error| unavailable(&error))?;
            let (status, _, body) = self.inner.http.send(request).await.map_err(|why| unavailable(&why))?;
            match status {
                StatusCode::OK => {
                    let answer: Answer =
                        serde_json::from_slice(&body).map_err(|error| unavailable(&error))?;
                    return Ok(answer.token.caller());
                }
                StatusCode::NOT_FOUND => return Ok(None),
                StatusCode::UNAUTHORIZED if !renewed => {
                    own = self.own_token(Some(&own)).await?;
                    renewed = true;
                }
                StatusCode::FORBIDDEN => {
                    let KeystoneSettings { user, project, .. } = &self.inner.settings;
                    return Err(unavailable(&format!(
                        "it does not let the user {user} look at tokens: give it the role service in project {project}"
                    )));
                }
                status => return Err(unavailable(&format!("it answered {status}"))),
            }
        }
    }

    /// Our own token; another one than that which is not valid any more.
    async fn own_token(&self, ended: Option<&Secret>) -> Result<Secret, Error> {
        let mut own = self.inner.own.lock().await;
        if let Some(token) = own.token.as_ref().filter(|token| Some(*token) != ended) {
            return Ok(token.clone());
        }
        if let Some((when, error)) = &own.failed
            && when.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        *own = Own::default();
        match self.log_in().await {
            Ok(token) => {
                info!(user = self.inner.settings.user, "logged in to Keystone");
                own.token = Some(token.clone());
                Ok(token)
            }
            Err(error) => {
                own.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn log_in(&self) -> Result<Secret, Error> {
        let settings = &self.inner.settings;
        let user = json!({
            "name": settings.user, "domain": {"name": settings.user_domain}, "password": self.inner.password.reveal(),
        });
        let scope =
            json!({"project": {"name": settings.project, "domain": {"name": settings.project_domain}}});
        let identity = json!({"methods": ["password"], "password": {"user": user}});
        let body = json!({"auth": {"identity": identity, "scope": scope}}).to_string();
        let request = Request::post("/auth/tokens?nocatalog")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| unavailable(&error))?;
        let (status, headers, _) = self.inner.http.send(request).await.map_err(|why| unavailable(&why))?;
        match (status, headers.get("x-subject-token").and_then(|token| token.to_str().ok())) {
            (StatusCode::CREATED, Some(token)) => Ok(Secret::new(token)),
            (StatusCode::UNAUTHORIZED, _) => Err(unavailable(&format!(
                "it does not let the user {} of domain {} log in to project {}: check name and password",
                settings.user, settings.user_domain, settings.project
            ))),
            (status, _) => Err(unavailable(&format!("it answered {status}"))),
        }
    }
}

impl Authenticate for Keystone {
    fn caller<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Caller>, Error>> + Send + 'a>> {
        Box::pin(self.find(token))
    }
}

/// Who cannot be asked has allowed nothing.
fn unavailable(why: &dyn std::fmt::Display) -> Error {
    warn!(%why, "Keystone cannot say whose a token is");
    let message = format!("Tokens cannot be checked now, since Keystone cannot be asked: {why}.");
    Error::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
}

fn password(settings: &KeystoneSettings) -> Result<Secret, SettingsError> {
    match (&settings.password, &settings.password_file) {
        (Some(password), None) => Ok(password.clone()),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                SettingsError::new("passwordFile", format!("cannot read {}: {error}", file.display()))
            })?;
            Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
        }
        (None, None) => {
            Err(SettingsError::new("password", "set it, or passwordFile, to the password of the user"))
        }
        (Some(_), Some(_)) => {
            Err(SettingsError::new("password", "both it and passwordFile are set: keep one"))
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    token: Shown,
}

/// What Keystone says about a token.
#[derive(Deserialize)]
struct Shown {
    user: Named,
    #[serde(default)]
    project: Option<Named>,
    #[serde(default)]
    roles: Vec<Role>,
    expires_at: String,
}

#[derive(Deserialize)]
struct Named {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Role {
    name: String,
}

impl Shown {
    /// Who it is, if its token is still valid by our clock.
    fn caller(self) -> Option<(Caller, Duration)> {
        let remaining = time::read(&self.expires_at)? - time::now();
        let remaining = u64::try_from(remaining).ok().filter(|seconds| *seconds > 0)?;
        // A role in a domain, or in the whole system, is none in a project.
        let roles = if self.project.is_some() { self.roles } else { Vec::new() };
        let (project, project_name) =
            self.project.map(|project| (project.id, project.name)).unwrap_or_default();
        let roles = roles.into_iter().map(|role| role.name).collect();
        Some((Caller { user: self.user.id, project, project_name, roles }, Duration::from_secs(remaining)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &serde_json::Value) -> Option<(Caller, Duration)> {
        serde_json::from_value::<Shown>(text.clone()).unwrap().caller()
    }

    #[test]
    fn roles_count_in_a_project_only() {
        let mut token = json!({
            "user": {"id": "u", "name": "ann"}, "project": {"id": "p", "name": "demo"},
            "roles": [{"id": "1", "name": "admin"}], "expires_at": "2999-01-01T00:00:00.000000Z",
        });
        let (caller, _) = shown(&token).unwrap();
        assert!(caller.is_admin() && caller.project == "p");
        token["project"] = json!(null);
        token["system"] = json!({"all": true});
        let (caller, _) = shown(&token).unwrap();
        assert!(!caller.is_reader());
        token["expires_at"] = json!("2001-01-01T00:00:00.000000Z");
        assert_eq!(shown(&token), None);
    }

    #[test]
    fn settings_that_cannot_be_are_said() {
        let good = KeystoneSettings {
            url: "http://[::1]:5000".into(),
            password: Some(Secret::new("x")),
            ..KeystoneSettings::default()
        };
        assert!(!Keystone::new(good.clone()).unwrap().is_exposed());
        let elsewhere = KeystoneSettings { url: "http://192.0.2.1:5000".into(), ..good.clone() };
        assert!(Keystone::new(elsewhere).unwrap().is_exposed());
        for (settings, at) in [
            (KeystoneSettings { url: String::new(), ..good.clone() }, "url"),
            (KeystoneSettings { url: "keystone:5000".into(), ..good.clone() }, "url"),
            (KeystoneSettings { password: None, ..good.clone() }, "password"),
            (KeystoneSettings { password_file: Some("/nowhere".into()), ..good.clone() }, "password"),
            (
                KeystoneSettings { password: None, password_file: Some("/nowhere".into()), ..good.clone() },
                "passwordFile",
            ),
            (
                KeystoneSettings {
                    url: "https://x".into(),
                    ca_file: Some("/nowhere".into()),
                    ..good.clone()
                },
                "caFile",
            ),
            (
                KeystoneSettings { url: "http://x".into(), ca_file: Some("/nowhere".into()), ..good.clone() },
                "caFile",
            ),
            (KeystoneSettings { url: "http://ann:hunter2@x:5000/v3".into(), ..good.clone() }, "url"),
            (KeystoneSettings { url: "ann:hunter2@x".into(), ..good }, "url"),
        ] {
            let error = Keystone::new(settings).unwrap_err();
            assert_eq!(error.at, at);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}

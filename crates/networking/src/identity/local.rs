//! Identity of our own: who logs in gets a token that every server on the same database can check.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use portcullis_ovn::objects::{Meta, RevokedToken, SigningKey};
use portcullis_ovn::{Model, Rejected, Store, StoreError};
use tokio::sync::Semaphore;
use tracing::{info, warn};
use uuid::Uuid;

use super::directory::{Directory, Project, Role, SettingsError, User};
use super::failure::Failure;
use super::password::{PasswordHash, random};
use super::secret::Secret;
use super::settings::Settings;
use super::token::{Claims, Method, Signer, Token};
use crate::caller::Caller;
use crate::error::Error;
use crate::server::Authenticate;
use crate::time;

/// The row of the key: one per database. Without it, a new one is made, and all tokens end.
const KEY: Uuid = Uuid::from_u128(0x706f_7274_6375_6c6c_6973_7369_676e_6b79);
/// A key in a file has as many characters at least.
const SHORTEST_KEY: usize = 32;
/// How many checks of passwords may wait for their turn. More would only wait longer than their clients do.
const LONGEST_QUEUE: usize = 64;
/// How much is logged of a name that nobody has.
const LONGEST_NAME: usize = 255;

/// See the module. Cloned, it is the same.
#[derive(Clone, Debug)]
pub struct Local {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    settings: Settings,
    directory: Directory,
    /// From a file, if there is one. The one in the database is looked up each time: who deletes it ends all tokens.
    signer: Option<Signer>,
    /// A check of a password takes a core and megabytes: no more of them than half the cores, so that who has a token
    /// is answered meanwhile.
    checks: Arc<Semaphore>,
    /// For those that are checked, and those that wait for it.
    queue: Arc<Semaphore>,
}

/// Somebody with a valid token.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) claims: Claims,
    pub(super) user: Arc<User>,
    /// What the token is for, and what the user is there.
    pub(super) project: Option<Arc<Project>>,
    pub(super) roles: Vec<Arc<Role>>,
}

impl Session {
    pub(super) fn has(&self, role: &str) -> bool {
        self.roles.iter().any(|known| known.name.eq_ignore_ascii_case(role))
    }

    /// May do everything.
    pub(super) fn is_admin(&self) -> bool {
        self.has("admin")
    }
}

/// How somebody says which user it is.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Id(String),
    /// The id of the domain, and the name in it.
    Name(String, String),
}

impl fmt::Display for Who {
    /// With escapes, and not all of what is longer than any name: it is what somebody sent who is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(LONGEST_NAME).collect::<String>();
        match self {
            Who::Id(id) => write!(f, "{:?}", short(id)),
            Who::Name(domain, name) => write!(f, "{:?} of domain {:?}", short(name), short(domain)),
        }
    }
}

impl Local {
    /// Checks the settings. The store may still be closed: until it is open, nobody can log in.
    pub fn new(store: Store, settings: Settings) -> Result<Self, SettingsError> {
        let directory = Directory::new(&settings)?;
        if settings.token_lifetime.as_seconds() == 0 {
            return Err(SettingsError::new("tokenLifetime", "tokens that expire at once are of no use"));
        }
        let signer = settings.token_key_file.as_deref().map(key_from_file).transpose()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = (cores / 2).max(1);
        let (checks, queue) = (Semaphore::new(most), Semaphore::new(most + LONGEST_QUEUE));
        let (checks, queue) = (Arc::new(checks), Arc::new(queue));
        Ok(Local { inner: Arc::new(Inner { store, settings, directory, signer, checks, queue }) })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.inner.directory
    }

    pub(super) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The objects, if they were ever seen.
    pub(super) fn model(&self) -> Result<Arc<Model>, Failure> {
        if self.inner.store.is_open() {
            return Ok(self.inner.store.model());
        }
        let why = self.inner.store.state().err();
        let why = why.unwrap_or_else(|| "it is being looked at".into()).to_string();
        Err(StoreError::Unavailable(why).into())
    }

    /// The user, if the password is its own. It takes as long if there is no such user.
    pub(super) async fn log_in(&self, who: &Who, password: &Secret) -> Result<Arc<User>, Failure> {
        let (directory, model) = (&self.inner.directory, self.model()?);
        let user = match who {
            Who::Id(id) => directory.user(&model, id),
            Who::Name(domain, name) => directory.user_named(&model, domain, name),
        };
        let own = user.as_ref().and_then(|user| user.password.clone());
        let (password, local) = (password.clone(), self.clone());
        let matches = self.work(move || {
            let mut matches = false;
            for hash in local.inner.directory.hashes(&model, own.as_ref()) {
                matches |= hash.matches(password.reveal()) && own.as_ref() == Some(&hash);
            }
            matches
        });
        let matches = matches.await?;
        match user {
            Some(user) if matches && user.enabled => Ok(user),
            _ => {
                warn!(user = %who, "somebody tried to log in with a wrong name or password");
                Err(Failure::unauthorized())
            }
        }
    }

    /// The hash of a new password.
    pub(super) async fn hash(&self, password: &Secret) -> Result<PasswordHash, Failure> {
        let password = password.clone();
        self.work(move || PasswordHash::of(password.reveal())).await
    }

    /// Does something that takes a core, beside those that answer requests.
    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        let stopping = || Failure::unavailable("The server is stopping.");
        let place = Arc::clone(&self.inner.queue).try_acquire_owned().map_err(|_| {
            Failure::unavailable("Too many want to have a password checked at the same time: try again.")
        })?;
        let permit = Arc::clone(&self.inner.checks).acquire_owned().await.map_err(|_| stopping())?;
        // Both end with the work, which goes on even if who asked has gone.
        let work = move || {
            let _both = (permit, place);
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| stopping())
    }

    /// A token for a user that showed who it is: for a project, or for none.
    pub(super) async fn issue(
        &self,
        user: Arc<User>,
        project: Option<Arc<Project>>,
        before: Option<&Claims>,
    ) -> Result<(Token, Session), Failure> {
        let roles = project.as_ref().map(|project| user.roles_in(&project.id)).unwrap_or_default();
        let issued = time::now();
        let mut claims = Claims {
            id: Claims::new_id(),
            chain: None,
            user: user.id.clone(),
            project: project.as_ref().map(|project| project.id.clone()),
            methods: vec![Method::Password],
            issued,
            expires: issued + self.inner.settings.token_lifetime.as_seconds(),
            password: user.fingerprint.clone(),
        };
        if let Some(before) = before {
            // A token from a token lives no longer: it would otherwise be a way to live for ever.
            claims.expires = before.expires;
            claims.chain = Some(before.chain.clone().unwrap_or_else(|| before.id.clone()));
            claims.methods.clone_from(&before.methods);
            if !claims.methods.contains(&Method::Token) {
                claims.methods.push(Method::Token);
            }
        }
        let signer = match &self.inner.signer {
            Some(signer) => signer.clone(),
            None => self.key().await?,
        };
        Ok((signer.sign(&claims), Session { claims, user, project, roles }))
    }

    /// Who has a token, if it is valid now.
    pub(super) fn session(&self, token: &str) -> Result<Session, Failure> {
        let model = self.model()?;
        let signer = self.inner.signer.clone().or_else(|| stored_key(&model));
        let signer = signer.ok_or_else(Failure::unauthorized)?;
        let claims = signer.read(token, time::now()).ok_or_else(Failure::unauthorized)?;
        self.accept(&model, claims).ok_or_else(Failure::unauthorized)
    }

    /// Whether what a token says still holds.
    fn accept(&self, model: &Model, claims: Claims) -> Option<Session> {
        // Who revokes a token, as one that was stolen, means those too that were made from it.
        let first = claims.chain.as_deref().map(revocation);
        let ended = |row: Uuid| {
            // A row that cannot be read may well say so.
            model.get::<RevokedToken>(row).is_some() || model.unreadable.contains_key(&row)
        };
        if ended(revocation(&claims.id)) || first.is_some_and(ended) {
            return None;
        }
        let user = self.inner.directory.user(model, &claims.user)?;
        if !user.enabled || user.fingerprint != claims.password {
            return None;
        }
        let Some(id) = &claims.project else {
            return Some(Session { claims, user, project: None, roles: Vec::new() });
        };
        let project = self.inner.directory.project(model, id).filter(|project| project.enabled)?;
        let roles = user.roles_in(id);
        (!roles.is_empty()).then_some(Session { claims, user, project: Some(project), roles })
    }

    /// Ends a token, on all servers.
    pub(super) async fn revoke(&self, claims: &Claims) -> Result<(), Failure> {
        let revoked = RevokedToken {
            meta: Meta { id: revocation(&claims.id), created: time::now(), ..Meta::default() },
            expires: claims.expires,
        };
        self.inner
            .store
            .change(move |draft| {
                let now = time::now();
                let expired: Vec<Uuid> = draft
                    .all::<RevokedToken>(None)
                    .filter(|token| token.expires <= now)
                    .map(|token| token.meta.id)
                    .collect();
                for id in expired {
                    draft.remove::<RevokedToken>(id);
                }
                draft.put(revoked.clone());
                Ok::<(), Failure>(())
            })
            .await?;
        Ok(())
    }

    /// The key in the database. The first who needs one puts it there.
    async fn key(&self) -> Result<Signer, Failure> {
        if let Some(signer) = stored_key(&*self.model()?) {
            return Ok(signer);
        }
        let secret = BASE64_STANDARD.encode(random::<32>());
        let made = self
            .inner
            .store
            .change(move |draft| {
                if let Some(signer) = stored_key(draft.model()) {
                    return Ok::<Signer, Failure>(signer);
                }
                let meta = Meta { id: KEY, created: time::now(), ..Meta::default() };
                draft.put(SigningKey { meta, secret: secret.clone() });
                Ok(Signer::new(secret.as_bytes()))
            })
            .await;
        match made {
            Ok(signer) => {
                info!("a new key for signing tokens is in the northbound database");
                Ok(signer)
            }
            Err(Rejected::Store(StoreError::ReadOnly)) => Err(Failure::unavailable(
                "There is no key to sign tokens with, and this server may not write one (mode: observe): \
                 set identity.local.tokenKeyFile.",
            )),
            Err(rejected) => Err(rejected.into()),
        }
    }
}

impl Authenticate for Local {
    fn caller<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Caller>, Error>> + Send + 'a>> {
        let caller = self.session(token).map(|session| Arc::new(caller(session))).map_err(Error::from);
        Box::pin(std::future::ready(caller))
    }
}

fn caller(session: Session) -> Caller {
    let (project, project_name) =
        session.project.map(|project| (project.id.clone(), project.name.clone())).unwrap_or_default();
    Caller {
        user: session.claims.user,
        project,
        project_name,
        roles: session.roles.iter().map(|role| role.name.clone()).collect(),
    }
}

fn stored_key(model: &Model) -> Option<Signer> {
    let key = model.get::<SigningKey>(KEY).filter(|key| !key.secret.is_empty())?;
    Some(Signer::new(key.secret.as_bytes()))
}

/// The row that says that a token is revoked.
fn revocation(token: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("portcullis:revoked:{token}").as_bytes())
}

fn key_from_file(path: &std::path::Path) -> Result<Signer, SettingsError> {
    let wrong = |what: String| SettingsError::new("tokenKeyFile", what);
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("cannot read {}: {error}", path.display())))?;
    let secret = text.trim();
    if secret.len() < SHORTEST_KEY {
        return Err(wrong(format!(
            "{} has {} characters; a key has at least {SHORTEST_KEY}. Make one with: openssl rand -base64 32",
            path.display(),
            secret.len()
        )));
    }
    Ok(Signer::new(secret.as_bytes()))
}

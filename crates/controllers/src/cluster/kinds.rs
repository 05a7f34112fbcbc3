//! Kinds that are named in objects: each is looked up, and watched from then on.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kube::core::ApiResource;
use kube::{Client, discovery};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::shelf::Shelf;
use super::thing::Thing;

/// Kinds of which the same is read.
pub(super) struct Kinds<S, T> {
    client: Client,
    namespace: Option<String>,
    found: Arc<Mutex<Found<S, T>>>,
    /// Who keeps them up to date, until this is dropped.
    watching: std::sync::Mutex<JoinSet<()>>,
    tell: Arc<Tell<S, T>>,
}

/// Hears of every object that changed, with its group and kind.
type Tell<S, T> = dyn Fn(&str, &str, &Thing<S, T>) + Send + Sync;

struct Found<S, T> {
    shelves: HashMap<(String, String), Arc<Shelf<S, T>>>,
    /// What was not there, and when it may be looked up again.
    missing: HashMap<(String, String), (Lack, Instant)>,
}

/// Why objects of a kind are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The kind is not installed: there are none.
    NoKind(String),
    /// There may be some, and nobody here can see them.
    Unseen(String),
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::NoKind(why) | Self::Unseen(why)) = self;
        f.pad(why)
    }
}

impl Lack {
    /// Nothing, if there can be none. Who cannot see what there may be must not act as if there were nothing.
    pub(super) fn none<T>(found: Result<T, Self>) -> Result<Option<T>, String> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Self::NoKind(_)) => Ok(None),
            Err(Self::Unseen(why)) => Err(why),
        }
    }
}

/// For who can do nothing without them.
impl From<Lack> for String {
    fn from(lack: Lack) -> Self {
        lack.to_string()
    }
}

/// A kind that is not there is not looked up more often than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// One that was there, and is not any more by the version it was found by, is looked for sooner: everybody knows of it.
const SOON: Duration = Duration::from_secs(1);

impl<S, T> Kinds<S, T>
where
    S: Default + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: Default + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    pub(super) fn new(
        client: Client,
        namespace: Option<&str>,
        tell: impl Fn(&str, &str, &Thing<S, T>) + Send + Sync + 'static,
    ) -> Self {
        let found = Found { shelves: HashMap::new(), missing: HashMap::new() };
        Kinds {
            client,
            namespace: namespace.map(str::to_owned),
            found: Arc::new(Mutex::new(found)),
            watching: std::sync::Mutex::default(),
            tell: Arc::new(tell),
        }
    }

    /// The objects of a kind, once all are known; why not, if they cannot be.
    pub(super) async fn shelf(&self, group: &str, kind: &str) -> Result<Arc<Shelf<S, T>>, Lack> {
        let key = (group.to_owned(), kind.to_owned());
        let shelf = {
            let mut found = self.found.lock().await;
            if let Some(shelf) = found.shelves.get(&key) {
                Arc::clone(shelf)
            } else {
                if let Some((why, until)) = found.missing.get(&key)
                    && *until > Instant::now()
                {
                    return Err(why.clone());
                }
                match look_up(&self.client, group, kind).await {
                    Ok(resource) => {
                        let shelf = Arc::new(Shelf::new(resource, self.namespace.clone()));
                        found.missing.remove(&key);
                        found.shelves.insert(key, Arc::clone(&shelf));
                        self.start(Arc::clone(&shelf), group, kind);
                        shelf
                    }
                    Err(why) => {
                        found.missing.insert(key, (why.clone(), Instant::now() + PATIENCE));
                        return Err(why);
                    }
                }
            }
        };
        let unseen = |why| Lack::Unseen(format!("{kind} of {group} cannot be watched: {why}"));
        shelf.first_look().await.map_err(unseen)?;
        Ok(shelf)
    }

    /// All kinds that were named so far, once all of their objects are known. What somebody named and nobody here may see does not
    /// stand in the way of all others: whoever named it is told.
    pub(super) async fn known(&self) -> Result<Vec<Arc<Shelf<S, T>>>, Lack> {
        let found = self.found.lock().await;
        let shelves: Vec<_> = found.shelves.values().filter(|shelf| !shelf.is_unseen()).cloned().collect();
        match shelves.iter().find(|shelf| !shelf.is_known()) {
            Some(shelf) => Err(Lack::Unseen(format!("{} cannot be watched", shelf.resource().kind))),
            None => Ok(shelves),
        }
    }

    /// Keeps a kind up to date. An upgrade of what brought it may take away the version that it was found by: it is looked up again
    /// then, and whoever asks for it has the new one.
    fn start(&self, mut shelf: Arc<Shelf<S, T>>, group: &str, kind: &str) {
        let (client, tell, found) = (self.client.clone(), Arc::clone(&self.tell), Arc::clone(&self.found));
        let key = (group.to_owned(), kind.to_owned());
        let watching = async move {
            let (group, kind) = &key;
            loop {
                shelf.watch_while_served(client.clone(), |object| tell(group, kind, object)).await;
                match look_up(&client, group, kind).await {
                    Ok(resource) if resource != *shelf.resource() => {
                        info!(group, kind, version = resource.version, "the API has it by another version");
                        shelf = Arc::new(shelf.under(resource));
                        found.lock().await.shelves.insert(key.clone(), Arc::clone(&shelf));
                    }
                    // The API itself takes a moment to say so.
                    Ok(_) => sleep(SOON).await,
                    Err(_) => sleep(PATIENCE).await,
                }
            }
        };
        self.watching.lock().unwrap_or_else(PoisonError::into_inner).spawn(watching);
    }
}

/// What the API calls a kind, in the most stable version that it has.
async fn look_up(client: &Client, group: &str, kind: &str) -> Result<ApiResource, Lack> {
    let not_there =
        || Lack::NoKind(format!("there is no kind {kind} in the group {group}: install what brings it"));
    let found = match discovery::group(client, group).await {
        Ok(found) => found,
        Err(kube::Error::Discovery(_)) => return Err(not_there()),
        Err(error) => {
            return Err(Lack::Unseen(format!("{kind} of {group} cannot be looked up: {error}")));
        }
    };
    // A group may have several versions, and not every kind in each of them.
    let mut all = found.resources_by_stability().into_iter();
    let (resource, _) = all.find(|(resource, _)| resource.kind == kind).ok_or_else(not_there)?;
    Ok(resource)
}

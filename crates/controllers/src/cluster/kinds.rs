//! Kinds that are named in objects: each is looked up, and watched from then on.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, discovery};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::shelf::Shelf;
use super::thing::Thing;

/// Kinds of which the same is read.
pub(super) struct Kinds<S, T> {
    client: Client,
    namespace: Option<String>,
    found: Mutex<Found<S, T>>,
    tell: Arc<Tell<S, T>>,
}

/// Hears of every object that changed, with its group and kind.
type Tell<S, T> = dyn Fn(&str, &str, &Thing<S, T>) + Send + Sync;

struct Found<S, T> {
    shelves: HashMap<(String, String), Arc<Shelf<S, T>>>,
    /// What was not there, and when it may be looked up again.
    missing: HashMap<(String, String), (Lack, Instant)>,
    watching: JoinSet<()>,
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
        let found = Found { shelves: HashMap::new(), missing: HashMap::new(), watching: JoinSet::new() };
        Kinds {
            client,
            namespace: namespace.map(str::to_owned),
            found: Mutex::new(found),
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
                match self.look_up(group, kind).await {
                    Ok(shelf) => {
                        let shelf = Arc::new(shelf);
                        let (client, tell, watched) =
                            (self.client.clone(), Arc::clone(&self.tell), Arc::clone(&shelf));
                        let (group, kind) = key.clone();
                        found.watching.spawn(async move {
                            watched.watch(client, |object| tell(&group, &kind, object)).await;
                        });
                        found.missing.remove(&key);
                        found.shelves.insert(key, Arc::clone(&shelf));
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

    async fn look_up(&self, group: &str, kind: &str) -> Result<Shelf<S, T>, Lack> {
        let not_there =
            || Lack::NoKind(format!("there is no kind {kind} in the group {group}: install what brings it"));
        let found = match discovery::group(&self.client, group).await {
            Ok(found) => found,
            Err(kube::Error::Discovery(_)) => return Err(not_there()),
            Err(error) => {
                return Err(Lack::Unseen(format!("{kind} of {group} cannot be looked up: {error}")));
            }
        };
        // A group may have several versions, and not every kind in each of them.
        let mut all = found.resources_by_stability().into_iter();
        let (resource, _) = all.find(|(resource, _)| resource.kind == kind).ok_or_else(not_there)?;
        Ok(Shelf::new(resource, self.namespace.clone()))
    }
}

//! Whether endpoints answer. They are asked beside everything else, so that nobody waits for one that does not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_kube_api::cluster::Endpoint;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::queue::Queue;
use super::shelf::Key;

/// What endpoints said when they were asked.
pub(super) struct Probes {
    every: Option<Duration>,
    known: Arc<Mutex<HashMap<Key, Known>>>,
    queue: Arc<Queue>,
}

#[derive(Clone, Debug)]
struct Known {
    endpoint: Endpoint,
    answer: Option<Result<(), String>>,
    asked: Instant,
    is_asking: bool,
}

/// An answer takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(3);

impl Probes {
    pub(super) fn new(every: Option<Duration>, queue: Arc<Queue>) -> Self {
        Probes { every, known: Arc::default(), queue }
    }

    /// What an endpoint said last, and when it is to be asked about again. It is asked beside this if that is long ago, and whoever
    /// it belongs to is looked at again when it said something else.
    pub(super) fn ask(
        &self,
        key: &Key,
        endpoint: &Endpoint,
    ) -> (Option<Result<(), String>>, Option<Duration>) {
        let Some(every) = self.every else { return (None, None) };
        let mut known = lock(&self.known);
        let now = Instant::now();
        let found = known.entry(key.clone()).or_insert_with(|| Known {
            endpoint: endpoint.clone(),
            answer: None,
            asked: now,
            is_asking: false,
        });
        if found.endpoint != *endpoint {
            *found = Known { endpoint: endpoint.clone(), answer: None, asked: now, is_asking: false };
        }
        // One that does not answer is likely to soon.
        let pause =
            if matches!(found.answer, Some(Ok(()))) { every } else { every.min(Duration::from_secs(2)) };
        let is_due = found.answer.is_none() || now.duration_since(found.asked) >= pause;
        if is_due && !found.is_asking {
            (found.is_asking, found.asked) = (true, now);
            let (all, queue, key, endpoint) =
                (Arc::clone(&self.known), Arc::clone(&self.queue), key.clone(), endpoint.clone());
            tokio::spawn(async move {
                let answer = connect(&endpoint).await;
                let mut all = lock(&all);
                let Some(found) = all.get_mut(&key).filter(|found| found.endpoint == endpoint) else {
                    return;
                };
                let is_new = found.answer.as_ref().map(Result::is_ok) != Some(answer.is_ok());
                (found.answer, found.is_asking) = (Some(answer), false);
                drop(all);
                if is_new {
                    queue.add(key);
                }
            });
        }
        (found.answer.clone(), Some(pause))
    }

    /// It is not asked about any more.
    pub(super) fn forget(&self, key: &Key) {
        lock(&self.known).remove(key);
    }
}

async fn connect(endpoint: &Endpoint) -> Result<(), String> {
    let host = endpoint.host.trim_matches(['[', ']']);
    match timeout(PATIENCE, TcpStream::connect((host, endpoint.port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer for {} s", PATIENCE.as_secs())),
    }
}

fn lock(known: &Mutex<HashMap<Key, Known>>) -> MutexGuard<'_, HashMap<Key, Known>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

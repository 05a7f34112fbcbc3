//! What has to be looked at, and when. One is looked at once at a time, several at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::shelf::Key;
use crate::pause::pause;

/// A queue of what has to be looked at.
pub(crate) struct Queue {
    due: Mutex<Due>,
    woken: Notify,
    /// What these are, for people.
    what: &'static str,
    /// How long is waited after a failure, at first and at most.
    backoff: (Duration, Duration),
}

/// What has to be looked at, by name and in the order of its time: most of it waits, and is not looked through for what does not.
#[derive(Default)]
struct Due {
    times: BTreeMap<Key, Instant>,
    order: BTreeSet<(Instant, Key)>,
}

impl Due {
    /// At this time at the latest.
    fn add(&mut self, key: Key, at: Instant) {
        if let Some(before) = self.times.get(&key) {
            if *before <= at {
                return;
            }
            self.order.remove(&(*before, key.clone()));
        }
        self.order.insert((at, key.clone()));
        self.times.insert(key, at);
    }

    /// Takes what is next and is its time, of those that are not in hand; or says when that is.
    fn next(&mut self, now: Instant, in_hand: &BTreeSet<Key>) -> Result<Key, Option<Instant>> {
        let free = self.order.iter().find(|(_, key)| !in_hand.contains(key)).cloned();
        match free {
            Some((at, key)) if at <= now => {
                self.times.remove(&key);
                self.order.remove(&(at, key.clone()));
                Ok(key)
            }
            later => Err(later.map(|(at, _)| at)),
        }
    }
}

/// So many failures in a row are nothing to warn of: whoever lost against somebody else sees next what they wrote.
const QUIET: u32 = 3;

impl Queue {
    pub(crate) fn new(what: &'static str, backoff: (Duration, Duration)) -> Self {
        Queue { due: Mutex::default(), woken: Notify::new(), what, backoff }
    }

    /// It is looked at as soon as possible.
    pub(crate) fn add(&self, key: Key) {
        self.add_in(key, Duration::ZERO);
    }

    /// It is looked at in this time, unless something has it looked at before.
    pub(crate) fn add_in(&self, key: Key, time: Duration) {
        self.due().add(key, Instant::now() + time);
        self.woken.notify_one();
    }

    /// Looks at what is due by `work`, so many at a time, until it is dropped. `work` says when it has to be done again, if
    /// nothing happens before; what failed is done again, later each time.
    pub(crate) async fn run<F, W>(&self, concurrency: usize, work: W)
    where
        W: Fn(Key) -> F,
        F: Future<Output = Result<Option<Duration>, String>>,
    {
        let mut failures: BTreeMap<Key, u32> = BTreeMap::new();
        let mut running: BTreeSet<Key> = BTreeSet::new();
        let mut work_in_hand = FuturesUnordered::new();
        loop {
            let next = loop {
                if running.len() >= concurrency {
                    break None;
                }
                // Nothing is locked while it is begun, which may add to the queue.
                let due = self.due().next(Instant::now(), &running);
                match due {
                    Ok(key) => {
                        running.insert(key.clone());
                        let job = Box::pin(work(key.clone()));
                        work_in_hand.push(async move { (key, job.await) });
                    }
                    Err(next) => break next,
                }
            };
            let later = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((key, done)) = work_in_hand.next() => {
                    running.remove(&key);
                    if let Some(time) = self.again(&key, done, &mut failures) {
                        self.add_in(key, time);
                    }
                }
                () = self.woken.notified() => {}
                () = later => {}
            }
        }
    }

    /// When it has to be looked at again.
    fn again(
        &self,
        key: &Key,
        done: Result<Option<Duration>, String>,
        failures: &mut BTreeMap<Key, u32>,
    ) -> Option<Duration> {
        let problem = match done {
            Ok(again) => {
                failures.remove(key);
                return again;
            }
            Err(problem) => problem,
        };
        let count = failures.entry(key.clone()).or_default();
        *count += 1;
        let (namespace, name) = key;
        if *count > QUIET {
            warn!(
                what = self.what,
                namespace, name, problem, "it could not be looked after; it is tried again"
            );
        } else {
            info!(what = self.what, namespace, name, problem, "it is looked after again");
        }
        Some(pause(self.backoff, *count))
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn queue() -> Arc<Queue> {
        Arc::new(Queue::new("a thing", (Duration::from_secs(1), Duration::from_secs(60))))
    }

    fn key(name: &str) -> Key {
        ("a".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn each_once_at_a_time_and_again_when_it_was_asked_for_meanwhile() {
        let queue = queue();
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        for name in ["a", "b", "c", "a"] {
            queue.add(key(name));
        }
        let running = queue.run(2, |(_, name)| {
            let (queue, now, most, done) = (&queue, &now, &most, &done);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                if name == "a" && done.lock().unwrap().is_empty() {
                    queue.add(key("a"));
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                let mut done = done.lock().unwrap();
                done.push(name.clone());
                Ok((name == "c" && done.len() < 5).then_some(Duration::from_secs(60)))
            }
        });
        let _ = tokio::time::timeout(Duration::from_secs(100), running).await;
        assert_eq!(most.load(Ordering::Relaxed), 2);
        let mut seen = done.lock().unwrap().clone();
        assert_eq!(seen.pop().as_deref(), Some("c"), "after its time");
        seen.sort_unstable();
        assert_eq!(seen, ["a", "a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_done_again_later_each_time() {
        let queue = queue();
        let (start, tries) = (Instant::now(), Mutex::new(Vec::new()));
        queue.add(key("a"));
        let running = queue.run(2, |_| {
            let tries = &tries;
            async move {
                let mut tries = tries.lock().unwrap();
                tries.push(start.elapsed().as_secs());
                // Once it goes well, and then the waiting starts anew.
                if tries.len() == 4 { Ok(Some(Duration::ZERO)) } else { Err("no".to_owned()) }
            }
        });
        let _ = tokio::time::timeout(Duration::from_secs(12), running).await;
        assert_eq!(*tries.lock().unwrap(), [0, 1, 3, 7, 7, 8, 10]);
    }
}

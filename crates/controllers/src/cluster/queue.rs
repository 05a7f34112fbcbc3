//! What has to be looked at, and when. One is looked at once at a time, several at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// A queue of what has to be looked at.
pub(crate) struct Queue<K> {
    due: Mutex<BTreeMap<K, Instant>>,
    woken: Notify,
}

impl<K: Ord + Clone> Queue<K> {
    pub(crate) fn new() -> Self {
        Queue { due: Mutex::default(), woken: Notify::new() }
    }

    /// It is looked at as soon as possible.
    pub(crate) fn add(&self, key: K) {
        self.add_in(key, Duration::ZERO);
    }

    /// It is looked at in this time, unless something has it looked at before.
    pub(crate) fn add_in(&self, key: K, time: Duration) {
        let at = Instant::now() + time;
        let mut due = self.due();
        let found = due.entry(key).or_insert(at);
        *found = (*found).min(at);
        drop(due);
        self.woken.notify_one();
    }

    /// Looks at what is due by `work`, so many at a time, until it is dropped. `work` says when it has to be done again, if
    /// nothing happens before.
    pub(crate) async fn run<F, W>(&self, concurrency: usize, work: W)
    where
        W: Fn(K) -> F,
        F: Future<Output = Option<Duration>>,
    {
        let mut running: BTreeSet<K> = BTreeSet::new();
        let mut work_in_hand = FuturesUnordered::new();
        loop {
            let next = {
                let (mut due, now) = (self.due(), Instant::now());
                let mut waiting: Vec<(Instant, K)> = due
                    .iter()
                    .filter(|(key, _)| !running.contains(*key))
                    .map(|(key, at)| (*at, key.clone()))
                    .collect();
                waiting.sort_unstable();
                let room = concurrency.saturating_sub(running.len());
                let start: Vec<K> = waiting
                    .iter()
                    .take_while(|(at, _)| *at <= now)
                    .take(room)
                    .map(|(_, key)| key.clone())
                    .collect();
                for key in start {
                    due.remove(&key);
                    running.insert(key.clone());
                    let job = work(key.clone());
                    work_in_hand.push(async move { (key, job.await) });
                }
                let is_full = running.len() >= concurrency;
                waiting.into_iter().map(|(at, _)| at).find(|at| *at > now).filter(|_| !is_full)
            };
            let later = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((key, again)) = work_in_hand.next() => {
                    running.remove(&key);
                    if let Some(time) = again {
                        self.add_in(key, time);
                    }
                }
                () = self.woken.notified() => {}
                () = later => {}
            }
        }
    }

    fn due(&self) -> MutexGuard<'_, BTreeMap<K, Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn each_once_at_a_time_and_again_when_it_was_asked_for_meanwhile() {
        let queue = Arc::new(Queue::new());
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        for key in ["a", "b", "c", "a"] {
            queue.add(key);
        }
        let running = queue.run(2, |key| {
            let (queue, now, most, done) = (&queue, &now, &most, &done);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                if key == "a" && done.lock().unwrap().is_empty() {
                    queue.add("a");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                done.lock().unwrap().push(key);
                (key == "c" && done.lock().unwrap().len() < 5).then_some(Duration::from_secs(60))
            }
        });
        let _ = tokio::time::timeout(Duration::from_secs(100), running).await;
        assert_eq!(most.load(Ordering::Relaxed), 2);
        let mut seen = done.lock().unwrap().clone();
        assert_eq!(seen.pop(), Some("c"), "after its time");
        seen.sort_unstable();
        assert_eq!(seen, ["a", "a", "b", "c"]);
    }
}

//! Whether endpoints answer. They are asked beside everything else, so that nobody waits for one that does not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_kube_api::cluster::Endpoint;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::queue::Queue;
use super::shelf::Key;

/// What endpoints said when they were asked.
pub(super) struct Probes {
    every: Option<Duration>,
    known: Mutex<HashMap<Key, Asked>>,
    queue: Arc<Queue>,
}

/// An endpoint that is asked again and again, until this is dropped.
struct Asked {
    endpoint: Endpoint,
    answer: Arc<Mutex<Option<Answer>>>,
    asking: JoinHandle<()>,
}

type Answer = Result<(), String>;

impl Drop for Asked {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

/// An answer takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(3);

/// A load balancer that has nobody to send to takes a connection, and closes it within this time.
const CLOSED: Duration = Duration::from_millis(200);

/// One that does not answer is likely to soon.
const SILENT: Duration = Duration::from_secs(2);

impl Probes {
    pub(super) fn new(every: Option<Duration>, queue: Arc<Queue>) -> Self {
        Probes { every, known: Mutex::default(), queue }
    }

    /// What an endpoint said last. It is asked from now on, and whoever it belongs to is looked at when it says something else.
    pub(super) fn answer(&self, key: &Key, endpoint: &Endpoint) -> Option<Answer> {
        let every = self.every?;
        let mut known = lock(&self.known);
        if let Some(asked) = known.get(key).filter(|asked| asked.endpoint == *endpoint) {
            return lock(&asked.answer).clone();
        }
        let answer = Arc::default();
        let asking = tokio::spawn(ask(
            every,
            endpoint.clone(),
            Arc::clone(&answer),
            Arc::clone(&self.queue),
            key.clone(),
        ));
        known.insert(key.clone(), Asked { endpoint: endpoint.clone(), answer, asking });
        None
    }

    /// It is not asked any more.
    pub(super) fn forget(&self, key: &Key) {
        lock(&self.known).remove(key);
    }
}

async fn ask(
    every: Duration,
    endpoint: Endpoint,
    known: Arc<Mutex<Option<Answer>>>,
    queue: Arc<Queue>,
    key: Key,
) {
    loop {
        let answer = connect(&endpoint).await;
        let pause = if answer.is_ok() { every } else { every.min(SILENT) };
        let before = lock(&known).replace(answer.clone());
        if before.as_ref() != Some(&answer) {
            queue.add(key.clone());
        }
        sleep(pause).await;
    }
}

async fn connect(endpoint: &Endpoint) -> Result<(), String> {
    let host = endpoint.host.trim_matches(['[', ']']);
    let mut stream = match timeout(PATIENCE, TcpStream::connect((host, endpoint.port))).await {
        Ok(connected) => connected.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("no answer for {} s", PATIENCE.as_secs())),
    };
    // Who waits for our first word is there, and who speaks first is.
    match timeout(CLOSED, stream.read(&mut [0; 1])).await {
        Ok(Ok(0) | Err(_)) => Err(
            "the connection is closed at once, as one is that nobody serves or whose source is not allowed"
                .to_owned(),
        ),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn until(probes: &Probes, key: &Key, endpoint: &Endpoint, is: impl Fn(&Answer) -> bool) {
        timeout(Duration::from_secs(20), async {
            while !probes.answer(key, endpoint).is_some_and(|answer| is(&answer)) {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn what_an_endpoint_says_is_known_until_it_says_something_else() {
        let queue = Arc::new(Queue::new("a thing", (PATIENCE, PATIENCE)));
        let (woken, mut told) = tokio::sync::mpsc::unbounded_channel();
        let also = Arc::clone(&queue);
        tokio::spawn(async move {
            also.run(1, |key| std::future::ready(woken.send(key).map(|()| None).map_err(|_| String::new())))
                .await;
        });
        let probes = Probes::new(Some(Duration::from_millis(20)), queue);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port };
        let key = ("a".to_owned(), "lb".to_owned());
        assert_eq!(probes.answer(&key, &endpoint), None, "nobody waits for it");
        until(&probes, &key, &endpoint, Result::is_ok).await;
        // It is asked again, and nothing is looked at for an answer that is known.
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(listener.accept().await.unwrap());
        }
        assert_eq!(told.recv().await, Some(key.clone()));
        assert!(told.try_recv().is_err());
        drop((listener, open));
        let closes = |answer: &Answer| answer.as_ref().is_err_and(|why| why.contains("closed at once"));
        until(&probes, &key, &endpoint, |answer| answer.is_err() && !closes(answer)).await;
        assert_eq!(told.recv().await, Some(key.clone()));
        // One that takes connections and closes them has nobody behind it.
        while told.try_recv().is_ok() {}
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let closing = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                drop(connection);
            }
        });
        until(&probes, &key, &endpoint, closes).await;
        assert_eq!(told.recv().await, Some(key.clone()));
        closing.abort();
        // Another endpoint is asked anew, and what was said of the first one counts no more.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = Endpoint { port: listener.local_addr().unwrap().port(), ..endpoint };
        assert_eq!(probes.answer(&key, &other), None);
        until(&probes, &key, &other, Result::is_ok).await;
        probes.forget(&key);
        assert_eq!(probes.answer(&key, &other), None);
    }
}

//! A client of Kubernetes whose program is killed at one of its writes.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service};

const LOOK: Duration = Duration::from_millis(50);
const AFTERWARDS: Duration = Duration::from_secs(3);
/// Much longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which write is the last, and whether it is still sent. Events are no writes here: nothing depends on them.
#[derive(Clone)]
pub(crate) struct Killing {
    write: usize,
    sent: bool,
    written: Arc<AtomicUsize>,
    dead: Arc<Notify>,
}

impl Killing {
    pub(crate) fn at(write: usize, sent: bool) -> Self {
        Killing { write, sent, written: Arc::default(), dead: Arc::default() }
    }

    /// A client that never hears anything again after that.
    pub(crate) fn client(&self, config: kube::Config) -> kube::Client {
        ClientBuilder::try_from(config).unwrap().with_layer(self).build()
    }

    /// Waits until it is so, or `is_done` and there is no such write: whether it died.
    pub(crate) async fn died_before(&self, is_done: impl Fn() -> bool) -> bool {
        let is_asked_for = || self.written.load(Ordering::Relaxed) >= self.write;
        let start = Instant::now();
        while !is_asked_for() && !is_done() {
            assert!(start.elapsed() < PATIENCE, "it neither writes nor is done");
            sleep(LOOK).await;
        }
        // What it still writes when all is as it should be.
        let done = Instant::now();
        while !is_asked_for() && done.elapsed() < AFTERWARDS {
            sleep(LOOK).await;
        }
        let died = is_asked_for();
        if died {
            timeout(PATIENCE, self.dead.notified()).await.unwrap();
        }
        died
    }
}

impl<S> Layer<S> for Killing {
    type Service = Killed<S>;

    fn layer(&self, inner: S) -> Killed<S> {
        Killed { inner, killing: self.clone() }
    }
}

pub(crate) struct Killed<S> {
    inner: S,
    killing: Killing,
}

impl<S, B> Service<Request<Body>> for Killed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
    B: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_write = request.method() != Method::GET && !request.uri().path().ends_with("/events");
        let Killing { write, sent, written, dead } = self.killing.clone();
        let number = if is_write { written.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        if number < write {
            return Box::pin(self.inner.call(request));
        }
        let last = (number == write && sent).then(|| self.inner.call(request));
        Box::pin(async move {
            if let Some(last) = last {
                let _ = last.await;
            }
            dead.notify_one();
            let never: Infallible = pending().await;
            match never {}
        })
    }
}

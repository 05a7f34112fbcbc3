//! A client of Kubernetes whose program is killed at one of its writes.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use tokio::sync::Notify;
use tower::{Layer, Service};

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

    /// Waits until it is so.
    pub(crate) async fn died(&self) {
        self.dead.notified().await;
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

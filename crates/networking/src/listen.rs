//! Serves an API on an address, plain or with TLS, to many clients, some of them slow and some of them hostile.

mod body;
mod certificate;
mod timely;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

pub(crate) use body::{Unread, discard, read};
pub use certificate::CertificateFiles;
use certificate::Watcher;
use timely::Timely;

/// Why an API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}: {source}")]
    Address { address: SocketAddr, source: io::Error },
    /// It says which file, and what is wrong with it.
    #[error("{0}")]
    Certificate(String),
}

/// For how long clients are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Until TLS is agreed on.
    pub handshake: Duration,
    /// Until the next request has its headers; it is also for how long a connection is kept without any.
    pub headers: Duration,
    /// Until the body of a request is here.
    pub body: Duration,
    /// Until the client takes what it was sent.
    pub taking: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Patience { handshake: seconds(10), headers: seconds(60), body: seconds(30), taking: seconds(60) }
    }
}

/// How many clients are served at the same time, unless somebody says otherwise.
pub const MOST: usize = 4096;
/// How often it is said that there are as many.
const SAID: Duration = Duration::from_secs(60);
/// How often the files of a certificate are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be accepted, as when there are too many.
const BREATHER: Duration = Duration::from_millis(100);

/// An address on which clients can already connect; they are answered once it serves.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<(TlsAcceptor, Watcher)>,
    patience: Patience,
    most: usize,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    /// Takes the address. With a certificate, clients have to speak TLS.
    pub async fn bind(address: SocketAddr, tls: Option<CertificateFiles>) -> Result<Self, ListenError> {
        let tls = match tls {
            None => None,
            Some(files) => {
                let watcher = Watcher::new(files).map_err(ListenError::Certificate)?;
                Some((watcher.acceptor().map_err(ListenError::Certificate)?, watcher))
            }
        };
        let cannot = |source| ListenError::Address { address, source };
        let socket = TcpListener::bind(address).await.map_err(cannot)?;
        let address = socket.local_addr().map_err(cannot)?;
        Ok(Listener { socket, address, tls, patience: Patience::default(), most: MOST })
    }

    /// With other limits for slow clients.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Listener { patience, ..self }
    }

    /// For no more than so many clients at the same time; the others wait to be accepted.
    #[must_use]
    pub fn with_most(self, most: usize) -> Self {
        Listener { most, ..self }
    }

    /// Where it is: with the port that was chosen, if any was fine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether clients come by HTTPS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Answers until `stop` is done; then accepts no more, closes idle connections and ends when the last request has
    /// its answer. How long that may take is up to the caller: dropped, it closes all connections.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()> + Send) {
        let Listener { socket, address, tls, patience, most } = self;
        let (acceptor, mut watcher) = tls.unzip();
        let (stopping, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let places = Arc::new(Semaphore::new(most));
        let mut said: Option<Instant> = None;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = accept(&socket, &places) => match accepted {
                    Ok((stream, place)) => {
                        let client = Client { router: router.clone(), patience, stopped: stopped.clone() };
                        let acceptor = acceptor.clone();
                        connections.spawn(async move {
                            client.attend(stream, acceptor).await;
                            drop(place);
                        });
                        if places.available_permits() == 0 && said.is_none_or(|when| when.elapsed() > SAID) {
                            warn!(listen = %address, most, "no more connections are taken until some end");
                            said = Some(Instant::now());
                        }
                    }
                    Err(error) => {
                        // Most are about the one connection that was to be accepted. When files run out, none can be
                        // until some are closed.
                        warn!(%error, "cannot accept a connection");
                        sleep(BREATHER).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                _ = looks.tick(), if watcher.is_some() => watcher.iter_mut().for_each(Watcher::look),
            }
        }
        drop((socket, stopping));
        while connections.join_next().await.is_some() {}
    }
}

/// A connection, once there is a place for it. Those that wait hold none of our files and no memory.
async fn accept(
    socket: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((socket.accept().await?.0, place))
}

/// What a connection is answered by.
struct Client {
    router: Router,
    patience: Patience,
    /// Ends when no more requests are to be taken.
    stopped: watch::Receiver<()>,
}

impl Client {
    async fn attend(self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        // Answers are written in one piece: waiting for more of them only delays them.
        let prepared = stream.set_nodelay(true).and_then(|()| {
            let socket = SockRef::from(&stream);
            socket.set_tcp_user_timeout(Some(self.patience.taking))
        });
        if let Err(error) = prepared {
            debug!(%error, "a connection was gone before it began");
            return;
        }
        let Some(acceptor) = acceptor else { return self.converse(TokioIo::new(stream)).await };
        match timeout(self.patience.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.converse(TokioIo::new(stream)).await,
            Ok(Err(error)) => debug!(%error, "a client and we did not agree on TLS"),
            Err(_) => debug!("a client took too long to agree on TLS"),
        }
    }

    async fn converse(mut self, stream: impl Read + Write + Unpin) {
        let (router, patience) = (TowerToHyperService::new(self.router), self.patience.body);
        let service = service_fn(move |request: Request<Incoming>| {
            router.call(request.map(|body| Body::new(Timely::new(body, patience))))
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.patience.headers);
        let mut connection = pin!(http.serve_connection(stream, service));
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            _ = self.stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            debug!(%error, "a connection ended early");
        }
    }
}

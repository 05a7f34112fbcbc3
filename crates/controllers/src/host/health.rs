//! Answers on the ports by which load balancers before a node find out whether it has an endpoint of a Service.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_host::Machine;
use portcullis_host::claims::Name;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

/// For how long somebody may take to ask, and how much they may say.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: usize = 4096;

/// As many are answered at the same time, for each Service.
const AT_ONCE: usize = 32;

/// How long is waited before a port is tried again that somebody else has.
const AGAIN: Duration = Duration::from_secs(10);

/// All ports that are answered on.
#[derive(Debug)]
pub(super) struct Health {
    machine: Machine,
    answering: HashMap<Name, Answering>,
}

#[derive(Debug)]
struct Answering {
    port: u16,
    ready: Arc<AtomicUsize>,
    /// None while somebody else listens there.
    task: Option<JoinHandle<()>>,
    tried: Instant,
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Health {
    /// On this machine.
    pub(super) fn new(machine: Machine) -> Self {
        Health { machine, answering: HashMap::new() }
    }

    /// So many endpoints of a Service are ready on this node, which is told on this port.
    pub(super) async fn set(&mut self, name: &Name, port: Option<u16>, ready: usize) {
        let Some(port) = port else {
            self.answering.remove(name);
            return;
        };
        if let Some(there) = self.answering.get(name).filter(|there| there.port == port) {
            there.ready.store(ready, Ordering::Relaxed);
            return;
        }
        // One that is gone frees its port.
        self.answering.remove(name);
        let ready = Arc::new(AtomicUsize::new(ready));
        let task = start(&self.machine, name, port, &ready).await;
        self.answering.insert(Arc::clone(name), Answering { port, ready, task, tried: Instant::now() });
    }

    /// Tries again where somebody else had the port: a kube-proxy answers there as well as we do.
    pub(super) async fn retry(&mut self) {
        for (name, answering) in &mut self.answering {
            if answering.task.is_none() && answering.tried.elapsed() >= AGAIN {
                answering.tried = Instant::now();
                answering.task = start(&self.machine, name, answering.port, &answering.ready).await;
            }
        }
    }
}

async fn start(
    machine: &Machine,
    name: &Name,
    port: u16,
    ready: &Arc<AtomicUsize>,
) -> Option<JoinHandle<()>> {
    let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let every_v4 = SocketAddr::from(([0, 0, 0, 0], port));
    let bound = match machine.listen(every).await {
        // A machine without IPv6.
        Err(error) if error.raw_os_error() == Some(97) => machine.listen(every_v4).await,
        bound => bound,
    };
    let listener = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    match listener {
        Ok(listener) => Some(tokio::spawn(answer_all(listener, Arc::clone(name), Arc::clone(ready)))),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            debug!(service = %name, port, "somebody else answers health checks there");
            None
        }
        Err(problem) => {
            warn!(service = %name, port, %problem, "health checks cannot be answered there");
            None
        }
    }
}

async fn answer_all(listener: TcpListener, name: Name, ready: Arc<AtomicUsize>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (name, ready) = (Arc::clone(&name), ready.load(Ordering::Relaxed));
        tokio::spawn(async move {
            let _ = timeout(PATIENCE, answer(stream, &name, ready)).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, name: &str, ready: usize) -> std::io::Result<()> {
    let mut asked = Vec::new();
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") && asked.len() < LONGEST {
        if stream.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(response(name, ready).as_bytes()).await?;
    stream.shutdown().await
}

/// In the words of Kubernetes' own proxy.
fn response(name: &str, ready: usize) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or_default();
    let body = json!({
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": ready,
        "serviceProxyHealthy": true,
    });
    let status = if ready > 0 { "200 OK" } else { "503 Service Unavailable" };
    let body = format!("{body}\n");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nX-Load-Balancing-Endpoint-Weight: {ready}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_an_endpoint_is_here() {
        let healthy = response("shop/web", 2);
        assert!(healthy.starts_with("HTTP/1.1 200 OK\r\n"), "{healthy}");
        assert!(
            healthy.contains(r#""localEndpoints":2"#) && healthy.contains(r#""name":"web""#),
            "{healthy}"
        );
        assert!(response("shop/web", 0).starts_with("HTTP/1.1 503 "));
    }
}

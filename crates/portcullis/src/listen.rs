//! Taking an address to serve on.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::config::{ListenAddress, Loaded};
use crate::exit::{Exit, Failure};

/// Listens on an address of the configuration; `key` is where it stands there.
pub(crate) async fn bind(
    loaded: &Loaded,
    key: &[&str],
    address: ListenAddress,
) -> Result<TcpListener, Failure> {
    TcpListener::bind(address.0).await.map_err(|error| cannot_listen(loaded, key, address.0, &error))
}

/// Why an address cannot be had, and what to do about it.
pub(crate) fn cannot_listen(
    loaded: &Loaded,
    key: &[&str],
    address: SocketAddr,
    error: &io::Error,
) -> Failure {
    let name = key.join(".");
    let origin = match loaded.origin(key) {
        Some(at) => format!("{name}, {at}"),
        None => format!("{name}, the default"),
    };
    let other = format!("or choose another address: --set {name}=127.0.0.1:0 takes any free port.");
    let (problem, advice) = match error.kind() {
        ErrorKind::AddrInUse => (
            "the port is in use by another program".to_owned(),
            format!("Stop that program (`ss -ltnp 'sport = :{}'` names it), {other}", address.port()),
        ),
        ErrorKind::AddrNotAvailable => (
            "this machine does not have that address".to_owned(),
            format!("Use one of those that `ip address` shows, {other}"),
        ),
        ErrorKind::PermissionDenied => (
            "this user may not use that port".to_owned(),
            format!("Ports below 1024 need the capability CAP_NET_BIND_SERVICE: grant it, {other}"),
        ),
        _ => (error.to_string(), format!("Mend that, {other}")),
    };
    Failure::new(Exit::Lacking, format!("cannot listen on {address} ({origin}): {problem}"))
        .note("Nothing was started.")
        .note(advice)
}

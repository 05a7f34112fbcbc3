//! Asks an HTTP server. Each request has a connection of its own: there are few, and none can be stale.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::directory::SettingsError;

/// Where systems keep the authorities that they trust: Debian and its like, Red Hat and its like.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// The largest answer that is read, in bytes.
const LARGEST: usize = 1 << 20;

/// See the module.
pub(super) struct HttpClient {
    host: String,
    port: u16,
    /// What requests name the server by.
    authority: String,
    /// What all addresses begin with.
    path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    patience: Duration,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client of the server at an address, whose certificate has to be signed by an authority in the file.
    pub(super) fn new(url: &str, ca_file: Option<&Path>, patience: Duration) -> Result<Self, SettingsError> {
        // What is before an @ may be a password: it is not repeated.
        let shown = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
        let wrong = |what: &str| SettingsError::new("url", format!("{shown} cannot be used: {what}"));
        let address: Uri =
            url.parse().map_err(|_| wrong("it is not an address such as https://host:5000/v3"))?;
        let secure = match address.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("it begins neither with https:// nor with http://")),
        };
        let authority = address.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a name and a password do not stand in it: use user and password"));
        }
        if !secure && ca_file.is_some() {
            let what = "it is of no use with an http:// url, on which nothing is encrypted: use https://";
            return Err(SettingsError::new("caFile", what));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong("its host has no valid name"))?;
            Some((connector(ca_file)?, name))
        } else {
            None
        };
        Ok(HttpClient {
            host,
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.to_string(),
            path: address.path().trim_end_matches('/').to_owned(),
            tls,
            patience,
        })
    }

    /// Whether who is on the way to the server can read what is sent.
    pub(super) fn is_exposed(&self) -> bool {
        let here = |address: IpAddr| address.to_canonical().is_loopback();
        self.tls.is_none() && self.host != "localhost" && !self.host.parse().is_ok_and(here)
    }

    /// What the server answers to a request with a path below the client's, or why it does not.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<(StatusCode, axum::http::HeaderMap, Bytes), String> {
        let below = format!("{}{}", self.path, request.uri());
        *request.uri_mut() = below.parse().map_err(|_| format!("{below} is no address"))?;
        let host = self.authority.parse().map_err(|_| format!("{} is no host", self.authority))?;
        request.headers_mut().insert(header::HOST, host);
        let exchange = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port))
                .await
                .map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            match &self.tls {
                None => exchange(TokioIo::new(stream), request).await,
                Some((connector, name)) => {
                    let stream =
                        connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
                    exchange(TokioIo::new(stream), request).await
                }
            }
        };
        match timeout(self.patience, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", self.patience.as_secs())),
        }
    }
}

async fn exchange(
    stream: impl Read + Write + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<(StatusCode, axum::http::HeaderMap, Bytes), String> {
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
    let ask = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (parts, body) = response.into_parts();
        let body = to_bytes(Body::new(body), LARGEST).await.map_err(|error| error.to_string())?;
        Ok((parts.status, parts.headers, body))
    };
    let mut ask = std::pin::pin!(ask);
    tokio::select! {
        answer = &mut ask => answer,
        // The server may close the connection behind its answer, which is then still to be had.
        _ = connection => ask.await,
    }
}

fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, SettingsError> {
    let wrong = |what: String| SettingsError::new("caFile", what);
    let file: PathBuf =
        match ca_file {
            Some(file) => file.to_owned(),
            None => TRUSTED.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
                wrong(format!("this system has no {}: name a file", TRUSTED.join(", nor ")))
            })?,
        };
    let certificates = CertificateDer::pem_file_iter(&file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(format!("cannot use {}: {error}", file.display())))?;
    let mut roots = RootCertStore::empty();
    // A system's file may have some that are of no use any more.
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(wrong(format!("cannot use {}: there is no certificate in it", file.display())));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be used: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

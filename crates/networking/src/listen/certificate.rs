//! The certificate of a server, which is read again when its files change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tracing::{error, info};

/// A certificate and its key, as files in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFiles {
    /// The server's certificate, and those that lead to the authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What clients are shown.
#[derive(Debug)]
struct Certificate {
    files: CertificateFiles,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn read(files: &CertificateFiles) -> Result<CertifiedKey, String> {
    let cannot =
        |path: &Path, error: &dyn std::fmt::Display| format!("cannot use {}: {error}", path.display());
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| cannot(&files.certificate, &error))?;
    if chain.is_empty() {
        return Err(cannot(&files.certificate, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| cannot(&files.key, &error))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| {
        format!("cannot use {} with {}: {error}", files.certificate.display(), files.key.display())
    })
}

/// What tells a file from the one that was there before it: where it is, when it was written, how long it is.
type Stamp = [Option<(u64, i64, i64, u64)>; 2];

fn stamp(files: &CertificateFiles) -> Stamp {
    [&files.certificate, &files.key].map(|path| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
    })
}

/// Looks for new files.
pub(super) struct Watcher {
    certificate: Arc<Certificate>,
    /// At the last look.
    seen: Stamp,
    /// When they were last read, well or not.
    tried: Stamp,
}

impl Watcher {
    pub(super) fn new(files: CertificateFiles) -> Result<Self, String> {
        // Before they are read: what changes meanwhile is new at the next look.
        let stamp = stamp(&files);
        let current = RwLock::new(Arc::new(read(&files)?));
        Ok(Watcher { certificate: Arc::new(Certificate { files, current }), seen: stamp, tried: stamp })
    }

    /// Accepts TLS with the certificate: always its current one.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.certificate) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Takes new files once they are the same in two looks: until then, somebody may still be writing them.
    pub(super) fn look(&mut self) {
        let files = &self.certificate.files;
        let now = stamp(files);
        if now != self.tried && now == self.seen {
            self.tried = now;
            match read(files) {
                Ok(key) => {
                    let mut current =
                        self.certificate.current.write().unwrap_or_else(PoisonError::into_inner);
                    *current = Arc::new(key);
                    info!(certificate = %files.certificate.display(), "new connections get the new certificate");
                }
                Err(error) => {
                    error!(%error, "the new certificate cannot be used: new connections still get the old one");
                }
            }
        }
        self.seen = now;
    }
}

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::{Error, Result};

/// A certificate authority of its own for one sandbox or one test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: PathBuf,
    certificate: PathBuf,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Makes one; what it issues is written into `directory`.
    pub fn new(directory: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "portcullis local authority");
        let key = KeyPair::generate().map_err(cannot_make)?;
        let certificate = directory.join("ca.crt");
        let made = params.self_signed(&key).map_err(cannot_make)?;
        write(&certificate, &made.pem())?;
        Ok(Authority { issuer: Issuer::new(params, key), directory: directory.into(), certificate })
    }

    /// The file with its certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// A certificate for a server that is reached under these names or addresses.
    pub fn server(&self, file: &str, names: &[&str]) -> Result<Identity> {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).map_err(cannot_make)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(file, params)
    }

    /// A certificate by which a client shows who it is. Kubernetes reads its user and its group from it.
    pub fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, params)
    }

    fn issue(&self, file: &str, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(cannot_make)?;
        let made = params.signed_by(&key, &self.issuer).map_err(cannot_make)?;
        let identity = Identity {
            certificate: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
        };
        write(&identity.certificate, &made.pem())?;
        write_secret(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

/// A key pair for signing tokens, without a certificate.
pub(crate) fn signing_key(private: &Path, public: &Path) -> Result<()> {
    let key = KeyPair::generate().map_err(cannot_make)?;
    write_secret(private, &key.serialize_pem())?;
    write(public, &key.public_key_pem())
}

fn cannot_make(error: rcgen::Error) -> Error {
    Error::Io { what: "cannot make a certificate".into(), source: std::io::Error::other(error) }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format!("cannot write {}", path.display())))
}

/// Writes a file that only its owner may read, from its first moment.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io(format!("cannot write {}", path.display())))
}

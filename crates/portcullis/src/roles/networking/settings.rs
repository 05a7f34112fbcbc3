//! From the configuration to what the servers and the store are started with.

use std::net::SocketAddr;

use portcullis_networking::Settings;
use portcullis_networking::identity::SettingsError;
use portcullis_networking::listen::CertificateFiles;
use portcullis_ovn::{Options, StoreSettings};
use portcullis_ovsdb::Tls;

use crate::config::{Loaded, Mode, RemoteAddress, ServerTls};
use crate::exit::Failure;

/// Where clients come in.
#[derive(Debug)]
pub(super) struct Doors {
    pub(super) networking: Door,
    /// None if it is the same, or if an existing Keystone is used.
    pub(super) identity: Option<Door>,
}

#[derive(Debug)]
pub(super) struct Door {
    /// The section of the configuration.
    pub(super) section: &'static str,
    pub(super) listen: SocketAddr,
    pub(super) tls: Option<CertificateFiles>,
}

impl Doors {
    pub(super) fn new(loaded: &Loaded) -> Result<Self, Failure> {
        let config = &loaded.config;
        let door = |section, listen, tls| -> Result<Door, Failure> {
            Ok(Door { section, listen, tls: certificate(loaded, section, tls)? })
        };
        let networking = door("networking", config.networking.listen.0, &config.networking.tls)?;
        if config.identity.keystone.is_some() {
            if config.identity.local.users.is_empty() {
                return Ok(Doors { networking, identity: None });
            }
            let what = "both it and identity.local.users say who may log in: keep one";
            return Err(mistake(loaded, "identity.keystone", what));
        }
        let identity = door("identity", config.identity.listen.0, &config.identity.tls)?;
        // Port 0 is not a port: each gets one of its own.
        if identity.listen == networking.listen && identity.listen.port() != 0 {
            if identity.tls.is_some() && identity.tls != networking.tls {
                let what = "identity.listen is the address of networking.listen, where networking.tls holds: \
                            remove it, or use the same files";
                return Err(mistake(loaded, "identity.tls", what));
            }
            return Ok(Doors { networking, identity: None });
        }
        // Who logged in looks for the Networking API in the catalog, which cannot know that it is served otherwise.
        if identity.tls.is_some() != networking.tls.is_some()
            && config.identity.local.catalog.network.is_none()
        {
            let what = "one of the Networking API and the Identity API has TLS and the other has not: \
                        set the address that clients shall use for the first, such as https://cloud.example.com:9696";
            return Err(mistake(loaded, "identity.local.catalog.network", what));
        }
        Ok(Doors { networking, identity: Some(identity) })
    }
}

fn certificate(loaded: &Loaded, section: &str, tls: &ServerTls) -> Result<Option<CertificateFiles>, Failure> {
    let missing = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            return Ok(Some(CertificateFiles { certificate: certificate.clone(), key: key.clone() }));
        }
        (None, None) => return Ok(None),
        (Some(_), None) => "key",
        (None, Some(_)) => "certificate",
    };
    let what =
        format!("{missing} is missing: TLS takes a certificate and its key; without both there is none");
    Err(mistake(loaded, &format!("{section}.tls"), what))
}

pub(crate) fn store(loaded: &Loaded) -> Result<StoreSettings, Failure> {
    let config = &loaded.config;
    let northbound = &config.networking.northbound;
    let tls = match (&northbound.authority, &northbound.certificate, &northbound.key) {
        (Some(authority), Some(certificate), Some(key)) => {
            Some(Tls { authority: authority.clone(), certificate: certificate.clone(), key: key.clone() })
        }
        (None, None, None) => None,
        _ => {
            let what = "authority, certificate and key belong together: give all three, or none";
            return Err(mistake(loaded, "networking.northbound", what));
        }
    };
    if tls.is_none() && northbound.remotes.iter().any(|remote| remote.0.starts_with("ssl:")) {
        let what = "an ssl: remote takes authority, certificate and key beside it";
        return Err(mistake(loaded, "networking.northbound.remotes", what));
    }
    if northbound.remotes.is_empty() {
        return Err(mistake(loaded, "networking.northbound.remotes", "name the database's address at least"));
    }
    Ok(StoreSettings {
        remotes: northbound.remotes.iter().filter_map(RemoteAddress::remote).collect(),
        tls,
        durable: northbound.durable,
        coexist: northbound.coexist,
        read_only: config.mode == Mode::Observe,
        options: Options {
            gateway_chassis: config.networking.gateway_chassis.clone(),
            dhcp_lease: config.networking.dhcp_lease,
            dns_domain: config.networking.dns_domain.clone(),
        },
    })
}

pub(super) fn api(loaded: &Loaded) -> Settings {
    let networking = &loaded.config.networking;
    Settings {
        port_security: networking.port_security,
        mtu: networking.mtu,
        physical_mtu: networking.physical_mtu,
        quotas: networking.quotas.clone(),
        ..Settings::default()
    }
}

/// What is wrong in one of the sections of identity.
pub(super) fn wrong(loaded: &Loaded, section: &str, error: &SettingsError) -> Failure {
    mistake(loaded, &format!("{section}.{}", error.at), &error.what)
}

pub(super) fn mistake(loaded: &Loaded, path: &str, what: impl Into<String>) -> Failure {
    Failure::from(loaded.mistake(path, what)).state("Nothing was started.")
}

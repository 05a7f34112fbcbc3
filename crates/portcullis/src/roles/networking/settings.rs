//! From the configuration to what the servers and the store are started with.

use std::net::{IpAddr, SocketAddr};

use portcullis_networking::identity::SettingsError;
use portcullis_networking::listen::CertificateFiles;
use portcullis_networking::{QUOTAS, Settings};
use portcullis_ovn::{Options, StoreSettings, balancer};
use portcullis_ovsdb::{Remote, Tls};

use crate::config::{Loaded, Mode, RemoteAddress, ServerTls, did_you_mean};
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
        let all = |door: &Door| door.listen.ip().to_canonical().is_unspecified();
        if identity.listen.port() == networking.listen.port()
            && identity.listen.port() != 0
            && (all(&identity) || all(&networking))
        {
            let what = "networking.listen has the same port, and one of the two is on all addresses: \
                        give both the same address to have both APIs there, or another port";
            return Err(mistake(loaded, "identity.listen", what));
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

/// What the store is started with. Who names databases means those, instead of the configured ones.
pub(crate) fn store(loaded: &Loaded, named: &[Remote]) -> Result<StoreSettings, Failure> {
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
    let remotes = if named.is_empty() {
        northbound.remotes.iter().filter_map(RemoteAddress::remote).collect()
    } else {
        named.to_vec()
    };
    if let Some(what) = unfit(&remotes, tls.is_some()) {
        return Err(mistake(loaded, "networking.northbound.remotes", what));
    }
    Ok(StoreSettings {
        remotes,
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

/// What load balancers of OVN are made with.
pub(crate) fn balancers(
    loaded: &Loaded,
    sweep: Option<balancer::Sweep>,
) -> Result<balancer::Settings, Failure> {
    let StoreSettings { remotes, tls, durable, .. } = store(loaded, &[])?;
    let given = &loaded.config.networking.northbound.southbound;
    let southbound: Vec<Remote> = given.iter().filter_map(RemoteAddress::remote).collect();
    let wrong = (!southbound.is_empty()).then(|| unfit(&southbound, tls.is_some())).flatten();
    if let Some(what) = wrong {
        return Err(mistake(loaded, "networking.northbound.southbound", what));
    }
    Ok(balancer::Settings { remotes, southbound, tls, durable, sweep })
}

/// What is wrong with these databases, with or without files for TLS.
fn unfit(remotes: &[Remote], tls: bool) -> Option<String> {
    if remotes.is_empty() {
        return Some("name the database's address at least".to_owned());
    }
    remotes.iter().find_map(|remote| match remote {
        Remote::Tls { .. } if !tls => {
            Some("an ssl: remote takes authority, certificate and key beside it".to_owned())
        }
        // Whoever has given the files wants TLS, and would not notice that there is none.
        Remote::Tcp { .. } if tls => Some(format!(
            "{remote} is without TLS, although authority, certificate and key are given: \
             write ssl: for it, or remove the three"
        )),
        _ => None,
    })
}

/// Whether who is on the way to a database can read, and change, what goes there: password hashes and keys too.
pub(super) fn is_exposed(remote: &Remote) -> bool {
    let here = |host: &str| {
        let address = host.parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
    };
    matches!(remote, Remote::Tcp { host, .. } if !here(host))
}

pub(super) fn api(loaded: &Loaded) -> Result<Settings, Failure> {
    let networking = &loaded.config.networking;
    for (key, mtu) in [("mtu", networking.mtu), ("physicalMtu", networking.physical_mtu)] {
        if !(68..=65_535).contains(&mtu) {
            let what = format!("a packet has 68 to 65535 bytes, not {mtu}");
            return Err(mistake(loaded, &format!("networking.{key}"), what));
        }
    }
    if networking.dhcp_lease == 0 {
        let what = "addresses that are given for no time are of no use: it is in seconds, such as 86400";
        return Err(mistake(loaded, "networking.dhcpLease", what));
    }
    let known = QUOTAS.map(|(name, _)| name);
    for (name, limit) in &networking.quotas {
        let path = format!("networking.quotas.{name}");
        if !known.contains(&name.as_str()) {
            let meant =
                did_you_mean(name, &known).unwrap_or_else(|| format!("There is {}", known.join(", ")));
            return Err(mistake(loaded, &path, format!("nothing of this name has a quota. {meant}")));
        }
        if *limit < -1 {
            return Err(mistake(loaded, &path, format!("{limit} is no limit: -1 is without one")));
        }
    }
    Ok(Settings {
        port_security: networking.port_security,
        mtu: networking.mtu,
        physical_mtu: networking.physical_mtu,
        quotas: networking.quotas.clone(),
        ..Settings::default()
    })
}

/// What is wrong in one of the sections of identity.
pub(super) fn wrong(loaded: &Loaded, section: &str, error: &SettingsError) -> Failure {
    mistake(loaded, &format!("{section}.{}", error.at), &error.what)
}

pub(super) fn mistake(loaded: &Loaded, path: &str, what: impl Into<String>) -> Failure {
    Failure::from(loaded.mistake(path, what)).state("Nothing was started.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn what_networks_do_that_say_nothing_is_configured() {
        for (given, expected) in [(None, true), (Some("false"), false), (Some("true"), true)] {
            let setting = given.map(|value| format!("networking.portSecurity={value}").parse().unwrap());
            let loaded = Sources::new(None, setting.into_iter().collect()).without_default().load().unwrap();
            assert_eq!(api(&loaded).unwrap().port_security, expected, "{given:?}");
        }
    }

    #[test]
    fn who_wants_tls_gets_it_for_every_member() {
        for (remotes, tls, good) in [
            ("unix:/nb", false, true),
            ("unix:/nb", true, true),
            ("tcp:127.0.0.1:6641", false, true),
            ("ssl:192.0.2.1:6641", true, true),
            ("", true, false),
            ("ssl:192.0.2.1:6641", false, false),
            ("tcp:192.0.2.1:6641", true, false),
            ("ssl:192.0.2.1:6641 tcp:192.0.2.2:6641", true, false),
            ("ssl:192.0.2.1:6641 tcp:192.0.2.2:6641", false, false),
        ] {
            let remotes: Vec<Remote> = remotes.split_whitespace().map(|text| text.parse().unwrap()).collect();
            assert_eq!(unfit(&remotes, tls).is_none(), good, "{remotes:?} with TLS: {tls}");
        }
    }

    #[test]
    fn what_leaves_this_machine_unencrypted_is_exposed() {
        for (remote, exposed) in [
            ("unix:/nb", false),
            ("tcp:127.0.0.1:6641", false),
            ("tcp:[::1]:6641", false),
            ("tcp:localhost:6641", false),
            ("ssl:192.0.2.1:6641", false),
            ("tcp:192.0.2.1:6641", true),
            ("tcp:ovn.example.com:6641", true),
        ] {
            assert_eq!(is_exposed(&remote.parse().unwrap()), exposed, "{remote}");
        }
    }
}

//! The configuration of ovirt-provider-ovn, and ours that corresponds to it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use portcullis_networking::QUOTAS;
use serde_json::{Map, Value, json};

use super::ini::Ini;
use crate::exit::{Exit, Failure};

/// What corresponds, and what nothing corresponds to.
#[derive(Debug, PartialEq)]
pub(super) struct Translation {
    pub(super) config: Value,
    /// Keys with the reason why they are left out.
    pub(super) without: Vec<(String, String)>,
}

/// Reads a file, and like the provider those named `*.conf` in `conf.d` beside it.
pub(super) fn read(file: &Path) -> Result<Ini, Failure> {
    let mut ini = Ini::default();
    let mut files = vec![file.to_owned()];
    let beside = file.parent().unwrap_or(Path::new("")).join("conf.d");
    if let Ok(entries) = std::fs::read_dir(beside) {
        let names = entries.flatten().map(|entry| entry.path());
        let mut names: Vec<PathBuf> =
            names.filter(|name| name.extension().is_some_and(|ending| ending == "conf")).collect();
        names.sort();
        files.extend(names);
    }
    for file in files {
        let shown = file.display();
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let exit = if error.kind() == ErrorKind::PermissionDenied { Exit::Lacking } else { Exit::Usage };
            Failure::new(exit, format!("cannot read {shown}: {error}"))
        })?;
        ini.read(&text).map_err(|error| Failure::new(Exit::Usage, format!("{shown}: {error}")))?;
    }
    Ok(ini)
}

/// Keys that nothing corresponds to, and why.
const WITHOUT: &[(&str, &str, &str)] = &[
    ("AUTH", "auth-plugin", "there are no plugins: users are in identity.local.users, or in a Keystone"),
    ("DHCP", "dhcp-default-ipv6-address-mode", "who makes an IPv6 subnet says how addresses are given"),
    ("DHCP", "dhcp-enable-mtu", "DHCP always tells the MTU of the network"),
    ("DHCP", "dhcp-server-mac", "the DHCP server of every network has a hardware address of its own"),
    ("PROVIDER", "nova-port", "there is no Compute API"),
    ("PROVIDER", "openstack-keystone-id", "the catalogue makes its ids itself"),
    ("PROVIDER", "openstack-neutron-id", "the catalogue makes its ids itself"),
    ("PROVIDER", "ovs-version-2.9", "a port's host is always told to OVN"),
    (
        "PROVIDER",
        "provider-host",
        "the catalogue names the address that the client used; identity.local.catalog sets another",
    ),
    ("PROVIDER", "url_filter_exception", "paging is understood; unknown filters are an error"),
    ("SSL", "ssl-ciphers-string", "TLS 1.2 and 1.3 with safe ciphers only"),
    (
        "VALIDATION",
        "validation-max-allowed-mtu",
        "networking.mtu is both the default and the largest MTU of new networks; adopted ones keep theirs",
    ),
];

/// Keys that are looked at elsewhere in this file.
const KNOWN: &[(&str, &str)] = &[
    ("AUTH", "auth-token-timeout"),
    ("DHCP", "dhcp-lease-time"),
    ("DHCP", "dhcp-mtu"),
    ("NETWORK", "port-security-enabled-default"),
    ("OVN REMOTE", "ovn-remote"),
    ("PROVIDER", "keystone-port"),
    ("PROVIDER", "neutron-port"),
    ("PROVIDER", "openstack-region"),
    ("PROVIDER", "openstack-tenant-description"),
    ("PROVIDER", "openstack-tenant-id"),
    ("PROVIDER", "openstack-tenant-name"),
    ("SSL", "https-enabled"),
    ("SSL", "ssl-cacert-file"),
    ("SSL", "ssl-cert-file"),
    ("SSL", "ssl-key-file"),
];

/// Our configuration that corresponds, with the provider's defaults where it says nothing.
pub(super) fn translate(ini: &Ini) -> Result<Translation, Failure> {
    let text =
        |section, key, default| ini.get(section, key).filter(|text| !text.is_empty()).unwrap_or(default);
    let number = |section, key, default| {
        let given = text(section, key, default);
        let wrong = |_| Failure::new(Exit::Usage, format!("[{section}] {key}={given} is not a number"));
        given.parse::<u32>().map_err(wrong)
    };
    // As the provider does: on all addresses, of both families.
    let port = |key, default| match number("PROVIDER", key, default)? {
        port @ 1..=65_535 => Ok(format!("[::]:{port}")),
        port => Err(Failure::new(Exit::Usage, format!("[PROVIDER] {key}={port} is not a port"))),
    };
    let truth =
        |section, key| matches!(text(section, key, "").to_lowercase().as_str(), "1" | "yes" | "true" | "on");

    let certificate = text("SSL", "ssl-cert-file", "/etc/pki/ovirt-engine/certs/ovirt-provider-ovn.cer");
    let key = text("SSL", "ssl-key-file", "/etc/pki/ovirt-engine/keys/ovirt-provider-ovn.pem");
    let remotes = text("OVN REMOTE", "ovn-remote", "tcp:127.0.0.1:6641").split(',').map(str::trim);
    let remotes: Vec<&str> = remotes.filter(|remote| !remote.is_empty()).collect();
    let mut northbound = Map::new();
    if remotes.iter().any(|remote| remote.starts_with("ssl:")) {
        let authority = text("SSL", "ssl-cacert-file", "/etc/pki/ovirt-engine/ca.pem");
        northbound.insert("authority".to_owned(), json!(authority));
        northbound.insert("certificate".to_owned(), json!(certificate));
        northbound.insert("key".to_owned(), json!(key));
    }
    northbound.insert("remotes".to_owned(), json!(remotes));
    let mut networking = json!({
        "enabled": true,
        "listen": port("neutron-port", "9696")?,
        "northbound": northbound,
        "portSecurity": truth("NETWORK", "port-security-enabled-default"),
        "mtu": number("DHCP", "dhcp-mtu", "1442")?,
        "dhcpLease": number("DHCP", "dhcp-lease-time", "86400")?,
        // The provider has none, and what it has goes to one project.
        "quotas": QUOTAS.iter().map(|(name, _)| ((*name).to_owned(), json!(-1))).collect::<Map<_, _>>(),
    });
    let mut project = json!({
        "name": text("PROVIDER", "openstack-tenant-name", "tenant"),
        "id": text("PROVIDER", "openstack-tenant-id", "00000000000000000000000000000001"),
    });
    if let Some(description) = ini.get("PROVIDER", "openstack-tenant-description") {
        project["description"] = json!(description);
    }
    let mut identity = json!({
        "listen": port("keystone-port", "35357")?,
        "local": {
            "region": text("PROVIDER", "openstack-region", "RegionOne"),
            "projects": [project],
            "tokenLifetime": format!("{}s", number("AUTH", "auth-token-timeout", "360000")?),
        },
    });
    if truth("SSL", "https-enabled") {
        let tls = json!({"certificate": certificate, "key": key});
        networking["tls"] = tls.clone();
        identity["tls"] = tls;
    }
    Ok(Translation { config: json!({"networking": networking, "identity": identity}), without: without(ini) })
}

fn without(ini: &Ini) -> Vec<(String, String)> {
    let reason = |section: &str, key: &str| {
        if KNOWN.contains(&(section, key)) {
            return None;
        }
        let known = WITHOUT.iter().find(|(of, name, _)| (*of, *name) == (section, key));
        Some(match known {
            Some((.., why)) => *why,
            None if section == "OVIRT" => "users are not asked for at an engine: see identity",
            None => "it is not known",
        })
    };
    let left = ini.entries().filter_map(|(section, key, _)| {
        let why = reason(section, key)?;
        let name = if section == "OVIRT" { "[OVIRT]".to_owned() } else { format!("[{section}] {key}") };
        Some((name, why.to_owned()))
    });
    let mut left: Vec<_> = left.collect();
    left.dedup();
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Translation {
        let mut ini = Ini::default();
        ini.read(text).unwrap();
        translate(&ini).unwrap()
    }

    #[test]
    fn what_is_not_said_has_the_providers_defaults() {
        let Translation { config, without } = of("");
        assert_eq!(without, []);
        assert_eq!(config["networking"]["listen"], "[::]:9696");
        assert_eq!(config["networking"]["quotas"]["security_group"], -1);
        assert_eq!(config["networking"]["quotas"].as_object().unwrap().len(), QUOTAS.len());
        assert_eq!(config["networking"]["portSecurity"], false);
        assert_eq!(config["networking"]["northbound"], json!({"remotes": ["tcp:127.0.0.1:6641"]}));
        assert_eq!(config["identity"]["local"]["projects"][0]["name"], "tenant");
        assert_eq!(config["identity"]["tls"], Value::Null);
    }

    #[test]
    fn what_is_said_is_taken_over_or_named() {
        let Translation { mut config, without } = of(
            "[PROVIDER]\nneutron-port=19696\nopenstack-region=One\n\
             provider-host=engine\n[OVN REMOTE]\novn-remote=ssl:192.0.2.1:6641, ssl:192.0.2.2:6641\n[NETWORK]\n\
             port-security-enabled-default=True\n[DHCP]\ndhcp-lease-time=60\ndhcp-mtu=1400\n[SSL]\nhttps-enabled=true\n\
             ssl-key-file=/k\nssl-cert-file=/c\nssl-cacert-file=/a\n[AUTH]\nauth-plugin=x\n[OVIRT]\novirt-host=y\novirt-base=z\n\
             [NEW]\nkey=1\n",
        );
        config["networking"].as_object_mut().unwrap().remove("quotas");
        let tls = json!({"certificate": "/c", "key": "/k"});
        assert_eq!(
            config["networking"],
            json!({
                "enabled": true, "listen": "[::]:19696", "tls": tls, "portSecurity": true, "mtu": 1400,
                "dhcpLease": 60, "northbound":
                    {"remotes": ["ssl:192.0.2.1:6641", "ssl:192.0.2.2:6641"], "authority": "/a", "certificate": "/c", "key": "/k"},
            })
        );
        assert_eq!(
            (&config["identity"]["tls"], &config["identity"]["local"]["region"]),
            (&tls, &json!("One"))
        );
        let keys: Vec<&str> = without.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["[AUTH] auth-plugin", "[NEW] key", "[OVIRT]", "[PROVIDER] provider-host"]);
    }

    #[test]
    fn what_corresponds_is_a_configuration() {
        let text = crate::output::yaml(&of("[SSL]\nhttps-enabled=true").config).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        std::fs::write(&file, &text).unwrap();
        let loaded = crate::config::Sources::new(Some(file), Vec::new()).load().unwrap();
        assert!(loaded.warnings.is_empty(), "{text}");
        assert_eq!(loaded.config.networking.dhcp_lease, 86_400);
    }

    #[test]
    fn a_number_that_is_none_is_named() {
        for (text, expected) in [
            ("[DHCP]\ndhcp-mtu=big", "[DHCP] dhcp-mtu=big is not a number"),
            ("[PROVIDER]\nneutron-port=65536", "[PROVIDER] neutron-port=65536 is not a port"),
        ] {
            let mut ini = Ini::default();
            ini.read(text).unwrap();
            let failure = translate(&ini).unwrap_err();
            assert_eq!((failure.exit, failure.errors[0].as_str()), (Exit::Usage, expected));
        }
    }
}

//! The configuration: what can be set, and its defaults.
//!
//! [`load`] reads it: files become [`node`]s through [`yaml`], are [`merge`]d, and [`decode`]d into the types
//! below. A new section is a struct here, with `#[serde(default, rename_all = "camelCase")]` and a `Default`.
//! An `Option` defaults to `None`: a null in a file means "back to the default", so it could not undo a `Some`.

mod cluster_api;
mod decode;
mod finding;
mod host;
mod ingress;
mod load;
mod merge;
mod microshift;
mod networking;
mod node;
mod path;
mod services;
mod set;
mod single_node;
mod yaml;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer, Serialize};
use tracing::Level;
use tracing_subscriber::filter::Targets;

pub(crate) use cluster_api::{ClusterApi, HaProxy, Types};
pub(crate) use finding::{Finding, did_you_mean};
pub(crate) use host::{Datapath, Host};
pub(crate) use ingress::{Addresses, AwsType, IngressControllers, Platform, Router, SourceRanges};
pub(crate) use load::{Loaded, Sources, Unusable, Why};
pub(crate) use networking::{Identity, Networking, Northbound, RemoteAddress, ServerTls};
pub(crate) use services::{Aws, CloudConfig, Kubernetes, NodeRules, Services};
pub(crate) use set::Setting;
pub(crate) use single_node::{Ingress, IngressStatus, SingleNode};

use node::quoted;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "a cloud-config is called so")]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) log: Log,
    pub(crate) telemetry: Telemetry,
    pub(crate) networking: Networking,
    pub(crate) identity: Identity,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) services: Services,
    pub(crate) aws: Aws,
    pub(crate) ingress_controllers: IngressControllers,
    pub(crate) single_node: SingleNode,
    pub(crate) ingress: Ingress,
    pub(crate) host: Host,
    pub(crate) cluster_api: ClusterApi,
    pub(crate) haproxy: HaProxy,
    pub(crate) cloud_config: CloudConfig,
}

/// Whether Portcullis may change anything outside itself. Every role honours it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mode {
    #[default]
    Manage,
    /// No write anywhere; everything is still reported.
    Observe,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Manage => "manage",
            Self::Observe => "observe",
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: LogLevel,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// A level for everything, and levels for single modules: `info,portcullis::telemetry=debug`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct LogLevel(String);

impl LogLevel {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

    /// The levels in `text`, with `info` for everything if it only names modules: tracing would switch the rest
    /// off. An error says more than that `text` is wrong only where it can name the part that is.
    fn parse(text: &str) -> Result<Self, Option<String>> {
        let parts: Vec<_> = text.split(',').collect();
        for part in &parts {
            Self::check(part, parts.len() == 1)?;
        }
        let mut bare = parts.iter().filter(|part| !part.contains('='));
        let text = match (bare.next(), bare.next()) {
            (Some(one), Some(other)) => {
                return Err(Some(format!("Both `{one}` and `{other}` are for everything: keep one")));
            }
            (Some(_), None) => text.to_owned(),
            (None, _) => format!("info,{text}"),
        };
        text.parse::<Targets>().map_err(|e| Some(e.to_string()))?;
        Ok(Self(text))
    }

    fn check(part: &str, alone: bool) -> Result<(), Option<String>> {
        let shown = quoted(part);
        let (module, level) = part.rsplit_once('=').map_or((None, part), |(m, l)| (Some(m), l));
        if part.is_empty() {
            return Err((!alone).then(|| "Remove the comma with nothing beside it".to_owned()));
        }
        if part.contains(char::is_whitespace) {
            return Err(Some(format!("Remove the space in {shown}")));
        }
        if module == Some("") {
            return Err(Some(format!("There is no module before the `=` of {shown}")));
        }
        if level.is_empty() {
            return Err(Some(format!("There is no level after the `=` of {shown}")));
        }
        if Self::LEVELS.iter().any(|l| l.eq_ignore_ascii_case(level)) {
            return Ok(());
        }
        // tracing would read `inf` as the name of a module and switch everything else off.
        let meant = finding::did_you_mean(level, &Self::LEVELS);
        if alone && module.is_none() {
            return Err(meant);
        }
        let more = meant.map(|meant| format!(". {meant}")).unwrap_or_default();
        Err(Some(format!("{} is not a level{more}", quoted(level))))
    }

    pub(crate) fn filter(&self) -> Targets {
        // Checked by `parse`; nothing else makes a LogLevel but the default.
        self.0.parse().unwrap_or_else(|_| Targets::new().with_default(Level::INFO))
    }
}

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected =
            "a level (off, error, warn, info, debug, trace) or a list such as info,portcullis=debug";
        decode::from_text(deserializer, expected, Self::parse)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Telemetry {
    /// Where `/livez`, `/readyz` and `/metrics` are served. Port 0 takes any free one.
    pub(crate) listen: ListenAddress,
}

impl Default for Telemetry {
    fn default() -> Self {
        // Only this machine: whoever may scrape from elsewhere is the administrator's decision.
        Self { listen: ListenAddress(SocketAddr::from((Ipv4Addr::LOCALHOST, 9695))) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "an address and port such as 127.0.0.1:9695";
        decode::from_text(deserializer, expected, |text| text.parse().map(Self).map_err(|_| None))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a manifest: a document of any shape, of which errors name the file and the line.
pub(crate) fn read_manifest(
    file: &std::path::Path,
    text: &str,
) -> Result<serde_json::Value, crate::exit::Failure> {
    let wrong = |findings: Vec<Finding>| {
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        crate::exit::Failure::new(crate::exit::Exit::Usage, told.join("; "))
    };
    let node = yaml::parse(file, text).map_err(|finding| wrong(vec![finding]))?;
    decode::decode(&node).result.map_err(wrong)
}

/// Reads a document of any shape, as tests of what is printed need it.
#[cfg(test)]
pub(crate) fn read_any(text: &str) -> Result<serde_json::Value, Vec<Finding>> {
    let node = yaml::parse("printed.yaml".as_ref(), text).map_err(|finding| vec![finding])?;
    decode::decode(&node).result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_levels_are_checked_before_tracing_misreads_them() {
        for (text, accepted) in [
            ("info", true),
            ("INFO", true),
            ("off", true),
            ("info,portcullis=debug", true),
            ("warn,portcullis::telemetry=trace,hyper=off", true),
            ("inf", false),
            ("", false),
            ("info,", false),
            ("=debug", false),
            ("info, portcullis=debug", false),
            ("portcullis=loud", false),
            ("portcullis", false),
            ("portcullis=debug=info", false),
        ] {
            assert_eq!(LogLevel::parse(text).is_ok(), accepted, "{text:?}");
        }
    }

    #[test]
    fn levels_for_modules_do_not_silence_the_rest() {
        for (text, expected) in [
            ("hyper=debug", "info,hyper=debug"),
            ("hyper=off,portcullis::telemetry=trace", "info,hyper=off,portcullis::telemetry=trace"),
            ("hyper=debug,warn", "hyper=debug,warn"),
            ("off,hyper=debug", "off,hyper=debug"),
        ] {
            let level = LogLevel::parse(text).unwrap();
            assert_eq!(level.0, expected);
            assert_eq!(LogLevel::parse(&level.0), Ok(level), "it is printed as what it means");
        }
        let filter = LogLevel::parse("hyper=debug").unwrap().filter();
        assert!(filter.would_enable("portcullis", &Level::INFO));
        assert!(!filter.would_enable("portcullis", &Level::DEBUG));
    }

    #[test]
    fn a_wrong_level_names_the_part_at_fault() {
        for (text, hint) in [
            ("inf", Some("Did you mean `info`?")),
            ("loud", None),
            ("", None),
            ("info,portcullis=debg", Some("`debg` is not a level. Did you mean `debug`?")),
            ("info,portcullis=loud", Some("`loud` is not a level")),
            ("portcullis=", Some("There is no level after the `=` of `portcullis=`")),
            ("info,debug", Some("Both `info` and `debug` are for everything: keep one")),
            ("info, portcullis=debug", Some("Remove the space in ` portcullis=debug`")),
            ("info,port cullis=debug", Some("Remove the space in `port cullis=debug`")),
            ("info ", Some("Remove the space in `info `")),
            ("info,", Some("Remove the comma with nothing beside it")),
            ("info,=debug", Some("There is no module before the `=` of `=debug`")),
        ] {
            assert_eq!(LogLevel::parse(text), Err(hint.map(str::to_owned)), "{text:?}");
        }
    }
}

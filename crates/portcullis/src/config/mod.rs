//! The configuration: what can be set, and its defaults.
//!
//! [`load`] reads it: files become [`node`]s through [`yaml`], are [`merge`]d, and [`decode`]d into the types
//! below. A new section is a struct here, with `#[serde(default, rename_all = "camelCase")]` and a `Default`.
//! An `Option` defaults to `None`: a null in a file means "back to the default", so it could not undo a `Some`.

mod decode;
mod finding;
mod load;
mod merge;
mod node;
mod path;
mod set;
mod yaml;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer, Serialize};
use tracing::Level;
use tracing_subscriber::filter::Targets;

pub(crate) use finding::Finding;
pub(crate) use load::{Loaded, Sources, Unusable, Why};
pub(crate) use set::Setting;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) log: Log,
    pub(crate) telemetry: Telemetry,
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

/// A level for everything, levels for single modules, or both: `info,portcullis::telemetry=debug`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct LogLevel(String);

impl LogLevel {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

    fn parse(text: &str) -> Result<Self, Option<String>> {
        for part in text.split(',') {
            let (module, level) = part.rsplit_once('=').map_or((None, part), |(m, l)| (Some(m), l));
            let known = Self::LEVELS.iter().any(|l| l.eq_ignore_ascii_case(level));
            if !known || module.is_some_and(|m| m.trim() != m || m.is_empty()) {
                // tracing would read `inf` as the name of a module and switch everything else off.
                return Err(finding::did_you_mean(level, &Self::LEVELS));
            }
        }
        text.parse::<Targets>().map_err(|e| Some(e.to_string()))?;
        Ok(Self(text.to_owned()))
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
        ] {
            assert_eq!(LogLevel::parse(text).is_ok(), accepted, "{text:?}");
        }
        assert_eq!(LogLevel::parse("inf"), Err(Some("Did you mean `info`?".to_owned())));
    }
}

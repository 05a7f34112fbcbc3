use std::net::IpAddr;

use super::http::is_token;
use super::reader::Reader;

/// What is written down about each request, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where it goes.
    pub to: LogDestination,
    /// How long a line may be.
    pub longest: Option<i64>,
    /// What a line looks like, in HAProxy's words.
    pub format: Option<String>,
    /// Headers of requests that are written down.
    pub request_headers: Vec<Captured>,
    /// Headers of responses that are written down.
    pub response_headers: Vec<Captured>,
    /// A cookie that is written down.
    pub cookie: Option<CapturedCookie>,
    /// Whether connections on which nothing was asked for are left out.
    pub leaves_out_empty: bool,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Into the log of a container beside the router.
    Container,
    /// To a server.
    Syslog {
        /// Its address.
        address: IpAddr,
        /// Its port.
        port: i64,
        /// The facility that is named there.
        facility: Option<String>,
    },
}

/// Something with a name that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its name.
    pub name: String,
    /// How much of it.
    pub longest: i64,
}

/// A cookie that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedCookie {
    /// Its name, or how its name starts.
    pub name: String,
    /// Whether its name only starts so.
    pub is_prefix: bool,
    /// How much of it.
    pub longest: i64,
}

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "auth2", "ftp", "ntp",
    "audit", "alert", "cron2", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

pub(super) fn read(logging: &Reader<'_>) -> Option<AccessLog> {
    logging.has_keys(&["access"]);
    let access = logging.at("access");
    let known =
        ["destination", "httpLogFormat", "httpCaptureHeaders", "httpCaptureCookies", "logEmptyRequests"];
    if !access.has_keys(&known) {
        return None;
    }
    let (to, longest) = destination(&access.at("destination"))?;
    let captured = access.at("httpCaptureHeaders");
    captured.has_keys(&["request", "response"]);
    Some(AccessLog {
        to,
        longest,
        format: access.at("httpLogFormat").text().map(str::to_owned),
        request_headers: headers(&captured.at("request")),
        response_headers: headers(&captured.at("response")),
        cookie: access.at("httpCaptureCookies").entries(1).first().and_then(cookie),
        leaves_out_empty: access.at("logEmptyRequests").word(&["Log", "Ignore"]) == Some("Ignore"),
    })
}

fn destination(place: &Reader<'_>) -> Option<(LogDestination, Option<i64>)> {
    place.has_keys(&["type", "container", "syslog"]);
    let type_ = place.at("type");
    if type_.text().is_none() {
        type_.wrong(format!("{}: it is missing; it is Container or Syslog", type_.place()));
    }
    let longest = |place: &Reader<'_>, most: i64| {
        let place = place.at("maxLength");
        let found = place.number(0..=most).filter(|longest| *longest != 0)?;
        if found < 480 {
            place.refuse("is too small; it is 480 at the least");
        }
        Some(found)
    };
    if type_.word(&["Container", "Syslog"])? == "Container" {
        let container = place.at("container");
        container.has_keys(&["maxLength"]);
        return Some((LogDestination::Container, longest(&container, 8192)));
    }
    let syslog = place.at("syslog");
    syslog.has_keys(&["address", "port", "facility", "maxLength"]);
    let (address, port) = (syslog.at("address"), syslog.at("port"));
    let found = address.name()?.parse();
    if found.is_err() {
        address.refuse("is no IP address");
    }
    if !port.is_given() {
        port.wrong(format!("{}: it is missing; it is a number from 1 to 65535", port.place()));
    }
    let facility = syslog.at("facility").word(&FACILITIES).map(str::to_owned);
    let to = LogDestination::Syslog { address: found.ok()?, port: port.number(1..=65535)?, facility };
    Some((to, longest(&syslog, 4096)))
}

fn headers(place: &Reader<'_>) -> Vec<Captured> {
    let each = place.entries(100);
    each.iter()
        .filter_map(|entry| {
            entry.has_keys(&["name", "maxLength"]);
            let name = entry.at("name").text_that(is_token, "is not the name of a header")?;
            Some(Captured { name, longest: entry.at("maxLength").number(1..=i64::from(i32::MAX))? })
        })
        .collect()
}

fn cookie(place: &Reader<'_>) -> Option<CapturedCookie> {
    place.has_keys(&["matchType", "name", "namePrefix", "maxLength"]);
    let match_type = place.at("matchType");
    if match_type.text().is_none() {
        match_type.wrong(format!("{}: it is missing; it is Exact or Prefix", match_type.place()));
    }
    let is_prefix = match_type.word(&["Exact", "Prefix"])? == "Prefix";
    let key = if is_prefix { "namePrefix" } else { "name" };
    let name = place.at(key);
    name.name()?;
    Some(CapturedCookie {
        name: name.text_that(is_token, "is not the name of a cookie")?,
        is_prefix,
        // Zero has a meaning for those who wrote it so far.
        longest: place.at("maxLength").number(0..=1024).filter(|longest| *longest != 0).unwrap_or(256),
    })
}

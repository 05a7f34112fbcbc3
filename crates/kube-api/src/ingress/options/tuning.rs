use std::collections::BTreeMap;
use std::time::Duration;

use super::reader::Reader;

/// How routers use what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// How many bytes the headers of a request may have.
    pub header_buffer_bytes: Option<i64>,
    /// How many of these are kept free for what is added to them.
    pub header_buffer_max_rewrite_bytes: Option<i64>,
    /// How many threads a router has.
    pub thread_count: Option<i64>,
    /// How many connections it takes; -1 for as many as it can.
    pub max_connections: Option<i64>,
    /// Times, by the field of the spec.
    pub times: BTreeMap<&'static str, Duration>,
    /// How long changes are collected before they are carried out.
    pub reload_interval: Option<Duration>,
    /// Whether changes are carried out without a new process.
    pub is_dynamic: bool,
}

/// The fields with times. None of them is zero.
const TIMES: [&str; 9] = [
    "clientTimeout",
    "clientFinTimeout",
    "serverTimeout",
    "serverFinTimeout",
    "tunnelTimeout",
    "connectTimeout",
    "tlsInspectDelay",
    "httpKeepAliveTimeout",
    "healthCheckInterval",
];

/// What buffers have where nothing is said.
const USUAL_BUFFER: (i64, i64) = (32768, 8192);

/// Health is not asked for more often.
const QUICKEST_CHECK: Duration = Duration::from_secs(1);

/// Longer than that nobody keeps a connection on which nothing happens.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(15 * 60);

pub(super) fn read(tuning: &Reader<'_>) -> Tuning {
    let others = [
        "headerBufferBytes",
        "headerBufferMaxRewriteBytes",
        "threadCount",
        "maxConnections",
        "reloadInterval",
        "configurationManagement",
    ];
    if !tuning.has_keys(&[&TIMES[..], &others].concat()) {
        return Tuning::default();
    }
    let size = |key: &str, least: i64| {
        let place = tuning.at(key);
        // Zero means the usual.
        place.number(0..=i64::from(i32::MAX)).filter(|size| *size != 0).filter(|size| {
            let enough = *size >= least;
            if !enough {
                place.refuse(&format!("is too small; it is {least} at the least"));
            }
            enough
        })
    };
    let found = Tuning {
        header_buffer_bytes: size("headerBufferBytes", 16384),
        header_buffer_max_rewrite_bytes: size("headerBufferMaxRewriteBytes", 4096),
        thread_count: tuning.at("threadCount").number(0..=64).filter(|count| *count != 0),
        max_connections: max_connections(&tuning.at("maxConnections")),
        times: times(tuning),
        reload_interval: tuning.at("reloadInterval").duration(),
        is_dynamic: tuning.at("configurationManagement").word(&["Dynamic", "ForkAndReload"])
            == Some("Dynamic"),
    };
    let bytes = found.header_buffer_bytes.unwrap_or(USUAL_BUFFER.0);
    let rewrite = found.header_buffer_max_rewrite_bytes.unwrap_or(USUAL_BUFFER.1);
    if bytes <= rewrite {
        tuning.wrong(format!(
            "{}: headerBufferBytes is {bytes}, and headerBufferMaxRewriteBytes {rewrite}; the first has to be larger",
            tuning.place()
        ));
    }
    found
}

fn max_connections(place: &Reader<'_>) -> Option<i64> {
    let found = place.number(-1..=2_000_000).filter(|number| *number != 0)?;
    if (1..2000).contains(&found) {
        place.refuse("is too small; it is 2000 to 2000000, or -1 for as many as can be");
        return None;
    }
    Some(found)
}

fn times(tuning: &Reader<'_>) -> BTreeMap<&'static str, Duration> {
    let mut found = BTreeMap::new();
    for key in TIMES {
        let place = tuning.at(key);
        match place.duration() {
            Some(time) if key == "healthCheckInterval" && time < QUICKEST_CHECK => {
                place.ignore("it is less than `1s`, and health is asked for as often as usual");
            }
            Some(time) if key == "httpKeepAliveTimeout" && time > LONGEST_KEEP_ALIVE => {
                place.refuse("is too long; it is 15m at the most");
            }
            Some(time) => drop(found.insert(key, time)),
            None => {}
        }
    }
    found
}

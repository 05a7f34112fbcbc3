use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::text::{is_hidden, quoted};

/// How a load balancer finds out whether a member can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    probe: Probe,
    port: HealthPort,
    interval: Duration,
    timeout: Duration,
    healthy_threshold: u8,
    unhealthy_threshold: u8,
}

/// What is asked of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// To accept a connection.
    Tcp,
    /// To answer a GET over HTTP.
    Http {
        /// What is asked for, from its `/` on.
        path: String,
    },
    /// To answer a GET over TLS.
    Https {
        /// What is asked for, from its `/` on.
        path: String,
    },
}

impl Probe {
    /// What is asked for over HTTP(S).
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Tcp => None,
            Self::Http { path } | Self::Https { path } => Some(path),
        }
    }
}

/// Where it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthPort {
    /// On the port that traffic goes to.
    Traffic,
    /// On a port of its own.
    Number(u16),
}

/// Why a health check cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HealthCheckError {
    /// Port 0.
    #[error("a health check cannot go to port 0: give a port from 1 to 65535, or the traffic port")]
    PortZero,
    /// The path is not one.
    #[error("{} is not the path of a health check: it starts with `/` and has no spaces or invisible characters in it", quoted(.0))]
    Path(String),
    /// Interval and timeout do not fit.
    #[error(
        "a health check every {interval:?} cannot wait {timeout:?} for its answer: the timeout is more than 0 and no longer than the interval"
    )]
    Timing {
        /// Between two checks.
        interval: Duration,
        /// For the answer.
        timeout: Duration,
    },
    /// A threshold of 0.
    #[error("a health check needs at least one answer to change its mind: both thresholds are 1 or more")]
    ThresholdZero,
}

impl HealthCheck {
    /// A check every 10 s that waits 5 s for its answer and changes its mind after three in a row.
    pub fn new(probe: Probe, port: HealthPort) -> Result<Self, HealthCheckError> {
        if port == HealthPort::Number(0) {
            return Err(HealthCheckError::PortZero);
        }
        // The path stands in configuration files and requests, where a space or a line break would end it.
        if let Some(path) = probe.path()
            && (!path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || is_hidden(c)))
        {
            return Err(HealthCheckError::Path(path.to_owned()));
        }
        Ok(Self {
            probe,
            port,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            healthy_threshold: 3,
            unhealthy_threshold: 3,
        })
    }

    /// The same check at another pace. An answer that may come after the next question could be either's.
    pub fn with_timing(self, interval: Duration, timeout: Duration) -> Result<Self, HealthCheckError> {
        if timeout.is_zero() || timeout > interval {
            return Err(HealthCheckError::Timing { interval, timeout });
        }
        Ok(Self { interval, timeout, ..self })
    }

    /// The same check with other numbers of answers in a row that make a member healthy or unhealthy.
    pub fn with_thresholds(self, healthy: u8, unhealthy: u8) -> Result<Self, HealthCheckError> {
        if healthy == 0 || unhealthy == 0 {
            return Err(HealthCheckError::ThresholdZero);
        }
        Ok(Self { healthy_threshold: healthy, unhealthy_threshold: unhealthy, ..self })
    }

    /// What is asked.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Where it is asked.
    pub fn port(&self) -> HealthPort {
        self.port
    }

    /// The time between two checks.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The time given to the answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Good answers in a row that make a member healthy.
    pub fn healthy_threshold(&self) -> u8 {
        self.healthy_threshold
    }

    /// Bad answers in a row that make a member unhealthy.
    pub fn unhealthy_threshold(&self) -> u8 {
        self.unhealthy_threshold
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.probe {
            Probe::Tcp => "tcp",
            Probe::Http { .. } => "http",
            Probe::Https { .. } => "https",
        };
        let port = match self.port {
            HealthPort::Traffic => "traffic port".to_owned(),
            HealthPort::Number(port) => port.to_string(),
        };
        let path = self.probe.path().map(|path| format!(" {path}")).unwrap_or_default();
        f.pad(&format!(
            "{protocol} {port}{path} every {:?}, timeout {:?}, healthy after {}, unhealthy after {}",
            self.interval, self.timeout, self.healthy_threshold, self.unhealthy_threshold
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> HealthCheck {
        HealthCheck::new(Probe::Tcp, HealthPort::Traffic).unwrap()
    }

    fn http(path: &str) -> Result<HealthCheck, HealthCheckError> {
        HealthCheck::new(Probe::Http { path: path.to_owned() }, HealthPort::Number(10256))
    }

    #[test]
    fn checks_port_and_path() {
        assert_eq!(
            HealthCheck::new(Probe::Tcp, HealthPort::Number(0)).unwrap_err(),
            HealthCheckError::PortZero
        );
        for path in ["", "healthz", "/a b", "/a\nb", "/a\u{7f}", "/a\u{200b}"] {
            assert_eq!(http(path).unwrap_err(), HealthCheckError::Path(path.to_owned()));
        }
        assert_eq!(
            http("/healthz").unwrap().to_string(),
            "http 10256 /healthz every 10s, timeout 5s, healthy after 3, unhealthy after 3"
        );
        assert_eq!(
            tcp().with_thresholds(2, 4).unwrap().to_string(),
            "tcp traffic port every 10s, timeout 5s, healthy after 2, unhealthy after 4"
        );
    }

    #[test]
    fn checks_pace_and_thresholds() {
        let seconds = Duration::from_secs;
        for (interval, timeout, fine) in
            [(5, 4, true), (5, 5, true), (5, 6, false), (5, 0, false), (0, 0, false)]
        {
            let checked = tcp().with_timing(seconds(interval), seconds(timeout));
            assert_eq!(checked.is_ok(), fine, "{interval} {timeout}");
        }
        for (healthy, unhealthy, fine) in [(1, 1, true), (0, 1, false), (1, 0, false)] {
            assert_eq!(tcp().with_thresholds(healthy, unhealthy).is_ok(), fine, "{healthy} {unhealthy}");
        }
        assert_eq!(
            tcp().with_timing(seconds(5), seconds(6)).unwrap_err().to_string(),
            "a health check every 5s cannot wait 6s for its answer: \
             the timeout is more than 0 and no longer than the interval"
        );
    }
}

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{plain_number, quoted};

/// A range of ports, both ends included. Printed `443` or `8000-8010`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text or a pair is not a range of ports.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PortError {
    /// Not one or two port numbers.
    #[error(
        "{} is not a port or a range of ports: write `443` or `8000-8010`, with numbers from 0 to 65535",
        quoted(.0)
    )]
    Unreadable(String),
    /// The ends are the wrong way round.
    #[error("`{0}-{1}` is not a range of ports: its first port comes after its last")]
    Reversed(u16, u16),
}

impl PortRange {
    /// Every port.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    /// The ports `first` to `last`, both included.
    pub fn new(first: u16, last: u16) -> Result<Self, PortError> {
        if first > last {
            return Err(PortError::Reversed(first, last));
        }
        Ok(Self { first, last })
    }

    /// One port.
    pub fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The first port.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The last port.
    pub fn last(&self) -> u16 {
        self.last
    }

    /// Whether it is one port only.
    pub fn is_single(&self) -> bool {
        self.first == self.last
    }

    /// Whether the port is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Whether every port of `other` is in this range.
    pub fn covers(&self, other: &Self) -> bool {
        self.contains(other.first) && self.contains(other.last)
    }
}

impl FromStr for PortRange {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let port = |digits| {
            plain_number(digits)
                .and_then(|number| u16::try_from(number).ok())
                .ok_or_else(|| PortError::Unreadable(text.to_owned()))
        };
        match text.split_once('-') {
            Some((first, last)) => Self::new(port(first)?, port(last)?),
            None => Ok(Self::single(port(text)?)),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_single() {
            return f.pad(&self.first.to_string());
        }
        f.pad(&format!("{}-{}", self.first, self.last))
    }
}

impl TryFrom<String> for PortRange {
    type Error = PortError;

    fn try_from(text: String) -> Result<Self, PortError> {
        text.parse()
    }
}

impl From<PortRange> for String {
    fn from(ports: PortRange) -> Self {
        ports.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, first, last) in [("443", 443, 443), ("8000-8010", 8000, 8010), ("0-65535", 0, 65535)] {
            let ports: PortRange = text.parse().unwrap();
            assert_eq!((ports.first(), ports.last()), (first, last));
            assert_eq!(ports.to_string(), text);
        }
        assert_eq!("7-7".parse::<PortRange>().unwrap().to_string(), "7");
        assert_eq!("0-65535".parse::<PortRange>().unwrap(), PortRange::ALL);
        assert_eq!(format!("{:>5}|{:<9}|", PortRange::single(7), PortRange::ALL), "    7|0-65535  |");
    }

    #[test]
    fn refuses_with_a_sentence() {
        for text in ["", "70000", "http", "-1", "1-", "-", "1-2-3", "+1", "01", "1 - 2"] {
            assert_eq!(
                text.parse::<PortRange>().unwrap_err(),
                PortError::Unreadable(text.to_owned()),
                "{text}"
            );
        }
        assert_eq!(
            "90-80".parse::<PortRange>().unwrap_err().to_string(),
            "`90-80` is not a range of ports: its first port comes after its last"
        );
    }

    #[test]
    fn contains_and_covers() {
        let ports = PortRange::new(10, 20).unwrap();
        assert_eq!([9, 10, 20, 21].map(|port| ports.contains(port)), [false, true, true, false]);
        for (first, last, covered) in [(10, 20, true), (11, 19, true), (9, 20, false), (10, 21, false)] {
            assert_eq!(ports.covers(&PortRange::new(first, last).unwrap()), covered, "{first}-{last}");
        }
    }
}

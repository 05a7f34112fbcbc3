use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, in whole seconds: `90s`, `15m`, `1h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(u32);

/// The units, the largest first.
const UNITS: [(char, u32); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
const EXPECTED: &str = "a length of time such as 90s, 15m, 1h or 7d";

impl Period {
    pub const fn seconds(seconds: u32) -> Self {
        Period(seconds)
    }

    pub fn as_seconds(self) -> i64 {
        i64::from(self.0)
    }

    pub fn as_duration(self) -> Duration {
        Duration::from_secs(u64::from(self.0))
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected {EXPECTED}");
        let (unit, seconds) =
            UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit)).ok_or_else(expected)?;
        let number = text.strip_suffix(unit).unwrap_or_default().parse::<u32>().map_err(|_| expected())?;
        number.checked_mul(seconds).map(Period).ok_or_else(expected)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.into_iter().find(|(_, seconds)| self.0 != 0 && self.0.is_multiple_of(*seconds));
        let (unit, seconds) = whole.unwrap_or(('s', 1));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Period;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Period, E> {
                text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_and_written() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604_800)] {
            assert_eq!(text.parse(), Ok(Period(seconds)));
            assert_eq!(Period(seconds).to_string(), text);
        }
        for wrong in ["", "h", "90", "-1s", "1.5h", "1h30m", "1hh", "99999999d"] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
    }
}

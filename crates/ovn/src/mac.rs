use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

/// The text is no hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a hardware address: write six pairs of hexadecimal digits, such as fa:16:3e:00:12:34")]
pub struct MacError(String);

impl Mac {
    /// The address of these bytes.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Three bytes that all addresses of a place share, and three that are its own.
    pub fn under(base: [u8; 3], number: Uuid) -> Self {
        let [.., x, y, z] = *number.as_bytes();
        Self([base[0], base[1], base[2], x, y, z])
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// Whether it names one machine: not several, and not none.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let wrong = || MacError(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut pairs = text.split(separator);
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2).ok_or_else(wrong)?;
            // `from_str_radix` takes a sign.
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        if pairs.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&pairs.join(":"))
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, written) in [
            ("fa:16:3e:00:12:34", "fa:16:3e:00:12:34"),
            ("FA:16:3E:00:12:34", "fa:16:3e:00:12:34"),
            ("00-11-22-33-44-55", "00:11:22:33:44:55"),
        ] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), written);
        }
        for wrong in
            ["", "fa:16:3e:00:12", "fa:16:3e:00:12:34:56", "fa:16:3e:00:12:3", "+a:16:3e:00:12:34", "x"]
        {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}

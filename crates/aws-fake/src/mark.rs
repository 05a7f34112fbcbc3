//! Marks with which the next page of a list is asked for: nobody else is to make sense of them.

use std::fmt::Write;

/// The mark for what comes after a key.
pub(crate) fn after(key: &str) -> String {
    key.bytes().rev().fold(String::from("m"), |mut mark, byte| {
        let _ = write!(mark, "{byte:02x}");
        mark
    })
}

/// The key of a mark.
pub(crate) fn key(mark: &str) -> Option<String> {
    let digits = mark.strip_prefix('m').filter(|digits| digits.is_ascii() && digits.len() % 2 == 0)?;
    let pairs =
        (0..digits.len()).step_by(2).map(|place| u8::from_str_radix(&digits[place..place + 2], 16).ok());
    let bytes: Option<Vec<u8>> = pairs.rev().collect();
    String::from_utf8(bytes?).ok()
}

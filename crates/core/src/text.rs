//! Small checks on text that people write.

/// Reads a number of plain digits: no sign, no leading zero, no space. `str::parse` alone would take
/// `+80` and `080`, which other programs read as something else or refuse. A number too large for the type
/// becomes the largest, which is out of every range that is read here.
pub(crate) fn plain_number(text: &str) -> Option<u32> {
    let plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().unwrap_or(u32::MAX))
}

/// Whether `text` can stand for a name in a table, a tag or a configuration file: not empty, no space around
/// it that a store may trim, and nothing in it that would start another line or move a terminal's cursor.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_plain_digits() {
        for (text, number) in
            [("0", Some(0)), ("80", Some(80)), ("4294967295", Some(u32::MAX)), ("4294967296", Some(u32::MAX))]
        {
            assert_eq!(plain_number(text), number, "{text}");
        }
        for text in ["", "+80", "-1", "080", "00", " 80", "80 ", "8_0", "٨٠", "0x50"] {
            assert_eq!(plain_number(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_one_visible_line() {
        assert!(is_name("shop"));
        assert!(is_name("my shop"));
        for text in ["", " ", " shop", "shop ", "a\nb", "a\u{1b}[31m", "\t"] {
            assert!(!is_name(text), "{text:?}");
        }
    }
}

//! Small checks on text that people write, and how it is shown again.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

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
/// it that a store may trim, and nothing in it that does not show.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.contains(is_hidden)
}

/// Whether a character does something to a text instead of showing in it: it starts another line, moves a
/// terminal's cursor, turns the direction of writing, or makes two texts look the same that are not.
pub(crate) fn is_hidden(character: char) -> bool {
    let invisible = matches!(
        character,
        // Soft hyphen, grapheme joiner, Mongolian and Hangul fillers, zero width, invisible operators.
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        // Annotations, selectors of variants, tags.
        | '\u{fe00}'..='\u{fe0f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    );
    let of_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
    );
    let of_lines = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || invisible || of_direction || of_lines
}

/// The text with everything that does not show written as an escape, such as `\n` or `\u{1b}`.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        push_shown(&mut shown, character);
    }
    shown
}

/// What was given, for a message that refuses it: in backticks, nothing hidden, and cut where it is long, so
/// that whoever sends it cannot write the rest of the message, or fill a log.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown = String::from("`");
    let mut room = LONGEST;
    for character in text.chars() {
        let mut next = String::new();
        if character == '`' {
            next.push('\\');
        }
        push_shown(&mut next, character);
        let Some(left) = room.checked_sub(next.chars().count()) else {
            shown.push('…');
            break;
        };
        room = left;
        shown.push_str(&next);
    }
    shown.push('`');
    shown
}

/// The text with spaces after it up to a width in columns of a terminal, where a character may take two.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{:gap$}", "", gap = width.saturating_sub(text.width()))
}

/// A list as people can take it in: the first twenty, and how many more there are.
pub(crate) fn told(items: &[String], separator: &str) -> String {
    const TOLD: usize = 20;
    let told = items[..items.len().min(TOLD)].join(separator);
    match items.len().saturating_sub(TOLD) {
        0 => told,
        more => format!("{told}{separator}… and {} more", with_commas(more)),
    }
}

/// `4980` as `4,980`.
fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn push_shown(text: &mut String, character: char) {
    if is_hidden(character) {
        write!(text, "{}", character.escape_default()).expect("a string takes everything");
    } else {
        text.push(character);
    }
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
        assert!(is_name("Straße 東京 شوب"));
        for text in ["", " ", " shop", "shop ", "a\nb", "a\u{1b}[31m", "\t"] {
            assert!(!is_name(text), "{text:?}");
        }
        for hidden in
            ['\u{2028}', '\u{2029}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{200d}', '\u{feff}', '\u{ad}']
        {
            assert!(!is_name(&format!("a{hidden}b")), "{hidden:?}");
        }
    }

    #[test]
    fn hidden_characters_are_shown() {
        assert_eq!(shown("a\nb\u{1b}[31m\u{202e}é"), "a\\nb\\u{1b}[31m\\u{202e}é");
    }

    #[test]
    fn pads_by_columns() {
        for (text, padded_text) in [("shop", "shop  "), ("東京", "東京  "), ("e\u{301}", "e\u{301}     ")]
        {
            assert_eq!(padded(text, 6), padded_text);
        }
        assert_eq!(padded("longer", 3), "longer");
    }

    #[test]
    fn long_lists_are_cut() {
        let list = |length: usize| vec!["x".to_owned(); length];
        assert_eq!(told(&list(20), ", "), ["x"; 20].join(", "));
        assert!(told(&list(5000), ", ").ends_with(", x, … and 4,980 more"));
        for (number, text) in [(1, "1"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }

    #[test]
    fn quotes_are_short_and_hide_nothing() {
        assert_eq!(quoted("10.0.0.0/8\n"), "`10.0.0.0/8\\n`");
        assert_eq!(quoted("a` is fine, `b"), "`a\\` is fine, \\`b`");
        assert_eq!(quoted(&"é".repeat(60)), format!("`{}`", "é".repeat(60)));
        assert_eq!(quoted(&"é".repeat(61)), format!("`{}…`", "é".repeat(60)));
        assert_eq!(quoted(&"\0".repeat(100)), format!("`{}…`", "\\u{0}".repeat(12)));
    }
}

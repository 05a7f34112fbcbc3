//! A configuration value that knows where it was written.
//!
//! Everything that is read, whether from a file or from `--set`, becomes a [`Node`]. Files are merged as
//! nodes and decoded from nodes, so an error found at the very end can still name the line that caused it.

use std::fmt;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Location {
    Line {
        file: Arc<Path>,
        line: usize,
        /// Only where a line alone would not help: in a syntax error.
        column: Option<NonZero<usize>>,
    },
    /// The whole file: it could not be read, or it ended too early to name a line.
    File(Arc<Path>),
    /// A `--set` flag on the command line.
    Flag,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line, column: None } => write!(f, "{}:{line}", file.display()),
            Self::Line { file, line, column: Some(column) } => {
                write!(f, "{}:{line}:{column}", file.display())
            }
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Flag => f.write_str("--set"),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Location,
}

/// A value of YAML's core schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    /// Scalars that are not text keep their spelling: `1.10` where text is wanted stays `1.10`.
    Bool(bool, String),
    Int(i128, String),
    Float(f64, String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: Location,
    pub(crate) node: Node,
}

/// Two nodes are equal when they say the same, wherever they say it.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.node == other.node
    }
}

impl Node {
    pub(crate) fn new(value: Value, at: Location) -> Self {
        Self { value, at }
    }

    /// What stands under `keys`, each a key of the map under the one before it.
    pub(crate) fn get(&self, keys: &[&str]) -> Option<&Node> {
        let Some((first, rest)) = keys.split_first() else { return Some(self) };
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|e| e.key == *first)?.node.get(rest)
    }

    /// Where the last of `keys` was written, each a key of the map under the one before it.
    pub(crate) fn written_at(&self, keys: &[&str]) -> Option<&Location> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        let (first, rest) = keys.split_first()?;
        let entry = entries.iter().find(|e| e.key == *first)?;
        if rest.is_empty() { Some(&entry.key_at) } else { entry.node.written_at(rest) }
    }

    /// Where what stands at a path such as `users[0].name` was written, or the nearest thing around it that was.
    pub(crate) fn written_near(&self, path: &str) -> Option<&Location> {
        let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
        let (mut node, mut at) = (self, None);
        for step in steps {
            let found = match &node.value {
                Value::Map(entries) => {
                    entries.iter().find(|e| e.key == step).map(|entry| (&entry.node, &entry.key_at))
                }
                Value::List(items) => {
                    step.parse().ok().and_then(|index: usize| items.get(index)).map(|item| (item, &item.at))
                }
                _ => None,
            };
            let Some((inner, place)) = found else { break };
            (node, at) = (inner, Some(place));
        }
        at
    }

    /// How many nodes this one is made of, itself included. A long text counts as several.
    pub(crate) fn size(&self) -> usize {
        let text = |text: &str| text.len() / 100;
        1 + match &self.value {
            Value::Null => 0,
            Value::Bool(_, t) | Value::Int(_, t) | Value::Float(_, t) | Value::Text(t) => text(t),
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(entries) => entries.iter().map(|e| text(&e.key) + e.node.size()).sum(),
        }
    }
}

impl Value {
    /// What an unquoted scalar means in YAML 1.2's core schema: `yes`, `no` and `on` are plain text there.
    pub(crate) fn from_plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "true" | "True" | "TRUE" => return Self::Bool(true, text.to_owned()),
            "false" | "False" | "FALSE" => return Self::Bool(false, text.to_owned()),
            _ => {}
        }
        if let Some(int) = int(text) {
            return Self::Int(int, text.to_owned());
        }
        if let Some(float) = float(text) {
            return Self::Float(float, text.to_owned());
        }
        Self::Text(text.to_owned())
    }

    /// The value as a person would call it in an error message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Text(text) if text.is_empty() => "an empty text".to_owned(),
            Self::Bool(_, text) | Self::Int(_, text) | Self::Float(_, text) | Self::Text(text) => {
                quoted(text)
            }
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

fn int(text: &str) -> Option<i128> {
    let digits = |s: &str, radix: u32| {
        // from_str_radix takes a sign as well; after a prefix YAML does not.
        let plain = !s.is_empty() && s.chars().all(|c| c.is_digit(radix));
        plain.then(|| i128::from_str_radix(s, radix).ok()).flatten()
    };
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    match text.strip_prefix('-') {
        Some(rest) => digits(rest, 10).map(|n| -n),
        None => digits(text.strip_prefix('+').unwrap_or(text), 10),
    }
}

fn float(text: &str) -> Option<f64> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        // Rust also reads `inf`, `infinity` and `nan`, which are plain text in YAML.
        _ if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            && text.contains(|c: char| c.is_ascii_digit()) =>
        {
            text.parse().ok()
        }
        _ => None,
    }
}

/// As many characters of a text are shown in an error message.
pub(crate) const LONGEST: usize = 60;

/// `text` between backticks, on one line and short enough for an error message.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST).flat_map(escaped).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

fn escaped(c: char) -> Vec<char> {
    if c.is_control() { c.escape_default().collect() } else { vec![c] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, expected) in [
            ("", "Null"),
            ("~", "Null"),
            ("null", "Null"),
            ("true", "Bool(true)"),
            ("FALSE", "Bool(false)"),
            ("yes", "Text"),
            ("on", "Text"),
            ("0", "Int(0)"),
            ("-12", "Int(-12)"),
            ("+12", "Int(12)"),
            ("007", "Int(7)"),
            ("0x1F", "Int(31)"),
            ("0o17", "Int(15)"),
            ("0x", "Text"),
            ("0x-1", "Text"),
            ("--1", "Text"),
            ("1_000", "Text"),
            ("18446744073709551615", "Int(18446744073709551615)"),
            ("1.10", "Float(1.1)"),
            ("1e3", "Float(1000)"),
            (".inf", "Float(inf)"),
            ("inf", "Text"),
            ("nan", "Text"),
            ("10.0.0.1", "Text"),
            ("127.0.0.1:9695", "Text"),
            ("::1", "Text"),
        ] {
            let kind = match Value::from_plain(text) {
                Value::Null => "Null".to_owned(),
                Value::Bool(b, _) => format!("Bool({b})"),
                Value::Int(n, _) => format!("Int({n})"),
                Value::Float(x, _) => format!("Float({x})"),
                Value::Text(_) => "Text".to_owned(),
                other => panic!("{text}: {other:?}"),
            };
            assert_eq!(kind, expected, "{text:?}");
        }
    }

    #[test]
    fn a_quoted_value_stays_short_and_on_one_line() {
        assert_eq!(quoted("a\nb"), r"`a\nb`");
        assert_eq!(quoted(&"x".repeat(61)), format!("`{}…`", "x".repeat(60)));
    }
}

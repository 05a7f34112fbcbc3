//! What is wrong, or only doubtful, in the configuration.

use std::fmt;

use super::node::Location;

/// One finding: where, which key, what. The same shape serves errors and warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) at: Location,
    /// The key path such as `telemetry.listen`; empty for the file as a whole.
    pub(crate) path: String,
    pub(crate) message: String,
    /// What to do about it, where that is not obvious from the message.
    pub(crate) hint: Option<String>,
}

impl Finding {
    pub(crate) fn new(at: Location, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at, path: path.into(), message: message.into(), hint: None }
    }

    /// What was found, without where.
    pub(crate) fn text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}. {hint}", self.message),
            None => self.message.clone(),
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        match (&self.at, self.path.as_str()) {
            (_, "") => {}
            // As it was typed: the flag, then its key.
            (Location::Flag, path) => write!(f, " {path}")?,
            (_, path) => write!(f, ": {path}")?,
        }
        write!(f, ": {}", self.text())
    }
}

/// The name that `typed` was most likely meant to be, if one is near enough: one slip, or one in three letters.
pub(crate) fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let most = (typed.chars().count() / 3).max(1);
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&typed, &name.to_lowercase()), *name))
        .filter(|(slips, _)| *slips <= most)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

/// The hint for a name that is not known, if a known one is near.
pub(crate) fn did_you_mean(typed: &str, known: &[&str]) -> Option<String> {
    nearest(typed, known).map(|name| format!("Did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_or_none_is_offered() {
        for (typed, expected) in [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("listenaddress", Some("listenAddress")),
            ("obsrve", Some("observe")),
            ("lgo", Some("log")),
            ("listenAddr", Some("listenAddress")),
            ("x", None),
            ("color", None),
            ("", None),
        ] {
            assert_eq!(
                nearest(typed, &["listen", "listenAddress", "observe", "manage", "log"]),
                expected,
                "{typed}"
            );
        }
    }
}

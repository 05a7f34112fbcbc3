//! Files of sections and `key=value` lines, as ovirt-provider-ovn is configured by.

use std::collections::BTreeMap;

/// Values by section and key. Keys are in small letters, as they are looked for without regard to them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ini(BTreeMap<(String, String), String>);

impl Ini {
    /// Adds what a file says, over what was said before it. An error names the line.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        let mut section = None;
        for (number, line) in (1..).zip(text.lines()) {
            let text = line.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = text.strip_prefix('[') {
                let name =
                    name.strip_suffix(']').ok_or_else(|| format!("line {number}: a `]` is missing"))?;
                section = Some(name.to_owned());
                continue;
            }
            if line.starts_with(char::is_whitespace) {
                return Err(format!("line {number}: it begins with a space: write every value in one line"));
            }
            let (key, value) = text
                .split_once(['=', ':'])
                .ok_or_else(|| format!("line {number}: it is neither [section] nor key=value"))?;
            let section = section.clone().ok_or_else(|| format!("line {number}: it is in no [section]"))?;
            self.0.insert((section, key.trim().to_lowercase()), value.trim().to_owned());
        }
        Ok(())
    }

    pub(super) fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.0.get(&(section.to_owned(), key.to_owned())).map(String::as_str)
    }

    /// Everything, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.0.iter().map(|((section, key), value)| (section.as_str(), key.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_comments_are_told_apart() {
        let mut ini = Ini::default();
        ini.read(
            "# first\n[OVN REMOTE]\novn-remote=tcp:127.0.0.1:6641\n\n; more\n[A]\nKey = a = b \nempty=\n",
        )
        .unwrap();
        ini.read("[A]\nkey: later\n").unwrap();
        let entries: Vec<_> = ini.entries().collect();
        assert_eq!(
            entries,
            [("A", "empty", ""), ("A", "key", "later"), ("OVN REMOTE", "ovn-remote", "tcp:127.0.0.1:6641")]
        );
        assert_eq!((ini.get("A", "key"), ini.get("A", "none")), (Some("later"), None));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, expected) in [
            ("key=value", "line 1: it is in no [section]"),
            ("[A\n", "line 1: a `]` is missing"),
            ("[A]\n\nnonsense", "line 3: it is neither [section] nor key=value"),
            ("[A]\nkey=1\n  2", "line 3: it begins with a space: write every value in one line"),
        ] {
            assert_eq!(Ini::default().read(text), Err(expected.to_owned()), "{text:?}");
        }
    }
}

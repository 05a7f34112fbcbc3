//! The syntax of a cloud-config: sections, keys and values as Git has them in its own configuration.

use std::iter::Peekable;
use std::str::Chars;

use super::CloudConfigError;

/// `[Name "subsection"]` and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) subsection: Option<String>,
    pub(super) entries: Vec<Entry>,
}

/// `key = value`, or a key alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// Reads all sections, in their order. One that is there twice is given twice.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, CloudConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let mut sections: Vec<Section> = Vec::new();
    loop {
        reader.skip_blank();
        let line = reader.line;
        match reader.rest.peek() {
            None => return Ok(sections),
            Some('\n') => reader.next_line(),
            Some(';' | '#') => reader.skip_comment(),
            Some('[') => sections.push(reader.section()?),
            Some(start) if start.is_alphabetic() => {
                let entry = reader.entry()?;
                let Some(section) = sections.last_mut() else {
                    let what = format!("`{}` stands before any section: put `[Global]` first", entry.key);
                    return Err(CloudConfigError::new(line, what));
                };
                section.entries.push(entry);
            }
            Some(other) => {
                let what = format!("a line cannot start with `{}`", other.escape_default());
                return Err(CloudConfigError::new(line, what));
            }
        }
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn skip_blank(&mut self) {
        while self.rest.next_if(|next| matches!(next, ' ' | '\t' | '\r')).is_some() {}
    }

    fn skip_comment(&mut self) {
        while self.rest.next_if(|next| *next != '\n').is_some() {}
    }

    fn next_line(&mut self) {
        self.rest.next();
        self.line += 1;
    }

    /// A word of letters, digits and dashes.
    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(next) = self.rest.next_if(|next| next.is_alphanumeric() || matches!(next, '-' | '_')) {
            name.push(next);
        }
        name
    }

    fn section(&mut self) -> Result<Section, CloudConfigError> {
        let line = self.line;
        self.rest.next();
        self.skip_blank();
        let name = self.name();
        if name.is_empty() {
            return Err(CloudConfigError::new(line, "a section needs a name: `[Global]`"));
        }
        self.skip_blank();
        let subsection = match self.rest.peek() {
            Some('"') => Some(self.subsection()?),
            _ => None,
        };
        self.skip_blank();
        if self.rest.next() != Some(']') {
            return Err(CloudConfigError::new(line, format!("the section `{name}` does not end with `]`")));
        }
        self.skip_blank();
        match self.rest.peek() {
            None | Some('\n' | ';' | '#') => Ok(Section { line, name, subsection, entries: Vec::new() }),
            Some(_) => {
                let what = format!("what follows the section `{name}` belongs on a line of its own");
                Err(CloudConfigError::new(line, what))
            }
        }
    }

    fn subsection(&mut self) -> Result<String, CloudConfigError> {
        let line = self.line;
        let mut name = String::new();
        self.rest.next();
        loop {
            match self.rest.next() {
                None | Some('\n') => {
                    return Err(CloudConfigError::new(line, "a quotation mark is never closed"));
                }
                Some('"') => return Ok(name),
                Some('\\') => match self.rest.next() {
                    Some(escaped @ ('"' | '\\')) => name.push(escaped),
                    _ => {
                        return Err(CloudConfigError::new(
                            line,
                            "only `\\\"` and `\\\\` can be written with `\\` here",
                        ));
                    }
                },
                Some(next) => name.push(next),
            }
        }
    }

    fn entry(&mut self) -> Result<Entry, CloudConfigError> {
        let line = self.line;
        let key = self.name();
        self.skip_blank();
        match self.rest.peek() {
            None | Some('\n' | ';' | '#') => Ok(Entry { line, key, value: None }),
            Some('=') => {
                self.rest.next();
                let value = Some(self.value(&key)?);
                Ok(Entry { line, key, value })
            }
            Some(_) => Err(CloudConfigError::new(line, format!("`{key}` is not followed by `=`"))),
        }
    }

    /// What stands between `=` and the end of the line or a comment, without the spaces around it unless they are in
    /// quotation marks.
    fn value(&mut self, key: &str) -> Result<String, CloudConfigError> {
        let (mut value, mut kept, mut quoted) = (String::new(), 0, false);
        self.skip_blank();
        loop {
            match self.rest.peek().copied() {
                None | Some('\n') if quoted => {
                    let what = format!("a quotation mark in the value of `{key}` is never closed");
                    return Err(CloudConfigError::new(self.line, what));
                }
                None | Some('\n') => break,
                Some(';' | '#') if !quoted => break,
                Some('"') => {
                    self.rest.next();
                    quoted = !quoted;
                    kept = value.len();
                }
                Some('\\') => {
                    self.rest.next();
                    self.escaped(key, &mut value)?;
                    kept = value.len();
                }
                Some(next) => {
                    self.rest.next();
                    value.push(next);
                    if quoted || !next.is_whitespace() {
                        kept = value.len();
                    }
                }
            }
        }
        value.truncate(kept);
        Ok(value)
    }

    fn escaped(&mut self, key: &str, value: &mut String) -> Result<(), CloudConfigError> {
        self.rest.next_if_eq(&'\r');
        match self.rest.next() {
            Some('\n') => self.line += 1,
            Some(same @ ('"' | '\\')) => value.push(same),
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('b') => value.push('\u{8}'),
            _ => {
                let what =
                    format!("`\\` in the value of `{key}` must be doubled, or followed by `\"`, n, t or b");
                return Err(CloudConfigError::new(self.line, what));
            }
        }
        Ok(())
    }
}

/// A value so that [`parse`] gives it back, as plain as can be.
pub(super) fn quoted(value: &str) -> String {
    let plain = value.trim() == value && !value.contains(['"', '\\', ';', '#', '\n', '\t', '\u{8}']);
    if plain {
        return value.to_owned();
    }
    let escaped = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\t', "\\t")
        .replace('\u{8}', "\\b");
    format!("\"{escaped}\"")
}

//! Reads one YAML 1.2 document into nodes.
//!
//! What is refused, and why:
//! - the same key twice in one map: one of the two would be lost in silence;
//! - a second document in the file: it would never be read;
//! - merge keys (`<<`): not YAML 1.2, and drop-in files do the same job;
//! - tags (`!!int`, `!secret`): nothing here gives them a meaning;
//! - a map or a list as a key: no configuration key looks like that.
//!
//! Anchors and aliases are accepted; how many values they may copy is bounded.

use std::collections::HashMap;
use std::num::NonZero;
use std::path::Path as FilePath;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::finding::Finding;
use super::node::{Entry, Location, Node, Value, quoted};
use super::path::Path;

/// Far deeper than any configuration; it keeps a hostile file from exhausting the stack.
const DEEPEST: usize = 64;
/// Aliases of aliases grow exponentially, and what has an anchor is kept twice; no honest file comes near this.
const MOST_COPIED: usize = 10_000;

/// The document in `text`, or [`Value::Null`] for a file without one. `file` is only named in errors.
pub(crate) fn parse(file: &FilePath, text: &str) -> Result<Node, Finding> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        file: Arc::from(file),
        text,
        anchors: HashMap::new(),
        copied: 0,
    };
    reader.document()
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    file: Arc<FilePath>,
    text: &'t str,
    anchors: HashMap<usize, Node>,
    /// The size of all copies made for anchors and aliases.
    copied: usize,
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Node, Finding> {
        let mut document = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if document.is_some() => {
                    return Err(Finding::new(
                        self.line(span.start),
                        "",
                        "a second YAML document starts here",
                    )
                    .with_hint("A file holds one document: put the other one into a file of its own"));
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    document = Some(self.node(event, span, &Path::Top, 0)?);
                }
                _ => {}
            }
        }
        Ok(document.unwrap_or_else(|| Node::new(Value::Null, Location::File(self.file.clone()))))
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Finding> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok((Event::StreamEnd, Span::empty(Marker::new(0, 1, 0)))),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, path: &Path<'_>, depth: usize) -> Result<Node, Finding> {
        let at = self.line(span.start);
        if depth > DEEPEST {
            return Err(Finding::new(at, "", format!("nested deeper than {DEEPEST} levels")));
        }
        let (value, anchor) = match event {
            Event::Alias(id) => return self.alias(id, at, path),
            Event::Scalar(text, style, anchor, tag) => {
                no_tag(tag.as_deref(), &at, path)?;
                let value = match style {
                    ScalarStyle::Plain => Value::from_plain(&text),
                    _ => Value::Text(text.into_owned()),
                };
                (value, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                no_tag(tag.as_deref(), &at, path)?;
                (Value::List(self.list(path, depth)?), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                no_tag(tag.as_deref(), &at, path)?;
                (Value::Map(self.map(path, depth)?), anchor)
            }
            // A document without content.
            _ => return Ok(Node::new(Value::Null, at)),
        };
        let node = Node::new(value, at);
        if anchor != 0 {
            self.count(&node, &node.at, path)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, path: &Path<'_>, depth: usize) -> Result<Vec<Node>, Finding> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd | Event::StreamEnd) {
                return Ok(items);
            }
            let path = Path::Item(path, items.len());
            items.push(self.node(event, span, &path, depth + 1)?);
        }
    }

    fn map(&mut self, path: &Path<'_>, depth: usize) -> Result<Vec<Entry>, Finding> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(entries);
            }
            let key_at = self.line(span.start);
            let key = self.key(event, span, path, depth)?;
            let path = Path::Key(path, &key);
            if let Some(first) = entries.iter().find(|e| e.key == key) {
                let first = match first.key_at {
                    Location::Line { line, .. } => format!("line {line}"),
                    _ => "another place".to_owned(),
                };
                return Err(Finding::new(
                    key_at,
                    path.to_string(),
                    format!("given twice, the first time on {first}"),
                )
                .with_hint("Remove one of the two"));
            }
            let (event, span) = self.next()?;
            let mut node = self.node(event, span, &path, depth + 1)?;
            // An absent value starts where the parser noticed its absence, and a block below its key: for
            // both the line of the key is the one to look at.
            if matches!(node.value, Value::Null | Value::List(_) | Value::Map(_)) {
                node.at = key_at.clone();
            }
            entries.push(Entry { key, key_at, node });
        }
    }

    fn key(
        &mut self,
        event: Event<'t>,
        span: Span,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<String, Finding> {
        let plain = match &event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Some(text.to_string()),
            _ => None,
        };
        let key = self.node(event, span, path, depth + 1)?;
        match key.value {
            Value::Text(text) if plain.is_some() && text == "<<" => {
                Err(Finding::new(key.at, path.to_string(), "merge keys (`<<`) are not supported")
                    .with_hint("Write the keys out, or put them into a drop-in file"))
            }
            Value::Text(text) | Value::Bool(_, text) | Value::Int(_, text) | Value::Float(_, text) => {
                Ok(text)
            }
            Value::Null => Err(match plain.as_deref() {
                None | Some("") => Finding::new(key.at, path.to_string(), "a key is missing before `:`"),
                Some(null) => {
                    let message = format!("{} is no key: it means that there is nothing", quoted(null));
                    Finding::new(key.at, path.to_string(), message).with_hint("Quotes make it a name")
                }
            }),
            Value::List(_) | Value::Map(_) => Err(Finding::new(
                key.at,
                path.to_string(),
                format!("expected a name as key, found {}", key.value.describe()),
            )),
        }
    }

    fn alias(&mut self, id: usize, at: Location, path: &Path<'_>) -> Result<Node, Finding> {
        let Some(node) = self.anchors.get(&id).cloned() else {
            return Err(Finding::new(at, path.to_string(), "the alias stands inside the value it repeats"));
        };
        self.count(&node, &at, path)?;
        Ok(node)
    }

    /// Counts a copy of `node`, made because of what stands at `at`.
    fn count(&mut self, node: &Node, at: &Location, path: &Path<'_>) -> Result<(), Finding> {
        self.copied += node.size();
        if self.copied > MOST_COPIED {
            let message = format!("anchors and aliases repeat more than {MOST_COPIED} values");
            return Err(Finding::new(at.clone(), path.to_string(), message));
        }
        Ok(())
    }

    fn line(&self, mark: Marker) -> Location {
        Location::Line { file: self.file.clone(), line: mark.line(), column: None }
    }

    fn syntax(&self, error: &ScanError) -> Finding {
        let mark = *error.marker();
        let column = NonZero::new(mark.col() + 1);
        let at = Location::Line { file: self.file.clone(), line: mark.line(), column };
        let finding = Finding::new(at, "", format!("not valid YAML: {}", error.info().trim_end_matches('.')));
        // The likeliest reasons in this program's files, which YAML itself cannot guess.
        if indented_with_tab(self.text, mark.line()) {
            finding.with_hint("Indent with spaces, not with tabs")
        } else if self.text.lines().nth(mark.line().saturating_sub(1)).is_some_and(|l| l.contains(":\t")) {
            finding.with_hint("Write a space after the colon, not a tab")
        } else if let Some(address) = bracketed_address(self.text, mark.line()) {
            finding.with_hint(format!("An address in brackets needs quotes: \"{address}\""))
        } else {
            finding
        }
    }
}

fn no_tag(tag: Option<&Tag>, at: &Location, path: &Path<'_>) -> Result<(), Finding> {
    let Some(tag) = tag else { return Ok(()) };
    let name = match tag.handle.as_str() {
        "tag:yaml.org,2002:" => format!("!!{}", tag.suffix),
        handle => format!("{handle}{}", tag.suffix),
    };
    let message = format!("the tag {} is not supported", quoted(&name));
    Err(Finding::new(at.clone(), path.to_string(), message).with_hint("Remove it; quotes make a value text"))
}

/// Whether there is a tab before the first word of `line` or of the one after it, where a value ends (the parser
/// reports that one where the value begins).
fn indented_with_tab(text: &str, line: usize) -> bool {
    let mut lines = text.lines().skip(line.saturating_sub(1));
    let here = lines.next();
    let after = lines.find(|l| !l.trim().is_empty());
    here.into_iter().chain(after).any(|l| l[..l.len() - l.trim_start().len()].contains('\t'))
}

/// An unquoted `[::1]:80` on `line` or the one before it (the parser may notice one line late).
fn bracketed_address(text: &str, line: usize) -> Option<&str> {
    let lines = text.lines().skip(line.saturating_sub(2)).take(2);
    lines
        .filter_map(|l| {
            let start = l.find('[')?;
            let word = l[start..].split_whitespace().next()?;
            let before = l[..start].trim_end();
            (word.contains("]:") && before.ends_with([':', '-'])).then_some(word)
        })
        .last()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn error(text: &str) -> String {
        match parse("c.yaml".as_ref(), text) {
            Ok(node) => format!("accepted: {node:?}"),
            Err(finding) => finding.to_string(),
        }
    }

    #[test]
    fn what_is_refused_names_its_line_and_key() {
        for (text, expected) in [
            (
                "log:\n  level: info\n  format: text\n  level: debug\n",
                "c.yaml:4: log.level: given twice, the first time on line 2. Remove one of the two",
            ),
            ("{a: 1, \"a\": 2}", "c.yaml:1: a: given twice, the first time on line 1. Remove one of the two"),
            (
                "mode: manage\n---\nmode: observe\n",
                "c.yaml:2: a second YAML document starts here. A file holds one document: put the other one into a file of its own",
            ),
            (
                "base: &b {level: info}\nlog:\n  <<: *b\n",
                "c.yaml:3: log: merge keys (`<<`) are not supported. Write the keys out, or put them into a drop-in file",
            ),
            (
                "log:\n  level: !!str 5\n",
                "c.yaml:2: log.level: the tag `!!str` is not supported. Remove it; quotes make a value text",
            ),
            (
                "a: !secret x\n",
                "c.yaml:1: a: the tag `!secret` is not supported. Remove it; quotes make a value text",
            ),
            ("? [a, b]\n: 1\n", "c.yaml:1: expected a name as key, found a list"),
            ("log: {: 1}\n", "c.yaml:1: log: a key is missing before `:`"),
            (
                "null: x\n",
                "c.yaml:1: `null` is no key: it means that there is nothing. Quotes make it a name",
            ),
            (
                "log:\n  ~: x\n",
                "c.yaml:2: log: `~` is no key: it means that there is nothing. Quotes make it a name",
            ),
            ("a: &x [1, *x]\n", "c.yaml:1: a[1]: the alias stands inside the value it repeats"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn syntax_errors_name_line_and_column() {
        for (text, expected) in [
            ("log:\n  level: 'info\n", "c.yaml:2:10: not valid YAML: "),
            ("log:\n\tlevel: info\n", "c.yaml:2:2: not valid YAML: tabs disallowed"),
            ("log:\n\tlevel: info\n", "Indent with spaces"),
            ("log:\n  level: info\n\tformat: text\n", "Indent with spaces"),
            ("log:\n  level: info\n\n \tformat: text\n", "Indent with spaces"),
            ("mode:\tobserve\n", "Write a space after the colon, not a tab"),
            ("telemetry:\n  listen: [::1]:9695\n", "An address in brackets needs quotes: \"[::1]:9695\""),
            ("a: *nobody\n", "c.yaml:1:4: not valid YAML: "),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{text}\n{error}");
            assert!(error.contains("c.yaml:") && error.contains(": not valid YAML: "), "{error}");
        }
    }

    #[test]
    fn a_tab_elsewhere_is_not_blamed() {
        for text in ["mode: \"a\tb\" c\n", "mode: 'x\t\n", "mode: [\t# why\n"] {
            let error = error(text);
            assert!(error.contains("not valid YAML") && !error.contains("tab"), "{error}");
        }
        for text in ["mode: observe\t# why\n", "mode: \tobserve\n", "\tmode: observe\n"] {
            assert!(parse("c.yaml".as_ref(), text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn an_empty_document_is_null() {
        for text in ["", "\n", "# nothing\n", "---\n", "---\n...\n", "~", "\u{feff}"] {
            assert_eq!(parse("c.yaml".as_ref(), text).unwrap().value, Value::Null, "{text:?}");
        }
    }

    #[test]
    fn aliases_repeat_their_anchor_within_bounds() {
        let node = parse("c.yaml".as_ref(), "a: &x {b: [1]}\nc: *x\n").unwrap();
        let Value::Map(entries) = node.value else { panic!("not a map") };
        assert_eq!(entries[0].node, entries[1].node);

        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..9 {
            let ten = vec![format!("*a{}", n - 1); 10].join(", ");
            writeln!(bomb, "a{n}: &a{n} [{ten}]").unwrap();
        }
        let anchors: Vec<_> = (0..60).map(|n| format!("&a{n} [")).collect();
        let nested = anchors.concat() + &"x, ".repeat(100_000) + &"]".repeat(60);
        let long = format!("- &a {}\n", "x".repeat(100_000)) + &"- *a\n".repeat(100);
        for text in [bomb, nested, long] {
            let error = error(&text);
            assert!(error.contains("anchors and aliases repeat more than 10000 values"), "{error}");
        }
        assert!(parse("c.yaml".as_ref(), &(anchors.concat() + &"]".repeat(60))).is_ok());
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse("c.yaml".as_ref(), &deep(60)).is_ok());
        assert!(error(&deep(200)).contains("nested deeper than 64 levels"));
        assert!(!error(&deep(100_000)).starts_with("accepted"));
        assert!(!error(&"- ".repeat(100_000)).starts_with("accepted"));
    }

    #[test]
    fn lines_are_those_of_the_key_for_blocks_and_of_the_text_for_scalars() {
        let node = parse("c.yaml".as_ref(), "a:\n  b: 1\nlist:\n- x\n- y\nempty:\n\nlast: 1\n").unwrap();
        let Value::Map(entries) = node.value else { panic!("not a map") };
        let lines: Vec<_> = entries.iter().map(|e| e.node.at.to_string()).collect();
        assert_eq!(lines, ["c.yaml:1", "c.yaml:3", "c.yaml:6", "c.yaml:8"]);
        let Value::List(items) = &entries[1].node.value else { panic!("not a list") };
        assert_eq!(items[1].at.to_string(), "c.yaml:5");
    }
}

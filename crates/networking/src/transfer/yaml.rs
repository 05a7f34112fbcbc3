//! Reads a YAML 1.2 document into JSON's values.
//!
//! Anchors, aliases and tags are refused: a list of groups needs none, and aliases of aliases grow without bounds.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Map, Value};

/// Far deeper than any file of groups; it keeps a hostile one from exhausting the stack.
const DEEPEST: usize = 16;

/// The document in a text, or what is wrong with it and in which line.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut reader = Reader { parser: Parser::new_from_str(text) };
    let mut document = None;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(document.unwrap_or(Value::Null)),
            (Event::DocumentStart(_), span) => {
                if document.is_some() {
                    return Err(at(span, "a second document starts here"));
                }
                let (event, span) = reader.next()?;
                document = Some(reader.value(event, span, 0)?);
            }
            _ => {}
        }
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

fn at(span: Span, what: &str) -> String {
    format!("YAML line {}: {what}", span.start.line())
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(format!("YAML line {}: {}", error.marker().line(), error.info())),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn value(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err(at(span, &format!("nested deeper than {DEEPEST} levels")));
        }
        match event {
            Event::Scalar(text, style, 0, None) => Ok(match style {
                ScalarStyle::Plain => plain(&text),
                _ => Value::String(text.into_owned()),
            }),
            Event::SequenceStart(0, None) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(Value::Array(items)),
                        (event, span) => items.push(self.value(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(0, None) => {
                let mut entries = Map::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd | Event::StreamEnd, _) => return Ok(Value::Object(entries)),
                        (Event::Scalar(text, _, 0, None), _) => text.into_owned(),
                        (_, span) => return Err(at(span, "a key must be a plain text")),
                    };
                    let (event, span) = self.next()?;
                    let value = self.value(event, span, depth + 1)?;
                    if entries.contains_key(&key) {
                        return Err(at(span, &format!("`{key}` is there twice")));
                    }
                    entries.insert(key, value);
                }
            }
            _ => Err(at(span, "anchors, aliases and tags are not taken")),
        }
    }
}

/// A scalar without quotes, as YAML 1.2's core schema has it.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => Value::String(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_become_values() {
        for (text, expected) in [
            ("", json!(null)),
            ("a: 1\nb: [x, \"2\", ~, true, -3]", json!({"a": 1, "b": ["x", "2", null, true, -3]})),
            ("- a: {b: 'c'}\n- |\n  text\n", json!([{"a": {"b": "c"}}, "text\n"])),
            (r#"{"json": ["is", "YAML"]}"#, json!({"json": ["is", "YAML"]})),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("a: &x 1", "YAML line 1: anchors, aliases and tags are not taken"),
            ("a: !!int 1", "YAML line 1: anchors, aliases and tags are not taken"),
            ("a: 1\na: 2", "YAML line 2: `a` is there twice"),
            ("[a]: 1", "YAML line 1: a key must be a plain text"),
            ("a: 1\n---\nb: 2", "YAML line 2: a second document starts here"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
        assert!(read("a: [").is_err());
        assert!(read(&"[".repeat(1000)).is_err());
    }
}

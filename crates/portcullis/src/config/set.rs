//! `--set key.path=value`: one value on the command line, over all files.

use std::str::FromStr;

use super::finding::Finding;
use super::node::{Entry, Location, Node, Value};
use super::yaml;

/// A parsed `--set`. Keys are separated by dots, so a key that itself holds a dot can only be set in a file.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    keys: Vec<String>,
    value: Value,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write KEY=VALUE, for example telemetry.listen=127.0.0.1:9695";
        let Some((path, value)) = text.split_once('=') else {
            return Err(format!("there is no `=` in it; {example}"));
        };
        let keys: Vec<_> = path.split('.').map(str::to_owned).collect();
        if keys.iter().any(String::is_empty) {
            return Err(format!("`{path}` is not a key; {example}"));
        }
        if value.is_empty() {
            return Err(format!("there is no value after `=`; write `{path}=null` for the default"));
        }
        Ok(Self { keys, value: parse(value)? })
    }
}

/// Lists, maps and quoted text are YAML. Everything else is taken whole, so that `[::1]:9695` and `a: b # c`
/// need no second layer of quotes under the shell's.
fn parse(text: &str) -> Result<Value, String> {
    let yaml = [('[', ']'), ('{', '}'), ('"', '"'), ('\'', '\'')];
    if !yaml.iter().any(|(first, last)| text.len() > 1 && text.starts_with(*first) && text.ends_with(*last)) {
        return Ok(Value::from_plain(text));
    }
    yaml::parse("--set".as_ref(), text).map(|node| node.value).map_err(|Finding { message, .. }| message)
}

impl Setting {
    /// The setting as a document of its own, to be merged over the others.
    pub(crate) fn into_node(self) -> Node {
        let mut node = Node::new(self.value, Location::Flag);
        relocate(&mut node);
        for key in self.keys.into_iter().rev() {
            let entry = Entry { key, key_at: Location::Flag, node };
            node = Node::new(Value::Map(vec![entry]), Location::Flag);
        }
        node
    }
}

/// "line 1" of a flag would say nothing.
fn relocate(node: &mut Node) {
    node.at = Location::Flag;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(relocate),
        Value::Map(entries) => {
            for entry in entries {
                entry.key_at = Location::Flag;
                relocate(&mut entry.node);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_as_the_same_yaml_would() {
        for (text, yaml) in [
            ("mode=observe", "mode: observe"),
            ("mode=null", "mode:"),
            ("a.b.c=1", "a: {b: {c: 1}}"),
            ("a=[1, x]", "a: [1, x]"),
            ("a={b: true}", "a: {b: true}"),
            ("a='1'", "a: '1'"),
            ("a.b=[::1]:9695", "a: {b: '[::1]:9695'}"),
            ("a=b=c", "a: b=c"),
            ("a=info,hyper=off", "a: info,hyper=off"),
        ] {
            let expected = yaml::parse("c.yaml".as_ref(), yaml).unwrap();
            assert_eq!(text.parse::<Setting>().unwrap().into_node(), expected, "{text}");
        }
    }

    #[test]
    fn a_setting_without_key_or_value_is_refused() {
        for text in ["mode", "mode=", "=x", "a..b=1", ".a=1", "a=[1", ""] {
            // `a=[1` does not end in a bracket: it is text, and the decoder will judge it.
            assert_eq!(text.parse::<Setting>().is_err(), text != "a=[1", "{text}");
        }
        assert!("a=[1,,]".parse::<Setting>().is_err());
    }
}

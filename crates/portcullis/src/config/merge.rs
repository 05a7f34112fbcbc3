//! JSON Merge Patch (RFC 7396) over nodes: how one configuration file changes the one before it.

use super::node::{Entry, Node, Value};

/// `target` after `patch`: maps are merged key by key, a null removes its key, and anything else replaces what
/// was there. Values keep the place they were written at.
pub(crate) fn merge(target: Node, patch: Node) -> Node {
    let Value::Map(changes) = patch.value else {
        return patch;
    };
    let (mut entries, at) = match target.value {
        Value::Map(entries) => (entries, target.at),
        _ => (Vec::new(), patch.at),
    };
    for change in changes {
        let old = entries.iter().position(|e| e.key == change.key);
        if change.node.value == Value::Null {
            if let Some(index) = old {
                entries.remove(index);
            }
            continue;
        }
        // Merging into nothing is not the same as inserting: it drops the nulls inside, as the RFC asks.
        let nothing = Node::new(Value::Null, change.node.at.clone());
        if let Some(index) = old {
            let before = std::mem::replace(&mut entries[index].node, nothing);
            entries[index] = Entry { node: merge(before, change.node), ..change };
        } else {
            entries.push(Entry { node: merge(nothing, change.node), ..change });
        }
    }
    Node::new(Value::Map(entries), at)
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    fn node(json: &str) -> Node {
        // JSON is YAML, so the same parser reads the RFC's examples.
        let mut node = yaml::parse("test.yaml".as_ref(), json).unwrap();
        sort(&mut node);
        node
    }

    /// The RFC compares objects, and objects have no order.
    fn sort(node: &mut Node) {
        match &mut node.value {
            Value::Map(entries) => {
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                for entry in entries {
                    sort(&mut entry.node);
                }
            }
            Value::List(items) => items.iter_mut().for_each(sort),
            _ => {}
        }
    }

    /// RFC 7396, appendix A, in its order.
    #[test]
    fn the_cases_of_the_rfc() {
        for (original, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b", "b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r"{}"),
            (r#"{"a":"b", "b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, r"null", r"null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null, "a":1}"#),
            (r"[1,2]", r#"{"a":"b", "c":null}"#, r#"{"a":"b"}"#),
            (r"{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let mut merged = merge(node(original), node(patch));
            sort(&mut merged);
            assert_eq!(merged, node(result), "{original} + {patch}");
        }
    }

    #[test]
    fn a_merged_value_keeps_the_place_it_was_written_at() {
        let base = yaml::parse("base.yaml".as_ref(), "log:\n  level: info\n  format: text\n").unwrap();
        let patch = yaml::parse("patch.yaml".as_ref(), "log: {format: json}\n").unwrap();
        let merged = merge(base, patch);
        assert_eq!(merged.written_at(&["log", "level"]).unwrap().to_string(), "base.yaml:2");
        assert_eq!(merged.written_at(&["log", "format"]).unwrap().to_string(), "patch.yaml:1");
    }
}

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[test]
fn a_table_fits_the_terminal_and_loses_nothing() {
    let rows = [
        vec!["kube-apiserver".to_owned(), "1.35.8".to_owned(), "word ".repeat(40).trim().to_owned()],
        vec!["etcd".to_owned(), "3.6.7".to_owned(), "ready".to_owned()],
    ];
    let table = table_within(Some(80), &["PART", "VERSION", "STATE"], &rows);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert_eq!(table.matches("word").count(), 40, "{table}");
    assert!(table.lines().count() > 3, "{table}");
}

#[test]
fn without_a_terminal_a_row_is_a_line() {
    let rows = [vec!["a".to_owned(), "x".repeat(200)], vec!["bb".to_owned(), "y".to_owned()]];
    let table = table_within(None, &["NAME", "VALUE"], &rows);
    assert_eq!(table, format!("NAME  VALUE\na     {}\nbb    y\n", "x".repeat(200)));
}

fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[ -~\n\t]{0,100}",
        prop::sample::select(vec![
            "",
            " ",
            "null",
            "~",
            "true",
            "True",
            "yes",
            "no",
            "on",
            "0",
            "-1",
            "0x1f",
            "0o7",
            "1.10",
            "1e3",
            ".inf",
            ".nan",
            "2001-01-01",
            "12:30:45",
            "[::1]:80",
            "- a",
            "a: b",
            "a #b",
            "# a",
            "'",
            "\"",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a",
            "?",
            ":",
            "-",
            "---",
            "...",
            "<<",
            "{}",
            "[]",
            "a\nb",
            "a\nb\n",
            "\n",
            "\n\n a",
            "a ",
            " a",
            "\u{feff}a",
            "é",
            "\u{85}",
            "\u{2028}",
            "\u{7f}",
            "\u{0}",
            "\r\n",
            "\r",
            "a\t",
            "\ta",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no other", |x| x.is_finite()).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            // `<<` as a key is refused on reading; see config::yaml.
            prop::collection::btree_map(text.clone().prop_filter("merge key", |k| k != "<<"), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn printed_yaml_reads_back_as_the_same_value(value in values()) {
        let printed = yaml(&value).unwrap();
        let read = crate::config::read_any(&printed);
        prop_assert_eq!(read.as_ref(), Ok(&value), "{}", printed);
    }
}

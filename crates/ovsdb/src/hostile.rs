//! Whatever a server sends is taken in or refused: nothing panics, runs out of stack or takes memory without end, and
//! what is refused changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index as Place;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::connection::{Connection, Ended, Listener};
use crate::remote::Stream;
use crate::replica::{Index, Replica, Row, TableSpec};
use crate::schema::Schema;
use crate::transaction::results;
use crate::{Atom, Datum};

/// What a real ovsdb-server sent, as it sent it.
const SCHEMA: &str = r#"{"cksum":"3009684573 744","name":"_Server","version":"1.2.0","tables":{"Database":{"columns":{"name":{"type":"string"},"model":{"type":{"key":{"type":"string","enum":["set",["clustered","relay","standalone"]]}}},"connected":{"type":"boolean"},"leader":{"type":"boolean"},"schema":{"type":{"min":0,"key":"string"}},"sid":{"type":{"min":0,"key":"uuid"}},"cid":{"type":{"min":0,"key":"uuid"}},"index":{"type":{"min":0,"key":"integer"}}}}}}"#;
const INSERT: &str = r#"{"ACL":{"22222222-2222-4222-8222-222222222222":{"insert":{"match":"ip4 && tcp.dst == 80","priority":1002}}},"Port_Group":{"11111111-1111-4111-8111-111111111111":{"insert":{"acls":["uuid","22222222-2222-4222-8222-222222222222"],"external_ids":["map",[["k","v"],["l","é\"\\"]]],"name":"web"}}}}"#;
const MODIFY: &str = r#"{"ACL":{"22222222-2222-4222-8222-222222222222":{"modify":{"priority":7}}},"Port_Group":{"11111111-1111-4111-8111-111111111111":{"modify":{"external_ids":["map",[["k","v"],["m","w"]]],"acls":["set",[["uuid","22222222-2222-4222-8222-222222222222"],["uuid","33333333-3333-4333-8333-333333333333"]]]}}}}"#;
const DELETE: &str = r#"{"ACL":{"22222222-2222-4222-8222-222222222222":{"delete":null}},"Port_Group":{"11111111-1111-4111-8111-111111111111":{"delete":null}}}"#;
const MESSAGES: &[&str] = &[
    r#"{"id":null,"method":"update3","params":["data","00000000-0000-0000-0000-000000000000",{"ACL":{"22222222-2222-4222-8222-222222222222":{"delete":null}}}]}"#,
    r#"{"id":1,"result":[{"uuid":["uuid","11111111-1111-4111-8111-111111111111"]},{"rows":[{"name":"web","ports":["set",[]]}]}],"error":null}"#,
    r#"{"id":"echo","method":"echo","params":[]}"#,
    r#"{"id":9,"error":"unknown method"}"#,
];
const ANSWERS: &[&str] = &[
    r#"[{"uuid":["uuid","11111111-1111-4111-8111-111111111111"]},{"rows":[{"name":"web","ports":["set",[]],"acls":["uuid","22222222-2222-4222-8222-222222222222"]}]}]"#,
    r#"[{"count":1},{"count":1}]"#,
    r#"[{"details":"\"where\" clause test failed","error":"timed out"},null]"#,
];

const TABLES: [TableSpec; 2] = [
    TableSpec {
        name: "Port_Group",
        columns: &["name", "ports", "acls", "external_ids"],
        indexes: &[Index { name: "name", keys: |row| row.get("name").texts().map(str::to_owned).collect() }],
    },
    TableSpec { name: "ACL", columns: &["priority", "match", "external_ids"], indexes: &[] },
];

fn replica() -> Replica {
    let schema = r#"{"name":"OVN_Northbound","tables":{
        "Port_Group":{"columns":{
            "name":{"type":"string"},
            "ports":{"type":{"key":{"type":"uuid"},"min":0,"max":"unlimited"}},
            "acls":{"type":{"key":{"type":"uuid"},"min":0,"max":"unlimited"}},
            "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
        "ACL":{"columns":{
            "priority":{"type":{"key":{"type":"integer"}}},
            "match":{"type":"string"},
            "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#;
    Replica::new(&TABLES, &serde_json::from_str(schema).unwrap()).unwrap()
}

/// One thing that can go wrong with bytes.
#[derive(Debug, Clone)]
enum Damage {
    Byte(Place, u8),
    Cut(Place, Place),
    Repeat(Place, Place),
    Insert(Place, Vec<u8>),
    Truncate(Place),
}

/// What JSON and the protocol are made of, which bytes at random seldom are.
const PIECES: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\\",
    "null",
    "true",
    "-0",
    "1e999",
    "9223372036854775808",
    "-9223372036854775809",
    "0.1",
    "[\"set\",",
    "[\"map\",",
    "[\"uuid\",",
    "\"\\ud800\"",
    "\"insert\":",
    "\"modify\":",
    "\"delete\":",
    "\u{0}",
    "\u{7f}",
    "[[[[[[[[[[[[[[[[",
];

fn damage() -> impl Strategy<Value = Damage> {
    let piece = prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec());
    prop_oneof![
        (any::<Place>(), any::<u8>()).prop_map(|(place, byte)| Damage::Byte(place, byte)),
        any::<(Place, Place)>().prop_map(|(one, other)| Damage::Cut(one, other)),
        any::<(Place, Place)>().prop_map(|(one, other)| Damage::Repeat(one, other)),
        (any::<Place>(), piece).prop_map(|(place, piece)| Damage::Insert(place, piece)),
        any::<Place>().prop_map(Damage::Truncate),
    ]
}

fn damaged(bytes: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for damage in damages {
        let at = |place: &Place| place.index(bytes.len() + 1);
        let range = |one, other| at(one).min(at(other))..at(one).max(at(other));
        match damage {
            Damage::Byte(place, value) => {
                let place = at(place);
                bytes.splice(place..(place + 1).min(bytes.len()), [*value]);
            }
            Damage::Cut(one, other) => drop(bytes.drain(range(one, other))),
            Damage::Repeat(one, other) => {
                let range = range(one, other);
                let again = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, again);
            }
            Damage::Insert(place, piece) => {
                let place = at(place);
                bytes.splice(place..place, piece.iter().copied());
            }
            Damage::Truncate(place) => bytes.truncate(at(place)),
        }
    }
    bytes
}

/// Real messages with a few things wrong, and bytes at random.
fn hostile(real: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let near = (prop::sample::select(real), prop::collection::vec(damage(), 0..4))
        .prop_map(|(real, damages)| damaged(real.as_bytes(), &damages));
    prop_oneof![9 => near, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// Every way in, with a text.
fn everything(text: &str) {
    let _ = serde_json::from_str::<Datum>(text);
    let _ = serde_json::from_str::<Schema>(text);
    let _ = results(text);
    check(&mut replica(), text, true);
}

type Rows = HashMap<(&'static str, Uuid), Arc<Row>>;

fn rows(replica: &Replica) -> Rows {
    let rows =
        |table: &'static str| replica.rows(table).map(move |row| ((table, row.uuid()), Arc::clone(row)));
    TABLES.iter().flat_map(|table| rows(table.name)).collect()
}

/// Takes an update in, or refuses it: nothing changes but what it says has, and the indexes find every row.
fn check(replica: &mut Replica, update: &str, whole: bool) {
    let mut expected = rows(replica);
    for change in replica.apply(update, whole).into_iter().flatten() {
        let place = (change.table, change.uuid);
        let old = match change.new {
            Some(new) => expected.insert(place, new),
            None => expected.remove(&place),
        };
        assert_eq!(old, change.old);
    }
    assert_eq!(rows(replica), expected);
    for row in replica.rows("Port_Group") {
        for name in row.get("name").texts() {
            assert!(replica.find("Port_Group", "name", name).any(|found| found == row));
        }
        for column in ["ports", "acls", "external_ids"] {
            assert!(row.get(column).members().is_sorted());
            assert!(row.get(column).entries().is_sorted());
        }
    }
}

struct Deaf;

impl Listener for Deaf {
    fn notified(&mut self, _: &str, _: &str) -> Result<(), Ended> {
        Ok(())
    }
}

/// How a connection ends on which a server sends this, and then nothing more.
fn connection(runtime: &Runtime, bytes: &[u8]) -> Ended {
    runtime.block_on(async {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (connection, work) = Connection::new(Stream::Unix(ours), Deaf);
        let serve = async {
            theirs.write_all(bytes).await.ok();
            theirs.shutdown().await.ok();
            // Its answers are read, as a server would.
            let mut sink = tokio::io::sink();
            tokio::io::copy(&mut theirs, &mut sink).await.ok();
        };
        let ask = connection.request("transact", ());
        let all = async { tokio::join!(serve, async { drop(ask.await) }, work).2 };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap()
    })
}

#[test]
fn what_is_deep_or_huge_is_refused() {
    let megabyte = 1 << 20;
    let deep = "[".repeat(megabyte);
    let closed = format!("{deep}{}", "]".repeat(megabyte));
    let sets = format!("{}1{}", r#"["set",["#.repeat(100_000), "]]".repeat(100_000));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let digits = "9".repeat(megabyte);
    for text in [&deep, &closed, &sets, &objects, &digits, &format!("[{digits}e{digits}]")] {
        everything(text);
        everything(&format!(r#"{{"ACL":{{"{}":{{"insert":{{"priority":{text}}}}}}}}}"#, Uuid::nil()));
        everything(&format!(r#"{{"name":"x","tables":{{"T":{{"columns":{{"c":{{"type":{text}}}}}}}}}}}"#));
        everything(&format!(r#"[{{"rows":[{{"c":{text}}}]}},{{"error":{text}}}]"#));
        let runtime = Runtime::new().unwrap();
        for message in [
            format!(r#"{{"id":1,"result":{text}}}"#),
            format!(r#"{{"id":null,"method":"x","params":{text}}}"#),
        ] {
            connection(&runtime, message.as_bytes());
        }
    }
    assert!(serde_json::from_str::<Datum>(&sets).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn values_are_read_or_refused(bytes in hostile(&[r#"["map",[["k","v"],["l",7]]]"#, r#"["set",[["uuid","11111111-1111-4111-8111-111111111111"],1.5,true]]"#])) {
        if let Ok(datum) = serde_json::from_slice::<Datum>(&bytes) {
            prop_assert!(datum.members().is_sorted_by(|one: &Atom, next| one < next));
            prop_assert!(datum.entries().is_sorted_by(|(one, _), (next, _)| one < next));
            let text = serde_json::to_string(&datum).unwrap();
            prop_assert_eq!(serde_json::from_str::<Datum>(&text).unwrap(), datum, "{}", text);
        }
    }

    #[test]
    fn schemas_are_read_or_refused(bytes in hostile(&[SCHEMA])) {
        if let Ok(schema) = serde_json::from_slice::<Schema>(&bytes) {
            for column in schema.tables.values().flat_map(|table| table.columns.values()) {
                let _ = (column.default_value(), column.is_composite(), column.allows("x"));
            }
        }
    }

    #[test]
    fn answers_are_read_or_refused(bytes in hostile(ANSWERS)) {
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = results(text);
        }
    }

    #[test]
    fn updates_are_taken_in_or_refused(
        updates in prop::collection::vec((hostile(&[INSERT, MODIFY, DELETE]), prop::bool::weighted(0.1)), 1..6),
    ) {
        let mut replica = replica();
        for (bytes, whole) in updates {
            let Ok(text) = std::str::from_utf8(&bytes) else { continue };
            check(&mut replica, text, whole);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_connection_ends_with_a_reason(messages in prop::collection::vec(hostile(MESSAGES), 0..4)) {
        let runtime = Runtime::new().unwrap();
        let ended = connection(&runtime, &messages.concat());
        prop_assert!(!ended.to_string().is_empty());
    }
}

//! Whatever is sent, the answer says what is wrong with it, and nothing breaks.

use axum::http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::{Server, northbound};

/// Words that mean something in one place or another.
const WORDS: [&str; 26] = [
    "auth",
    "identity",
    "methods",
    "password",
    "token",
    "user",
    "name",
    "id",
    "domain",
    "scope",
    "project",
    "unscoped",
    "passwordCredentials",
    "username",
    "tenantName",
    "tenantId",
    "default",
    "ann",
    "demo",
    "enabled",
    "tags",
    "parent_id",
    "email",
    "options",
    "default_project_id",
    "original_password",
];

fn value() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(WORDS.as_slice()).prop_map(str::to_owned);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!(["password"])),
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..5)
                .prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[test]
fn no_body_and_no_address_breaks_it() {
    let (_directory, ovn) = northbound();
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(&ovn));
    let admin = runtime.block_on(server.admin());
    // A body that breaks the connection to the database costs seconds each time: a smaller one is not worth hours.
    let config = Config { cases: 400, max_shrink_time: 30_000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    runner
        .run(&(value(), value(), "[a-z0-9./%?&=+-]{0,40}"), |(body, inner, path)| {
            let auth = json!({"auth": inner});
            let identity =
                json!({"auth": {"identity": {"methods": ["password"], "password": inner}, "scope": body}});
            for body in [&body, &auth, &identity] {
                for path in ["/v3/auth/tokens", "/v2.0/tokens"] {
                    let answer = runtime.block_on(server.ask("POST", path, "", Some(body.clone())));
                    prop_assert!(answer.status.is_client_error(), "{path} {body}: {}", answer.status);
                }
            }
            for (path, body) in [
                ("/v3/projects", json!({ "project": body })),
                ("/v3/users", json!({ "user": body })),
                ("/v3/users/nobody/password", json!({ "user": body })),
            ] {
                let answer = runtime.block_on(server.ask("POST", path, &admin, Some(body.clone())));
                let created = answer.status == StatusCode::CREATED;
                prop_assert!(created || answer.status.is_client_error(), "{path} {body}: {}", answer.status);
                if let Some(id) = answer.body["user"]["id"].as_str() {
                    // With a hash of full strength in the database, every log-in after it would take its time.
                    let gone = runtime.block_on(server.ask("DELETE", &format!("{path}/{id}"), &admin, None));
                    prop_assert_eq!(gone.status, StatusCode::NO_CONTENT);
                }
            }
            for path in [format!("/{path}"), format!("/v3/{path}")] {
                if path.parse::<axum::http::Uri>().is_ok() {
                    let answer = runtime.block_on(server.get(&path, &admin));
                    prop_assert!(!answer.status.is_server_error(), "{path}: {}", answer.status);
                }
            }
            Ok(())
        })
        .unwrap();
}

//! Nothing that is secret is ever logged.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use portcullis_networking::Authenticate;
use portcullis_networking::identity::{Keystone, KeystoneSettings, Secret};
use portcullis_networking::listen::Listener;
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use crate::{DEMO, Server, northbound};

/// All that was logged, by this test and by those that run beside it.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_passwords_are_not_in_the_log() {
    tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false).with_writer(|| Log).init();
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.unwrap();
    let keystone = KeystoneSettings {
        url: format!("http://{}", listener.address()),
        user: "service".into(),
        project: "admin".into(),
        password: Some(Secret::new("service secret")),
        ..KeystoneSettings::default()
    };
    let wrong =
        KeystoneSettings { password: Some(Secret::new("mistyped service secret")), ..keystone.clone() };
    tokio::spawn(listener.serve(server.router.clone(), std::future::pending()));

    let answer = server.log_in("ann", "mistyped secret", Value::Null).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let answer = server.log_in("mistyped\nname", "ann secret", Value::Null).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let token = server.ann().await;
    let by_token = json!({"methods": ["token"], "token": {"id": token}});
    let body = json!({"auth": {"identity": by_token, "scope": {"project": {"id": DEMO}}}});
    let second = server.ask("POST", "/v3/auth/tokens", "", Some(body)).await.token();
    assert_eq!(server.get(&format!("/v2.0/tokens/{second}"), &token).await.status, StatusCode::OK);
    let (good, bad) = (Keystone::new(keystone).unwrap(), Keystone::new(wrong).unwrap());
    good.caller(&token).await.unwrap();
    bad.caller(&token).await.unwrap_err();
    let answer = server.ask_about("DELETE", "/v3/auth/tokens", &second, &token, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);

    let admin = server.admin().await;
    let body = json!({"user": {"name": "bob", "password": "stored secret"}});
    let created = server.ask("POST", "/v3/users", &admin, Some(body)).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let path = format!("/v3/users/{}", created.body["user"]["id"].as_str().unwrap());
    let body = json!({"user": {"original_password": "stored secret", "password": "renewed secret"}});
    let renewed = server.ask("POST", &format!("{path}/password"), "", Some(body)).await;
    assert_eq!(renewed.status, StatusCode::NO_CONTENT);
    let body = json!({"user": {"password": "reset secret"}});
    let reset = server.ask("PATCH", &path, &admin, Some(body)).await;
    let login = server.log_in("bob", "reset secret", json!("unscoped")).await;
    assert_eq!(login.status, StatusCode::CREATED);
    let listed = server.get("/v3/users", &admin).await;
    for answer in [&created, &renewed, &reset, &login, &listed] {
        let text = answer.body.to_string();
        assert!(!text.contains("secret") && !text.contains("argon2"), "{text}");
    }

    let log = String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned();
    assert!(log.contains("wrong name or password") && log.contains(r#""ann" of domain "default""#), "{log}");
    assert!(log.contains(r"mistyped\nname") && !log.contains("mistyped\nname"), "names are escaped");
    for secret in [
        &token,
        &second,
        "mistyped secret",
        "ann secret",
        "service secret",
        "mistyped service secret",
        "stored secret",
        "renewed secret",
        "reset secret",
        "$argon2",
    ] {
        assert!(!log.contains(secret), "{secret} was logged");
    }
    // Nor in part: what is signed begins the same way in all tokens, and ends in each its own.
    for token in [&token, &second] {
        assert!(!log.contains(&token[token.len() - 20..]), "a part of a token was logged");
    }
}

//! Tokens of v3: who gets one, what it says, when it ends.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use portcullis_networking::{Authenticate, Error};
use portcullis_ovn::objects::{RevokedToken, SigningKey};
use serde_json::{Value, json};

use crate::{DEMO, Server, northbound, settings, store};

#[tokio::test(flavor = "multi_thread")]
async fn a_password_gives_a_token_with_all_that_clients_need() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let scope = json!({"project": {"name": "demo", "domain": {"id": "default"}}});
    let answer = server.log_in("ann", "ann secret", scope).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let token = &answer.body["token"];
    assert_eq!(token["methods"], json!(["password"]));
    assert_eq!(token["user"]["name"], "ann");
    assert_eq!(token["user"]["domain"], json!({"id": "default", "name": "Default"}));
    assert_eq!(token["project"]["id"], DEMO);
    let roles: Vec<&str> =
        token["roles"].as_array().unwrap().iter().map(|role| role["name"].as_str().unwrap()).collect();
    assert_eq!(roles, ["member", "reader"]);
    assert_eq!(token["audit_ids"].as_array().unwrap().len(), 1);
    assert!(token["expires_at"].as_str().unwrap().ends_with(".000000Z"));
    let urls: Vec<(&str, &str)> = token["catalog"]
        .as_array()
        .unwrap()
        .iter()
        .map(|service| {
            let url = service["endpoints"][2]["url"].as_str().unwrap();
            assert_eq!(service["endpoints"][2]["interface"], "public");
            (service["type"].as_str().unwrap(), url)
        })
        .collect();
    assert_eq!(
        urls,
        [("network", "http://cloud.example:9696"), ("identity", "http://cloud.example:35357/v3")]
    );
    assert!(!answer.body.to_string().contains(&answer.token()), "the body does not repeat the token");

    let caller = server.local.caller(&answer.token()).await.unwrap();
    assert_eq!((caller.project.as_str(), caller.project_name.as_str()), (DEMO, "demo"));
    assert!(caller.is_member() && !caller.is_admin());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_learns_nothing() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let wrong_password = server.log_in("ann", "wrong", Value::Null).await;
    assert_eq!(wrong_password.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        wrong_password.body,
        json!({"error": {
            "code": 401, "title": "Unauthorized",
            "message": "The request you have made requires authentication.",
        }})
    );
    for (name, password) in
        [("nobody", "ann secret"), ("locked out", ""), ("locked out", "ann secret"), ("", "")]
    {
        let answer = server.log_in(name, password, Value::Null).await;
        assert_eq!((answer.status, &answer.body), (StatusCode::UNAUTHORIZED, &wrong_password.body), "{name}");
    }
    for scope in [
        json!({"project": {"name": "admin", "domain": {"id": "default"}}}),
        json!({"project": {"name": "nowhere", "domain": {"id": "default"}}}),
        json!({"project": {"id": "nowhere"}}),
        json!({"project": {"name": "demo", "domain": {"id": "other"}}}),
        json!({"domain": {"id": "default"}}),
        json!({"system": {"all": true}}),
    ] {
        let answer = server.log_in("ann", "ann secret", scope.clone()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{scope}");
    }
    for body in [
        json!({}),
        json!([]),
        json!({"auth": {}}),
        json!({"auth": {"identity": {"methods": ["password"]}}}),
        json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "ann"}}}}}),
        json!({"auth": {"identity": {"methods": ["password"],
            "password": {"user": {"name": "ann", "password": "ann secret"}}}}}),
        json!({"auth": {"identity": {"methods": "password"}}}),
    ] {
        let answer = server.ask("POST", "/v3/auth/tokens", "", Some(body.clone())).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
    }
    let methods = json!({"auth": {"identity": {"methods": ["application_credential"]}}});
    let answer = server.ask("POST", "/v3/auth/tokens", "", Some(methods)).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let huge = json!({"auth": "x".repeat(100_000)});
    let answer = server.ask("POST", "/v3/auth/tokens", "", Some(huge)).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_gives_tokens_for_other_projects_that_live_no_longer() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let unscoped = server.log_in("admin@internal", "ovirt secret", json!("unscoped")).await;
    assert_eq!(unscoped.status, StatusCode::CREATED);
    for absent in ["project", "roles", "catalog"] {
        assert!(unscoped.body["token"].get(absent).is_none(), "{absent}");
    }
    let caller = server.local.caller(&unscoped.token()).await.unwrap();
    assert!(!caller.is_reader(), "a token for no project may do nothing");

    let projects = server.get("/v3/auth/projects", &unscoped.token()).await;
    assert_eq!(projects.names("projects").len(), 2);
    let identity = json!({"methods": ["token"], "token": {"id": unscoped.token()}});
    let scope = json!({"project": {"id": DEMO}});
    let body = json!({"auth": {"identity": identity, "scope": scope}});
    let scoped = server.ask("POST", "/v3/auth/tokens?nocatalog", "", Some(body)).await;
    assert_eq!(scoped.status, StatusCode::CREATED, "{}", scoped.body);
    let (before, after) = (&unscoped.body["token"], &scoped.body["token"]);
    assert_eq!(after["project"]["name"], "demo");
    assert_eq!(after["expires_at"], before["expires_at"]);
    assert_eq!(after["methods"], json!(["password", "token"]));
    assert_eq!(after["audit_ids"][1], before["audit_ids"][0]);
    assert!(after.get("catalog").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_shown_to_their_owners_and_to_services() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let (admin, ann) = (server.admin().await, server.ann().await);
    let service = server.token("service", "service secret", "admin").await;
    for (asker, subject, expected) in [
        (&admin, &ann, StatusCode::OK),
        (&service, &ann, StatusCode::OK),
        (&ann, &ann, StatusCode::OK),
        (&ann, &admin, StatusCode::FORBIDDEN),
        (&admin, &"forged".to_owned(), StatusCode::NOT_FOUND),
        (&"forged".to_owned(), &ann, StatusCode::UNAUTHORIZED),
        (&String::new(), &ann, StatusCode::UNAUTHORIZED),
        (&admin, &String::new(), StatusCode::BAD_REQUEST),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = server.ask_about(method, "/v3/auth/tokens", asker, subject, None).await;
            assert_eq!(answer.status, expected, "{method}");
            assert_eq!(answer.body.is_null(), method == "HEAD");
        }
    }
    let shown = server.ask_about("GET", "/v3/auth/tokens", &admin, &ann, None).await;
    assert_eq!(shown.body["token"]["user"]["name"], "ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_on_every_server_and_a_restart_ends_none() {
    let (_directory, ovn) = northbound();
    let first = Server::start(&ovn).await;
    let (revoked, kept) = (first.ann().await, first.ann().await);
    let second = Server::start(&ovn).await;
    second.local.caller(&revoked).await.expect("a server that started later knows it");

    let answer = first.ask_about("DELETE", "/v3/auth/tokens", &kept, &revoked, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(first.local.caller(&revoked).await, Err(Error::unauthorized()));
    let soon = Instant::now() + Duration::from_secs(60);
    while second.local.caller(&revoked).await.is_ok() {
        assert!(Instant::now() < soon, "the other server still takes it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((first, second));
    let third = Server::start(&ovn).await;
    assert_eq!(third.local.caller(&revoked).await, Err(Error::unauthorized()));
    third.local.caller(&kept).await.expect("a restart ends no token");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_from_a_revoked_token_ends_with_it() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let exchange = async |token: &str| {
        let identity = json!({"methods": ["token"], "token": {"id": token}});
        let body = json!({"auth": {"identity": identity, "scope": {"project": {"id": DEMO}}}});
        server.ask("POST", "/v3/auth/tokens", "", Some(body)).await.token()
    };
    let (first, other) = (server.ann().await, server.ann().await);
    let second = exchange(&first).await;
    let third = exchange(&second).await;
    // What it was made from does not end with a token.
    let answer = server.ask_about("DELETE", "/v3/auth/tokens", &other, &third, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    for (token, good) in [(&first, true), (&second, true), (&third, false)] {
        assert_eq!(server.local.caller(token).await.is_ok(), good);
    }
    let fourth = exchange(&second).await;
    let answer = server.ask_about("DELETE", "/v3/auth/tokens", &other, &first, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    for token in [&first, &second, &third, &fourth] {
        assert_eq!(server.local.caller(token).await, Err(Error::unauthorized()));
    }
    server.local.caller(&other).await.expect("another login of the same user");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_start_at_once_agree_on_one_key() {
    let (_directory, ovn) = northbound();
    let (first, second) = tokio::join!(Server::start(&ovn), Server::start(&ovn));
    let (one, other) = tokio::join!(first.ann(), second.ann());
    for token in [&one, &other] {
        for server in [&first, &second] {
            server.local.caller(token).await.unwrap();
        }
    }
    let store = store(&ovn).await;
    assert_eq!(store.model().all::<SigningKey>(None).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_with_their_time_their_user_their_password_and_their_role() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let ann = server.ann().await;
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut settings = settings();
        change(&mut settings);
        settings
    };
    for (what, settings) in [
        ("password", changed(&|settings| settings["users"][1]["password"] = json!(crate::hash("new")))),
        ("role", changed(&|settings| settings["users"][1]["assignments"] = json!([]))),
        ("user", changed(&|settings| drop(settings["users"].as_array_mut().unwrap().remove(1)))),
    ] {
        let restarted = Server::with(&ovn, settings).await;
        assert_eq!(restarted.local.caller(&ann).await, Err(Error::unauthorized()), "{what}");
    }

    let brief = changed(&|settings| settings["tokenLifetime"] = json!("10s"));
    let brief = Server::with(&ovn, brief).await;
    let token = brief.ann().await;
    brief.local.caller(&token).await.unwrap();
    let answer = brief.ask_about("DELETE", "/v3/auth/tokens", &token, &token, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let token = brief.ann().await;
    tokio::time::sleep(Duration::from_millis(11_100)).await;
    assert_eq!(brief.local.caller(&token).await, Err(Error::unauthorized()));

    // What expired is not kept once something else is revoked.
    let answer = server.ask_about("DELETE", "/v3/auth/tokens", &ann, &ann, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let store = store(&ovn).await;
    assert_eq!(store.model().all::<RevokedToken>(None).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_file_keeps_it_out_of_the_database() {
    let (directory, ovn) = northbound();
    let file = directory.path().join("key");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    let mut settings = settings();
    settings["tokenKeyFile"] = json!(file);
    let server = Server::with(&ovn, settings.clone()).await;
    let token = server.ann().await;
    assert_eq!(server.local.caller(&token).await.unwrap().project, DEMO);
    assert_eq!(store(&ovn).await.model().all::<SigningKey>(None).count(), 0);

    std::fs::write(&file, "too short").unwrap();
    let settings = serde_json::from_value(settings).unwrap();
    let error = portcullis_networking::identity::Local::new(store(&ovn).await, settings).unwrap_err();
    assert!(error.to_string().starts_with("tokenKeyFile: "), "{error}");
}

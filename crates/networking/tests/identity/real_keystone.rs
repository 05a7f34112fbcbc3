//! Tokens of a real Keystone.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use portcullis_networking::Authenticate;
use portcullis_networking::identity::{Keystone, KeystoneSettings, Period, Secret};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a request, and gives the status and the head of the answer.
async fn send(address: &str, method: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} /v3/auth/tokens HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

/// A token of Keystone's.
async fn token(address: &str, name: &str, password: &str, project: &str) -> String {
    let user = json!({"name": name, "domain": {"id": "default"}, "password": password});
    let scope = json!({"project": {"name": project, "domain": {"id": "default"}}});
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    let body = json!({"auth": {"identity": identity, "scope": scope}}).to_string();
    let (status, answer) = send(address, "POST", "", &body).await;
    assert_eq!(status, 201, "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("X-Subject-Token: "));
    line.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn its_tokens_are_taken_until_they_are_revoked_or_expire() {
    let server = portcullis_testkit::Keystone::start(40);
    server.add_user("neutron", "service secret", "service", "service");
    server.add_user("ann", "ann secret", "demo", "member");
    let address = server.address();
    let settings = KeystoneSettings {
        url: format!("http://{address}/v3"),
        password: Some(Secret::new("service secret")),
        cache: Period::seconds(1),
        timeout: Period::seconds(30),
        ..KeystoneSettings::default()
    };
    let brief = Keystone::new(settings.clone()).unwrap();
    let long = Keystone::new(KeystoneSettings { cache: Period::seconds(3600), ..settings }).unwrap();
    let status = async |keystone: &Keystone, token: &str| match keystone.caller(token).await {
        Ok(_) => StatusCode::OK,
        Err(error) => error.status,
    };

    let admin = token(&address, "admin", "secret", "admin").await;
    let caller = brief.caller(&admin).await.unwrap();
    assert!(caller.is_admin() && caller.project_name == "admin");
    assert_eq!(status(&brief, &format!("{admin}x")).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&brief, "").await, StatusCode::UNAUTHORIZED);

    let ann = token(&address, "ann", "ann secret", "demo").await;
    let caller = brief.caller(&ann).await.unwrap();
    assert!(caller.is_member() && !caller.is_admin() && caller.project.len() == 32);
    let headers = format!("X-Auth-Token: {ann}\r\nX-Subject-Token: {ann}\r\n");
    assert_eq!(send(&address, "DELETE", &headers, "").await.0, 204);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(status(&brief, &ann).await, StatusCode::UNAUTHORIZED, "revoked");

    let ann = token(&address, "ann", "ann secret", "demo").await;
    assert_eq!(status(&long, &ann).await, StatusCode::OK);
    let soon = Instant::now() + Duration::from_secs(120);
    while status(&long, &ann).await == StatusCode::OK {
        assert!(Instant::now() < soon, "expired, however long it is remembered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status(&long, &ann).await, StatusCode::UNAUTHORIZED);
    // Our own token has expired too, and is renewed.
    let ann = token(&address, "ann", "ann secret", "demo").await;
    assert_eq!(status(&long, &ann).await, StatusCode::OK);

    // At once: the token must not expire meanwhile.
    drop(server);
    assert_eq!(status(&long, &ann).await, StatusCode::OK, "it is still known");
    assert_eq!(status(&long, &admin).await, StatusCode::SERVICE_UNAVAILABLE, "nobody can say");
}

//! What oVirt's engine asks.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{DEMO, Server, northbound};

fn credentials(name: &str, password: &str) -> Value {
    json!({"auth": {"passwordCredentials": {"username": name, "password": password}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_gets_a_token_and_the_address_of_the_network() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let log_in = |body: Value| server.ask("POST", "/v2.0/tokens", "", Some(body));
    let answer = log_in(credentials("admin@internal", "ovirt secret")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let access = &answer.body["access"];
    assert_eq!(access["token"]["tenant"]["name"], "admin", "the first that the user has a role in");
    assert_eq!(access["user"]["username"], "admin@internal");
    assert_eq!(access["user"]["roles"][0], json!({"name": "admin"}));
    assert_eq!(access["serviceCatalog"][0]["type"], "network");
    assert_eq!(access["serviceCatalog"][0]["endpoints"][0]["publicURL"], "http://cloud.example:9696");
    let token = access["token"]["id"].as_str().unwrap();
    let shown = server.get(&format!("/v2.0/tokens/{token}"), token).await;
    assert_eq!(shown.body["access"]["token"], access["token"]);
    let tenants = server.get("/v2.0/tenants", token).await;
    assert_eq!(tenants.names("tenants").len(), 2);

    let mut body = credentials("admin@internal", "ovirt secret");
    body["auth"]["tenantName"] = json!("demo");
    assert_eq!(log_in(body.clone()).await.body["access"]["token"]["tenant"]["id"], DEMO);
    body["auth"]["tenantName"] = json!("nowhere");
    assert_eq!(log_in(body).await.status, StatusCode::UNAUTHORIZED);
    let by_token = json!({"auth": {"token": {"id": token}, "tenantId": DEMO}});
    assert_eq!(log_in(by_token).await.body["access"]["token"]["tenant"]["name"], "demo");

    assert_eq!(log_in(credentials("admin@internal", "wrong")).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(log_in(json!({"auth": {}})).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(server.get("/v2.0/tenants", "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.get("/v2.0", "").await.body["version"]["id"], "v2.0");
}

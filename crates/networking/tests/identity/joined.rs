//! Both APIs on one port.

use std::sync::Arc;

use axum::http::StatusCode;
use portcullis_networking::identity::{Identity, join};
use portcullis_networking::{Networking, Settings};
use serde_json::json;

use crate::{DEMO, Server, northbound, store};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_both() {
    let (_directory, ovn) = northbound();
    let mut server = Server::start(&ovn).await;
    let store = store(&ovn).await;
    let networking = Networking::new(store, Settings::default(), Arc::new(server.local.clone()), false);
    let identity = Identity::new(server.local.clone(), false, None);
    server.router = join(networking.router(), &identity);

    let root = server.get("/", "").await;
    assert_eq!(root.body["versions"][0]["id"], "v2.0", "{}", root.body);
    assert_eq!(server.get("/v3", "").await.body["version"]["id"], "v3.14");
    assert_eq!(server.get("/identity/v3/", "").await.body["version"]["id"], "v3.14");
    assert_eq!(server.get("/identity", "").await.status, StatusCode::MULTIPLE_CHOICES);

    let scope = json!({"project": {"id": DEMO}});
    let answer = server.log_in("ann", "ann secret", scope).await;
    let catalog = &answer.body["token"]["catalog"];
    assert_eq!(catalog[0]["endpoints"][0]["url"], "http://cloud.example:35357");
    let token = answer.token();
    let body = json!({"network": {"name": "blue"}});
    let network = server.ask("POST", "/v2.0/networks", &token, Some(body)).await;
    assert_eq!(network.status, StatusCode::CREATED, "{}", network.body);
    assert_eq!(network.body["network"]["project_id"], DEMO);
    assert_eq!(server.get("/v2.0/networks", &token).await.names("networks"), ["blue"]);
    assert_eq!(server.get("/v2.0/networks", "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.get("/v2.0/networks", "forged").await.status, StatusCode::UNAUTHORIZED);

    let credentials = json!({"username": "admin@internal", "password": "ovirt secret"});
    let body = json!({"auth": {"passwordCredentials": credentials}});
    let old = server.ask("POST", "/v2.0/tokens", "", Some(body)).await;
    let token = old.body["access"]["token"]["id"].as_str().unwrap();
    assert_eq!(server.get("/v2.0/tenants", token).await.status, StatusCode::OK);
    assert_eq!(server.get("/v2.0/networks", token).await.names("networks"), ["blue"], "an administrator");
}

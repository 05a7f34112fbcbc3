//! While the database is away.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use portcullis_networking::{Networking, Settings};
use portcullis_ovn::{Options, Store, StoreSettings};
use portcullis_testkit::Northbound;
use tower::ServiceExt;

use crate::client::Words;

#[tokio::test]
async fn what_is_known_can_still_be_listed() {
    let mut northbound = Northbound::start();
    let store = Store::start(StoreSettings {
        remotes: vec![northbound.remote().parse().unwrap()],
        tls: None,
        durable: false,
        coexist: false,
        read_only: false,
        options: Options::default(),
    });
    store.opened().await.unwrap();
    let router = Networking::new(store, Settings::default(), Arc::new(Words), false).router();
    northbound.kill();
    // Who has no default group yet would get one before its groups are shown.
    let request = Request::builder().uri("/v2.0/security-groups").header("x-auth-token", "u:somebody:member");
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
}

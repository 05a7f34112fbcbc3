//! Tokens that another server has given, which is asked about them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use portcullis_networking::identity::{Keystone, KeystoneSettings, Period, Secret};
use portcullis_networking::listen::{CertificateFiles, Listener};
use portcullis_networking::{Authenticate, Error};
use portcullis_testkit::parts::Authority;
use tokio::task::JoinHandle;

use crate::{DEMO, Server, northbound};

fn settings(url: String) -> KeystoneSettings {
    KeystoneSettings {
        url,
        user: "service".into(),
        project: "admin".into(),
        password: Some(Secret::new("service secret")),
        timeout: Period::seconds(30),
        ..KeystoneSettings::default()
    }
}

async fn serve(
    address: SocketAddr,
    tls: Option<CertificateFiles>,
    router: Router,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = Listener::bind(address, tls).await.unwrap();
    (listener.address(), tokio::spawn(listener.serve(router, std::future::pending())))
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Counts what is asked.
fn counted(router: Router) -> (Router, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let layer = from_fn(move |request: Request, next: Next| {
        counter.fetch_add(1, Ordering::Relaxed);
        next.run(request)
    });
    (router.layer(layer), count)
}

fn status(outcome: Result<Arc<portcullis_networking::Caller>, Error>) -> StatusCode {
    outcome.unwrap_err().status
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_believed_for_a_while() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let (router, asked) = counted(server.router.clone());
    let (address, serving) = serve(anywhere(), None, router).await;
    // What is counted must not be forgotten meanwhile, however slow the machine is.
    let long = KeystoneSettings { cache: Period::seconds(3600), ..settings(format!("http://{address}")) };
    let keystone = Keystone::new(long.clone()).unwrap();
    let ann = server.ann().await;
    let caller = keystone.caller(&ann).await.unwrap();
    assert_eq!((caller.project.as_str(), caller.is_member(), caller.is_admin()), (DEMO, true, false));
    assert_eq!(asked.load(Ordering::Relaxed), 2, "once to log in, once about the token");
    for _ in 0..10 {
        keystone.caller(&ann).await.unwrap();
        assert_eq!(status(keystone.caller("not a\nheader").await), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "and no more");
    assert_eq!(status(keystone.caller("forged").await), StatusCode::UNAUTHORIZED);
    assert_eq!(asked.load(Ordering::Relaxed), 3, "once more, about the forged one");

    let brief = KeystoneSettings { cache: Period::seconds(1), ..long };
    let keystone = Keystone::new(brief).unwrap();
    keystone.caller(&ann).await.unwrap();
    server.ask_about("DELETE", "/v3/auth/tokens", &ann, &ann, None).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(status(keystone.caller(&ann).await), StatusCode::UNAUTHORIZED, "revoked");

    serving.abort();
    let _ = serving.await;
    let admin = server.admin().await;
    let outcome = keystone.caller(&admin).await.unwrap_err();
    assert_eq!(outcome.status, StatusCode::SERVICE_UNAVAILABLE, "who cannot be asked has allowed nothing");
    let (_, _serving) = serve(address, None, server.router.clone()).await;
    assert!(keystone.caller(&admin).await.unwrap().is_admin(), "it is asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_token_is_renewed() {
    let (_directory, ovn) = northbound();
    let mut brief = crate::settings();
    brief["tokenLifetime"] = serde_json::json!("5s");
    let (address, serving) = serve(anywhere(), None, Server::with(&ovn, brief).await.router).await;
    let keystone = Keystone::new(settings(format!("http://{address}/v3"))).unwrap();
    assert_eq!(status(keystone.caller("forged").await), StatusCode::UNAUTHORIZED);
    serving.abort();
    let _ = serving.await;
    tokio::time::sleep(Duration::from_millis(6100)).await;
    let server = Server::start(&ovn).await;
    let (_, _serving) = serve(address, None, server.router.clone()).await;
    keystone.caller(&server.ann().await).await.expect("it logs in again");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_ask_is_told_why() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let (address, _serving) = serve(anywhere(), None, server.router.clone()).await;
    let ann = server.ann().await;
    let wrong = KeystoneSettings {
        password: Some(Secret::new("wrong secret")),
        ..settings(format!("http://{address}"))
    };
    let error = Keystone::new(wrong).unwrap().caller(&ann).await.unwrap_err();
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.message.contains("check name and password"), "{}", error.message);
    assert!(!error.message.contains("wrong secret"), "{}", error.message);
    let member = KeystoneSettings {
        user: "ann".into(),
        project: "demo".into(),
        password: Some(Secret::new("ann secret")),
        ..settings(format!("http://{address}"))
    };
    let admin = server.admin().await;
    let error = Keystone::new(member).unwrap().caller(&admin).await.unwrap_err();
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.message.contains("the role service"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_certificate_is_checked() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let ann = server.ann().await;
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path()).unwrap();
    let other = tempfile::tempdir().unwrap();
    let other = Authority::new(other.path()).unwrap();
    let ask = async |names: &[&str], trusted: &Path| {
        let identity = authority.server("keystone", names).unwrap();
        let files = CertificateFiles { certificate: identity.certificate, key: identity.key };
        let (address, _serving) = serve(anywhere(), Some(files), server.router.clone()).await;
        let settings = KeystoneSettings {
            ca_file: Some(trusted.to_owned()),
            ..settings(format!("https://{address}/v3/"))
        };
        Keystone::new(settings).unwrap().caller(&ann).await
    };
    ask(&["127.0.0.1"], authority.certificate()).await.unwrap();
    let elsewhere = ask(&["keystone.example"], authority.certificate()).await;
    assert_eq!(status(elsewhere), StatusCode::SERVICE_UNAVAILABLE, "a certificate for another name");
    let stranger = ask(&["127.0.0.1"], other.certificate()).await;
    assert_eq!(status(stranger), StatusCode::SERVICE_UNAVAILABLE, "a certificate by another authority");
}

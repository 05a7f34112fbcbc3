//! The server under both APIs: certificates that change, clients that are slow, an end without loss.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{get, post};
use portcullis_networking::identity::{Identity, join};
use portcullis_networking::listen::{CertificateFiles, ListenError, Listener, Patience};
use portcullis_networking::{Networking, Settings};
use portcullis_testkit::parts::Authority;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn router() -> Router {
    Router::new().route("/", get(async || "hello")).route("/echo", post(async |body: String| body))
}

/// Asks on a connection that stays open.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

async fn connect(address: SocketAddr, authority: &Path) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_used_without_losing_a_connection() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path()).unwrap();
    let issue = || authority.server("api", &["localhost"]).unwrap();
    let identity = issue();
    let files = CertificateFiles { certificate: identity.certificate.clone(), key: identity.key };
    let listener = Listener::bind(anywhere(), Some(files)).await.unwrap();
    assert!(listener.is_secure());
    let address = listener.address();
    tokio::spawn(listener.serve(router(), std::future::pending()));

    let mut first = connect(address, authority.certificate()).await;
    assert!(ask(&mut first).await.starts_with("HTTP/1.1 200 "));
    let before = shown(&first);
    issue();
    let patience = Instant::now() + Duration::from_secs(60);
    let after = loop {
        let mut stream = connect(address, authority.certificate()).await;
        ask(&mut stream).await;
        if shown(&stream) != before {
            break shown(&stream);
        }
        assert!(Instant::now() < patience, "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    ask(&mut first).await;

    std::fs::write(&identity.certificate, "nonsense").unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut stream = connect(address, authority.certificate()).await;
    ask(&mut stream).await;
    assert_eq!(shown(&stream), after, "what cannot be used is not used");
    ask(&mut first).await;

    issue();
    let patience = Instant::now() + Duration::from_secs(60);
    while shown(&connect(address, authority.certificate()).await) == after {
        assert!(Instant::now() < patience, "it is not looked for a good one after a bad one");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_served_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path()).unwrap();
    let one = authority.server("one", &["localhost"]).unwrap();
    let other = authority.server("other", &["localhost"]).unwrap();
    let files = CertificateFiles { certificate: one.certificate.clone(), key: other.key };
    let error = Listener::bind(anywhere(), Some(files)).await.unwrap_err();
    assert!(error.to_string().contains("one.crt with "), "{error}");
    let files = CertificateFiles { certificate: directory.path().join("missing.crt"), key: one.key };
    let error = Listener::bind(anywhere(), Some(files)).await.unwrap_err();
    assert!(error.to_string().contains("missing.crt"), "{error}");
    let taken = Listener::bind(anywhere(), None).await.unwrap();
    let error = Listener::bind(taken.address(), None).await.unwrap_err();
    assert!(matches!(error, ListenError::Address { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_left() {
    let moment = Duration::from_millis(300);
    let patience = Patience { handshake: moment, headers: moment, body: moment, taking: moment };
    let directory = tempfile::tempdir().unwrap();
    let identity = Authority::new(directory.path()).unwrap().server("api", &["localhost"]).unwrap();
    let files = CertificateFiles { certificate: identity.certificate, key: identity.key };
    for (tls, sent) in [
        (false, ""),
        (false, "GET / HT"),
        (false, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "),
        (false, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"),
        (true, ""),
        (true, "\x16\x03\x01"),
    ] {
        let listener = Listener::bind(anywhere(), tls.then(|| files.clone())).await.unwrap();
        let address = listener.address();
        tokio::spawn(listener.with_patience(patience).serve(router(), std::future::pending()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{sent:?} holds a connection");
    }
}

/// Many that say nothing do not take what others need: they wait until there is a place.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_clients_than_it_can_have_are_taken() {
    let listener = Listener::bind(anywhere(), None).await.unwrap().with_most(8);
    let address = listener.address();
    tokio::spawn(listener.serve(router(), std::future::pending()));
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut late = TcpStream::connect(address).await.unwrap();
    late.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut byte = [0];
    let moment = Duration::from_millis(500);
    assert!(tokio::time::timeout(moment, late.read(&mut byte)).await.is_err(), "there is no place for it");
    drop(silent);
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, late.read_exact(&mut byte)).await.expect("a place is free").unwrap();
}

/// What a server answers to this, on a connection of its own.
async fn said(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut answer)).await;
    read.unwrap_or_else(|_| panic!("{request:?} has no answer")).unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_cannot_leave_a_body_and_who_is_slow_is_told() {
    let (_directory, ovn) = crate::northbound();
    let server = crate::Server::start(&ovn).await;
    let networking =
        Networking::new(crate::store(&ovn).await, Settings::default(), Arc::new(server.local.clone()), false);
    let router = join(networking.router(), &Identity::new(server.local.clone(), false, None));
    let serve = async |body: Duration| {
        let listener = Listener::bind(anywhere(), None).await.unwrap();
        let address = listener.address();
        let patience = Patience { body, ..Patience::default() };
        tokio::spawn(listener.with_patience(patience).serve(router.clone(), std::future::pending()));
        address
    };
    let (patient, hasty) = (serve(Duration::from_secs(3600)).await, serve(Duration::from_millis(200)).await);
    let token = server.ann().await;
    let post = |path: &str, headers: &str, length: usize, body: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
    };
    let known = format!("X-Auth-Token: {token}\r\n");
    let (networks, tokens) = ("/v2.0/networks", "/v3/auth/tokens");
    for (address, request, status) in [
        (hasty, post(networks, "", 1 << 20, "{"), "401"),
        (hasty, post(networks, "X-Auth-Token: forged\r\n", 1 << 20, "{"), "401"),
        (patient, post(networks, &known, (1 << 20) + 1, "{"), "413"),
        (patient, post(tokens, "", (64 << 10) + 1, "{"), "413"),
        (hasty, post(networks, &known, 1 << 20, "{"), "408"),
        (hasty, post(tokens, "", 64 << 10, "{"), "408"),
        (patient, post(networks, &known, 2, "{}"), "400"),
    ] {
        assert_eq!(said(address, &request).await, format!("HTTP/1.1 {status}"), "{request}");
    }
    // Many clients send all of it before they listen.
    let large = " ".repeat(900_000);
    for _ in 0..20 {
        let large = large.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let mut connection = portcullis_testkit::Http::connect(&patient.to_string()).unwrap();
            connection
                .ask("POST", networks, &[("X-Auth-Token", "forged")], &large)
                .map(|answer| answer.status)
        });
        assert_eq!(asked.await.unwrap().unwrap(), 401);
    }
    let chunks = |size: usize| format!("{size:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(size));
    for (size, status) in [(65536, "400"), (65537, "413")] {
        let head = format!("POST {tokens} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(said(patient, &(head + &chunks(size))).await, format!("HTTP/1.1 {status}"), "{size}");
    }
    let head = format!("POST {tokens} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    assert_eq!(said(patient, &head).await, "HTTP/1.1 400");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_has_its_answer_before_the_end() {
    let (entered, mut running) = mpsc::channel(1);
    let slow = get(async move || {
        entered.send(()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        "hello"
    });
    let listener = Listener::bind(anywhere(), None).await.unwrap();
    let address = listener.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(listener.serve(Router::new().route("/", slow), async {
        let _ = stopped.await;
    }));
    let idle = TcpStream::connect(address).await.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = tokio::spawn(async move { ask(&mut stream).await });
    running.recv().await.unwrap();
    drop(stop);
    assert!(request.await.unwrap().ends_with("hello"));
    tokio::time::timeout(Duration::from_secs(10), server).await.expect("an idle client holds it").unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).await.is_err());
}

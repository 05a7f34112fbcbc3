//! How the two APIs are served: with TLS, on one port, read-only, with and without their database.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_testkit::parts::Authority;
use portcullis_testkit::rows::rows;
use portcullis_testkit::{Http, Keystone};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::cloud::{Cloud, PASSWORD, said, token};

#[test]
fn both_apis_share_a_port_with_tls() {
    let certificates = tempfile::tempdir().unwrap();
    let authority = Authority::new(certificates.path()).unwrap();
    let server = authority.server("server", &["127.0.0.1"]).unwrap();
    let cloud = Cloud::start_with(&[("ann", "blue", "member")], |drop_ins: &Path, networking| {
        let tls = format!(
            "networking: {{tls: {{certificate: '{}', key: '{}'}}}}\nidentity: {{listen: '{networking}'}}\n",
            server.certificate.display(),
            server.key.display()
        );
        fs::write(drop_ins.join("tls.yaml"), tls).unwrap();
    });
    let mut openstack = cloud.command("openstack", "ann", "blue");
    openstack.env("OS_AUTH_URL", format!("https://{}/v3", cloud.networking));
    openstack.env("OS_CACERT", authority.certificate());
    let created = openstack.args(["network", "create", "web", "-f", "value", "-c", "name"]).output().unwrap();
    assert_eq!(said("network create", &created), "web");

    // The catalog is what the client went by; nothing answers without TLS, or where identity would be by default.
    let mut plain = cloud.command("openstack", "ann", "blue");
    plain.env("OS_AUTH_URL", format!("http://{}/v3", cloud.networking));
    assert!(!plain.args(["network", "list"]).output().unwrap().status.success());
}

async fn connect(address: SocketAddr, authority: &Path) -> TlsStream<tokio::net::TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

fn shown(stream: &TlsStream<tokio::net::TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// Asks for the versions, on a connection that stays open.
async fn ask(stream: &mut TlsStream<tokio::net::TcpStream>) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let body = loop {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", String::from_utf8_lossy(&answer));
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            break body.to_owned();
        }
    };
    assert!(body.contains("versions"), "{body}");
}

/// A connection with another certificate than this one, once there is one.
async fn renewed(
    address: SocketAddr,
    authority: &Path,
    old: &CertificateDer<'_>,
) -> TlsStream<tokio::net::TcpStream> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let stream = connect(address, authority).await;
        if shown(&stream) != *old {
            return stream;
        }
        assert!(Instant::now() < patience, "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_api_has_tls_of_its_own_and_reads_new_certificates() {
    let certificates = tempfile::tempdir().unwrap();
    let authority = Authority::new(certificates.path()).unwrap();
    let issue = |name: &str| authority.server(name, &["127.0.0.1"]).unwrap();
    let cloud = Cloud::start_with(&[("ann", "blue", "member")], |drop_ins: &Path, _| {
        let tls = ["networking", "identity"].map(|section| {
            let files = issue(section);
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("{section}: {{tls: {{certificate: '{certificate}', key: '{key}'}}}}\n")
        });
        fs::write(drop_ins.join("tls.yaml"), tls.concat()).unwrap();
    });
    let mut openstack = cloud.command("openstack", "ann", "blue");
    openstack.env("OS_AUTH_URL", format!("https://{}/v3", cloud.identity));
    openstack.env("OS_CACERT", authority.certificate());
    let created = openstack.args(["network", "create", "web", "-f", "value", "-c", "name"]).output().unwrap();
    assert_eq!(said("network create", &created), "web", "the catalog leads to the other API");

    let doors = [("identity", cloud.identity), ("networking", cloud.networking)];
    for (name, address) in doors {
        let mut plain = Http::connect(&address.to_string()).unwrap();
        assert!(plain.ask("GET", "/", &[], "").is_err(), "{name} answers without TLS");
    }
    for (name, address) in doors {
        let other = doors.iter().find(|(other, _)| *other != name).unwrap().1;
        let of_other = shown(&connect(other, authority.certificate()).await);
        let mut old = connect(address, authority.certificate()).await;
        ask(&mut old).await;
        let files = issue(name);
        let mut new = renewed(address, authority.certificate(), &shown(&old)).await;
        ask(&mut new).await;
        ask(&mut old).await;
        assert_eq!(shown(&connect(other, authority.certificate()).await), of_other, "the other has its own");

        fs::write(&files.certificate, "nonsense").unwrap();
        let complaint = format!("cannot use {}", files.certificate.display());
        let patience = Instant::now() + Duration::from_secs(60);
        while !cloud.log().contains(&complaint) {
            assert!(Instant::now() < patience, "{}", cloud.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(cloud.log().contains("new connections still get the old one"), "{}", cloud.log());
        let mut newest = connect(address, authority.certificate()).await;
        assert_eq!(shown(&newest), shown(&new), "what cannot be used is not used");
        for stream in [&mut old, &mut new, &mut newest] {
            ask(stream).await;
        }
        issue(name);
        renewed(address, authority.certificate(), &shown(&new)).await;
    }
}

#[test]
fn rows_of_others_end_it_unless_it_may_live_with_them() {
    let mut cloud = Cloud::start(&[("ann", "blue", "member")]);
    cloud.kill();
    cloud.ovn.nbctl(&["ls-add", "theirs"]).unwrap();
    let before = rows(&cloud.ovn.northbound());
    let ended = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["serve", "--config"])
        .arg(cloud.path("config.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    for part in ["1 in Logical_Switch", "Nothing was changed", "networking.northbound.coexist"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(rows(&cloud.ovn.northbound()), before);

    let coexist = "networking: {northbound: {coexist: true}}\n";
    fs::write(cloud.path("config.d/coexist.yaml"), coexist).unwrap();
    cloud.restart();
    cloud.openstack("ann", "blue", "network create ours");
    assert!(cloud.log().contains("others have rows in this database"), "{}", cloud.log());
    let names = cloud.ovn.nbctl(&["--bare", "--columns=name", "list", "Logical_Switch"]).unwrap();
    assert!(names.contains("theirs") && names.contains("ours"), "{names}");
}

/// A second server on the same database, which may only look.
#[test]
fn a_server_that_observes_shows_everything_and_changes_nothing() {
    let users = [("ann", "blue", "member"), ("eve", "red", "member")];
    let cloud = Cloud::start(&users);
    cloud.openstack("ann", "blue", "network create web");
    let observer = cloud.another("mode: observe\n");
    let openstack = |user: &str, project: &str, words: &str| {
        let mut command = cloud.command("openstack", user, project);
        command.env("OS_AUTH_URL", format!("http://{}/v3", observer.identity));
        command.args(words.split_whitespace()).output().unwrap()
    };
    let listed = openstack("ann", "blue", "network list -f value -c Name");
    assert_eq!(said("network list", &listed), "web");
    // The default group of a project is made at first sight, but not by who observes.
    let listed = openstack("eve", "red", "security group list -f value");
    assert_eq!(said("security group list", &listed), "");
    let refused = openstack("ann", "blue", "network create other");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("only watches (mode: observe)"), "{why}");
    assert_eq!(cloud.openstack("ann", "blue", "network list -f value -c Name"), "web");
}

#[test]
fn an_existing_keystone_says_who_may_do_what() {
    let keystone = Keystone::start(3600);
    keystone.add_user("ann", PASSWORD, "blue", "member");
    let cloud = Cloud::start_with(&[], |drop_ins: &Path, _| {
        let settings = format!(
            "identity: {{keystone: {{url: 'http://{}', user: admin, project: admin, password: {PASSWORD}}}}}\n",
            keystone.address()
        );
        fs::write(drop_ins.join("keystone.yaml"), settings).unwrap();
    });
    assert!(TcpStream::connect(cloud.identity).is_err(), "no other identity is served");
    let mut connection = Http::connect(&cloud.networking.to_string()).unwrap();
    let mut make = |token: &str| {
        let headers = [("X-Auth-Token", token), ("Content-Type", "application/json")];
        connection.ask("POST", "/v2.0/networks", &headers, r#"{"network": {"name": "web"}}"#).unwrap()
    };
    let made = make(&token(&keystone.address(), "ann", "blue"));
    assert_eq!((made.status, &made.json()["network"]["name"]), (201, &"web".into()), "{made:?}");
    assert_eq!(make("forged").status, 401);
}

//! How the two APIs are served: with TLS, on one port, read-only, with and without their database.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use portcullis_testkit::parts::Authority;
use portcullis_testkit::{Http, Keystone};

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

/// A second server on the same database, which may only look.
#[test]
fn a_server_that_observes_shows_everything_and_changes_nothing() {
    let users = [("ann", "blue", "member"), ("eve", "red", "member")];
    let cloud = Cloud::start(&users);
    cloud.openstack("ann", "blue", "network create web");
    let (_observer, identity) = cloud.another("mode: observe\n");
    let openstack = |user: &str, project: &str, words: &str| {
        let mut command = cloud.command("openstack", user, project);
        command.env("OS_AUTH_URL", format!("http://{identity}/v3"));
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

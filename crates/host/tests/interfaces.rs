//! Interfaces that come, go and change their addresses, in a network namespace of the test's own.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use portcullis_host::interfaces::{Interfaces, watch};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{Host, link};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

/// Does something with what follows the interfaces of a machine.
fn following(host: &Host, test: impl AsyncFnOnce(Receiver<Interfaces>)) {
    let interfaces = Namespace::run(host, || watch().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(test(interfaces));
}

async fn until(interfaces: &mut Receiver<Interfaces>, what: &str, is: impl FnMut(&Interfaces) -> bool) {
    let waited = timeout(Duration::from_secs(60), interfaces.wait_for(is)).await;
    waited.unwrap_or_else(|_| panic!("{what}")).unwrap();
}

fn addresses(interfaces: &Interfaces, name: &str) -> BTreeSet<IpAddr> {
    let found = interfaces.find(name).map(|found| found.addresses.clone()).unwrap_or_default();
    found.into_iter().filter(|address| !address.to_string().starts_with("fe80:")).collect()
}

fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn addresses_come_and_go() {
    let [node, other] = ["node", "other"].map(Host::new);
    link(&node, &["192.0.2.7/24", "2001:db8::7/64"], &other, &["192.0.2.8/24"]);
    // It is named after the machine at the other end.
    let name = "to-other".to_owned();
    let node = &node;
    following(node, async |mut interfaces| {
        // One of IPv6 may be tried out still.
        until(&mut interfaces, "what is there", |found| {
            addresses(found, &name) == set(&["192.0.2.7", "2001:db8::7"])
        })
        .await;
        node.run(&format!("ip address add 198.51.100.1/24 dev {name}"));
        until(&mut interfaces, "another address", |found| {
            addresses(found, &name) == set(&["192.0.2.7", "198.51.100.1", "2001:db8::7"])
        })
        .await;
        // Another prefix is added before the one that was there goes: all the time there is one.
        node.run(&format!("ip address add 192.0.2.7/23 dev {name}"));
        node.run(&format!("ip address delete 192.0.2.7/24 dev {name}"));
        node.run(&format!("ip address add 203.0.113.1/24 dev {name}"));
        let last = "203.0.113.1".parse().unwrap();
        until(&mut interfaces, "what came last", |found| addresses(found, &name).contains(&last)).await;
        assert!(addresses(&interfaces.borrow(), &name).contains(&"192.0.2.7".parse().unwrap()));
        node.run(&format!("ip address delete 203.0.113.1/24 dev {name}"));
        node.run(&format!("ip address delete 192.0.2.7/23 dev {name}"));
        until(&mut interfaces, "one less", |found| {
            addresses(found, &name) == set(&["198.51.100.1", "2001:db8::7"])
        })
        .await;
        // Down, IPv6 addresses go without a word in some kernels' news, and come back.
        node.run(&format!("ip link set {name} down"));
        until(&mut interfaces, "no IPv6", |found| addresses(found, &name) == set(&["198.51.100.1"])).await;
        node.run(&format!("ip link set {name} name lan"));
        until(&mut interfaces, "another name", |found| addresses(found, "lan") == set(&["198.51.100.1"]))
            .await;
        node.run("ip link add br0 type bridge");
        node.run("ip link set lan master br0");
        until(&mut interfaces, "a part of a bridge", |found| {
            found.find("lan").is_some_and(|lan| lan.master.is_some())
        })
        .await;
        node.run("ip link delete lan");
        until(&mut interfaces, "it is gone", |found| found.find("lan").is_none()).await;
        assert!(interfaces.borrow().find("lo").is_some());
    });
}

/// Many at once: in the end what is told is what is there.
#[test]
fn a_burst_of_news() {
    let node = Host::new("node");
    node.run("ip link add br0 type bridge");
    let node = &node;
    following(node, async |mut interfaces| {
        let batch: Vec<String> = (0..4000)
            .flat_map(|number| {
                let address = format!("10.{}.{}.1/32 dev br0", number / 200, number % 200);
                [
                    format!("address add {address}"),
                    format!("address delete {address}"),
                    format!("address add {address}"),
                ]
            })
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, batch.join("\n")).unwrap();
        node.run(&format!("ip -batch {}", file.path().display()));
        until(&mut interfaces, "all of them", |found| addresses(found, "br0").len() == 4000).await;
    });
}

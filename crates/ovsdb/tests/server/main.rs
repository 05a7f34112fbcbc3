//! The client against real servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod journal;
mod observer;
mod proxy;

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use portcullis_ovsdb::{
    Client, Columns, Datum, Error, Index, Mutator, Rows, Settings, TableSpec, Tls, Transaction, Until,
};
use portcullis_testkit::Raft;
use portcullis_testkit::parts::ovn::{self, Ovn};
use portcullis_testkit::parts::{Authority, Identity, Launch, Namespace, Port, Process, run};
use uuid::Uuid;

use portcullis_testkit::{Northbound, Wire};
use proxy::Proxy;

const TABLES: &[TableSpec] = &[
    TableSpec {
        name: "Port_Group",
        columns: &["name", "ports", "acls", "external_ids"],
        indexes: &[Index { name: "name", keys: |row| row.get("name").texts().map(str::to_owned).collect() }],
    },
    TableSpec { name: "Address_Set", columns: &["name", "external_ids"], indexes: &[] },
    TableSpec { name: "ACL", columns: &["priority", "match", "external_ids"], indexes: &[] },
];

fn settings(remotes: &[String]) -> Settings {
    Settings {
        remotes: remotes.iter().map(|remote| remote.parse().unwrap()).collect(),
        tls: None,
        database: "OVN_Northbound".into(),
        tables: TABLES.to_vec(),
        leader_only: true,
    }
}

fn group(name: &str) -> (Uuid, Transaction) {
    let uuid = Uuid::new_v4();
    let mut transaction = Transaction::new();
    transaction.insert("Port_Group", uuid, Columns::new().with("name", name));
    (uuid, transaction)
}

fn named(client: &Client, name: &str) -> Vec<Uuid> {
    client.read(|replica| replica.find("Port_Group", "name", name).map(|row| row.uuid()).collect())
}

const PATIENCE: Duration = Duration::from_secs(60);

fn northbound() -> (tempfile::TempDir, Ovn) {
    let directory = tempfile::tempdir().unwrap();
    let ovn = Ovn::start(directory.path(), directory.path(), None).unwrap();
    (directory, ovn)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_result_finds_it_in_the_replica() {
    let (_directory, ovn) = northbound();
    let client = Client::new(settings(&[ovn.northbound()]));
    client.connected(PATIENCE).await.unwrap();
    let mut changes = client.changes();

    let (uuid, mut create) = group("web");
    let acl = Uuid::new_v4();
    let rule = Columns::new()
        .with("priority", 1002)
        .with("direction", "to-lport")
        .with("match", "ip")
        .with("action", "drop");
    create.insert("ACL", acl, rule);
    create.mutate("Port_Group", Rows::Row(uuid), "acls", Mutator::Insert, acl.into());
    create.durable();
    client.transact(&create).await.unwrap();
    assert_eq!(named(&client, "web"), [uuid]);
    assert_eq!(
        client.read(|replica| replica.row("Port_Group", uuid).unwrap().get("acls").uuids().next()),
        Some(acl)
    );
    assert_eq!(changes.recv().await.unwrap().len(), 2);

    let mut rename = Transaction::new();
    rename.update("Port_Group", Rows::Row(uuid), Columns::new().with("name", "www"));
    client.transact(&rename).await.unwrap();
    assert_eq!((named(&client, "web").len(), named(&client, "www")), (0, vec![uuid]));

    let mut delete = Transaction::new();
    delete.delete("Port_Group", Rows::Row(uuid));
    client.transact(&delete).await.unwrap();
    assert_eq!(client.read(|replica| (replica.count("Port_Group"), replica.count("ACL"))), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_transaction_changes_nothing_and_says_why() {
    let (_directory, ovn) = northbound();
    let client = Client::new(settings(&[ovn.northbound()]));
    let (_, create) = group("web");
    client.transact(&create).await.unwrap();

    let (_, again) = group("web");
    let Err(Error::Refused { refused, .. }) = client.transact(&again).await else {
        panic!("the name is taken")
    };
    assert_eq!(refused.error, "constraint violation");

    let (_, mut conditional) = group("db");
    let expected = vec![Columns::new().with("name", "other")];
    conditional.wait(
        "Port_Group",
        Rows::Where("name".into(), "web".into()),
        &["name"],
        Until::Equal,
        expected,
    );
    let Err(Error::Refused { refused, .. }) = client.transact(&conditional).await else {
        panic!("it does not hold")
    };
    assert!(refused.is_unexpected(), "{refused}");
    assert!(named(&client, "db").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_share_a_connection() {
    let (_directory, ovn) = northbound();
    let client = Client::new(settings(&[ovn.northbound()]));
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let (uuid, create) = group(&format!("g{number}"));
                client.transact(&create).await.unwrap();
                assert_eq!(named(&client, &format!("g{number}")), [uuid]);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(client.read(|replica| replica.count("Port_Group")), 200);
    assert_eq!(
        ovn.nbctl(&["--bare", "--columns=name", "list", "Port_Group"]).unwrap().split_whitespace().count(),
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_reads_is_sent_again() {
    let server = Northbound::start();
    Client::new(settings(&[server.remote()])).transact(&group("web").1).await.unwrap();
    let proxy = Proxy::start(&server.socket()).await;
    let client = Client::new(settings(&[proxy.remote()]));
    let mut read = Transaction::new();
    read.select("Port_Group", Rows::Where("name".into(), "web".into()), &["name"]);
    let found = client.transact(&read).await.unwrap();
    assert_eq!(found[0].rows[0]["name"].text(), Some("web"));
    assert_eq!(proxy.transactions(), 4, "three were cut off");
    assert!(matches!(client.transact(&group("db").1).await, Err(Error::InDoubt { .. })));
}

/// A column of one value becomes one of several: then changes of it are told in another way.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_changes_meanwhile_is_followed() {
    let server = Northbound::start();
    let spec = TableSpec { name: "Load_Balancer", columns: &["protocol"], indexes: &[] };
    let table = spec.name;
    let client = Client::new(Settings { tables: vec![spec], ..settings(&[server.remote()]) });
    let uuid = Uuid::new_v4();
    let mut create = Transaction::new();
    create.insert(table, uuid, Columns::new().with("protocol", "tcp"));
    client.transact(&create).await.unwrap();

    let text = std::fs::read_to_string(ovn::schema_file("ovn-nb")).unwrap();
    let mut schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    schema["tables"][table]["columns"]["protocol"]["type"]["max"] = 3.into();
    schema["version"] = "99.0.0".into();
    let file = server.socket().with_extension("schema");
    std::fs::write(&file, schema.to_string()).unwrap();
    run(&Namespace::host(), "ovsdb-client", &["convert", &server.remote(), &file.display().to_string()])
        .unwrap();
    let mut add = Transaction::new();
    add.mutate(table, Rows::Row(uuid), "protocol", Mutator::Insert, "udp".into());
    tokio::time::timeout(PATIENCE, async { while client.transact(&add).await.is_err() {} }).await.unwrap();
    let protocols = client.read(|replica| replica.row(table, uuid).unwrap().get("protocol").clone());
    assert_eq!(protocols, ["tcp", "udp"].into_iter().collect::<Datum>());
    assert_eq!(client.schema().unwrap().version, "99.0.0");
}

/// Waits until that is why nobody is connected.
async fn told(client: &Client, expected: &str) {
    let mut last = String::new();
    let told = async {
        loop {
            let waited = client.connected(Duration::from_millis(500)).await;
            let Err(Error::Unavailable { why, .. }) = &waited else { panic!("{waited:?}") };
            last = why.to_string();
            if last.contains(expected) {
                break;
            }
        }
    };
    let is_told = tokio::time::timeout(PATIENCE, told).await.is_ok();
    assert!(is_told, "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_it_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = format!("unix:{}/none", directory.path().display());
    let client = Client::new(settings(&[nowhere]));
    told(&client, "No such file").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut raft = Raft::start();
    let client = Client::new(settings(&raft.remotes()));
    client.connected(PATIENCE).await.unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let changes = async {
            for number in 0.. {
                let name = format!("g{round}_{number}");
                let (uuid, create) = group(&name);
                match client.transact(&create).await {
                    Ok(_) => acknowledged.push((name, uuid)),
                    Err(Error::InDoubt { .. } | Error::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                if acknowledged.len() == 20 * (round + 1) {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, changes).await.expect("changes are made");
        let leader = raft.leader();
        raft.kill(leader);
        tokio::time::timeout(PATIENCE, async {
            while client.state().is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        client.connected(PATIENCE).await.unwrap();
        raft.restart(leader);
    }
    assert_eq!(client.copies(), 1, "it went on where it stopped");
    for (name, uuid) in acknowledged {
        assert_eq!(named(&client, &name), [uuid], "{name}");
    }
}

/// The old leader lives on, and would pass changes on to the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hands_over_is_left() {
    let raft = Raft::start();
    let wires = raft.remotes().map(|remote| Wire::to(Path::new(remote.strip_prefix("unix:").unwrap())));
    let client = Client::new(settings(&wires.each_ref().map(Wire::remote)));
    client.connected(PATIENCE).await.unwrap();
    // Who may follow any member stays with it.
    let follower = raft.remotes()[(raft.leader() + 1) % 3].clone();
    let content = Client::new(Settings { leader_only: false, ..settings(&[follower]) });
    content.connected(PATIENCE).await.unwrap();
    let mut made = Vec::new();
    for round in 0..3 {
        let leader = raft.leader();
        tokio::task::block_in_place(|| raft.hand_over(leader));
        let next = tokio::task::block_in_place(|| raft.leader());
        assert_ne!(next, leader);
        let follows = async {
            for number in 0.. {
                let name = format!("g{round}_{number}");
                let (uuid, create) = group(&name);
                match client.transact(&create).await {
                    Ok(_) => made.push((name.clone(), uuid)),
                    // It was on its way while the connection was changed.
                    Err(Error::InDoubt { .. } | Error::Unavailable { .. }) => continue,
                    Err(other) => panic!("{other}"),
                }
                if wires[next].heard().iter().any(|message| message.to_string().contains(&name)) {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, follows).await.expect("changes are sent to who leads now");
    }
    for (name, uuid) in made {
        assert_eq!(named(&client, &name), [uuid], "{name}");
        let told = async {
            while named(&content, &name) != [uuid] {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap();
    }
    assert_eq!((client.copies(), content.copies()), (1, 1), "each went on where it stopped");
}

/// A database that is served over TLS, to clients with a certificate of `authority` only.
fn tls_server(directory: &Path, authority: &Authority, server: &Identity) -> (String, Process, Port) {
    let database = directory.join("nb.db").display().to_string();
    let schema = ovn::schema_file("ovn-nb").display().to_string();
    run(&Namespace::host(), "ovsdb-tool", &["create", &database, &schema]).unwrap();
    let port = Port::any().unwrap();
    let mut process = Launch::new("ovsdb-server")
        .unwrap()
        .arg(format!("--remote=pssl:{}:127.0.0.1", port.number()))
        .arg(format!("--private-key={}", server.key.display()))
        .arg(format!("--certificate={}", server.certificate.display()))
        .arg(format!("--ca-cert={}", authority.certificate().display()))
        .arg(format!("--unixctl={}", directory.join("ctl").display()))
        .arg(&database)
        .start(&Namespace::host(), directory)
        .unwrap();
    process.wait_until(PATIENCE, || TcpStream::connect(("127.0.0.1", port.number())).is_ok()).unwrap();
    (format!("ssl:127.0.0.1:{}", port.number()), process, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_show_each_other_who_they_are() {
    let [directory, elsewhere] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [authority, other] =
        [&directory, &elsewhere].map(|directory| Authority::new(directory.path()).unwrap());
    // As Open vSwitch's are: a name that is not that of the machine.
    let server = authority.server("server", &["northbound"]).unwrap();
    let (remote, _process, _port) = tls_server(directory.path(), &authority, &server);
    let tls = |trusted: &Authority, signer: &Authority| {
        let client = signer.client("client", "portcullis", None).unwrap();
        Tls { authority: trusted.certificate().into(), certificate: client.certificate, key: client.key }
    };
    let connect = |tls| Client::new(Settings { tls, ..settings(std::slice::from_ref(&remote)) });

    let client = connect(Some(tls(&authority, &authority)));
    client.connected(PATIENCE).await.unwrap();
    client.transact(&group("web").1).await.unwrap();
    assert_eq!(named(&client, "web").len(), 1);

    for (wrong, why) in [
        (None, "no certificates are configured"),
        (Some(tls(&other, &authority)), "invalid peer certificate"),
        (Some(tls(&authority, &other)), ""),
        (Some(Tls { authority: "/none".into(), ..tls(&authority, &authority) }), "cannot use /none"),
    ] {
        told(&connect(wrong), why).await;
    }
}

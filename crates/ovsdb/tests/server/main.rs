//! The client against real servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use portcullis_ovsdb::{
    Client, Columns, Error, Index, Mutator, Rows, Settings, TableSpec, Transaction, Until,
};
use portcullis_testkit::{Raft, parts::ovn::Ovn};
use uuid::Uuid;

const TABLES: &[TableSpec] = &[
    TableSpec {
        name: "Port_Group",
        columns: &["name", "ports", "acls", "external_ids"],
        indexes: &[Index { name: "name", keys: |row| row.get("name").texts().map(str::to_owned).collect() }],
    },
    TableSpec { name: "ACL", columns: &["priority", "match", "external_ids"], indexes: &[] },
];

fn settings(remotes: &[String]) -> Settings {
    Settings {
        remotes: remotes.iter().map(|remote| remote.parse().unwrap()).collect(),
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
async fn without_a_server_it_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = format!("unix:{}/none", directory.path().display());
    let client = Client::new(settings(&[nowhere]));
    let Err(Error::Unavailable { why, .. }) = client.connected(Duration::from_millis(200)).await else {
        panic!("nobody is there")
    };
    assert!(why.contains("No such file"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut raft = Raft::start();
    let client = Client::new(settings(&raft.remotes()));
    client.connected(PATIENCE).await.unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        for number in 0..20 {
            let name = format!("g{round}_{number}");
            let (uuid, create) = group(&name);
            match client.transact(&create).await {
                Ok(_) => acknowledged.push((name, uuid)),
                Err(Error::InDoubt { .. } | Error::Unavailable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
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
    assert!(acknowledged.len() > 40, "{}", acknowledged.len());
    for (name, uuid) in acknowledged {
        assert_eq!(named(&client, &name), [uuid], "{name}");
    }
}

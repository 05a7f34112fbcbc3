//! What an observer keeps is in step with the replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_ovsdb::{Change, Client, Columns, Error, Observer, Rows, Transaction};
use portcullis_testkit::Raft;
use uuid::Uuid;

use crate::{PATIENCE, group, settings};
use portcullis_testkit::Northbound;

/// Makes a change that may be lost with an old connection.
async fn insist(client: &Client, transaction: &Transaction) {
    // Refused, it was made before the connection was lost.
    while let Err(Error::InDoubt { .. } | Error::Unavailable { .. }) = client.transact(transaction).await {}
}

/// The names of all groups, from changes alone, and how often it was told.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<(HashMap<Uuid, String>, usize)>>);

impl Names {
    fn get(&self, uuid: Uuid) -> Option<String> {
        self.0.lock().unwrap().0.get(&uuid).cloned()
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().1
    }

    /// It has what the replica has.
    fn check(&self, client: &Client) {
        let replicated: HashMap<Uuid, String> = client.read(|replica| {
            let rows = replica.rows("Port_Group");
            rows.map(|row| (row.uuid(), row.get("name").text().unwrap().to_owned())).collect()
        });
        assert_eq!(self.0.lock().unwrap().0, replicated);
    }
}

impl Observer for Names {
    fn changed(&self, changes: &[Change]) {
        let mut names = self.0.lock().unwrap();
        names.1 += 1;
        for change in changes.iter().filter(|change| change.table == "Port_Group") {
            let name = |row: &portcullis_ovsdb::Row| row.get("name").text().unwrap().to_owned();
            let old = match &change.new {
                Some(row) => names.0.insert(change.uuid, name(row)),
                None => names.0.remove(&change.uuid),
            };
            assert_eq!(old, change.old.as_deref().map(name), "the change is against what was told before");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_result_finds_it_with_the_observer() {
    let server = Northbound::start();
    let names = Names::default();
    let client = Client::observed(settings(&[server.remote()]), names.clone());
    for number in 0..100 {
        let (uuid, create) = group(&format!("g{number}"));
        client.transact(&create).await.unwrap();
        assert_eq!(names.get(uuid), Some(format!("g{number}")));
        let mut rename = Transaction::new();
        rename.update("Port_Group", Rows::Row(uuid), Columns::new().with("name", format!("h{number}")));
        client.transact(&rename).await.unwrap();
        assert_eq!(names.get(uuid), Some(format!("h{number}")));
    }

    let late = Names::default();
    let client = Client::observed(settings(&[server.remote()]), late.clone());
    client.connected(PATIENCE).await.unwrap();
    assert_eq!(late.calls(), 1, "everything at once");
    late.check(&client);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_connection_the_observer_hears_what_is_different() {
    let mut server = Northbound::start();
    let names = Names::default();
    let client = Client::observed(settings(&[server.remote()]), names.clone());
    let (uuid, create) = group("web");
    client.transact(&create).await.unwrap();

    server.restart();
    let (again, create) = group("db");
    insist(&client, &create).await;
    assert_eq!((names.get(uuid).as_deref(), names.get(again).as_deref()), (Some("web"), Some("db")));
    assert_eq!(client.copies(), 2);
    names.check(&client);

    server.forget();
    let (last, create) = group("dns");
    insist(&client, &create).await;
    assert_eq!((names.get(uuid), names.get(last).as_deref()), (None, Some("dns")));
    names.check(&client);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_elsewhere_meanwhile_is_told_too() {
    let mut raft = Raft::start();
    let names = Names::default();
    let client = Client::observed(settings(&raft.remotes()), names.clone());
    let (uuid, create) = group("web");
    client.transact(&create).await.unwrap();
    let leader = raft.leader();
    raft.kill(leader);
    let other = Client::new(settings(&raft.remotes()));
    let mut delete = Transaction::new();
    delete.delete("Port_Group", Rows::Row(uuid));
    insist(&other, &delete).await;
    let (new, create) = group("db");
    insist(&client, &create).await;
    assert_eq!((names.get(uuid), names.get(new).as_deref()), (None, Some("db")));
    names.check(&client);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_in_vain_after_a_panic() {
    let server = Northbound::start();
    let client = Client::observed(settings(&[server.remote()]), |_: &[Change]| panic!("on purpose"));
    assert!(matches!(client.transact(&group("web").1).await, Err(Error::InDoubt { .. })));
    let failed = async {
        while client.state() != Err("the client has failed".into()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, failed).await.unwrap();
}

//! Changes are made exactly once, and on what was seen, whatever happens to servers and connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_ovsdb::{
    Client, Columns, CommitError, Datum, Journal, NotReplicated, Place, Rows, TableSpec, Transaction, Until,
};
use portcullis_testkit::{Raft, eventually};
use uuid::Uuid;

use crate::proxy::Proxy;
use crate::{PATIENCE, group, named, settings};
use portcullis_testkit::Northbound;

const JOURNAL: Uuid = Uuid::from_u128(1);
const COUNTER: Uuid = Uuid::from_u128(2);

fn place() -> Place {
    Place {
        table: "Address_Set",
        row: JOURNAL,
        column: "external_ids",
        columns: Columns::new().with("name", "journal"),
    }
}

struct Counting {
    client: Client,
    journal: Journal,
}

impl Counting {
    fn new(remotes: &[String]) -> Self {
        let client = Client::new(settings(remotes));
        let journal = Journal::new(client.clone(), place()).unwrap().patience(PATIENCE);
        Counting { client, journal }
    }

    /// What the counter says, which is kept by reading, adding and writing.
    fn count(&self) -> Option<u64> {
        self.client.read(|replica| {
            let row = replica.row("Address_Set", COUNTER)?;
            row.get("external_ids").value_of("count").and_then(|text| text.parse().ok())
        })
    }

    /// Adds one, together with a group of this name; starts anew as long as others were faster.
    async fn add(&self, name: &str) -> Result<(), CommitError> {
        self.client.connected(PATIENCE).await.unwrap();
        loop {
            let basis = self.journal.generation();
            let count = self.count();
            let ids: Datum = [("count", (count.unwrap_or(0) + 1).to_string())].into_iter().collect();
            let (_, mut transaction) = group(name);
            if count.is_some() {
                let columns = Columns::new().with("external_ids", ids);
                transaction.update("Address_Set", Rows::Row(COUNTER), columns);
            } else {
                let columns = Columns::new().with("name", "counter").with("external_ids", ids);
                transaction.insert("Address_Set", COUNTER, columns);
            }
            match self.journal.commit(transaction, basis).await {
                Err(CommitError::Stale) => {}
                done => return done,
            }
        }
    }
}

/// Two writers, each with a connection of its own, count until `disturb` returns the servers.
async fn race<S: Send + 'static>(remotes: &[String], disturb: impl FnOnce() -> S + Send + 'static) {
    let stopped = Arc::new(AtomicBool::new(false));
    let writers = [0, 1].map(|writer| {
        let counting = Counting::new(remotes);
        let stopped = Arc::clone(&stopped);
        tokio::spawn(async move {
            let mut made = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let name = format!("w{writer}_{}", made.len());
                counting.add(&name).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
                made.push(name);
            }
            made
        })
    });
    let _servers = tokio::task::spawn_blocking(disturb).await.unwrap();
    stopped.store(true, Ordering::SeqCst);
    let mut made = Vec::new();
    for writer in writers {
        made.extend(writer.await.unwrap());
    }
    check(remotes, &made).await;
}

/// Every one of these was made once, and nothing else.
async fn check(remotes: &[String], made: &[String]) {
    let counting = Counting::new(remotes);
    counting.client.connected(PATIENCE).await.unwrap();
    let expected = u64::try_from(made.len()).unwrap();
    assert_eq!((counting.count(), counting.journal.generation()), (Some(expected), expected));
    assert_eq!(counting.client.read(|replica| replica.count("Port_Group")), made.len());
    for name in made {
        assert_eq!(named(&counting.client, name).len(), 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_never_overwrite_each_other() {
    let server = Northbound::start();
    let remotes = [server.remote()];
    let writers = [0, 1].map(|writer| {
        let counting = Counting::new(&remotes);
        tokio::spawn(async move {
            for number in 0..500 {
                counting.add(&format!("w{writer}_{number}")).await.unwrap();
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    let names: Vec<String> =
        [0, 1].iter().flat_map(|writer| (0..500).map(move |number| format!("w{writer}_{number}"))).collect();
    check(&remotes, &names).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_leaders_neither_lose_nor_repeat_a_change() {
    let mut raft = Raft::start();
    let remotes = raft.remotes();
    race(&remotes, move || {
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(700));
            let leader = raft.leader();
            raft.kill(leader);
            raft.leader();
            std::thread::sleep(Duration::from_millis(300));
            raft.restart(leader);
        }
        std::thread::sleep(Duration::from_millis(500));
        raft
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_neither_loses_nor_repeats_a_change() {
    let mut server = Northbound::start();
    let remotes = [server.remote()];
    race(&remotes, move || {
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(300));
            server.kill();
            std::thread::sleep(Duration::from_millis(100));
            server.restart();
        }
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_makes_no_difference() {
    let server = Northbound::start();
    let proxy = Proxy::start(&server.socket()).await;
    let writers = [0, 1].map(|writer| {
        // One of them with a good connection, so that something happens between two sendings of the other.
        let counting = Counting::new(&[if writer == 0 { proxy.remote() } else { server.remote() }]);
        tokio::spawn(async move {
            let mut made = Vec::new();
            for number in 0..20 * (1 + writer * 4) {
                let name = format!("w{writer}_{number}");
                counting.add(&name).await.unwrap();
                made.push(name);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            made
        })
    });
    let mut made = Vec::new();
    for writer in writers {
        made.extend(writer.await.unwrap());
    }
    assert!(proxy.transactions() > 20, "some were sent again");
    check(&[server.remote()], &made).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_change_does_no_harm() {
    let server = Northbound::start();
    let remotes = [server.remote()];
    let counting = Counting::new(&remotes);
    let mut made = Vec::new();
    for number in 0..100 {
        let [abandoned, name] = ["a", "b"].map(|kind| format!("{kind}{number}"));
        let patience = async {
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            done = counting.add(&abandoned) => done.unwrap(),
            () = patience => {}
        }
        counting.add(&name).await.unwrap();
        // Made or not, it is decided: what came after it was decided on it.
        if !named(&counting.client, &abandoned).is_empty() {
            made.push(abandoned);
        }
        made.push(name);
    }
    check(&remotes, &made).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_made_is_told_apart() {
    let mut server = Northbound::start();
    let counting = Counting::new(&[server.remote()]);
    let journal = Journal::new(counting.client.clone(), place())
        .unwrap()
        .durable(true)
        .patience(Duration::from_millis(300));
    counting.add("web").await.unwrap();
    assert_eq!(journal.generation(), 1);
    assert!(matches!(journal.commit(group("db").1, 0).await, Err(CommitError::Stale)));
    assert!(matches!(journal.commit(group("db").1, 7).await, Err(CommitError::Stale)), "never seen");

    let mut taken = Transaction::new();
    taken.delete("Port_Group", Rows::Where("name".into(), "none".into()));
    taken.wait("Port_Group", Rows::All, &["name"], Until::Equal, Vec::new());
    match journal.commit(taken, 1).await {
        Err(CommitError::Refused(refused)) => {
            assert!(refused.operation == 1 && refused.is_unexpected(), "{refused:?}");
        }
        other => panic!("a wait of the caller's own failed: {other:?}"),
    }
    assert!(matches!(journal.commit(group("web").1, 1).await, Err(CommitError::Refused(_))));
    journal.commit(group("db").1, 1).await.unwrap();
    assert_eq!(journal.generation(), 2);

    server.kill();
    eventually("that is known", || counting.client.state().is_err());
    assert!(matches!(journal.commit(group("dns").1, 2).await, Err(CommitError::Unavailable(_))));
    server.restart();
    counting.client.connected(PATIENCE).await.unwrap();
    journal.commit(group("dns").1, 2).await.unwrap();
    assert_eq!(named(&counting.client, "dns").len(), 1);

    let elsewhere = TableSpec { name: "Address_Set", columns: &["name"], indexes: &[] };
    let client = Client::new(portcullis_ovsdb::Settings { tables: vec![elsewhere], ..settings(&[]) });
    let refused = Journal::new(client, place()).unwrap_err();
    assert_eq!(refused, NotReplicated { table: "Address_Set", column: "external_ids" });
}

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_ovn::objects::{FixedIp, Network, Port, SecurityGroup, Subnet};
use portcullis_ovn::{Draft, Rejected, Store, StoreError, StoreSettings};
use portcullis_testkit::{Northbound, Raft, Wire, eventually};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{add_group, add_network, meta, open, settings};

#[expect(clippy::unnecessary_wraps, reason = "a decision may be against it; these never are")]
fn ok<T>(value: T) -> Result<T, Infallible> {
    Ok(value)
}

/// A port with the lowest address that nobody has: a decision that must see all before it.
fn add_port(draft: &mut Draft, network: Uuid, subnet: Uuid) -> IpAddr {
    let free = (2..u32::MAX).map(|number| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)));
    let address = free.into_iter().find(|address| draft.holder(subnet, *address).is_none()).unwrap();
    draft.put(Port {
        meta: meta("port"),
        network,
        fixed_ips: vec![FixedIp { subnet, address }],
        ..Port::default()
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_never_give_the_same_address_twice() {
    let northbound = Northbound::start();
    let stores = [open(&[northbound.remote()]).await, open(&[northbound.remote()]).await];
    let (network, subnet) = stores[0]
        .change(|draft| {
            let network = add_network(draft, "net");
            let subnet = Subnet {
                meta: meta("sub"),
                network,
                cidr: "10.0.0.0/16".parse().unwrap(),
                ..Subnet::default()
            };
            let id = subnet.meta.id;
            draft.put(subnet);
            ok((network, id))
        })
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        let store = stores[number % 2].clone();
        tasks.spawn(
            async move { store.change(move |draft| ok(add_port(draft, network, subnet))).await.unwrap() },
        );
    }
    let given: BTreeSet<IpAddr> = tasks.join_all().await.into_iter().collect();
    assert_eq!(given.len(), 200);
    assert!(given.contains(&IpAddr::from([10, 0, 0, 201])), "and none was left out");
    for store in &stores {
        assert!(store.drift().is_empty());
    }
}

/// Adds groups until told to stop; gives those that were acknowledged and those of which nothing is known.
async fn add_groups(
    store: Store,
    tag: usize,
    mut stop: tokio::sync::watch::Receiver<bool>,
    acknowledged: Arc<AtomicUsize>,
) -> (Vec<Uuid>, Vec<String>) {
    let (mut made, mut doubtful) = (Vec::new(), Vec::new());
    let mut number = 0;
    while !*stop.borrow_and_update() {
        number += 1;
        let name = format!("{tag}-{number}");
        let decided = name.clone();
        match store.change(move |draft| ok(add_group(draft, &decided))).await {
            Ok(id) => {
                made.push(id);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(Rejected::Store(StoreError::InDoubt)) => doubtful.push(name),
            Err(Rejected::Store(_)) => {}
            Err(Rejected::Decided(never)) => match never {},
        }
    }
    (made, doubtful)
}

/// Lets eight tasks write while `disturb` is at work, and looks at what is there afterwards.
async fn disturbed(store: Store, disturb: impl FnOnce()) {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut tasks = JoinSet::new();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    for tag in 0..8 {
        tasks.spawn(add_groups(store.clone(), tag, stopped.clone(), Arc::clone(&acknowledged)));
    }
    tokio::task::block_in_place(|| {
        let more = |number: usize| {
            let until = acknowledged.load(Ordering::Relaxed) + number;
            eventually("more are made", || acknowledged.load(Ordering::Relaxed) >= until);
        };
        more(30);
        disturb();
        more(80);
    });
    stop.send_replace(true);
    let outcomes = tasks.join_all().await;
    let model = store.model();
    let names: Vec<String> = model.all::<SecurityGroup>(None).map(|group| group.meta.name.clone()).collect();
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "nothing was made twice");
    let mut made = 0;
    let mut doubtful = 0;
    for (ids, names) in outcomes {
        made += ids.len();
        doubtful += names.len();
        assert!(
            ids.iter().all(|id| model.get::<SecurityGroup>(*id).is_some()),
            "what was acknowledged is there"
        );
    }
    assert!(made > 100, "only {made} were made");
    assert!(names.len() >= made && names.len() <= made + doubtful, "{} {made} {doubtful}", names.len());
    assert!(store.drift().is_empty(), "nothing is half written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing() {
    let mut northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    disturbed(store, || {
        for _ in 0..3 {
            northbound.restart();
            std::thread::sleep(Duration::from_millis(300));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_loses_nothing() {
    let mut raft = Raft::start();
    let store = open(&raft.remotes()).await;
    disturbed(store, || {
        for _ in 0..2 {
            let leader = raft.leader();
            raft.kill(leader);
            std::thread::sleep(Duration::from_millis(2500));
            raft.restart(leader);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_changes_are_refused_and_objects_are_still_shown() {
    let mut northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let id = store.change(|draft| ok(add_network(draft, "net"))).await.unwrap();
    northbound.kill();
    let refused = store.change(|draft| ok(add_network(draft, "other"))).await.unwrap_err();
    assert!(
        matches!(refused, Rejected::Store(StoreError::Unavailable(_) | StoreError::InDoubt)),
        "{refused:?}"
    );
    assert!(store.state().is_err());
    assert_eq!(store.model().get::<Network>(id).unwrap().meta.name, "net");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_store() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let id = store.change(|draft| ok(add_network(draft, "net"))).await.unwrap();
    let before = store.model();
    drop(store);
    let store = open(&[northbound.remote()]).await;
    assert_eq!(store.model().get::<Network>(id), before.get::<Network>(id));
    assert_eq!(store.model().generation, before.generation, "nothing had to be put right");
}

/// What is told of every change on the wire, before its answer counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_counts_once_it_is_on_disk_if_that_is_wanted() {
    for durable in [true, false] {
        let northbound = Northbound::start();
        let wire = Wire::to(&northbound.socket());
        let store = Store::start(StoreSettings { durable, ..settings(&[wire.remote()]) });
        store.opened().await.unwrap();
        let id = store.change(|draft| ok(add_network(draft, "net"))).await.unwrap();
        let edit = move |draft: &mut Draft| {
            draft.edit::<Network>(id, |network| network.mtu = 1300);
            ok(())
        };
        store.change(edit).await.unwrap();
        // One that puts right what somebody broke.
        northbound.nbctl(&["set", "Logical_Switch", &id.to_string(), "name=broken"]);
        eventually("it was put right", || {
            northbound.nbctl(&["show"]).contains("net") && store.drift().is_empty()
        });
        let remove = move |draft: &mut Draft| {
            draft.remove::<Network>(id);
            ok(())
        };
        store.change(remove).await.unwrap();
        let said = wire.heard();
        let transactions: Vec<_> = said.iter().filter(|message| message["method"] == "transact").collect();
        assert_eq!(transactions.len(), 4, "{said:#?}");
        for transaction in transactions {
            let operations = transaction["params"].as_array().unwrap();
            let commit = operations.last().filter(|operation| operation["op"] == "commit");
            let on_disk = commit.is_some_and(|commit| commit["durable"] == true);
            assert_eq!(on_disk, durable, "{transaction}");
        }
    }
}

/// The server has the change, and nobody hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_found_out_is_in_doubt() {
    let northbound = Northbound::start();
    let wire = Wire::to(&northbound.socket());
    let store = open(&[wire.remote()]).await;
    store.change(|draft| ok(add_network(draft, "before"))).await.unwrap();
    wire.cut_at_next_transaction();
    let doubtful = store.change(|draft| ok(add_group(draft, "doubtful"))).await.unwrap_err();
    assert!(matches!(doubtful, Rejected::Store(StoreError::InDoubt)), "{doubtful:?}");
    let refused = store.change(|draft| ok(add_group(draft, "refused"))).await.unwrap_err();
    assert!(matches!(refused, Rejected::Store(StoreError::Unavailable(_))), "{refused:?}");
    wire.mend();
    // On what is there now, whatever it is. Who comes at the moment of a refusal gets the same.
    while store.change(|draft| ok(add_group(draft, "after"))).await.is_err() {}
    let mut names: Vec<String> =
        store.model().all::<SecurityGroup>(None).map(|group| group.meta.name.clone()).collect();
    names.sort();
    assert_eq!(names, ["after", "doubtful"]);
    assert!(store.drift().is_empty());
}

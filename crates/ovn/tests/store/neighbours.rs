use std::convert::Infallible;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_core::Direction;
use portcullis_ovn::objects::{Network, Port, Rule, SecurityGroup};
use portcullis_ovn::{OpenError, Rejected, Store, StoreError};
use portcullis_ovsdb::{Client, Columns, Rows, Settings, Transaction};
use portcullis_testkit::{Northbound, eventually};

use crate::{add_group, add_network, meta, open, settings};

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_others_stop_it_unless_it_may_live_with_them() {
    let northbound = Northbound::start();
    northbound.nbctl(&["ls-add", "theirs", "--", "lsp-add", "theirs", "port"]);
    northbound.nbctl(&["pg-add", "pg_theirs", "port"]);
    let all = northbound.nbctl(&["show"]);

    let refused = Store::start(settings(&[northbound.remote()])).opened().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the northbound database has rows that are not ours: 1 in Logical_Switch, 1 in Port_Group. Nothing was changed. \
         If another system may keep its rows there, set networking.northbound.coexist to true: its rows are then never \
         touched"
    );
    assert_eq!(northbound.nbctl(&["show"]), all);

    let mut beside = settings(&[northbound.remote()]);
    beside.coexist = true;
    let store = Store::start(beside);
    store.opened().await.unwrap();
    assert_eq!(store.model().ids(), [], "what is not ours is no object");
    store.change(|draft| Ok::<_, Infallible>(add_network(draft, "ours"))).await.unwrap();
    assert!(northbound.nbctl(&["show"]).contains(&all), "theirs is as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changed_behind_our_back_is_put_right() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let (group, port) = store
        .change(|draft| {
            let network = add_network(draft, "net");
            let group = add_group(draft, "group");
            draft.put(Rule { meta: meta(""), group, direction: Direction::Ingress, ..Rule::default() });
            let port = Port { meta: meta("vm"), network, security_groups: vec![group], ..Port::default() };
            let id = port.meta.id;
            draft.put(port);
            Ok::<_, Infallible>((group, id))
        })
        .await
        .unwrap();
    drop(store);
    let deny =
        northbound.nbctl(&["--bare", "--columns=_uuid", "find", "ACL", "action=drop", "direction=to-lport"]);
    northbound.nbctl(&["set", "ACL", deny.trim(), "action=allow"]);
    northbound.nbctl(&["set", "Port_Group", &group.to_string(), "ports=[]"]);
    northbound.nbctl(&[
        "set",
        "Logical_Switch_Port",
        &port.to_string(),
        "port_security=[]",
        "external_ids:note=kept",
    ]);

    let store = open(&[northbound.remote()]).await;
    assert!(store.drift().is_empty());
    assert_eq!(northbound.nbctl(&["get", "ACL", deny.trim(), "action"]).trim(), "drop");
    assert!(
        northbound.nbctl(&["get", "Port_Group", &group.to_string(), "ports"]).contains(&port.to_string())
    );
    assert_eq!(
        northbound.nbctl(&["get", "Logical_Switch_Port", &port.to_string(), "external_ids:note"]).trim(),
        "kept"
    );
    assert!(store.model().get::<SecurityGroup>(group).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_while_it_runs_is_put_right_too() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let port = store
        .change(|draft| {
            let network = add_network(draft, "net");
            let port = Port { meta: meta("vm"), network, ..Port::default() };
            let id = port.meta.id;
            draft.put(port);
            Ok::<_, Infallible>(id)
        })
        .await
        .unwrap();
    let deny =
        northbound.nbctl(&["--bare", "--columns=_uuid", "find", "ACL", "action=drop", "direction=to-lport"]);
    northbound.nbctl(&["set", "ACL", deny.trim(), "action=allow"]);
    northbound.nbctl(&["clear", "Logical_Switch_Port", &port.to_string(), "port_security"]);
    eventually("what was changed is as it was", || {
        northbound.nbctl(&["get", "ACL", deny.trim(), "action"]).trim() == "drop" && store.drift().is_empty()
    });
    // What OVN itself says is nobody's mistake.
    let generation = store.model().generation;
    northbound.nbctl(&["set", "Logical_Switch_Port", &port.to_string(), "up=true"]);
    eventually("the port is up", || store.model().get::<Port>(port).is_some_and(|port| port.up));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(store.model().generation, generation);
}

/// A network with a filtered port, and the rule that drops what nobody allows.
async fn filtered(store: &Store, northbound: &Northbound) -> String {
    let network = Network { meta: meta("net"), physical: Some("wire".into()), ..Network::default() };
    store
        .change(move |draft| {
            draft.put(network.clone());
            draft.put(Port { meta: meta("vm"), network: network.meta.id, ..Port::default() });
            Ok::<_, Infallible>(())
        })
        .await
        .unwrap();
    let deny =
        northbound.nbctl(&["--bare", "--columns=_uuid", "find", "ACL", "action=drop", "direction=to-lport"]);
    deny.trim().to_owned()
}

fn drops(northbound: &Northbound, rule: &str) -> bool {
    northbound.nbctl(&["get", "ACL", rule, "action"]).trim() == "drop"
}

fn journal(northbound: &Northbound) -> String {
    let found = ["--bare", "--columns=_uuid", "find", "DNS", "external_ids:portcullis\\:kind=journal"];
    northbound.nbctl(&found).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_together_with_a_change_is_put_right_too() {
    let northbound = Northbound::start();
    let other = Client::new(Settings {
        remotes: vec![northbound.remote().parse().unwrap()],
        tls: None,
        database: "OVN_Northbound".to_owned(),
        tables: Vec::new(),
        leader_only: false,
    });
    other.connected(std::time::Duration::from_secs(30)).await.unwrap();
    let store = open(&[northbound.remote()]).await;
    let deny = filtered(&store, &northbound).await;

    // A change of ours, and one of somebody else, which the server takes up at the same time.
    let mut opening = Transaction::new();
    opening.update("ACL", Rows::Row(deny.parse().unwrap()), Columns::new().with("action", "allow"));
    let server = Pid::from_raw(i32::try_from(northbound.process().unwrap()).unwrap());
    kill(server, Signal::SIGSTOP).unwrap();
    let ours = tokio::spawn({
        let store = store.clone();
        async move { store.change(|draft| Ok::<_, Infallible>(add_group(draft, "group"))).await }
    });
    let theirs = tokio::spawn(async move { other.transact(&opening).await });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    kill(server, Signal::SIGCONT).unwrap();
    theirs.await.unwrap().unwrap();
    ours.await.unwrap().unwrap();
    eventually("what nobody allows is dropped again", || {
        drops(&northbound, &deny) && store.drift().is_empty()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_note_on_our_rows_is_theirs() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let deny = filtered(&store, &northbound).await;
    let generation = store.model().generation;
    northbound.nbctl(&["set", "ACL", &deny, "external_ids:note=theirs"]);
    let noted = || northbound.nbctl(&["get", "ACL", &deny, "external_ids:note"]).trim() == "theirs";
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(noted() && store.model().generation == generation);
    store.change(|draft| Ok::<_, Infallible>(add_network(draft, "other"))).await.unwrap();
    assert!(noted() && store.drift().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_does_not_take_leaves_the_rest_be() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let deny = filtered(&store, &northbound).await;
    drop(store);
    let switch = northbound.nbctl(&["--bare", "--columns=_uuid", "list", "Logical_Switch"]);
    // More than OVN has.
    northbound.nbctl(&["set", "Logical_Switch", switch.trim(), "external_ids:portcullis\\:vlan=5000"]);
    northbound.nbctl(&["set", "ACL", &deny, "action=allow"]);
    let store = open(&[northbound.remote()]).await;
    assert!(drops(&northbound, &deny));
    assert!(!store.drift().is_empty(), "what cannot be is told");
    store.change(|draft| Ok::<_, Infallible>(add_group(draft, "group"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_cannot_go_on_begins_anew() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    store.change(|draft| Ok::<_, Infallible>(add_network(draft, "net"))).await.unwrap();
    let beyond = "records:generation=9999999999999999999";
    northbound.nbctl(&["set", "DNS", &journal(&northbound), beyond]);
    eventually("it was seen", || store.model().generation == 0);
    store.change(|draft| Ok::<_, Infallible>(add_network(draft, "other"))).await.unwrap();
    assert_eq!(store.model().generation, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_breaks_down_in_deciding_breaks_nobody_else() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let broken = store.change(|draft| -> Result<(), Infallible> {
        add_network(draft, "half");
        panic!("a mistake that a test makes");
    });
    let whole = store.change(|draft| Ok::<_, Infallible>(add_network(draft, "whole")));
    let (broken, whole) = tokio::join!(broken, whole);
    assert!(matches!(broken, Err(Rejected::Store(StoreError::Broken))), "{broken:?}");
    whole.unwrap();
    let names: Vec<String> =
        store.model().all::<Network>(None).map(|network| network.meta.name.clone()).collect();
    assert_eq!(names, ["whole"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_database_lacks_is_told() {
    let northbound = Northbound::without_column("Logical_Router_Static_Route", "route_table");
    let refused = Store::start(settings(&[northbound.remote()])).opened().await.unwrap_err();
    let OpenError::TooOld { missing, .. } = &refused else { panic!("{refused}") };
    assert_eq!(missing, &["Logical_Router_Static_Route.route_table"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_stops_every_change() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    let id = store.change(|draft| Ok::<_, Infallible>(add_network(draft, "net"))).await.unwrap();
    let key = "external_ids:portcullis\\:created";
    northbound.nbctl(&["set", "Logical_Switch", &id.to_string(), &format!("{key}=yesterday")]);
    eventually("it was seen", || !store.model().unreadable.is_empty());
    let refused = store.change(|draft| Ok::<_, Infallible>(add_network(draft, "other"))).await.unwrap_err();
    let Rejected::Store(StoreError::Unreadable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains(&id.to_string()) && why.contains("yesterday"), "{why}");
    assert!(northbound.nbctl(&["show"]).contains("net"), "and nothing was removed");

    northbound.nbctl(&["set", "Logical_Switch", &id.to_string(), &format!("{key}=7")]);
    eventually("it is whole again", || store.model().unreadable.is_empty());
    store.change(|draft| Ok::<_, Infallible>(add_network(draft, "other"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_later_version_wrote_is_not_touched() {
    let northbound = Northbound::start();
    let store = open(&[northbound.remote()]).await;
    store.change(|draft| Ok::<_, Infallible>(add_network(draft, "net"))).await.unwrap();
    northbound.nbctl(&["set", "DNS", &journal(&northbound), "external_ids:portcullis\\:format=2"]);
    eventually("it was seen", || !store.model().unreadable.is_empty());
    let refused = store.change(|draft| Ok::<_, Infallible>(add_network(draft, "other"))).await.unwrap_err();
    let Rejected::Store(StoreError::Unreadable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("format 2"), "{why}");
    drop(store);
    let refused = Store::start(settings(&[northbound.remote()])).opened().await.unwrap_err();
    assert!(matches!(&refused, OpenError::TooNew { found } if found == "2"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_watches_changes_nothing() {
    let northbound = Northbound::start();
    let mut watching = settings(&[northbound.remote()]);
    watching.read_only = true;
    let store = Store::start(watching);
    store.opened().await.unwrap();
    let refused = store.change(|draft| Ok::<_, Infallible>(add_network(draft, "net"))).await.unwrap_err();
    assert!(matches!(refused, Rejected::Store(StoreError::ReadOnly)), "{refused:?}");
}

use std::convert::Infallible;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_core::Direction;
use portcullis_ovn::objects::{
    AddressGroup, FixedIp, FloatingIp, Gateway, Kind, Network, Port, Route, Router, Rule, SecurityGroup,
    Subnet,
};
use portcullis_ovn::{OpenError, Rejected, Store, StoreError, StoreSettings};
use portcullis_ovsdb::{Client, Columns, Rows, Settings, Transaction};
use portcullis_testkit::rows::{references, rows};
use portcullis_testkit::{Northbound, eventually};

use crate::{add_group, add_network, meta, open, settings};

/// Rows as other systems write them, of every table that we write to, and of some that we do not.
fn strangers(northbound: &Northbound) {
    for command in [
        // As Neutron does.
        "ls-add neutron-1 -- set Logical_Switch neutron-1 external_ids:neutron\\:network_name=net other_config:mcast_snoop=false",
        "lsp-add neutron-1 lsp-1 -- lsp-set-addresses lsp-1 dynamic -- set Logical_Switch_Port lsp-1 external_ids:neutron\\:cidrs=10.0.0.5/24",
        "lsp-add neutron-1 lsp-2 -- lsp-set-type lsp-2 localnet -- lsp-set-addresses lsp-2 unknown",
        "pg-add neutron_pg_drop lsp-1 -- acl-add neutron_pg_drop to-lport 1001 ip drop",
        "--name=neutron-in acl-add neutron_pg_drop from-lport 1002 inport==@neutron_pg_drop&&ip4 allow-related",
        "acl-add neutron-1 to-lport 900 arp allow",
        "create Address_Set name=as_ip4 addresses=10.0.0.5",
        "create DHCP_Options cidr=10.0.0.0/24 options:router=10.0.0.1 external_ids:subnet_id=x",
        "lr-add neutron-r -- lrp-add neutron-r lrp-1 02:00:00:00:01:01 10.0.0.1/24 -- lrp-set-gateway-chassis lrp-1 host-1 7",
        "lr-route-add neutron-r 0.0.0.0/0 192.0.2.1",
        "lr-nat-add neutron-r snat 192.0.2.9 10.0.0.0/24",
        "lr-policy-add neutron-r 10 ip4.src==10.0.0.0/24 drop",
        "create DNS records:vm.example.org=10.0.0.5 external_ids:ls_name=neutron-1",
        "qos-add neutron-1 to-lport 100 ip4 rate=1000",
        // As ovn-kubernetes does.
        "lb-add Service_default/web 172.30.0.7:80 10.0.0.5:8080,10.0.0.6:8080 -- ls-lb-add neutron-1 Service_default/web",
        "lr-lb-add neutron-r Service_default/web",
        "create Load_Balancer_Group name=clusterLBGroup",
        "create Copp name=copp meters:arp=arp",
        "meter-add acl-logging drop 20 pktps",
        "set NB_Global . name=global options:e2e=theirs",
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        northbound.nbctl(&words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_others_stop_it_unless_it_may_live_with_them() {
    let northbound = Northbound::start();
    strangers(&northbound);
    let theirs = rows(&northbound.remote());
    assert!(theirs.len() > 20, "{theirs:#?}");

    let refused = Store::start(settings(&[northbound.remote()])).opened().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the northbound database has rows that are not ours: 1 in Logical_Switch, 1 in Logical_Router, 1 in Port_Group, \
         1 in Address_Set, 1 in DHCP_Options, 1 in DNS. Nothing was changed. If another system may keep its rows there, \
         set networking.northbound.coexist to true: its rows are then never touched"
    );
    assert_eq!(rows(&northbound.remote()), theirs);

    let beside = || StoreSettings { coexist: true, ..settings(&[northbound.remote()]) };
    let store = Store::start(beside());
    store.opened().await.unwrap();
    assert_eq!(store.model().ids(), [], "what is not ours is no object");
    let untouched = |when: &str| {
        let now = rows(&northbound.remote());
        for (name, row) in &theirs {
            // The version tells also of a row that was written as it was.
            assert_eq!(now.get(name), Some(row), "{when}: {name:?}");
        }
        now
    };
    let made = settle_in(&store).await;
    let all = untouched("objects were made");
    assert!(all.len() > theirs.len() + 20, "{all:#?}");

    // What they put on a row of ours stays there as well.
    let on_ours = |command: &str| northbound.nbctl(&command.split_whitespace().collect::<Vec<_>>());
    on_ours(&format!("ls-lb-add {} Service_default/web", made.network));
    on_ours(&format!("lr-lb-add {} Service_default/web", made.router));
    on_ours(&format!("acl-add {} to-lport 900 arp allow", made.network));
    on_ours(&format!("lr-route-add {} 203.0.113.0/24 10.1.0.77", made.router));
    on_ours(&format!("lr-nat-add {} snat 192.0.2.77 203.0.113.0/24", made.router));
    on_ours(&format!("clear Port_Group {} ports", made.group));
    on_ours(&format!("clear Logical_Switch_Port {} port_security", made.port));
    eventually("what was changed is as it was", || {
        !on_ours(&format!("get Logical_Switch_Port {} port_security", made.port)).contains("[]")
            && !on_ours(&format!("get Port_Group {} ports", made.group)).contains("[]")
            && store.drift().is_empty()
    });
    untouched("rows of ours were put right");
    let kept = |table: &str, row: uuid::Uuid, column: &str, count: usize| {
        let all = rows(&northbound.remote());
        let found = references(&all[&(table.to_owned(), row.to_string())][column]).len();
        assert_eq!(found, count, "{column} of {table}");
    };
    kept("Logical_Switch", made.network, "load_balancer", 1);
    kept("Logical_Switch", made.network, "acls", 1);
    kept("Logical_Router", made.router, "load_balancer", 1);

    store
        .change(move |draft| {
            draft.edit::<Network>(made.network, |network| network.mtu = 1300);
            draft.edit::<Router>(made.router, |router| router.routes.clear());
            draft.edit::<Port>(made.port, |port| port.security_groups.clear());
            Ok::<_, Infallible>(())
        })
        .await
        .unwrap();
    untouched("objects were changed");
    // Theirs, and ours to the gateway and from there.
    kept("Logical_Router", made.router, "static_routes", 2);
    kept("Logical_Router", made.router, "nat", 3);
    kept("Logical_Switch", made.network, "acls", 1);
    drop(store);
    let store = Store::start(beside());
    store.opened().await.unwrap();
    untouched("it was started again");
    store
        .change(|draft| {
            for (kind, id) in draft.model().clone().ids() {
                match kind {
                    Kind::Network => draft.remove::<Network>(id),
                    Kind::Subnet => draft.remove::<Subnet>(id),
                    Kind::Port => draft.remove::<Port>(id),
                    Kind::Router => draft.remove::<Router>(id),
                    Kind::FloatingIp => draft.remove::<FloatingIp>(id),
                    Kind::SecurityGroup => draft.remove::<SecurityGroup>(id),
                    Kind::Rule => draft.remove::<Rule>(id),
                    Kind::AddressGroup => draft.remove::<AddressGroup>(id),
                    other => panic!("{other:?}"),
                }
            }
            Ok::<_, Infallible>(())
        })
        .await
        .unwrap();
    let left = untouched("everything of ours was removed");
    assert_eq!(left.len(), theirs.len() + 1, "only the journal is left: {left:#?}");
}

struct Made {
    network: uuid::Uuid,
    router: uuid::Uuid,
    port: uuid::Uuid,
    group: uuid::Uuid,
}

/// One of each kind that has rows which others have too, with addresses and names as theirs have.
async fn settle_in(store: &Store) -> Made {
    let outside =
        Network { meta: meta("net"), external: true, physical: Some("wire".into()), ..Network::default() };
    let inside = Network { meta: meta("neutron-1"), ..Network::default() };
    let [outer, inner] =
        [(&outside, "192.0.2.0/24"), (&inside, "10.0.0.0/24")].map(|(network, cidr)| Subnet {
            meta: meta("sub"),
            network: network.meta.id,
            cidr: cidr.parse().unwrap(),
            gateway: Some(cidr.replace("0/24", "1").parse().unwrap()),
            ..Subnet::default()
        });
    let mut router = Router { meta: meta("neutron-r"), ..Router::default() };
    let port = |last: u8, subnet: &Subnet, owner: &str| Port {
        meta: meta("port"),
        network: subnet.network,
        mac: format!("02:00:00:00:01:{last:02x}").parse().unwrap(),
        fixed_ips: vec![FixedIp {
            subnet: subnet.meta.id,
            address: subnet.cidr.to_string().replace("0/24", &last.to_string()).parse().unwrap(),
        }],
        device_owner: owner.to_owned(),
        device_id: if owner.is_empty() { String::new() } else { router.meta.id.to_string() },
        port_security: owner.is_empty(),
        ..Port::default()
    };
    let gateway = port(9, &outer, Port::ROUTER_GATEWAY);
    let door = port(1, &inner, Port::ROUTER_INTERFACE);
    let mut machine = port(5, &inner, "");
    let group = SecurityGroup { meta: meta("group"), ..SecurityGroup::default() };
    machine.security_groups = vec![group.meta.id];
    let floating = FloatingIp {
        meta: meta("floating"),
        network: outside.meta.id,
        address: "192.0.2.50".parse().unwrap(),
        port: uuid::Uuid::new_v4(),
        fixed_port: Some(machine.meta.id),
        fixed_address: Some("10.0.0.5".parse().unwrap()),
        router: Some(router.meta.id),
    };
    let mut held = port(50, &outer, "network:floatingip");
    (held.meta.id, held.device_id) = (floating.port, floating.meta.id.to_string());
    router.gateway = Some(Gateway { network: outside.meta.id, port: gateway.meta.id, snat: true });
    router.routes =
        vec![Route { destination: "198.51.100.0/24".parse().unwrap(), nexthop: "10.0.0.7".parse().unwrap() }];
    let made =
        Made { network: inside.meta.id, router: router.meta.id, port: machine.meta.id, group: group.meta.id };
    store
        .change(move |draft| {
            draft.put(outside.clone());
            draft.put(inside.clone());
            draft.put(outer.clone());
            draft.put(inner.clone());
            draft.put(router.clone());
            for port in [&gateway, &door, &machine, &held] {
                draft.put(port.clone());
            }
            draft.put(floating.clone());
            draft.put(group.clone());
            let offices = AddressGroup {
                meta: meta("offices"),
                addresses: ["10.0.0.0/24".parse().unwrap()].into_iter().collect(),
            };
            draft.put(Rule {
                meta: meta(""),
                group: group.meta.id,
                remote_address_group: Some(offices.meta.id),
                ..Rule::default()
            });
            draft.put(offices);
            Ok::<_, Infallible>(())
        })
        .await
        .unwrap();
    assert!(store.drift().is_empty());
    made
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

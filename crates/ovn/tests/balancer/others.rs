//! Rows of others, and others who change ours.

use portcullis_core::{Outcome, Provider as _, Sign};
use portcullis_ovn::balancer::{Provider, Settings};
use portcullis_ovn::objects::{Meta, Network, SecurityGroup};
use portcullis_ovn::{Options, Store, StoreSettings};
use portcullis_testkit::rows::{Rows, rows};
use portcullis_testkit::{Northbound, eventually};
use uuid::Uuid;

use crate::lab::{VIP, VIP6, everyone, gone, listener, now, owner, want_on};
use portcullis_core::{ListenerProtocol, Member, Want};

fn start(northbound: &Northbound) -> Provider {
    Provider::start(Settings {
        remotes: vec![northbound.remote().parse().unwrap()],
        southbound: Vec::new(),
        tls: None,
        durable: false,
        sweep: None,
    })
}

/// All that the database holds, whoever wrote it when. The journal counts changes of the Networking API.
fn content(northbound: &Northbound) -> Rows {
    let mut all = rows(&northbound.remote());
    for row in all.values_mut() {
        row.remove("_version");
    }
    all.retain(|_, row| !row.get("external_ids").is_some_and(|ids| ids.to_string().contains("journal")));
    all
}

fn switch(northbound: &Northbound) {
    northbound.nbctl(&["ls-add", "sw"]);
    northbound.nbctl(&["lsp-add", "sw", "b1"]);
    northbound.nbctl(&["lsp-set-addresses", "b1", "02:00:00:00:00:01 10.0.0.21"]);
    northbound.nbctl(&["set", "Logical_Switch", "sw", "other_config:subnet=10.0.0.0/24"]);
}

fn wanted(name: &str, vip: &str) -> Want {
    let member = Member::new("b1", ["10.0.0.21".parse().unwrap()]).unwrap();
    want_on(name, &[vip], listener(ListenerProtocol::Tcp), vec![member], Some(&["10.0.0.0/8", "fd00::/8"]))
}

async fn make(provider: &Provider, want: &Want) {
    assert_eq!(provider.sync(want).await.outcome, Outcome::Done);
}

fn blocked(outcome: Outcome) -> String {
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    problem.what
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_changed_is_found_and_put_right() {
    let northbound = Northbound::start();
    switch(&northbound);
    let provider = start(&northbound);
    let web = wanted("web", VIP);
    make(&provider, &web).await;
    let good = content(&northbound);
    let acl =
        northbound.nbctl(&["--bare", "--columns=_uuid", "find", "ACL", "action=drop"]).trim().to_owned();
    let set = northbound.nbctl(&["--bare", "--columns=name", "list", "Address_Set"]).trim().to_owned();
    for damage in [
        &["acl-del", "sw"][..],
        &["set", "ACL", &acl, "match=\"ip4.dst == 192.0.2.10 && tcp.dst == 1\""],
        &["set", "ACL", &acl, "priority=1"],
        &["set", "Address_Set", &set, "addresses=192.0.2.0/24"],
        &["ls-lb-del", "sw"],
        &["set", "Load_Balancer", "portcullis/c/Test/ns/web/tcp", "vips:\"192.0.2.10:443\"=\"10.9.9.9:1\""],
        &["clear", "Load_Balancer", "portcullis/c/Test/ns/web/tcp", "health_check"],
        &["lb-del", "portcullis/c/Test/ns/web/tcp"],
    ] {
        northbound.nbctl(damage);
        eventually("it is found", || {
            let looked = now(provider.look_at_all());
            looked.unwrap() == [owner("web")]
        });
        assert!(!provider.is_settled(&web) && provider.look_closely(&owner("web")).await.unwrap());
        make(&provider, &web).await;
        assert_eq!(content(&northbound), good, "after {damage:?}");
        assert!(provider.look_at_all().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_told_and_left_alone() {
    let northbound = Northbound::start();
    switch(&northbound);
    let provider = start(&northbound);
    northbound.nbctl(&["lb-add", "portcullis/c/Test/ns/web/tcp", "192.0.2.99:80", "10.0.0.21:80"]);
    northbound.nbctl(&["lb-add", "theirs", "192.0.2.11:443", "10.0.0.21:80", "tcp"]);
    northbound.nbctl(&["ls-lb-add", "sw", "theirs"]);
    northbound.nbctl(&["acl-add", "sw", "to-lport", "5", "arp", "allow"]);
    let theirs = content(&northbound);
    for (want, why) in [
        (wanted("web", VIP), "`portcullis/c/Test/ns/web/tcp` is in the northbound database already"),
        (wanted("other", "192.0.2.11"), "192.0.2.11:443 is an address of the load balancer `theirs` already"),
        (wanted("inside", "10.0.0.99"), "its address 10.0.0.99 is in a subnet of the logical switch `sw`"),
    ] {
        let said = blocked(provider.sync(&want).await.outcome);
        assert!(said.contains(why), "{said}");
    }
    let mut nowhere = wanted("nowhere", VIP);
    nowhere.parameters.insert("portcullis.dev/ovn-switches".to_owned(), "missing".to_owned());
    let said = blocked(provider.sync(&nowhere).await.outcome);
    assert!(said.contains("there is no logical switch `missing`"), "{said}");
    nowhere.parameters.clear();
    let said = blocked(provider.sync(&nowhere).await.outcome);
    assert!(said.contains("on no logical switch"), "{said}");
    assert_eq!(content(&northbound), theirs);

    // What they have in the same columns stays, when ours come and go.
    make(&provider, &wanted("ours", VIP)).await;
    make(&provider, &gone("ours")).await;
    assert_eq!(content(&northbound), theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_side_by_side_and_a_plan_before_anything_happens() {
    let northbound = Northbound::start();
    switch(&northbound);
    let (one, other) = (start(&northbound), start(&northbound));
    let plan = one.preview(&wanted("a", VIP)).await.unwrap();
    let kinds: Vec<(Sign, &str)> =
        plan.changes().iter().map(|change| (change.sign, change.kind.as_str())).collect();
    for kind in ["load balancer", "health check", "ACL", "address set"] {
        assert!(kinds.contains(&(Sign::Create, kind)), "{plan}");
    }
    assert_eq!(plan.access().ingress.after.to_string(), "10.0.0.0/8 on tcp 443");
    make(&one, &wanted("a", VIP)).await;
    let alone = content(&northbound);
    let empty = one.preview(&wanted("a", VIP)).await.unwrap();
    assert!(empty.is_empty() && empty.access().ingress.before == plan.access().ingress.after);

    // The same address, another port; and another address. By another process.
    let mut second = wanted("b", VIP6);
    second.owner = owner("b");
    make(&other, &second).await;
    let clash = blocked(other.sync(&wanted("c", VIP)).await.outcome);
    assert!(clash.contains("192.0.2.10:443"), "{clash}");
    // Both may be told the same at once: one of them makes it.
    let both = wanted("d", "192.0.2.44");
    let (first, last) = tokio::join!(one.sync(&both), other.sync(&both));
    assert_eq!((first.outcome, last.outcome), (Outcome::Done, Outcome::Done));
    make(&other, &gone("d")).await;
    make(&other, &gone("b")).await;
    assert_eq!(content(&northbound), alone);
    let plan = one.preview(&gone("a")).await.unwrap();
    assert!(plan.access().ingress.after.is_nobody() && plan.calls().destructive == 1);
    make(&one, &gone("a")).await;
    for table in ["Load_Balancer", "Load_Balancer_Health_Check", "ACL", "Address_Set"] {
        assert_eq!(northbound.nbctl(&["list", table]), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_networking_api_lives_in_the_same_database() {
    let northbound = Northbound::start();
    let settings = || StoreSettings {
        remotes: vec![northbound.remote().parse().unwrap()],
        tls: None,
        durable: false,
        coexist: false,
        read_only: false,
        options: Options::default(),
    };
    let store = Store::start(settings());
    store.opened().await.unwrap();
    let meta =
        |name: &str| Meta { id: Uuid::new_v4(), project: "p".into(), name: name.into(), ..Meta::default() };
    let network = Network { meta: meta("net"), ..Network::default() };
    let (id, made) = (network.meta.id, network.clone());
    let made = store.change(move |draft| {
        draft.put(made.clone());
        draft.put(SecurityGroup { meta: meta("group"), ..SecurityGroup::default() });
        Ok::<_, std::convert::Infallible>(())
    });
    made.await.unwrap();
    let before = content(&northbound);

    let provider = start(&northbound);
    let mut web = want_on("web", &[VIP, VIP6], listener(ListenerProtocol::TcpUdp), Vec::new(), everyone());
    web.parameters.insert("portcullis.dev/ovn-switches".to_owned(), id.to_string());
    make(&provider, &web).await;
    let mut closed =
        want_on("web", &[VIP, VIP6], listener(ListenerProtocol::TcpUdp), Vec::new(), Some(&["192.0.2.0/24"]));
    closed.parameters = web.parameters.clone();
    make(&provider, &closed).await;
    assert!(store.drift().is_empty(), "what is a load balancer's is not its business");
    // One that starts now finds nothing strange, and changes of one leave the other's rows alone.
    let again = Store::start(settings());
    again.opened().await.unwrap();
    assert!(again.drift().is_empty());
    let renamed = Network { meta: Meta { name: "other".into(), ..network.meta.clone() }, ..network.clone() };
    store
        .change(move |draft| {
            draft.put(renamed.clone());
            Ok::<_, std::convert::Infallible>(())
        })
        .await
        .unwrap();
    assert!(provider.look_at_all().await.unwrap().is_empty());
    let back = network.clone();
    store
        .change(move |draft| {
            draft.put(back.clone());
            Ok::<_, std::convert::Infallible>(())
        })
        .await
        .unwrap();
    make(&provider, &gone("web")).await;
    assert_eq!(content(&northbound), before);
}

use portcullis_kube_api::host::LISTEN_ADDRESSES;
use serde_json::json;

use super::*;

/// One that has heard of nothing, and whose API is nowhere.
fn controller(mode: Mode) -> Controller {
    let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let policy = Policy { selection: Selection::usual(), reserved: BTreeSet::new() };
    let settings = HostSettings {
        class: "portcullis.dev/host".to_owned(),
        without_class: false,
        namespace: "portcullis".to_owned(),
        policy,
        mode,
        observe: false,
        host: "test".to_owned(),
    };
    Controller::new(client, settings, mpsc::unbounded_channel().0)
}

/// A Service that asks for these addresses, at a version.
fn service(name: &str, at: Option<&str>, version: u64) -> Service {
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "resourceVersion": version.to_string(),
            "annotations": at.map(|at| json!({LISTEN_ADDRESSES: at})),
        },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "portcullis.dev/host",
            "ipFamilies": ["IPv4"],
            "ports": [{"port": 80}],
        },
    }))
    .unwrap()
}

fn lists(controller: &mut Controller, services: &[Service]) {
    controller.take(Heard::Service(Event::Init));
    for one in services {
        controller.take(Heard::Service(Event::InitApply(Item::lean(one.clone()))));
    }
    controller.take(Heard::Service(Event::InitDone));
}

fn report(change: impl FnOnce(&mut NodeReport)) -> NodeReport {
    let mut report: NodeReport = serde_json::from_value(json!({
        "interfaces": {"enp3s0": {"addresses": ["192.0.2.7"]}},
        "boot": "first",
        "datapath": {"mode": "nftables", "upTo": 7},
    }))
    .unwrap();
    change(&mut report);
    report
}

/// Which Services are looked at by what a node tells.
fn told(controller: &mut Controller, report: NodeReport) -> Vec<String> {
    let all = BTreeMap::from([("node1".to_owned(), report)]);
    controller.take(Heard::Here(all)).iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn who_is_looked_at_by_what_a_node_tells() {
    let mut controller = controller(Mode::Nftables);
    lists(&mut controller, &[service("any", None, 1), service("dmz", Some("dmz"), 2)]);
    let (all, naming, nobody) = (&["shop/any", "shop/dmz"][..], &["shop/dmz"][..], &[][..]);
    let without_addresses = json!({"dmz": {"addresses": []}, "enp3s0": {"addresses": ["192.0.2.7"]}});
    let with_another = |report: &mut NodeReport| {
        report.interfaces = serde_json::from_value(without_addresses.clone()).unwrap();
    };
    for (what, report, expected) in [
        ("it is new", report(|_| {}), all),
        ("it is the same", report(|_| {}), nobody),
        ("it knows more", report(|report| report.datapath.up_to = Some(8)), nobody),
        ("an interface without addresses comes", report(with_another), naming),
        ("and nothing else", report(with_another), nobody),
        ("it is gone", report(|_| {}), naming),
        ("it was started anew", report(|report| report.boot = "second".to_owned()), all),
    ] {
        assert_eq!(told(&mut controller, report), expected, "{what}");
    }
}

/// What was written before a list was read is no sign that the node's packet filters know who is missing there.
#[tokio::test]
async fn what_is_written_while_all_are_listed_is_not_newer_than_the_list() {
    for listing in [false, true] {
        let mut controller = controller(Mode::Filter);
        let (old, web) = (service("old", None, 1), service("web", None, 2));
        lists(&mut controller, &[old, web.clone()]);
        told(&mut controller, report(|_| {}));
        // Who has the port leaves unseen, and the other one gets it.
        controller.take(Heard::Service(Event::Init));
        if !listing {
            controller.take(Heard::Service(Event::InitApply(Item::lean(web.clone()))));
            controller.take(Heard::Service(Event::InitDone));
        }
        let (name, lists) = (name(&web), controller.lists);
        controller.writing += 1;
        let written = Written { name: Arc::clone(&name), on: Some(2), patch: 0, lists };
        controller.take(Heard::Wrote(written, Ok(Box::new(service("web", None, 3)))));
        if listing {
            controller.take(Heard::Service(Event::InitApply(Item::lean(service("web", None, 3)))));
            controller.take(Heard::Service(Event::InitDone));
        }
        let since = controller.sites["node1"].since[&name];
        assert_eq!(since, if listing { None } else { Some(3) }, "{listing}");
    }
}

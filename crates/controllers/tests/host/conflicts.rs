use portcullis_host::datapath::Mode;
use portcullis_kube_api::host::{ASSIGNED, LISTEN_ADDRESSES};
use portcullis_testkit::eventually;
use serde_json::json;

use crate::scene::{LAN, Scene, WAN};

#[tokio::test(flavor = "multi_thread")]
async fn one_port_of_one_address_is_one_service_s() {
    let scene = Scene::new("conflicts", Mode::None);
    let _running = scene.start().await;
    let dns = |protocol: &str| json!({"ports": [{"name": "dns", "port": 53, "protocol": protocol}]});
    scene.apply("dns-tcp", json!({LISTEN_ADDRESSES: "to-inside"}), dns("TCP"));
    scene.apply("dns-udp", json!({LISTEN_ADDRESSES: "to-inside"}), dns("UDP"));
    scene.wait_for_addresses("dns-tcp", &[LAN]);
    scene.wait_for_addresses("dns-udp", &[LAN]);

    scene.apply("first", json!({}), json!({}));
    scene.wait_for_addresses("first", &[LAN, WAN]);
    scene.apply(
        "second",
        json!({}),
        json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443}]}),
    );
    scene.apply("third", json!({LISTEN_ADDRESSES: "to-outside"}), json!({"ports": [{"port": 443}]}));
    let loses = "False/Conflict: Service conflicts/first has port 80/tcp of 192.0.2.1, 198.51.100.1";
    scene.wait_for_condition("second", ASSIGNED, loses);
    eventually("an Event says so", || {
        scene
            .events("second")
            .iter()
            .any(|event| event.starts_with("Conflict: Service conflicts/first has port 80/tcp"))
    });
    assert_eq!(scene.addresses("second"), Vec::<String>::new());
    // What it cannot have it does not keep from others.
    scene.wait_for_addresses("third", &[WAN]);

    // Whoever had it is gone, and the next takes over, where it can.
    scene.delete("first");
    scene.wait_for_addresses("second", &[LAN]);
    scene.wait_for_condition(
        "second",
        ASSIGNED,
        "False/Conflict: Service conflicts/third has port 443/tcp of 198.51.100.1",
    );
    scene.delete("third");
    scene.wait_for_addresses("second", &[LAN, WAN]);
    scene.wait_for_condition("second", ASSIGNED, "True/Assigned");
    // An older one that comes to want the same does not take it away.
    scene.apply("dns-tcp", json!({LISTEN_ADDRESSES: "to-inside"}), json!({"ports": [{"port": 443}]}));
    scene.wait_for_condition(
        "dns-tcp",
        ASSIGNED,
        "False/Conflict: Service conflicts/second has port 443/tcp",
    );
    assert_eq!(scene.addresses("second"), [LAN, WAN]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_needs_is_refused() {
    let scene = Scene::new("needed", Mode::None);
    scene.node.run("ip link add to-admin type veth peer name admin-peer");
    scene.node.run("ip address add 10.0.0.1/24 dev to-admin");
    let listening = scene.node.serve(9090);
    let _running = scene.start().await;
    scene.apply("ssh", json!({}), json!({"ports": [{"port": 22}]}));
    scene.apply("cockpit", json!({}), json!({"ports": [{"port": 9090}]}));
    scene.apply("admin", json!({LISTEN_ADDRESSES: "to-admin,10.0.0.1"}), json!({}));
    scene.wait_for_condition("ssh", ASSIGNED, "False/PortReserved: Port 22/tcp is kept for the node itself");
    scene.wait_for_condition(
        "cockpit",
        ASSIGNED,
        "False/PortOfNode: A program of the node itself listens on port 9090/tcp of 192.0.2.1, 198.51.100.1",
    );
    scene.wait_for_condition(
        "admin",
        ASSIGNED,
        "False/NoAddress: portcullis.dev/listen-addresses: 10.0.0.1 is kept for those who look after this host.",
    );
    for name in ["ssh", "cockpit", "admin"] {
        assert_eq!(scene.addresses(name), Vec::<String>::new(), "{name}");
        eventually("an Event says so", || !scene.events(name).is_empty());
    }
    // Once the program is gone, the port is free.
    drop(listening);
    scene.wait_for_addresses("cockpit", &[LAN, WAN]);
}

/// Services of other controllers have addresses, too: who has a port of one keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_gave_is_theirs() {
    let scene = Scene::new("others", Mode::Nftables);
    scene.apply("theirs", json!({}), json!({"loadBalancerClass": "example.com/other"}));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": LAN}]}}}).to_string();
    let patch =
        ["-n", scene.name, "patch", "service", "theirs", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    let _running = scene.start().await;
    scene.apply("ours", json!({}), json!({}));
    scene.wait_for_addresses("ours", &[WAN]);
    let told = "False/Conflict: Service others/theirs has port 80/tcp of 192.0.2.1";
    scene.wait_for_condition("ours", ASSIGNED, told);
    let table = scene.node.run("nft list table inet portcullis");
    assert!(!table.contains("192.0.2.1 "), "nothing of ours is there: {table}");
    scene.kubernetes.kubectl(&["-n", scene.name, "delete", "service", "theirs"]).unwrap();
    scene.wait_for_addresses("ours", &[LAN, WAN]);
    // Whoever comes later does not take it away.
    scene.apply("late", json!({}), json!({"loadBalancerClass": "example.com/other"}));
    let patch = ["-n", scene.name, "patch", "service", "late", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    scene.apply("another", json!({}), json!({"ports": [{"port": 81}]}));
    scene.wait_for_addresses("another", &[LAN, WAN]);
    assert_eq!(scene.addresses("ours"), [LAN, WAN]);
}

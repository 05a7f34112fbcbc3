//! What the groups let through, seen by packets.

use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::{Host, Target, can_connect, eventually, ovn, plug};
use serde_json::{Value, json};

use crate::server::{Client, Server};

/// A machine on a port.
struct Machine {
    host: Host,
    address: String,
    port: Value,
}

async fn machine(ovn: &Ovn, client: &Client, network: &Value, attributes: Value) -> Machine {
    let mut asked = json!({"network_id": network["id"]});
    for (key, value) in attributes.as_object().unwrap() {
        asked[key] = value.clone();
    }
    let port = client.create("port", asked).await;
    let address = port["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
    let host = plug(
        ovn,
        port["id"].as_str().unwrap(),
        port["mac_address"].as_str().unwrap(),
        &[&format!("{address}/24")],
    );
    Machine { host, address, port }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_group_allows_gets_through() {
    let ovn = ovn();
    let server = Server::start(&ovn).await;
    let client = server.client("blue", "member");
    let network = client.create("network", json!({"name": "net"})).await;
    client
        .create("subnet", json!({"network_id": network["id"], "cidr": "10.0.0.0/24", "ip_version": 4}))
        .await;
    let group = client.create("security_group", json!({"name": "ssh"})).await;
    let one = machine(&ovn, &client, &network, json!({})).await;
    let two = machine(&ovn, &client, &network, json!({"security_groups": [group["id"]]})).await;
    let _servers = (two.host.serve(22), two.host.serve(23));
    let reaches = |port: u16| can_connect(&one.host, &two.address, Target::Tcp(port));
    ovn.settle().unwrap();
    assert!(!reaches(22) && !reaches(23), "nothing was allowed");

    client
        .create(
            "security_group_rule",
            json!({"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp",
                   "port_range_min": 22, "port_range_max": 22}),
        )
        .await;
    ovn.settle().unwrap();
    eventually("ssh gets through", || reaches(22));
    assert!(!reaches(23), "only ssh was allowed");

    client
        .update("port", &two.port["id"], json!({"security_groups": [], "port_security_enabled": false}))
        .await;
    ovn.settle().unwrap();
    eventually("an unfiltered port takes everything", || reaches(23));
    server.assert_no_drift();
}

use portcullis_testkit::ovn;
use serde_json::json;

use crate::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_made_changed_and_removed() {
    let ovn = ovn();
    let server = Server::start(&ovn).await;
    let admin = server.client("operators", "admin");
    let blue = server.client("blue", "member");

    let outside = admin.create("network", json!({"name": "outside", "router:external": true})).await;
    let network = blue.create("network", json!({"name": "net"})).await;
    server.assert_no_drift();
    let subnet = blue
        .create("subnet", json!({"network_id": network["id"], "cidr": "10.0.0.0/24", "ip_version": 4}))
        .await;
    admin
        .create("subnet", json!({"network_id": outside["id"], "cidr": "192.0.2.0/24", "ip_version": 4}))
        .await;
    server.assert_no_drift();
    assert_eq!(subnet["gateway_ip"], "10.0.0.1");
    let port = blue.create("port", json!({"network_id": network["id"], "name": "vm"})).await;
    server.assert_no_drift();
    assert_eq!(port["fixed_ips"][0]["ip_address"], "10.0.0.2");
    let groups = blue.get("security-groups").await;
    assert_eq!(groups["security_groups"][0]["name"], "default");
    assert_eq!(port["security_groups"][0], groups["security_groups"][0]["id"]);

    let router = blue
        .create("router", json!({"name": "r", "external_gateway_info": {"network_id": outside["id"]}}))
        .await;
    server.assert_no_drift();
    let path = format!("routers/{}/add_router_interface", router["id"].as_str().unwrap());
    let (status, body) = blue.ask("PUT", &path, Some(json!({"subnet_id": subnet["id"]}))).await;
    assert_eq!(status, 200, "{body}");
    server.assert_no_drift();
    let floating =
        blue.create("floatingip", json!({"floating_network_id": outside["id"], "port_id": port["id"]})).await;
    server.assert_no_drift();
    assert_eq!((&floating["router_id"], &floating["status"]), (&router["id"], &json!("ACTIVE")));

    blue.delete(&format!("ports/{}", port["id"].as_str().unwrap())).await;
    server.assert_no_drift();
    blue.delete(&format!("floatingips/{}", floating["id"].as_str().unwrap())).await;
    let path = format!("routers/{}/remove_router_interface", router["id"].as_str().unwrap());
    assert_eq!(blue.ask("PUT", &path, Some(json!({"subnet_id": subnet["id"]}))).await.0, 200);
    blue.delete(&format!("routers/{}", router["id"].as_str().unwrap())).await;
    blue.delete(&format!("networks/{}", network["id"].as_str().unwrap())).await;
    server.assert_no_drift();
}

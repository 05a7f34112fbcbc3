use serde_json::json;

use crate::client::shared;

#[test]
fn addresses_are_counted() {
    let api = shared();
    let (admin, user) = (api.admin(), api.user("member"));
    let network = user.network();
    let path = format!("network-ip-availabilities/{network}");
    let counts = |query: &str| {
        let seen = admin.get(&format!("{path}{query}"))["network_ip_availability"].clone();
        (seen["used_ips"].clone(), seen["total_ips"].clone())
    };
    assert_eq!(counts(""), (json!(0), json!(0)));
    user.subnet(&network, "10.9.0.0/29");
    assert_eq!(counts(""), (json!(0), json!(5)));
    user.port(json!({"network_id": network}));
    assert_eq!(counts(""), (json!(1), json!(5)));
    user.subnet(&network, "fd00:9::/64");
    assert_eq!(counts("?ip_version=4"), (json!(1), json!(5)));
    assert_eq!(counts("?ip_version=6"), (json!(0), json!(u64::MAX)));
    let seen = admin.get(&path)["network_ip_availability"].clone();
    assert_eq!(seen["network_name"], "n");
    assert_eq!(seen["project_id"], user.project);
    let subnets = seen["subnet_ip_availability"].as_array().unwrap().clone();
    let first = subnets.iter().find(|subnet| subnet["ip_version"] == 4).unwrap();
    assert_eq!(first["cidr"], "10.9.0.0/29");
    assert_eq!(
        first["ip_availability_details"],
        json!({
            "total_ips_in_subnet": 6, "total_ips_in_allocation_pool": 5,
            "used_ips_in_subnet": 1, "used_ips_in_allocation_pool": 1
        })
    );
}

#[test]
fn lists_are_for_administrators_and_filtered() {
    let api = shared();
    let (admin, user) = (api.admin(), api.user("member"));
    let network = user.network();
    let all = "network-ip-availabilities";
    assert_eq!(user.get(all)["network_ip_availabilities"], json!([]));
    assert_eq!(user.send("GET", &format!("{all}/{network}"), "").status, 404);
    for (filter, count) in [
        (format!("network_id={network}"), 1),
        (format!("project_id={}&network_name=n", user.project), 1),
        (format!("network_id={network}&network_name=other"), 0),
        (format!("network_id={network}&ip_version=4"), 0),
    ] {
        let found = admin.get(&format!("{all}?{filter}"));
        assert_eq!(found["network_ip_availabilities"].as_array().unwrap().len(), count, "{filter}");
    }
    let fields = admin.get(&format!("{all}?network_id={network}&fields=used_ips"));
    assert_eq!(fields["network_ip_availabilities"], json!([{"used_ips": 0}]));
    let missing = admin.send("GET", &format!("{all}/00000000-0000-4000-8000-000000000001"), "");
    assert_eq!((missing.status.as_u16(), missing.kind()), (404, "NetworkNotFound"));
    assert_eq!(
        admin.send("GET", &format!("{all}?foo=1"), "").message(),
        "['foo'] is invalid attribute for filtering"
    );
}

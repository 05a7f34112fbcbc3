//! The ways in and out of a project's networks, seen by packets: gateways, floating addresses, routes and DHCP.

use std::net::Ipv4Addr;

use portcullis_ovn::Options;
use portcullis_testkit::parts::ovn::CHASSIS;
use portcullis_testkit::{Host, Target, ask_dhcp, can_connect, connect, eventually, outside, plug};
use serde_json::{Value, json};

use crate::packets::{Lab, Machine, SSH, ssh};

/// A lab with a wire that leads out, and a machine at its other end.
struct Uplink {
    lab: Lab,
    world: Host,
    external: Value,
}

const WORLD: &str = "172.24.4.1";

impl Uplink {
    fn new() -> Self {
        let lab = Lab::with(Options { gateway_chassis: vec![CHASSIS.to_owned()], ..Options::default() });
        let world = outside(&lab.api.ovn, "wire", &[&format!("{WORLD}/24")]);
        let admin = lab.api.user("admin");
        let external = admin.make(
            "networks",
            "network",
            json!({"name": "world", "router:external": true, "provider:network_type": "flat",
                   "provider:physical_network": "wire"}),
        );
        let subnet = json!({"network_id": external["id"], "ip_version": 4, "cidr": "172.24.4.0/24",
                            "gateway_ip": WORLD, "enable_dhcp": false});
        admin.make("subnets", "subnet", subnet);
        Uplink { lab, world, external }
    }

    /// A router with these networks and, if so, a way out.
    fn router(&self, networks: &[&Value], gateway: bool) -> Value {
        let mut asked = json!({"name": "router"});
        if gateway {
            asked["external_gateway_info"] = json!({"network_id": self.external["id"]});
        }
        let router = self.lab.client.make("routers", "router", asked);
        for network in networks {
            let list = format!("subnets?network_id={}", network["id"].as_str().unwrap());
            let subnet = self.lab.client.get(&list)["subnets"][0]["id"].clone();
            let path = format!("routers/{}/add_router_interface", router["id"].as_str().unwrap());
            let reply = self.lab.client.put(&path, json!({"subnet_id": subnet}));
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
        router
    }

    /// A machine that sends to the router what is not for its own network.
    fn machine(&self, network: &Value, attributes: Value) -> Machine {
        let machine = self.lab.machine(network, attributes);
        let octets = machine.address.parse::<Ipv4Addr>().unwrap().octets();
        machine.host.default_route(&format!("{}.{}.{}.1", octets[0], octets[1], octets[2]));
        machine
    }
}

#[test]
fn machines_go_out_in_the_routers_name_and_are_reached_under_a_floating_address() {
    let uplink = Uplink::new();
    let lab = &uplink.lab;
    let network = lab.network("10.0.0.0/24");
    let router = uplink.router(&[&network], true);
    let group = lab.group("web");
    let machine = uplink.machine(&network, json!({"security_groups": [group["id"]]}));
    let _listener = uplink.world.serve(22);
    lab.settle();
    let gateway = router["external_gateway_info"]["external_fixed_ips"][0]["ip_address"].as_str().unwrap();
    let seen = || connect(&machine.host, WORLD, SSH).ok();
    eventually("the world is reached in the router's name", || seen().as_deref() == Some(gateway));

    let asked = json!({"floating_network_id": uplink.external["id"], "port_id": machine.port["id"]});
    let floating = lab.client.make("floatingips", "floatingip", asked);
    let address = floating["floating_ip_address"].as_str().unwrap();
    lab.settle();
    eventually("it goes out under its own address", || seen().as_deref() == Some(address));
    assert!(!can_connect(&uplink.world, address, SSH), "nobody allowed it");

    lab.allow(&group, "ingress", ssh());
    lab.settle();
    eventually("it is reached", || can_connect(&uplink.world, address, SSH));
    assert!(!can_connect(&uplink.world, address, Target::Icmp), "and by nothing else");

    let path = format!("floatingips/{}", floating["id"].as_str().unwrap());
    let reply = lab.client.put(&path, json!({"floatingip": {"port_id": null}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    lab.settle();
    eventually("without it nobody gets in", || !can_connect(&uplink.world, address, SSH));
    eventually("and the router's name is used again", || seen().as_deref() == Some(gateway));

    let path = format!("routers/{}", router["id"].as_str().unwrap());
    let off = json!({"network_id": uplink.external["id"], "enable_snat": false});
    let admin = lab.api.user("admin");
    let reply = admin.put(&path, json!({"router": {"external_gateway_info": off}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    uplink.world.run(&format!("ip route replace 10.0.0.0/24 via {gateway}"));
    lab.settle();
    eventually("without translation its own address is seen", || {
        seen().as_deref() == Some(&*machine.address)
    });
}

#[test]
fn routes_lead_where_they_say() {
    let uplink = Uplink::new();
    let lab = &uplink.lab;
    let (near, far) = (lab.network("10.0.0.0/24"), lab.network("10.1.0.0/24"));
    let router = uplink.router(&[&near, &far], false);
    let machine = uplink.machine(&near, json!({}));
    // Behind it is another network.
    let way = uplink.machine(&far, json!({"port_security_enabled": false}));
    way.host.run("ip address add 192.0.2.1/32 dev lo");
    lab.settle();
    assert!(!can_connect(&machine.host, "192.0.2.1", SSH), "nobody knows the way");

    let path = format!("routers/{}", router["id"].as_str().unwrap());
    let routes = json!([{"destination": "192.0.2.0/24", "nexthop": way.address}]);
    let reply = lab.client.put(&path, json!({"router": {"routes": routes}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    lab.settle();
    eventually("the route leads there", || can_connect(&machine.host, "192.0.2.1", SSH));

    let reply = lab.client.put(&path, json!({"router": {"admin_state_up": false}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    lab.settle();
    eventually("a router that is off routes nothing", || !machine.reaches(&way, SSH));
}

#[test]
fn dhcp_tells_what_the_subnet_and_the_port_say() {
    let lab = Lab::with(Options { dhcp_lease: 7200, ..Options::default() });
    let network = lab.client.make("networks", "network", json!({"name": "net", "mtu": 1400}));
    let subnet = json!({
        "network_id": network["id"], "ip_version": 4, "cidr": "10.0.0.0/24",
        "dns_nameservers": ["192.0.2.53", "192.0.2.54"],
        "host_routes": [{"destination": "198.51.100.0/24", "nexthop": "10.0.0.9"}],
    });
    lab.client.make("subnets", "subnet", subnet);
    // Nothing is allowed to this machine, and it needs an address nevertheless.
    let boot = json!([{"opt_name": "bootfile-name", "opt_value": "pxelinux.0"}]);
    let asked = json!({"network_id": network["id"], "security_groups": [], "extra_dhcp_opts": boot});
    let port = lab.client.make("ports", "port", asked);
    let mac = port["mac_address"].as_str().unwrap();
    let machine = plug(&lab.api.ovn, port["id"].as_str().unwrap(), mac, &[]);
    lab.settle();

    let offer = ask_dhcp(&machine, "eth0", mac).expect("an offer");
    assert_eq!(Some(offer.address.to_string().as_str()), port["fixed_ips"][0]["ip_address"].as_str());
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
    assert_eq!(offer.addresses(1), [address("255.255.255.0")]);
    assert_eq!(offer.addresses(3), [address("10.0.0.1")]);
    assert_eq!(offer.addresses(6), [address("192.0.2.53"), address("192.0.2.54")]);
    assert_eq!(offer.options[&26], 1400_u16.to_be_bytes());
    assert_eq!(offer.options[&51], 7200_u32.to_be_bytes());
    assert_eq!(offer.options[&67], b"pxelinux.0");
    // Each route: how many bits count, those bytes, where to; and the way to everything else.
    let routes = &offer.options[&121];
    assert!(routes.windows(8).any(|route| route == [24, 198, 51, 100, 10, 0, 0, 9]), "{routes:?}");
    assert!(routes.windows(5).any(|route| route == [0, 10, 0, 0, 1]), "{routes:?}");
}

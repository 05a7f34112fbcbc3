//! A database that ovirt-provider-ovn filled, before and after it is adopted.

use portcullis_ovn::objects::{Network, Port, Router, Rule, SecurityGroup, Subnet};
use portcullis_ovn::{Store, StoreSettings};
use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::{Host, OvirtProvider, Server, Target, can_connect, connect, eventually, ovn, plug};
use uuid::Uuid;

use crate::settings;

const PROJECT: &str = "00000000000000000000000000000001";

fn beside(ovn: &Ovn) -> StoreSettings {
    StoreSettings { coexist: true, ..settings(&[ovn.northbound()]) }
}

async fn open(settings: StoreSettings) -> Store {
    let store = Store::start(settings);
    store.opened().await.unwrap();
    store
}

/// A machine, which listens on ports 22 and 23.
struct Machine {
    host: Host,
    address: &'static str,
    _listeners: [Server; 2],
}

impl Machine {
    fn new(ovn: &Ovn, port: &str, mac: &str, address: &'static str, gateway: &str) -> Self {
        let host = plug(ovn, port, mac, &[&format!("{address}/24")]);
        host.default_route(gateway);
        let listeners = [host.serve(22), host.serve(23)];
        Machine { host, address, _listeners: listeners }
    }

    fn reaches(&self, other: &Machine, target: Target) -> bool {
        can_connect(&self.host, other.address, target)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_made_is_adopted_and_packets_do_not_notice() {
    let ovn = ovn();
    let provider = OvirtProvider::new(ovn.northbound());
    let old = provider.network("old", &[]);
    let new = provider.network("new", &["ovirt_port_security=True", "mtu=1400"]);
    let wire = provider.network("wire", &["ovirt_port_security=False"]);
    provider.localnet(&wire, "physnet", "42");
    let (one, _) =
        (provider.subnet(&old, "10.0.1.0/24", "10.0.1.1"), provider.subnet(&new, "10.0.2.0/24", "10.0.2.1"));

    let (drop_all, default) = (provider.drop_all(), provider.default_group());
    let ssh = provider.group("ovirt_ssh");
    provider.rule("ovirt_ssh", "to-lport", "ip4 && tcp && tcp.dst == 22");

    let open_port = provider.port(&old, "02:00:00:00:01:05", "dynamic", &[]);
    let ssh_port = provider.port(&new, "02:00:00:00:02:05", "10.0.2.5", &["DropAll", "ovirt_ssh"]);
    let one_of_two = provider.port(&new, "02:00:00:00:02:06", "10.0.2.6", &["DropAll", "Default"]);
    let other_of_two = provider.port(&new, "02:00:00:00:02:07", "10.0.2.7", &["DropAll", "Default"]);
    let router = provider.router("router");
    let interface = provider.interface(&router, &old, "02:00:00:00:01:01", "10.0.1.1/24", &[]);
    provider.interface(&router, &new, "02:00:00:00:02:01", "10.0.2.1/24", &[]);
    provider.nbctl(&["lr-route-add", &router, "192.168.0.0/24", "10.0.1.9"]);
    ovn.settle().unwrap();

    let given = provider.nbctl(&["get", "Logical_Switch_Port", &open_port, "dynamic_addresses"]);
    assert!(given.contains("10.0.1.2"), "{given}");
    let open_machine = Machine::new(&ovn, &open_port, "02:00:00:00:01:05", "10.0.1.2", "10.0.1.1");
    let guarded = Machine::new(&ovn, &ssh_port, "02:00:00:00:02:05", "10.0.2.5", "10.0.2.1");
    let left = Machine::new(&ovn, &one_of_two, "02:00:00:00:02:06", "10.0.2.6", "10.0.2.1");
    let right = Machine::new(&ovn, &other_of_two, "02:00:00:00:02:07", "10.0.2.7", "10.0.2.1");
    let behave = |when: &str| {
        ovn.settle().unwrap();
        let reaches = |from: &Machine, to: &Machine, target| from.reaches(to, target);
        eventually(when, || reaches(&open_machine, &guarded, Target::Tcp(22)));
        assert!(!reaches(&open_machine, &guarded, Target::Tcp(23)), "{when}: only its rule");
        assert!(!reaches(&open_machine, &guarded, Target::Icmp), "{when}: only its rule");
        assert!(!reaches(&guarded, &open_machine, Target::Icmp), "{when}: no rule lets it out");
        for (to, target, why) in [
            (&open_machine, Target::Tcp(23), "an open port takes everything"),
            (&open_machine, Target::Icmp, "an open port takes everything"),
            (&right, Target::Tcp(23), "members of Default"),
        ] {
            eventually(&format!("{when}: {why}"), || reaches(&left, to, target));
        }
        assert!(!reaches(&open_machine, &left, Target::Icmp), "{when}: not a member of Default");
        left.host.run("ip addr add 10.0.2.99/24 dev eth0");
        left.host.run("ip route replace default via 10.0.2.1 src 10.0.2.99");
        let mut seen = String::new();
        eventually(&format!("{when}: an open port takes everything"), || {
            connect(&left.host, open_machine.address, Target::Tcp(23)).is_ok_and(|from| {
                seen = from;
                true
            })
        });
        assert!(
            seen.contains("10.0.2.99"),
            "{when}: the provider holds a port to its hardware address only: {seen}"
        );
        left.host.default_route("10.0.2.1");
        left.host.run("ip addr del 10.0.2.99/24 dev eth0");
    };
    behave("before");

    let store = open(beside(&ovn)).await;
    let survey = store.survey_ovirt(PROJECT, 0);
    assert_eq!(survey.findings, []);
    let adopted = store.adopt_ovirt(PROJECT.to_owned(), 1_700_000_000, false).await.unwrap();
    assert_eq!(adopted.adopted().len(), 3 + 2 + 1 + 2 + 6);
    behave("after");
    assert!(store.drift().is_empty(), "{:?}", store.drift());
    let check = open(settings(&[ovn.northbound()])).await;
    let model = check.model();

    let id = |text: &str| text.parse::<Uuid>().unwrap();
    let network = |id: Uuid| Network::clone(model.get(id).unwrap());
    assert_eq!((network(id(&old)).meta.name.as_str(), network(id(&old)).port_security), ("old", false));
    assert_eq!((network(id(&new)).mtu, network(id(&new)).port_security), (1400, true));
    let wired = network(id(&wire));
    assert_eq!(
        (wired.physical.as_deref(), wired.vlan, wired.port_security),
        (Some("physnet"), Some(42), false)
    );
    let subnet = model.get::<Subnet>(id(&one)).unwrap();
    assert_eq!(subnet.dns_nameservers, ["10.0.0.53"]);
    assert_eq!((subnet.gateway, subnet.meta.name.as_str()), (Some("10.0.1.1".parse().unwrap()), "sub"));
    let port = model.get::<Port>(id(&open_port)).unwrap();
    assert_eq!((port.port_security, port.security_groups.len(), port.device_id.as_str()), (false, 0, "vm"));
    assert_eq!(port.fixed_ips[0].address.to_string(), "10.0.1.2");
    let port = model.get::<Port>(id(&ssh_port)).unwrap();
    assert_eq!((port.port_security, port.security_groups.as_slice()), (true, &[id(&ssh)][..]));
    assert_eq!((port.meta.name.as_str(), port.meta.project.as_str()), ("nic1", PROJECT));
    assert_eq!(model.default_group(PROJECT).map(|group| group.meta.id), Some(id(&default)));
    assert_eq!(model.get::<SecurityGroup>(id(&ssh)).unwrap().meta.revision, 3);
    let rules: Vec<_> = model.rules_of_group(id(&ssh)).map(|rule| Rule::clone(rule)).collect();
    assert_eq!((rules[0].port_min, rules[0].protocol.as_deref()), (Some(22), Some("tcp")));
    let router = model.get::<Router>(id(&router)).unwrap();
    assert_eq!(router.routes[0].destination.to_string(), "192.168.0.0/24");
    let port = model.get::<Port>(id(&interface)).unwrap();
    assert_eq!((port.device_owner.as_str(), port.router()), (Port::ROUTER_INTERFACE, Some(router.meta.id)));
    let groups = provider.nbctl(&["--bare", "--columns=_uuid", "list", "Port_Group"]);
    assert!(!groups.contains(&drop_all), "what drops is ours now");
    let members = provider.nbctl(&["get", "Port_Group", &ssh, "ports"]);
    assert_eq!(members, format!("[{ssh_port}]"), "rows that were replaced are gone from their groups");
    assert_eq!(check.survey_ovirt(PROJECT, 0).adopted(), [], "there is nothing left of the provider's");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_said_stays_with_all_that_hangs_on_it() {
    let northbound = portcullis_testkit::Northbound::start();
    let nbctl = |args: &[&str]| northbound.nbctl(args).trim().to_owned();
    let network = |name: &str| {
        let ids = format!("external_ids:ovirt_network_name={name}");
        nbctl(&["create", "Logical_Switch", &format!("name={name}"), &ids])
    };
    let (good, bad) = (network("good"), network("bad"));
    for (network, port) in [(&good, "0b0e1d52-0b4f-4c43-8f6f-000000000001"), (&bad, "tap0")] {
        nbctl(&["lsp-add", network, port, "--", "lsp-set-addresses", port, "02:00:00:00:00:01"]);
        nbctl(&["set", "Logical_Switch_Port", port, "external_ids:ovirt_nic_name=nic"]);
    }
    let before = nbctl(&["list", "Logical_Switch_Port", "tap0"]);
    let store = open(StoreSettings { coexist: true, ..settings(&[northbound.remote()]) }).await;

    let refused = store.adopt_ovirt(PROJECT.to_owned(), 0, false).await;
    let Err(portcullis_ovn::Rejected::Decided(survey)) = refused else { panic!("{refused:?}") };
    assert_eq!(survey.findings.len(), 1, "{:?}", survey.findings);
    assert_eq!((survey.findings[0].name.as_str(), survey.findings[0].table), ("tap0", "Logical_Switch_Port"));
    assert_eq!(survey.left.iter().map(|left| left.name.as_str()).collect::<Vec<_>>(), ["bad"]);
    assert!(store.model().ids().is_empty(), "nothing was adopted");

    store.adopt_ovirt(PROJECT.to_owned(), 0, true).await.unwrap();
    let model = store.model();
    assert!(model.get::<Network>(good.parse().unwrap()).is_some());
    assert_eq!(model.ids().len(), 2, "a network and its port");
    assert_eq!(nbctl(&["list", "Logical_Switch_Port", "tap0"]), before, "what stays is not touched");
    assert!(store.drift().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_keeps_its_way_out() {
    let northbound = portcullis_testkit::Northbound::start();
    let nbctl = |args: &[&str]| northbound.nbctl(args).trim().to_owned();
    let network = nbctl(&["create", "Logical_Switch", "name=out", "external_ids:ovirt_network_name=out"]);
    nbctl(&[
        "create",
        "DHCP_Options",
        "cidr=192.0.2.0/24",
        &format!("external_ids:ovirt_network_id={network}"),
        "options:router=192.0.2.1",
    ]);
    let port = "0b0e1d52-0b4f-4c43-8f6f-000000000002";
    let router = nbctl(&[
        "create",
        "Logical_Router",
        "name=router",
        &format!("external_ids:ovirt_gateway_port={port}"),
    ]);
    let end = format!("lrp{port}");
    nbctl(&["lrp-add", &router, &end, "02:00:00:00:00:09", "192.0.2.9/24"]);
    nbctl(&["lsp-add", &network, port, "--", "lsp-set-type", port, "router"]);
    nbctl(&[
        "lsp-set-addresses",
        port,
        "router",
        "--",
        "lsp-set-options",
        port,
        &format!("router-port={end}"),
    ]);
    nbctl(&["set", "Logical_Switch_Port", port, "external_ids:ovirt_nic_name=router_port"]);
    nbctl(&["lr-route-add", &router, "0.0.0.0/0", "192.0.2.1"]);
    nbctl(&["lr-route-add", &router, "198.51.100.0/24", "192.0.2.7"]);

    let store = open(StoreSettings { coexist: true, ..settings(&[northbound.remote()]) }).await;
    store.adopt_ovirt(PROJECT.to_owned(), 0, false).await.unwrap();
    let model = store.model();
    let adopted = model.get::<Router>(router.parse().unwrap()).unwrap();
    let gateway = adopted.gateway.as_ref().unwrap();
    assert_eq!((gateway.port.to_string().as_str(), gateway.snat), (port, false));
    assert_eq!(adopted.routes.len(), 1, "the default route is the gateway's");
    assert!(model.get::<Network>(network.parse().unwrap()).unwrap().external);
    assert!(store.drift().is_empty());
    let routes = nbctl(&["lr-route-list", &router]);
    assert_eq!(routes.matches("0.0.0.0/0").count(), 1, "{routes}");
    assert!(routes.contains("198.51.100.0/24"), "{routes}");
    let ends = nbctl(&["--bare", "--columns=networks", "list", "Logical_Router_Port"]);
    assert_eq!(ends, "192.0.2.9/24", "one end only");
}

/// What somebody set by hand on a row that would be replaced is told, not lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_lost_is_in_the_way() {
    let northbound = portcullis_testkit::Northbound::start();
    let nbctl = |args: &[&str]| northbound.nbctl(args).trim().to_owned();
    let network = nbctl(&["create", "Logical_Switch", "name=n", "external_ids:ovirt_network_name=n"]);
    nbctl(&[
        "create",
        "DHCP_Options",
        "cidr=192.0.2.0/24",
        &format!("external_ids:ovirt_network_id={network}"),
    ]);
    let router = nbctl(&["create", "Logical_Router", "name=router"]);
    let (port, inner) = ("0b0e1d52-0b4f-4c43-8f6f-000000000003", "0b0e1d52-0b4f-4c43-8f6f-000000000004");
    let end = format!("lrp{inner}");
    nbctl(&["lsp-add", &network, port, "--", "lsp-set-addresses", port, "02:00:00:00:00:01"]);
    nbctl(&["lrp-add", &router, &end, "02:00:00:00:00:02", "192.0.2.9/24"]);
    nbctl(&["lsp-add", &network, inner, "--", "lsp-set-type", inner, "router"]);
    nbctl(&["lsp-set-options", inner, &format!("router-port={end}")]);
    nbctl(&["lr-route-add", &router, "198.51.100.0/24", "192.0.2.7"]);
    for name in [port, inner] {
        nbctl(&["set", "Logical_Switch_Port", name, "external_ids:ovirt_nic_name=nic"]);
    }
    let group = nbctl(&["create", "Port_Group", "name=ovirt_g", "external_ids:ovirt_sec_group_name=g"]);
    let chassis = nbctl(&["create", "HA_Chassis_Group", "name=chassis"]);
    let route = nbctl(&["--bare", "--columns=_uuid", "list", "Logical_Router_Static_Route"]);
    let store = open(StoreSettings { coexist: true, ..settings(&[northbound.remote()]) }).await;
    let found = |what: &str| {
        eventually(what, || !store.survey_ovirt(PROJECT, 0).findings.is_empty());
        let findings = store.survey_ovirt(PROJECT, 0).findings;
        findings.into_iter().map(|finding| finding.why).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(store.survey_ovirt(PROJECT, 0).findings, []);
    for (table, row, column, value) in [
        ("Logical_Router_Port", &*end, "enabled", "false"),
        ("Logical_Router_Port", &end, "ha_chassis_group", &chassis),
        ("Logical_Router_Port", &end, "peer", "elsewhere"),
        ("Logical_Router_Port", &end, "ipv6_prefix", "\"fd00::/64\""),
        ("Logical_Router_Port", &end, "options:gateway_mtu", "1400"),
        ("Logical_Switch_Port", port, "parent_name", "other"),
        ("Logical_Switch_Port", port, "tag_request", "7"),
        ("Logical_Switch_Port", port, "ha_chassis_group", &chassis),
        ("Logical_Router_Static_Route", &route, "options:ecmp_symmetric_reply", "true"),
    ] {
        nbctl(&["set", table, row, &format!("{column}={value}")]);
        let (name, _) = column.split_once(':').unwrap_or((column, ""));
        let why = found(&format!("{name} of {table} is seen"));
        let said = [name, "switched off", "none that the API can say"];
        assert!(said.iter().any(|said| why.contains(said)), "{name} of {table}: {why}");
        nbctl(&["clear", table, row, name]);
        eventually("it is as before", || store.survey_ovirt(PROJECT, 0).findings.is_empty());
    }
    let rule = ["qos-add", &network, "to-lport", "100", "outport == @ovirt_g && ip4", "rate=1000"];
    nbctl(&rule);
    assert!(found("the rule is seen").contains("another name"), "a rule for speed names the group");
    nbctl(&["qos-del", &network]);
    eventually("it is as before", || store.survey_ovirt(PROJECT, 0).findings.is_empty());
    nbctl(&["lr-policy-add", &router, "100", "ip4.src == $ovirt_g_ip4", "drop"]);
    assert!(found("the policy is seen").contains("another name"), "a policy names the group {group}");
}

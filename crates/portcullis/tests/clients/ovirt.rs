//! A northbound database of ovirt-provider-ovn: looked at, adopted and served, as an administrator does it.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::parts::{Launch, Namespace, Port, Process, answers};
use portcullis_testkit::{Http, OvirtProvider};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cloud::{HASH, PASSWORD};

/// The provider's only tenant.
const TENANT: &str = "00000000000000000000000000000001";

/// What the provider has made.
struct Made {
    plain: String,
    green: String,
    six: String,
    stateless: String,
    machine: String,
    machine6: String,
    router: String,
    gateway: String,
    group: String,
}

fn make(provider: &OvirtProvider) -> Made {
    // From before port security, which its rows say nothing of.
    let plain = provider.network("plain", &[]);
    let green = provider.network("green", &["ovirt_port_security=True", "mtu=1400"]);
    let six = provider.network("six", &["ovirt_port_security=True"]);
    let stateless = provider.network("stateless", &["ovirt_port_security=False"]);
    let out = provider.network("out", &["ovirt_port_security=False"]);
    provider.localnet(&out, "physnet", "42");
    provider.subnet(&green, "10.0.2.0/24", "10.0.2.1");
    provider.subnet(&out, "192.0.2.0/24", "192.0.2.1");
    provider.subnet6(&six, "fd00:6::/64", "fd00:6::1", "dhcpv6_stateful");
    provider.subnet6(&stateless, "fd00:7::/64", "fd00:7::1", "dhcpv6_stateless");
    provider.drop_all();
    provider.default_group();
    // More than a project may have by default, together with the one above.
    let groups: Vec<String> = (0..10)
        .map(|number| {
            let name = format!("ovirt_{number}");
            let id = provider.group(&name);
            provider.egress(&name);
            id
        })
        .collect();
    provider.rule("ovirt_0", "to-lport", "ip4 && ip4.src == 198.51.100.0/24 && tcp && tcp.dst == 22");
    provider.rule("ovirt_0", "to-lport", "ip6 && ip6.src == $ovirt_1_ip6 && icmp6");
    provider.port(&plain, "02:00:00:00:00:01", "", &[]);
    let filtered = ["DropAll", "Default", "ovirt_0"];
    let machine = provider.port(&green, "02:00:00:00:02:05", "10.0.2.5", &filtered);
    let machine6 = provider.port(&six, "02:00:00:00:06:05", "dynamic", &filtered);
    provider.port(&stateless, "02:00:00:00:07:05", "dynamic", &[]);
    let router = provider.router("router");
    provider.interface(&router, &green, "02:00:00:00:02:01", "10.0.2.1/24", &[]);
    let told = ["address_mode=dhcpv6_stateful", "send_periodic=true"];
    provider.interface(&router, &six, "02:00:00:00:06:01", "fd00:6::1/64", &told);
    let gateway = provider.gateway(&router, &out, "02:00:00:00:00:09", "192.0.2.9/24", "192.0.2.1");
    provider.nbctl(&["--wait=sb", "sync"]);
    let group = groups[0].clone();
    Made { plain, green, six, stateless, machine, machine6, router, gateway, group }
}

/// A machine with a database, on which the program is run.
struct Site {
    files: TempDir,
    ovn: Ovn,
}

impl Site {
    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Runs `portcullis adopt-ovirt`; the exit code, and both streams.
    fn adopt(&self, args: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["adopt-ovirt", "--config"])
            .arg(self.path("config.yaml"))
            .args(args)
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let text = [&*output.stdout, &*output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    /// All rows, as they are.
    fn rows(&self) -> String {
        let tables =
            ["Logical_Switch", "Logical_Switch_Port", "DHCP_Options", "Logical_Router", "Port_Group", "ACL"];
        let mut rows = String::new();
        for table in tables {
            let listed = self.ovn.nbctl(&["--format=csv", "list", table]).unwrap();
            let mut lines: Vec<&str> = listed.lines().collect();
            lines.sort_unstable();
            writeln!(rows, "{table}\n{}", lines.join("\n")).unwrap();
        }
        rows
    }
}

/// A client that logged in as the engine does.
struct Engine {
    connection: Http,
    token: String,
}

impl Engine {
    fn log_in(identity: SocketAddr, networking: SocketAddr) -> Self {
        let credentials = json!({"username": "admin@internal", "password": PASSWORD});
        let body = json!({"auth": {"passwordCredentials": credentials, "tenantName": "tenant"}}).to_string();
        let mut connection = Http::connect(&identity.to_string()).unwrap();
        let headers = [("Content-Type", "application/json")];
        let answer = connection.ask("POST", "/v2.0/tokens", &headers, &body).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let access = answer.json()["access"].take();
        assert_eq!(access["token"]["tenant"]["id"], TENANT);
        let token = access["token"]["id"].as_str().unwrap().to_owned();
        Engine { connection: Http::connect(&networking.to_string()).unwrap(), token }
    }

    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = [("X-Auth-Token", self.token.as_str()), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.connection.ask(method, &format!("/v2.0/{path}"), &headers, &body).unwrap();
        (answer.status, answer.json())
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}

#[test]
fn what_the_provider_has_is_looked_at_adopted_and_served() {
    let files = TempDir::new().unwrap();
    let ovn = Ovn::start(files.path(), files.path(), None).unwrap();
    let site = Site { files, ovn };
    let provider = OvirtProvider::new(site.ovn.northbound());
    let made = make(&provider);
    let ports = [Port::any().unwrap(), Port::any().unwrap(), Port::any().unwrap()];
    let [telemetry, networking, identity] =
        [0, 1, 2].map(|place| SocketAddr::from(([127, 0, 0, 1], ports[place].number())));
    let settings = format!(
        "[PROVIDER]\nneutron-port={}\nkeystone-port={}\nprovider-host=engine\n[OVN REMOTE]\novn-remote={}\n\
         [AUTH]\nauth-plugin=auth.plugins.ovirt:AuthorizationByUserName\n",
        networking.port(),
        identity.port(),
        site.ovn.northbound()
    );
    let provider_config = site.path("provider.conf");
    fs::write(&provider_config, settings).unwrap();
    let provider_config = provider_config.to_str().unwrap();
    let remote = site.ovn.northbound();
    let first = ["--northbound", &remote, "--project", TENANT];

    // Before there is a configuration: it comes from the provider's.
    fs::write(site.path("config.yaml"), "").unwrap();
    let before = site.rows();
    let (code, text) = site.adopt(&[&first[..], &["--provider-config", provider_config]].concat());
    assert_eq!(code, 0, "{text}");
    for part in [
        "# Without counterpart: [AUTH] auth-plugin",
        "Nothing was changed. With --yes this is adopted:",
        "MTU 1442, port security off",
        "MTU 1400, port security on",
        "fd00:6::/64, gateway fd00:6::1",
        "security_group: -1",
    ] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert!(!text.contains("cannot be adopted"), "{text}");
    let config = text.split("# Without counterpart").next().unwrap();
    fs::write(site.path("config.yaml"), config).unwrap();
    fs::create_dir(site.path("config.d")).unwrap();
    // The test keeps to loopback.
    let drop_in = format!(
        "telemetry: {{listen: '{telemetry}'}}\nnetworking: {{listen: '{networking}'}}\n\
         identity:\n  listen: '{identity}'\n  local:\n    users:\n    - name: admin@internal\n      \
         password: '{HASH}'\n      assignments: [{{project: tenant, roles: [admin]}}]\n"
    );
    fs::write(site.path("config.d/engine.yaml"), drop_in).unwrap();

    // What is asked wrongly changes nothing.
    for (args, part) in [
        (&["--project", "00000000000000000000000000000002", "--yes"][..], "there is no project 0000"),
        (&["--project", "nobody"], "there is no project nobody"),
        (&["--project", "tenant", "--yes", "--set", "mode=observe"], "nothing is changed in this mode"),
        (&["--project", "tenant", "--northbound", "ssl:127.0.0.1:1"], "takes authority"),
    ] {
        let (code, text) = site.adopt(args);
        assert!(code == 2 && text.contains(part), "{code}: {text}");
    }
    assert_eq!(site.rows(), before);

    // Of a Keystone's projects only their ids are known.
    let keystone = ["--set", "identity.keystone.url=https://keystone.example.com:5000", "--project"];
    let (code, text) = site.adopt(&[&keystone[..], &["00000000000000000000000000000002"]].concat());
    assert!(code == 0 && text.contains("whether Keystone has a project 0000"), "{code}: {text}");
    assert_eq!(site.rows(), before);

    // A row of somebody else is in the way, of all or of what hangs together with it.
    provider.nbctl(&["lsp-add", &made.plain, "tap0"]);
    let before = site.rows();
    let (code, text) = site.adopt(&["--project", "tenant", "--yes"]);
    assert_eq!(code, 1, "{text}");
    for part in ["tap0", "it has no ovirt_nic_name", "rows in the way: 1", "Nothing was changed."] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert_eq!(site.rows(), before);
    let (code, text) = site.adopt(&["--project", "tenant", "--yes", "--leave"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Adopted:") && text.contains("These hang together with them"), "{text}");
    provider.nbctl(&["lsp-del", "tap0"]);
    let (code, text) = site.adopt(&["--project", TENANT, "--yes"]);
    assert!(code == 0 && text.contains("plain") && !text.contains("green"), "{code}: {text}");
    let (code, text) = site.adopt(&["--project", "tenant", "--yes"]);
    assert_eq!((code, text.as_str()), (0, "There is nothing of ovirt-provider-ovn to adopt.\n"));

    // Nothing of the provider's is left: the server starts without coexistence.
    let _server = serve(&site, telemetry);
    let mut engine = Engine::log_in(identity, networking);
    check(&mut engine, &made);
    let told = provider.nbctl(&[
        "--bare",
        "--columns=ipv6_ra_configs",
        "find",
        "Logical_Router_Port",
        "networks=\"fd00:6::1/64\"",
    ]);
    for part in ["address_mode=dhcpv6_stateful", "send_periodic=true"] {
        assert!(told.contains(part), "the router tells IPv6 hosts the same as before: {told}");
    }
}

fn serve(site: &Site, telemetry: SocketAddr) -> Process {
    let mut server = Launch::path("portcullis", env!("CARGO_BIN_EXE_portcullis"))
        .args(["serve", "--config"])
        .arg(site.path("config.yaml"))
        .start(&Namespace::host(), site.files.path())
        .unwrap();
    server.wait_until(Duration::from_secs(120), || answers(telemetry, "/readyz")).unwrap();
    server
}

/// What the engine sees, and can do.
fn check(engine: &mut Engine, made: &Made) {
    let network = |engine: &mut Engine, id: &str| engine.get(&format!("networks/{id}"))["network"].take();
    for (id, name, secure, mtu) in [
        (&made.plain, "plain", false, 1442),
        (&made.green, "green", true, 1400),
        (&made.six, "six", true, 1442),
        (&made.stateless, "stateless", false, 1442),
    ] {
        let network = network(engine, id);
        assert_eq!((&network["name"], &network["mtu"]), (&json!(name), &json!(mtu)));
        assert_eq!(
            (&network["port_security_enabled"], &network["tenant_id"]),
            (&json!(secure), &json!(TENANT))
        );
    }
    for (id, mode) in [(&made.six, "dhcpv6-stateful"), (&made.stateless, "dhcpv6-stateless")] {
        let subnets = engine.get(&format!("subnets?network_id={id}"))["subnets"].take();
        assert_eq!(
            (&subnets[0]["ipv6_address_mode"], &subnets[0]["ipv6_ra_mode"]),
            (&json!(mode), &json!(mode))
        );
    }
    let port = engine.get(&format!("ports/{}", made.machine))["port"].take();
    assert_eq!((&port["fixed_ips"][0]["ip_address"], &port["name"]), (&json!("10.0.2.5"), &json!("nic1")));
    assert_eq!(port["security_groups"].as_array().unwrap().len(), 2, "{port}");
    let port = engine.get(&format!("ports/{}", made.machine6))["port"].take();
    assert_eq!(port["fixed_ips"][0]["ip_address"], "fd00:6::ff:fe00:605", "as OVN gave it");
    let router = engine.get(&format!("routers/{}", made.router))["router"].take();
    let outside = &router["external_gateway_info"];
    assert_eq!(outside["external_fixed_ips"][0]["ip_address"], "192.0.2.9", "{router}");
    assert_eq!((&outside["enable_snat"], &router["routes"]), (&json!(false), &json!([])));
    assert_eq!(
        engine.get(&format!("ports/{}", made.gateway))["port"]["device_owner"],
        "network:router_gateway"
    );
    let rules = engine.get(&format!("security-group-rules?security_group_id={}", made.group));
    let rules = rules["security_group_rules"].as_array().unwrap().clone();
    assert_eq!(rules.len(), 4);
    let ssh = rules.iter().find(|rule| rule["protocol"] == "tcp").unwrap();
    assert_eq!((&ssh["port_range_min"], &ssh["remote_ip_prefix"]), (&json!(22), &json!("198.51.100.0/24")));
    assert!(rules.iter().any(|rule| rule["protocol"] == "ipv6-icmp" && !rule["remote_group_id"].is_null()));

    // There are eleven groups, and more can be made.
    assert_eq!(engine.get("security-groups")["security_groups"].as_array().unwrap().len(), 11);
    let (status, group) =
        engine.ask("POST", "security-groups", &json!({"security_group": {"name": "twelfth"}}));
    assert_eq!(status, 201, "{group}");
    let body =
        json!({"port": {"network_id": made.green, "security_groups": [group["security_group"]["id"]]}});
    let (status, port) = engine.ask("POST", "ports", &body);
    assert_eq!((status, &port["port"]["port_security_enabled"]), (201, &json!(true)), "{port}");
    assert_ne!(port["port"]["fixed_ips"][0]["ip_address"], "10.0.2.5");
}

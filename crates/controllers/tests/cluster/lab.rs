//! A machine that carries traffic by `HAProxy`, and who talks through it: real packets in network namespaces.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kube::Client;
use portcullis_controllers::cluster::{
    Carrier, HaProxyAgent, HaProxyAgentSettings, HaProxyController, HaProxySettings, Sharing,
};
use portcullis_haproxy::{Settings, Tuning};
use portcullis_host::interfaces::Selection;
use portcullis_kube_api::cluster::Flavour;
use portcullis_testkit::parts::{Namespace, Scratch};
use portcullis_testkit::talk::Backend;
use portcullis_testkit::{Host, Leash, link};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::scene::{Scene, client};

/// The port of members, and the one of load balancers.
pub(crate) const PORT: u16 = 6443;
pub(crate) const FRONT: u16 = 443;

/// A machine that carries traffic, a client, and some who may be members.
pub(crate) struct Lab {
    pub(crate) carrier: Host,
    pub(crate) client: Host,
    pub(crate) backends: BTreeMap<String, Running>,
}

pub(crate) struct Running {
    pub(crate) host: Host,
    pub(crate) backend: Option<Backend>,
}

impl Lab {
    pub(crate) fn new(names: &[&str]) -> Self {
        let [carrier, client] = ["carrier", "client"].map(Host::new);
        link(&client, &["192.0.2.10/24"], &carrier, &["192.0.2.1/24"]);
        let mut backends = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            let host = Host::new(name);
            link(&host, &[&format!("10.9.{number}.2/24")], &carrier, &[&format!("10.9.{number}.1/24")]);
            let backend = Some(Backend::start(&host, PORT));
            backends.insert((*name).to_owned(), Running { host, backend });
        }
        Lab { carrier, client, backends }
    }

    /// Which of the members it is: it has an address by that.
    fn number(&self, name: &str) -> usize {
        self.backends.keys().position(|known| known == name).unwrap()
    }

    /// Counts from now on who is sent to a member, also where nobody answers any more: a connection that goes to another after that is
    /// late, and none that fails.
    pub(crate) fn count_tries(&self, name: &str) {
        let number = self.number(name);
        self.carrier.nft(&format!(
            "table ip tries {{
                chain member-{number} {{
                    type filter hook output priority 0;
                    ip daddr 10.9.{number}.2 tcp flags & (syn | ack) == syn counter
                }}
            }}"
        ));
    }

    /// How many tries were counted.
    pub(crate) fn tries(&self, name: &str) -> u64 {
        let counted = self.carrier.run(&format!("nft list chain ip tries member-{}", self.number(name)));
        let mut words = counted.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).unwrap().parse().unwrap()
    }

    /// As when a machine is taken away: nobody gets a word from it any more.
    pub(crate) fn end(&mut self, name: &str) {
        let running = self.backends.get_mut(name).unwrap();
        running.host.run("ip link set to-carrier down");
        running.backend = None;
    }
}

/// A network on which several machines carry, and everybody else is, too.
pub(crate) struct Street(Host);

impl Street {
    pub(crate) fn new() -> Self {
        let switch = Host::new("switch");
        switch.run("ip link add street type bridge");
        switch.run("ip link set street up");
        Street(switch)
    }

    /// A host there, at `192.0.2.NUMBER`.
    pub(crate) fn join(&self, name: &str, number: u8) -> Host {
        let host = Host::new(name);
        link(&host, &[&format!("192.0.2.{number}/24")], &self.0, &[]);
        self.0.run(&format!("ip link set to-{name} master street"));
        host
    }
}

/// An agent on a machine; what it started ends with the test.
pub(crate) struct Agent {
    pub(crate) task: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where the programs of a machine have their files, which end when this is dropped.
pub(crate) struct Place {
    _leashes: [Leash; 2],
    pub(crate) scratch: Scratch,
    program: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new().unwrap();
        let leashes = [Leash::new(scratch.path()), Leash::new(&scratch.path().join("shared"))];
        let program = Settings::new(scratch.path()).program;
        Place { _leashes: leashes, scratch, program }
    }

    /// One whose `HAProxy` may break.
    pub(crate) fn fragile() -> Self {
        let place = Place::new();
        let program = place.scratch.path().join("program");
        symlink(&place.program, &program).unwrap();
        Place { program, ..place }
    }

    /// From now on it does not start, and says this.
    pub(crate) fn break_haproxy(&self, words: &str) {
        std::fs::remove_file(&self.program).unwrap();
        std::fs::write(&self.program, format!("#!/bin/sh\necho '{words}' >&2\nexit 1\n")).unwrap();
        std::fs::set_permissions(&self.program, Permissions::from_mode(0o700)).unwrap();
    }

    /// It starts again.
    pub(crate) fn mend_haproxy(&self) {
        std::fs::remove_file(&self.program).unwrap();
        symlink(Settings::new(self.scratch.path()).program, &self.program).unwrap();
    }

    /// One of its files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Ends `HAProxy` with all of its workers.
    pub(crate) fn kill_haproxy(&self) {
        self.kill("haproxy.pid");
    }

    /// Ends keepalived, which leaves its addresses.
    pub(crate) fn kill_keepalived(&self) {
        self.kill("shared/process.pid");
    }

    fn kill(&self, file: &str) {
        let pid = std::fs::read_to_string(self.file(file)).unwrap();
        let group = format!("-{}", pid.trim());
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    }
}

/// An agent on the lab's machine.
pub(crate) async fn agent(scene: &Scene, lab: &Lab, place: &Place) -> Agent {
    agent_as(client(scene.kubernetes).await, scene, lab, place)
}

/// An agent on one of several machines, which may share addresses with the others.
pub(crate) async fn carrying(
    scene: &Scene,
    host: &Host,
    name: &str,
    sharing: Option<Sharing>,
    place: &Place,
) -> Agent {
    start(scene, host, (name, scene.name), sharing, Selection::usual(), place).await
}

/// The same where nobody answers for the API.
pub(crate) fn carrying_alone(
    scene: &Scene,
    host: &Host,
    name: &str,
    sharing: Option<Sharing>,
    place: &Place,
) -> Agent {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let nobody = Client::try_from(config).unwrap();
    start_with(nobody, scene, host, (name, scene.name), sharing, Selection::usual(), place)
}

/// An agent on a machine of another pool than the scene's own.
pub(crate) async fn carrying_of(
    scene: &Scene,
    host: &Host,
    of: (&str, &str),
    sharing: Option<Sharing>,
    place: &Place,
) -> Agent {
    start(scene, host, of, sharing, Selection::usual(), place).await
}

/// An agent on the lab's machine, with the rights of somebody.
pub(crate) fn agent_as(client: Client, scene: &Scene, lab: &Lab, place: &Place) -> Agent {
    start_with(client, scene, &lab.carrier, ("carrier", scene.name), None, selection(lab), place)
}

/// Clients are not to come by the networks of members.
fn selection(lab: &Lab) -> Selection {
    let mut selection = Selection::usual();
    selection.internal.extend(lab.backends.keys().map(|name| format!("to-{name}")));
    selection
}

async fn start(
    scene: &Scene,
    host: &Host,
    of: (&str, &str),
    sharing: Option<Sharing>,
    selection: Selection,
    place: &Place,
) -> Agent {
    start_with(client(scene.kubernetes).await, scene, host, of, sharing, selection, place)
}

fn start_with(
    client: Client,
    scene: &Scene,
    host: &Host,
    (name, pool): (&str, &str),
    sharing: Option<Sharing>,
    selection: Selection,
    place: &Place,
) -> Agent {
    let settings = Settings { program: place.program.clone(), ..Settings::new(place.scratch.path()) };
    let carrier = Namespace::run(host, || Carrier::start(settings)).unwrap();
    let settings = HaProxyAgentSettings {
        flavour: Flavour::Own,
        namespace: Some(scene.name.to_owned()),
        agents: scene.name.to_owned(),
        pool: pool.to_owned(),
        name: name.to_owned(),
        sharing,
        selection,
        tuning: Tuning::default(),
    };
    let agent = HaProxyAgent::new(client, carrier, settings);
    Agent { task: tokio::spawn(agent.run(|_| {})) }
}

pub(crate) async fn controller(scene: &Scene) -> Agent {
    let settings = HaProxySettings {
        flavour: Flavour::Own,
        namespace: Some(scene.name.to_owned()),
        but: None,
        agents: scene.name.to_owned(),
        concurrency: 4,
    };
    let controller = HaProxyController::new(client(scene.kubernetes).await, settings);
    Agent { task: tokio::spawn(controller.run()) }
}

/// A load balancer on the machines of the scene's own pool.
pub(crate) fn on_machines(scene: &Scene, name: &str, spec: Value, of_machines: Value) {
    let mut maker = json!({"pool": scene.name});
    maker.as_object_mut().unwrap().extend(of_machines.as_object().unwrap().clone());
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "HAProxyLoadBalancer",
        "metadata": {"name": name},
        "spec": maker,
    }));
    let reference =
        json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancer", "name": name});
    let mut all = json!({"clusterName": "c", "infrastructureRef": reference});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {"name": name},
        "spec": all,
    }));
}

/// Quick checks, by TLS, as API servers are asked, which nobody fails who is slow for a while.
pub(crate) fn listeners() -> Value {
    let check = json!({
        "protocol": "HTTPS", "path": "/readyz",
        "intervalSeconds": 1, "timeoutSeconds": 1, "healthyThreshold": 1, "unhealthyThreshold": 10,
    });
    json!([{"port": FRONT, "targetPort": PORT, "healthCheck": check}])
}

/// A Machine whose infrastructure stays until the test has taken it away.
pub(crate) fn machine(scene: &Scene, lab: &Lab, name: &str) {
    scene.control_plane("c", "lb", name, &format!("10.9.{}.2", lab.number(name)));
    scene.patch("labmachine", name, &json!({"metadata": {"finalizers": ["lab/machine"]}}));
}

/// How the machines of the load balancer share an address.
pub(crate) fn sharing(interface: &str, priority: u8) -> Sharing {
    Sharing {
        interface: interface.to_owned(),
        priority,
        peers: Vec::new(),
        // Who stalls for three of them loses the address, and does not get it back.
        interval: Duration::from_secs(3),
    }
}

/// What each machine says of the load balancer `lb`.
pub(crate) fn instances(scene: &Scene) -> Vec<Value> {
    let found = scene.get("haproxyloadbalancer", "lb");
    found["status"]["instances"].as_array().cloned().unwrap_or_default()
}

/// The machines that have its address.
pub(crate) fn holders(scene: &Scene) -> Vec<String> {
    let holding = instances(scene).into_iter().filter(|instance| instance["holdsAddress"] == true);
    holding.map(|instance| instance["name"].as_str().unwrap().to_owned()).collect()
}

/// What holds a claim until its address is free again.
const GIVEN: &str = "ipam.example.com/given";

/// Gives an address to who claimed one, as the controller of a pool does.
pub(crate) fn give_address(scene: &Scene, claim: &str, address: &str) {
    scene.patch("ipaddressclaim", claim, &json!({"metadata": {"finalizers": [GIVEN]}}));
    let found = scene.get("ipaddressclaim", claim);
    let owner = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
        "name": claim, "uid": found["metadata"]["uid"], "controller": true,
    });
    scene.apply(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "given", "ownerReferences": [owner]},
        "spec": {"claimRef": {"name": claim}, "poolRef": found["spec"]["poolRef"], "address": address, "prefix": 24},
    }));
    let status = json!({"status": {"addressRef": {"name": "given"}}}).to_string();
    scene.kubectl(&["patch", "ipaddressclaim", claim, "--subresource=status", "--type=merge", "-p", &status]);
}

/// Takes an address back that nobody claims any more, as the controller of a pool does.
pub(crate) fn take_address_back(scene: &Scene, claim: &str) {
    scene.until("it is given back", || {
        scene.get("ipaddressclaim", claim)["metadata"].get("deletionTimestamp").is_some()
    });
    scene.kubectl(&["delete", "ipaddresses.ipam.cluster.x-k8s.io", "given"]);
    scene.patch("ipaddressclaim", claim, &json!({"metadata": {"finalizers": null}}));
}

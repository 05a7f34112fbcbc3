//! Load balancers in OVN: real packets through a real one, while Machines come and go.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use portcullis_controllers::cluster::{InfrastructureSettings, Infrastructures};
use portcullis_controllers::{ServiceController, Settings as ServiceSettings};
use portcullis_kube_api::LoadBalancerClass;
use portcullis_kube_api::cluster::{Flavour, OVN_ROUTERS, OVN_SWITCHES, OvnLoadBalancerSpec};
use portcullis_ovn::balancer::{Provider, Settings, Sweep};
use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::talk::{Backend, Held, Load, Visits, ask};
use portcullis_testkit::{Host, Target, can_connect, eventually_within, ovn, plug};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::faults::by;
use crate::lab::{Place, carrying, controller, on_machines};
use crate::scene::{Scene, client};

/// Where the load balancer is, and where members are.
pub(crate) const VIP: &str = "192.0.2.10";
pub(crate) const FRONT: u16 = 443;
pub(crate) const PORT: u16 = 6443;

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

/// For what takes moments, and longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A logical switch with a client, and room for members.
pub(crate) struct Lab {
    pub(crate) ovn: Ovn,
    pub(crate) client: Host,
    backends: BTreeMap<String, (Host, Option<Backend>)>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let ovn = ovn();
        for command in [
            "ls-add sw",
            "lr-add r",
            "lrp-add r r-sw 02:00:00:00:00:01 10.0.0.1/24",
            "lsp-add sw sw-r -- lsp-set-type sw-r router -- lsp-set-addresses sw-r router -- lsp-set-options sw-r router-port=r-sw",
        ] {
            ovn.nbctl(&command.split_whitespace().collect::<Vec<_>>()).unwrap();
        }
        let client = machine(&ovn, "client", 2);
        Lab { ovn, client, backends: BTreeMap::new() }
    }

    /// A machine that is there, and serves on a port.
    pub(crate) fn start(&mut self, name: &str, port: u16) -> String {
        let number = 10 + u8::try_from(self.backends.len()).unwrap();
        let host = machine(&self.ovn, name, number);
        let backend = Backend::start(&host, port);
        self.backends.insert(name.to_owned(), (host, Some(backend)));
        format!("10.0.0.{number}")
    }

    /// As when a machine is taken away: nobody gets a word from it any more.
    pub(crate) fn end(&mut self, name: &str) {
        let (host, backend) = self.backends.get_mut(name).unwrap();
        host.run("ip link set eth0 down");
        *backend = None;
    }

    fn provider(&self, sweep: Option<Sweep>) -> Provider {
        Provider::start(Settings {
            remotes: vec![self.ovn.northbound().parse().unwrap()],
            southbound: vec![self.ovn.southbound().parse().unwrap()],
            tls: None,
            durable: false,
            sweep,
        })
    }

    /// All that is there for load balancers.
    pub(crate) fn rows(&self) -> String {
        let tables = ["Load_Balancer", "Load_Balancer_Health_Check", "ACL", "Address_Set"];
        tables.map(|table| self.ovn.nbctl(&["list", table]).unwrap()).concat()
    }
}

fn machine(ovn: &Ovn, name: &str, number: u8) -> Host {
    let (mac, address) = (format!("02:00:00:00:01:{number:02x}"), format!("10.0.0.{number}"));
    ovn.nbctl(&["lsp-add", "sw", name]).unwrap();
    ovn.nbctl(&["lsp-set-addresses", name, &format!("{mac} {address}")]).unwrap();
    let host = plug(ovn, name, &mac, &[&format!("{address}/24")]);
    host.default_route("10.0.0.1");
    host
}

/// What runs until it is dropped.
pub(crate) struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn infrastructures(scene: &Scene, lab: &Lab) -> Task {
    let settings = InfrastructureSettings {
        kind: Flavour::Own.ovn(),
        namespace: Some(scene.name.to_owned()),
        concurrency: 4,
        resync: Duration::from_secs(2),
        look: Duration::from_millis(500),
        host: "test".to_owned(),
    };
    // As the program has it: what no object asks for any more may be looked after by another management cluster.
    let provider = lab.provider(None);
    let all: Infrastructures<Provider, OvnLoadBalancerSpec> =
        Infrastructures::new(client(scene.kubernetes).await, provider, settings);
    Task(tokio::spawn(all.run()))
}

/// What makes a load balancer in OVN.
fn maker(scene: &Scene) {
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "OVNLoadBalancer",
        "metadata": {"name": "lb"},
        "spec": {"addresses": [VIP], "switches": ["sw"]},
    }));
}

pub(crate) fn balancer(scene: &Scene, spec: &Value) {
    maker(scene);
    let mut all = json!({
        "clusterName": "c",
        "infrastructureRef": {"apiGroup": "loadbalancer.portcullis.dev", "kind": "OVNLoadBalancer", "name": "lb"},
    });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {"name": "lb"},
        "spec": all,
    }));
}

/// Soon sure of who is well, and slow to doubt it: the machine may be busy.
pub(crate) fn listeners() -> Value {
    let check = json!({
        "protocol": "TCP",
        "intervalSeconds": 1, "timeoutSeconds": 1, "healthyThreshold": 1, "unhealthyThreshold": 10,
    });
    json!([{"port": FRONT, "targetPort": PORT, "healthCheck": check}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_roll_refuses_nobody() {
    let scene = Scene::new("ovn-roll");
    let mut lab = Lab::new();
    let (old, new) = (["a-old", "b-old", "c-old"], ["d-new", "e-new", "f-new"]);
    scene.cluster("c", json!({}), json!({"controlPlaneEndpoint": {"host": VIP, "port": FRONT}}));
    let make = |lab: &mut Lab, name: &str| {
        let address = lab.start(name, PORT);
        scene.control_plane("c", "lb", name, &address);
        scene.patch("labmachine", name, &json!({"metadata": {"finalizers": ["lab/machine"]}}));
    };
    for name in old {
        make(&mut lab, name);
    }
    // Longer than a busy machine takes for what is to happen within it.
    let drain = 30;
    let ranges = ["10.0.0.0/24"];
    balancer(
        &scene,
        &json!({"listeners": listeners(), "drainTimeoutSeconds": drain, "allowedSourceRanges": ranges}),
    );
    let all = (scene.look_after().await, infrastructures(&scene, &lab).await);
    for name in old {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], VIP);
    assert_eq!(scene.condition("lb", "SourceRangesEnforced").0, "True Enforced");
    scene.until("it is in force", || ask(&lab.client, VIP, FRONT).is_ok());

    let load = Load::start(&lab.client, VIP, FRONT);
    // Connections that stay: one to each; and some that end while it drains.
    let one_to_each = |client: &Host| {
        let mut held: BTreeMap<String, Held> = BTreeMap::new();
        while held.len() < old.len() {
            let mut one = Held::connect(client, VIP, FRONT).unwrap();
            held.entry(one.ask().unwrap()).or_insert(one);
        }
        held
    };
    let (mut held, mut shorter) = (one_to_each(&lab.client), one_to_each(&lab.client));
    let visits = Visits::start(&lab.client, VIP, FRONT);
    let (mut visited, begin) = (0, load.count());
    for (number, (old, new)) in (1..).zip(old.iter().zip(new)) {
        make(&mut lab, new);
        scene.until("the new one serves", || scene.status("lb", new).as_deref() == Some("active"));
        scene.until("some are at the old one", || visits.with(old) > 0);
        scene.kubectl(&["delete", "machine", old, "--wait=false"]);
        scene.until("the old one drains", || scene.status("lb", old).as_deref() == Some("draining"));
        visited += visits.with(old);
        let maker = scene.get("ovnloadbalancer", "lb");
        let members = maker["status"]["members"].as_array().unwrap().clone();
        let told = members.iter().find(|member| member["name"] == *old).unwrap()["message"].to_string();
        assert!(told.contains("UTC: OVN does not tell which connections are left"), "{told}");
        assert_eq!(held.get_mut(*old).unwrap().ask().unwrap(), *old, "what it has goes on");
        let mut shorter = shorter.remove(*old).unwrap();
        for _ in 0..30 {
            assert_eq!(shorter.ask().unwrap(), *old, "as long as it likes, within the time");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        shorter.end().unwrap();
        // Nothing is taken from it before it has left.
        scene.until("its infrastructure goes", || {
            scene.get("labmachine", old)["metadata"].get("deletionTimestamp").is_some()
        });
        assert_eq!(scene.annotation(old, "loadbalancer.cluster.x-k8s.io/status").as_deref(), Some("removed"));
        scene.until("its time was over", || held.get_mut(*old).unwrap().has_ended());
        lab.end(old);
        assert_ne!(ask(&lab.client, VIP, FRONT).unwrap(), *old, "who comes again is with another one");
        // A third of all connections is made before it is gone.
        load.until(begin + number * 3_400);
        scene.patch("labmachine", old, &json!({"metadata": {"finalizers": null}}));
        scene.until("it is gone", || scene.get("machine", old) == Value::Null);
    }
    let made = load.count() - begin;
    assert!(made >= 10_000, "{made} connections while machines came and went");
    load.more(200);
    let (count, failures) = load.end();
    assert!(failures.is_empty(), "{} of {count} connections, such as {}", failures.len(), failures[0]);
    let (count, broken) = visits.end(Duration::from_secs(drain));
    assert_eq!(broken, Vec::<String>::new(), "of {count} that lasted for some seconds");
    assert!(visited > 0, "some of them were with one that drained");
    assert!(new.contains(&ask(&lab.client, VIP, FRONT).unwrap().as_str()));

    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    scene.until("all of it is gone", || lab.rows().is_empty());
    drop(all);
}

/// How far a member that leaves has come when all of ours is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is written that it is to leave, and nobody has told OVN.
    Asked,
    Drains,
    /// It is called removed where the provider tells that, and its Machine is held.
    Told,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_at_every_stage_of_a_leave() {
    let scene = Scene::new("ovn-killed");
    let mut lab = Lab::new();
    scene.cluster("c", json!({}), json!({"controlPlaneEndpoint": {"host": VIP, "port": FRONT}}));
    let stages = [("a-asked", Stage::Asked), ("b-drains", Stage::Drains), ("c-told", Stage::Told)];
    for name in stages.iter().map(|(name, _)| *name).chain(["d-stays"]) {
        let address = lab.start(name, PORT);
        scene.control_plane("c", "lb", name, &address);
    }
    balancer(&scene, &json!({"listeners": listeners(), "drainTimeoutSeconds": 30}));
    let mut balancers = Some(scene.look_after().await);
    let mut provider = Some(infrastructures(&scene, &lab).await);
    for (name, _) in stages {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    scene.until("it is in force", || ask(&lab.client, VIP, FRONT).is_ok());
    let load = Load::start(&lab.client, VIP, FRONT);
    for (name, stage) in stages {
        if stage == Stage::Asked {
            provider = None;
        }
        scene.kubectl(&["delete", "machine", name, "--wait=false"]);
        scene.until("it is to leave", || by(&scene, "ovnloadbalancer", name).is_string());
        let deadline = by(&scene, "ovnloadbalancer", name);
        if stage != Stage::Asked {
            scene.until("it drains", || scene.status("lb", name).as_deref() == Some("draining"));
        }
        if stage == Stage::Told {
            balancers = None;
            scene.until("the provider calls it removed", || {
                let told = scene.get("ovnloadbalancer", "lb")["status"]["members"].clone();
                let of_it = told.as_array().unwrap().iter().find(|member| member["name"] == name).cloned();
                of_it.is_some_and(|member| member["status"] == "removed")
            });
        }
        drop((balancers.take(), provider.take()));
        assert!(scene.is_held(name, "lb"), "{stage:?}");
        load.more(100);
        (balancers, provider) = (Some(scene.look_after().await), Some(infrastructures(&scene, &lab).await));
        scene.until("it is gone", || {
            let now = by(&scene, "ovnloadbalancer", name);
            assert!(now.is_null() || now == deadline, "{stage:?}: {now}, and {deadline} before");
            scene.get("machine", name) == Value::Null
        });
        // Whoever was sent to it from now on would be refused.
        lab.end(name);
        load.more(100);
    }
    let (count, failures) = load.end();
    assert!(failures.is_empty(), "{} of {count} connections, such as {}", failures.len(), failures[0]);
    drop((balancers, provider));
}

/// The fifth story between kinds: from a machine with `HAProxy` to OVN, behind a name. Who asks for the name again goes to the
/// new one as soon as that is told; who has the old address goes on for a while. Nobody is refused by either.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_swap_between_kinds_refuses_nobody() {
    let scene = Scene::new("ovn-swap");
    let mut lab = Lab::new();
    let [edge, fresh] = [("edge", 3), ("fresh", 4)].map(|(name, number)| machine(&lab.ovn, name, number));
    let (old, new) = ("10.0.0.3", VIP);
    scene.cluster("c", json!({}), json!({}));
    for name in ["one", "two"] {
        let address = lab.start(name, PORT);
        scene.control_plane("c", "lb", name, &address);
    }
    let endpoint = json!({"host": "api.example.com", "port": FRONT});
    let wanted = json!({"listeners": listeners(), "endpoint": endpoint, "drainTimeoutSeconds": 600});
    on_machines(&scene, "lb", wanted, json!({}));
    maker(&scene);
    let place = Place::new();
    let _all = (
        (scene.look_after().await, controller(&scene).await, infrastructures(&scene, &lab).await),
        carrying(&scene, &edge, "edge", None, &place).await,
    );
    let address = || scene.get("loadbalancer", "lb")["status"]["address"].clone();
    for name in ["one", "two"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    assert_eq!((address(), lab.rows()), (json!(old), String::new()), "OVN is not asked yet");

    let load = Load::start(&lab.client, old, FRONT);
    let held = || Held::connect(&lab.client, old, FRONT).unwrap();
    let (mut shorter, mut longer) = ([held(), held(), held()], held());
    let answers = |held: &mut [Held]| held.iter_mut().all(|held| held.ask().is_ok());
    assert!(answers(&mut shorter) && longer.ask().is_ok());
    load.more(500);

    let reference =
        json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": "OVNLoadBalancer", "name": "lb"});
    let start = Instant::now();
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
    // That is when whoever keeps names has it point there.
    scene.until("clients are sent to the new one", || address() == new);
    let load_of_new = Load::start(&fresh, new, FRONT);
    let mut held_by_new = Held::connect(&fresh, new, FRONT).unwrap();
    assert!(held_by_new.ask().is_ok());
    load.more(500);
    load_of_new.more(500);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections by HAProxy");
    let assignment = || scene.get("haproxyloadbalancer", "lb")["spec"]["assignment"].clone();
    let duties = || {
        let members = assignment()["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().map(|member| member["duty"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(duties(), ["Serve", "Serve"], "for clients that have not heard of it");

    // A busy machine took longer until here, and takes longer for what follows: that has at least as much time.
    let drain = start.elapsed().max(Duration::from_secs(20));
    scene.patch(BALANCERS, "lb", &json!({"spec": {"drainTimeoutSeconds": drain.as_secs()}}));
    eventually_within(drain + PATIENCE, "its members leave it", || duties() == ["Leave", "Leave"]);
    for _ in 0..30 {
        assert!(answers(&mut shorter), "as long as they like, within the time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for held in shorter {
        held.end().unwrap();
    }
    assert!(longer.ask().is_ok(), "its time is not over");
    eventually_within(drain + PATIENCE, "it is given up", || assignment().is_null());
    scene.until("what was left is ended", || longer.has_ended());
    scene.until("nobody is there any more", || ask(&lab.client, old, FRONT).is_err());
    load_of_new.more(500);
    assert!(held_by_new.ask().is_ok(), "nobody was moved from OVN");
    let (count, failures) = load_of_new.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections by OVN");
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint);
}

/// Something is in the way of a load balancer: what is closed is closed all the same, and what is opened waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_in_the_way_keeps_nobody_in() {
    let scene = Scene::new("ovn-blocked");
    let lab = Lab::new();
    let one = machine(&lab.ovn, "one", 10);
    let _serving = one.serve(PORT);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.10");
    let more = FRONT + 1;
    let both = json!([{"port": FRONT, "targetPort": PORT}, {"port": more, "targetPort": PORT}]);
    balancer(&scene, &json!({"listeners": both, "allowedSourceRanges": ["10.0.0.0/24"]}));
    let _all = (scene.look_after().await, infrastructures(&scene, &lab).await);
    let gets_in = |port| can_connect(&lab.client, VIP, Target::Tcp(port));
    scene.until("it serves", || gets_in(FRONT) && gets_in(more));
    scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"switches": ["sw", "nowhere"]}}));
    let blocked = "False Blocked";
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").0 == blocked);
    let ranges = || scene.get("loadbalancer", "lb")["status"]["allowedSourceRanges"].clone();
    let change = |spec: Value| {
        scene.patch("loadbalancers.loadbalancer.portcullis.dev", "lb", &json!({"spec": spec}));
    };

    change(json!({"listeners": [{"port": FRONT, "targetPort": PORT}]}));
    scene.until("nobody listens there any more", || !gets_in(more));
    assert!(gets_in(FRONT), "and the other goes on");
    change(json!({"allowedSourceRanges": ["10.0.0.128/25", "198.51.100.0/24"]}));
    scene.until("who is not let in any more is kept out", || !gets_in(FRONT));
    scene.until("that is told", || ranges() == json!(["10.0.0.128/25"]));
    assert_eq!(scene.condition("lb", "InfrastructureReady").0, blocked);
    // Who is let in by that waits, like all else.
    change(json!({"allowedSourceRanges": null, "listeners": both}));
    scene.until("the provider knows", || {
        let found = scene.get("ovnloadbalancer", "lb");
        found["metadata"]["generation"] == found["status"]["observedGeneration"]
            && found["spec"]["assignment"].get("allowedSourceRanges").is_none()
    });
    assert!(!gets_in(FRONT) && !gets_in(more));
    assert_eq!(ranges(), json!(["10.0.0.128/25"]));
    lab.ovn.nbctl(&["ls-add", "nowhere"]).unwrap();
    scene.until("all is as asked", || gets_in(FRONT) && gets_in(more) && ranges().is_null());
}

/// What is wrong with an object is told by the name of the field. What serves goes on, who leaves goes, and nobody gets in who should
/// not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wrong_field_keeps_nobody_in() {
    let scene = Scene::new("ovn-wrong");
    let mut lab = Lab::new();
    scene.cluster("c", json!({}), json!({}));
    for name in ["one", "two"] {
        let address = lab.start(name, PORT);
        scene.control_plane("c", "lb", name, &address);
    }
    balancer(
        &scene,
        &json!({
            "endpoint": {"host": "api.example.com", "port": FRONT}, "listeners": listeners(),
            "drainTimeoutSeconds": 3, "allowedSourceRanges": ["10.0.0.0/24"],
        }),
    );
    let _all = (scene.look_after().await, infrastructures(&scene, &lab).await);
    for name in ["one", "two"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let said = |words: &str| {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Blocked" && message.contains(words)
    };
    scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"addresses": ["224.0.0.1"]}}));
    scene.until("that is told", || said("spec.addresses cannot be used: 224.0.0.1"));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], VIP, "it is where it was");
    scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"addresses": []}}));
    scene.until("that is told", || said("name one in spec.addresses"));

    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.until("it gets nothing any more", || lab.rows().matches("10.0.0.10:6443").count() == 0);
    assert_eq!(scene.status("lb", "two").as_deref(), Some("active"));
    assert_eq!(ask(&lab.client, VIP, FRONT).unwrap(), "two", "what serves goes on");
    scene.patch(
        "loadbalancers.loadbalancer.portcullis.dev",
        "lb",
        &json!({"spec": {"allowedSourceRanges": ["10.0.0.128/25"]}}),
    );
    scene.until("who is not let in any more is kept out", || ask(&lab.client, VIP, FRONT).is_err());
    scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"addresses": [VIP]}}));
    scene.until("all is well", || scene.condition("lb", "InfrastructureReady").0 == "True UpToDate");
}

/// Whether it exists, and is as asked, is said of the object itself, from before it is made until it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_said_of_the_object_through_its_life() {
    let scene = Scene::new("ovn-life");
    let lab = Lab::new();
    scene.cluster("c", json!({}), json!({}));
    balancer(&scene, &json!({"listeners": listeners()}));
    let place = |switches: Value| {
        scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"switches": switches}}));
    };
    place(json!(["later"]));
    let asking = scene.look_after().await;
    let _making = infrastructures(&scene, &lab).await;
    let said = |type_: &str| {
        let found = scene.get("ovnloadbalancer", "lb");
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|found| found["type"] == type_)?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        let about = found["observedGeneration"].as_i64().unwrap_or_default();
        Some((format!("{} {}", text("status"), text("reason")), text("message"), about))
    };
    let both = |exists: &str, config: &str| {
        said("Exists").is_some_and(|(state, ..)| state == exists)
            && said("ConfigUpToDate").is_some_and(|(state, ..)| state == config)
    };
    scene.until("it cannot be made", || both("False NotMade", "False Blocked"));
    let (_, why, _) = said("ConfigUpToDate").unwrap();
    assert!(why.contains("`later`"), "{why}");
    assert_eq!(lab.rows(), "");
    lab.ovn.nbctl(&["ls-add", "later"]).unwrap();
    scene.until("it is made", || both("True Made", "True UpToDate"));
    assert!(lab.rows().contains(VIP));

    place(json!(["later", "sw"]));
    let generation = || scene.get("ovnloadbalancer", "lb")["metadata"]["generation"].as_i64();
    scene.until("that is about the change", || {
        said("ConfigUpToDate")
            .is_some_and(|(state, _, about)| state == "True UpToDate" && Some(about) == generation())
    });
    place(json!(["nowhere"]));
    scene.until("it cannot be changed", || both("True Made", "False Blocked"));
    let (_, why, about) = said("ConfigUpToDate").unwrap();
    assert!(why.contains("`nowhere`") && Some(about) == generation(), "{why}");
    assert!(lab.rows().contains(VIP), "what is there stays");

    // As when another one has its place.
    drop(asking);
    scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"assignment": null}}));
    scene.until("nothing is said of what is gone", || {
        said("Exists").is_none() && said("ConfigUpToDate").is_none()
    });
    assert_eq!(lab.rows(), "");
    assert!(scene.get("ovnloadbalancer", "lb").is_object(), "the object is its user's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn services_are_carried_too() {
    let scene = Scene::new("ovn-services");
    let mut lab = Lab::new();
    let names = ["ovn-services-a", "ovn-services-b"];
    for name in names {
        let address = lab.start(name, 30043);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        scene.kubernetes.apply(&node.to_string()).unwrap();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let patch =
            ["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status.to_string()];
        scene.kubernetes.kubectl(&patch).unwrap();
        let untaint = json!({"spec": {"taints": null}}).to_string();
        scene.kubernetes.kubectl(&["patch", "node", name, "--type=merge", "-p", &untaint]).unwrap();
    }
    assert_eq!((OVN_SWITCHES, OVN_ROUTERS), ("portcullis.dev/ovn-switches", "portcullis.dev/ovn-routers"));
    let class = "portcullis.dev/ovn-services";
    let service = |ranges: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "annotations": {OVN_SWITCHES: "sw"}},
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "loadBalancerIP": VIP,
                "loadBalancerSourceRanges": ranges,
                "ports": [{"port": 80, "nodePort": 30043}],
            },
        })
    };
    scene.apply(service(json!(["10.0.0.0/24"])));
    let settings = ServiceSettings {
        cluster: "test".to_owned(),
        class: LoadBalancerClass { name: class.to_owned(), without_class: None },
        concurrency: 4,
        resync: Duration::from_secs(600),
        close_look: Duration::from_secs(3600),
        sweep_after: Duration::from_secs(600),
        observe: false,
        host: "test".to_owned(),
    };
    let api = client(scene.kubernetes).await;
    let sweep = Sweep { cluster: "test".to_owned(), kind: "Service".to_owned(), identity: "0a1b".to_owned() };
    let services = ServiceController::new(api, lab.provider(Some(sweep)), settings);
    let _running = Task(tokio::spawn(services.run()));
    scene.until("the Service has its address", || {
        scene.get("service", "web")["status"]["loadBalancer"]["ingress"][0]["ip"] == VIP
    });
    scene.until("both nodes are reached", || {
        let answers: Vec<String> = (0..8).filter_map(|_| ask(&lab.client, VIP, 80).ok()).collect();
        names.iter().all(|name| answers.iter().any(|answer| answer == name))
    });
    scene.apply(service(json!(["198.51.100.0/24"])));
    scene.until("nobody gets in", || ask(&lab.client, VIP, 80).is_err());
    scene.kubectl(&["delete", "service", "web"]);
    assert_eq!(lab.rows(), "");
    for name in names {
        scene.kubernetes.kubectl(&["delete", "node", name]).unwrap();
    }
}

/// What moved to another management cluster is not taken away by the one that it came from.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_moved_away_stays_in_ovn() {
    let scene = Scene::new("ovn-moved");
    let mut lab = Lab::new();
    let address = lab.start("one", PORT);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", &address);
    balancer(&scene, &json!({"listeners": listeners(), "allowedSourceRanges": ["10.0.0.0/24"]}));
    let _running = scene.look_after().await;
    let making = infrastructures(&scene, &lab).await;
    scene.until("it serves", || scene.status("lb", "one").as_deref() == Some("active"));
    let before = lab.rows();
    scene.until("clients reach it", || ask(&lab.client, VIP, FRONT).is_ok());
    scene.move_away("ovnloadbalancer", "lb");
    scene.kubectl(&["delete", "ovnloadbalancer", "lb", "--wait=false"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(scene.get("ovnloadbalancer", "lb")["metadata"].get("deletionTimestamp").is_some());
    // Who starts meanwhile does not take it away either.
    drop(making);
    let _making = infrastructures(&scene, &lab).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    scene.patch("ovnloadbalancer", "lb", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone here", || scene.get("ovnloadbalancer", "lb") == Value::Null);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(lab.rows(), before);
    assert_eq!(ask(&lab.client, VIP, FRONT).unwrap(), "one");
}

/// For a Cluster that is paused nothing is done in OVN, also by who starts meanwhile. All of it is done after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_done_in_ovn_for_a_paused_cluster() {
    let scene = Scene::new("ovn-paused-cluster");
    let mut lab = Lab::new();
    lab.ovn.nbctl(&["ls-add", "later"]).unwrap();
    scene.cluster("c", json!({}), json!({}));
    for name in ["one", "two"] {
        let address = lab.start(name, PORT);
        scene.control_plane("c", "lb", name, &address);
    }
    balancer(
        &scene,
        &json!({"listeners": listeners(), "drainTimeoutSeconds": 3, "allowedSourceRanges": ["10.0.0.0/24"]}),
    );
    let mut all = (scene.look_after().await, infrastructures(&scene, &lab).await);
    for name in ["one", "two"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    scene.until("clients reach it", || ask(&lab.client, VIP, FRONT).is_ok());
    scene.patch("cluster", "c", &json!({"spec": {"paused": true}}));
    let say_so = || scene.says_paused("loadbalancer", "lb") && scene.says_paused("ovnloadbalancer", "lb");
    scene.until("both say so", say_so);
    let asked = scene.get("ovnloadbalancer", "lb")["spec"]["assignment"].clone();
    let of_later = || lab.ovn.nbctl(&["ls-lb-list", "later"]).unwrap();
    let before = lab.rows();
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    for (ranges, switches) in [("198.51.100.0/24", json!(["sw", "later"])), ("10.0.0.0/30", json!(["later"]))]
    {
        let spec = json!({"spec": {"allowedSourceRanges": [ranges]}});
        scene.patch("loadbalancers.loadbalancer.portcullis.dev", "lb", &spec);
        scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"switches": switches}}));
        scene.until("both have seen it", say_so);
        drop(all);
        all = (scene.look_after().await, infrastructures(&scene, &lab).await);
    }
    scene.patch("ovnloadbalancer", "lb", &json!({"spec": {"switches": ["sw", "later"]}}));
    scene.until("who started meanwhile has seen it", say_so);
    assert_eq!(scene.get("ovnloadbalancer", "lb")["spec"]["assignment"], asked);
    assert!(scene.is_held("one", "lb"));
    assert_eq!(lab.rows(), before);
    assert_eq!(of_later(), "");
    scene.until("who is to go gets connections like the other", || {
        let answers: Vec<String> = (0..8).filter_map(|_| ask(&lab.client, VIP, FRONT).ok()).collect();
        ["one", "two"].iter().all(|name| answers.iter().any(|answer| answer == name))
    });

    scene.patch("cluster", "c", &json!({"spec": {"paused": false}}));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.until("all else is as asked", || {
        of_later().contains(VIP) && scene.condition("lb", "InfrastructureReady").0 == "True UpToDate"
    });
    assert_eq!(lab.rows().matches("10.0.0.10:6443").count(), 0);
    assert!(!scene.says_paused("ovnloadbalancer", "lb") && !scene.says_paused("loadbalancer", "lb"));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["allowedSourceRanges"], json!(["10.0.0.0/30"]));
    assert_eq!(ask(&lab.client, VIP, FRONT).unwrap(), "two");
    drop(all);
}

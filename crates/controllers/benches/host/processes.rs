//! The processes that look after Services, and how they are talked to: by lines.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Once;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use portcullis_controllers::host::{AgentSettings, GRACE, HostController, HostSettings, Known, NodeAgent};
use portcullis_host::Machine;
use portcullis_host::claims::Policy;
use portcullis_host::datapath::Mode;
use portcullis_host::interfaces::Selection;
use portcullis_testkit::Host;
use portcullis_testkit::parts::Namespace;
use serde_json::json;

/// The words by which they know what they are, and the classes of their Services.
pub(crate) const OURS: &str = "--ours";
pub(crate) const AGENT: &str = "--agent";
pub(crate) const FILTER: &str = "--filter";
pub(crate) const BARE: &str = "--bare";
pub(crate) const OURS_CLASS: &str = "bench/ours";
pub(crate) const FILTERED_CLASS: &str = "bench/filtered";
pub(crate) const BARE_CLASS: &str = "bench/bare";

pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Both halves, or the one that every node of a cluster has, with a node that has one address. It is told what to run on that node,
/// with `ip` or `nft`, and says of the latter whether it went well.
pub(crate) fn run_ours(kubeconfig: &str, mode: Mode, both: bool) {
    let node = Host::new("node");
    node.run("ip link add lan0 type veth peer name lan1");
    node.run("ip link set lan0 up");
    node.run("ip address add 192.0.2.1/24 dev lan0");
    let machine = Namespace::run(&node, || Machine::start().unwrap());
    let policy = Policy { selection: Selection::usual(), reserved: BTreeSet::new() };
    let class = if mode == Mode::Filter { FILTERED_CLASS } else { OURS_CLASS };
    let agent = AgentSettings {
        cluster: "bench".to_owned(),
        class: class.to_owned(),
        without_class: false,
        node: "node1".to_owned(),
        namespace: "nodes".to_owned(),
        policy: policy.clone(),
        mode,
        grace: GRACE,
        observe: false,
    };
    let controller = HostSettings {
        class: class.to_owned(),
        without_class: false,
        namespace: "nodes".to_owned(),
        policy,
        mode,
        observe: false,
        host: "bench".to_owned(),
    };
    let set = Once::new();
    let told = move |standing: Result<(), String>| {
        standing.unwrap();
        set.call_once(|| println!("set"));
    };
    // It waits for what it is told: the start of a program is not a part of what is measured.
    let mut ip = Namespace::run(&node, || {
        Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap().stdin.unwrap()
    });
    let on_node = move |line: String| {
        let (program, arguments) = line.split_once(' ').unwrap();
        if program == "ip" {
            return writeln!(ip, "{arguments}").unwrap();
        }
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let done = portcullis_testkit::parts::run(&node, program, &arguments);
        println!("{}", if done.is_ok() { "yes" } else { "no" });
    };
    run(on_node, async move {
        let known = Known::new(client(Path::new(kubeconfig)).await);
        let agent = NodeAgent::new(machine, agent, known.clone()).run(told);
        if both {
            tokio::join!(agent, HostController::new(controller, known).run());
        } else {
            agent.await;
        }
    });
}

/// The floor.
pub(crate) fn run_bare(kubeconfig: &str) {
    run(drop, async move {
        let client = client(Path::new(kubeconfig)).await;
        let api: Api<Service> = Api::all(client.clone());
        let events = watcher(api, watcher::Config::default());
        futures_util::pin_mut!(events);
        let api: Api<Service> = Api::namespaced(client, "services");
        while let Ok(Some(event)) = events.try_next().await {
            let watcher::Event::Apply(service) = event else { continue };
            let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
            let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
            if class != Some(BARE_CLASS) || status.is_some_and(|status| status.ingress.is_some()) {
                continue;
            }
            let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}));
            api.patch_status(&service.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    });
}

/// Works until nobody talks to it any more, and listens to what is said.
fn run(mut hears: impl FnMut(String) + Send + 'static, work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended = runtime.spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            hears(line.unwrap());
        }
    });
    runtime.block_on(async {
        tokio::select! {
            () = work => {}
            _ = ended => {}
        }
    });
}

//! All of ours is killed while a member leaves a machine with `HAProxy`, at every stage of that.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use k8s_openapi::jiff::Timestamp;
use portcullis_testkit::talk::{Held, Load};
use serde_json::{Value, json};

use crate::faults::{by, held_by};
use crate::lab::{
    Agent, FRONT, Lab, Place, agent, agent_as, controller, instances, listeners, machine, on_machines,
};
use crate::scene::{Running, Scene, client_of};
use crate::trouble::allow;

const MACHINE: &str = "192.0.2.1";
const STATUS: &str = "loadbalancer.cluster.x-k8s.io/status";

/// How far it has come when everything of ours is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is written that it is to leave, and the machine has not seen it.
    Asked,
    /// It drains, and has a connection.
    Drains,
    /// Its time is over, its connection was cut, `HAProxy` does not have it any more, and nobody was told.
    Cut,
    /// The machine has said so, and nobody has put together what machines say.
    Said,
    /// It is called removed where the provider tells that, and not where the Machine does, which is held.
    Told,
    /// It is not held any more.
    LetGo,
}

/// Who leaves at which stage, by name; the last one stays.
const STAGES: [(&str, Stage); 6] = [
    ("a-asked", Stage::Asked),
    ("b-drains", Stage::Drains),
    ("c-cut", Stage::Cut),
    ("d-said", Stage::Said),
    ("e-told", Stage::Told),
    ("f-let-go", Stage::LetGo),
];

/// All of ours but `HAProxy`.
#[derive(Default)]
struct Ours {
    balancers: Option<Running>,
    machines: Option<Agent>,
    agent: Option<Agent>,
}

impl Ours {
    /// All of it, as after a power cut of everything but the traffic.
    async fn start(scene: &Scene, lab: &Lab, place: &Place) -> Self {
        Ours {
            balancers: Some(scene.look_after().await),
            machines: Some(controller(scene).await),
            agent: Some(agent(scene, lab, place).await),
        }
    }
}

/// What `HAProxy` says to this.
pub(crate) fn haproxy(place: &Place, command: &str) -> String {
    let mut socket = UnixStream::connect(place.scratch.path().join("worker.sock")).unwrap();
    writeln!(socket, "{command}").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// What a list of members says of one.
fn status_in(members: &Value, name: &str) -> Value {
    let members = members.as_array().cloned().unwrap_or_default();
    members
        .iter()
        .find(|member| member["name"] == name)
        .map(|found| found["status"].clone())
        .unwrap_or_default()
}

/// Somebody who sees what is to be carried, and may not say anything about it.
async fn mute(scene: &Scene) -> kube::Client {
    let sees = format!("{}-sees", scene.name);
    allow(scene, scene.name, &sees, &["loadbalancer.portcullis.dev"], &["get", "list", "watch"]);
    allow(scene, scene.name, &format!("{}-is", scene.name), &["coordination.k8s.io"], &["*"]);
    client_of(&scene.kubernetes.user(scene.name, None).unwrap()).await
}

/// Has a Machine deleted, and lets that come as far as the stage.
async fn reach(
    stage: Stage,
    name: &str,
    (scene, lab, place): (&Scene, &Lab, &Place),
    ours: &mut Ours,
    held: &mut Held,
) {
    let kind = "haproxyloadbalancer";
    if matches!(stage, Stage::Asked | Stage::Cut) {
        ours.agent = None;
    }
    scene.kubectl(&["delete", "machine", name, "--wait=false"]);
    scene.until("it is to leave", || by(scene, kind, name).is_string());
    match stage {
        Stage::Asked => {}
        Stage::Cut => {
            ours.agent = Some(agent_as(mute(scene).await, scene, lab, place));
            scene.until("its connection is cut", || held.has_ended());
            scene.until("HAProxy does not have it", || !haproxy(place, "show servers state").contains(name));
            assert_ne!(status_in(&instances(scene)[0]["members"], name), "removed");
        }
        Stage::Drains | Stage::Said | Stage::Told => {
            scene.until("it drains", || scene.status("lb", name).as_deref() == Some("draining"));
            if stage == Stage::Said {
                ours.machines = None;
            }
            if stage != Stage::Drains {
                ours.balancers = None;
                scene.until("the machine is done", || {
                    status_in(&instances(scene)[0]["members"], name) == "removed"
                });
            }
            if stage == Stage::Told {
                scene.until("that is put together", || {
                    status_in(&scene.get(kind, "lb")["status"]["members"], name) == "removed"
                });
            }
        }
        Stage::LetGo => scene.until("its infrastructure goes", || goes(scene, name)),
    }
}

/// Whether Cluster API has let the infrastructure of a Machine go.
fn goes(scene: &Scene, name: &str) -> bool {
    scene.get("labmachine", name)["metadata"].get("deletionTimestamp").is_some()
}

/// Has who leaves next get a time in which much can be looked at, and a short one where only its end is.
fn give_time(scene: &Scene, stage: Stage) {
    let seconds = if matches!(stage, Stage::Cut | Stage::LetGo) { 12 } else { 30 };
    scene.patch(
        "loadbalancers.loadbalancer.portcullis.dev",
        "lb",
        &json!({"spec": {"drainTimeoutSeconds": seconds}}),
    );
    scene.until("that is known", || {
        scene.get("haproxyloadbalancer", "lb")["spec"]["assignment"]["drainTimeoutSeconds"] == seconds
    });
}

/// A connection goes on until the time that was written, and ends then. Whoever is slow sees its end late, and never early.
fn has_all_its_time(scene: &Scene, name: &str, held: &mut Held, written: &Value) {
    let until: Timestamp = written.as_str().unwrap().parse().unwrap();
    scene.until("its time is over", || {
        let stands = by(scene, "haproxyloadbalancer", name);
        if Timestamp::now() < until {
            assert_eq!(stands, *written, "the time stands");
        }
        match held.ask() {
            Ok(answer) => assert_eq!(answer, name),
            // No answer yet is no end.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => {
                assert!(Timestamp::now() >= until, "{name} has time until {until}: {error}");
                return true;
            }
        }
        false
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_of_ours_is_killed_at_every_stage_of_a_leave() {
    let scene = Scene::new("kills-stages");
    let names: Vec<&str> = STAGES.iter().map(|(name, _)| *name).chain(["g-stays"]).collect();
    let lab = Lab::new(&names);
    scene.cluster("c", json!({}), json!({}));
    for name in &names {
        machine(&scene, &lab, name);
    }
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({}));
    let place = Place::new();
    let mut ours = Ours::start(&scene, &lab, &place).await;
    for name in &names {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let load = Load::start(&lab.client, MACHINE, FRONT);

    for (name, stage) in STAGES {
        let mut held = held_by(&lab.client, MACHINE, name);
        give_time(&scene, stage);
        reach(stage, name, (&scene, &lab, &place), &mut ours, &mut held).await;
        drop(std::mem::take(&mut ours));
        let until = by(&scene, "haproxyloadbalancer", name);
        if stage != Stage::LetGo {
            assert!(scene.is_held(name, "lb"), "{stage:?}");
            assert_ne!(scene.annotation(name, STATUS).as_deref(), Some("removed"), "{stage:?}");
        }
        load.more(200);

        ours = Ours::start(&scene, &lab, &place).await;
        if matches!(stage, Stage::Asked | Stage::Drains) {
            has_all_its_time(&scene, name, &mut held, &until);
        }
        scene.until("its infrastructure goes", || {
            let is_removed = scene.annotation(name, STATUS).as_deref() == Some("removed");
            assert!(!is_removed || held.has_ended(), "{stage:?}: it is called removed, and has a connection");
            goes(&scene, name)
        });
        assert!(held.has_ended(), "{stage:?}");
        assert_eq!(scene.annotation(name, STATUS).as_deref(), Some("removed"), "{stage:?}");
        if !matches!(stage, Stage::Cut | Stage::LetGo) {
            let targets = scene.get("loadbalancer", "lb")["status"]["targets"].to_string();
            assert!(targets.contains("1 connections were ended"), "{stage:?}: {targets}");
        }
        load.more(200);
        assert!(!scene.is_held(name, "lb"), "{stage:?}: nobody holds it again");

        scene.patch("labmachine", name, &json!({"metadata": {"finalizers": null}}));
        scene.until("it is gone", || scene.get("machine", name) == Value::Null);
        scene.until("nothing is left of it", || {
            let spec = scene.get("haproxyloadbalancer", "lb")["spec"].to_string();
            let files = ["haproxy.cfg", "carried.json"].map(|file| place.scratch.path().join(file));
            let texts = files.map(|file| std::fs::read_to_string(file).unwrap());
            !spec.contains(name)
                && scene.status("lb", name).is_none()
                && texts.iter().all(|text| !text.contains(name))
                && !haproxy(&place, "show servers state").contains(name)
        });
    }
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
}

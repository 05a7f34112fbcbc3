//! All of ours is killed while Services come, change and go, beside a real kube-proxy that would let everybody in.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use portcullis_host::datapath::Mode;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{Host, Target, can_connect, eventually};
use serde_json::{Value, json};

use crate::scene::{LAN, Scene, WAN};

/// Somebody who tries to connect all the time.
struct Intruder {
    stop: Arc<AtomicBool>,
    tries: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<SocketAddr>>>,
}

impl Intruder {
    fn start(from: &Host, at: impl IntoIterator<Item = SocketAddr>) -> Self {
        let (stop, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = at.into_iter().map(|at| {
            let (from, stop, tries) = (from.clone(), Arc::clone(&stop), Arc::clone(&tries));
            thread::spawn(move || {
                Namespace::run(&from, || {
                    let mut through = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        tries.fetch_add(1, Ordering::Relaxed);
                        match TcpStream::connect_timeout(&at, Duration::from_millis(200)) {
                            Ok(_) => through.push(at),
                            // Where nobody serves it is refused at once.
                            Err(_) => thread::sleep(Duration::from_millis(5)),
                        }
                    }
                    through
                })
            })
        });
        Intruder { threads: threads.collect(), stop, tries }
    }

    /// How often it tried, and where it got in.
    fn end(self) -> (u64, BTreeSet<SocketAddr>) {
        self.stop.store(true, Ordering::Relaxed);
        let through = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (self.tries.load(Ordering::Relaxed), through)
    }
}

/// What becomes of the Service: it has these ports, or is gone.
fn becomes(scene: &Scene, ports: &[u16]) {
    if ports.is_empty() {
        return scene.delete("web");
    }
    let port = |port: &u16| {
        let (name, target) = if *port == 80 { ("http", 8080) } else { ("talk", 8081) };
        json!({"name": name, "port": port, "targetPort": target})
    };
    let ports: Vec<Value> = ports.iter().map(port).collect();
    // An annotation that kube-proxy does not know.
    scene.apply("web", json!({SOURCE_RANGES: "192.0.2.0/24"}), json!({"ports": ports}));
}

#[test]
fn whenever_all_of_it_is_killed_nothing_opens() {
    let (scene, _proxy) = Scene::with_kube_proxy("kills", Mode::Filter);
    let _serving = [8080, 8081].map(|port| scene.backend.serve(port));
    scene.endpoint("web", json!({"ready": true}));
    let at = [LAN, WAN].into_iter().flat_map(|address| [80, 81].map(|port| format!("{address}:{port}")));
    let intruder = Intruder::start(&scene.outside, at.map(|at| at.parse().unwrap()));
    let (one, both, none) = (&[80][..], &[80, 81][..], &[][..]);
    // What happens while it runs, and then while it does not.
    let changes = [(one, both), (none, one), (both, none), (one, none), (both, one), (none, both)];
    let mut served = 0;
    for (round, (while_there, while_away)) in changes.iter().cycle().take(2 * changes.len() + 1).enumerate() {
        let all_of_it = scene.start_on_node();
        becomes(&scene, while_there);
        // The same moments in every run: some before anything was done, some after.
        thread::sleep(Duration::from_millis(377 * round as u64 % 1000));
        if round % 3 == 0 && !while_there.is_empty() {
            eventually("it is served", || can_connect(&scene.inside, LAN, Target::Tcp(80)));
            served += 1;
        }
        drop(all_of_it);
        becomes(&scene, while_away);
    }
    assert!(served > 2, "it was hardly ever served");
    let _all_of_it = scene.start_on_node();
    for port in [80, 81] {
        eventually("all of it is served", || can_connect(&scene.inside, LAN, Target::Tcp(port)));
    }
    let (tries, through) = intruder.end();
    assert_eq!(through, BTreeSet::new(), "of {tries} tries");
}

//! `portcullis up` and `portcullis down`, with the real programs.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_testkit::{Http, eventually, processes_of};
use serde_json::{Value, json};
use tempfile::TempDir;

/// It is killed when the test is, and with it what it started.
fn portcullis(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", PORTCULLIS]).args(args).arg("--dir").arg(directory);
    command.env_remove("PORTCULLIS_CONFIG").env_remove("KUBEBUILDER_ASSETS").env_remove("CLICOLOR_FORCE");
    command.stdin(Stdio::null());
    command
}

const PORTCULLIS: &str = env!("CARGO_BIN_EXE_portcullis");

fn run(directory: &Path, args: &[&str]) -> (i32, String) {
    said(&portcullis(directory, args).output().unwrap())
}

/// Exit code, and both streams.
fn said(output: &Output) -> (i32, String) {
    let text = [&*output.stdout, &*output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// A place for sandboxes. What still runs there is ended, however the test ends: a sandbox in the background lives on
/// when we are killed, so somebody outside waits for the end of a pipe that only we hold open.
struct Place {
    path: PathBuf,
    cleaner: Child,
}

const CLEAN: &str = r#"cat >/dev/null; for one in "$1"/*; do [ ! -e "$one" ] || "$2" down --dir "$one"; done; rm -rf -- "$1""#;

impl Place {
    fn new() -> Self {
        let path = TempDir::with_prefix("pcs-").unwrap().keep();
        let mut cleaner = Command::new("sh");
        cleaner.args(["-c", CLEAN, "sh"]).arg(&path).arg(PORTCULLIS).process_group(0);
        let cleaner =
            cleaner.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Place { path, cleaner }
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

/// A sandbox in the foreground.
struct Foreground {
    child: Child,
    directory: PathBuf,
}

impl Foreground {
    fn starting(directory: PathBuf) -> Self {
        let child =
            portcullis(&directory, &["up"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Foreground { child, directory }
    }

    fn up(directory: PathBuf) -> Self {
        let mut sandbox = Self::starting(directory);
        // As long as it takes: the program itself knows when to give up.
        while !sandbox.directory.join("env").exists() {
            assert!(sandbox.child.try_wait().unwrap().is_none(), "it ended");
            sleep(Duration::from_millis(50));
        }
        sandbox
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn ended(self) -> (i32, String) {
        said(&self.child.wait_with_output().unwrap())
    }
}

fn nothing_runs(directory: &Path) {
    eventually("no process is left", || processes_of(directory).is_empty());
}

/// Runs a command in a shell that has sourced the sandbox's `env`.
fn in_sandbox(directory: &Path, command: &str) -> String {
    let script = format!(". {}/env && {command}", directory.display());
    let (code, text) = said(&Command::new("sh").args(["-ec", &script]).output().unwrap());
    assert_eq!(code, 0, "{command}: {text}");
    text
}

/// What a newcomer does with the `IngressController` that is there: look, edit, plan.
#[test]
fn an_ingress_controller_to_look_at() {
    let place = Place::new();
    let directory = place.directory("one");
    let (code, text) = run(&directory, &["up", "--detach"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("✓ IngressController  k8s-openshif-routerde-"), "{text}");
    let seen = || -> Value {
        let text = in_sandbox(&directory, "portcullis get ingress -o json");
        serde_json::from_str::<Value>(&text).unwrap()[0].clone()
    };
    let first = seen();
    assert_eq!(first["name"], "default");
    assert_eq!(first["domain"], "apps.example.com");
    assert!(first["address"].as_str().unwrap().contains(".elb."), "{first}");
    // The instances of the simulator are Nodes, and its load balancer sends to them.
    let ids = in_sandbox(&directory, "kubectl get nodes -o jsonpath='{.items[*].spec.providerID}'");
    let ids: Vec<&str> = ids.split_whitespace().collect();
    assert!(
        !ids.is_empty() && ids.iter().all(|id| id.starts_with("aws:///") && id.contains("/i-")),
        "{ids:?}"
    );
    eventually("they are behind both of its ports", || {
        let text = in_sandbox(&directory, "portcullis get services --members -o json");
        serde_json::from_str::<Value>(&text).unwrap()[0]["members"]["all"] == 2 * ids.len()
    });
    assert_eq!((&first["rangesFrom"], &first["ranges"]), (&json!("spec"), &json!(["203.0.113.0/24"])));
    eventually("its ranges are enforced", || seen()["enforced"]["status"] == "True");

    let patch = |ranges: &str| {
        let patch = format!(
            r#"{{"spec":{{"endpointPublishingStrategy":{{"loadBalancer":{{"allowedSourceRanges":{ranges}}}}}}}}}"#
        );
        let edit = format!(
            "kubectl -n openshift-ingress-operator patch ingresscontroller default --type=merge -p '{patch}'"
        );
        in_sandbox(&directory, &edit);
    };
    patch(r#"["198.51.100.0/24"]"#);
    eventually("the others are enforced", || {
        let message = seen()["enforced"]["message"].clone();
        message.as_str().unwrap().ends_with("let in 198.51.100.0/24, and nobody else.")
    });
    let groups = in_sandbox(&directory, "portcullis get -o json");
    assert!(groups.contains("198.51.100.0/24 on tcp 80, tcp 443"), "{groups}");
    assert_eq!(in_sandbox(&directory, "portcullis plan").matches("Nothing to change.").count(), 2);

    // Taken out of the spec, they stay on the Service, and somebody has to decide.
    patch("[]");
    eventually("it is told", || seen()["rangesFrom"] == "serviceField");
    let listen = in_sandbox(&directory, "grep -A1 ^telemetry $PORTCULLIS_CONFIG | sed -n 's/ *listen: *//p'");
    let counted = "portcullis_ingress_controller_evaluation{name=\"default\",place=\"field\"} 1";
    eventually("it is counted", || {
        let mut connection = Http::connect(listen.trim().trim_matches('"')).unwrap();
        let answer = connection.ask("GET", "/metrics", &[], "").unwrap();
        String::from_utf8_lossy(&answer.body).contains(counted)
    });
    let (code, text) = run(&directory, &["down"]);
    assert_eq!(code, 0, "{text}");
    nothing_runs(&directory);
}

#[test]
fn two_live_side_by_side_and_leave_nothing_behind() {
    let place = Place::new();
    let [one, two] = ["one", "two"].map(|name| place.directory(name));
    for directory in [&one, &two] {
        let (code, text) = run(directory, &["up", "--detach"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(&format!("source {}/env", directory.display())), "{text}");
        assert!(text.contains("✓ Kubernetes API") && text.contains("✓ Networking API"), "{text}");
        assert!(text.contains("openstack security group list"), "{text}");
    }
    in_sandbox(&one, "kubectl create namespace only-in-one && ovn-nbctl ls-add only-in-one");
    assert!(in_sandbox(&one, "kubectl get namespaces && ovn-nbctl show").matches("only-in-one").count() >= 2);
    assert!(!in_sandbox(&two, "kubectl get namespaces && ovn-nbctl show").contains("only-in-one"));
    assert!(in_sandbox(&one, "portcullis version").contains("portcullis "));
    for (directory, name) in [(&one, "in-one"), (&two, "in-two")] {
        in_sandbox(directory, &format!("openstack --os-cloud portcullis-demo network create {name}"));
        let networks = in_sandbox(directory, "openstack network list -f value -c Name --sort-column Name");
        assert_eq!(networks, format!("blue\n{name}\n"));
    }
    // What an environment says already does not win over the file.
    let groups = "OS_USERNAME=nobody; export OS_USERNAME; . $(dirname $KUBECONFIG)/env; \
                  openstack --os-cloud portcullis-demo security group list -f value -c Name --sort-column Name";
    assert_eq!(in_sandbox(&one, groups), "default\nweb\n");
    let networking = in_sandbox(&one, "echo $PORTCULLIS_NETWORKING_URL");
    let mut connection = Http::connect(networking.trim().trim_start_matches("http://")).unwrap();
    assert_eq!(connection.ask("GET", "/", &[], "").unwrap().json()["versions"][0]["id"], "v2.0");
    assert!(in_sandbox(&one, "echo $no_proxy").trim().ends_with("127.0.0.1,localhost"));
    let simulator = in_sandbox(&one, "echo $AWS_ENDPOINT_URL");
    TcpStream::connect(simulator.trim().trim_start_matches("http://")).unwrap();

    let (code, text) = run(&one, &["up"]);
    assert_eq!(code, 1);
    assert!(text.contains("already") && text.contains("portcullis down --dir"), "{text}");

    assert_eq!(run(&one, &["down"]), (0, format!("Stopped the sandbox in {}.\n", one.display())));
    nothing_runs(&one);
    assert!(!one.exists());
    in_sandbox(&two, "kubectl get namespaces");
    run(&two, &["down"]);
    nothing_runs(&two);
    assert_eq!(run(&two, &["down"]), (0, format!("Nothing runs in {}.\n", two.display())));
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let place = Place::new();
    let sandbox = Foreground::up(place.directory("sandbox"));
    let directory = sandbox.directory.clone();
    assert!(processes_of(&directory).len() >= 8, "{:?}", processes_of(&directory));
    sandbox.signal(Signal::SIGINT);
    let (code, text) = sandbox.ended();
    assert_eq!(code, 0, "{text}");
    nothing_runs(&directory);
    assert!(!directory.exists());
}

#[test]
fn ctrl_c_during_the_start_stops_what_had_started() {
    let place = Place::new();
    let sandbox = Foreground::starting(place.directory("sandbox"));
    let directory = sandbox.directory.clone();
    eventually("something has started", || !processes_of(&directory.join("run")).is_empty());
    sandbox.signal(Signal::SIGINT);
    let (code, text) = sandbox.ended();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("interrupted before everything ran"), "{text}");
    nothing_runs(&directory);
    assert!(!directory.exists());
}

#[test]
fn ctrl_c_while_it_starts_in_the_background_stops_that_too() {
    let place = Place::new();
    let directory = place.directory("sandbox");
    let launcher = portcullis(&directory, &["up", "--detach"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("something has started", || !processes_of(&directory.join("run")).is_empty());
    kill(Pid::from_raw(launcher.id().cast_signed()), Signal::SIGINT).unwrap();
    let (code, text) = said(&launcher.wait_with_output().unwrap());
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("interrupted before everything ran"), "{text}");
    nothing_runs(&directory);
    assert!(!directory.exists());
}

#[test]
fn a_killed_one_leaves_no_process_and_is_replaced_by_the_next() {
    let place = Place::new();
    let sandbox = Foreground::up(place.directory("sandbox"));
    let directory = sandbox.directory.clone();
    sandbox.signal(Signal::SIGKILL);
    sandbox.child.wait_with_output().unwrap();
    nothing_runs(&directory);
    // What tells that everything runs was left too: only a new one may tell it again.
    fs::remove_file(directory.join("env")).unwrap();
    let next = Foreground::up(directory);
    next.signal(Signal::SIGTERM);
    assert_eq!(next.ended().0, 0);
}

#[test]
fn when_a_part_dies_the_sandbox_ends_and_says_which() {
    let place = Place::new();
    let sandbox = Foreground::up(place.directory("sandbox"));
    let directory = sandbox.directory.clone();
    let (etcd, _) = processes_of(&directory).into_iter().find(|(_, line)| line.contains("/etcd ")).unwrap();
    kill(Pid::from_raw(etcd.cast_signed()), Signal::SIGKILL).unwrap();
    let (code, text) = sandbox.ended();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("etcd has ended") && text.contains("logs/etcd.log"), "{text}");
    assert!(directory.join("logs/etcd.log").exists());
    nothing_runs(&directory);
}

/// Nothing may be started or made where something is wrong beforehand.
fn refused(code: i32, words: &[&str], change: impl Fn(&mut Command)) {
    for args in [&["up"][..], &["up", "--detach"]] {
        let place = Place::new();
        let directory = place.directory("sandbox");
        let mut command = portcullis(&directory, args);
        change(&mut command);
        let (got, text) = said(&command.output().unwrap());
        assert_eq!(got, code, "{text}");
        for word in words {
            assert!(text.contains(word), "no `{word}` in: {text}");
        }
        assert!(text.contains("Nothing was started."), "{text}");
        assert!(!directory.exists());
    }
}

#[test]
fn a_port_in_use_is_refused_before_anything_starts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let setting = format!("telemetry.listen={}", listener.local_addr().unwrap());
    refused(3, &[&listener.local_addr().unwrap().to_string(), "telemetry.listen"], |command| {
        command.arg("--set").arg(&setting);
    });
}

/// Everybody knows its users' passwords.
#[test]
fn an_address_that_others_can_reach_is_refused() {
    for key in ["networking.listen", "identity.listen"] {
        for address in ["0.0.0.0:0", "[::]:9696", "192.0.2.1:9696"] {
            let setting = format!("{key}={address}");
            refused(2, &[key, address, "can be reached from other machines", "127.0.0.1:0"], |command| {
                command.arg("--set").arg(&setting);
            });
        }
    }
    let files = TempDir::new().unwrap();
    let config = files.path().join("config.yaml");
    fs::write(&config, "networking:\n  listen: 192.0.2.1:9696\n").unwrap();
    refused(2, &["config.yaml:2", "networking.listen"], |command| {
        command.arg("--config").arg(&config);
    });
}

#[test]
fn a_go_that_is_too_old_is_named_before_anything_is_built() {
    let programs = TempDir::new().unwrap();
    let go = programs.path().join("go");
    fs::write(&go, "#!/bin/sh\necho go1.19.8\n").unwrap();
    fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let cache = TempDir::new().unwrap();
    refused(3, &["Go 1.26 or newer is needed, and `go` is go1.19.8"], |command| {
        command.arg("--install").env("PATH", &path).env("PORTCULLIS_CACHE", cache.path());
    });
    assert!(!cache.path().join("parts").exists());
}

#[test]
fn missing_programs_are_named_with_the_command_that_installs_them() {
    refused(3, &["kube-apiserver", "etcd", "moto_server", "portcullis up --install"], |command| {
        command.env("PORTCULLIS_CACHE", "/nonexistent");
    });
}

#[test]
fn a_northbound_schema_without_what_is_needed_is_refused() {
    let schemas = TempDir::new().unwrap();
    let schema = r#"{"name": "OVN_Northbound", "version": "5.8.1", "tables": {"ACL": {"columns": {}}}}"#;
    fs::write(schemas.path().join("ovn-nb.ovsschema"), schema).unwrap();
    refused(3, &["5.8.1", "Port_Group", "OVN_PKGDATADIR"], |command| {
        command.env("OVN_PKGDATADIR", schemas.path());
    });
}

#[test]
fn a_broken_configuration_is_refused() {
    let files = TempDir::new().unwrap();
    let config = files.path().join("config.yaml");
    fs::write(&config, "mode: obsrve\n").unwrap();
    refused(2, &["config.yaml:1", "mode", "observe"], |command| {
        command.arg("--config").arg(&config);
    });
}

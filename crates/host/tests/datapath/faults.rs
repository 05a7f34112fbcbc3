use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_core::Protocol;
use portcullis_host::datapath::{Datapath, Error, Frontend, Mode, Others, Synced};
use portcullis_testkit::{Target, can_connect};
use tempfile::TempDir;

use crate::lab::{Lab, V4, V6, frontend, on, place, sorted, web};
use crate::talk::{Connection, speak};

const TCP: Target = Target::Tcp(80);

/// A test of this file as a program of its own, which knows by a variable that it is one.
fn this_test(program: &Path, name: &str, variable: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", &format!("faults::{name}"), "--nocapture"]).env(variable, "");
    command
}

fn open() -> Frontend {
    web(V4, &[], &["10.244.0.2:8080"])
}

fn limited() -> Frontend {
    web(V4, &["192.0.2.0/24"], &["10.244.0.2:8080"])
}

#[test]
fn who_may_not_change_packet_filters_is_told() {
    if std::env::var_os("WITHOUT_PERMISSION").is_some() {
        let error = Datapath::open().and_then(|mut datapath| datapath.sync(Mode::Nftables, &[], [open()]));
        println!("{}", error.unwrap_err());
        return;
    }
    // A user who is nobody may start the same program where everybody can find it.
    let directory = TempDir::new().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("datapath");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let lab = Lab::new();
    let mut nobody = this_test(&program, "who_may_not_change_packet_filters_is_told", "WITHOUT_PERMISSION");
    let output = on(&lab.node, || nobody.current_dir("/").uid(65534).gid(65534).output());
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let expected = "this process may not change the packet filters of this machine: run it as root, or with the \
                    capability CAP_NET_ADMIN";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_flushed_ruleset_is_put_back_with_the_next_change() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[limited()]);
    let before = lab.ruleset();
    lab.node.run("nft flush ruleset");
    assert!(!can_connect(&lab.inside, V4, TCP));
    let synced = lab.sync(&mut datapath, Mode::Nftables, &[limited()]);
    assert_eq!((synced.frontends, synced.rules), (1, true));
    assert_eq!(lab.ruleset(), before);
    assert!(can_connect(&lab.inside, V4, TCP));

    lab.node.run("nft flush ruleset");
    lab.change(&mut datapath, &[web(V6, &[], &[])], &[]);
    assert!(can_connect(&lab.inside, V4, TCP));
    assert!(!can_connect(&lab.outside, V4, TCP));
}

#[test]
fn a_refused_batch_leaves_all_as_it_was_and_the_next_one_reads_anew() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[limited()]);
    // Somebody takes an element away, which then cannot be removed.
    lab.node.run("nft delete element inet portcullis admit4_24 { 192.0.2.0 . 192.0.2.1 . tcp . 80 }");
    let before = lab.ruleset();
    let wider = web(V4, &["198.51.100.0/24"], &["10.244.0.2:8080"]);
    let refused = on(&lab.node, || datapath.change([wider.clone()], [])).unwrap_err();
    assert!(matches!(refused, Error::Kernel { .. }), "{refused}");
    assert_eq!(
        refused.to_string(),
        "the kernel did not take elements of frontends; what it took before that is in force, and all is read anew \
         before the next change"
    );
    assert_eq!(lab.ruleset(), before);
    assert!(!can_connect(&lab.outside, V4, TCP));

    let synced = lab.change(&mut datapath, &[], &[]);
    assert_eq!(synced.frontends, 1);
    assert!(can_connect(&lab.outside, V4, TCP));
    assert!(!can_connect(&lab.inside, V4, TCP));
}

#[test]
fn what_others_change_in_our_table_is_heard_of() {
    let lab = Lab::new();
    let mut datapath = lab.datapath();
    let mut others = on(&lab.node, || datapath.others()).unwrap();
    lab.sync(&mut datapath, Mode::Nftables, &[limited()]);
    lab.change(&mut datapath, &[web(V6, &[], &[])], &[]);
    lab.node
        .nft("table ip another { chain one { counter; }; }; table ip portcullis { chain one { counter; }; }");
    let mut named = 0;
    for change in [
        "delete element inet portcullis admit4_24 { 192.0.2.0 . 192.0.2.1 . tcp . 80 }",
        "add element inet portcullis frontend4 { 192.0.2.77 . tcp . 80 }",
        "flush chain inet portcullis prerouting",
        "delete table inet portcullis",
    ] {
        lab.node.nft(change);
        // It is not of us, nor of what is others'.
        let mut heard = others.blocking_recv();
        // Who is quick hears of the parts of a change one by one, and by whom it is with the last.
        std::thread::sleep(std::time::Duration::from_secs(2));
        while let Some(part) = heard {
            let Others::Changed(by) = part else { panic!("{change}: {part:?}") };
            assert!(by.as_deref().is_none_or(|by| by == "nft"), "{change}: {by:?}");
            named += usize::from(by.is_some());
            heard = others.try_recv().ok();
        }
        on(&lab.node, || {
            datapath.doubt();
            datapath.change([], [])
        })
        .unwrap();
    }
    assert!(named > 0, "it is told by whom");
    assert!(others.try_recv().is_err(), "there is nothing else to hear of");
}

#[test]
fn nothing_is_done_before_it_is_said_what_is_wanted() {
    let lab = Lab::new();
    lab.sync(&mut lab.datapath(), Mode::Nftables, &[limited()]);
    let before = lab.ruleset();
    let mut datapath = lab.datapath();
    assert_eq!(lab.change(&mut datapath, &[open()], &[]), Synced::default());
    assert_eq!(lab.ruleset(), before);
}

#[test]
fn more_endpoints_than_ever_before_take_rules_that_stay() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let with = |count: u16| {
        let endpoints: Vec<String> =
            (0..count).map(|number| format!("10.244.0.2:{}", 8080 + number)).collect();
        web(V4, &[], &endpoints.iter().map(String::as_str).collect::<Vec<_>>())
    };
    lab.sync(&mut datapath, Mode::Nftables, &[with(1)]);
    let rules = |datapath: &mut Datapath, count| lab.change(datapath, &[with(count)], &[]).rules;
    assert_eq!(
        [2, 8, 300, 9, 300, 1].map(|count| rules(&mut datapath, count)),
        [true, true, true, true, false, false]
    );
    assert!(can_connect(&lab.inside, V4, TCP));
    // The next one to start keeps what is needed.
    drop(datapath);
    lab.sync(&mut lab.datapath(), Mode::Nftables, &[with(1)]);
    assert!(!lab.ruleset().contains("pick4_300"));
}

/// Enough that they take several batches, and different in every way but for the first.
fn many(round: u16) -> Vec<Frontend> {
    let endpoints = ["10.244.0.2:8080", "10.244.1.2:8080", "10.244.1.3:8080"];
    let others = (1..3000).map(|number| {
        let place =
            place(&format!("203.0.113.{}", number % 250 + 1), Protocol::UDP, number + round % 2 * 100);
        let range = format!("192.0.2.0/{}", 20 + round % 5);
        frontend(place, &[&range], &endpoints[..usize::from(round % 4).min(3)])
    });
    std::iter::once(limited()).chain(others).collect()
}

#[test]
fn killed_at_any_instant_it_converges_and_opens_nothing() {
    if std::env::var_os("TO_BE_KILLED").is_some() {
        let mut datapath = Datapath::open().unwrap();
        for round in 0.. {
            let mode = if round % 7 == 6 { Mode::Filter } else { Mode::Nftables };
            datapath.sync(mode, &Lab::interfaces(), many(round)).unwrap();
        }
    }
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    lab.sync(&mut lab.datapath(), Mode::Nftables, &many(0));
    let expected = lab.ruleset();
    let program = std::env::current_exe().unwrap();
    for kill in 0..12u64 {
        let mut child = on(&lab.node, || {
            this_test(&program, "killed_at_any_instant_it_converges_and_opens_nothing", "TO_BE_KILLED")
                .spawn()
        })
        .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100 + kill * 37));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.signal(), Some(9), "it failed by itself: {ended}");
        assert!(!can_connect(&lab.outside, V4, TCP), "{kill}");
        if kill % 4 == 3 {
            lab.sync(&mut lab.datapath(), Mode::Nftables, &many(0));
            assert!(can_connect(&lab.inside, V4, TCP), "{kill}");
            assert!(!can_connect(&lab.outside, V4, TCP), "{kill}");
            assert_eq!(sorted(&lab.ruleset()), sorted(&expected), "{kill}");
        }
    }
}

#[test]
fn nobody_notices_that_rules_and_others_change() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[limited()]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let mut established = Connection::open(&lab.inside, V4, 80);
            let mut connections = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(established.ask().as_deref(), Some("one"));
                assert_eq!(Connection::open(&lab.inside, V4, 80).ask().as_deref(), Some("one"));
                connections += 1;
            }
            connections
        });
        let outside = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(!can_connect(&lab.outside, V4, TCP));
            }
        });
        for round in 0..25 {
            // All of them, those of another one that starts, and all of them anew.
            lab.sync(&mut datapath, Mode::Nftables, &many(round));
            lab.change(&mut datapath, &[web(V6, &[&format!("2001:db8::/{}", 30 + round)], &[])], &[]);
            datapath = lab.datapath();
            if round % 5 == 4 {
                lab.node.run("nft add element inet portcullis frontend4 { 192.0.2.77 . icmp . 80 }");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(inside.join().unwrap() > 0);
        outside.join().unwrap();
    });
}

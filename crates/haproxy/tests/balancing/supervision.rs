//! HAProxy ends, and so do we.

use std::time::SystemTime;

use nix::sys::signal::Signal;
use portcullis_core::MemberState;
use portcullis_haproxy::{Error, Settings};
use portcullis_testkit::parts::Scratch;
use portcullis_testkit::{eventually, processes_of};

use crate::drain::{kill, signal};
use crate::lab::{Lab, V4, backend, late, leaving, member, member_of, wanted, web};
use portcullis_testkit::talk::{Backend, Held, ask};

#[test]
fn haproxy_is_back_with_the_members_it_had() {
    let lab = Lab::new();
    let backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1), member(2)])]));
    // One that only the runtime interface was told of, and one that it was told is gone.
    proxy.settle(&wanted(vec![web(vec![member(1), member(2), member(3)])]));
    let now = wanted(vec![web(vec![leaving(1, late()), member(2), member(3)])]);
    proxy.until(&now, "member-1", MemberState::Removed);
    let process = proxy.process();
    let served = backends[0].served();
    kill(process);
    eventually("it is back", || proxy.try_apply(&now, SystemTime::now()).is_ok());
    assert!(proxy.is_there());
    assert_ne!(proxy.process(), process);
    // Who was up is up at once.
    let seen = proxy.apply(&now);
    assert_eq!(member_of(&seen, "member-2").state, MemberState::Active);
    assert_eq!(member_of(&seen, "member-3").state, MemberState::Active);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Removed);
    for _ in 0..20 {
        ask(&lab.inside, V4, 80).unwrap();
    }
    assert_eq!(backends[0].served(), served);
}

/// Its master answers, and so does the kernel for it. Nobody serves all the same, and it is not ended for that.
#[test]
fn a_worker_that_hangs_is_not_counted_on_until_it_answers() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let now = wanted(vec![web(vec![member(1)])]);
    proxy.settle(&now);
    let process = proxy.process();
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    let workers: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    for worker in &workers {
        signal(*worker, Signal::SIGSTOP);
    }
    let mut said = None;
    eventually("it is not counted on", || {
        said = proxy.try_apply(&now, SystemTime::now()).err();
        !proxy.is_there()
    });
    assert!(matches!(said, Some(Error::Silent { .. })), "{said:?}");
    // Also when it is asked again: nothing but an answer is one.
    assert!(proxy.try_apply(&now, SystemTime::now()).is_err() && !proxy.is_there());
    for worker in &workers {
        signal(*worker, Signal::SIGCONT);
    }
    eventually("it answers", || proxy.try_apply(&now, SystemTime::now()).is_ok());
    assert!(proxy.is_there());
    assert_eq!(proxy.process(), process);
    eventually("and serves", || ask(&lab.inside, V4, 80).is_ok());
}

#[test]
fn another_process_of_ours_takes_over() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    let one = wanted(vec![web(vec![member(1)])]);
    // It runs before there is something to do.
    proxy.apply(&wanted(vec![]));
    proxy.settle(&one);
    let mut held = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");
    let (process, workers) = (proxy.process(), proxy.workers());
    proxy.begin();
    proxy.settle(&one);
    assert_eq!((proxy.process(), proxy.workers()), (process, workers));
    assert_eq!(held.ask().unwrap(), "member-1");
    proxy.settle(&wanted(vec![web(vec![member(1), member(2)])]));
    assert_eq!((proxy.process(), proxy.workers()), (process, workers));
    // One that ended between writing the file and telling HAProxy of it.
    let file = proxy.path("haproxy.cfg");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("    description 2", "    description 7")).unwrap();
    proxy.begin();
    proxy.settle(&one);
    assert_eq!(proxy.process(), process);
    assert_eq!(held.ask().unwrap(), "member-1");

    proxy.stop();
    assert!(held.has_ended());
    eventually("nothing is left of it", || processes_of(&proxy.path("haproxy.cfg")).is_empty());
}

#[test]
fn what_cannot_be_started_is_told_and_tried_less_and_less() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let mut odd = wanted(vec![web(vec![member(1)])]);
    // No machine has room for so many, which HAProxy finds out when it starts.
    odd.tuning.max_connections = Some(1_000_000_000);
    let said = proxy.try_apply(&odd, SystemTime::now()).unwrap_err();
    assert!(matches!(said, Error::Ended { .. } | Error::Refused(_)), "{said}");
    let said = proxy.try_apply(&odd, SystemTime::now()).unwrap_err().to_string();
    assert!(said.contains("limit"), "{said}");
    assert!(!proxy.is_there());
    let good = wanted(vec![web(vec![member(1)])]);
    eventually("it starts once it can", || proxy.try_apply(&good, SystemTime::now()).is_ok());
    assert!(proxy.is_there());
    // A change that it does not take changes nothing about that; that it ends does.
    assert!(proxy.try_apply(&odd, SystemTime::now()).is_err());
    assert!(proxy.is_there());
    kill(proxy.process());
    eventually("it has ended", || {
        let _ = proxy.try_apply(&odd, SystemTime::now());
        !proxy.is_there()
    });
    let [first, second] = [(); 2].map(|()| proxy.try_apply(&odd, SystemTime::now()).unwrap_err().to_string());
    assert_eq!(first, second, "the same is told in the same words");
}

#[test]
fn a_program_or_directory_that_cannot_be_is_refused() {
    let scratch = Scratch::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = |settings| runtime.block_on(portcullis_haproxy::Instance::start(settings)).unwrap_err();
    for directory in
        ["relative", "/tmp/with space", "/tmp/a\nb", "/tmp/it's", &format!("/{}", "d".repeat(90))]
    {
        let error = start(Settings::new(directory));
        assert!(matches!(error, Error::Directory(_)), "{error}");
    }
    let mut missing = Settings::new(scratch.path());
    missing.program = "/nonexistent/haproxy".into();
    assert!(start(missing).to_string().contains("install the package `haproxy`"));
    let old = scratch.path().join("old");
    std::fs::write(&old, "#!/bin/sh\necho 'HA-Proxy version 2.2.9-2+deb11u6 2023/12/10'\n").unwrap();
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut settings = Settings::new(scratch.path());
    settings.program = old;
    assert!(start(settings).to_string().contains("2.6 or newer"));
}

use portcullis_testkit::Raft;
use portcullis_testkit::parts::{Namespace, run};

fn nbctl(raft: &Raft, args: &[&str]) -> String {
    let remotes = format!("--db={}", raft.remotes().join(","));
    run(&Namespace::host(), "ovn-nbctl", &[&[remotes.as_str(), "--timeout=120"], args].concat()).unwrap()
}

#[test]
fn a_new_leader_has_what_the_killed_one_was_told() {
    let mut raft = Raft::start();
    nbctl(&raft, &["ls-add", "kept"]);
    let first = raft.leader();
    raft.kill(first);
    let second = raft.leader();
    assert_ne!(first, second);
    assert!(nbctl(&raft, &["ls-list"]).contains("(kept)"));

    nbctl(&raft, &["ls-add", "later"]);
    raft.restart(first);
    raft.kill(second);
    raft.leader();
    let switches = nbctl(&raft, &["ls-list"]);
    assert!(switches.contains("(kept)") && switches.contains("(later)"), "{switches}");
}

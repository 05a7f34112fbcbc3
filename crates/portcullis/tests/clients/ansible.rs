//! The playbook of the guide, with ansible's own modules for OpenStack.

use std::path::Path;

use serde_json::Value;

use crate::cloud::{Cloud, said};

const PLAYBOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/playbooks/ssh.yaml");

/// Runs the playbook; how many of its tasks changed something.
fn play(cloud: &Cloud) -> usize {
    let mut ansible = cloud.command("ansible-playbook", "ann", "blue");
    // Its own files go with the test.
    ansible.env("ANSIBLE_HOME", cloud.path("ansible")).env("ANSIBLE_LOCALHOST_WARNING", "false");
    ansible.env("ANSIBLE_INVENTORY_UNPARSED_WARNING", "false");
    let output = ansible.arg(Path::new(PLAYBOOK).canonicalize().unwrap()).output().unwrap();
    let text = said("ansible-playbook", &output);
    let changed = text.split("changed=").nth(1).and_then(|rest| rest.split_whitespace().next());
    changed.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// A machine is there and closed; the playbook opens it for ssh. Run again, there is nothing to do.
#[test]
fn a_playbook_opens_a_port_for_ssh_and_then_finds_nothing_to_do() {
    let cloud = Cloud::start(&[("ann", "blue", "member")]);
    let ann = |words: &str| cloud.openstack("ann", "blue", words);
    ann("network create green");
    ann("subnet create --network green --subnet-range 203.0.113.0/24 green-v4");
    ann("port create --network green app-1");
    let groups = |words: &str| -> Value {
        serde_json::from_str::<Value>(&ann(&format!("{words} -f json"))).unwrap()["security_group_ids"].take()
    };
    let closed = groups("port show app-1");
    // The group, its rule and the port.
    assert_eq!(play(&cloud), 3);
    let open = groups("port show app-1");
    assert_eq!((closed.as_array().unwrap().len(), open.as_array().unwrap().len()), (1, 1));
    assert_eq!(open[0], ann("security group show ssh -f value -c id"));
    let rules = ann("security group rule list ssh -f value");
    assert!(rules.contains("198.51.100.0/24"), "{rules}");
    assert_eq!(play(&cloud), 0);
}

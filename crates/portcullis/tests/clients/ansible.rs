//! The playbook of the guide, with ansible's own modules for OpenStack.

use std::path::Path;

use serde_json::{Value, json};

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

/// The tasks that the guide shows are those of the playbook.
#[test]
fn the_guide_shows_the_playbook() {
    let guide = include_str!("../../../../docs/networking.md");
    let shown = guide.split("```yaml\n").find(|block| block.contains("openstack.cloud.port:")).unwrap();
    let shown = shown.split("```").next().unwrap();
    let playbook = std::fs::read_to_string(PLAYBOOK).unwrap();
    let tasks: Vec<&str> = playbook.split("  tasks:\n").nth(1).unwrap().lines().map(str::trim).collect();
    assert_eq!(shown.lines().map(str::trim).collect::<Vec<_>>(), tasks);
}

/// A machine is there and closed; the playbook opens it for ssh. Run again, there is nothing to do.
#[test]
fn a_playbook_opens_a_port_for_ssh_and_then_finds_nothing_to_do() {
    let cloud = Cloud::start(&[("ann", "blue", "member")]);
    let ann = |words: &str| cloud.openstack("ann", "blue", words);
    ann("network create green");
    ann("subnet create --network green --subnet-range 203.0.113.0/24 green-v4");
    ann("port create --network green app-1");
    ann("port create --network green app-2");
    let groups = |port: &str| -> Value {
        let shown: Value = serde_json::from_str(&ann(&format!("port show {port} -f json"))).unwrap();
        assert_eq!(shown["port_security_enabled"], true);
        shown["security_group_ids"].clone()
    };
    let default = ann("security group show default -f value -c id");
    assert_eq!([groups("app-1"), groups("app-2")], [json!([default]), json!([default])]);
    // The group, its rule and the port.
    assert_eq!(play(&cloud), 3);
    let group = ann("security group show my_app_default -f value -c id");
    assert_eq!([groups("app-1"), groups("app-2")], [json!([group]), json!([default])]);
    let rules: Value = serde_json::from_str(&ann("security group rule list my_app_default -f json")).unwrap();
    let rules: Vec<_> = rules
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (&rule["Direction"], &rule["IP Protocol"], &rule["Port Range"], &rule["Ethertype"]))
        .collect();
    assert_eq!(rules.len(), 3, "{rules:?}");
    let ssh = (&json!("ingress"), &json!("tcp"), &json!("22:22"), &json!("IPv4"));
    assert!(rules.contains(&ssh), "{rules:?}");
    assert_eq!(play(&cloud), 0);
}

//! The command line that administrators use.

use serde_json::{Value, json};

use crate::cloud::{Cloud, said};

/// Runs what a guide shows to be typed in its section of that name, as somebody; the section's first block.
fn follow(guide: &str, section: &str, cloud: &Cloud, user: &str, project: &str) -> usize {
    let section = guide.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let block = section.split("```").nth(1).unwrap();
    let lines = block.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let mut typed = 0;
    for line in lines.filter(|line| line.starts_with("openstack ")) {
        said(line, &cloud.typed(line, user, project).output().unwrap());
        typed += 1;
    }
    typed
}

/// What the guides say is what works.
#[test]
fn the_guides_can_be_followed() {
    let cloud = Cloud::start(&[("ann", "blue", "member"), ("root", "admin", "admin")]);
    let guide = include_str!("../../../../docs/networking.md");
    assert_eq!(follow(guide, "The everyday workflow", &cloud, "ann", "blue"), 6);
    let ann = |words: &str| cloud.openstack("ann", "blue", words);
    let json = |words: &str| -> Value { serde_json::from_str(&ann(&format!("{words} -f json"))).unwrap() };
    let port = json("port show app-1");
    let group = ann("security group show my_app_default -f value -c id");
    assert_eq!(
        (&port["security_group_ids"], &port["port_security_enabled"]),
        (&json!([group]), &json!(true))
    );
    let rules = json("security group rule list my_app_default");
    let ssh: Vec<_> =
        rules.as_array().unwrap().iter().filter(|rule| rule["Direction"] == "ingress").collect();
    assert_eq!(
        (ssh.len(), &ssh[0]["IP Protocol"], &ssh[0]["Port Range"]),
        (1, &json!("tcp"), &json!("22:22"))
    );

    let guide = include_str!("../../../../docs/security-groups.md");
    assert_eq!(follow(guide, "What new groups begin with", &cloud, "root", "admin"), 2);
    let group = ann("security group create web -f value -c id");
    let rules = json("security group rule list web --long");
    let own: Vec<_> =
        rules.as_array().unwrap().iter().filter(|rule| rule["Remote Security Group"] == *group).collect();
    assert_eq!(own.len(), 2, "{rules}");
}

/// The commands of every day, and what they show.
#[test]
fn the_command_line_works_as_it_is() {
    let cloud =
        Cloud::start(&[("ann", "blue", "member"), ("root", "admin", "admin"), ("eve", "red", "reader")]);
    let ann = |words: &str| cloud.openstack("ann", "blue", words);
    let json = |words: &str| -> Value { serde_json::from_str(&ann(&format!("{words} -f json"))).unwrap() };

    ann("network create web");
    ann("subnet create --network web --subnet-range 192.0.2.0/24 web-v4");
    ann("security group create --description ssh ssh");
    ann("security group rule create --protocol tcp --dst-port 22 --remote-ip 198.51.100.0/24 ssh");
    ann("port create --network web --security-group ssh vm");
    let rules = json("security group rule list ssh");
    let ssh = rules.as_array().unwrap().iter().find(|rule| rule["IP Protocol"] == "tcp").unwrap();
    assert_eq!((&ssh["Port Range"], &ssh["IP Range"]), (&"22:22".into(), &"198.51.100.0/24".into()));
    let port = json("port show vm");
    assert_eq!(port["fixed_ips"][0]["ip_address"], "192.0.2.2");
    assert_eq!(port["port_security_enabled"], true);

    ann("router create r");
    ann("router add subnet r web-v4");
    ann("address group create --address 203.0.113.0/24 offices");
    ann("network set --tag production web");
    assert_eq!(json("network list --tags production").as_array().unwrap().len(), 1);
    ann("port set --no-security-group --disable-port-security vm");
    assert_eq!(json("port show vm")["security_group_ids"], Value::Array(Vec::new()));

    assert_eq!(cloud.openstack("eve", "red", "network list -f value"), "", "nobody sees another's");
    let refused = cloud.command("openstack", "eve", "red").args(["network", "create", "x"]).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("403"), "{refused:?}");
    assert!(cloud.openstack("root", "admin", "network list --long -f value").contains("web"));
    cloud.openstack("root", "admin", "quota set --networks 7 blue");
    let quotas = json("quota show");
    let networks = quotas.as_array().unwrap().iter().find(|quota| quota["Resource"] == "networks").unwrap();
    assert_eq!(networks["Limit"], 7);

    ann("router remove subnet r web-v4");
    for gone in ["router delete r", "port delete vm", "security group delete ssh", "network delete web"] {
        ann(gone);
    }
}

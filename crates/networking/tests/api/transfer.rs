use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::{Reply, User, id, shared};

const EXPORT: &str = "security-groups/export";
const IMPORT: &str = "security-groups/import";

fn import(user: &User, query: &str, file: &str) -> Reply {
    user.send("PUT", &format!("{IMPORT}{query}"), file.to_owned())
}

fn exported(user: &User) -> String {
    let reply = user.send("GET", EXPORT, "");
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.text
}

const FILE: &str = "
address_groups:
  - name: office
    addresses: [192.0.2.0/24, 2001:db8::/32]
security_groups:
  - name: web
    description: what everybody sees
    rules:
      - {direction: ingress, protocol: tcp, port_range_min: 443, port_range_max: 443}
      - {direction: ingress, protocol: tcp, port_range_min: 22, port_range_max: 22, remote_group: admins}
      - {direction: ingress, protocol: 17, remote_address_group: office, description: voice}
      - {direction: egress, ethertype: IPv6}
  - name: admins
    stateful: false
    rules: []
";

#[test]
fn a_file_makes_and_changes_groups() {
    let user = shared().user("member");
    let told = |reply: &Reply| {
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["import"].clone()
    };
    // First only looked at.
    let dry = import(&user, "?dry_run=true", FILE);
    assert_eq!(dry.body["dry_run"]["result"]["import"]["created"], json!(["office", "web", "admins"]));
    assert_eq!(user.get("security-groups?name=web")["security_groups"], json!([]));
    let first = told(&import(&user, "", FILE));
    assert_eq!(first["created"], json!(["office", "web", "admins"]));
    let web = user.get("security-groups?name=web")["security_groups"][0].clone();
    let admins = user.get("security-groups?name=admins")["security_groups"][0].clone();
    assert_eq!(web["description"], "what everybody sees");
    assert_eq!(admins["stateful"], false);
    let rules = web["security_group_rules"].as_array().unwrap();
    assert_eq!(rules.len(), 4);
    assert!(rules.iter().any(|rule| rule["remote_group_id"] == admins["id"]));
    let again = told(&import(&user, "", FILE));
    assert_eq!(again["unchanged"], json!(["office", "web", "admins"]));
    assert_eq!(user.get("security-groups?name=web")["security_groups"][0], web);

    let own = user.group("own");
    let fewer = "security_groups:\n- name: web\n  rules: []\n- name: default\n  rules: []\n";
    let reply = told(&import(&user, "", fewer));
    assert_eq!((&reply["changed"], &reply["deleted"]), (&json!(["web", "default"]), &json!([])));
    let mut deleted = told(&import(&user, "?prune=true", fewer))["deleted"].as_array().unwrap().clone();
    deleted.sort_by_key(ToString::to_string);
    assert_eq!(deleted, [json!("admins"), json!("own")]);
    assert_eq!(user.send("GET", &format!("security-groups/{own}"), "").status, 404);
    assert_eq!(user.get("address-groups")["address_groups"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_exported_is_the_same_elsewhere() {
    let api = shared();
    let (one, other) = (api.user("member"), api.user("member"));
    import(&one, "", FILE);
    let text = exported(&one);
    assert!(text.contains("remote_group: admins") && text.contains("remote_address_group: office"), "{text}");
    import(&other, "", &text);
    assert_eq!(exported(&other), text);
    // An administrator does it for another project.
    let reply = api.admin().send("GET", &format!("{EXPORT}?project_id={}", one.project), "");
    assert_eq!(reply.text, text);
    assert_eq!(other.send("GET", &format!("{EXPORT}?project_id={}", one.project), "").status, 400);
}

#[test]
fn two_of_one_name_are_told_apart_by_id() {
    let api = shared();
    let (user, other) = (api.user("member"), api.user("member"));
    let (first, second) = (user.group("twin"), user.group("twin"));
    user.rule(json!({"security_group_id": first, "direction": "ingress", "remote_group_id": second}));
    let text = exported(&user);
    assert!(text.contains(&first) && text.contains(&second), "{text}");
    assert_eq!(import(&user, "", &text).body["import"]["unchanged"], json!(["default", "twin", "twin"]));
    // Elsewhere they get ids of their own, and mean each other.
    assert_eq!(import(&other, "", &text).body["import"]["created"], json!(["twin", "twin"]));
    let twins = other.get("security-groups?name=twin")["security_groups"].as_array().unwrap().clone();
    let rules = twins.iter().flat_map(|twin| twin["security_group_rules"].as_array().unwrap());
    let remotes: Vec<&Value> =
        rules.map(|rule| &rule["remote_group_id"]).filter(|id| !id.is_null()).collect();
    assert!(remotes.len() == 1 && twins.iter().any(|twin| id(twin) == remotes[0].as_str().unwrap()));
    let reply = import(&user, "", "security_groups:\n- name: twin\n  rules: []\n");
    assert_eq!(reply.status, 409, "{}", reply.text);
}

#[test]
fn wrong_files_change_nothing() {
    let user = shared().user("member");
    user.get("security-groups");
    let before = exported(&user);
    let rule = |rule: &str| format!("security_groups:\n- name: a\n  rules:\n  - {rule}\n");
    for (file, status, kind) in [
        ("security_groups: [".to_owned(), 400, "HTTPBadRequest"),
        ("- a".to_owned(), 400, "HTTPBadRequest"),
        ("groups: []".to_owned(), 400, "HTTPBadRequest"),
        ("security_groups: 7".to_owned(), 400, "HTTPBadRequest"),
        ("security_groups: [{description: a}]".to_owned(), 400, "HTTPBadRequest"),
        ("security_groups: [{name: a}, {name: a}]".to_owned(), 409, "Conflict"),
        ("security_groups: [{name: a, foo: 1}]".to_owned(), 400, "HTTPBadRequest"),
        (rule("{direction: up}"), 400, "HTTPBadRequest"),
        (rule("{direction: ingress, protocol: foo}"), 400, "SecurityGroupRuleInvalidProtocol"),
        (rule("{direction: ingress, remote_group: nobody}"), 404, "SecurityGroupNotFound"),
        (rule("{direction: ingress, remote_address_group: nobody}"), 404, "AddressGroupNotFound"),
        ("address_groups: [{name: a, addresses: [x]}]".to_owned(), 400, "HTTPBadRequest"),
    ] {
        let reply = import(&user, "", &file);
        assert_eq!((reply.status.as_u16(), reply.kind()), (status, kind), "{file}: {}", reply.text);
    }
    assert_eq!(exported(&user), before);
    assert_eq!(import(&user.with("reader"), "", FILE).status, 403);
}

fn rule() -> impl Strategy<Value = Value> {
    let remote = prop_oneof![
        Just(json!({})),
        Just(json!({"remote_ip_prefix": "10.0.0.5/8"})),
        Just(json!({"remote_group": "default"})),
        Just(json!({"remote_address_group": "a: b"})),
    ];
    let traffic = prop_oneof![
        Just(json!({})),
        (prop_oneof!["tcp", "17", "sctp"], 1..65_536_u32, 0..9_u32).prop_map(|(protocol, port, more)| {
            json!({"protocol": protocol, "port_range_min": port, "port_range_max": (port + more).min(65_535)})
        }),
        (0..256_u32).prop_map(|kind| json!({"protocol": "icmp", "port_range_min": kind})),
    ];
    (prop_oneof!["ingress", "egress"], traffic, remote, text()).prop_map(
        |(direction, traffic, remote, words)| {
            let mut rule = json!({"direction": direction, "description": words});
            for part in [traffic, remote] {
                for (key, value) in part.as_object().unwrap() {
                    rule[key] = value.clone();
                }
            }
            rule
        },
    )
}

/// What YAML could take for something else.
fn text() -> impl Strategy<Value = String> {
    let odd = [
        "yes",
        "null",
        "~",
        "1",
        "-0",
        "0x1f",
        "1e3",
        ".5",
        "1_000",
        "- a",
        "a: b",
        "#",
        "'",
        "\"",
        "%",
        "é",
        "\u{85}",
        "a\nb",
        " a ",
        "\t",
        "true",
        "{}",
        "[",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "2026-11-16",
        "12:30:45",
        "<<",
        "\u{feff}",
        "\\n",
    ];
    prop_oneof![
        Just(String::new()),
        proptest::sample::select(odd.to_vec()).prop_map(str::to_owned),
        "\\PC{1,12}"
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_file_comes_back(
        names in proptest::collection::btree_set(text(), 0..4),
        rules in proptest::collection::vec(rule(), 0..6),
        words in text(),
        stateful in any::<bool>(),
    ) {
        let api = shared();
        let (one, other) = (api.user("member"), api.user("member"));
        let mut groups = vec![json!({"name": "default", "rules": []})];
        let names = names.iter().filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("default"));
        for name in names {
            groups.push(json!({"name": name, "description": words, "stateful": stateful, "rules": rules}));
        }
        let file = json!({
            "address_groups": [{"name": "a: b", "description": words, "addresses": ["192.0.2.0/24"]}],
            "security_groups": groups,
        });
        // JSON is YAML.
        let reply = import(&one, "", &file.to_string());
        prop_assume!(reply.status != 409, "the same rule was drawn twice");
        prop_assert_eq!(reply.status.as_u16(), 200, "{} {}", file, reply.text);
        let text = exported(&one);
        let reply = import(&other, "", &text);
        prop_assert_eq!(reply.status.as_u16(), 200, "{} {}", text, reply.text);
        prop_assert_eq!(exported(&other), text);
        let seen = one.get("security-groups")["security_groups"].as_array().unwrap().len();
        prop_assert_eq!(seen, groups.len());
    }
}

#[test]
fn a_file_needs_room_for_its_own_rules_only() {
    let api = shared();
    let (user, admin) = (api.user("member"), api.admin());
    let groups = user.get("security-groups");
    let has = groups["security_groups"][0]["security_group_rules"].as_array().unwrap().len();
    let limit = json!({"quota": {"security_group_rule": has + 1}});
    assert_eq!(admin.put(&format!("quotas/{}", user.project), limit).status, 200);
    let file = "security_groups: [{name: web, rules: [{direction: ingress}]}]";
    let reply = user.send("PUT", "security-groups/import", file);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let groups = user.get("security-groups?name=web");
    assert_eq!(groups["security_groups"][0]["security_group_rules"].as_array().unwrap().len(), 1);
    let file = "security_groups: [{name: other}]";
    assert_eq!(user.send("PUT", "security-groups/import", file).kind(), "OverQuota");
}

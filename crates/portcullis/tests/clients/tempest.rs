//! OpenStack's own tests of the Networking API, unchanged: those of tempest and of Neutron.
//!
//! `tests/tempest/not-run.tsv` says of every test that is not run why; all others must pass, and none may be skipped.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::cloud::{Cloud, PASSWORD, User, packages, said};

const NOT_RUN: &str = include_str!("../tempest/not-run.tsv");

/// The tests take projects of their own from these, two at a time. Those that are somebody else in a test come first and
/// have no role in the list: the first that is free is taken for it.
const USERS: &[User] = &[
    ("alt1-member", "alt1", "member"),
    ("alt2-member", "alt2", "member"),
    ("alt3-member", "alt3", "member"),
    ("alt4-member", "alt4", "member"),
    ("p1-member", "p1", "member"),
    ("p1-reader", "p1", "reader"),
    ("p1-manager", "p1", "manager"),
    ("p2-member", "p2", "member"),
    ("p2-reader", "p2", "reader"),
    ("p2-manager", "p2", "manager"),
    ("p3-member", "p3", "member"),
    ("p3-reader", "p3", "reader"),
    ("p3-manager", "p3", "manager"),
    ("p4-member", "p4", "member"),
    ("p4-reader", "p4", "reader"),
    ("p4-manager", "p4", "manager"),
    ("adm1-admin", "adm1", "admin"),
    ("adm2-admin", "adm2", "admin"),
    ("adm3-admin", "adm3", "admin"),
    ("adm4-admin", "adm4", "admin"),
    ("admin", "admin", "admin"),
];

#[test]
fn the_tests_of_openstack_pass() {
    let cloud = Cloud::start(USERS);
    configure(&cloud);
    let stestr = |words: &[&str]| {
        let mut command = cloud.command("stestr", "admin", "admin");
        command.env("TEMPEST_CONFIG_DIR", cloud.files.path()).args(words);
        command.output().unwrap()
    };
    said("make a place for results", &stestr(&["init"]));
    let all =
        said("list the tests", &stestr(&["list", r"^(tempest\.api\.network|neutron_tempest_plugin\.api)\."]));
    let all: Vec<&str> = all.lines().filter(|line| line.contains(".api.")).collect();
    let reasons: Vec<&str> = NOT_RUN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    let unused: Vec<_> =
        reasons.iter().filter(|reason| !all.iter().any(|test| test.starts_with(**reason))).collect();
    assert!(unused.is_empty(), "there are no such tests any more: {unused:?}");
    let run: Vec<&str> =
        all.iter().copied().filter(|test| !reasons.iter().any(|reason| test.starts_with(reason))).collect();
    assert!(run.len() > 540, "only {} of {} tests are to be run", run.len(), all.len());
    fs::write(cloud.path("run"), run.join("\n")).unwrap();

    let list = cloud.path("run");
    let output = stestr(&["run", "--concurrency", "2", "--load-list", list.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |what: &str| -> usize {
        let line = text.lines().rev().find_map(|line| line.trim().strip_prefix(what));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert!(count("- Failed:") == 0 && count("- Skipped:") == 0, "{}", failures(&text));
    assert_eq!(count("- Passed:"), run.len());
}

/// The failures in what stestr said, without the successes.
fn failures(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.ends_with("... ok"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes an outside network, and the files that the tests want.
fn configure(cloud: &Cloud) {
    let admin = |words: &str| cloud.openstack("admin", "admin", words);
    let public = admin("network create --external public -f value -c id");
    admin("subnet create --network public --subnet-range 172.24.4.0/24 --no-dhcp public-v4");
    admin(
        "subnet create --network public --subnet-range 2001:db8::/64 --ip-version 6 --gateway 2001:db8::2 --no-dhcp public-v6",
    );
    let extensions: Value = serde_json::from_str(&admin("extension list --network -f json")).unwrap();
    let extensions: Vec<&str> =
        extensions.as_array().unwrap().iter().map(|extension| extension["Alias"].as_str().unwrap()).collect();
    let projects: Value = serde_json::from_str(&admin("project list -f json")).unwrap();
    let id = |name: &str| {
        let project = projects.as_array().unwrap().iter().find(|project| project["Name"] == name).unwrap();
        project["ID"].as_str().unwrap().to_owned()
    };
    let mut accounts = String::new();
    for (user, project, role) in USERS.iter().filter(|(user, ..)| *user != "admin") {
        let id = id(project);
        write!(
            accounts,
            "- {{username: {user}, password: {PASSWORD}, project_name: {project}, project_id: {id}"
        )
        .unwrap();
        let roles = if project.starts_with("alt") { String::new() } else { format!(", roles: [{role}]") };
        writeln!(accounts, "{roles}}}").unwrap();
    }
    fs::write(cloud.path("accounts.yaml"), accounts).unwrap();
    let directory = cloud.files.path().display();
    let tempest = format!(
        "[DEFAULT]\nlog_file = {directory}/tempest.log\n\
         [oslo_concurrency]\nlock_path = {directory}\n\
         [auth]\nuse_dynamic_credentials = false\ntest_accounts_file = {directory}/accounts.yaml\n\
         default_credentials_domain_name = Default\ncreate_isolated_networks = false\ntempest_roles = member\n\
         admin_username = admin\nadmin_password = {PASSWORD}\nadmin_project_name = admin\nadmin_domain_name = Default\n\
         [identity]\nuri_v3 = http://{identity}/v3\nauth_version = v3\nregion = RegionOne\nv3_endpoint_type = public\n\
         [identity-feature-enabled]\napi_v2 = false\napi_v3 = true\n\
         [enforce_scope]\nneutron = true\n\
         [network]\npublic_network_id = {public}\nfloating_network_name = public\nproject_networks_reachable = false\n\
         build_interval = 1\ndefault_network = 10.100.0.0/16\n\
         [network-feature-enabled]\napi_extensions = {extensions}\nipv6 = true\nipv6_subnet_attributes = true\n\
         floating_ips = true\nport_security = true\n\
         [neutron_plugin_options]\nprovider_vlans = physnet1,\navailable_type_drivers = flat,geneve,vlan,local\n\
         [service_available]\nneutron = true\nnova = false\ncinder = false\nglance = false\nswift = false\nhorizon = false\n",
        identity = cloud.identity,
        extensions = extensions.join(","),
    );
    fs::write(cloud.path("tempest.conf"), tempest).unwrap();
    let packages = packages("stestr");
    let packages = packages.display();
    let stestr = format!(
        "[DEFAULT]\ntest_path={packages}/tempest/test_discover\ntop_dir={packages}\ngroup_regex=([^\\.]*\\.)*\n"
    );
    fs::write(cloud.path(".stestr.conf"), stestr).unwrap();
}

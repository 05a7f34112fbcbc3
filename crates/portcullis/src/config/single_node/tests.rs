use std::fs;

use tempfile::TempDir;

use super::super::{Finding, Loaded, Sources, Unusable};
use super::*;

/// A directory with `config.yaml`, whose `MICROSHIFT` is `microshift/config.yaml` in it, and other files.
fn directory(config: &str, files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    let microshift = directory.path().join("microshift/config.yaml");
    let config = config.replace("MICROSHIFT", microshift.to_str().unwrap());
    for (name, content) in files.iter().copied().chain([("config.yaml", config.as_str())]) {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn load(directory: &TempDir) -> Result<Loaded, Unusable> {
    Sources::new(Some(directory.path().join("config.yaml")), Vec::new()).load()
}

fn shown(directory: &TempDir, findings: &[Finding]) -> Vec<String> {
    let prefix = format!("{}/", directory.path().display());
    findings.iter().map(|found| found.to_string().replace(&prefix, "")).collect()
}

/// The section `ingress`, or what is wrong.
fn read(ingress: &str) -> Result<Ingress, Vec<String>> {
    let directory = directory(&format!("singleNode: {{enabled: true}}\ningress: {ingress}\n"), &[]);
    load(&directory).map(|loaded| loaded.config.ingress).map_err(|wrong| shown(&directory, &wrong.errors))
}

#[test]
fn a_bad_entry_stops_the_start_with_its_name() {
    for (ingress, expected) in [
        (
            "{status: managed}",
            "status: expected `Managed` or `Removed`, found `managed`. Did you mean `Managed`?",
        ),
        ("{status: Gone}", "status: expected `Managed` or `Removed`, found `Gone`"),
        ("{ports: {http: 0}}", "ports.http: expected a port from 1 to 65535, found `0`"),
        ("{ports: {https: 65536}}", "ports.https: expected a port from 1 to 65535, found `65536`"),
        ("{ports: {http: -1}}", "ports.http: expected a port from 1 to 65535, found `-1`"),
        (
            "{ports: {http: '80'}}",
            "ports.http: expected a port from 1 to 65535, found `80`. Remove the quotes",
        ),
        ("{ports: {http: web}}", "ports.http: expected a port from 1 to 65535, found `web`"),
        (
            "{listenAddress: enp3s0}",
            "listenAddress: expected a list, found `enp3s0`. A list of one is written [enp3s0]",
        ),
        ("{defaultHTTPVersion: 3}", "defaultHTTPVersion: expected 1 or 2, found `3`"),
        (
            "{routeAdmissionPolicy: {namespaceOwnership: strict}}",
            "routeAdmissionPolicy.namespaceOwnership: expected `Strict` or `InterNamespaceAllowed`, found `strict`. Did you mean `Strict`?",
        ),
        ("{Status: Removed}", "Status: unknown key. Write `status`"),
    ] {
        assert_eq!(read(ingress), Err(vec![format!("config.yaml:2: ingress.{expected}")]), "{ingress}");
    }
    for good in ["{ports: {http: 1, https: 65535}}", "{}", "{listenAddress: []}", "{status: null}"] {
        assert!(read(good).is_ok(), "{good}");
    }
}

#[test]
fn of_what_is_removed_nothing_is_looked_at() {
    for ingress in [
        "{status: Removed}",
        "{status: Removed, ports: {http: 0, https: many}}",
        "{status: Removed, listenAddress: enp3s0, Ports: 1, tuningOptions: [1]}",
    ] {
        let removed = Ingress { status: IngressStatus::Removed, ..Ingress::default() };
        assert_eq!(read(ingress), Ok(removed), "{ingress}");
    }
    assert!(read("[Removed]").is_err());
}

#[test]
fn the_section_counts_only_for_a_single_node() {
    let with = |text: &str| {
        let directory = directory(text, &[]);
        let loaded = load(&directory).unwrap();
        shown(&directory, &loaded.warnings)
    };
    assert_eq!(
        with("ingress:\n  status: Removed\n"),
        [
            "config.yaml:1: ingress: nothing comes of this section, which is about the router of a single node. \
          Set singleNode.enabled, or remove the section"
        ]
    );
    for fine in [
        "ingress: {}\n",
        "ingress:\n",
        "ingress: {status: Managed}\n",
        "singleNode: {enabled: true}\ningress: {status: Managed}\n",
    ] {
        assert_eq!(with(fine), Vec::<String>::new(), "{fine}");
    }
}

#[test]
fn microshifts_configuration_holds_where_ours_says_nothing() {
    let ours = "singleNode: {enabled: true, microshift: MICROSHIFT, namespace: edge}\n\
                ingress:\n  status: Managed\n  ports: {https: 9443}\n  listenAddress: null\n";
    let directory = directory(
        ours,
        &[
            (
                "microshift/config.yaml",
                "DNS:\n  basedomain: edge.example.com\nnetwork:\n  clusterNetwork: [10.42.0.0/16, 'fd01::/48']\n\
                 apiServer: {unknown: here}\ningress:\n  Status: Removed\n  PORTS: {HTTP: 8080, https: 8443}\n  \
                 listenaddress: [enp3s0]\n  tuningOptions: {ThreadCount: 2, clientTimeout: 5s}\n  certificateSecret: ''\n",
            ),
            (
                "microshift/config.d/20/last.yaml",
                "ingress: {tuningOptions: {ThreadCount: 8, clientTimeout: null}}\n",
            ),
            (
                "microshift/config.d/10-first.yaml",
                "ingress:\n  tuningOptions: {ThreadCount: 4}\n  logEmptyRequest: Log\n",
            ),
            ("microshift/config.d/30.yml", "ingress: {status: nonsense}\n"),
        ],
    );
    let loaded = load(&directory).unwrap();
    let (single_node, ingress) = (&loaded.config.single_node, &loaded.config.ingress);
    assert_eq!(single_node.base_domain.as_deref(), Some("edge.example.com"));
    assert_eq!(single_node.addresses, Some(Addresses::Both));
    assert_eq!(ingress.status, IngressStatus::Managed, "ours wins");
    assert_eq!(ingress.ports, Ports { http: Port(8080), https: Port(9443) });
    assert_eq!(ingress.listen_address, Vec::<String>::new(), "null brings back the default");
    assert_eq!(ingress.tuning_options.thread_count, Some(8));
    assert_eq!(ingress.tuning_options.client_timeout, None);
    assert_eq!(ingress.certificate_secret, None);
    assert_eq!(
        shown(&directory, &loaded.warnings),
        [
            "microshift/config.d/10-first.yaml:3: ingress.logEmptyRequest: unknown key, ignored. Did you mean `logEmptyRequests`?"
        ]
    );
    let origin = |keys: &[&str]| {
        let at = loaded.origin(keys).map(ToString::to_string).unwrap_or_default();
        at.replace(&format!("{}/", directory.path().display()), "")
    };
    assert_eq!(origin(&["ingress", "ports", "http"]), "microshift/config.yaml:8");
    assert_eq!(origin(&["ingress", "ports", "https"]), "config.yaml:4");
    assert_eq!(origin(&["singleNode", "addresses"]), "microshift/config.yaml:4");
    assert_eq!(loaded.files.len(), 4);
}

#[test]
fn keys_that_differ_in_case_count_as_in_go() {
    // By their bytes, capital letters come first, and the last one counts; also over files.
    let files = [
        ("microshift/config.yaml", "ingress: {ports: {http: 81}, STATUS: nonsense, status: Managed}\n"),
        ("microshift/config.d/1.yaml", "ingress: {Ports: {http: 82, https: 83}}\n"),
    ];
    let directory = directory("singleNode: {enabled: true, microshift: MICROSHIFT}\n", &files);
    let loaded = load(&directory).unwrap();
    assert_eq!(loaded.config.ingress.ports, Ports { http: Port(81), https: Port(83) });
}

#[test]
fn what_is_wrong_in_microshifts_configuration_is_named_there() {
    let ours = "singleNode:\n  enabled: true\n  microshift: MICROSHIFT\n";
    for (theirs, expected) in [
        (
            "ingress:\n  ports:\n    http: 0\n",
            "microshift/config.yaml:3: ingress.ports.http: expected a port from 1 to 65535, found `0`",
        ),
        (
            "ingress: {status: Off}\n",
            "microshift/config.yaml:1: ingress.status: expected `Managed` or `Removed`, found `Off`",
        ),
        ("a: [\n", "microshift/config.yaml:2:1: not valid YAML"),
    ] {
        let directory = directory(ours, &[("microshift/config.yaml", theirs)]);
        let wrong = load(&directory).unwrap_err();
        let found = shown(&directory, &wrong.errors);
        assert!(found[0].starts_with(expected), "{theirs}: {found:?}");
    }
    let directory = directory(ours, &[]);
    let wrong = load(&directory).unwrap_err();
    assert_eq!(
        shown(&directory, &wrong.errors),
        [
            "config.yaml:3: singleNode.microshift: there is no microshift/config.yaml, and nothing in config.d beside it. \
          Name MicroShift's configuration, such as /etc/microshift/config.yaml, or remove the key"
        ]
    );
    // Who is not asked is not read.
    let off = load(&self::directory("singleNode: {microshift: /nowhere}\n", &[])).unwrap();
    assert!(!off.config.single_node.enabled);
}

#[test]
fn two_routers_on_one_node_are_doubted() {
    let ours = |more: &str| format!("singleNode:\n  enabled: true\n  microshift: MICROSHIFT\n{more}");
    for (more, theirs, expected) in [
        (
            "ingress: {status: Managed}\n",
            "ingress: {status: Managed}\n",
            Some("microshift: MicroShift makes a router of its own"),
        ),
        ("", "{}\n", Some("microshift: MicroShift makes a router of its own")),
        (
            "ingress: {status: Managed}\n",
            "ingress: {status: Removed}\n",
            Some("namespace: MicroShift deletes the namespace openshift-ingress"),
        ),
        ("  namespace: edge\ningress: {status: Managed}\n", "ingress: {status: Removed}\n", None),
        ("", "ingress: {status: Removed}\n", None),
    ] {
        let directory = directory(&ours(more), &[("microshift/config.yaml", theirs)]);
        let loaded = load(&directory).unwrap();
        let found = shown(&directory, &loaded.warnings);
        match expected {
            Some(expected) => {
                assert!(found.len() == 1 && found[0].contains(expected), "{more} {theirs}: {found:?}");
            }
            None => assert_eq!(found, Vec::<String>::new(), "{more} {theirs}"),
        }
    }
}

#[test]
fn what_is_shown_can_be_loaded_again() {
    let text =
        "singleNode: {enabled: true}\ningress: {ports: {http: 8080}, accessLogging: {status: Enabled}}\n";
    let loaded = load(&directory(text, &[])).unwrap();
    let shown = crate::output::yaml(&loaded.config).unwrap();
    let again = load(&directory(&shown, &[])).unwrap();
    assert_eq!(again.config, loaded.config);
    assert_eq!(again.warnings, []);
}

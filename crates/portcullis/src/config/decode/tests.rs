//! Each kind of error over a section like those the roles will bring: lists of structs, durations, choices.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::super::yaml;
use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Sample {
    name: String,
    replicas: u8,
    offset: i16,
    ratio: f64,
    enabled: bool,
    comment: Option<String>,
    kind: Kind,
    provider: Option<Provider>,
    address: Option<Address>,
    listen_address: Vec<Address>,
    listeners: Vec<Listener>,
    labels: BTreeMap<String, u8>,
    weights: BTreeMap<Port, u8>,
    switches: BTreeMap<bool, Kind>,
    kinds: BTreeMap<Kind, u8>,
    pair: Option<(u8, u8)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Port(u16);

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    #[default]
    Managed,
    Observed,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Provider {
    Host,
    Aws { region: String },
    Pool(Vec<u8>),
    Range(u8, u8),
}

#[derive(Debug, PartialEq)]
struct Address(IpAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "an IP address", |text| text.parse().map(Self).map_err(|_| None))
    }
}

/// No default: `port` must be given.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listener {
    port: u16,
    #[serde(default)]
    hosts: Vec<String>,
}

fn sample(text: &str) -> Decoded<Sample> {
    decode(&yaml::parse("c.yaml".as_ref(), text).unwrap())
}

fn errors(text: &str) -> Vec<String> {
    match sample(text).result {
        Ok(sample) => panic!("{text}: accepted as {sample:?}"),
        Err(findings) => findings.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_error_names_the_place_the_key_the_found_and_the_expected() {
    for (text, expected) in [
        ("name: [a]", "c.yaml:1: name: expected a string, found a list"),
        ("\nreplicas: many", "c.yaml:2: replicas: expected a whole number from 0 to 255, found `many`"),
        ("replicas: 256", "c.yaml:1: replicas: expected a whole number from 0 to 255, found `256`"),
        ("replicas: -1", "c.yaml:1: replicas: expected a whole number from 0 to 255, found `-1`"),
        ("replicas: 1.5", "c.yaml:1: replicas: expected a whole number from 0 to 255, found `1.5`"),
        (
            "replicas: '3'",
            "c.yaml:1: replicas: expected a whole number from 0 to 255, found `3`. Remove the quotes",
        ),
        ("offset: x", "c.yaml:1: offset: expected a whole number from -32768 to 32767, found `x`"),
        ("ratio: much", "c.yaml:1: ratio: expected a number, found `much`"),
        (
            "enabled: yes",
            "c.yaml:1: enabled: expected `true` or `false`, found `yes`. Write `true`, without quotes",
        ),
        ("enabled: 1", "c.yaml:1: enabled: expected `true` or `false`, found `1`"),
        (
            "kind: manged",
            "c.yaml:1: kind: expected `managed` or `observed`, found `manged`. Did you mean `managed`?",
        ),
        ("kind: [managed]", "c.yaml:1: kind: expected `managed` or `observed`, found a list"),
        ("kind: 7", "c.yaml:1: kind: expected `managed` or `observed`, found `7`"),
        ("provider: gcp", "c.yaml:1: provider: expected `host`, `aws`, `pool` or `range`, found `gcp`"),
        ("provider: aws", "c.yaml:1: provider: `aws` needs a value: write it as a key, `aws: …`"),
        ("provider: {host: 1}", "c.yaml:1: provider: `host` takes no value: write only the name"),
        (
            "provider:\n  aws:\n    region: []",
            "c.yaml:3: provider.aws.region: expected a string, found a list",
        ),
        (
            "provider: {pool: [1, x]}",
            "c.yaml:1: provider.pool[1]: expected a whole number from 0 to 255, found `x`",
        ),
        (
            "provider: {aws: {}, host: }",
            "c.yaml:1: provider: expected one key, `host`, `aws`, `pool` or `range`, found a map",
        ),
        ("address: 9695", "c.yaml:1: address: expected an IP address, found `9695`"),
        ("address: ''", "c.yaml:1: address: expected an IP address, found an empty text"),
        (
            "listenAddress:\n- 10.0.0.1\n- enp3s1\n",
            "c.yaml:3: listenAddress[1]: expected an IP address, found `enp3s1`",
        ),
        (
            "listenAddress: 10.0.0.1",
            "c.yaml:1: listenAddress: expected a list, found `10.0.0.1`. A list of one is written [10.0.0.1]",
        ),
        ("listenAddress: [~]", "c.yaml:1: listenAddress[0]: expected an IP address, found nothing"),
        ("listenAddress: {a: 1}", "c.yaml:1: listenAddress: expected a list, found a map"),
        ("listeners:\n- hosts: [a]\n", "c.yaml:2: listeners[0]: the key `port` is missing"),
        (
            "listeners: [80]",
            "c.yaml:1: listeners[0]: expected a map with the keys `port` and `hosts`, found `80`",
        ),
        ("labels: {a.b: x}", "c.yaml:1: labels[\"a.b\"]: expected a whole number from 0 to 255, found `x`"),
        (
            "listenAddress: '[::1]:80'",
            "c.yaml:1: listenAddress: expected a list, found `[::1]:80`. A list of one is written [\"[::1]:80\"]",
        ),
        (
            "listenAddress: a, b",
            "c.yaml:1: listenAddress: expected a list, found `a, b`. A list of one is written [\"a, b\"]",
        ),
        (
            "listenAddress: \"a\\nb\"",
            "c.yaml:1: listenAddress: expected a list, found `a\\nb`. A list of one is written [\"a\\nb\"]",
        ),
        (
            "kind: {}",
            "c.yaml:1: kind: expected `managed` or `observed`, found a map without values. \
             Write the name alone, without braces and colon",
        ),
        (
            "\nweights: {http: 1}",
            "c.yaml:2: weights.http: expected a whole number from 0 to 65535, found `http`",
        ),
        (
            "weights: {65536: 1}",
            "c.yaml:1: weights.65536: expected a whole number from 0 to 65535, found `65536`",
        ),
        ("switches: {on: managed}", "c.yaml:1: switches.on: expected `true` or `false`, found `on`"),
        (
            "kinds: {manged: 1}",
            "c.yaml:1: kinds.manged: expected `managed` or `observed`, found `manged`. Did you mean `managed`?",
        ),
        ("labels: x", "c.yaml:1: labels: expected a map, found `x`"),
        ("pair: [1]", "c.yaml:1: pair: expected a list of 2, found one of 1"),
        ("pair: [1, 2, 3]", "c.yaml:1: pair: expected a list of 2, found one of 3"),
        ("provider: {range: [1, 2, 3]}", "c.yaml:1: provider.range: expected a list of 2, found one of 3"),
    ] {
        assert_eq!(errors(text), [expected], "{text}");
    }
}

#[test]
fn all_errors_are_found_and_none_is_invented() {
    let text = "replicas: many
kind: x
listeners:
- port: eighty
  hosts: [a]
- port: 80
  hosts: b
- {}
listenAddress: [10.0.0.1, x, y]
";
    assert_eq!(
        errors(text),
        [
            "c.yaml:1: replicas: expected a whole number from 0 to 255, found `many`",
            "c.yaml:2: kind: expected `managed` or `observed`, found `x`",
            "c.yaml:4: listeners[0].port: expected a whole number from 0 to 65535, found `eighty`",
            "c.yaml:7: listeners[1].hosts: expected a list, found `b`. A list of one is written [b]",
            "c.yaml:8: listeners[2]: the key `port` is missing",
            "c.yaml:9: listenAddress[1]: expected an IP address, found `x`",
            "c.yaml:9: listenAddress[2]: expected an IP address, found `y`",
        ]
    );
    let kind = "kind: expected `managed` or `observed`, found `y`";
    let number = "expected a whole number from 0 to 255, found `x`";
    for (text, expected) in [
        (
            "provider: {pool: x}\nkind: y\nz: q",
            [
                "1: provider.pool: expected a list, found `x`. A list of one is written [x]",
                &format!("2: {kind}"),
            ],
        ),
        (
            "provider: {aws: {region: []}}\nkind: y",
            ["1: provider.aws.region: expected a string, found a list", &format!("2: {kind}")],
        ),
        (
            "kind: y\nprovider:\n  pool: [1, x]",
            [&format!("1: {kind}"), &format!("3: provider.pool[1]: {number}")],
        ),
        (
            "kind: y\nprovider: {range: [x, 1]}",
            [&format!("1: {kind}"), &format!("2: provider.range[0]: {number}")],
        ),
        ("kind: y\npair: [1, x]", [&format!("1: {kind}"), &format!("2: pair[1]: {number}")]),
        ("kind: y\nweights: {80: x}", [&format!("1: {kind}"), &format!("2: weights.80: {number}")]),
    ] {
        assert_eq!(errors(text), expected.map(|e| format!("c.yaml:{e}")), "{text}");
    }
}

#[test]
fn errors_beyond_reading_are_left_out() {
    let text = format!("listenAddress: [{}]", vec!["x"; 5000].join(", "));
    assert_eq!(errors(&text).len(), MOST_ERRORS);
}

#[test]
fn a_document_that_is_no_map_says_which_keys_there_are() {
    let errors = errors("just text");
    assert!(errors[0].starts_with("c.yaml:1: expected a map with the keys `name`, "), "{errors:?}");
    assert!(errors[0].ends_with(", found `just text`"), "{errors:?}");
}

#[test]
fn unknown_keys_come_with_the_nearest_name() {
    let decoded = sample(
        "nmae: x\nlisteners:\n- port: 1\n  host: [a]\nzzz: 1\nprovider: {aws: {region: r, zone: z}}\n",
    );
    assert!(decoded.unknown.iter().all(|u| !u.slip));
    let unknown: Vec<_> = decoded.unknown.iter().map(|u| u.finding.to_string()).collect();
    assert_eq!(decoded.result.unwrap().listeners[0].port, 1);
    assert_eq!(unknown[0], "c.yaml:1: nmae: unknown key. Did you mean `name`?");
    assert_eq!(unknown[1], "c.yaml:4: listeners[0].host: unknown key. Did you mean `hosts`?");
    assert!(unknown[2].starts_with("c.yaml:5: zzz: unknown key. Known here: `name`, "), "{unknown:?}");
    assert_eq!(unknown[3], "c.yaml:6: provider.aws.zone: unknown key. Known here: `region`");
    assert_eq!(unknown.len(), 4);
}

#[test]
fn a_known_key_written_wrongly_is_told_from_an_unknown_one() {
    for (text, expected) in [
        ("Name: x", "c.yaml:1: Name: unknown key. Write `name`"),
        ("'name ': x", "c.yaml:1: [\"name \"]: unknown key. Write `name`"),
        ("listenaddress: []", "c.yaml:1: listenaddress: unknown key. Write `listenAddress`"),
        ("listeners: [{PORT: 80, port: 80}]", "c.yaml:1: listeners[0].PORT: unknown key. Write `port`"),
        (
            "{name:x}",
            "c.yaml:1: [\"name:x\"]: unknown key. A space is missing after the colon: write `name: x`",
        ),
    ] {
        let decoded = sample(text);
        let [Unknown { finding, slip: true }] = decoded.unknown.as_slice() else {
            panic!("{text}: {:?}", decoded.unknown);
        };
        assert_eq!(finding.to_string(), expected);
    }
    assert_eq!(
        errors("listeners:\n- port:80\n"),
        ["c.yaml:2: listeners[0]: expected a map with the keys `port` and `hosts`, found `port:80`. \
          A space is missing after the colon: write `port: 80`"]
    );
}

#[test]
fn a_misspelt_required_key_is_both_missing_and_unknown() {
    let decoded = sample("listeners:\n- prot: 80\n");
    assert_eq!(
        decoded.result.unwrap_err()[0].to_string(),
        "c.yaml:2: listeners[0]: the key `port` is missing"
    );
    assert_eq!(
        decoded.unknown[0].finding.to_string(),
        "c.yaml:2: listeners[0].prot: unknown key. Did you mean `port`?"
    );
}

#[test]
fn values_of_every_kind_are_read() {
    let decoded = sample(
        "name: 1.10
replicas: 0x10
offset: -3
ratio: 2
enabled: true
comment: 0123
kind: observed
provider: {aws: {region: true}}
address: fd00::1
listenAddress: [10.0.0.1]
listeners: [{port: 65535}]
labels: {80: 1, 'null': 2}
weights: {80: 1, 0x1bb: 2}
switches: {true: observed}
kinds: {observed: 3}
pair: [1, 2]
",
    );
    assert!(decoded.unknown.is_empty());
    assert_eq!(
        decoded.result.unwrap(),
        Sample {
            name: "1.10".to_owned(),
            replicas: 16,
            offset: -3,
            ratio: 2.0,
            enabled: true,
            comment: Some("0123".to_owned()),
            kind: Kind::Observed,
            provider: Some(Provider::Aws { region: "true".to_owned() }),
            address: Some(Address("fd00::1".parse().unwrap())),
            listen_address: vec![Address("10.0.0.1".parse().unwrap())],
            listeners: vec![Listener { port: 65535, hosts: vec![] }],
            labels: BTreeMap::from([("80".to_owned(), 1), ("null".to_owned(), 2)]),
            weights: BTreeMap::from([(Port(80), 1), (Port(443), 2)]),
            switches: BTreeMap::from([(true, Kind::Observed)]),
            kinds: BTreeMap::from([(Kind::Observed, 3)]),
            pair: Some((1, 2)),
        }
    );
    assert_eq!(sample("provider: host").result.unwrap().provider, Some(Provider::Host));
    assert_eq!(sample("provider: {pool: [1]}").result.unwrap().provider, Some(Provider::Pool(vec![1])));
}

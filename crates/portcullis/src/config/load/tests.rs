use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{LogFormat, Mode};
use super::*;
use crate::output;

/// A directory with the given files; `config.yaml` in it is the one to load.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn load(directory: &TempDir, settings: &[&str]) -> Result<Loaded, Unusable> {
    let settings = settings.iter().map(|s| s.parse().unwrap()).collect();
    Sources::new(Some(directory.path().join("config.yaml")), settings).load()
}

/// The findings, with the temporary directory left out of them.
fn shown(directory: &TempDir, findings: &[Finding]) -> Vec<String> {
    let prefix = format!("{}/", directory.path().display());
    findings.iter().map(|p| p.to_string().replace(&prefix, "")).collect()
}

#[test]
fn nothing_at_all_is_the_default() {
    for content in ["", "# only a comment\n", "---\n", "log:\n", "log: {}\n", "mode: ~\n"] {
        let loaded = load(&directory(&[("config.yaml", content.as_bytes())]), &[]).unwrap();
        assert_eq!(loaded.config, Config::default(), "{content:?}");
        assert!(loaded.warnings.is_empty(), "{content:?}");
    }
}

#[test]
fn later_files_and_flags_win() {
    let directory = directory(&[
        ("config.yaml", b"mode: observe\nlog: {level: debug, format: json}\n"),
        ("config.d/20-last.yaml", b"log:\n  level: error\n"),
        ("config.d/10-first.yaml", b"log: {level: warn, format: null}\ntelemetry: {listen: '[::1]:1'}\n"),
        ("config.d/.hidden.yaml", b"log: {level: trace}\n"),
        ("config.d/README", b"not: read\n"),
        ("config.d/30-other.yml", b"log: {level: trace}\n"),
        ("config.d/deeper/40.yaml", b"log: {level: trace}\n"),
    ]);
    let loaded = load(&directory, &["mode=manage"]).unwrap();
    assert_eq!(loaded.config.mode, Mode::Manage);
    assert_eq!(loaded.config.log.format, LogFormat::Text, "null goes back to the default");
    assert_eq!(serde_json::to_value(&loaded.config.log.level).unwrap(), "error");
    assert_eq!(loaded.config.telemetry.listen.to_string(), "[::1]:1");

    let names: Vec<_> = loaded.files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["config.yaml", "10-first.yaml", "20-last.yaml"]);
    assert_eq!(
        shown(&directory, &loaded.warnings),
        ["config.d/30-other.yml: not read: the names of drop-in files end in `.yaml`"]
    );
    let origin = |keys: &[&str]| loaded.origin(keys).map(ToString::to_string);
    assert_eq!(origin(&["mode"]).unwrap(), "--set");
    assert!(origin(&["log", "level"]).unwrap().ends_with("config.d/20-last.yaml:2"));
    assert_eq!(origin(&["log", "format"]), None);
}

#[test]
fn only_a_file_named_by_the_user_must_exist() {
    let directory = directory(&[("config.d/10.yaml", b"mode: observe\n")]);
    let error = load(&directory, &[]).unwrap_err();
    assert_eq!(shown(&directory, &error.errors), ["config.yaml: there is no such file"]);

    let file = directory.path().join("config.yaml");
    let loaded = Sources { main: Main::Default(file), settings: Vec::new() }.load().unwrap();
    assert_eq!(loaded.config.mode, Mode::Observe, "the drop-ins count without a main file");
    assert_eq!(loaded.files.len(), 1);
}

#[test]
fn a_file_without_an_extension_has_its_drop_ins_too() {
    let directory =
        directory(&[("main", b""), ("main.d/1.yaml", b"mode: observe\n"), ("odd.d", b"mode: observe\n")]);
    for name in ["main", "odd.d"] {
        let loaded = Sources::new(Some(directory.path().join(name)), Vec::new()).load().unwrap();
        assert_eq!(loaded.config.mode, Mode::Observe, "{name}");
    }
}

#[test]
fn every_error_names_its_file() {
    let cases: &[(&[u8], &str)] = &[
        (
            b"telemetry:\n\n  listen: 9695\n",
            "config.yaml:3: telemetry.listen: expected an address and port such as 127.0.0.1:9695, found `9695`",
        ),
        (
            b"mode: obsrve\n",
            "config.yaml:1: mode: expected `manage` or `observe`, found `obsrve`. Did you mean `observe`?",
        ),
        (
            b"log: {level: inf}\n",
            "config.yaml:1: log.level: expected a level (off, error, warn, info, debug, trace) or a list such as \
             info,portcullis=debug, found `inf`. Did you mean `info`?",
        ),
        (
            b"log: text\n",
            "config.yaml:1: log: expected a map with the keys `format` and `level`, found `text`",
        ),
        (b"- mode\n", "config.yaml:1: expected keys and values such as `mode: observe`, found a list"),
        (b"mode\n", "config.yaml:1: expected keys and values such as `mode: observe`, found `mode`"),
        (b"mode: manage\n\xff\n", "config.yaml:2: this is not UTF-8 text"),
        (
            b"mode: manage\nmode: observe\n",
            "config.yaml:2: mode: given twice, the first time on line 1. Remove one of the two",
        ),
    ];
    for (content, expected) in cases {
        let directory = directory(&[("config.yaml", content)]);
        let error = load(&directory, &[]).unwrap_err();
        assert_eq!(shown(&directory, &error.errors), [*expected]);
    }
}

#[test]
fn errors_of_several_files_come_together() {
    let directory = directory(&[
        ("config.yaml", b"mode: x\nlog: {format: xml}\n"),
        ("config.d/10.yaml", b"telemetry: {listen: here, lisen: 1}\n"),
    ]);
    let error = load(&directory, &["log.level=loud"]).unwrap_err();
    assert_eq!(
        shown(&directory, &error.errors),
        [
            "config.d/10.yaml:1: telemetry.listen: expected an address and port such as 127.0.0.1:9695, found `here`",
            "config.yaml:1: mode: expected `manage` or `observe`, found `x`",
            "config.yaml:2: log.format: expected `text` or `json`, found `xml`",
            "--set log.level: expected a level (off, error, warn, info, debug, trace) or a list such as \
             info,portcullis=debug, found `loud`",
        ]
    );
    assert_eq!(
        shown(&directory, &error.warnings),
        ["config.d/10.yaml:1: telemetry.lisen: unknown key, ignored. Did you mean `listen`?"]
    );
}

/// Tests may run as root, who may read everything.
#[test]
fn a_file_that_may_not_be_read_is_told_from_a_missing_one() {
    let error = Unreadable::io("c.yaml".as_ref(), &io::Error::from(ErrorKind::PermissionDenied));
    assert_eq!(error.finding.to_string(), "c.yaml: not readable for this user");
    assert_eq!(error.why, Why::Denied);
}

#[test]
fn an_unknown_key_on_the_command_line_is_an_error() {
    let directory = directory(&[("config.yaml", b"")]);
    let error = load(&directory, &["telemetry.lisen=1", "mode=x"]).unwrap_err();
    assert_eq!(
        shown(&directory, &error.errors),
        [
            "--set mode: expected `manage` or `observe`, found `x`",
            "--set telemetry.lisen: unknown key. Did you mean `listen`?",
        ]
    );
}

/// A null removes what an earlier file said; it must not remove the trace of a misspelt key.
#[test]
fn an_unknown_key_is_found_also_without_a_value() {
    let directory = directory(&[
        ("config.yaml", b"modee:\nlog:\n  levle:\n  format: json\n"),
        ("config.d/10.yaml", b"log: null\nzebra: ~\n"),
    ]);
    let loaded = load(&directory, &["mode=null"]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(
        shown(&directory, &loaded.warnings),
        [
            "config.yaml:1: modee: unknown key, ignored. Did you mean `mode`?",
            "config.yaml:3: log.levle: unknown key, ignored. Did you mean `level`?",
            "config.d/10.yaml:2: zebra: unknown key, ignored. Known here: `mode`, `log`, `telemetry`, `networking`, `identity`, `kubernetes`, `services`, `aws`, `ingressControllers`, `singleNode`, `ingress`, `host`, `clusterApi`, `haproxy` and `cloudConfig`",
        ]
    );
    let error = load(&directory, &["nonsense=null", "lgo=~", "log={levle: null}", "lgo=1"]).unwrap_err();
    assert_eq!(
        shown(&directory, &error.errors),
        [
            "--set nonsense: unknown key. Known here: `mode`, `log`, `telemetry`, `networking`, `identity`, `kubernetes`, `services`, `aws`, `ingressControllers`, `singleNode`, `ingress`, `host`, `clusterApi`, `haproxy` and `cloudConfig`",
            "--set lgo: unknown key. Did you mean `log`?",
            "--set log.levle: unknown key. Did you mean `level`?",
        ]
    );
}

/// Whoever writes it wants no writes.
#[test]
fn the_mode_is_not_lost_to_a_slip() {
    for (content, expected) in [
        ("Mode: observe\n", "config.yaml:1: Mode: unknown key. Write `mode`"),
        ("MODE:\n", "config.yaml:1: MODE: unknown key. Write `mode`"),
        ("mode: manage\n' mode': observe\n", "config.yaml:2: [\" mode\"]: unknown key. Write `mode`"),
        (
            "{mode:observe}\n",
            "config.yaml:1: [\"mode:observe\"]: unknown key. A space is missing after the colon: write `mode: observe`",
        ),
        (
            "mode: {observe: }\n",
            "config.yaml:1: mode: expected `manage` or `observe`, found a map without values. \
             Write the name alone, without braces and colon",
        ),
    ] {
        let directory = directory(&[("config.yaml", content.as_bytes())]);
        let error = load(&directory, &[]).unwrap_err();
        assert_eq!(shown(&directory, &error.errors), [expected]);
        assert_eq!(error.why, Why::Wrong);
    }
}

#[test]
fn a_directory_in_place_of_a_file_is_said_so() {
    let directory = directory(&[("config.yaml/x", b""), ("config.d", b"")]);
    let error = load(&directory, &[]).unwrap_err();
    assert_eq!(
        shown(&directory, &error.errors),
        ["config.d: this is not a directory", "config.yaml: this is a directory, not a YAML file"]
    );
}

#[test]
fn a_link_that_leads_nowhere_is_not_a_file_named_by_mistake() {
    let directory = directory(&[("config.yaml", b""), ("config.d/10.yml", b"")]);
    std::os::unix::fs::symlink("gone.yaml", directory.path().join("config.d/20.yaml")).unwrap();
    let error = load(&directory, &[]).unwrap_err();
    assert_eq!(shown(&directory, &error.errors), ["config.d/20.yaml: this is a link that leads nowhere"]);
    assert_eq!(error.why, Why::Wrong);
    assert_eq!(
        shown(&directory, &error.warnings),
        ["config.d/10.yml: not read: the names of drop-in files end in `.yaml`"]
    );

    for (name, link) in [("link.yaml", "link.yaml"), ("absent.yaml", "absent.d")] {
        std::os::unix::fs::symlink("gone", directory.path().join(link)).unwrap();
        let default = Main::Default(directory.path().join(name));
        let error = Sources { main: default, settings: Vec::new() }.load().unwrap_err();
        assert_eq!(shown(&directory, &error.errors), [format!("{link}: this is a link that leads nowhere")]);
    }
}

fn configs() -> impl Strategy<Value = Config> {
    let level = prop_oneof![Just("info"), Just("off"), Just("warn,a::b=trace"), Just("INFO")];
    (any::<bool>(), any::<bool>(), level, any::<std::net::SocketAddr>()).prop_map(
        |(observe, json, level, listen)| {
            let text = format!(
                "mode: {}\nlog: {{format: {}, level: '{level}'}}\ntelemetry: {{listen: '{}'}}\n",
                if observe { "observe" } else { "manage" },
                if json { "json" } else { "text" },
                // A flow label does not survive as text.
                match listen {
                    std::net::SocketAddr::V6(v6) => std::net::SocketAddr::from((*v6.ip(), v6.port())),
                    v4 @ std::net::SocketAddr::V4(_) => v4,
                }
            );
            load(&directory(&[("config.yaml", text.as_bytes())]), &[]).unwrap().config
        },
    )
}

/// What the content of a file goes through, without the file.
fn read(bytes: &[u8]) {
    if let Ok(node) = content("c.yaml".as_ref(), bytes) {
        let _ = decode::<Config>(&node);
        let nothing = Node::new(Value::Map(Vec::new()), Location::Flag);
        let _ = decode::<Config>(&merge(nothing, node));
    }
}

/// Text made of what means something to YAML and to this program. About one in five is valid.
fn documents() -> impl Strategy<Value = String> {
    let tokens = vec![
        "mode: ", "observe", "log:", "level: ", "format: ", "a=off", "info", "::1", ":", ": ", ", ", "#",
        "\n", "\n  ", "\n- ", "- ", "? ", "[", "]", "{", "}", "&a ", "*a", "<<", "!!str ", "|\n  ", ">-\n ",
        "\"", "'", "---\n", "...\n", "null", "~", "0x1", "-.inf", " ", "\t", "\r\n", "é", "\u{feff}", "\0",
    ];
    let start = prop_oneof![Just(""), Just("mode: observe\nlog:\n  level: info\n"), Just("a: &a\n- b: ")];
    let rest = proptest::collection::vec(proptest::sample::select(tokens), 0..12);
    (start, rest).prop_map(|(start, rest)| start.to_owned() + &rest.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        read(text.as_bytes());
    }

    #[test]
    fn arbitrary_yaml_never_panics(text in documents()) {
        read(text.as_bytes());
    }

    #[test]
    fn what_is_printed_loads_again_as_the_same(config in configs()) {
        for text in [output::yaml(&config).unwrap(), output::json(&config).unwrap()] {
            let loaded = load(&directory(&[("config.yaml", text.as_bytes())]), &[]).unwrap();
            prop_assert_eq!(&loaded.config, &config);
            prop_assert!(loaded.warnings.is_empty());
        }
    }
}

#[test]
fn a_mistake_that_shows_later_still_names_its_line() {
    let directory = directory(&[(
        "config.yaml",
        b"identity:\n  local:\n    users:\n    - name: ann\n    - name: ann\n  keystone: {}\n",
    )]);
    let loaded = load(&directory, &["networking.listen=127.0.0.1:1"]).unwrap();
    for (path, expected) in [
        ("identity.local.users[1].name", "config.yaml:5: identity.local.users[1].name: wrong"),
        ("identity.local.users[1].id", "config.yaml:5: identity.local.users[1].id: wrong"),
        ("identity.local.users[7].id", "config.yaml:3: identity.local.users[7].id: wrong"),
        ("identity.keystone.url", "config.yaml:6: identity.keystone.url: wrong"),
        ("networking.listen", "--set networking.listen: wrong"),
        ("log.level", "config.yaml: log.level: wrong"),
    ] {
        assert_eq!(shown(&directory, &loaded.mistake(path, "wrong").errors), [expected]);
    }
}

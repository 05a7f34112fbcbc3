//! Requests that follow the API's document, and requests that do not, made up by a program.

use std::fmt::Write as _;
use std::fs;

use portcullis_testkit::Http;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::filters::id_of;

/// One object of each kind, for there to be something that can be asked about.
fn furnish(cloud: &Cloud, number: u8) -> Vec<(&'static str, String)> {
    let token = cloud.token("root", "project");
    let mut connection = Http::connect(&cloud.networking.to_string()).unwrap();
    let mut made = Vec::new();
    let mut make = |collection: &'static str, kind: &str, wish: Value| {
        let headers = [("X-Auth-Token", token.as_str()), ("Content-Type", "application/json")];
        let body = json!({ kind: wish }).to_string();
        let answer = connection.ask("POST", &format!("/v2.0/{collection}"), &headers, &body).unwrap();
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        let id = id_of(&answer.json()[kind]);
        made.push((collection, id.clone()));
        id
    };
    let network = make("networks", "network", json!({"router:external": true}));
    make(
        "subnets",
        "subnet",
        json!({"network_id": network, "cidr": format!("10.{number}.0.0/24"), "ip_version": 4}),
    );
    make("ports", "port", json!({"network_id": network}));
    make("routers", "router", json!({}));
    make("floatingips", "floatingip", json!({"floating_network_id": network}));
    let group = make("security-groups", "security_group", json!({"name": format!("g{number}")}));
    let rule = json!({"security_group_id": group, "direction": "ingress", "protocol": "tcp"});
    make("security-group-rules", "security_group_rule", rule);
    make("address-groups", "address_group", json!({"addresses": ["198.51.100.0/24"]}));
    let policy = json!({"object_type": "network", "object_id": network, "action": "access_as_shared",
                        "target_tenant": "0123456789abcdef0123456789abcdef"});
    make("rbac-policies", "rbac_policy", policy);
    let rule = json!({"direction": "ingress", "protocol": "tcp", "used_in_default_sg": false, "used_in_non_default_sg": true, "port_range_min": 1, "port_range_max": 1 + number});
    make("default-security-group-rules", "default_security_group_rule", rule);
    made.push(("network-ip-availabilities", network));
    made
}

/// What the program has to know: what there is, and of it what it may delete.
fn settings(cloud: &Cloud) -> String {
    let mut settings = SETTINGS.to_owned();
    for ((collection, kept), (_, deleted)) in furnish(cloud, 0).into_iter().zip(furnish(cloud, 1)) {
        let path = format!("/v2.0/{collection}/{{id}}");
        write!(
            settings,
            "[[operations]]\ninclude-path = '{path}'\ninclude-method = 'DELETE'\nparameters = {{ id = '{deleted}' }}\n\
             [[operations]]\ninclude-path = '{path}'\nexclude-method = 'DELETE'\nparameters = {{ id = '{kept}' }}\n\
             [[operations]]\ninclude-path-regex = '^{path}/'\nparameters = {{ id = '{kept}' }}\n",
        )
        .unwrap();
    }
    settings
}

/// What an administrator would find wrong: a failure of ours, an answer that is not as the document says, and that
/// something is done which the document does not allow to be asked.
const SETTINGS: &str = r#"
# On a busy machine it takes its time to think of questions, whatever they are.
suppress-health-check = ["too_slow"]
[checks]
# By default all of them. These are about habits that Neutron does not have, or about what the document does not say.
response_headers_conformance.enabled = false
positive_data_acceptance.enabled = false
missing_required_header.enabled = false
unsupported_method.enabled = false
allow_header_conformance.enabled = false
use_after_free.enabled = false
ensure_resource_availability.enabled = false
ignored_auth.enabled = false
object_level_authorization.enabled = false
# As in Neutron: 501, "not supported on this resource".
[[operations]]
include-path = "/v2.0/quotas"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]
# In bodies we take 0 for false and null for what is not given, as Neutron does; the document has only what should be
# sent. That a query is checked before anything is done is in `a_wish_that_is_not_understood_is_refused`.
[[operations]]
include-method = ["POST", "PUT"]
checks.negative_data_rejection.enabled = false
"#;

/// Has the program ask all that it can think of, in that role.
fn ask_everything(role: &'static str, examples: &str, seed: &str) {
    let cloud = Cloud::start(&[("user", "project", role), ("root", "project", "admin")]);
    let token = cloud.token("user", "project");
    let url = format!("http://{}", cloud.networking);
    fs::write(cloud.path("schemathesis.toml"), settings(&cloud)).unwrap();
    let output = cloud
        .command("schemathesis", "user", "project")
        .arg("--config-file")
        .arg(cloud.path("schemathesis.toml"))
        .arg("run")
        .arg(format!("{url}/v2.0/openapi.json"))
        .args(["--url", &url, "--header", &format!("X-Auth-Token: {token}")])
        .args(["--phases", "coverage,fuzzing", "--max-examples", examples])
        // Two workers would share a part of Python 3.11 that now and then breaks for it.
        .args(["--seed", seed, "--workers", "1", "--no-color"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!cloud.log().contains("panicked"), "{}", cloud.log());
}

#[test]
fn nothing_that_an_administrator_can_ask_breaks_it() {
    ask_everything("admin", "12", "7");
}

#[test]
fn nothing_that_a_member_can_ask_breaks_it() {
    ask_everything("member", "5", "8");
}

//! Requests that follow the API's document, and requests that do not, made up by a program.

use crate::cloud::Cloud;

/// Has the program ask all that it can think of, in that role.
fn ask_everything(role: &'static str, seed: &str) {
    let cloud = Cloud::start(&[("user", "project", role)]);
    let token = cloud.token("user", "project");
    let url = format!("http://{}", cloud.networking);
    let output = cloud
        .command("schemathesis", "user", "project")
        .arg("run")
        .arg(format!("{url}/v2.0/openapi.json"))
        .args(["--url", &url, "--header", &format!("X-Auth-Token: {token}")])
        // What an administrator would find wrong: a failure of ours, an answer that is not as the document says, and
        // that something is done which the document does not allow to be asked.
        .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"])
        .args(["--phases", "coverage,fuzzing", "--max-examples", "20", "--continue-on-failure"])
        .args(["--seed", seed, "--workers", "2", "--no-color"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!cloud.log().contains("panicked"), "{}", cloud.log());
}

#[test]
fn nothing_that_an_administrator_can_ask_breaks_it() {
    ask_everything("admin", "7");
}

#[test]
fn nothing_that_a_member_can_ask_breaks_it() {
    ask_everything("member", "8");
}

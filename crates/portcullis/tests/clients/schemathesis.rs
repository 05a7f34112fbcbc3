//! Requests that follow the API's document, and requests that do not, made up by a program.

use crate::cloud::Cloud;

#[test]
fn nothing_that_can_be_asked_breaks_it() {
    let cloud = Cloud::start(&[("root", "admin", "admin")]);
    let token = cloud.token("root", "admin");
    let url = format!("http://{}", cloud.networking);
    let output = cloud
        .command("schemathesis", "root", "admin")
        .arg("run")
        .arg(format!("{url}/v2.0/openapi.json"))
        .args(["--url", &url, "--header", &format!("X-Auth-Token: {token}")])
        // What an administrator would find wrong: a failure of ours, or an answer that is not as the document says.
        .args(["--checks", "not_a_server_error,content_type_conformance,response_schema_conformance"])
        .args(["--phases", "fuzzing", "--max-examples", "10", "--seed", "7", "--workers", "2", "--no-color"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!cloud.log().contains("panicked"), "{}", cloud.log());
}

use serde_json::{Value, json};

use crate::client::shared;

#[test]
fn limits_are_set_shown_kept_and_forgotten() {
    let api = shared();
    let (admin, user) = (api.admin(), api.user("member"));
    let path = format!("quotas/{}", user.project);
    assert_eq!(user.with("reader").get(&path)["quota"]["network"], 100);
    let reply = admin.put(&path, json!({"quota": {"network": "1", "subnet": -1}}));
    assert_eq!((&reply.body["quota"]["network"], &reply.body["quota"]["subnet"]), (&json!(1), &json!(-1)));
    user.network();
    let refused = user.post("networks", json!({"network": {}}));
    assert_eq!((refused.status.as_u16(), refused.kind()), (409, "OverQuota"));

    let details = user.get(&format!("{path}/details.json"));
    assert_eq!(details["quota"]["network"], json!({"limit": 1, "used": 1, "reserved": 0}));
    assert_eq!(user.get(&format!("{path}/default"))["quota"]["network"], 100);
    assert_eq!(user.get("quotas/tenant")["tenant"]["tenant_id"], user.project);
    assert_eq!(user.get("quotas/project")["project"]["project_id"], user.project);
    let all = admin.get("quotas")["quotas"].as_array().unwrap().clone();
    let own: Vec<&Value> = all.iter().filter(|quota| quota["project_id"] == user.project.as_str()).collect();
    assert_eq!((own.len(), &own[0]["network"]), (1, &json!(1)));
    assert_eq!(user.with("manager").get("quotas")["quotas"].as_array().unwrap().len(), 1);

    assert_eq!(admin.delete(&path).status, 204);
    assert_eq!(user.get(&path)["quota"]["network"], 100);
    assert_eq!(admin.delete(&path).kind(), "TenantQuotaNotFound");
}

#[test]
fn wrong_requests_are_refused() {
    let api = shared();
    let (admin, user, other) = (api.admin(), api.user("member"), api.user("member"));
    user.network();
    let path = format!("quotas/{}", user.project);
    for (quota, message) in [
        (
            json!({"network": -2}),
            "Invalid input for network. Reason: '-2' is too small - must be at least '-1'.",
        ),
        (
            json!({"network": 2_147_483_648_u64}),
            "Invalid input for network. Reason: '2147483648' is too large - must be no larger than '2147483647'.",
        ),
        (json!({"network": "abc"}), "Invalid input for operation: 'abc' is not an integer."),
        (json!({"network": null}), "Invalid input for operation: 'None' is not an integer."),
        (json!({"network": 1.5}), "Invalid input for operation: '1.5' is not an integer."),
        (json!({"foo": 1}), "Unrecognized attribute(s) 'foo'"),
        (json!({"network": 0}), "Quota limit 0 for network must be greater than or equal to already used 1"),
        (
            json!({"network": 0, "check_limit": true}),
            "Quota limit 0 for network must be greater than or equal to already used 1",
        ),
    ] {
        let reply = admin.put(&path, json!({ "quota": quota }));
        assert_eq!((reply.status.as_u16(), reply.message()), (400, message), "{quota}");
    }
    assert_eq!(admin.put(&path, json!({"quota": {"network": 0, "force": "maybe"}})).status, 400);
    for force in [json!(true), json!("true"), json!(1)] {
        let reply = admin.put(&path, json!({"quota": {"network": 0, "force": force}}));
        assert_eq!(reply.body["quota"]["network"], 0, "{force}");
    }
    assert_eq!(admin.put(&path, json!({"x": {}})).status, 400);
    for (reply, status, kind) in [
        (user.put(&path, json!({"quota": {"network": 3}})), 403, "PolicyNotAuthorized"),
        (user.delete(&path), 403, "PolicyNotAuthorized"),
        (user.send("GET", "quotas", ""), 403, "PolicyNotAuthorized"),
        (other.send("GET", &path, ""), 403, "PolicyNotAuthorized"),
        (other.send("GET", &format!("{path}/default"), ""), 403, "PolicyNotAuthorized"),
        (other.send("GET", &format!("{path}/details.json"), ""), 403, "AdminRequired"),
        (admin.post("quotas", json!({"quota": {}})), 501, "HTTPNotImplemented"),
    ] {
        assert_eq!((reply.status.as_u16(), reply.kind()), (status, kind), "{}", reply.text);
    }
}

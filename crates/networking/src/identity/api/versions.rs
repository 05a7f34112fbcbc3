//! Which versions there are.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Ask};

fn third(ask: &Ask) -> Value {
    json!({
        "id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/v3/", ask.base)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    })
}

/// All that clients should choose from: v2.0 is for those that know no other.
pub(super) fn all(ask: &Ask) -> Answer {
    Answer::new(StatusCode::MULTIPLE_CHOICES, json!({"versions": {"values": [third(ask)]}}))
}

pub(super) fn v3(ask: &Ask) -> Answer {
    Answer::ok(json!({ "version": third(ask) }))
}

pub(super) fn v2(ask: &Ask) -> Answer {
    Answer::ok(json!({"version": {
        "id": "v2.0", "status": "deprecated", "updated": "2016-08-04T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/v2.0/", ask.base)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v2.0+json"}],
    }}))
}

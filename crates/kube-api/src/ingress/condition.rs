use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// One thing to be known about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// Why, in one word.
    #[serde(deserialize_with = "super::null_is_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in sentences.
    #[serde(deserialize_with = "super::null_is_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when the status is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// Whether something is so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It is.
    True,
    /// It is not.
    False,
    /// That is not known.
    #[default]
    Unknown,
    /// A word that is new to us.
    #[serde(untagged)]
    Other(String),
}

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::capi::Reference;
use super::object::{count, null_is_default, number};

/// How a `LoadBalancer` stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// The spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What members are: kind and group.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub target_kind: String,
    /// Which of them, as a query has it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub target_selector: String,
    /// Everybody who is a member, or was and has not left yet.
    #[serde(deserialize_with = "null_is_default")]
    pub targets: Vec<Target>,
    /// Who gets traffic.
    #[serde(deserialize_with = "null_is_default")]
    pub active_targets: Vec<String>,
    /// Where it is found, whatever its endpoint is called.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Who may connect, as it is in force: absent is everyone, an empty list is nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_source_ranges: Option<Vec<String>>,
    /// What is asked to make it, and what was before and has not been given up yet. Nothing else tells that after its reference was
    /// changed.
    #[serde(deserialize_with = "null_is_default")]
    pub infrastructure_refs: Vec<Reference>,
    /// What is to be known about it.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

/// A member of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Where it is: `adding`, `active`, `disabling`, `disabled`, `draining`, `removed`, or a provider's own word.
    pub status: String,
    /// How many connections it has, where that can be counted.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a load balancer stands with its provider: what every provider's object has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureStatus {
    /// The spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far its making is.
    #[serde(deserialize_with = "null_is_default")]
    pub initialization: Initialization,
    /// Where it is found.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Who may connect, as it is in force: absent is everyone, an empty list is nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_source_ranges: Option<Vec<String>>,
    /// Where its members are.
    #[serde(deserialize_with = "null_is_default")]
    pub members: Vec<MemberStatus>,
    /// The machines that carry it, where it is on machines.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<Instance>,
    /// What is to be known about it.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

/// How far the making of something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Initialization {
    /// It was made.
    #[serde(deserialize_with = "null_is_default")]
    pub provisioned: bool,
}

/// Where a member is, by its provider.
pub type MemberStatus = Target;

/// A machine that carries a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// The pool that it is of. Versions before this one did not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// The generation of the object that it has carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Addresses that it is found at.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Whether it has the shared address now, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_address: Option<bool>,
    /// Who may connect by it, while that is not what is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_source_ranges: Option<Vec<String>>,
    /// Where members are, on it.
    #[serde(deserialize_with = "null_is_default")]
    pub members: Vec<InstanceMember>,
    /// Why it does not carry it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A member, as one machine sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceMember {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub status: String,
    /// How many connections it has there, if it is not to serve any more. Of others that is not told: it always changes.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// How many connections were ended when their time was over.
    #[serde(deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub ended: u64,
    /// What its check says, if it does not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One thing to be known about an object. What is missing in others' is no reason not to read the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`: whether it is so.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// Why, in one word.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// Why, in sentences.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
    /// Since when the status is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A condition of that type.
pub fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Makes a condition be so. Since when is only new if it was not so before.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) {
    let found = conditions.iter_mut().find(|condition| condition.type_ == type_);
    let since = found.as_ref().filter(|found| found.status == status);
    let since = since.and_then(|found| found.last_transition_time.clone());
    let new = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
    };
    match found {
        Some(found) => *found = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Any machine may write its entry: what it says there must not keep anybody from reading the rest.
    #[test]
    fn numbers_that_are_none_say_nothing() {
        for (number, read) in [
            (json!(3), Some(3)),
            (json!(0), Some(0)),
            (json!(null), None),
            (json!(-1), None),
            (json!(1.5), None),
            (json!(1e300), None),
        ] {
            let member = json!({"name": "m", "status": "active", "connections": number, "ended": number});
            let told: MemberStatus = serde_json::from_value(member.clone()).unwrap();
            assert_eq!((told.connections, told.status.as_str()), (read, "active"), "{number}");
            let instance: Instance =
                serde_json::from_value(json!({"name": "a", "members": [member]})).unwrap();
            let told = &instance.members[0];
            assert_eq!((told.connections, told.ended), (read, read.unwrap_or_default()), "{number}");
        }
    }
}

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Rule;
use crate::text::{is_name, quoted};

/// What a provider calls a group, in its own form: an AWS group id, an OpenStack UUID, a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupId(String);

/// The text cannot stand for a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{} is not the id of a group: it is empty, has spaces around it or control or invisible characters in it",
    quoted(.0)
)]
pub struct GroupIdError(String);

impl GroupId {
    /// The id of that text.
    pub fn new(text: impl Into<String>) -> Result<Self, GroupIdError> {
        let text = text.into();
        if is_name(&text) { Ok(Self(text)) } else { Err(GroupIdError(text)) }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for GroupId {
    type Error = GroupIdError;

    fn try_from(text: String) -> Result<Self, GroupIdError> {
        Self::new(text)
    }
}

impl From<GroupId> for String {
    fn from(id: GroupId) -> Self {
        id.0
    }
}

/// Endpoints that share rules. What no rule of any of its groups allows is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecurityGroup {
    /// What rules call it.
    pub id: GroupId,
    /// What people call it.
    pub name: String,
    /// What is allowed.
    pub rules: Vec<Rule>,
    /// Whether the answer to an allowed connection is allowed too. Without it, each way needs its own rule.
    pub stateful: bool,
}

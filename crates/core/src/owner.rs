use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::text::{is_name, plain_number, quoted};

/// Whose an object is: the cluster and the thing in it that wants the object.
///
/// It is written on every object that is made, as pairs of key and value that each provider stores in its
/// own way. There is no UID in it: a restored or moved thing has another UID, and is the same owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Owner {
    cluster: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
}

/// Why an owner cannot be, or cannot be read from an object. Such an object is not touched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OwnerError {
    /// Some of the keys are there, this one is not.
    #[error(
        "the owner is marked in part, without `{0}`: add the mark, or remove the other `portcullis.dev/` marks"
    )]
    Missing(&'static str),
    /// A key is there twice, and nobody can say which one counts.
    #[error("the owner is marked twice with `{0}`: remove one")]
    Twice(&'static str),
    /// A value that names nothing.
    #[error(
        "{} is not a value for `{key}`: it is empty, or has spaces around it or `/`, control or invisible characters in it",
        quoted(.value)
    )]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// The format is not a number.
    #[error("the owner is marked in format {}, which is not a number", quoted(.0))]
    Format(String),
    /// Written by a later version.
    #[error(
        "the owner is marked in format {0}, and this version reads up to {known}: use a newer one",
        known = Owner::FORMAT
    )]
    NewerFormat(u32),
}

impl Owner {
    /// The format that is written. A change of the keys or of what they mean makes it one more.
    pub const FORMAT: u32 = 1;
    /// The key of the format.
    pub const FORMAT_KEY: &'static str = "portcullis.dev/format";
    /// The key of the cluster.
    pub const CLUSTER_KEY: &'static str = "portcullis.dev/cluster";
    /// The key of the kind.
    pub const KIND_KEY: &'static str = "portcullis.dev/kind";
    /// The key of the namespace; absent where there is none.
    pub const NAMESPACE_KEY: &'static str = "portcullis.dev/namespace";
    /// The key of the name.
    pub const NAME_KEY: &'static str = "portcullis.dev/name";
    /// The key of what tells a cluster from others that had, or have, its name. It does not say whose a thing is: a cluster
    /// that was restored is another one, and what is there for its objects is still theirs.
    pub const IDENTITY_KEY: &'static str = "portcullis.dev/cluster-id";
    /// The key of from whom something was taken over. It does not say whose a thing is.
    pub const ADOPTED_KEY: &'static str = "portcullis.dev/adopted";

    /// The key of where clients were last known to find what is of an owner, among what is said to a provider.
    pub const ADDRESS_KEY: &'static str = "portcullis.dev/address";

    /// The thing of that kind and name in that cluster.
    pub fn new(
        cluster: impl Into<String>,
        kind: impl Into<String>,
        namespace: Option<String>,
        name: impl Into<String>,
    ) -> Result<Self, OwnerError> {
        Ok(Self {
            cluster: value(Self::CLUSTER_KEY, cluster.into())?,
            kind: value(Self::KIND_KEY, kind.into())?,
            namespace: namespace.map(|namespace| value(Self::NAMESPACE_KEY, namespace)).transpose()?,
            name: value(Self::NAME_KEY, name.into())?,
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The kind of thing.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its namespace, if it is in one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What to write on an object.
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![
            (Self::FORMAT_KEY, Self::FORMAT.to_string()),
            (Self::CLUSTER_KEY, self.cluster.clone()),
            (Self::KIND_KEY, self.kind.clone()),
            (Self::NAME_KEY, self.name.clone()),
        ];
        if let Some(namespace) = &self.namespace {
            pairs.push((Self::NAMESPACE_KEY, namespace.clone()));
        }
        pairs
    }

    /// Whose an object is by what is written on it. `None` means that it is not ours; an error means that it
    /// may be, and that nobody can say whose: either way it is not to be touched.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, OwnerError> {
        let keys = [Self::FORMAT_KEY, Self::CLUSTER_KEY, Self::KIND_KEY, Self::NAMESPACE_KEY, Self::NAME_KEY];
        let mut marks: BTreeMap<&'static str, &str> = BTreeMap::new();
        for (key, value) in pairs {
            let Some(key) = keys.into_iter().find(|known| *known == key) else {
                continue;
            };
            if marks.insert(key, value).is_some() {
                return Err(OwnerError::Twice(key));
            }
        }
        if marks.is_empty() {
            return Ok(None);
        }
        let mark = |key: &'static str| marks.get(key).copied().ok_or(OwnerError::Missing(key));
        // The format comes first: a later one may well do without a key of this one.
        let format = mark(Self::FORMAT_KEY)?;
        match plain_number(format) {
            None | Some(0) => return Err(OwnerError::Format(format.to_owned())),
            Some(format) if format > Self::FORMAT => return Err(OwnerError::NewerFormat(format)),
            Some(_) => {}
        }
        Self::new(
            mark(Self::CLUSTER_KEY)?,
            mark(Self::KIND_KEY)?,
            marks.get(Self::NAMESPACE_KEY).map(|namespace| (*namespace).to_owned()),
            mark(Self::NAME_KEY)?,
        )
        .map(Some)
    }
}

fn value(key: &'static str, value: String) -> Result<String, OwnerError> {
    if is_name(&value) && !value.contains('/') { Ok(value) } else { Err(OwnerError::Value { key, value }) }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Owner {
        Owner::new("demo", "Service", Some("shop".to_owned()), "web").unwrap()
    }

    fn read(pairs: &[(&'static str, String)]) -> Result<Option<Owner>, OwnerError> {
        Owner::from_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str())))
    }

    #[test]
    fn prints_kind_and_name() {
        assert_eq!(web().to_string(), "Service shop/web");
        assert_eq!(
            Owner::new("demo", "IngressController", None, "default").unwrap().to_string(),
            "IngressController default"
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        let cluster_wide = Owner::new("demo", "Cluster", None, "prod").unwrap();
        for owner in [web(), cluster_wide] {
            assert_eq!(read(&owner.to_pairs()), Ok(Some(owner)));
        }
    }

    #[test]
    fn without_our_keys_it_is_not_ours() {
        assert_eq!(Owner::from_pairs([]), Ok(None));
        assert_eq!(
            Owner::from_pairs([("kubernetes.io/cluster/demo", "owned"), ("portcullis.dev/remark", "x")]),
            Ok(None)
        );
    }

    #[test]
    fn a_missing_mark_is_an_error() {
        for key in [Owner::FORMAT_KEY, Owner::CLUSTER_KEY, Owner::KIND_KEY, Owner::NAME_KEY] {
            let mut pairs = web().to_pairs();
            pairs.retain(|(other, _)| *other != key);
            assert_eq!(read(&pairs), Err(OwnerError::Missing(key)));
        }
        assert_eq!(
            Owner::from_pairs([(Owner::NAMESPACE_KEY, "shop")]),
            Err(OwnerError::Missing(Owner::FORMAT_KEY))
        );
    }

    #[test]
    fn a_mark_given_twice_is_an_error() {
        for (key, value) in web().to_pairs() {
            let mut pairs = web().to_pairs();
            pairs.push((key, value));
            assert_eq!(read(&pairs), Err(OwnerError::Twice(key)));
        }
    }

    #[test]
    fn another_format_is_an_error() {
        for (format, error) in [
            ("2", OwnerError::NewerFormat(2)),
            ("0", OwnerError::Format("0".to_owned())),
            ("v1", OwnerError::Format("v1".to_owned())),
            ("", OwnerError::Format(String::new())),
        ] {
            // Even where the other keys are not what this format knows.
            assert_eq!(Owner::from_pairs([(Owner::FORMAT_KEY, format)]), Err(error));
        }
        assert_eq!(
            OwnerError::NewerFormat(2).to_string(),
            "the owner is marked in format 2, and this version reads up to 1: use a newer one"
        );
    }

    #[test]
    fn values_name_something() {
        for (cluster, kind, namespace, name, key) in [
            ("", "Service", "shop", "web", Owner::CLUSTER_KEY),
            ("demo", "a/b", "shop", "web", Owner::KIND_KEY),
            ("demo", "Service", "", "web", Owner::NAMESPACE_KEY),
            ("demo", "Service", "shop", "web\n", Owner::NAME_KEY),
        ] {
            let result = Owner::new(cluster, kind, Some(namespace.to_owned()), name);
            assert!(matches!(result, Err(OwnerError::Value { key: refused, .. }) if refused == key), "{key}");
        }
    }
}

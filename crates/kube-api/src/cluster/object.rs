use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// An object of any kind, with as much of it as is read here. What is absent, or null, has its defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, bound = "S: Default + DeserializeOwned, T: Default + DeserializeOwned")]
pub struct Object<S, T> {
    /// Its name, labels and so on.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: S,
    /// How it stands.
    #[serde(deserialize_with = "null_is_default")]
    pub status: T,
}

impl<S, T> Object<S, T> {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Whether it was deleted, and only waits for those who hold it.
    pub fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether it is held by this finalizer.
    pub fn is_held_by(&self, finalizer: &str) -> bool {
        self.metadata.finalizers.iter().flatten().any(|found| found == finalizer)
    }
}

/// A number that cannot be meant, as one below zero, says nothing: it must not keep all else from being read.
pub(super) fn number<'de, D, N>(deserializer: D) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64>,
{
    let number: Option<serde_json::Number> = Option::deserialize(deserializer)?;
    Ok(number.and_then(|number| number.as_u64()).and_then(|number| N::try_from(number).ok()))
}

/// The same, where nothing is zero.
pub(super) fn count<'de, D, N>(deserializer: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64> + Default,
{
    Ok(number(deserializer)?.unwrap_or_default())
}

pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

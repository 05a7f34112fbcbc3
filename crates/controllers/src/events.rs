//! Events: what people see when they describe an object.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use tracing::warn;

/// Whether something needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Normal,
    Warning,
}

/// Writes Events.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    component: String,
    host: String,
}

/// What the API takes for a message.
const LONGEST: usize = 1024;

impl Events {
    pub(crate) fn new(client: Client, component: &str, host: &str) -> Self {
        Events { client, component: component.to_owned(), host: host.to_owned() }
    }

    /// Tells something about an object. What was told already in the same words counts once more.
    pub(crate) async fn tell<K>(&self, object: &K, weight: Weight, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.tell_of(&object.object_ref(&()), weight, reason, message).await;
    }

    /// The same of an object that is only referred to.
    pub(crate) async fn tell_of(
        &self,
        object: &ObjectReference,
        weight: Weight,
        reason: &str,
        message: &str,
    ) {
        if let Err(error) = self.write(object, weight, reason, message).await {
            let name = object.name.as_deref().unwrap_or_default();
            warn!(object = name, reason, %error, "an event could not be written");
        }
    }

    async fn write(
        &self,
        object: &ObjectReference,
        weight: Weight,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let message = shortened(message);
        let name = name(object, reason, &message);
        let now = Time(Timestamp::now());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: object.clone(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(format!("{weight:?}")),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(self.host.clone()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now.clone()),
            count: Some(1),
            ..Event::default()
        };
        match api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let count = api.get(&name).await?.count.unwrap_or(1).saturating_add(1);
                let again = json!({"count": count, "lastTimestamp": now});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(again)).await.map(drop)
            }
            other => other.map(drop),
        }
    }
}

fn shortened(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let end = (0..=LONGEST - '…'.len_utf8()).rev().find(|place| message.is_char_boundary(*place));
    format!("{}…", &message[..end.unwrap_or(0)])
}

/// The same for the same words about the same object.
fn name(object: &ObjectReference, reason: &str, message: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    (&object.uid, reason, message).hash(&mut hash);
    format!("{}.{:016x}", object.name.as_deref().unwrap_or_default(), hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_letters() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"é".repeat(1000));
        assert!(long.len() <= LONGEST && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn the_same_words_have_the_same_name() {
        let object = |uid: &str| ObjectReference {
            name: Some("web".into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        assert_eq!(name(&object("1"), "A", "b"), name(&object("1"), "A", "b"));
        assert_ne!(name(&object("1"), "A", "b"), name(&object("1"), "A", "c"));
        assert_ne!(name(&object("1"), "A", "b"), name(&object("2"), "A", "b"));
    }
}

//! Objects of kinds that are only known when the program runs, read as far as they matter here.

use std::borrow::Cow;
use std::ops::Deref;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use portcullis_kube_api::cluster::{
    ClusterSpec, ClusterStatus, ControlPlaneSpec, InfrastructureSpec, InfrastructureStatus, Kind,
    LoadBalancerSpec, LoadBalancerStatus, MachineSpec, MachineStatus, Object,
};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of a kind that is told apart.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent, bound = "S: Default + DeserializeOwned, T: Default + DeserializeOwned")]
pub(crate) struct Thing<S, T>(pub(crate) Object<S, T>);

pub(super) type LoadBalancer = Thing<LoadBalancerSpec, LoadBalancerStatus>;
pub(super) type Cluster = Thing<ClusterSpec, ClusterStatus>;
pub(super) type ControlPlane = Thing<ControlPlaneSpec, ClusterStatus>;
/// A Machine, or whatever else can be a member.
pub(super) type Machine = Thing<MachineSpec, MachineStatus>;
pub(super) type Infrastructure = Thing<InfrastructureSpec, InfrastructureStatus>;

impl<S, T> Deref for Thing<S, T> {
    type Target = Object<S, T>;

    fn deref(&self) -> &Object<S, T> {
        &self.0
    }
}

/// An object as the API told of it: its halves, or why one of them cannot be read. A list has all of a kind, and one that cannot be
/// read must not keep all others from being seen.
#[derive(Clone, Debug)]
pub(crate) struct Told<S, T> {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Result<S, String>,
    pub(crate) status: Result<T, String>,
}

impl<S, T> From<Thing<S, T>> for Told<S, T> {
    fn from(Thing(Object { metadata, spec, status }): Thing<S, T>) -> Self {
        Told { metadata, spec: Ok(spec), status: Ok(status) }
    }
}

impl<'de, S, T> Deserialize<'de> for Told<S, T>
where
    S: Default + DeserializeOwned,
    T: Default + DeserializeOwned,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Halves that are not looked into yet.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Halves {
            metadata: Value,
            spec: Value,
            status: Value,
        }
        fn half<H: Default + DeserializeOwned>(name: &str, value: Value) -> Result<H, String> {
            let read: Result<Option<H>, _> = serde_json::from_value(value);
            read.map(Option::unwrap_or_default).map_err(|why| format!("its {name} cannot be read: {why}"))
        }
        let Halves { metadata, spec, status } = Halves::deserialize(deserializer)?;
        let metadata: Option<ObjectMeta> = serde_json::from_value(metadata).map_err(D::Error::custom)?;
        Ok(Told {
            metadata: metadata.unwrap_or_default(),
            spec: half("spec", spec),
            status: half("status", status),
        })
    }
}

/// Both are of a kind that is only known when the program runs.
macro_rules! of_a_kind {
    ($name:ident, $object:ident => $metadata:expr) => {
        impl<S, T> Resource for $name<S, T> {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(kind: &ApiResource) -> Cow<'_, str> {
                kind.kind.as_str().into()
            }

            fn group(kind: &ApiResource) -> Cow<'_, str> {
                kind.group.as_str().into()
            }

            fn version(kind: &ApiResource) -> Cow<'_, str> {
                kind.version.as_str().into()
            }

            fn api_version(kind: &ApiResource) -> Cow<'_, str> {
                kind.api_version.as_str().into()
            }

            fn plural(kind: &ApiResource) -> Cow<'_, str> {
                kind.plural.as_str().into()
            }

            fn meta(&self) -> &ObjectMeta {
                let $object = self;
                &$metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                let $object = self;
                &mut $metadata
            }
        }
    };
}

of_a_kind!(Thing, object => object.0.metadata);
of_a_kind!(Told, object => object.metadata);

/// A kind of ours, as the client wants to know it.
pub(super) fn resource(kind: Kind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: format!("{}/{}", kind.group, kind.version),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

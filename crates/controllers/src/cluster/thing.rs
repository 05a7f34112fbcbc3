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
use serde::Deserialize;
use serde::de::DeserializeOwned;

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

impl<S, T> Resource for Thing<S, T> {
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
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

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

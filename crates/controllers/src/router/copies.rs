//! What routers read and people write elsewhere: it is copied to where routers can read it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_kube_api::ingress::options::Options;
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL};
use serde_json::json;

use super::{RouterSettings, object};

/// The key under which certificates of authorities are.
pub(super) const AUTHORITIES: &str = "ca-bundle.pem";

/// The keys under which pages for errors are.
pub(super) const ERROR_PAGES: [&str; 2] = ["error-page-503.http", "error-page-404.http"];

/// A `ConfigMap` that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Who says so.
    field: &'static str,
    /// The name of the copy.
    pub name: String,
    /// The name of what is copied; there is no copy, if there is none.
    pub source: Option<String>,
    /// The keys that it has to have: a router that finds less does not start.
    keys: &'static [&'static str],
}

pub(super) fn client_authorities_name(controller: &IngressController) -> String {
    format!("router-client-ca-{}", controller.name())
}

pub(super) fn error_pages_name(controller: &IngressController) -> String {
    format!("{}-errorpages", controller.name())
}

/// What is copied for an `IngressController`.
pub fn copies(controller: &IngressController) -> [Copied; 2] {
    let options = Options::of(controller);
    [
        Copied {
            field: "spec.clientTLS.clientCA",
            name: client_authorities_name(controller),
            source: options.client_tls.map(|client| client.authorities),
            keys: &[AUTHORITIES],
        },
        Copied {
            field: "spec.httpErrorCodePages",
            name: error_pages_name(controller),
            source: options.error_pages,
            keys: &ERROR_PAGES,
        },
    ]
}

/// What a copy should be by what is there to be copied; or what is missing. Routers are not built without it: they would let in
/// whom nobody wants to.
pub fn copied(
    copied: &Copied,
    source: Option<&ConfigMap>,
    controller: &IngressController,
    settings: &RouterSettings,
) -> Result<Option<ConfigMap>, String> {
    let Some(name) = &copied.source else { return Ok(None) };
    let (field, namespace) = (copied.field, &settings.config_namespace);
    let Some(source) = source else {
        return Err(format!(
            "{field} names ConfigMap {namespace}/{name}, which is not there; routers stay as they are. Create it, or name another one."
        ));
    };
    let texts = source.data.clone().unwrap_or_default();
    let bytes = source.binary_data.clone().unwrap_or_default();
    let has = |key: &&&str| texts.contains_key(**key) || bytes.contains_key(**key);
    let missing: Vec<&str> = copied.keys.iter().filter(|key| !has(key)).copied().collect();
    if !missing.is_empty() {
        return Err(format!(
            "{field} names ConfigMap {namespace}/{name}, which has no key {}; routers stay as they are. Add it, or name another ConfigMap.",
            missing.join(", ")
        ));
    }
    let mut copy: ConfigMap = object(json!({"metadata": {
        "name": copied.name,
        "namespace": settings.namespace,
        "labels": {OWNING_LABEL: controller.name()},
    }}));
    copy.data = Some(only(texts, copied.keys)).filter(|texts| !texts.is_empty());
    copy.binary_data = Some(only::<ByteString>(bytes, copied.keys)).filter(|bytes| !bytes.is_empty());
    Ok(Some(copy))
}

fn only<T>(mut all: BTreeMap<String, T>, keys: &[&str]) -> BTreeMap<String, T> {
    all.retain(|key, _| keys.contains(&key.as_str()));
    all
}

/// What of a `ConfigMap` that is there has to change. All of its content is ours.
pub fn changed_config(current: &ConfigMap, desired: &ConfigMap) -> Option<ConfigMap> {
    let mut wanted = super::changed(current, desired).unwrap_or_else(|| current.clone());
    wanted.data.clone_from(&desired.data);
    wanted.binary_data.clone_from(&desired.binary_data);
    (wanted != *current).then_some(wanted)
}

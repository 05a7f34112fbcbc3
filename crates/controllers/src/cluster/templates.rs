//! Load balancers that are made from templates: one for each Cluster that names one, or whose `ClusterClass` does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::ApiResource;
use portcullis_kube_api::cluster::{
    CLUSTER_LABEL, CONTROL_PLANE, ClusterSpec, ClusterStatus, Flavour, Reference, TEMPLATE, is_paused,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use super::kinds::Kinds;
use super::queue::Queue;
use super::shelf::{Key, key};
use super::thing::{Thing, resource};

/// Makes load balancers from templates.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct Templates {
    client: Client,
    flavour: Flavour,
    namespace: Option<String>,
}

/// What a template has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    template: Template,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Metadata,
    spec: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Nothing {}

struct Context {
    client: Client,
    flavour: Flavour,
    clusters: Kinds<ClusterSpec, ClusterStatus>,
    classes: Kinds<Nothing, Nothing>,
    templates: Kinds<TemplateSpec, Nothing>,
}

const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
const GROUP: &str = "cluster.x-k8s.io";

impl Templates {
    /// For the Clusters of a namespace, or of all.
    pub fn new(client: Client, flavour: Flavour, namespace: Option<String>) -> Self {
        Templates { client, flavour, namespace }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let queue: Arc<Queue> = Arc::new(Queue::new("a cluster made from a template", BACKOFF));
        let of_cluster = Arc::clone(&queue);
        let namespace = self.namespace.as_deref();
        let context = Context {
            clusters: Kinds::new(
                self.client.clone(),
                namespace,
                move |_, _, cluster: &Thing<ClusterSpec, ClusterStatus>| {
                    of_cluster.add(key(cluster));
                },
            ),
            classes: Kinds::new(self.client.clone(), namespace, |_, _, _| {}),
            templates: Kinds::new(self.client.clone(), namespace, |_, _, _| {}),
            client: self.client.clone(),
            flavour: self.flavour,
        };
        while context.clusters.shelf(GROUP, "Cluster").await.is_err() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        queue.run(4, |key| context.reconcile(key)).await;
    }
}

impl Context {
    async fn reconcile(&self, key: Key) -> Result<Option<Duration>, String> {
        let clusters = self.clusters.shelf(GROUP, "Cluster").await?;
        let Some(cluster) = clusters.get(&key.0, &key.1) else { return Ok(None) };
        // One that has a load balancer is left alone, wherever that comes from.
        if cluster.is_going()
            || is_paused(&cluster, Some(&cluster.0))
            || cluster.annotation(CONTROL_PLANE).is_some()
        {
            return Ok(None);
        }
        let Some(name) = self.template_of(&cluster).await? else { return Ok(None) };
        let of_balancers = self.flavour.load_balancer();
        let kind = format!("{}Template", of_balancers.kind);
        let template = self.template(&key.0, of_balancers.group, &kind, &name).await?;
        let mut spec = template.spec.clone();
        if !spec.is_object() {
            spec = json!({});
        }
        let reference: Reference =
            serde_json::from_value(spec["infrastructureRef"].clone()).unwrap_or_default();
        if !reference.name.is_empty() {
            let made_kind = reference.kind.strip_suffix("Template").ok_or_else(|| {
                format!(
                    "{kind} {name}: infrastructureRef names a {}, and a template is needed",
                    reference.kind
                )
            })?;
            let group = reference.api_group.clone().unwrap_or_else(|| of_balancers.group.to_owned());
            let maker = self.template(&key.0, &group, &reference.kind, &reference.name).await?;
            let shelf = self.templates.shelf(&group, &reference.kind).await?;
            let of_template = shelf.resource();
            let plural = of_template.plural.replace("templates", "s");
            let resource = ApiResource { kind: made_kind.to_owned(), plural, ..of_template.clone() };
            self.make(&resource, &cluster, &maker, maker.spec.clone()).await?;
            spec["infrastructureRef"] = json!({"apiGroup": group, "kind": made_kind, "name": cluster.name()});
        }
        spec["clusterName"] = json!(cluster.name());
        self.make(&resource(of_balancers), &cluster, &template, spec).await?;
        let patch = json!({"metadata": {"annotations": {CONTROL_PLANE: cluster.name()}}});
        clusters.patch(&self.client, &cluster, patch).await?;
        info!(
            namespace = key.0,
            cluster = key.1,
            template = name,
            "a load balancer was made from its template"
        );
        Ok(None)
    }

    /// The template that a Cluster, or its class, names.
    async fn template_of(
        &self,
        cluster: &Thing<ClusterSpec, ClusterStatus>,
    ) -> Result<Option<String>, String> {
        if let Some(name) = cluster.annotation(TEMPLATE) {
            return Ok(Some(name.to_owned()));
        }
        let Some((namespace, name)) = cluster.spec.class(cluster.namespace()) else { return Ok(None) };
        let classes = self.classes.shelf(GROUP, "ClusterClass").await?;
        let class = classes.get(&namespace, &name);
        Ok(class.and_then(|class| class.annotation(TEMPLATE).map(str::to_owned)))
    }

    async fn template(
        &self,
        namespace: &str,
        group: &str,
        kind: &str,
        name: &str,
    ) -> Result<Template, String> {
        let shelf = self.templates.shelf(group, kind).await?;
        let found = shelf.get(namespace, name).ok_or_else(|| format!("there is no {kind} {name}"))?;
        Ok(found.spec.template.clone())
    }

    async fn make(
        &self,
        resource: &ApiResource,
        cluster: &Thing<ClusterSpec, ClusterStatus>,
        template: &Template,
        spec: Value,
    ) -> Result<(), String> {
        let mut labels = template.metadata.labels.clone();
        labels.insert(CLUSTER_LABEL.to_owned(), cluster.name().to_owned());
        let object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": cluster.name(),
                "namespace": cluster.namespace(),
                "labels": labels,
                "annotations": template.metadata.annotations,
            },
            "spec": if spec.is_object() { spec } else { json!({}) },
        });
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), cluster.namespace(), resource);
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            // It was made before this was ended.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

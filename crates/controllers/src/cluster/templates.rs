//! Load balancers that are made from templates: one for each Cluster that names one, or whose `ClusterClass` does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Client, Resource};
use portcullis_kube_api::cluster::{
    CLUSTER_LABEL, CONTROL_PLANE, ClusterSpec, ClusterStatus, Flavour, Reference, TEMPLATE, is_paused,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use super::kinds::{Kinds, Lack};
use super::queue::Queue;
use super::shelf::{Key, Shelf, key};
use super::thing::{Cluster, Thing, resource};
use crate::events::{Events, Weight};

/// Makes load balancers from templates.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct Templates {
    client: Client,
    flavour: Flavour,
    namespace: Option<String>,
    host: String,
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
    events: Events,
    known: Arc<Known>,
    /// What was told of each last: it is told once, however often it is tried.
    told: Mutex<BTreeMap<Key, String>>,
}

/// The Clusters that there are, with their classes.
type Known = Mutex<BTreeMap<Key, Option<Key>>>;

const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
const GROUP: &str = "cluster.x-k8s.io";

impl Templates {
    /// For the Clusters of a namespace, or of all; `host` says who this is, in Events.
    pub fn new(client: Client, flavour: Flavour, namespace: Option<String>, host: String) -> Self {
        Templates { client, flavour, namespace, host }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let queue: Arc<Queue> = Arc::new(Queue::new("a cluster made from a template", BACKOFF));
        let known: Arc<Known> = Arc::default();
        let namespace = self.namespace.as_deref();
        let of_cluster = {
            let (queue, known) = (Arc::clone(&queue), Arc::clone(&known));
            move |_: &str, _: &str, cluster: &Cluster| {
                let class = cluster.spec.class(cluster.namespace());
                known.lock().unwrap_or_else(PoisonError::into_inner).insert(key(cluster), class);
                queue.add(key(cluster));
            }
        };
        // A class or a template may be made, or put right, after the Clusters that wait for it.
        let of_class = {
            let (queue, known) = (Arc::clone(&queue), Arc::clone(&known));
            move |_: &str, _: &str, class: &Thing<Nothing, Nothing>| {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let of_it = known.iter().filter(|(_, of)| of.as_ref() == Some(&key(class)));
                of_it.for_each(|(cluster, _)| queue.add(cluster.clone()));
            }
        };
        let of_template = {
            let (queue, known) = (Arc::clone(&queue), Arc::clone(&known));
            move |_: &str, _: &str, template: &Thing<TemplateSpec, Nothing>| {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let beside = known.keys().filter(|(namespace, _)| namespace == template.namespace());
                beside.for_each(|cluster| queue.add(cluster.clone()));
            }
        };
        let context = Context {
            clusters: Kinds::new(self.client.clone(), namespace, of_cluster),
            classes: Kinds::new(self.client.clone(), namespace, of_class),
            templates: Kinds::new(self.client.clone(), namespace, of_template),
            events: Events::new(self.client.clone(), "load-balancer-templates", &self.host),
            known,
            told: Mutex::default(),
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
        let Some(cluster) = clusters.get(&key.0, &key.1) else {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(None);
        };
        // One that has a load balancer is left alone, wherever that comes from.
        if cluster.is_going()
            || is_paused(&cluster, Some(&cluster.0))
            || cluster.annotation(CONTROL_PLANE).is_some()
        {
            return Ok(None);
        }
        let made = self.make_all(&clusters, &cluster).await;
        let before = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            match &made {
                Ok(()) => told.remove(&key),
                Err(why) => told.insert(key, why.clone()),
            }
        };
        if let Err(why) = &made
            && before.as_ref() != Some(why)
        {
            let message = format!("Its load balancer cannot be made from a template: {why}.");
            let object = cluster.object_ref(clusters.resource());
            self.events.tell_of(&object, Weight::Warning, "TemplateUnusable", &message).await;
        }
        made.map(|()| None)
    }

    /// Makes what the template of a Cluster says, if it has one.
    async fn make_all(
        &self,
        clusters: &Shelf<ClusterSpec, ClusterStatus>,
        cluster: &Cluster,
    ) -> Result<(), String> {
        let Some(name) = self.template_of(cluster).await? else { return Ok(()) };
        let of_balancers = self.flavour.load_balancer();
        let kind = format!("{}Template", of_balancers.kind);
        let namespace = cluster.namespace();
        let template = self.template(namespace, of_balancers.group, &kind, &name).await?;
        let mut spec = template.spec.clone();
        if !spec.is_object() {
            spec = json!({});
        }
        let unusable = |why: &str| format!("{kind} {name}: infrastructureRef {why}");
        let reference: Option<Reference> = serde_json::from_value(spec["infrastructureRef"].clone())
            .map_err(|error| unusable(&format!("cannot be read: {error}")))?;
        if let Some(reference) = reference {
            if reference.name.is_empty() {
                return Err(unusable("has no name"));
            }
            let made_kind = reference
                .kind
                .strip_suffix("Template")
                .ok_or_else(|| unusable(&format!("names a {}, and a template is needed", reference.kind)))?;
            let group = reference.api_group.clone().unwrap_or_else(|| of_balancers.group.to_owned());
            let maker = self.template(namespace, &group, &reference.kind, &reference.name).await?;
            let shelf = self.templates.shelf(&group, &reference.kind).await?;
            let of_template = shelf.resource();
            let plural = of_template.plural.replace("templates", "s");
            let resource = ApiResource { kind: made_kind.to_owned(), plural, ..of_template.clone() };
            self.make(&resource, cluster, &reference.name, &maker, maker.spec.clone()).await?;
            spec["infrastructureRef"] = json!({"apiGroup": group, "kind": made_kind, "name": cluster.name()});
        }
        spec["clusterName"] = json!(cluster.name());
        self.make(&resource(of_balancers), cluster, &name, &template, spec).await?;
        let patch = json!({"metadata": {"annotations": {CONTROL_PLANE: cluster.name()}}});
        clusters.patch(&self.client, cluster, patch).await?;
        info!(
            namespace,
            cluster = cluster.name(),
            template = name,
            "a load balancer was made from its template"
        );
        Ok(())
    }

    /// The template that a Cluster, or its class, names.
    async fn template_of(&self, cluster: &Cluster) -> Result<Option<String>, String> {
        if let Some(name) = cluster.annotation(TEMPLATE) {
            return Ok(Some(name.to_owned()));
        }
        let Some((namespace, name)) = cluster.spec.class(cluster.namespace()) else { return Ok(None) };
        let classes = Lack::none(self.classes.shelf(GROUP, "ClusterClass").await)?;
        let class = classes.and_then(|classes| classes.get(&namespace, &name));
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
        cluster: &Cluster,
        from: &str,
        template: &Template,
        spec: Value,
    ) -> Result<(), String> {
        let mut labels = template.metadata.labels.clone();
        labels.insert(CLUSTER_LABEL.to_owned(), cluster.name().to_owned());
        let mut annotations = template.metadata.annotations.clone();
        annotations.insert(TEMPLATE.to_owned(), from.to_owned());
        let object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": cluster.name(),
                "namespace": cluster.namespace(),
                "labels": labels,
                "annotations": annotations,
            },
            "spec": if spec.is_object() { spec } else { json!({}) },
        });
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), cluster.namespace(), resource);
        let failed = |error: kube::Error| format!("{} {}: {error}", resource.kind, cluster.name());
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
        // It was made before this was ended; or it is somebody's, and for something else.
        let found = api.get(cluster.name()).await.map_err(failed)?;
        let (labels, annotations) = (found.metadata.labels, found.metadata.annotations);
        let is_of_it =
            labels.is_some_and(|labels| labels.get(CLUSTER_LABEL).is_some_and(|name| name == cluster.name()));
        if is_of_it && annotations.is_some_and(|annotations| annotations.contains_key(TEMPLATE)) {
            return Ok(());
        }
        Err(format!(
            "there is a {} {} already that was not made from a template for this Cluster: delete it, give it another name, or name it in the annotation {CONTROL_PLANE} of the Cluster if it is meant",
            resource.kind,
            cluster.name()
        ))
    }
}

//! Takes objects away that are ours, and nothing else.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use portcullis_kube_api::ingress::SINGLE_NODE_LABEL;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Report;
use super::controller::SingleNode;
use super::object::{APPLIED, Whose, place, whose};
use super::objects::{namespaces, possible};
use super::trouble::Trouble;

/// How often is looked whether something is gone.
const LOOK: Duration = Duration::from_millis(250);

/// How often is told what is waited for.
const TELL: Duration = Duration::from_secs(30);

/// What Kubernetes and OpenShift put into every namespace.
const EVERYWHERE: [&str; 5] =
    ["kube-root-ca.crt", "openshift-service-ca.crt", "default", "builder", "deployer"];

/// What comes and goes by itself.
const PASSING: [&str; 3] = ["Event", "Endpoints", "PodMetrics"];

impl SingleNode {
    /// Takes the router away: what sends to it first, and its namespace last.
    pub(super) async fn remove(&self) -> Result<Report, Trouble> {
        let mut report = Report::default();
        let mut all = possible(&self.settings);
        all.reverse();
        for (resource, namespace, name) in all {
            self.take_away(&resource, namespace.as_deref(), &name, &mut report).await?;
        }
        self.take_namespace_away(&mut report).await?;
        Ok(report)
    }

    /// Takes one object away, if it is there and ours, and waits until it is gone.
    pub(super) async fn take_away(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        report: &mut Report,
    ) -> Result<(), Trouble> {
        let api = self.api(resource, namespace);
        let place = place(resource, namespace, name);
        let Some(have) = api.get_opt(name).await.map_err(|error| Trouble::of(&place, &error))? else {
            return Ok(());
        };
        if whose(&have) != Whose::Ours {
            // It was ours, and is in the way of whoever thinks that nothing is left.
            if have.annotations().contains_key(APPLIED) {
                warn!(
                    object = place,
                    label = SINGLE_NODE_LABEL,
                    "not deleted, since somebody took its label off: delete it, or put the label back and start again"
                );
                report.left.push(place);
            }
            return Ok(());
        }
        if !self.settings.observe {
            self.delete(&api, &place, &have).await?;
            self.wait_until_gone(&api, &place, &have).await?;
        }
        info!(object = place, "{}deleted", self.would());
        report.deleted.push(place);
        Ok(())
    }

    async fn take_namespace_away(&self, report: &mut Report) -> Result<(), Trouble> {
        let name = &self.settings.router.namespace;
        let (api, place) = (self.api(&namespaces(), None), place(&namespaces(), None, name));
        let Some(have) = api.get_opt(name).await.map_err(|error| Trouble::of(&place, &error))? else {
            return Ok(());
        };
        if whose(&have) != Whose::Ours {
            return Ok(());
        }
        let others = self.others(name).await?;
        if !others.is_empty() && have.metadata.deletion_timestamp.is_none() {
            let others = others.join(", ");
            warn!(namespace = name, others, "not deleted, since others have something in it");
            report.left.push(format!("{place}: {others}"));
            return Ok(());
        }
        self.take_away(&namespaces(), None, name, report).await
    }

    /// What is in the namespace and not ours, of every kind that there is. What belongs to something else goes with that.
    async fn others(&self, namespace: &str) -> Result<Vec<String>, Trouble> {
        let known = Discovery::new(self.client().clone()).run().await;
        let known = known.map_err(|error| Trouble::of(&format!("what is in {namespace}"), &error))?;
        let mut found = Vec::new();
        for (kind, can) in known.groups().flat_map(ApiGroup::recommended_resources) {
            let listed = can.scope == Scope::Namespaced && can.supports_operation(verbs::LIST);
            if !listed || PASSING.contains(&kind.kind.as_str()) {
                continue;
            }
            let all = self.api(&kind, Some(namespace)).list_metadata(&ListParams::default()).await;
            let all = all.map_err(|error| Trouble::of(&format!("{} of {namespace}", kind.plural), &error))?;
            let others = all.items.iter().filter(|one| {
                one.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
                    && !EVERYWHERE.contains(&one.name_any().as_str())
                    && !one.labels().contains_key(SINGLE_NODE_LABEL)
                    && one.metadata.deletion_timestamp.is_none()
            });
            found.extend(others.map(|one| place(&kind, None, &one.name_any())));
        }
        Ok(found)
    }

    pub(super) async fn delete(
        &self,
        api: &Api<DynamicObject>,
        place: &str,
        have: &DynamicObject,
    ) -> Result<(), Trouble> {
        let uid = Preconditions { uid: have.uid(), ..Preconditions::default() };
        match api.delete(&have.name_any(), &DeleteParams::background().preconditions(uid)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Trouble::of(place, &error)),
        }
    }

    /// Waits until it is gone. One of the same name that comes meanwhile is another one.
    pub(super) async fn wait_until_gone(
        &self,
        api: &Api<DynamicObject>,
        place: &str,
        gone: &DynamicObject,
    ) -> Result<(), Trouble> {
        let mut told = Instant::now();
        loop {
            let have = api.get_metadata_opt(&gone.name_any()).await;
            let have = have.map_err(|error| Trouble::of(place, &error))?;
            if have.is_none_or(|have| have.metadata.uid != gone.metadata.uid) {
                return Ok(());
            }
            if told.elapsed() >= TELL {
                info!(object = place, "waiting until it is gone");
                told = Instant::now();
            }
            sleep(LOOK).await;
        }
    }
}

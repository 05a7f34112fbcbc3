//! Has the router made when we start.

use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use portcullis_core::Problem;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::apply::value;
use super::object::{Object, Whose, whose};
use super::objects::{Seen, namespaces, objects, possible, wanted};
use super::trouble::Trouble;
use super::{Report, SingleNodeSettings};
use crate::router::{copies, named_certificate, usual_certificate};

/// How long to wait after a failure, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The group of types by which a cluster has what OpenShift has.
const OPENSHIFT: &str = "security.openshift.io";

/// Who looks after the router of a single node.
#[derive(Clone)]
pub struct SingleNode {
    client: Client,
    pub(super) settings: SingleNodeSettings,
}

/// How it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All is as the configuration says.
    Done(Report),
    /// It is tried again.
    Waits(Trouble),
}

impl SingleNode {
    /// One for a cluster.
    pub fn new(client: Client, settings: SingleNodeSettings) -> Self {
        SingleNode { client, settings }
    }

    /// Has all as the configuration says, however long it takes, and does nothing more after that. `tell` hears how it goes.
    pub async fn run(self, mut tell: impl FnMut(Step)) {
        let (mut pause, longest) = PAUSE;
        let mut told = None;
        loop {
            match self.once().await {
                Ok(report) => {
                    self.sum_up(&report);
                    tell(Step::Done(report));
                    // What people change from now on is put back when we start again.
                    return pending().await;
                }
                Err(trouble) => {
                    if told.as_ref() != Some(&trouble) {
                        match &trouble {
                            Trouble::Away(why) => warn!(why, "the router of this node has to wait"),
                            Trouble::Problem(problem) => error!("{problem}"),
                        }
                        told = Some(trouble.clone());
                    }
                    tell(Step::Waits(trouble));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    fn sum_up(&self, report: &Report) {
        let (changed, deleted) = (report.changed.len(), report.deleted.len());
        let made = report.made.len() + report.made_anew.len();
        let what = match (self.settings.is_wanted, self.settings.observe) {
            (_, true) => "the router of this node was looked at, and nothing was changed",
            (true, false) => "the router of this node is as the configuration says",
            (false, false) => "this node has no router, as the configuration says",
        };
        info!(made, changed, deleted, "{what}");
    }

    /// Has all as the configuration says, if it can be done now.
    pub async fn once(&self) -> Result<Report, Trouble> {
        if !self.settings.is_wanted {
            return self.remove().await;
        }
        let seen = self.look().await?;
        let wanted = objects(&self.settings, &seen).map_err(Trouble::Problem)?;
        let mut report = Report::default();
        let mut theirs = Vec::new();
        let mut foreign = Vec::new();
        // First of all, so that nothing is done by halves.
        for object in &wanted {
            let Some(have) = self.find(object).await? else { continue };
            if have.metadata.deletion_timestamp.is_some() {
                return Err(Trouble::Away(format!("{} is being deleted", object.place())));
            }
            match whose(&have) {
                Whose::Ours => {}
                // It is used as it is: others may have something in it.
                _ if is_namespace(object) => {}
                Whose::MicroShifts if self.settings.take_over => theirs.push((object, have)),
                whose => foreign.push((object.place(), whose)),
            }
        }
        if let Some(problem) = refused(&foreign) {
            return Err(Trouble::Problem(problem));
        }
        for (object, have) in theirs.iter().rev() {
            self.take_over(object, have, &mut report).await?;
        }
        for object in &wanted {
            let have = self.find(object).await?.filter(|_| !self.is_to_go(&theirs, object));
            if is_namespace(object) && have.as_ref().is_some_and(|have| whose(have) != Whose::Ours) {
                continue;
            }
            self.apply(object, have.as_ref(), &mut report).await?;
        }
        self.tidy(&wanted, &mut report).await?;
        Ok(report)
    }

    /// Whether an object is there only because we do nothing.
    fn is_to_go(&self, theirs: &[(&Object, DynamicObject)], object: &Object) -> bool {
        self.settings.observe && theirs.iter().any(|(other, _)| *other == object)
    }

    /// What the cluster says, as far as it decides about the router.
    async fn look(&self) -> Result<Seen, Trouble> {
        let openshift = if let Some(said) = self.settings.openshift {
            said
        } else {
            let groups = self.client.list_api_groups().await;
            let groups = groups.map_err(|error| Trouble::of("the list of API groups", &error))?;
            groups.groups.iter().any(|group| group.name == OPENSHIFT)
        };
        let (controller, router) = wanted(&self.settings, openshift);
        let mut seen = Seen { openshift, ..Seen::default() };
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &router.config_namespace);
        for name in copies(&controller).into_iter().filter_map(|copied| copied.source) {
            let place = format!("ConfigMap {}/{name}", router.config_namespace);
            let found = maps.get_opt(&name).await.map_err(|error| Trouble::of(&place, &error))?;
            seen.sources.extend(found.map(|found| (name, found)));
        }
        if named_certificate(&controller).is_none() {
            let name = usual_certificate(&controller);
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &router.namespace);
            let place = format!("Secret {}/{name}", router.namespace);
            let found = secrets.get_metadata_opt(&name).await.map_err(|error| Trouble::of(&place, &error))?;
            seen.certificate = found.is_some();
        }
        Ok(seen)
    }

    async fn find(&self, object: &Object) -> Result<Option<DynamicObject>, Trouble> {
        let found = self.api_of(object).get_opt(object.name()).await;
        found.map_err(|error| Trouble::of(&object.place(), &error))
    }

    /// Takes away what `MicroShift` made, so that ours can come in its place: of some of it nothing can be changed.
    async fn take_over(
        &self,
        object: &Object,
        have: &DynamicObject,
        report: &mut Report,
    ) -> Result<(), Trouble> {
        let (api, place) = (self.api_of(object), object.place());
        warn!(
            object = place,
            "{}replaced as singleNode.takeOver says, since MicroShift made it",
            self.would()
        );
        if !self.settings.observe {
            self.note_limits(object, &value(have)).await?;
            self.delete(&api, &place, have).await?;
            self.wait_until_gone(&api, &place, have).await?;
        }
        report.deleted.push(place);
        Ok(())
    }

    /// Takes away what the configuration asked for once, and does not any more.
    async fn tidy(&self, wanted: &[Object], report: &mut Report) -> Result<(), Trouble> {
        for (resource, namespace, name) in possible(&self.settings) {
            let is_wanted = |object: &Object| object.resource == resource && object.name() == name;
            if !wanted.iter().any(is_wanted) {
                self.take_away(&resource, namespace.as_deref(), &name, report).await?;
            }
        }
        Ok(())
    }

    /// What stands before the words for something that is done.
    pub(super) fn would(&self) -> &'static str {
        if self.settings.observe { "this would be " } else { "" }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn api_of(&self, object: &Object) -> Api<DynamicObject> {
        self.api(&object.resource, object.namespace())
    }

    pub(super) fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }
}

impl std::fmt::Debug for SingleNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleNode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn is_namespace(object: &Object) -> bool {
    object.resource == namespaces()
}

/// That a router has one owner.
fn refused(foreign: &[(String, Whose)]) -> Option<Problem> {
    if foreign.is_empty() {
        return None;
    }
    let names: Vec<&str> = foreign.iter().map(|(place, _)| place.as_str()).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let what = format!(
        "{} {verb} not of the single-node configuration, and the router needs what is called so.",
        names.join(", ")
    );
    let remedy = if foreign.iter().all(|(_, whose)| *whose == Whose::MicroShifts) {
        "MicroShift made it: set singleNode.takeOver to have it replaced, or singleNode.namespace to have a router beside it."
    } else {
        "Delete it, with the IngressController that it may belong to, or choose another singleNode.namespace."
    };
    Some(Problem::new(what, "Nothing was changed.", remedy))
}

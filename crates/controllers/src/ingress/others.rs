//! Has what a router needs besides its Deployment and its Services.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL};
use serde::Serialize;

use super::cache::{Cache, Kept};
use super::carry_out::{Failure, Wanted, carry_out};
use super::controller::{Context, owner_told};
use super::reconcile::named;
use super::watches::Watches;
use crate::router::{self, RouterSettings, ServiceMonitor, is_of};

/// How often what is copied is looked at: nobody tells when it changes.
const LOOK_AT_SOURCES: Duration = Duration::from_secs(60);

/// How often is looked whether there is a certificate by now.
const LOOK_FOR_CERTIFICATE: Duration = Duration::from_secs(300);

/// What is there of it.
pub(super) struct Others {
    configs: Cache<ConfigMap>,
    budgets: Cache<PodDisruptionBudget>,
    classes: Option<Cache<IngressClass>>,
    monitors: Option<Cache<ServiceMonitor>>,
}

impl Others {
    /// Keeps it as long as what is given beside it runs; `hear` is told whose changed.
    pub(super) fn watch<F: Fn(Option<String>) + Clone>(
        client: &Client,
        settings: &RouterSettings,
        watches: &Watches,
        hear: F,
    ) -> (Self, impl Future<Output = ()> + use<F>) {
        let routers = &settings.namespace;
        let owned = || watcher::Config::default().labels(OWNING_LABEL);
        let within = || Api::namespaced(client.clone(), routers);
        let (configs, of_configs) =
            Cache::watch(within(), routers, owned(), watches, owner_told(hear.clone()));
        let within = || Api::namespaced(client.clone(), routers);
        let (budgets, of_budgets) =
            Cache::watch(within(), routers, owned(), watches, owner_told(hear.clone()));
        let classes = settings
            .openshift
            .then(|| Cache::watch(Api::all(client.clone()), "", owned(), watches, owner_told(hear.clone())));
        let (classes, of_classes) = classes.unzip();
        let monitors = (settings.openshift && settings.monitoring).then(|| {
            let api = Api::namespaced(client.clone(), routers);
            Cache::watch(api, routers, owned(), watches, owner_told(hear))
        });
        let (monitors, of_monitors) = monitors.unzip();
        let watching = async {
            tokio::join!(of_configs, of_budgets, optional(of_classes), optional(of_monitors));
        };
        (Others { configs, budgets, classes, monitors }, watching)
    }

    /// Waits until all is known.
    pub(super) async fn ready(&self) {
        self.configs.ready().await;
        self.budgets.ready().await;
        if let Some(classes) = &self.classes {
            classes.ready().await;
        }
        if let Some(monitors) = &self.monitors {
            monitors.ready().await;
        }
    }
}

async fn optional(future: Option<impl Future<Output = ()>>) {
    if let Some(future) = future {
        future.await;
    }
}

impl Context {
    /// Has what routers read, before there are routers that read it; and says whether there is a certificate under the usual name.
    pub(super) async fn prepare(&self, controller: &IngressController) -> Result<bool, Failure> {
        let settings = &self.settings.router;
        let sources: Api<ConfigMap> = Api::namespaced(self.client.clone(), &settings.config_namespace);
        for copied in router::copies(controller) {
            let Some(name) = &copied.source else { continue };
            let source = sources.get_opt(name).await.map_err(|problem| {
                let place = format!("ConfigMap {}/{name}", settings.config_namespace);
                failure(format!("{place} cannot be read, and routers stay as they are: {problem}"))
            })?;
            let copy = router::copied(&copied, source.as_ref(), controller, settings).map_err(failure)?;
            self.configured(controller, &copied.name, copy).await?;
        }
        if let Some(config) = router::log_config(controller, settings) {
            self.configured(controller, &named("rsyslog-conf", controller), Some(config)).await?;
        }
        self.has_certificate(controller).await
    }

    async fn has_certificate(&self, controller: &IngressController) -> Result<bool, Failure> {
        let name = router::usual_certificate(controller);
        // A certificate that is there once is waited for: routers would show another one meanwhile.
        let used = self.deployments.get(&named("router", controller));
        if router::named_certificate(controller).is_some() || used.is_some_and(|used| mounts(&used, &name)) {
            return Ok(true);
        }
        let namespace = &self.settings.router.namespace;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = secrets.get_metadata_opt(&name).await.map_err(|problem| {
            failure(format!("It is not known whether there is a Secret {namespace}/{name}, and routers stay as they are: {problem}"))
        })?;
        Ok(found.is_some())
    }

    /// Takes away what routers do not read any more.
    pub(super) async fn tidy(&self, controller: &IngressController) -> Vec<Failure> {
        let mut failures = Vec::new();
        let copies = router::copies(controller).into_iter();
        let mut unused: Vec<String> =
            copies.filter(|copied| copied.source.is_none()).map(|copied| copied.name).collect();
        if router::log_config(controller, &self.settings.router).is_none() {
            unused.push(named("rsyslog-conf", controller));
        }
        for name in unused {
            failures.extend(self.configured(controller, &name, None).await.err());
        }
        failures
    }

    async fn configured(
        &self,
        controller: &IngressController,
        name: &str,
        object: Option<ConfigMap>,
    ) -> Result<(), Failure> {
        let api = Api::namespaced(self.client.clone(), &self.settings.router.namespace);
        let failure =
            self.other(&api, &self.others.configs, controller, name, object, router::changed_config);
        failure.await.map_or(Ok(()), Err)
    }

    /// Has the rest as wanted; none of it, if nothing is wanted any more.
    pub(super) async fn carry_out_others(
        &self,
        controller: &IngressController,
        is_wanted: bool,
    ) -> Vec<Failure> {
        let settings = &self.settings.router;
        let (client, namespace) = (|| self.client.clone(), &settings.namespace);
        let name = named("router", controller);
        let budget = router::disruption_budget(controller, settings).filter(|_| is_wanted);
        let budgets = Api::namespaced(client(), namespace);
        let mut failures = Vec::new();
        let others = &self.others;
        failures
            .extend(self.other(&budgets, &others.budgets, controller, &name, budget, router::changed).await);
        if let Some(classes) = &others.classes {
            let (api, name) = (Api::all(client()), router::class_name(controller));
            let class = router::ingress_class(controller, settings).filter(|_| is_wanted);
            failures.extend(self.other(&api, classes, controller, &name, class, router::changed).await);
        }
        if let Some(monitors) = &others.monitors {
            let api = Api::namespaced(client(), namespace);
            let monitor = router::service_monitor(controller, settings).filter(|_| is_wanted);
            failures.extend(self.other(&api, monitors, controller, &name, monitor, router::changed).await);
        }
        failures
    }

    /// Takes all of it away.
    pub(super) async fn take_others_away(&self, controller: &IngressController) -> Vec<Failure> {
        let mut failures = self.carry_out_others(controller, false).await;
        let copies = router::copies(controller).into_iter().map(|copied| copied.name);
        for name in copies.chain([named("rsyslog-conf", controller)]) {
            failures.extend(self.configured(controller, &name, None).await.err());
        }
        failures
    }

    async fn other<K>(
        &self,
        api: &Api<K>,
        cache: &Cache<K>,
        controller: &IngressController,
        name: &str,
        object: Option<K>,
        changed: fn(&K, &K) -> Option<K>,
    ) -> Option<Failure>
    where
        K: Kept + Serialize + k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + PartialEq,
    {
        let is_ours = |metadata: &_| is_of(metadata, controller.name(), &self.settings.router);
        let observe = self.settings.observe;
        let paced = Some(self.paced(controller));
        let wanted =
            Wanted { name, object, is_ours: &is_ours, changed, is_open: |_, _| false, paced, observe };
        carry_out(api, cache, wanted).await.failure
    }
}

/// When it has to be looked at again, although nothing is told.
pub(super) fn look_again(
    controller: &IngressController,
    deployment: Option<&Deployment>,
) -> Option<Duration> {
    if router::copies(controller).iter().any(|copied| copied.source.is_some()) {
        return Some(LOOK_AT_SOURCES);
    }
    let certificate = router::usual_certificate(controller);
    let has_one = router::named_certificate(controller).is_some()
        || deployment.is_some_and(|deployment| mounts(deployment, &certificate));
    (!has_one).then_some(LOOK_FOR_CERTIFICATE)
}

/// Whether routers read a Secret.
fn mounts(deployment: &Deployment, secret: &str) -> bool {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let volumes = pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten();
    volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref()).any(|name| name == secret)
}

fn failure(why: String) -> Failure {
    Failure::new(why)
}

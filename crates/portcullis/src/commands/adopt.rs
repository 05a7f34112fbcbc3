//! `portcullis adopt`

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::core::Status;
use kube::{Client, ResourceExt};
use portcullis_aws::{Estate, Maker, NodeRules, Provider};
use portcullis_core::{Members, Owner, Problem, Provider as _, Target, Want};
use portcullis_kube_api::{Adopted, Change, FINALIZER, TakenOver, load_balancer, parameters, take_over};
use serde_json::{Value, json};

use crate::cli::ConfigArgs;
use crate::config::{Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::roles::services;

/// For so many seconds a port is waited for.
const PATIENCE: u32 = 5;

/// Take over the network load balancer that another controller made for a Service
///
/// It can be one of cloud-provider-aws or of the AWS Load Balancer Controller. The load balancer stays, with its name and
/// its addresses. Without --yes nothing is changed, and it is printed what would be.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,

    /// Services of the cluster, as NAMESPACE/NAME
    #[arg(value_name = "SERVICE", required = true)]
    services: Vec<String>,

    /// Do it
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Args { config, services, yes } = args;
    let loaded = config.sources().load()?;
    output::warnings(&loaded.warnings);
    may_change(&loaded, yes)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let hands = Hands::new(&loaded).await?;
        let class = &loaded.config.services.class;
        each(&services, async |name| {
            let held = hands.find(name).await?;
            let opens_nodes = hands.provider.settings().node_rules != NodeRules::Off;
            output::print(&told(&held, opens_nodes))?;
            if yes {
                hands.adopt(&held, class).await?;
                output::print(&format!(
                    "  Done: Portcullis goes on from here. Follow it by: kubectl describe service -n {} {}\n",
                    held.service.namespace().unwrap_or_default(),
                    held.service.name_any()
                ))?;
            }
            Ok(())
        })
        .await?;
        unchanged(yes)
    })
}

/// Nothing is done by one that only watches.
pub(super) fn may_change(loaded: &Loaded, yes: bool) -> Result<(), Failure> {
    if yes && loaded.config.mode == Mode::Observe {
        let what = "nothing is changed in this mode: leave --yes out to look, or set it to manage";
        return Err(Failure::from(loaded.mistake("mode", what)).state("Nothing was changed."));
    }
    Ok(())
}

pub(super) fn unchanged(yes: bool) -> Result<(), Failure> {
    if !yes {
        output::print("\nNothing was changed. With --yes this is done.\n")?;
    }
    Ok(())
}

/// Does something for each; what cannot be done for one is told, and the others go on.
pub(super) async fn each(
    names: &[String],
    does: impl AsyncFn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed: Option<Failure> = None;
    for name in names {
        if let Err(failure) = does(name).await {
            match &mut failed {
                None => failed = Some(failure),
                Some(first) => first.errors.extend(failure.errors),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Where Services change hands.
pub(super) struct Hands {
    client: Client,
    pub(super) provider: Provider,
}

/// A Service, and what there is for it.
pub(super) struct Held {
    pub(super) service: Service,
    pub(super) owner: Owner,
    pub(super) estate: Estate,
}

impl Hands {
    pub(super) async fn new(loaded: &Loaded) -> Result<Self, Failure> {
        let client = services::kubernetes(loaded).await?;
        let provider = services::provider(loaded, services::Nodes::Cluster(&client)).await?;
        Ok(Hands { client, provider })
    }

    fn api(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A Service as it is now, if it is there.
    pub(super) async fn read(&self, owner: &Owner) -> Result<Option<Service>, kube::Error> {
        self.api(owner.namespace().unwrap_or_default()).get_opt(owner.name()).await
    }

    /// The Service of that name, and what there is for it at its address.
    pub(super) async fn find(&self, name: &str) -> Result<Held, Failure> {
        let Some((namespace, name)) = name.split_once('/') else {
            return Err(Failure::new(
                Exit::Usage,
                format!("`{name}` is not a Service: write NAMESPACE/NAME"),
            ));
        };
        let service = self.api(namespace).get_opt(name).await.map_err(|error| unanswered(&error))?;
        let refused = |what: &str| {
            Failure::new(Exit::Failed, format!("Service {namespace}/{name}: {what}"))
                .state("Nothing was changed.")
        };
        let service = service.ok_or_else(|| refused("there is none"))?;
        if service.metadata.deletion_timestamp.is_some() {
            return Err(refused("it is being deleted"));
        }
        let address =
            address(&service).ok_or_else(|| refused("it has no address of a load balancer in its status"))?;
        let owner =
            Owner::new(&*self.provider.settings().cluster, "Service", Some(namespace.to_owned()), name)
                .map_err(|error| refused(&error.to_string()))?;
        let estate = self.provider.estate(&owner, &address).await.map_err(|problem| failure(&problem))?;
        Ok(Held { service, owner, estate })
    }

    async fn adopt(&self, held: &Held, class: &str) -> Result<(), Failure> {
        let Held { service, owner, estate } = held;
        // What we could not look after is not taken over.
        let check = self.want(held).and_then(|want| self.provider.check(&want));
        check.map_err(|problem| failure(&problem))?;
        self.provider.adopt(owner, estate).await.map_err(|error| {
            Failure::new(Exit::Failed, format!("{owner}: {error}")).state(
                "The load balancer serves as before, and is looked after as before. Run the command again.",
            )
        })?;
        let taken = TakenOver { from: estate.maker.name(), scheme: &estate.balancer.scheme };
        self.change(service, take_over(service, class, taken)).await?;
        if estate.maker == Maker::LoadBalancerController {
            self.unbind(service).await?;
        }
        Ok(())
    }

    /// What a Service wants, but for who is sent to.
    pub(super) fn want(&self, held: &Held) -> Result<Want, Problem> {
        let parameters = parameters(&held.service);
        let by_node_port = matches!(self.provider.members(&parameters)?, Members::Nodes(_));
        let wanted = load_balancer(&held.service, Arc::default(), by_node_port)?;
        Ok(Want {
            owner: held.owner.clone(),
            uid: held.service.uid().unwrap_or_default(),
            target: Target::Present(wanted),
            parameters,
            nodes: Arc::default(),
        })
    }

    /// Makes changes of a Service, one after the other.
    pub(super) async fn change(&self, service: &Service, changes: Vec<Change>) -> Result<(), Failure> {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let api = self.api(&namespace);
        for change in changes {
            let done = self.patch(&api, service, change).await;
            done.map_err(|error| {
                Failure::new(Exit::Failed, format!("Service {namespace}/{name} cannot be changed: {error}"))
                    .state("Its load balancer serves as before. Run the command again.")
            })?;
        }
        Ok(())
    }

    /// Makes one change. A port that the change before gave up is free again only a moment later; and where Kubernetes looks
    /// at all of them in that moment, only after minutes: then the Service gets another one for its health checks. What
    /// changed meanwhile and does not matter here, as conditions that are written all the time, does not stand in the way.
    async fn patch(
        &self,
        api: &Api<Service>,
        looked_at: &Service,
        mut change: Change,
    ) -> Result<Service, kube::Error> {
        let name = &*looked_at.name_any();
        let parameters = PatchParams::default();
        let mut tries = 0;
        loop {
            let done = match &change {
                Change::Object(patch) => api.patch(name, &parameters, &Patch::Merge(patch)).await,
                Change::Status(patch) => api.patch_status(name, &parameters, &Patch::Merge(patch)).await,
            };
            let is_taken = |status: &Status| status.message.contains("already allocated");
            let Err(kube::Error::Api(status)) = &done else { return done };
            if status.is_conflict() && tries < PATIENCE {
                tries += 1;
                let Some(again) = change.again(looked_at, &api.get(name).await?) else { return done };
                change = again;
                continue;
            }
            if !is_taken(status) {
                return done;
            }
            tries += 1;
            let port = match &mut change {
                Change::Object(patch) if tries == PATIENCE => {
                    let spec = patch.get_mut("spec").and_then(Value::as_object_mut);
                    spec.and_then(|spec| spec.remove("healthCheckNodePort"))
                }
                _ => None,
            };
            match port {
                Some(port) => output::warning(&format!(
                    "Kubernetes keeps port {port} of Service {name} to itself for some minutes: the Service gets another one for its health checks"
                )),
                None if tries < PATIENCE => tokio::time::sleep(Duration::from_secs(1)).await,
                None => return done,
            }
        }
    }

    /// Takes away the objects by which the AWS Load Balancer Controller keeps targets, without it emptying the target
    /// groups: it does so for those that it holds.
    async fn unbind(&self, service: &Service) -> Result<(), Failure> {
        let namespace = service.namespace().unwrap_or_default();
        for binding in self.bindings(&namespace, &service.name_any()).await? {
            self.remove(&self.binding_api(&namespace), &binding).await?;
        }
        Ok(())
    }

    fn binding_api(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("elbv2.k8s.aws", "v1beta1", "TargetGroupBinding");
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }

    /// The names of the objects by which the AWS Load Balancer Controller keeps the targets of a Service.
    pub(super) async fn bindings(&self, namespace: &str, name: &str) -> Result<Vec<String>, Failure> {
        let labels = format!("service.k8s.aws/stack-namespace={namespace},service.k8s.aws/stack-name={name}");
        match self.binding_api(namespace).list(&ListParams::default().labels(&labels)).await {
            Ok(found) => Ok(found.items.iter().map(ResourceExt::name_any).collect()),
            // There is no such kind here.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(unanswered(&error)),
        }
    }

    /// Removes a binding at a moment when nobody holds it.
    async fn remove(&self, api: &Api<DynamicObject>, name: &str) -> Result<(), Failure> {
        for _ in 0..20 {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let freed = match api.patch(name, &PatchParams::default(), &free).await {
                Ok(freed) => freed,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => return Err(unanswered(&error)),
            };
            let preconditions =
                kube::api::Preconditions { resource_version: freed.resource_version(), uid: freed.uid() };
            let only = kube::api::DeleteParams { preconditions: Some(preconditions), ..Default::default() };
            match api.delete(name, &only).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                // Its controller holds it again.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(unanswered(&error)),
            }
        }
        Err(Failure::new(Exit::Failed, format!("TargetGroupBinding {name} is held again and again"))
            .state("The load balancer is taken over; this object is left.")
            .note("Stop the AWS Load Balancer Controller for a moment, and run the command again."))
    }
}

/// Where the load balancer of a Service is, also while its class changes.
fn address(service: &Service) -> Option<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let found = status.and_then(|status| status.ingress.as_ref()?.first()?.hostname.clone());
    found.or_else(|| Adopted::of(service)?.address())
}

pub(super) fn unanswered(error: &kube::Error) -> Failure {
    Failure::new(Exit::Lacking, format!("the Kubernetes API does not answer: {error}"))
}

pub(super) fn failure(problem: &Problem) -> Failure {
    Failure::new(Exit::Failed, problem.what.trim_end_matches('.'))
        .state(problem.state.clone())
        .note(problem.remedy.clone())
}

/// What would be done, in words.
fn told(held: &Held, opens_nodes: bool) -> String {
    let Held { service, estate, owner } = held;
    let mut text = format!("{owner} is taken over from {}:\n", estate.maker);
    let mut line = |what: &str, how: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {what:<16} {how}");
    };
    line("load balancer", format!("{} at {} stays as it is", estate.balancer.name, estate.balancer.dns_name));
    line("target groups", format!("{} become ours", estate.pools.len()));
    let groups: Vec<&str> = estate.groups.iter().map(String::as_str).collect();
    line(
        "security groups",
        if groups.is_empty() { "none".to_owned() } else { format!("{} become ours", groups.join(", ")) },
    );
    for (group, rules) in estate.rules.iter().filter(|_| !estate.is_ours) {
        let how = if opens_nodes { "become ours" } else { "stay as they are, since aws.nodeRules is off" };
        line("nodes", format!("{} rules in {group} {how}", rules.len()));
    }
    let foreign: Vec<&String> = service.finalizers().iter().filter(|found| *found != FINALIZER).collect();
    if !foreign.is_empty() {
        let foreign = foreign.into_iter().cloned().collect::<Vec<_>>().join(", ");
        line("Service", format!("held by {FINALIZER} instead of {foreign}"));
    }
    text
}

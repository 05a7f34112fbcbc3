//! `IngressControllers`, and the routers that they ask for.

use portcullis_controllers::Lease;
use portcullis_controllers::ingress::{
    Enforcer, IngressControllers, IngressSettings, Standing, Surroundings,
};
use portcullis_controllers::router::{AddressMode, Platform, RouterSettings};
use portcullis_kube_api::ingress::ranges::Place;
use portcullis_kube_api::ingress::{AwsLoadBalancerType, ConditionStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::lead;
use super::services::{host, kubernetes};
use crate::config::{self, Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::{Metrics, Readiness};

/// Starts it; it ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    metrics: &mut Metrics,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let check = readiness.register("ingress-controllers");
    let client = kubernetes(loaded).await?;
    let surroundings = surroundings(&client).await?;
    let settings = settings(loaded, surroundings)?;
    let observe = settings.observe;
    let lease = &loaded.config.services.lease.namespace;
    let lease = Lease::new(client.clone(), lease, "portcullis-ingress-controllers", &settings.host);
    let controllers = IngressControllers::new(client, settings);
    metrics.registry().register_collector(Box::new(Counted(controllers.standing())));
    // One that waits for its turn is as ready as one can be.
    check.ready();
    let watches = controllers.watches();
    let working = async move {
        // One whose turn it is does nothing before it sees everything.
        let following = watches.follow(|missing| match missing {
            None => check.ready(),
            Some(missing) => check.not_ready(missing),
        });
        tokio::join!(controllers.run(), following);
    };
    tasks.spawn(lead((!observe).then_some(lease), stop.clone(), working));
    Ok(())
}

/// What the cluster says about itself.
pub(crate) async fn surroundings(client: &kube::Client) -> Result<Surroundings, Failure> {
    Surroundings::read(client).await.map_err(|error| {
        let what = format!("the cluster cannot be asked what it runs on: {error}");
        Failure::new(Exit::Lacking, what)
            .note("Allow `get` of infrastructures, ingresses, networks and apiservers of config.openshift.io, as the manifests do.")
    })
}

/// What the configuration says, and the cluster where it says nothing.
pub(crate) fn settings(loaded: &Loaded, surroundings: Surroundings) -> Result<IngressSettings, Failure> {
    let given = &loaded.config.ingress_controllers;
    let image = given.router.image.clone().filter(|image| !image.is_empty()).ok_or_else(|| {
        Failure::new(Exit::Usage, "it is not known which image routers run")
            .state("Nothing was started.")
            .note("Set ingressControllers.router.image.")
    })?;
    let enforcer = match given.source_ranges {
        config::SourceRanges::Unknown => surroundings.enforcer(),
        config::SourceRanges::KubeProxy => Enforcer::KubeProxy,
        config::SourceRanges::Tested => Enforcer::Everywhere("The platform, as it was tested,".to_owned()),
        config::SourceRanges::Ignored => Enforcer::Ignored("The network of this cluster".to_owned()),
    };
    let aws_type = given.aws_type.map(|type_| match type_ {
        config::AwsType::Classic => AwsLoadBalancerType::Classic,
        config::AwsType::Nlb => AwsLoadBalancerType::Network,
    });
    let class = given.load_balancer_class.clone().filter(|class| !class.is_empty());
    // What our own provider makes of it: network load balancers on AWS, whatever the cluster says.
    let network_only = class.as_ref() == Some(&loaded.config.services.class);
    let platform = given.platform.map(platform).or(surroundings.platform);
    let platform = if network_only { Some(Platform::Aws) } else { platform };
    let usual_type = if network_only { AwsLoadBalancerType::Network } else { AwsLoadBalancerType::Classic };
    let aws_type = aws_type.or(surroundings.aws_type).filter(|_| !network_only).unwrap_or(usual_type);
    let mut aws_tags = surroundings.aws_tags;
    aws_tags.extend(loaded.config.aws.tags.clone());
    Ok(IngressSettings {
        namespace: given.namespace.clone(),
        router: RouterSettings {
            namespace: given.router.namespace.clone(),
            image,
            load_balancer_class: class,
            network_only,
            platform: platform.unwrap_or(Platform::Other),
            single_replica: given.single_replica.or(surroundings.single_replica).unwrap_or(false),
            default_domain: given.domain.clone().or(surroundings.domain),
            default_aws_type: aws_type,
            aws_tags,
            openshift: surroundings.openshift,
            monitoring: surroundings.monitoring,
            config_namespace: given.config_namespace.clone(),
            node_labels: surroundings.node_labels,
            addresses: given.router.addresses.map(addresses).or(surroundings.addresses).unwrap_or_default(),
            http2: surroundings.http2.unwrap_or(false),
            tls_profile: surroundings.tls_profile.unwrap_or_default(),
        },
        enforcer,
        concurrency: given.concurrency.max(1),
        observe: loaded.config.mode == Mode::Observe,
        host: host(),
    })
}

fn addresses(given: config::Addresses) -> AddressMode {
    match given {
        config::Addresses::Ipv4 => AddressMode::V4,
        config::Addresses::Ipv6 => AddressMode::V6,
        config::Addresses::Both => AddressMode::Both,
    }
}

fn platform(given: config::Platform) -> Platform {
    match given {
        config::Platform::Aws => Platform::Aws,
        config::Platform::Azure => Platform::Azure,
        config::Platform::Gcp => Platform::Gcp,
        config::Platform::Ibm => Platform::Ibm,
        config::Platform::PowerVs => Platform::PowerVs,
        config::Platform::OpenStack => Platform::OpenStack,
        config::Platform::BareMetal => Platform::BareMetal,
        config::Platform::Other => Platform::Other,
    }
}

/// How `IngressControllers` stand.
#[derive(Debug)]
struct Counted(Standing);

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let all = self.0.all();
        let help = "Whether a condition of an IngressController is True (1) or False (0)";
        // By the second name, OpenShift's alerts know these two.
        let alerts = ["Available", "Degraded"];
        for (name, only) in [
            ("portcullis_ingress_controller_condition", None),
            ("ingress_controller_conditions", Some(alerts)),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (controller, stand) in &all {
                for condition in &stand.conditions {
                    let value = match condition.status {
                        ConditionStatus::True => 1,
                        ConditionStatus::False => 0,
                        // What is not known is neither.
                        _ => continue,
                    };
                    if only.is_some_and(|only| !only.contains(&condition.type_.as_str())) {
                        continue;
                    }
                    let labels = [("name", controller.as_str()), ("condition", condition.type_.as_str())];
                    ConstGauge::<i64>::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Ranges on the Service of an IngressController that have to be moved to its spec, by where they are";
        let name = "portcullis_ingress_controller_evaluation";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (controller, stand) in &all {
            for (place, word) in [(Place::Annotation, "annotation"), (Place::Field, "field")] {
                let gauge = ConstGauge::new(i64::from(stand.to_be_moved.contains(&place)));
                let labels = [("name", controller.as_str()), ("place", word)];
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn settings_for(given: &[&str]) -> IngressSettings {
        let given = ["ingressControllers.router.image=router:1"].into_iter().chain(given.iter().copied());
        let given = given.map(|text| text.parse().unwrap()).collect();
        settings(&Sources::new(None, given).load().unwrap(), Surroundings::default()).unwrap()
    }

    #[test]
    fn our_own_class_makes_network_load_balancers_on_aws() {
        let ours = settings_for(&["ingressControllers.loadBalancerClass=portcullis.dev/aws-nlb"]).router;
        assert_eq!((ours.platform, ours.network_only), (Platform::Aws, true));
        assert_eq!(ours.default_aws_type, AwsLoadBalancerType::Network);
        let theirs = settings_for(&["ingressControllers.platform=aws"]).router;
        assert_eq!((theirs.platform, theirs.network_only), (Platform::Aws, false));
        assert_eq!(theirs.default_aws_type, AwsLoadBalancerType::Classic);
        assert_eq!(settings_for(&[]).router.platform, Platform::Other);
    }

    #[test]
    fn there_is_no_start_without_an_image() {
        let loaded = Sources::new(None, Vec::new()).load().unwrap();
        let failure = settings(&loaded, Surroundings::default()).unwrap_err();
        assert!(failure.errors[0].contains("which image routers run"), "{failure:?}");
    }
}

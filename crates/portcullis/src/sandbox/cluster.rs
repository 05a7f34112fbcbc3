//! The cluster of a sandbox: machines of the AWS simulator as its nodes, and what a newcomer can look at.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use portcullis_kube_api::ingress;
use portcullis_parts::AwsSite;
use portcullis_parts::kubernetes::Kubernetes;
use serde_json::{Value, json};

use crate::config::{AwsType, Config, IngressControllers, Platform, Router};
use crate::sandbox::failure;

/// The name of the cluster in the tags of what is made for it.
const NAME: &str = "sandbox";

/// That load balancers get security groups.
pub(super) const CLOUD_CONFIG: &str = "[Global]\nNLBSecurityGroupMode = Managed\n";

/// How long the sample may take to get its address.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the machines, has them join, and installs the types.
pub(super) fn prepare(kubernetes: &Kubernetes, url: &str) -> Result<AwsSite, crate::exit::Failure> {
    let site = AwsSite::new(url).map_err(failure)?;
    site.join(kubernetes).map_err(failure)?;
    kubernetes.apply_types(ingress::CRD).map_err(failure)?;
    let Config { services, ingress_controllers, .. } = Config::default();
    for namespace in [services.lease.namespace, ingress_controllers.namespace] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        kubernetes.apply(&object.to_string()).map_err(failure)?;
    }
    Ok(site)
}

/// Turns on what looks after Services and `IngressControllers`, with the sandbox's own cluster, whatever else is configured.
pub(super) fn configure(config: &mut Config, kubernetes: &Kubernetes, site: &AwsSite, cloud_config: PathBuf) {
    let usual = Config::default();
    config.kubernetes.kubeconfig = Some(kubernetes.kubeconfig().to_owned());
    config.kubernetes.context = None;
    config.services.enabled = true;
    config.services.lease = usual.services.lease;
    config.aws.cloud_config = Some(cloud_config);
    config.aws.cluster = Some(NAME.to_owned());
    config.aws.vpc = Some(site.vpc.clone());
    config.aws.node_groups = vec![site.node_group.clone()];
    config.ingress_controllers = IngressControllers {
        enabled: true,
        domain: Some("apps.example.com".to_owned()),
        platform: Some(Platform::Aws),
        aws_type: Some(AwsType::Nlb),
        load_balancer_class: Some(config.services.class.clone()),
        // Nothing runs it here: there are no kubelets.
        router: Router { image: Some("registry.example.com/router:1".to_owned()), ..Router::default() },
        ..IngressControllers::default()
    };
}

/// Makes what a newcomer can look at: an `IngressController` that some may reach. Gives its address.
pub(super) fn add_samples(kubernetes: &Kubernetes) -> anyhow::Result<String> {
    let controller = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": "default", "namespace": IngressControllers::default().namespace},
        "spec": {"endpointPublishingStrategy": {
            "type": "LoadBalancerService",
            "loadBalancer": {"scope": "External", "allowedSourceRanges": ["203.0.113.0/24"]},
        }},
    });
    kubernetes.apply(&controller.to_string()).context("cannot make an IngressController")?;
    let namespace = Router::default().namespace;
    let begun = Instant::now();
    loop {
        let get = ["get", "service", "router-default", "-n", &namespace, "--ignore-not-found", "-o", "json"];
        let found: Value = serde_json::from_str(&kubernetes.kubectl(&get)?).unwrap_or_default();
        if let Some(address) = found["status"]["loadBalancer"]["ingress"][0]["hostname"].as_str() {
            return Ok(address.to_owned());
        }
        if portcullis_parts::interrupted() {
            bail!("interrupted before everything ran");
        }
        if begun.elapsed() > PATIENCE {
            bail!("the sample IngressController has no address after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

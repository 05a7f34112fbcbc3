//! A Kubernetes API with many `IngressControllers`, and the processes that look after them.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::ingress::{Enforcer, IngressControllers, IngressSettings};
use portcullis_controllers::router::{Platform, RouterSettings};
use portcullis_kube_api::ingress::{AwsLoadBalancerType, CRD};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::roomy_kubernetes;
use serde_json::{Value, json};

use crate::{bare, each};

/// The words by which the other processes know what they are.
pub(crate) const OURS: &str = "--ours";
pub(crate) const BARE: &str = "--bare";

/// Where ours are, and their routers.
pub(crate) const CONTROLLERS: &str = "controllers";
pub(crate) const ROUTERS: &str = "routers";

/// Where those of the floor are, with their Services, and how many.
pub(crate) const FLOOR: &str = "floor";
pub(crate) const FLOORS: usize = 100;

/// So many writes are made to see how many the API server takes.
const WRITES: usize = 2000;

pub(crate) struct World {
    kubernetes: Kubernetes,
    pub(crate) client: kube::Client,
}

impl World {
    pub(crate) async fn new(count: usize) -> Self {
        let kubernetes = roomy_kubernetes();
        kubernetes.apply_types(CRD).unwrap();
        let client = client(kubernetes.kubeconfig()).await;
        let world = World { kubernetes, client };
        for namespace in [CONTROLLERS, ROUTERS, FLOOR] {
            world.kubernetes.kubectl(&["create", "namespace", namespace]).unwrap();
        }
        let create = |namespace: &'static str, name: String| {
            let api = controllers(&world.client, namespace);
            async move {
                let object = json!({
                    "apiVersion": "operator.openshift.io/v1",
                    "kind": "IngressController",
                    "metadata": {"name": name},
                    "spec": {
                        "domain": format!("{name}.example.com"),
                        "endpointPublishingStrategy": {
                            "type": "LoadBalancerService",
                            "loadBalancer": {"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]},
                        },
                    },
                });
                let object: DynamicObject = serde_json::from_value(object).unwrap();
                api.create(&PostParams::default(), &object).await.unwrap();
            }
        };
        each(count, |number| create(CONTROLLERS, format!("shop-{number}"))).await;
        each(FLOORS, |number| create(FLOOR, format!("floor-{number}"))).await;
        let services: Api<Service> = Api::namespaced(world.client.clone(), FLOOR);
        each(FLOORS, |number| {
            let services = services.clone();
            async move {
                let service = json!({
                    "metadata": {"name": format!("floor-{number}")},
                    "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/none", "ports": [{"port": 80}]},
                });
                let service: Service = serde_json::from_value(service).unwrap();
                services.create(&PostParams::default(), &service).await.unwrap();
            }
        })
        .await;
        world
    }

    /// Gives one another range.
    pub(crate) async fn edit(&self, namespace: &str, number: usize, range: &str) {
        let name = if namespace == FLOOR { format!("floor-{number}") } else { format!("shop-{number}") };
        let patch: Value = json!({"spec": {"endpointPublishingStrategy": {"loadBalancer": {"allowedSourceRanges": [range]}}}});
        let api = controllers(&self.client, namespace);
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// What the rest of a cluster does: routers that serve, and load balancers with an address.
    pub(crate) async fn make_available(&self, count: usize) {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), ROUTERS);
        let services: Api<Service> = Api::namespaced(self.client.clone(), ROUTERS);
        let serving = json!({"status": {
            "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "conditions": [
                {"type": "Available", "status": "True"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ],
        }});
        let address = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        each(count, |number| {
            let (name, serving, address) = (format!("router-shop-{number}"), &serving, &address);
            let (deployments, services) = (&deployments, &services);
            async move {
                let parameters = PatchParams::default();
                deployments.patch_status(&name, &parameters, &Patch::Merge(serving)).await.unwrap();
                services.patch_status(&name, &parameters, &Patch::Merge(address)).await.unwrap();
            }
        })
        .await;
    }

    /// How many writes of small objects the API server takes in a second.
    pub(crate) async fn write_rate(&self, together: usize) -> f64 {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), FLOOR);
        let make = |number: usize| {
            let maps = maps.clone();
            async move {
                let map = json!({"metadata": {"name": format!("map-{number}")}});
                maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
            }
        };
        each(together, make).await;
        let start = Instant::now();
        each(WRITES, |number| {
            let maps = maps.clone();
            async move {
                let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
                let name = format!("map-{}", number % together);
                maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
        })
        .await;
        f64::from(u32::try_from(WRITES).unwrap()) / start.elapsed().as_secs_f64()
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubernetes.kubeconfig()
    }
}

fn controllers(client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("operator.openshift.io", "v1", "IngressController");
    let resource = ApiResource::from_gvk_with_plural(&kind, "ingresscontrollers");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// What one of the other processes is: ours, until nobody talks to it any more.
pub(crate) fn run_ours(kubeconfig: &str) {
    run(async move {
        let settings = IngressSettings {
            namespace: CONTROLLERS.to_owned(),
            router: RouterSettings {
                namespace: ROUTERS.to_owned(),
                image: "registry.example.com/router:1".to_owned(),
                load_balancer_class: Some("example.com/none".to_owned()),
                platform: Platform::BareMetal,
                default_aws_type: AwsLoadBalancerType::Network,
                ..RouterSettings::default()
            },
            enforcer: Enforcer::Unknown,
            concurrency: 16,
            observe: false,
            host: "bench".to_owned(),
        };
        IngressControllers::new(client(Path::new(kubeconfig)).await, settings).run().await;
    });
}

/// The other one: the floor.
pub(crate) fn run_bare(kubeconfig: &str) {
    run(async move { bare::run(client(Path::new(kubeconfig)).await).await });
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended = runtime.spawn_blocking(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    runtime.block_on(async {
        tokio::select! {
            () = work => {}
            _ = ended => {}
        }
    });
}

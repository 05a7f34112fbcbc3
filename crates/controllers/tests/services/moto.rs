//! The same against moto: an independent reading of AWS's wire format.

use std::collections::BTreeSet;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider};
use portcullis_controllers::ServiceController;
use portcullis_kube_api::FINALIZER;
use portcullis_testkit::parts::AwsSimulator;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsSite, eventually, kubernetes};
use serde_json::{Value, json};

use crate::scene::{PREFIX, client, room, settings};

fn provider(url: &str, site: &AwsSite, mode: &str) -> Provider {
    let credentials = SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test"));
    let (config, _) = CloudConfig::parse(&format!("[Global]\nNLBSecurityGroupMode = {mode}\n")).unwrap();
    let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| url.to_owned());
    let endpoints = Endpoints::new("us-east-1", &config, endpoint).unwrap();
    let options = Options { limits: Limits::none(), ..Options::default() };
    let client = Client::new(credentials, endpoints, options);
    Provider::new(client, portcullis_aws::Settings::new("demo", &site.vpc, &config).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_a_load_balancer_and_gives_it_back() {
    let _room = room().await;
    let kubernetes = kubernetes();
    let aws = portcullis_testkit::aws();
    let site = AwsSite::new(&aws.url());
    site.join(kubernetes);
    kubernetes.kubectl(&["label", "node", "node-1", "node-2", "scene=moto"]).unwrap();
    kubernetes.kubectl(&["create", "namespace", "moto"]).unwrap();
    let controller = ServiceController::new(
        client(kubernetes).await,
        provider(&aws.url(), &site, "Managed"),
        settings("moto"),
    );
    let running = tokio::spawn(controller.run());

    let service = |ranges: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: moto\n  annotations:\n    \
             service.beta.kubernetes.io/aws-load-balancer-target-node-labels: scene=moto\n\
             spec:\n  type: LoadBalancer\n  loadBalancerClass: portcullis.dev/moto\n  \
             loadBalancerSourceRanges: [{ranges}]\n  ports: [{{port: 80, targetPort: 8080}}]\n"
        )
    };
    kubernetes.apply(&service("192.0.2.0/24")).unwrap();
    let get = |path: &str| {
        kubernetes
            .kubectl(&["get", "service", "web", "-n", "moto", "-o", &format!("jsonpath={path}")])
            .unwrap()
    };
    eventually("an address", || get("{.status.loadBalancer.ingress[0].hostname}").contains("elb"));
    assert!(get("{.metadata.finalizers}").contains(FINALIZER));
    let events =
        || kubernetes.kubectl(&["get", "events", "-n", "moto", "-o", "jsonpath={.items[*].reason}"]).unwrap();
    eventually("an event", || events().contains("EnsuredLoadBalancer"));
    assert!(events().contains("EnsuringLoadBalancer"));
    let groups = || site.ec2("Action=DescribeSecurityGroups");
    assert!(groups().contains("192.0.2.0/24"));

    kubernetes.apply(&service("198.51.100.0/24")).unwrap();
    eventually("other ranges", || groups().contains("198.51.100.0/24") && !groups().contains("192.0.2.0/24"));

    kubernetes.kubectl(&["delete", "service", "web", "-n", "moto"]).unwrap();
    assert!(!site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    assert!(!site.elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
    assert!(!groups().contains("k8s-moto-web"));
    assert!(events().contains("DeletedLoadBalancer"));
    running.abort();
}

/// Services of many kinds in a namespace, and what the simulator has for them.
struct Kinds {
    aws: AwsSimulator,
    site: AwsSite,
    kubernetes: &'static Kubernetes,
    user: String,
    certificate: String,
}

impl Kinds {
    fn new() -> Self {
        let (kubernetes, aws) = (kubernetes(), portcullis_testkit::aws());
        let site = AwsSite::new(&aws.url());
        site.add_ipv6();
        let (user, certificate) = (site.add_group("user"), site.add_certificate("web"));
        kubernetes.kubectl(&["create", "namespace", "kinds"]).unwrap();
        for (machine, number) in site.nodes.iter().zip(1..) {
            let node = json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": format!("kinds-{number}"), "labels": {"scene": "kinds"}},
                "spec": {"providerID": format!("aws:///us-east-1a/{machine}")},
                "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.1.{number}")}]},
            });
            kubernetes.apply(&node.to_string()).unwrap();
        }
        Kinds { aws, site, kubernetes, user, certificate }
    }

    async fn controller(&self, mode: &str) -> ServiceController<Provider> {
        let provider = provider(&self.aws.url(), &self.site, mode);
        ServiceController::new(client(self.kubernetes).await, provider, settings("kinds"))
    }

    fn apply(&self, name: &str, annotations: &[(&str, &str)], ports: &Value) {
        let mut annotated = json!({format!("{PREFIX}target-node-labels"): "scene=kinds"});
        for (key, value) in annotations {
            annotated[format!("{PREFIX}{key}")] = json!(value);
        }
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "kinds", "annotations": annotated},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "portcullis.dev/kinds",
                "loadBalancerSourceRanges": ["192.0.2.0/24"],
                "ports": ports,
            },
        });
        self.kubernetes.apply(&service.to_string()).unwrap();
    }

    /// Of TLS and UDP. Moto does not change listeners for these: they get other ports here.
    fn names(&self, port: u16) {
        let ports = json!([
            {"name": "tls", "port": 443, "targetPort": 8443},
            {"name": "dns", "port": port, "targetPort": 53, "protocol": "UDP"},
        ]);
        self.apply("names", &[("ssl-cert", &self.certificate), ("ssl-ports", "tls")], &ports);
    }

    fn pods(&self, address: &str) {
        let labels = json!({
            "kubernetes.io/service-name": "pods",
            "endpointslice.kubernetes.io/managed-by": "test",
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "pods", "namespace": "kinds", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 9090, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address]}],
        });
        self.kubernetes.apply(&slice.to_string()).unwrap();
    }

    /// The load balancer of a Service, by where its clients find it.
    fn balancer(&self, name: &str) -> Option<String> {
        let path = "jsonpath={.status.loadBalancer.ingress[0].hostname}";
        let get = ["get", "service", name, "-n", "kinds", "-o", path];
        let address = self.kubernetes.kubectl(&get).unwrap();
        let all = self.site.elb("Action=DescribeLoadBalancers");
        let mut each = all.split("<LoadBalancerArn>").skip(1);
        each.find(|one| !address.is_empty() && one.contains(&address)).map(str::to_owned)
    }

    fn has(&self, name: &str, part: &str) -> bool {
        self.balancer(name).is_some_and(|found| found.contains(part))
    }

    fn listens(&self, name: &str) -> BTreeSet<String> {
        let found = self.balancer(name).unwrap_or_default();
        let arn = found.split('<').next().unwrap();
        let found = self.site.elb(&format!("Action=DescribeListeners&LoadBalancerArn={arn}"));
        let each = found.split("<ListenerArn>").skip(1);
        each.map(|one| AwsSite::text(one, "Protocol") + " " + &AwsSite::text(one, "Port")).collect()
    }

    fn groups(&self) -> String {
        self.site.ec2("Action=DescribeSecurityGroups")
    }

    /// Who is sent to, by any of them.
    fn targets(&self) -> String {
        let pools = self.site.elb("Action=DescribeTargetGroups");
        let arns = pools.split("<TargetGroupArn>").skip(1).map(|part| part.split('<').next().unwrap());
        arns.map(|arn| self.site.elb(&format!("Action=DescribeTargetHealth&TargetGroupArn={arn}"))).collect()
    }

    fn delete(&self, name: &str) {
        self.kubernetes.kubectl(&["delete", "service", name, "-n", "kinds"]).unwrap();
    }

    fn is_untouched(&self) {
        assert!(!self.site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
        assert!(!self.site.elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
        let groups = self.groups();
        assert!(!groups.contains("k8s-kinds-") && !groups.contains("portcullis demo "), "{groups}");
        assert!(groups.contains(&self.user), "it is not ours");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_many_kinds() {
    let _room = room().await;
    let kinds = Kinds::new();
    let running = tokio::spawn(kinds.controller("Managed").await.run());
    let http = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    kinds.names(53);
    kinds.apply("both", &[("ip-address-type", "dualstack")], &http);
    kinds.apply("given", &[("security-groups", "user")], &http);
    kinds.pods("10.0.1.101");
    kinds.apply("pods", &[("nlb-target-type", "ip")], &http);
    let all = ["names", "both", "given", "pods"];
    for name in all {
        eventually(&format!("an address of {name}"), || kinds.balancer(name).is_some());
    }
    let listens = |expected: [&str; 2]| {
        eventually("ports", || kinds.listens("names") == expected.map(str::to_owned).into());
    };
    listens(["TLS 443", "UDP 53"]);
    assert!(kinds.has("both", "<IpAddressType>dualstack<"));
    assert!(kinds.has("given", &kinds.user) && !kinds.has("pods", &kinds.user));
    eventually("machines and pods", || {
        let targets = kinds.targets();
        kinds.site.nodes.iter().all(|id| targets.contains(id.as_str())) && targets.contains("10.0.1.101")
    });

    kinds.names(5353);
    kinds.apply("both", &[("ip-address-type", "ipv4")], &http);
    kinds.apply("given", &[], &http);
    kinds.pods("10.0.2.102");
    listens(["TLS 443", "UDP 5353"]);
    eventually("one family", || kinds.has("both", "<IpAddressType>ipv4<"));
    eventually("a group of its own", || {
        !kinds.has("given", &kinds.user) && kinds.groups().contains("k8s-kinds-given")
    });
    eventually("another pod", || {
        let targets = kinds.targets();
        targets.contains("10.0.2.102") && !targets.contains("10.0.1.101")
    });
    for name in all {
        kinds.delete(name);
    }
    kinds.is_untouched();
    running.abort();

    // Where nobody wants groups, the nodes let in the clients.
    let running = tokio::spawn(kinds.controller("Unmanaged").await.run());
    kinds.apply("open", &[], &http);
    eventually("an address", || kinds.balancer("open").is_some());
    assert!(!kinds.has("open", "<member>sg-") && !kinds.groups().contains("k8s-"), "{}", kinds.groups());
    eventually("they do", || {
        let groups = kinds.groups();
        groups.contains("portcullis demo Service kinds/open") && groups.contains("192.0.2.0/24")
    });
    kinds.delete("open");
    kinds.is_untouched();
    running.abort();
}

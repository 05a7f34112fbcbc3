//! Services on a real Kubernetes API, with load balancers in the AWS simulator.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider};
use portcullis_controllers::{ServiceController, Settings};
use portcullis_kube_api::{FINALIZER, LoadBalancerClass, TYPE};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsSite, eventually, kubernetes};

async fn client(kubernetes: &Kubernetes) -> kube::Client {
    let config = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

fn provider(url: &str, site: &AwsSite) -> Provider {
    let credentials = SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test"));
    let (config, _) = CloudConfig::parse("[Global]\nNLBSecurityGroupMode = Managed\n").unwrap();
    let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| url.to_owned());
    let endpoints = Endpoints::new("us-east-1", &config, endpoint).unwrap();
    let options = Options { limits: Limits::none(), ..Options::default() };
    let client = Client::new(credentials, endpoints, options);
    Provider::new(client, portcullis_aws::Settings::new("demo", &site.vpc, &config).unwrap())
}

fn settings() -> Settings {
    Settings {
        cluster: "demo".to_owned(),
        class: LoadBalancerClass {
            name: "portcullis.dev/aws-nlb".to_owned(),
            without_class: Some((TYPE.to_owned(), "nlb".to_owned())),
        },
        concurrency: 8,
        resync: Duration::from_secs(600),
        close_look: Duration::from_secs(3600),
        sweep_after: Duration::from_secs(600),
        observe: false,
        host: "test".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_a_load_balancer_and_gives_it_back() {
    let kubernetes = kubernetes();
    let aws = portcullis_testkit::aws();
    let site = AwsSite::new(&aws.url());
    site.join(kubernetes);
    let controller =
        ServiceController::new(client(kubernetes).await, provider(&aws.url(), &site), settings());
    let running = tokio::spawn(controller.run());

    let service = |ranges: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: default}}\n\
             spec:\n  type: LoadBalancer\n  loadBalancerClass: portcullis.dev/aws-nlb\n  \
             loadBalancerSourceRanges: [{ranges}]\n  ports: [{{port: 80, targetPort: 8080}}]\n"
        )
    };
    kubernetes.apply(&service("192.0.2.0/24")).unwrap();
    let get = |path: &str| {
        kubernetes.kubectl(&["get", "service", "web", "-o", &format!("jsonpath={path}")]).unwrap()
    };
    eventually("an address", || get("{.status.loadBalancer.ingress[0].hostname}").contains("elb"));
    assert!(get("{.metadata.finalizers}").contains(FINALIZER));
    let events = || kubernetes.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).unwrap();
    eventually("an event", || events().contains("EnsuredLoadBalancer"));
    assert!(events().contains("EnsuringLoadBalancer"));
    let groups = || site.ec2("Action=DescribeSecurityGroups");
    assert!(groups().contains("192.0.2.0/24"));

    kubernetes.apply(&service("198.51.100.0/24")).unwrap();
    eventually("other ranges", || groups().contains("198.51.100.0/24") && !groups().contains("192.0.2.0/24"));

    kubernetes.kubectl(&["delete", "service", "web"]).unwrap();
    assert!(!site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    assert!(!site.elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
    assert!(!groups().contains("k8s-default-web"));
    assert!(events().contains("DeletedLoadBalancer"));
    running.abort();
}

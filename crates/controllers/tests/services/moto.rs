//! The same against moto: an independent reading of AWS's wire format.

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider};
use portcullis_controllers::ServiceController;
use portcullis_kube_api::FINALIZER;
use portcullis_testkit::{AwsSite, eventually, kubernetes};

use crate::scene::{client, room, settings};

fn provider(url: &str, site: &AwsSite) -> Provider {
    let credentials = SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test"));
    let (config, _) = CloudConfig::parse("[Global]\nNLBSecurityGroupMode = Managed\n").unwrap();
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
    let controller =
        ServiceController::new(client(kubernetes).await, provider(&aws.url(), &site), settings("moto"));
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

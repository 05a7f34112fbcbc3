//! The provider against moto: an independent reading of AWS's wire format.

use portcullis_core::{Address, Outcome, Provider as _, Target, Want};
use portcullis_testkit::AwsSite;

use crate::scene::{Account, Service};

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_is_made_changed_and_taken_away() {
    let aws = portcullis_testkit::aws();
    let url = aws.url();
    let site = AwsSite::new(&url);
    let (ec2, elb, text) = (|body: &str| site.ec2(body), |body: &str| site.elb(body), AwsSite::text);
    let groups = || ec2("Action=DescribeSecurityGroups");
    let before = groups().matches("<groupName>").count();
    let account = Account { region: "us-east-1", key: "test", secret: "test", url: &url, vpc: &site.vpc };
    let provider = account.provider("Managed");

    let nodes: Vec<&str> = site.nodes.iter().map(String::as_str).collect();
    let service = Service { nodes: nodes.clone(), ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    let first = Service { ports: vec![(80, 30080), (443, 30443)], ..service.clone() }.want("web");
    let report = provider.sync(&first).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(
        matches!(report.addresses.as_slice(), [Address::Hostname(name)] if name.contains("elb")),
        "{report:?}"
    );
    assert_eq!(groups().matches("<groupName>").count(), before + 2, "one of its own, and one for all");
    assert!(groups().contains("192.0.2.0/24"));
    let listeners = |arn: &str| elb(&format!("Action=DescribeListeners&LoadBalancerArn={arn}"));
    let arn = text(&elb("Action=DescribeLoadBalancers"), "LoadBalancerArn");
    assert_eq!(listeners(&arn).matches("<ListenerArn>").count(), 2);

    // Nothing changes: nothing is called.
    let calls = provider.client().calls();
    assert_eq!(provider.sync(&first).await.outcome, Outcome::Done);
    assert_eq!(provider.client().calls(), calls);

    // Another process finds it as it is, and changes only what is different.
    let again = account.provider("Managed");
    let ranges = Some(vec!["192.0.2.0/24", "198.51.100.0/24"]);
    let second = Service { ports: vec![(80, 30080), (8443, 30443)], ranges, ..service }.want("web");
    assert_eq!(again.sync(&second).await.outcome, Outcome::Done);
    let found = elb("Action=DescribeLoadBalancers");
    assert_eq!(text(&found, "LoadBalancerArn"), arn);
    let mut ports: Vec<String> = listeners(&arn)
        .split("<Port>")
        .skip(1)
        .map(|part| part.split('<').next().unwrap().to_owned())
        .collect();
    ports.sort();
    ports.dedup();
    assert_eq!(ports, ["80", "8443"]);
    assert!(groups().contains("198.51.100.0/24"));
    let nodes = ec2(&format!("Action=DescribeSecurityGroups&GroupId.1={}", site.node_group));
    assert_eq!(nodes.matches("<fromPort>").count(), 3, "{nodes}");

    let gone = Want { target: Target::Gone, ..second };
    assert_eq!(again.sync(&gone).await.outcome, Outcome::Done);
    assert_eq!(groups().matches("<groupName>").count(), before, "{}", groups());
    assert!(!elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    assert!(!elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
}

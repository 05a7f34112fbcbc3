//! The provider against moto: an independent reading of AWS's wire format.

use std::collections::BTreeMap;
use std::net::IpAddr;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, PREFIX, Provider, Settings};
use portcullis_core::{
    Address, Admission, EmptyMeans, Family, Listener, ListenerProtocol, LoadBalancer, Member, Outcome, Owner,
    Scheme, SourceRanges, Target, Want,
};
use portcullis_testkit::AwsSite;

fn want(
    name: &str,
    site: &AwsSite,
    ports: &[(u16, u16)],
    ranges: Option<Vec<&str>>,
    annotations: &[(&str, &str)],
) -> Want {
    let listeners = ports.iter().map(|(port, to)| Listener::new(*port, ListenerProtocol::Tcp, *to).unwrap());
    let admission =
        Admission { ranges: SourceRanges::parse(ranges).unwrap(), empty_means: EmptyMeans::Everyone };
    let members: Vec<Member> = site
        .nodes
        .iter()
        .zip(1_u8..)
        .map(|(id, number)| {
            let member = Member::new(id.clone(), [IpAddr::from([10, 0, 1, number])]).unwrap();
            member.with_reference(format!("aws:///us-east-1a/{id}"))
        })
        .collect();
    let wanted =
        LoadBalancer::new(name, Scheme::InternetFacing, [Family::V4], listeners.collect(), admission)
            .unwrap();
    Want {
        owner: Owner::new("demo", "Service", Some("shop".into()), name).unwrap(),
        uid: "1234".into(),
        target: Target::Present(wanted.with_members(members).unwrap()),
        parameters: annotations
            .iter()
            .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
            .collect(),
    }
}

fn provider(url: &str, site: &AwsSite, config: &str) -> Provider {
    let credentials = SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test"));
    let (config, _) = CloudConfig::parse(config).unwrap();
    let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| url.to_owned());
    let endpoints = Endpoints::new("us-east-1", &config, endpoint).unwrap();
    let options = Options { limits: Limits::none(), ..Options::default() };
    let client = Client::new(credentials, endpoints, options);
    Provider::new(client, Settings::new("demo", &site.vpc, &config).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_is_made_changed_and_taken_away() {
    let aws = portcullis_testkit::aws();
    let url = aws.url();
    let site = AwsSite::new(&url);
    let (ec2, elb, text) = (|body: &str| site.ec2(body), |body: &str| site.elb(body), AwsSite::text);
    let groups = || ec2("Action=DescribeSecurityGroups");
    let before = groups().matches("<groupName>").count();
    let config = "[Global]\nNLBSecurityGroupMode = Managed\n";
    let provider = provider(&url, &site, config);

    let first = want("web", &site, &[(80, 30080), (443, 30443)], Some(vec!["192.0.2.0/24"]), &[]);
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
    let again = self::provider(&url, &site, config);
    let second =
        want("web", &site, &[(80, 30080), (8443, 30443)], Some(vec!["192.0.2.0/24", "198.51.100.0/24"]), &[]);
    assert_eq!(again.sync(&second).await.outcome, Outcome::Done);
    let found = elb("Action=DescribeLoadBalancers");
    assert_eq!(text(&found, "LoadBalancerArn"), arn);
    let ports: BTreeMap<String, ()> = listeners(&arn)
        .split("<Port>")
        .skip(1)
        .map(|part| (part.split('<').next().unwrap().to_owned(), ()))
        .collect();
    assert_eq!(ports.into_keys().collect::<Vec<_>>(), ["80", "8443"]);
    assert!(groups().contains("198.51.100.0/24"));
    let nodes = ec2(&format!("Action=DescribeSecurityGroups&GroupId.1={}", site.node_group));
    assert_eq!(nodes.matches("<fromPort>").count(), 3, "{nodes}");

    let gone = Want { target: Target::Gone, ..second };
    assert_eq!(again.sync(&gone).await.outcome, Outcome::Done);
    assert_eq!(groups().matches("<groupName>").count(), before, "{}", groups());
    assert!(!elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    assert!(!elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
}

use std::time::Duration;

use super::{CERTIFICATE, balancer, group, listen, pool, start};
use crate::TargetId;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_load_balancer_lives() {
    let (fake, caller) = start(|config| {
        config.provisioning = LONG;
        config.lingering = LONG;
    });
    let sg = group(&caller, "g");
    let arn = balancer(&caller, "lb", &[&sg]);
    assert!(
        arn.starts_with("arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/lb/"),
        "{arn}"
    );
    let describe = || caller.elb("DescribeLoadBalancers", &[("Names.member.1", "lb")]);
    let hex = arn.rsplit('/').next().unwrap();
    assert_eq!(describe().text("DNSName"), format!("lb-{hex}.elb.eu-central-1.amazonaws.com"));
    assert_eq!(describe().text("State"), "<Code>provisioning</Code>");
    assert_eq!(describe().text("Scheme"), "internet-facing");
    fake.pass(LONG);
    assert_eq!(describe().text("State"), "<Code>active</Code>");
    // The same again is no other one, whoever asks; what is written on it is not looked at.
    let again = [
        ("Name", "lb"),
        ("Type", "network"),
        ("Subnets.member.1", "subnet-b"),
        ("Subnets.member.2", "subnet-a"),
        ("SecurityGroups.member.1", sg.as_str()),
        ("Tags.member.1.Key", "k"),
    ];
    assert_eq!(caller.elb("CreateLoadBalancer", &again).ok().text("LoadBalancerArn"), arn);
    assert!(fake.state().load_balancers[&arn].tags.is_empty());

    let protect = |value| {
        let parameters = [
            ("LoadBalancerArn", arn.as_str()),
            ("Attributes.member.1.Key", "deletion_protection.enabled"),
            ("Attributes.member.1.Value", value),
        ];
        caller.elb("ModifyLoadBalancerAttributes", &parameters).ok();
    };
    let delete = || caller.elb("DeleteLoadBalancer", &[("LoadBalancerArn", &arn)]);
    protect("true");
    assert_eq!(delete().code(), "OperationNotPermitted");
    protect("false");
    delete().ok();
    delete().ok();
    assert_eq!(describe().code(), "LoadBalancerNotFound");
    // Its interfaces are still there.
    let remove = || caller.ec2("DeleteSecurityGroup", &[("GroupId", &sg)]);
    assert_eq!(remove().code(), "DependencyViolation");
    fake.pass(LONG);
    remove().ok();
}

#[test]
fn groups_of_a_load_balancer() {
    let (fake, caller) = start(|_| {});
    let ids: Vec<String> = (0..6).map(|number| group(&caller, &format!("g{number}"))).collect();
    let arn = balancer(&caller, "lb", &[&ids[0]]);
    let set = |count: usize| {
        let names: Vec<String> = (1..=count).map(|place| format!("SecurityGroups.member.{place}")).collect();
        let mut parameters = vec![("LoadBalancerArn", arn.as_str())];
        parameters.extend(names.iter().zip(&ids).map(|(name, id)| (name.as_str(), id.as_str())));
        caller.elb("SetSecurityGroups", &parameters)
    };
    assert_eq!(set(6).code(), "InvalidConfigurationRequest");
    assert_eq!(set(5).ok().text("SecurityGroupIds").matches("<member>").count(), 5);
    assert_eq!(caller.ec2("DeleteSecurityGroup", &[("GroupId", &ids[4])]).code(), "DependencyViolation");
    set(1).ok();
    caller.ec2("DeleteSecurityGroup", &[("GroupId", &ids[4])]).ok();
    assert_eq!(fake.state().load_balancers[&arn].groups, [ids[0].clone()].into());
    assert_eq!(set(0).code(), "ValidationError");
}

#[test]
fn subnets_and_addresses() {
    let (fake, caller) = start(|_| {});
    let arn = balancer(&caller, "lb", &[]);
    let set = [
        ("LoadBalancerArn", arn.as_str()),
        ("Subnets.member.1", "subnet-a"),
        ("Subnets.member.2", "subnet-b"),
        ("Subnets.member.3", "subnet-c"),
    ];
    let type_of =
        |kind| caller.elb("SetIpAddressType", &[("LoadBalancerArn", &arn), ("IpAddressType", kind)]);
    type_of("dualstack").ok();
    assert_eq!(caller.elb("SetSubnets", &set).code(), "InvalidConfigurationRequest", "no IPv6 in subnet-c");
    type_of("ipv4").ok();
    caller.elb("SetSubnets", &set).ok();
    assert_eq!(fake.state().load_balancers[&arn].subnets.len(), 3);
    assert_eq!(type_of("dualstack").code(), "InvalidConfigurationRequest");
    let elastic = |name| {
        let parameters = [
            ("Name", name),
            ("Type", "network"),
            ("SubnetMappings.member.1.SubnetId", "subnet-a"),
            ("SubnetMappings.member.1.AllocationId", "eipalloc-1"),
        ];
        caller.elb("CreateLoadBalancer", &parameters)
    };
    let made = elastic("fixed").ok();
    assert_eq!(made.text("IpAddress"), "192.0.2.1");
    elastic("fixed").ok();
    assert_eq!(elastic("second").code(), "ResourceInUse");
}

#[test]
fn listeners_come_change_and_go() {
    let (fake, caller) = start(|_| {});
    let lb = balancer(&caller, "lb", &[]);
    let (tcp, both) = (pool(&caller, "tcp", "TCP"), pool(&caller, "both", "TCP_UDP"));
    let arn = listen(&caller, &lb, &tcp, "443", "TCP").ok().text("ListenerArn");
    assert!(arn.starts_with(&lb.replace("loadbalancer", "listener")), "{arn}");
    assert_eq!(listen(&caller, &lb, &tcp, "443", "TCP").ok().text("ListenerArn"), arn, "the same again");
    assert_eq!(listen(&caller, &lb, &both, "443", "UDP").code(), "DuplicateListener");
    listen(&caller, &lb, &both, "53", "TCP_UDP").ok();
    let described = caller.elb("DescribeListeners", &[("LoadBalancerArn", &lb)]).ok();
    assert_eq!(described.texts("SslPolicy").len() + described.texts("Certificates").len(), 0);

    let modify = |rest: &[(&str, &str)]| {
        caller.elb("ModifyListener", &[&[("ListenerArn", arn.as_str())], rest].concat())
    };
    assert_eq!(modify(&[("Port", "53")]).code(), "DuplicateListener");
    let made = modify(&[("Protocol", "TLS"), ("Certificates.member.1.CertificateArn", CERTIFICATE)]).ok();
    assert_eq!(made.text("SslPolicy"), "ELBSecurityPolicy-2016-08");
    assert_eq!(made.text("CertificateArn"), CERTIFICATE);
    modify(&[("AlpnPolicy.member.1", "HTTP2Optional")]).ok();
    let listener = || fake.state().load_balancers[&lb].listeners[&arn].clone();
    assert_eq!((listener().protocol.as_str(), listener().alpn.as_deref()), ("TLS", Some("HTTP2Optional")));
    modify(&[("Protocol", "TCP")]).ok();
    assert_eq!((listener().certificate, listener().policy, listener().alpn), (None, None, None));
    modify(&[("DefaultActions.member.1.Type", "forward"), ("DefaultActions.member.1.TargetGroupArn", &both)])
        .ok();
    let told = caller.elb("DescribeTargetGroups", &[("LoadBalancerArn", &lb)]).ok();
    assert_eq!(told.texts("TargetGroupName"), ["both"]);
    assert_eq!(told.text("LoadBalancerArns"), format!("<member>{lb}</member>"));
    caller.elb("DeleteTargetGroup", &[("TargetGroupArn", &tcp)]).ok();
    caller.elb("DeleteListener", &[("ListenerArn", &arn)]).ok();
    assert_eq!(caller.elb("DeleteTargetGroup", &[("TargetGroupArn", &both)]).code(), "ResourceInUse");
    caller.elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)]).ok();
    caller.elb("DeleteTargetGroup", &[("TargetGroupArn", &both)]).ok();
    assert!(fake.state().target_groups.is_empty());
}

#[test]
fn target_groups_and_their_checks() {
    let (fake, caller) = start(|_| {});
    let arn = pool(&caller, "p", "TCP");
    assert_eq!(pool(&caller, "p", "TCP"), arn, "the same again");
    let check = || fake.state().target_groups[&arn].health_check.clone();
    let found = check();
    assert_eq!((found.protocol.as_str(), found.port.as_str(), found.path), ("TCP", "traffic-port", None));
    assert_eq!((found.interval, found.timeout, found.healthy, found.unhealthy), (30, 10, 5, 2));
    let modify = |rest: &[(&str, &str)]| {
        caller.elb("ModifyTargetGroup", &[&[("TargetGroupArn", arn.as_str())], rest].concat())
    };
    let http =
        [("HealthCheckProtocol", "HTTP"), ("HealthCheckPath", "/healthz"), ("HealthCheckPort", "10256")];
    let told = modify(&http).ok();
    assert_eq!(
        (told.text("HealthCheckPath").as_str(), told.text("HttpCode").as_str()),
        ("/healthz", "200-399")
    );
    modify(&[("HealthCheckProtocol", "TCP")]).ok();
    assert_eq!((check().path, check().matcher, check().port.as_str()), (None, None, "10256"));
    let set = |key, value| {
        let parameters = [
            ("TargetGroupArn", arn.as_str()),
            ("Attributes.member.1.Key", key),
            ("Attributes.member.1.Value", value),
        ];
        caller.elb("ModifyTargetGroupAttributes", &parameters)
    };
    set("proxy_protocol_v2.enabled", "true").ok();
    assert_eq!(set("proxy_protocol_v2.enabled", "yes").code(), "ValidationError");
    assert_eq!(set("slow_start.duration_seconds", "30").code(), "ValidationError");
    let attributes = caller.elb("DescribeTargetGroupAttributes", &[("TargetGroupArn", &arn)]).ok();
    assert!(attributes.body.contains("<Key>proxy_protocol_v2.enabled</Key><Value>true</Value>"));
}

#[test]
fn targets_are_sent_to_checked_and_drained() {
    let (fake, caller) = start(|config| {
        config.checking = LONG;
        config.draining = Some(LONG);
    });
    let (lb, arn) = (balancer(&caller, "lb", &[]), pool(&caller, "p", "TCP"));
    let change = |action: &str| {
        let targets = [
            ("TargetGroupArn", arn.as_str()),
            ("Targets.member.1.Id", "i-1"),
            ("Targets.member.1.Port", "81"),
        ];
        caller.elb(action, &targets).ok();
    };
    let health = || caller.elb("DescribeTargetHealth", &[("TargetGroupArn", &arn)]).ok();
    change("RegisterTargets");
    assert_eq!(
        (health().text("State"), health().text("Reason")),
        ("unused".into(), "Target.NotInUse".into())
    );
    listen(&caller, &lb, &arn, "80", "TCP").ok();
    assert_eq!((health().text("State"), health().text("HealthCheckPort")), ("initial".into(), "81".into()));
    change("RegisterTargets");
    fake.pass(LONG);
    assert_eq!(health().text("State"), "healthy");
    change("RegisterTargets");
    assert_eq!(health().text("State"), "healthy", "the same again");
    change("DeregisterTargets");
    assert_eq!(health().text("State"), "draining");
    fake.pass(LONG / 2);
    change("RegisterTargets");
    assert_eq!(health().text("State"), "initial");
    fake.pass(LONG);
    assert_eq!(health().text("State"), "healthy");
    change("DeregisterTargets");
    fake.pass(LONG);
    assert!(health().texts("State").is_empty());
    change("DeregisterTargets");
    let asked = [("TargetGroupArn", arn.as_str()), ("Targets.member.1.Id", "i-2")];
    assert_eq!(caller.elb("DescribeTargetHealth", &asked).ok().text("Reason"), "Target.NotRegistered");

    // Somebody stops a machine.
    change("RegisterTargets");
    fake.act_as_someone_else(|world| {
        "stopped".clone_into(&mut world.instances.get_mut("i-1").unwrap().state);
    });
    assert_eq!(health().text("Reason"), "Target.InvalidState");
    let id = TargetId { id: "i-1".into(), port: 81 };
    assert_eq!(fake.state().target_groups[&arn].targets[&id].health, "unused");
}

#[test]
fn targets_drain_for_as_long_as_their_group_says() {
    let (fake, caller) = start(|config| config.draining = None);
    let (lb, arn) = (balancer(&caller, "lb", &[]), pool(&caller, "p", "TCP"));
    listen(&caller, &lb, &arn, "80", "TCP").ok();
    let target = [("TargetGroupArn", arn.as_str()), ("Targets.member.1.Id", "i-1")];
    let states = || caller.elb("DescribeTargetHealth", &[("TargetGroupArn", &arn)]).ok().texts("State");
    let delay = [
        ("TargetGroupArn", arn.as_str()),
        ("Attributes.member.1.Key", "deregistration_delay.timeout_seconds"),
        ("Attributes.member.1.Value", "20"),
    ];
    for seconds in [300, 20] {
        caller.elb("RegisterTargets", &target).ok();
        caller.elb("DeregisterTargets", &target).ok();
        fake.pass(std::time::Duration::from_secs(seconds - 1));
        assert_eq!(states(), ["draining"], "{seconds}");
        fake.pass(std::time::Duration::from_secs(1));
        assert!(states().is_empty(), "{seconds}");
        caller.elb("ModifyTargetGroupAttributes", &delay).ok();
    }
}

#[test]
fn addresses_as_targets() {
    let (_fake, caller) = start(|_| {});
    let new = [("Name", "p"), ("Protocol", "TCP"), ("Port", "80"), ("VpcId", "vpc-1"), ("TargetType", "ip")];
    let arn = caller.elb("CreateTargetGroup", &new).ok().text("TargetGroupArn");
    for (id, zone, code) in [
        ("10.0.1.99", None, ""),
        ("10.0.1.98", Some("all"), ""),
        ("192.168.1.1", Some("all"), ""),
        ("192.168.1.2", None, "InvalidTarget"),
        ("198.51.100.1", Some("all"), "InvalidTarget"),
        ("2001:db8::1", None, "InvalidTarget"),
        ("i-1", None, "InvalidTarget"),
    ] {
        let mut parameters = vec![("TargetGroupArn", arn.as_str()), ("Targets.member.1.Id", id)];
        parameters.extend(zone.map(|zone| ("Targets.member.1.AvailabilityZone", zone)));
        assert_eq!(caller.elb("RegisterTargets", &parameters).code(), code, "{id} {zone:?}");
    }
    let found = caller.elb("DescribeTargetHealth", &[("TargetGroupArn", &arn)]).ok();
    assert_eq!(found.texts("AvailabilityZone"), ["all", "eu-central-1a", "all"]);
}

#[test]
fn lists_come_in_pages() {
    let (_fake, caller) = start(|_| {});
    for number in 0..5 {
        pool(&caller, &format!("p{number}"), "TCP");
    }
    let first = caller.elb("DescribeTargetGroups", &[("PageSize", "3")]).ok();
    let marker = first.text("NextMarker");
    let second = caller.elb("DescribeTargetGroups", &[("PageSize", "3"), ("Marker", &marker)]).ok();
    assert!(second.texts("NextMarker").is_empty());
    let mut names = [first.texts("TargetGroupName"), second.texts("TargetGroupName")].concat();
    names.sort();
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4"]);
}

#[test]
fn tags() {
    let (fake, caller) = start(|_| {});
    let (lb, arn) = (balancer(&caller, "lb", &[]), pool(&caller, "p", "TCP"));
    let both = [("ResourceArns.member.1", lb.as_str()), ("ResourceArns.member.2", arn.as_str())];
    let add = |names: std::ops::Range<usize>| {
        let keys: Vec<(String, String)> = names
            .enumerate()
            .map(|(place, key)| (format!("Tags.member.{}.Key", place + 1), format!("k{key}")))
            .collect();
        let keys = keys.iter().map(|(name, key)| (name.as_str(), key.as_str()));
        caller.elb("AddTags", &both.into_iter().chain(keys).collect::<Vec<_>>())
    };
    add(0..50).ok();
    assert_eq!(add(49..51).code(), "TooManyTags");
    assert_eq!(fake.state().load_balancers[&lb].tags.len(), 50);
    let told = caller.elb("DescribeTags", &both).ok();
    assert_eq!((told.texts("ResourceArn").len(), told.texts("Key").len()), (2, 100));
    let gone = [both[0], ("TagKeys.member.1", "k0"), ("TagKeys.member.2", "none")];
    caller.elb("RemoveTags", &gone).ok();
    assert_eq!(fake.state().load_balancers[&lb].tags.len(), 49);
    assert_eq!(fake.state().target_groups[&arn].tags.len(), 50);
}

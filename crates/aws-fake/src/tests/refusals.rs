use super::{balancer, group, listen, pool, start};

/// What AWS refuses, and with which code; none of it may change anything.
#[test]
fn of_ec2() {
    let (fake, caller) = start(|_| {});
    group(&caller, "g");
    let before = fake.state();
    let new = [("GroupName", "n"), ("GroupDescription", "d"), ("VpcId", "vpc-1")];
    let rule = |rest: &[(&'static str, &'static str)]| [&[("GroupId", "sg-nodes")], rest].concat();
    let (protocol, from, to) =
        ("IpPermissions.1.IpProtocol", "IpPermissions.1.FromPort", "IpPermissions.1.ToPort");
    let range = "IpPermissions.1.IpRanges.1.CidrIp";
    let range6 = "IpPermissions.1.Ipv6Ranges.1.CidrIpv6";
    let peer = "IpPermissions.1.Groups.1.GroupId";
    let tcp = [(protocol, "tcp"), (from, "80"), (to, "80")];
    let with = |rest: &[(&'static str, &'static str)]| rule(&[&tcp, rest].concat());
    let authorize = "AuthorizeSecurityGroupIngress";
    let revoke = "RevokeSecurityGroupEgress";
    for (action, parameters, code) in [
        ("Fly", vec![], "InvalidAction"),
        ("CreateSecurityGroup", new[..2].to_vec(), "VPCIdNotSpecified"),
        ("CreateSecurityGroup", new[1..].to_vec(), "MissingParameter"),
        ("CreateSecurityGroup", [&new[..], &[("Colour", "red")]].concat(), "UnknownParameter"),
        ("CreateSecurityGroup", [&new[..], &[("DryRun", "true")]].concat(), "DryRunOperation"),
        ("CreateSecurityGroup", [&new[..], &[("DryRun", "maybe")]].concat(), "InvalidParameterValue"),
        ("CreateSecurityGroup", [&new[1..], &[("GroupName", "g")]].concat(), "InvalidGroup.Duplicate"),
        ("CreateSecurityGroup", [&new[1..], &[("GroupName", "sg-n")]].concat(), "InvalidParameterValue"),
        ("CreateSecurityGroup", [&new[1..], &[("GroupName", "é")]].concat(), "InvalidParameterValue"),
        ("CreateSecurityGroup", [&new[..2], &[("VpcId", "vpc-9")]].concat(), "InvalidVpcID.NotFound"),
        (
            "CreateSecurityGroup",
            [
                &new[..],
                &[("TagSpecification.1.ResourceType", "subnet"), ("TagSpecification.1.Tag.1.Key", "k")],
            ]
            .concat(),
            "InvalidParameterValue",
        ),
        ("DeleteSecurityGroup", vec![("GroupId", "sg-9")], "InvalidGroup.NotFound"),
        ("DeleteSecurityGroup", vec![("GroupId", "nine")], "InvalidGroupId.Malformed"),
        ("DeleteSecurityGroup", vec![("GroupId", "sg-nodes")], "DependencyViolation"),
        ("DeleteSecurityGroup", vec![("GroupId", "sg-1")], "CannotDelete"),
        ("DeleteSecurityGroup", vec![], "MissingParameter"),
        (authorize, rule(&[]), "MissingParameter"),
        (authorize, with(&[]), "MissingParameter"),
        (authorize, with(&[(range, "2001:db8::/32")]), "InvalidParameterValue"),
        (authorize, with(&[(range6, "10.0.0.0/8")]), "InvalidParameterValue"),
        (authorize, with(&[(range, "10.0.0.0")]), "InvalidParameterValue"),
        (authorize, with(&[(peer, "sg-9")]), "InvalidGroup.NotFound"),
        (authorize, with(&[(peer, "sg-other")]), "InvalidGroup.NotFound"),
        (
            authorize,
            with(&[("IpPermissions.1.PrefixListIds.1.PrefixListId", "pl-9")]),
            "InvalidPrefixListID.NotFound",
        ),
        (
            authorize,
            with(&[(range, "10.0.0.0/8"), ("IpPermissions.1.IpRanges.2.CidrIp", "10.1.0.0/8")]),
            "InvalidParameterValue",
        ),
        (
            authorize,
            with(&[(range, "10.0.0.0/8"), ("IpPermissions.1.IpRanges.1.Description", "<>")]),
            "InvalidParameterValue",
        ),
        (
            authorize,
            with(&[(range, "10.0.0.0/8"), ("IpPermissions.1.IpRanges.3.CidrIp", "11.0.0.0/8")]),
            "InvalidParameterValue",
        ),
        (authorize, with(&[(range, "10.0.0.0/8"), ("IpPermissions.1.Colour", "red")]), "UnknownParameter"),
        (
            authorize,
            rule(&[(protocol, "tls"), (from, "80"), (to, "80"), (range, "10.0.0.0/8")]),
            "InvalidParameterValue",
        ),
        (authorize, rule(&[(protocol, "tcp"), (range, "10.0.0.0/8")]), "InvalidParameterValue"),
        (
            authorize,
            rule(&[(protocol, "tcp"), (from, "9"), (to, "8"), (range, "10.0.0.0/8")]),
            "InvalidParameterValue",
        ),
        (
            authorize,
            rule(&[(protocol, "tcp"), (from, "9"), (to, "99999"), (range, "10.0.0.0/8")]),
            "InvalidParameterValue",
        ),
        (authorize, rule(&[(protocol, "icmp"), (from, "3"), (range, "10.0.0.0/8")]), "InvalidParameterValue"),
        (revoke, with(&[(range, "10.0.0.0/8")]), "InvalidPermission.NotFound"),
        (
            revoke,
            vec![("GroupId", "sg-nodes"), ("SecurityGroupRuleId.1", "sgr-9")],
            "InvalidSecurityGroupRuleId.NotFound",
        ),
        ("CreateTags", vec![("ResourceId.1", "sg-9"), ("Tag.1.Key", "k")], "InvalidGroup.NotFound"),
        (
            "CreateTags",
            vec![("ResourceId.1", "sg-nodes"), ("ResourceId.2", "x"), ("Tag.1.Key", "k")],
            "InvalidID",
        ),
        ("CreateTags", vec![("ResourceId.1", "sg-nodes"), ("Tag.1.Key", "aws:k")], "InvalidParameterValue"),
        ("DescribeSecurityGroups", vec![("GroupId.1", "sg-9")], "InvalidGroup.NotFound"),
        (
            "DescribeSecurityGroups",
            vec![("Filter.1.Name", "colour"), ("Filter.1.Value.1", "x")],
            "InvalidParameterValue",
        ),
        ("DescribeSecurityGroups", vec![("MaxResults", "4")], "InvalidParameterValue"),
        ("DescribeSecurityGroups", vec![("MaxResults", "1001")], "InvalidParameterValue"),
        ("DescribeSecurityGroups", vec![("NextToken", "x")], "InvalidNextToken"),
        ("DescribeInstances", vec![("InstanceId.1", "i-9")], "InvalidInstanceID.NotFound"),
        ("DescribeInstances", vec![("InstanceId.1", "9")], "InvalidInstanceID.Malformed"),
        (
            "DescribeInstances",
            vec![("InstanceId.1", "i-1"), ("MaxResults", "5")],
            "InvalidParameterCombination",
        ),
        ("DescribeSubnets", vec![("SubnetId.1", "subnet-9")], "InvalidSubnetID.NotFound"),
        ("DescribeVpcs", vec![("VpcId.1", "vpc-9")], "InvalidVpcID.NotFound"),
        ("DescribeRouteTables", vec![("RouteTableId.1", "rtb-9")], "InvalidRouteTableID.NotFound"),
        ("DescribeRouteTables", vec![("MaxResults", "101")], "InvalidParameterValue"),
    ] {
        let found = caller.ec2(action, &parameters);
        assert_eq!(found.code(), code, "{action} {parameters:?} {}", found.body);
        let status = if code == "DryRunOperation" { 412 } else { 400 };
        assert_eq!(found.status, status, "{action} {parameters:?}");
        assert!(found.body.contains("<Response><Errors><Error><Code>"), "{}", found.body);
    }
    fake.deny("DeleteSecurityGroup");
    for dry_run in ["true", "false"] {
        let found = caller.ec2("DeleteSecurityGroup", &[("GroupId", "sg-nodes"), ("DryRun", dry_run)]);
        assert_eq!((found.status, found.code().as_str()), (403, "UnauthorizedOperation"));
    }
    assert_eq!(fake.state(), before);
}

#[test]
fn of_load_balancing() {
    let (fake, caller) = start(|_| {});
    let lb = balancer(&caller, "lb", &["sg-nodes"]);
    let (plain, second) = (balancer(&caller, "plain", &[]), balancer(&caller, "second", &[]));
    let (tcp, udp) = (pool(&caller, "tcp", "TCP"), pool(&caller, "udp", "UDP"));
    let own = listen(&caller, &lb, &tcp, "80", "TCP").ok().text("ListenerArn");
    let parts = ["Name", "Type", "Subnets.member.1", "Subnets.member.2"];
    let [name, kind, first, other] = parts;
    let new = [(name, "n"), (kind, "network"), (first, "subnet-a")];
    let more = |rest: &[(&'static str, &'static str)]| [&new[..], rest].concat();
    let mapping = "SubnetMappings.member.1.SubnetId";
    let elastic = "SubnetMappings.member.1.AllocationId";
    let private = "SubnetMappings.member.1.PrivateIPv4Address";
    let mapped = |rest: &[(&'static str, &'static str)]| [&new[..2], &[(mapping, "subnet-a")], rest].concat();
    let sg = "SecurityGroups.member.1";
    let ghost = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/x/1";
    let ghost_pool = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/x/1";
    let ghost_listener = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:listener/net/x/1/2";
    let group = [("Name", "n"), ("Protocol", "TCP"), ("Port", "80"), ("VpcId", "vpc-1")];
    let grouped = |rest: &[(&'static str, &'static str)]| [&group[..], rest].concat();
    let action = [("DefaultActions.member.1.Type", "forward")];
    let target = "DefaultActions.member.1.TargetGroupArn";
    let listener = |rest: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        let all = [("LoadBalancerArn", lb.as_str()), action[0]].into_iter().chain(rest.iter().copied());
        all.map(|(name, value)| (name, value.to_owned())).collect()
    };
    let tls = |rest: &[(&'static str, &str)]| {
        listener(&[&[("Port", "443"), ("Protocol", "TLS"), (target, tcp.as_str())], rest].concat())
    };
    let owned = |pairs: Vec<(&'static str, &str)>| -> Vec<(&'static str, String)> {
        pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
    };
    let certificate = "Certificates.member.1.CertificateArn";
    let before = fake.state();
    let cases = vec![
        ("Fly", vec![], "InvalidAction"),
        ("CreateLoadBalancer", owned(new[1..].to_vec()), "ValidationError"),
        ("CreateLoadBalancer", owned(new[..2].to_vec()), "ValidationError"),
        ("CreateLoadBalancer", owned(more(&[("Colour", "red")])), "ValidationError"),
        ("CreateLoadBalancer", owned(more(&[("Scheme", "public")])), "ValidationError"),
        ("CreateLoadBalancer", owned([&new[1..], &[(name, "-n")]].concat()), "ValidationError"),
        ("CreateLoadBalancer", owned([&new[1..], &[(name, "internal-n")]].concat()), "ValidationError"),
        (
            "CreateLoadBalancer",
            owned([&new[1..], &[(name, "a2345678901234567890123456789012x")]].concat()),
            "ValidationError",
        ),
        ("CreateLoadBalancer", owned(more(&[(other, "subnet-9")])), "SubnetNotFound"),
        (
            "CreateLoadBalancer",
            owned([&new[..2], &[(first, "subnet-b"), (other, "subnet-b2")]].concat()),
            "InvalidConfigurationRequest",
        ),
        (
            "CreateLoadBalancer",
            owned([&new[..2], &[(first, "subnet-b"), (other, "subnet-x")]].concat()),
            "InvalidConfigurationRequest",
        ),
        ("CreateLoadBalancer", owned([&new[..2], &[(first, "subnet-x")]].concat()), "InvalidSubnet"),
        ("CreateLoadBalancer", owned(more(&[(sg, "sg-9")])), "InvalidSecurityGroup"),
        ("CreateLoadBalancer", owned(more(&[(sg, "sg-other")])), "InvalidConfigurationRequest"),
        (
            "CreateLoadBalancer",
            owned(more(&[(other, "subnet-c"), ("IpAddressType", "dualstack")])),
            "InvalidConfigurationRequest",
        ),
        ("CreateLoadBalancer", owned([&new[1..], &[(name, "lb")]].concat()), "DuplicateLoadBalancerName"),
        ("CreateLoadBalancer", owned(mapped(&[(elastic, "eipalloc-9")])), "AllocationIdNotFound"),
        (
            "CreateLoadBalancer",
            owned(mapped(&[(elastic, "eipalloc-1"), ("Scheme", "internal")])),
            "InvalidConfigurationRequest",
        ),
        (
            "CreateLoadBalancer",
            owned(mapped(&[(elastic, "eipalloc-1"), ("SubnetMappings.member.2.SubnetId", "subnet-b")])),
            "InvalidConfigurationRequest",
        ),
        ("CreateLoadBalancer", owned(mapped(&[(private, "10.0.1.9")])), "InvalidConfigurationRequest"),
        (
            "CreateLoadBalancer",
            owned(mapped(&[(private, "10.0.2.9"), ("Scheme", "internal")])),
            "InvalidConfigurationRequest",
        ),
        (
            "CreateLoadBalancer",
            owned(mapped(&[(private, "10.0.1.10"), ("Scheme", "internal")])),
            "ResourceInUse",
        ),
        (
            "CreateLoadBalancer",
            owned(more(&[("Tags.member.1.Key", "a"), ("Tags.member.2.Key", "a")])),
            "DuplicateTagKeys",
        ),
        ("CreateLoadBalancer", owned(more(&[("Tags.member.1.Key", "a<")])), "ValidationError"),
        ("DescribeLoadBalancers", owned(vec![("Names.member.1", "nobody")]), "LoadBalancerNotFound"),
        ("DescribeLoadBalancers", owned(vec![("LoadBalancerArns.member.1", ghost)]), "LoadBalancerNotFound"),
        ("DescribeLoadBalancers", owned(vec![("PageSize", "401")]), "ValidationError"),
        ("DescribeLoadBalancers", owned(vec![("Marker", "x")]), "ValidationError"),
        ("DeleteLoadBalancer", owned(vec![("LoadBalancerArn", "x")]), "ValidationError"),
        (
            "SetSecurityGroups",
            owned(vec![("LoadBalancerArn", &plain), (sg, "sg-nodes")]),
            "InvalidConfigurationRequest",
        ),
        ("SetSecurityGroups", owned(vec![("LoadBalancerArn", &lb), (sg, "sg-9")]), "InvalidSecurityGroup"),
        (
            "SetSecurityGroups",
            owned(vec![("LoadBalancerArn", &lb), (sg, "sg-other")]),
            "InvalidConfigurationRequest",
        ),
        (
            "SetSecurityGroups",
            owned(vec![("LoadBalancerArn", ghost), (sg, "sg-nodes")]),
            "LoadBalancerNotFound",
        ),
        (
            "SetSubnets",
            owned(vec![("LoadBalancerArn", &lb), (first, "subnet-b"), (other, "subnet-b2")]),
            "InvalidConfigurationRequest",
        ),
        (
            "SetIpAddressType",
            owned(vec![("LoadBalancerArn", &lb), ("IpAddressType", "ipv6")]),
            "ValidationError",
        ),
        (
            "ModifyLoadBalancerAttributes",
            owned(vec![
                ("LoadBalancerArn", &lb),
                ("Attributes.member.1.Key", "colour"),
                ("Attributes.member.1.Value", "red"),
            ]),
            "ValidationError",
        ),
        (
            "ModifyLoadBalancerAttributes",
            owned(vec![
                ("LoadBalancerArn", &lb),
                ("Attributes.member.1.Key", "access_logs.s3.enabled"),
                ("Attributes.member.1.Value", "true"),
            ]),
            "InvalidConfigurationRequest",
        ),
        ("CreateTargetGroup", owned(group[..3].to_vec()), "ValidationError"),
        ("CreateTargetGroup", owned([&group[..3], &[("VpcId", "vpc-9")]].concat()), "ValidationError"),
        (
            "CreateTargetGroup",
            owned([&group[1..], &[("Name", "tcp"), ("HealthCheckPort", "81")]].concat()),
            "DuplicateTargetGroupName",
        ),
        ("CreateTargetGroup", owned(grouped(&[("HealthCheckProtocol", "UDP")])), "ValidationError"),
        ("CreateTargetGroup", owned(grouped(&[("HealthCheckPath", "/x")])), "InvalidConfigurationRequest"),
        ("CreateTargetGroup", owned(grouped(&[("HealthCheckPort", "0")])), "ValidationError"),
        ("CreateTargetGroup", owned(grouped(&[("HealthCheckIntervalSeconds", "4")])), "ValidationError"),
        (
            "CreateTargetGroup",
            owned(grouped(&[("HealthCheckIntervalSeconds", "5"), ("HealthCheckTimeoutSeconds", "6")])),
            "ValidationError",
        ),
        ("CreateTargetGroup", owned(grouped(&[("HealthyThresholdCount", "11")])), "ValidationError"),
        (
            "CreateTargetGroup",
            owned(grouped(&[("HealthCheckEnabled", "false")])),
            "InvalidConfigurationRequest",
        ),
        ("DeleteTargetGroup", owned(vec![("TargetGroupArn", &tcp)]), "ResourceInUse"),
        ("ModifyTargetGroup", owned(vec![("TargetGroupArn", ghost_pool)]), "TargetGroupNotFound"),
        ("DescribeTargetGroups", owned(vec![("Names.member.1", "nobody")]), "TargetGroupNotFound"),
        (
            "DescribeTargetGroups",
            owned(vec![("Names.member.1", "tcp"), ("LoadBalancerArn", &lb)]),
            "ValidationError",
        ),
        (
            "ModifyTargetGroupAttributes",
            owned(vec![
                ("TargetGroupArn", &udp),
                ("Attributes.member.1.Key", "preserve_client_ip.enabled"),
                ("Attributes.member.1.Value", "false"),
            ]),
            "InvalidConfigurationRequest",
        ),
        (
            "RegisterTargets",
            owned(vec![("TargetGroupArn", &tcp), ("Targets.member.1.Id", "i-9")]),
            "InvalidTarget",
        ),
        (
            "RegisterTargets",
            owned(vec![
                ("TargetGroupArn", &tcp),
                ("Targets.member.1.Id", "i-1"),
                ("Targets.member.2.Id", "i-stopped"),
            ]),
            "InvalidTarget",
        ),
        (
            "RegisterTargets",
            owned(vec![("TargetGroupArn", &tcp), ("Targets.member.1.Id", "i-elsewhere")]),
            "InvalidTarget",
        ),
        ("RegisterTargets", owned(vec![("TargetGroupArn", &tcp)]), "ValidationError"),
        (
            "RegisterTargets",
            owned(vec![("TargetGroupArn", ghost_pool), ("Targets.member.1.Id", "i-1")]),
            "TargetGroupNotFound",
        ),
        (
            "CreateListener",
            listener(&[
                ("Port", "80"),
                ("Protocol", "TLS"),
                (target, &tcp),
                (certificate, super::CERTIFICATE),
            ]),
            "DuplicateListener",
        ),
        (
            "CreateListener",
            listener(&[("Port", "81"), ("Protocol", "HTTP"), (target, &tcp)]),
            "UnsupportedProtocol",
        ),
        (
            "CreateListener",
            listener(&[("Port", "81"), ("Protocol", "TCP"), (target, &udp)]),
            "IncompatibleProtocols",
        ),
        (
            "CreateListener",
            listener(&[("Port", "81"), ("Protocol", "TCP_UDP"), (target, &tcp)]),
            "IncompatibleProtocols",
        ),
        (
            "CreateListener",
            listener(&[("Port", "81"), ("Protocol", "TCP"), (target, ghost_pool)]),
            "TargetGroupNotFound",
        ),
        ("CreateListener", listener(&[("Port", "81"), ("Protocol", "TCP")]), "ValidationError"),
        (
            "CreateListener",
            listener(&[("Port", "0"), ("Protocol", "TCP"), (target, &tcp)]),
            "ValidationError",
        ),
        (
            "CreateListener",
            listener(&[
                ("Port", "81"),
                ("Protocol", "TCP"),
                (target, &tcp),
                ("SslPolicy", "ELBSecurityPolicy-2016-08"),
            ]),
            "ValidationError",
        ),
        ("CreateListener", tls(&[]), "ValidationError"),
        (
            "CreateListener",
            tls(&[(certificate, "arn:aws:acm:eu-central-1:123456789012:certificate/9")]),
            "CertificateNotFound",
        ),
        ("CreateListener", tls(&[(certificate, "nonsense")]), "CertificateNotFound"),
        (
            "CreateListener",
            tls(&[(certificate, super::CERTIFICATE), ("SslPolicy", "x")]),
            "SSLPolicyNotFound",
        ),
        (
            "CreateListener",
            tls(&[(certificate, super::CERTIFICATE), ("AlpnPolicy.member.1", "x")]),
            "ALPNPolicyNotFound",
        ),
        (
            "CreateListener",
            owned(vec![
                ("LoadBalancerArn", &second),
                action[0],
                ("Port", "80"),
                ("Protocol", "TCP"),
                (target, &tcp),
            ]),
            "TargetGroupAssociationLimit",
        ),
        ("ModifyListener", owned(vec![("ListenerArn", ghost_listener), ("Port", "81")]), "ListenerNotFound"),
        ("ModifyListener", owned(vec![("ListenerArn", &own), ("Protocol", "TLS")]), "ValidationError"),
        ("DeleteListener", owned(vec![("ListenerArn", ghost_listener)]), "ListenerNotFound"),
        ("DescribeListeners", owned(vec![("LoadBalancerArn", ghost)]), "LoadBalancerNotFound"),
        ("DescribeListeners", vec![], "ValidationError"),
        (
            "DescribeTags",
            owned(vec![("ResourceArns.member.1", &lb), ("ResourceArns.member.2", ghost)]),
            "LoadBalancerNotFound",
        ),
        ("DescribeTags", owned(vec![("ResourceArns.member.1", ghost_pool)]), "TargetGroupNotFound"),
        (
            "AddTags",
            owned(vec![
                ("ResourceArns.member.1", &lb),
                ("ResourceArns.member.2", ghost),
                ("Tags.member.1.Key", "k"),
            ]),
            "LoadBalancerNotFound",
        ),
        ("RemoveTags", owned(vec![("ResourceArns.member.1", &lb)]), "ValidationError"),
    ];
    for (action, parameters, code) in cases {
        let parameters: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let found = caller.elb(action, &parameters);
        assert_eq!(
            (found.code().as_str(), found.status),
            (code, 400),
            "{action} {parameters:?} {}",
            found.body
        );
        assert!(found.body.contains("<Error><Type>Sender</Type><Code>"), "{}", found.body);
    }
    let many: Vec<String> = (1..=21).map(|place| format!("ResourceArns.member.{place}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), lb.as_str())).collect();
    assert_eq!(caller.elb("DescribeTags", &many).code(), "ValidationError");
    caller.elb("DescribeTags", &many[..20]).ok();
    fake.deny("DeleteLoadBalancer");
    let found = caller.elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)]);
    assert_eq!((found.status, found.code().as_str()), (403, "AccessDenied"));
    assert_eq!(fake.state(), before);
}

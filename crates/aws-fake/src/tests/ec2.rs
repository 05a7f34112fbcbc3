use super::{group, start};

fn ingress(group: &str, ranges: &[String]) -> Vec<(String, String)> {
    let mut parameters = vec![
        ("GroupId".to_owned(), group.to_owned()),
        ("IpPermissions.1.IpProtocol".to_owned(), "TCP".to_owned()),
        ("IpPermissions.1.FromPort".to_owned(), "80".to_owned()),
        ("IpPermissions.1.ToPort".to_owned(), "80".to_owned()),
    ];
    for (place, range) in ranges.iter().enumerate() {
        parameters.push((format!("IpPermissions.1.IpRanges.{}.CidrIp", place + 1), range.clone()));
    }
    parameters
}

fn pairs(parameters: &[(String, String)]) -> Vec<(&str, &str)> {
    parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn ranges(numbers: std::ops::Range<u8>) -> Vec<String> {
    numbers.map(|number| format!("10.{number}.0.0/16")).collect()
}

#[test]
fn a_new_group_lets_everything_out() {
    let (fake, caller) = start(|_| {});
    let id = group(&caller, "g");
    let other = [("GroupName", "g"), ("GroupDescription", "d"), ("VpcId", "vpc-2")];
    let second = caller.ec2("CreateSecurityGroup", &other).ok().text("groupId");
    let state = fake.state();
    assert_eq!(state.groups[&id].lets_out(), ["-1 0.0.0.0/0", "-1 ::/0"]);
    assert_eq!(state.groups[&second].lets_out(), ["-1 0.0.0.0/0"], "no IPv6 there");
    assert!(state.groups[&id].lets_in().is_empty());
}

#[test]
fn rules_come_and_go_all_or_none() {
    let (fake, caller) = start(|_| {});
    let id = group(&caller, "g");
    let authorize =
        |ranges: &[String]| caller.ec2("AuthorizeSecurityGroupIngress", &pairs(&ingress(&id, ranges)));
    let revoke = |ranges: &[String]| caller.ec2("RevokeSecurityGroupIngress", &pairs(&ingress(&id, ranges)));
    let made = authorize(&ranges(1..4)).ok();
    assert_eq!(made.texts("securityGroupRuleId").len(), 3);
    assert_eq!(fake.state().groups[&id].lets_in()[0], "tcp 80-80 10.1.0.0/16");
    assert_eq!(authorize(&ranges(3..6)).code(), "InvalidPermission.Duplicate");
    assert_eq!(revoke(&ranges(3..6)).code(), "InvalidPermission.NotFound");
    assert_eq!(fake.state().groups[&id].lets_in().len(), 3);
    revoke(&ranges(1..3)).ok();
    assert_eq!(fake.state().groups[&id].lets_in(), ["tcp 80-80 10.3.0.0/16"]);

    let described =
        caller.ec2("DescribeSecurityGroupRules", &[("Filter.1.Name", "group-id"), ("Filter.1.Value.1", &id)]);
    let mut directions = described.texts("isEgress");
    directions.sort();
    assert_eq!(directions, ["false", "true", "true"]);
    let rule = caller.ec2("DescribeSecurityGroups", &[("GroupId.1", &id)]).ok();
    assert_eq!(rule.texts("cidrIp"), ["10.3.0.0/16", "0.0.0.0/0"]);
    let named = fake.state().groups[&id].ingress.values().next().unwrap().id.clone();
    caller.ec2("RevokeSecurityGroupIngress", &[("GroupId", &id), ("SecurityGroupRuleId.1", &named)]).ok();
    assert!(fake.state().groups[&id].ingress.is_empty());
}

#[test]
fn rules_are_counted_by_family() {
    let (fake, caller) = start(|_| {});
    let id = group(&caller, "g");
    let authorize =
        |ranges: &[String]| caller.ec2("AuthorizeSecurityGroupIngress", &pairs(&ingress(&id, ranges)));
    authorize(&ranges(0..59)).ok();
    assert_eq!(authorize(&ranges(59..61)).code(), "RulesPerSecurityGroupLimitExceeded");
    authorize(&ranges(59..60)).ok();
    let start = [("GroupId", id.as_str()), ("IpPermissions.1.IpProtocol", "-1")];
    let with =
        |name, value| caller.ec2("AuthorizeSecurityGroupIngress", &[&start[..], &[(name, value)]].concat());
    with("IpPermissions.1.Ipv6Ranges.1.CidrIpv6", "::/0").ok();
    assert_eq!(
        with("IpPermissions.1.Groups.1.GroupId", "sg-nodes").code(),
        "RulesPerSecurityGroupLimitExceeded"
    );
    assert_eq!(fake.state().groups[&id].ingress.len(), 61);
    // A prefix list counts for as many rules as it may have entries.
    let other = group(&caller, "other");
    let fill = ingress(&other, &ranges(0..51));
    caller.ec2("AuthorizeSecurityGroupIngress", &pairs(&fill)).ok();
    let list =
        [("GroupId", other.as_str()), start[1], ("IpPermissions.1.PrefixListIds.1.PrefixListId", "pl-1")];
    assert_eq!(
        caller.ec2("AuthorizeSecurityGroupIngress", &list).code(),
        "RulesPerSecurityGroupLimitExceeded"
    );
}

#[test]
fn a_group_that_is_needed_stays() {
    let (fake, caller) = start(|_| {});
    let (first, second) = (group(&caller, "first"), group(&caller, "second"));
    let delete = |id: &str| caller.ec2("DeleteSecurityGroup", &[("GroupId", id)]);
    for (of, peer) in [(&first, &first), (&second, &first)] {
        let rule = [
            ("GroupId", of.as_str()),
            ("IpPermissions.1.IpProtocol", "-1"),
            ("IpPermissions.1.Groups.1.GroupId", peer),
            ("IpPermissions.1.Groups.1.Description", "why"),
        ];
        caller.ec2("AuthorizeSecurityGroupIngress", &rule).ok();
    }
    assert_eq!(delete(&first).code(), "DependencyViolation");
    delete(&second).ok();
    delete(&first).ok();
    assert_eq!(delete(&first).code(), "InvalidGroup.NotFound");
    assert!(!fake.state().groups.contains_key(&first));
}

#[test]
fn lists_come_in_pages() {
    let (_fake, caller) = start(|_| {});
    let ids: Vec<String> = (0..12).map(|number| group(&caller, &format!("p{number}"))).collect();
    let mut seen = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let mut parameters =
            vec![("MaxResults", "5"), ("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "p*")];
        parameters.extend(token.as_deref().map(|token| ("NextToken", token)));
        let answer = caller.ec2("DescribeSecurityGroups", &parameters).ok();
        let page = answer.texts("groupId");
        assert!(page.len() <= 5);
        seen.extend(page);
        token = answer.texts("nextToken").into_iter().next();
        if token.is_none() {
            break;
        }
    }
    let mut ids = ids;
    ids.sort();
    assert_eq!(seen, ids);
}

#[test]
fn filters_and_tags() {
    let (fake, caller) = start(|_| {});
    let new = [
        ("GroupName", "g"),
        ("GroupDescription", "d"),
        ("VpcId", "vpc-1"),
        ("TagSpecification.1.ResourceType", "security-group"),
        ("TagSpecification.1.Tag.1.Key", "k"),
        ("TagSpecification.1.Tag.1.Value", "a & b"),
    ];
    let id = caller.ec2("CreateSecurityGroup", &new).ok().text("groupId");
    let find = |name: &str, value: &str| {
        let filter = [("Filter.1.Name", name), ("Filter.1.Value.1", "nothing"), ("Filter.1.Value.2", value)];
        caller.ec2("DescribeSecurityGroups", &filter).ok().texts("groupId")
    };
    for (name, value) in [("tag:k", "a & b"), ("tag-key", "k"), ("group-name", "g"), ("group-id", &id)] {
        assert_eq!(find(name, value), std::slice::from_ref(&id), "{name}");
    }
    assert!(find("tag:k", "other").is_empty());
    caller
        .ec2(
            "CreateTags",
            &[("ResourceId.1", &id), ("Tag.1.Key", "k"), ("Tag.1.Value", "c"), ("Tag.2.Key", "l")],
        )
        .ok();
    assert_eq!(
        fake.state().groups[&id].tags,
        [("k", "c"), ("l", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    );
    caller
        .ec2(
            "DeleteTags",
            &[("ResourceId.1", &id), ("Tag.1.Key", "k"), ("Tag.1.Value", "other"), ("Tag.2.Key", "l")],
        )
        .ok();
    assert_eq!(fake.state().groups[&id].tags.len(), 1);
    let instances = [("Filter.1.Name", "vpc-id"), ("Filter.1.Value.1", "vpc-1"), ("MaxResults", "1000")];
    assert_eq!(
        caller.ec2("DescribeInstances", &instances).ok().texts("instanceId"),
        ["i-1", "i-2", "i-stopped"]
    );
    let subnets = caller.ec2("DescribeSubnets", &instances).ok();
    assert_eq!(subnets.texts("ipv6CidrBlock"), ["2001:db8::/64", "2001:db8:0:1::/64"]);
    assert_eq!(caller.ec2("DescribeAvailabilityZones", &[]).ok().texts("zoneName").len(), 3);
    assert_eq!(subnets.texts("subnetId").len(), 4);
    assert_eq!(
        caller.ec2("DescribeRouteTables", &instances[..2]).ok().texts("gatewayId"),
        ["local", "igw-1"]
    );
}

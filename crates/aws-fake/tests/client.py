"""Makes, lists, changes and deletes what a load balancer needs, by AWS's own client."""

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

# A refusal is looked at, not tried again.
once = Config(retries={"max_attempts": 1})
ec2 = boto3.client("ec2", config=once)
elb = boto3.client("elbv2", config=once)
sts = boto3.client("sts", config=once)
# There is one for all regions, which wants to be signed for so.
iam = boto3.client("iam", region_name="us-east-1", config=once)


def refused(code, status, call, **parameters):
    try:
        call(**parameters)
    except ClientError as error:
        found = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert found == (code, status), error
        assert error.response["ResponseMetadata"]["RequestId"], error.response
        return
    raise AssertionError(f"{code} was expected")


def pages(client, operation, key, size, **parameters):
    paginator = client.get_paginator(operation)
    found = list(paginator.paginate(PaginationConfig={"PageSize": size}, **parameters))
    return len(found), [entry for page in found for entry in page[key]]


def tags(entries):
    return {entry["Key"]: entry["Value"] for entry in entries}


# Who calls.
assert sts.get_caller_identity()["Account"] == "123456789012"
simulated = iam.simulate_principal_policy(
    PolicySourceArn="arn:aws:iam::123456789012:user/fake", ActionNames=["ec2:CreateTags"]
)["EvaluationResults"]
assert [(entry["EvalActionName"], entry["EvalDecision"]) for entry in simulated] == [("ec2:CreateTags", "allowed")]
role = sts.assume_role(RoleArn="arn:aws:iam::123456789012:role/r", RoleSessionName="session")["Credentials"]
assumed = boto3.client(
    "ec2",
    aws_access_key_id=role["AccessKeyId"],
    aws_secret_access_key=role["SecretAccessKey"],
    aws_session_token=role["SessionToken"],
)
wrong = boto3.client("ec2", aws_secret_access_key="wrong", aws_access_key_id="AKIAFAKEFAKEFAKEFAKE", config=once)
refused("AuthFailure", 401, wrong.describe_vpcs)

# What is there.
vpc = assumed.describe_vpcs(VpcIds=["vpc-1"])["Vpcs"][0]
assert vpc["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlockState"]["State"] == "associated", vpc
subnets = pages(ec2, "describe_subnets", "Subnets", 5, Filters=[{"Name": "vpc-id", "Values": ["vpc-1"]}])[1]
assert [(subnet["SubnetId"], subnet["AvailabilityZone"]) for subnet in subnets] == [
    ("subnet-a", "eu-central-1a"),
    ("subnet-b", "eu-central-1b"),
]
table = ec2.describe_route_tables()["RouteTables"][0]
assert table["Associations"][0]["Main"] is True and table["Routes"][1]["GatewayId"].startswith("igw-"), table
instances = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
assert [(i["InstanceId"], i["State"]["Name"], i["SecurityGroups"][0]["GroupId"]) for i in instances] == [
    ("i-1", "running", "sg-nodes"),
    ("i-2", "running", "sg-nodes"),
], instances
assert len(ec2.describe_availability_zones()["AvailabilityZones"]) == 3

# Groups and rules.
new = {"GroupName": "g", "Description": "d", "VpcId": "vpc-1"}
refused("DryRunOperation", 412, ec2.create_security_group, DryRun=True, **new)
made = ec2.create_security_group(
    TagSpecifications=[{"ResourceType": "security-group", "Tags": [{"Key": "k", "Value": "v & w"}]}], **new
)
group = made["GroupId"]
assert tags(made["Tags"]) == {"k": "v & w"} and made["SecurityGroupArn"].endswith(group), made
refused("InvalidGroup.Duplicate", 400, ec2.create_security_group, **new)
permissions = [
    {
        "IpProtocol": "tcp",
        "FromPort": 80,
        "ToPort": 443,
        "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "a"}, {"CidrIp": "192.0.2.0/24"}],
        "Ipv6Ranges": [{"CidrIpv6": "2001:db8::/32"}],
        "UserIdGroupPairs": [{"GroupId": group}],
    },
    {"IpProtocol": "icmp", "FromPort": 3, "ToPort": 4, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]},
]
added = ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=permissions)
assert added["Return"] is True and len(added["SecurityGroupRules"]) == 5, added
refused(
    "InvalidPermission.Duplicate",
    400,
    ec2.authorize_security_group_ingress,
    GroupId=group,
    IpPermissions=permissions[1:],
)
refused(
    "InvalidParameterValue",
    400,
    ec2.authorize_security_group_ingress,
    GroupId=group,
    IpPermissions=[{**permissions[0], "IpProtocol": "tls"}],
)
found = ec2.describe_security_groups(Filters=[{"Name": "tag:k", "Values": ["v & w"]}])["SecurityGroups"]
assert len(found) == 1 and len(found[0]["IpPermissions"]) == 2, found
tcp = next(entry for entry in found[0]["IpPermissions"] if entry["IpProtocol"] == "tcp")
assert tcp["FromPort"] == 80 and tcp["ToPort"] == 443, tcp
assert tcp["IpRanges"] == permissions[0]["IpRanges"] and tcp["Ipv6Ranges"] == permissions[0]["Ipv6Ranges"], tcp
assert tcp["UserIdGroupPairs"] == [{"GroupId": group, "UserId": "123456789012"}], tcp
everything = found[0]["IpPermissionsEgress"]
assert len(everything) == 1 and everything[0]["IpProtocol"] == "-1" and "FromPort" not in everything[0], everything
assert everything[0]["IpRanges"] and everything[0]["Ipv6Ranges"], everything
gone = ec2.revoke_security_group_egress(GroupId=group, IpPermissions=everything)
assert len(gone["RevokedSecurityGroupRules"]) == 2, gone
rules = pages(
    ec2, "describe_security_group_rules", "SecurityGroupRules", 5, Filters=[{"Name": "group-id", "Values": [group]}]
)[1]
assert len(rules) == 5 and not any(rule["IsEgress"] for rule in rules), rules
ec2.revoke_security_group_ingress(GroupId=group, SecurityGroupRuleIds=[rules[0]["SecurityGroupRuleId"]])
ec2.create_tags(Resources=[group], Tags=[{"Key": "l", "Value": ""}])
ec2.delete_tags(Resources=[group], Tags=[{"Key": "k"}])
many = [ec2.create_security_group(GroupName=f"n{n}", Description="d", VpcId="vpc-1")["GroupId"] for n in range(11)]
count, found = pages(ec2, "describe_security_groups", "SecurityGroups", 5)
assert count == 3 and {entry["GroupId"] for entry in found} == {"sg-1", "sg-nodes", group, *many}, (count, found)
assert tags(next(entry for entry in found if entry["GroupId"] == group)["Tags"]) == {"l": ""}
for other in many:
    ec2.delete_security_group(GroupId=other)

# A load balancer, its listeners and who they send to.
balancer = {
    "Name": "lb",
    "Type": "network",
    "Scheme": "internal",
    "IpAddressType": "ipv4",
    "SubnetMappings": [{"SubnetId": "subnet-a", "PrivateIPv4Address": "10.0.1.99"}],
    "SecurityGroups": [group],
    "Tags": [{"Key": "k", "Value": "v"}],
}
made = elb.create_load_balancer(**balancer)["LoadBalancers"][0]
arn = made["LoadBalancerArn"]
assert made["State"]["Code"] == "provisioning" and made["Type"] == "network", made
assert made["DNSName"].endswith(".elb.eu-central-1.amazonaws.com") and made["CreatedTime"].year == 2026, made
assert made["AvailabilityZones"][0]["LoadBalancerAddresses"] == [{"PrivateIPv4Address": "10.0.1.99"}], made
assert elb.create_load_balancer(**balancer)["LoadBalancers"][0]["LoadBalancerArn"] == arn
refused("DuplicateLoadBalancerName", 400, elb.create_load_balancer, **{**balancer, "SecurityGroups": ["sg-nodes"]})
elb.get_waiter("load_balancer_available").wait(LoadBalancerArns=[arn])
set_groups = elb.set_security_groups(LoadBalancerArn=arn, SecurityGroups=[group, "sg-nodes"])
assert sorted(set_groups["SecurityGroupIds"]) == sorted([group, "sg-nodes"]), set_groups
refused("DependencyViolation", 400, ec2.delete_security_group, GroupId=group)
changed = elb.set_subnets(
    LoadBalancerArn=arn,
    SubnetMappings=[
        {"SubnetId": "subnet-a", "PrivateIPv4Address": "10.0.1.99"},
        {"SubnetId": "subnet-b", "PrivateIPv4Address": "10.0.2.99"},
    ],
)
assert len(changed["AvailabilityZones"]) == 2, changed
assert elb.set_ip_address_type(LoadBalancerArn=arn, IpAddressType="dualstack")["IpAddressType"] == "dualstack"
attributes = elb.modify_load_balancer_attributes(
    LoadBalancerArn=arn, Attributes=[{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}]
)["Attributes"]
assert tags(attributes)["load_balancing.cross_zone.enabled"] == "true", attributes
assert tags(elb.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]) == tags(attributes)

pools = [
    elb.create_target_group(
        Name=f"p{number}",
        Protocol="TCP",
        Port=30000 + number,
        VpcId="vpc-1",
        HealthCheckProtocol="HTTP",
        HealthCheckPath="/healthz",
        HealthCheckPort="10256",
        HealthCheckIntervalSeconds=10,
        Tags=[{"Key": "k", "Value": "v"}],
    )["TargetGroups"][0]["TargetGroupArn"]
    for number in range(3)
]
count, found = pages(elb, "describe_target_groups", "TargetGroups", 2)
assert count == 2 and sorted(entry["TargetGroupArn"] for entry in found) == sorted(pools), (count, found)
assert found[0]["Matcher"] == {"HttpCode": "200-399"} and found[0]["HealthCheckTimeoutSeconds"] == 6, found
changed = elb.modify_target_group(TargetGroupArn=pools[0], HealthCheckProtocol="TCP")["TargetGroups"][0]
assert changed["HealthCheckProtocol"] == "TCP" and "HealthCheckPath" not in changed, changed
attributes = elb.modify_target_group_attributes(
    TargetGroupArn=pools[0], Attributes=[{"Key": "proxy_protocol_v2.enabled", "Value": "true"}]
)["Attributes"]
assert tags(elb.describe_target_group_attributes(TargetGroupArn=pools[0])["Attributes"]) == tags(attributes)


def action(pool):
    return [{"Type": "forward", "TargetGroupArn": pool}]


certificate = [{"CertificateArn": "arn:aws:acm:eu-central-1:123456789012:certificate/1"}]
tls = elb.create_listener(
    LoadBalancerArn=arn,
    Port=443,
    Protocol="TLS",
    Certificates=certificate,
    SslPolicy="ELBSecurityPolicy-TLS13-1-2-2021-06",
    AlpnPolicy=["HTTP2Preferred"],
    DefaultActions=action(pools[0]),
    Tags=[{"Key": "k", "Value": "v"}],
)["Listeners"][0]
assert tls["Certificates"] == certificate and tls["AlpnPolicy"] == ["HTTP2Preferred"], tls
plain = elb.create_listener(LoadBalancerArn=arn, Port=80, Protocol="TCP", DefaultActions=action(pools[1]))["Listeners"][0]
assert plain["DefaultActions"][0]["TargetGroupArn"] == pools[1] and "SslPolicy" not in plain, plain
refused(
    "DuplicateListener",
    400,
    elb.create_listener,
    LoadBalancerArn=arn,
    Port=80,
    Protocol="TCP",
    DefaultActions=action(pools[2]),
)
count, found = pages(elb, "describe_listeners", "Listeners", 1, LoadBalancerArn=arn)
assert count == 2 and sorted(entry["Port"] for entry in found) == [80, 443], (count, found)
elb.modify_listener(ListenerArn=plain["ListenerArn"], Port=81, DefaultActions=action(pools[2]))
refused("ResourceInUse", 400, elb.delete_target_group, TargetGroupArn=pools[2])
elb.register_targets(TargetGroupArn=pools[0], Targets=[{"Id": "i-1"}, {"Id": "i-2", "Port": 99}])
elb.get_waiter("target_in_service").wait(TargetGroupArn=pools[0])
health = elb.describe_target_health(TargetGroupArn=pools[0])["TargetHealthDescriptions"]
assert [(entry["Target"]["Id"], entry["Target"]["Port"], entry["TargetHealth"]["State"]) for entry in health] == [
    ("i-1", 30000, "healthy"),
    ("i-2", 99, "healthy"),
], health
refused("InvalidTarget", 400, elb.register_targets, TargetGroupArn=pools[0], Targets=[{"Id": "i-9"}])
elb.deregister_targets(TargetGroupArn=pools[0], Targets=[{"Id": "i-1"}])

elb.add_tags(ResourceArns=[arn, pools[0], tls["ListenerArn"]], Tags=[{"Key": "l", "Value": "é"}])
elb.remove_tags(ResourceArns=[pools[0]], TagKeys=["k"])
told = elb.describe_tags(ResourceArns=[arn, pools[0], tls["ListenerArn"]])["TagDescriptions"]
assert [tags(entry["Tags"]) for entry in told] == [{"k": "v", "l": "é"}, {"l": "é"}, {"k": "v", "l": "é"}], told

# All of it goes again.
elb.delete_listener(ListenerArn=plain["ListenerArn"])
refused("ListenerNotFound", 400, elb.delete_listener, ListenerArn=plain["ListenerArn"])
elb.delete_load_balancer(LoadBalancerArn=arn)
elb.delete_load_balancer(LoadBalancerArn=arn)
refused("LoadBalancerNotFound", 400, elb.describe_load_balancers, Names=["lb"])
for pool in pools:
    elb.delete_target_group(TargetGroupArn=pool)
refused("TargetGroupNotFound", 400, elb.describe_target_groups, Names=["p0"])
ec2.delete_security_group(GroupId=group)
refused("InvalidGroup.NotFound", 400, ec2.describe_security_groups, GroupIds=[group])
print("done")

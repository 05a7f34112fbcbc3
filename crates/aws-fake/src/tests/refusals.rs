//! What AWS refuses, and with which code: an action, its parameters, the code. None of it may change anything.

use super::{Answer, CERTIFICATE, Caller, balancer, group, listen, pool, start};

/// `@` stands for the first permission.
const OF_EC2: &str = "
Fly InvalidAction
CreateSecurityGroup GroupName=n GroupDescription=d VPCIdNotSpecified
CreateSecurityGroup GroupDescription=d VpcId=vpc-1 MissingParameter
CreateSecurityGroup GroupName=n VpcId=vpc-1 MissingParameter
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-1 Colour=red UnknownParameter
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-1 VpcId.1=red UnknownParameter
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-1 DryRun=true DryRunOperation
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-1 DryRun=maybe InvalidParameterValue
CreateSecurityGroup GroupName=g GroupDescription=d VpcId=vpc-1 InvalidGroup.Duplicate
CreateSecurityGroup GroupName=sg-n GroupDescription=d VpcId=vpc-1 InvalidParameterValue
CreateSecurityGroup GroupName=default GroupDescription=d VpcId=vpc-1 InvalidParameterValue
CreateSecurityGroup GroupName=é GroupDescription=d VpcId=vpc-1 InvalidParameterValue
CreateSecurityGroup GroupName=n GroupDescription=<> VpcId=vpc-1 InvalidParameterValue
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-9 InvalidVpcID.NotFound
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-1 TagSpecification.1.ResourceType=subnet TagSpecification.1.Tag.1.Key=k InvalidParameterValue
CreateSecurityGroup GroupName=n GroupDescription=d VpcId=vpc-1 TagSpecification.1.ResourceType=security-group TagSpecification.1.Tag.1.Key=k TagSpecification.1.Tag.2.Key=k InvalidParameterValue
DeleteSecurityGroup MissingParameter
DeleteSecurityGroup GroupId=sg-9 InvalidGroup.NotFound
DeleteSecurityGroup GroupId=nine InvalidGroupId.Malformed
DeleteSecurityGroup GroupId=sg-nodes DependencyViolation
DeleteSecurityGroup GroupId=sg-1 CannotDelete
AuthorizeSecurityGroupIngress GroupId=sg-nodes MissingParameter
AuthorizeSecurityGroupIngress @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 MissingParameter
AuthorizeSecurityGroupIngress GroupId=sg-9 @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidGroup.NotFound
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=tcp @FromPort=80 @ToPort=80 MissingParameter
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=2001:db8::/32 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @Ipv6Ranges.1.CidrIpv6=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @Groups.1.GroupId=sg-9 InvalidGroup.NotFound
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @Groups.1.GroupId=sg-other InvalidGroup.NotFound
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @Groups.1.GroupId=nodes InvalidGroupId.Malformed
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @PrefixListIds.1.PrefixListId=pl-9 InvalidPrefixListID.NotFound
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 @IpRanges.2.CidrIp=10.1.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 @IpRanges.3.CidrIp=11.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 @IpRanges.1.Description=<> InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 @Colour=red UnknownParameter
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.member.1.CidrIp=10.0.0.0/8 UnknownParameter
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=tls @FromPort=80 @ToPort=80 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=256 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=tcp @IpRanges.1.CidrIp=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=tcp @FromPort=9 @ToPort=8 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=tcp @FromPort=9 @ToPort=99999 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupIngress GroupId=sg-nodes @IpProtocol=icmp @FromPort=3 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidParameterValue
AuthorizeSecurityGroupEgress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=0.0.0.0/0 InvalidPermission.Duplicate
RevokeSecurityGroupEgress GroupId=sg-nodes @IpProtocol=-1 @IpRanges.1.CidrIp=10.0.0.0/8 InvalidPermission.NotFound
RevokeSecurityGroupEgress GroupId=sg-nodes SecurityGroupRuleId.1=sgr-9 InvalidSecurityGroupRuleId.NotFound
RevokeSecurityGroupEgress GroupId=sg-nodes SecurityGroupRuleId.1=sgr-nodes1 @IpProtocol=-1 @IpRanges.1.CidrIp=0.0.0.0/0 InvalidParameterCombination
CreateTags Tag.1.Key=k MissingParameter
CreateTags ResourceId.1=sg-nodes MissingParameter
CreateTags ResourceId.1=sg-9 Tag.1.Key=k InvalidGroup.NotFound
CreateTags ResourceId.1=sg-nodes ResourceId.2=x Tag.1.Key=k InvalidID
CreateTags ResourceId.1=sg-nodes Tag.1.Key=aws:k InvalidParameterValue
DescribeSecurityGroups GroupId.1=sg-9 InvalidGroup.NotFound
DescribeSecurityGroups Filter.1.Name=colour Filter.1.Value.1=x InvalidParameterValue
DescribeSecurityGroups Filter.1.Name=group-id InvalidParameterValue
DescribeSecurityGroups MaxResults=4 InvalidParameterValue
DescribeSecurityGroups MaxResults=1001 InvalidParameterValue
DescribeSecurityGroups NextToken=x InvalidNextToken
DescribeSecurityGroupRules SecurityGroupRuleId.1=sgr-9 InvalidSecurityGroupRuleId.NotFound
DescribeInstances InstanceId.1=i-9 InvalidInstanceID.NotFound
DescribeInstances InstanceId.1=9 InvalidInstanceID.Malformed
DescribeInstances InstanceId.1=i-1 MaxResults=5 InvalidParameterCombination
DescribeSubnets SubnetId.1=subnet-9 InvalidSubnetID.NotFound
DescribeVpcs VpcId.1=vpc-9 InvalidVpcID.NotFound
DescribeRouteTables RouteTableId.1=rtb-9 InvalidRouteTableID.NotFound
DescribeRouteTables MaxResults=101 InvalidParameterValue
";

/// `@` stands for `.member.`, and a word in braces for the ARN of something.
const OF_LOAD_BALANCING: &str = "
Fly InvalidAction
CreateLoadBalancer Type=network Subnets@1=subnet-a ValidationError
CreateLoadBalancer Name=n Type=network ValidationError
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a Colour=red ValidationError
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a Scheme=public ValidationError
CreateLoadBalancer Name=-n Type=network Subnets@1=subnet-a ValidationError
CreateLoadBalancer Name=n_n Type=network Subnets@1=subnet-a ValidationError
CreateLoadBalancer Name=internal-n Type=network Subnets@1=subnet-a ValidationError
CreateLoadBalancer Name=a2345678901234567890123456789012x Type=network Subnets@1=subnet-a ValidationError
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a Subnets@2=subnet-9 SubnetNotFound
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a SubnetMappings@1.SubnetId=subnet-b ValidationError
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-b Subnets@2=subnet-b2 InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-b Subnets@2=subnet-x InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-x InvalidSubnet
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a SecurityGroups@1=sg-9 InvalidSecurityGroup
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a SecurityGroups@1=sg-other InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-c IpAddressType=dualstack InvalidConfigurationRequest
CreateLoadBalancer Name=lb Type=network Subnets@1=subnet-a DuplicateLoadBalancerName
CreateLoadBalancer Name=lb Type=network Subnets@1=subnet-a Subnets@2=subnet-b DuplicateLoadBalancerName
CreateLoadBalancer Name=n Type=network SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.AllocationId=eipalloc-9 AllocationIdNotFound
CreateLoadBalancer Name=n Type=network Scheme=internal SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.AllocationId=eipalloc-1 InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.AllocationId=eipalloc-1 SubnetMappings@2.SubnetId=subnet-b InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.PrivateIPv4Address=10.0.1.9 InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network Scheme=internal SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.PrivateIPv4Address=10.0.2.9 InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network Scheme=internal SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.PrivateIPv4Address=10.0.1.3 InvalidConfigurationRequest
CreateLoadBalancer Name=n Type=network Scheme=internal SubnetMappings@1.SubnetId=subnet-a SubnetMappings@1.PrivateIPv4Address=10.0.1.10 ResourceInUse
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a Tags@1.Key=a Tags@2.Key=a DuplicateTagKeys
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a Tags@1.Key=a< ValidationError
CreateLoadBalancer Name=n Type=network Subnets@1=subnet-a Tags@1.Key=aws:a ValidationError
DescribeLoadBalancers Names@1=nobody LoadBalancerNotFound
DescribeLoadBalancers LoadBalancerArns@1={ghost} LoadBalancerNotFound
DescribeLoadBalancers LoadBalancerArns@1={lb} Names@1=lb ValidationError
DescribeLoadBalancers PageSize=401 ValidationError
DescribeLoadBalancers Marker=x ValidationError
DeleteLoadBalancer LoadBalancerArn=x ValidationError
SetSecurityGroups LoadBalancerArn={plain} SecurityGroups@1=sg-nodes InvalidConfigurationRequest
SetSecurityGroups LoadBalancerArn={lb} SecurityGroups@1=sg-9 InvalidSecurityGroup
SetSecurityGroups LoadBalancerArn={lb} SecurityGroups@1=sg-other InvalidConfigurationRequest
SetSecurityGroups LoadBalancerArn={ghost} SecurityGroups@1=sg-nodes LoadBalancerNotFound
SetSubnets LoadBalancerArn={lb} ValidationError
SetSubnets LoadBalancerArn={lb} Subnets@1=subnet-b Subnets@2=subnet-b2 InvalidConfigurationRequest
SetIpAddressType LoadBalancerArn={lb} IpAddressType=ipv6 ValidationError
ModifyLoadBalancerAttributes LoadBalancerArn={lb} Attributes@1.Key=colour Attributes@1.Value=red ValidationError
ModifyLoadBalancerAttributes LoadBalancerArn={lb} Attributes@1.Key=deletion_protection.enabled Attributes@1.Value=yes ValidationError
ModifyLoadBalancerAttributes LoadBalancerArn={lb} Attributes@1.Key=access_logs.s3.enabled Attributes@1.Value=true InvalidConfigurationRequest
ModifyLoadBalancerAttributes LoadBalancerArn={ghost} Attributes@1.Key=deletion_protection.enabled Attributes@1.Value=true LoadBalancerNotFound
CreateTargetGroup Name=n Protocol=TCP Port=80 ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-9 ValidationError
CreateTargetGroup Name=tcp Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckPort=81 DuplicateTargetGroupName
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckProtocol=UDP ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckPath=/x InvalidConfigurationRequest
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckProtocol=HTTP HealthCheckPath=x ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckProtocol=HTTP Matcher.HttpCode=100 ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckPort=0 ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckIntervalSeconds=4 ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckIntervalSeconds=5 HealthCheckTimeoutSeconds=6 ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthyThresholdCount=11 ValidationError
CreateTargetGroup Name=n Protocol=TCP Port=80 VpcId=vpc-1 HealthCheckEnabled=false InvalidConfigurationRequest
DeleteTargetGroup TargetGroupArn={tcp} ResourceInUse
DeleteTargetGroup TargetGroupArn={lb} ValidationError
ModifyTargetGroup TargetGroupArn={ghost-pool} TargetGroupNotFound
DescribeTargetGroups Names@1=nobody TargetGroupNotFound
DescribeTargetGroups Names@1=tcp LoadBalancerArn={lb} ValidationError
DescribeTargetHealth TargetGroupArn={ghost-pool} TargetGroupNotFound
ModifyTargetGroupAttributes TargetGroupArn={udp} Attributes@1.Key=preserve_client_ip.enabled Attributes@1.Value=false InvalidConfigurationRequest
ModifyTargetGroupAttributes TargetGroupArn={udp} Attributes@1.Key=target_health_state.unhealthy.connection_termination.enabled Attributes@1.Value=true InvalidConfigurationRequest
ModifyTargetGroupAttributes TargetGroupArn={tcp} Attributes@1.Key=target_health_state.unhealthy.draining_interval_seconds Attributes@1.Value=9 InvalidConfigurationRequest
RegisterTargets TargetGroupArn={tcp} ValidationError
RegisterTargets TargetGroupArn={tcp} Targets@1.Id=i-9 InvalidTarget
RegisterTargets TargetGroupArn={tcp} Targets@1.Id=i-1 Targets@2.Id=i-stopped InvalidTarget
RegisterTargets TargetGroupArn={tcp} Targets@1.Id=i-elsewhere InvalidTarget
RegisterTargets TargetGroupArn={tcp} Targets@1.Id=10.0.1.10 InvalidTarget
RegisterTargets TargetGroupArn={ghost-pool} Targets@1.Id=i-1 TargetGroupNotFound
DeregisterTargets TargetGroupArn={ghost-pool} Targets@1.Id=i-1 TargetGroupNotFound
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=80 Protocol=TLS DefaultActions@1.TargetGroupArn={tcp} Certificates@1.CertificateArn={certificate} DuplicateListener
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=81 Protocol=HTTP DefaultActions@1.TargetGroupArn={tcp} UnsupportedProtocol
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=81 Protocol=TCP DefaultActions@1.TargetGroupArn={udp} IncompatibleProtocols
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=81 Protocol=TCP_UDP DefaultActions@1.TargetGroupArn={tcp} IncompatibleProtocols
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=81 Protocol=TCP DefaultActions@1.TargetGroupArn={ghost-pool} TargetGroupNotFound
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=redirect Port=81 Protocol=TCP InvalidLoadBalancerAction
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=81 Protocol=TCP ValidationError
CreateListener LoadBalancerArn={lb} Port=81 Protocol=TCP ValidationError
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=0 Protocol=TCP DefaultActions@1.TargetGroupArn={tcp} ValidationError
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=81 Protocol=TCP DefaultActions@1.TargetGroupArn={tcp} SslPolicy=ELBSecurityPolicy-2016-08 ValidationError
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=443 Protocol=TLS DefaultActions@1.TargetGroupArn={tcp} ValidationError
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=443 Protocol=TLS DefaultActions@1.TargetGroupArn={tcp} Certificates@1.CertificateArn={certificate}9 CertificateNotFound
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=443 Protocol=TLS DefaultActions@1.TargetGroupArn={tcp} Certificates@1.CertificateArn=nonsense CertificateNotFound
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=443 Protocol=TLS DefaultActions@1.TargetGroupArn={tcp} Certificates@1.CertificateArn={certificate} SslPolicy=x SSLPolicyNotFound
CreateListener LoadBalancerArn={lb} DefaultActions@1.Type=forward Port=443 Protocol=TLS DefaultActions@1.TargetGroupArn={tcp} Certificates@1.CertificateArn={certificate} AlpnPolicy@1=x ALPNPolicyNotFound
CreateListener LoadBalancerArn={plain} DefaultActions@1.Type=forward Port=80 Protocol=TCP DefaultActions@1.TargetGroupArn={tcp} TargetGroupAssociationLimit
CreateListener LoadBalancerArn={ghost} DefaultActions@1.Type=forward Port=80 Protocol=TCP DefaultActions@1.TargetGroupArn={tcp} LoadBalancerNotFound
ModifyListener ListenerArn={ghost-listener} Port=81 ListenerNotFound
ModifyListener ListenerArn={listener} Protocol=TLS ValidationError
ModifyListener ListenerArn={listener} Protocol=UDP IncompatibleProtocols
DeleteListener ListenerArn={ghost-listener} ListenerNotFound
DescribeListeners ValidationError
DescribeListeners LoadBalancerArn={ghost} LoadBalancerNotFound
DescribeListeners ListenerArns@1={ghost-listener} ListenerNotFound
DescribeTags ValidationError
DescribeTags ResourceArns@1={lb} ResourceArns@2={ghost} LoadBalancerNotFound
DescribeTags ResourceArns@1={ghost-pool} TargetGroupNotFound
AddTags ResourceArns@1={lb} ResourceArns@2={ghost} Tags@1.Key=k LoadBalancerNotFound
RemoveTags ResourceArns@1={lb} ValidationError
";

/// Asks for every line; what `call` answers is what the line says.
fn ask(lines: &str, call: impl Fn(&str, &[(&str, &str)]) -> Answer, shape: &str) {
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let mut words: Vec<&str> = line.split(' ').collect();
        let (action, code) = (words.remove(0), words.pop().unwrap());
        let parameters: Vec<(&str, &str)> = words.iter().map(|word| word.split_once('=').unwrap()).collect();
        let found = call(action, &parameters);
        let status = if code == "DryRunOperation" { 412 } else { 400 };
        assert_eq!((found.code().as_str(), found.status), (code, status), "{line}\n{}", found.body);
        assert!(found.body.contains(shape), "{}", found.body);
    }
}

#[test]
fn of_ec2() {
    let (fake, caller) = start(|_| {});
    group(&caller, "g");
    let before = fake.state();
    let lines = OF_EC2.replace('@', "IpPermissions.1.");
    ask(&lines, |action, parameters| caller.ec2(action, parameters), "<Response><Errors><Error><Code>");
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
    let lines = named(&caller, &lb);
    let before = fake.state();
    ask(&lines, |action, parameters| caller.elb(action, parameters), "<Error><Type>Sender</Type><Code>");

    let many: Vec<String> = (1..=21).map(|place| format!("ResourceArns.member.{place}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), lb.as_str())).collect();
    assert_eq!(caller.elb("DescribeTags", &many).code(), "ValidationError");
    caller.elb("DescribeTags", &many[..20]).ok();
    fake.deny("DeleteLoadBalancer");
    let found = caller.elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)]);
    assert_eq!((found.status, found.code().as_str()), (403, "AccessDenied"));
    assert_eq!(fake.state(), before);
}

/// Makes what the lines name, and puts its ARNs in.
fn named(caller: &Caller, lb: &str) -> String {
    let (tcp, udp) = (pool(caller, "tcp", "TCP"), pool(caller, "udp", "UDP"));
    let listener = listen(caller, lb, &tcp, "80", "TCP").ok().text("ListenerArn");
    let start = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:";
    let arns = [
        ("{lb}", lb.to_owned()),
        ("{plain}", balancer(caller, "plain", &[])),
        ("{tcp}", tcp),
        ("{udp}", udp),
        ("{listener}", listener),
        ("{ghost}", format!("{start}loadbalancer/net/x/1")),
        ("{ghost-pool}", format!("{start}targetgroup/x/1")),
        ("{ghost-listener}", format!("{start}listener/net/x/1/2")),
        ("{certificate}", CERTIFICATE.to_owned()),
    ];
    let lines = OF_LOAD_BALANCING.replace('@', ".member.");
    arns.iter().fold(lines, |lines, (word, arn)| lines.replace(word, arn))
}

//! What a role on AWS is allowed, found out without changing anything.

use crate::client::{CallError, Cause, Client, Parameters};

/// Whether an action is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// As policies name it: `ec2:CreateSecurityGroup`.
    pub action: String,
    /// Whether it is allowed.
    pub verdict: Verdict,
}

/// What was found out about an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is allowed.
    Allowed,
    /// It is not, in AWS's words.
    Denied(String),
    /// AWS did not say.
    Unknown(String),
}

/// Something of that kind that nobody has.
fn nobodys(kind: &str, region: &str) -> String {
    let resource = match kind {
        "loadbalancer" => "loadbalancer/net/portcullis-check/0000000000000000",
        "listener" => "listener/net/portcullis-check/0000000000000000/0000000000000000",
        _ => "targetgroup/portcullis-check/0000000000000000",
    };
    format!("arn:aws:elasticloadbalancing:{region}:000000000000:{resource}")
}

/// A name that AWS never gives, so that nothing can come of it.
const NO_NAME: &str = "portcullis_check!";

impl Client {
    /// As whom it calls.
    pub async fn caller(&self) -> Result<String, CallError> {
        let endpoint = &self.endpoints().sts;
        let answer = self.call(endpoint, "GetCallerIdentity", &Parameters::default()).await?;
        Ok(answer.child("GetCallerIdentityResult").map(|result| result.text("Arn")).unwrap_or_default())
    }

    /// What the role is allowed of all that is needed. EC2 can be asked without doing it; of Elastic Load Balancing, what
    /// changes something is called on what does not exist, where denied and not found differ.
    pub async fn permissions(&self, vpc: &str, observe: bool) -> Vec<Permission> {
        let mut all = Vec::new();
        // One that is there, in which nothing is changed.
        let group = self.security_groups(&[("vpc-id", &[vpc.to_owned()])]).await;
        let group = group.ok().and_then(|groups| groups.into_iter().next()).map(|group| group.id);
        for (action, changes, parameters) in ec2(vpc, group.as_deref().unwrap_or("sg-00000000")) {
            if changes && observe {
                continue;
            }
            let outcome =
                self.call(&self.endpoints().ec2, action, &parameters.set("DryRun", true)).await.map(drop);
            all.push(Permission { action: format!("ec2:{action}"), verdict: verdict(outcome) });
        }
        for (action, changes, parameters) in elb(self.endpoints().region()) {
            if changes && observe {
                continue;
            }
            let outcome = self.call(&self.endpoints().elb, action, &parameters).await.map(drop);
            all.push(Permission {
                action: format!("elasticloadbalancing:{action}"),
                verdict: verdict(outcome),
            });
        }
        all.sort_by(|one, other| one.action.cmp(&other.action));
        all
    }
}

fn verdict(outcome: Result<(), CallError>) -> Verdict {
    match outcome {
        Err(error) if error.cause == Cause::Denied => Verdict::Denied(error.message),
        Err(error) if matches!(error.cause, Cause::Throttled | Cause::Unavailable) => {
            Verdict::Unknown(error.to_string())
        }
        // Whatever else is said, it came as far as to be looked at.
        Ok(()) | Err(_) => Verdict::Allowed,
    }
}

/// What is called of EC2, and whether it changes something.
fn ec2(vpc: &str, group: &str) -> Vec<(&'static str, bool, Parameters)> {
    let rule = || {
        Parameters::default()
            .set("GroupId", group)
            .set("IpPermissions.1.IpProtocol", "tcp")
            .set("IpPermissions.1.FromPort", 1)
            .set("IpPermissions.1.ToPort", 1)
            .set("IpPermissions.1.IpRanges.1.CidrIp", "192.0.2.1/32")
    };
    let tag = || Parameters::default().set("ResourceId.1", group).set("Tag.1.Key", "portcullis.dev/check");
    let group_new = Parameters::default()
        .set("GroupName", "portcullis-check")
        .set("GroupDescription", "check")
        .set("VpcId", vpc);
    vec![
        ("DescribeInstances", false, Parameters::default()),
        ("DescribeRouteTables", false, Parameters::default()),
        ("DescribeSecurityGroups", false, Parameters::default()),
        ("DescribeSubnets", false, Parameters::default()),
        ("CreateSecurityGroup", true, group_new),
        ("DeleteSecurityGroup", true, Parameters::default().set("GroupId", group)),
        ("AuthorizeSecurityGroupIngress", true, rule()),
        ("AuthorizeSecurityGroupEgress", true, rule()),
        ("RevokeSecurityGroupIngress", true, rule()),
        ("RevokeSecurityGroupEgress", true, rule()),
        ("CreateTags", true, tag().set("Tag.1.Value", "check")),
        ("DeleteTags", true, tag()),
    ]
}

/// What is called of Elastic Load Balancing, and whether it changes something.
fn elb(region: &str) -> Vec<(&'static str, bool, Parameters)> {
    let balancer = || Parameters::default().set("LoadBalancerArn", nobodys("loadbalancer", region));
    let pool = || Parameters::default().set("TargetGroupArn", nobodys("targetgroup", region));
    let listener = || Parameters::default().set("ListenerArn", nobodys("listener", region));
    let page = || Parameters::default().set("PageSize", 1);
    let tagged = || Parameters::default().set("ResourceArns.member.1", nobodys("loadbalancer", region));
    let target = || pool().set("Targets.member.1.Id", "i-00000000000000000");
    let attribute = |parameters: Parameters, key: &str| {
        parameters.set("Attributes.member.1.Key", key).set("Attributes.member.1.Value", "false")
    };
    let forward = |parameters: Parameters| {
        parameters
            .set("Port", 1)
            .set("Protocol", "TCP")
            .set("DefaultActions.member.1.Type", "forward")
            .set("DefaultActions.member.1.TargetGroupArn", nobodys("targetgroup", region))
    };
    let name = || Parameters::default().set("Name", NO_NAME);
    vec![
        ("DescribeLoadBalancers", false, page()),
        ("DescribeTargetGroups", false, page()),
        ("DescribeListeners", false, balancer()),
        ("DescribeLoadBalancerAttributes", false, balancer()),
        ("DescribeTargetGroupAttributes", false, pool()),
        ("DescribeTargetHealth", false, pool()),
        ("DescribeTags", false, tagged()),
        (
            "CreateLoadBalancer",
            true,
            name().set("Type", "network").set("Subnets.member.1", "subnet-00000000000000000"),
        ),
        (
            "CreateTargetGroup",
            true,
            name().set("Protocol", "TCP").set("Port", 1).set("VpcId", "vpc-00000000000000000"),
        ),
        ("CreateListener", true, forward(balancer())),
        ("DeleteListener", true, listener()),
        ("DeleteLoadBalancer", true, balancer()),
        ("DeleteTargetGroup", true, pool()),
        ("DeregisterTargets", true, target()),
        ("ModifyListener", true, forward(listener())),
        ("ModifyLoadBalancerAttributes", true, attribute(balancer(), "load_balancing.cross_zone.enabled")),
        ("ModifyTargetGroup", true, pool().set("HealthyThresholdCount", 3)),
        ("ModifyTargetGroupAttributes", true, attribute(pool(), "proxy_protocol_v2.enabled")),
        ("RegisterTargets", true, target()),
        ("SetIpAddressType", true, balancer().set("IpAddressType", "ipv4")),
        ("SetSecurityGroups", true, balancer().set("SecurityGroups.member.1", "sg-00000000000000000")),
        ("SetSubnets", true, balancer().set("Subnets.member.1", "subnet-00000000000000000")),
        (
            "AddTags",
            true,
            tagged().set("Tags.member.1.Key", "portcullis.dev/check").set("Tags.member.1.Value", "x"),
        ),
        ("RemoveTags", true, tagged().set("TagKeys.member.1", "portcullis.dev/check")),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::policy::{CHANGES, MAKES, READS, RULES, TAGS};

    /// What is looked for is what the policy allows, and nothing else.
    #[test]
    fn all_of_the_policy_is_checked() {
        let checked = ec2("vpc-1", "sg-1").into_iter().map(|(action, ..)| format!("ec2:{action}"));
        let more = elb("r").into_iter().map(|(action, ..)| format!("elasticloadbalancing:{action}"));
        let checked: BTreeSet<String> = checked.chain(more).collect();
        let allowed = [&READS[..], &MAKES, &TAGS, &RULES, &CHANGES].concat();
        let allowed: BTreeSet<String> = allowed
            .iter()
            .filter(|action| !action.starts_with("sts:"))
            .map(|action| (*action).to_owned())
            .collect();
        assert_eq!(checked, allowed);
    }
}

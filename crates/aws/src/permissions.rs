//! What a role on AWS is allowed, found out without changing anything.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::Owner;

use crate::client::{CallError, Cause, Client, Parameters};
use crate::policy::{CHANGES, TAGS, Tagged, tag_key};

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

/// Who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Caller {
    /// `aws`, `aws-cn`, `aws-us-gov`.
    partition: String,
    account: String,
    /// The user or the role whose policies count, as far as that can be told.
    principal: Option<String>,
}

impl Caller {
    /// By the ARN that AWS knows a caller by. A role that was assumed is known by its name and the session's.
    fn of(arn: &str) -> Self {
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        let [_, partition, service, _, account, resource] = parts[..] else {
            return Caller {
                partition: "aws".to_owned(),
                account: "000000000000".to_owned(),
                principal: None,
            };
        };
        let role = resource.strip_prefix("assumed-role/").and_then(|rest| rest.split('/').next());
        let principal = match (service, role) {
            ("iam", _) => Some(arn.to_owned()),
            ("sts", Some(role)) => Some(format!("arn:{partition}:iam::{account}:role/{role}")),
            _ => None,
        };
        Caller { partition: partition.to_owned(), account: account.to_owned(), principal }
    }

    /// Something of that kind in the account that nobody has.
    fn nobodys(&self, kind: &str, region: &str) -> String {
        let resource = match kind {
            "loadbalancer" => "loadbalancer/net/portcullis-check/0000000000000000",
            "listener" => "listener/net/portcullis-check/0000000000000000/0000000000000000",
            _ => "targetgroup/portcullis-check/0000000000000000",
        };
        format!("arn:{}:elasticloadbalancing:{region}:{}:{resource}", self.partition, self.account)
    }

    /// What an action that needs tags is about, to ask for it without calling it.
    fn resource(&self, action: &str, region: &str) -> String {
        let kind = match action.split_once(':') {
            Some(("ec2", _)) => {
                return format!(
                    "arn:{}:ec2:{region}:{}:security-group/sg-00000000",
                    self.partition, self.account
                );
            }
            Some((_, "DeleteListener" | "ModifyListener")) => "listener",
            Some((_, name)) if name.contains("Target") => "targetgroup",
            _ => "loadbalancer",
        };
        self.nobodys(kind, region)
    }
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

    /// What the role that calls by that ARN is allowed of all that is needed. EC2 can be asked without doing it; of Elastic
    /// Load Balancing, what changes something is called on what does not exist, where denied and not found differ. A policy
    /// may allow more on objects that carry the tags of the cluster: of these AWS is asked what it would say, if it lets us.
    pub async fn permissions(&self, arn: &str, cluster: &str, vpc: &str, observe: bool) -> Vec<Permission> {
        let caller = Caller::of(arn);
        let region = self.endpoints().region();
        let mut all = Vec::new();
        // One that is there, in which nothing is changed; best one of the cluster.
        let groups = self.security_groups(&[("vpc-id", &[vpc.to_owned()])]).await.unwrap_or_default();
        let is_own = |tag: Option<&String>| tag.is_some_and(|tag| tag == cluster);
        let own = groups.iter().find(|group| is_own(group.tags.get(Owner::CLUSTER_KEY)));
        let group = own.or(groups.first()).map_or("sg-00000000", |group| &group.id);
        for (action, changes, parameters) in ec2(cluster, vpc, group) {
            if changes && observe {
                continue;
            }
            let outcome =
                self.call(&self.endpoints().ec2, action, &parameters.set("DryRun", true)).await.map(drop);
            all.push(Permission { action: format!("ec2:{action}"), verdict: verdict(outcome) });
        }
        for (action, changes, parameters) in elb(&caller, cluster, region) {
            if changes && observe {
                continue;
            }
            let outcome = self.call(&self.endpoints().elb, action, &parameters).await.map(drop);
            all.push(Permission {
                action: format!("elasticloadbalancing:{action}"),
                verdict: verdict(outcome),
            });
        }
        self.ask_about_tagged(&caller, cluster, &mut all).await;
        all.sort_by(|one, other| one.action.cmp(&other.action));
        all
    }

    /// What was denied on objects without tags may be allowed on those of the cluster.
    async fn ask_about_tagged(&self, caller: &Caller, cluster: &str, all: &mut [Permission]) {
        let by_tag: BTreeSet<&str> = CHANGES.iter().chain(&TAGS).copied().collect();
        let is_open = |found: &&mut Permission| {
            matches!(found.verdict, Verdict::Denied(_)) && by_tag.contains(found.action.as_str())
        };
        let mut open: BTreeMap<String, Vec<&mut Permission>> = BTreeMap::new();
        for found in all.iter_mut().filter(is_open) {
            let resource = caller.resource(&found.action, self.endpoints().region());
            open.entry(resource).or_default().push(found);
        }
        for (resource, some) in open {
            let actions: Vec<String> = some.iter().map(|found| found.action.clone()).collect();
            let told = self.simulate(caller, cluster, &resource, &actions).await;
            for found in some {
                found.verdict = match &told {
                    Ok(told) => match told.get(&found.action).map(String::as_str) {
                        Some("allowed") => Verdict::Allowed,
                        Some(decision) => {
                            Verdict::Denied(format!("{decision} on objects of the cluster, by the policies"))
                        }
                        None => Verdict::Unknown("AWS does not say".to_owned()),
                    },
                    Err(why) => Verdict::Unknown(format!(
                        "denied on what carries no tags; for objects of the cluster it cannot be asked: {why}"
                    )),
                };
            }
        }
    }

    /// What the policies of the caller say about actions on an object of the cluster.
    async fn simulate(
        &self,
        caller: &Caller,
        cluster: &str,
        resource: &str,
        actions: &[String],
    ) -> Result<BTreeMap<String, String>, String> {
        let principal = caller.principal.as_ref().ok_or("the caller is neither a user nor a role")?;
        let mut parameters = Parameters::default()
            .set("PolicySourceArn", principal)
            .set("ResourceArns.member.1", resource)
            .list("ActionNames.member", actions);
        for (place, of) in [Tagged::Resource, Tagged::Request].into_iter().enumerate() {
            let entry = format!("ContextEntries.member.{}", place + 1);
            parameters = parameters
                .set(format!("{entry}.ContextKeyName"), tag_key(of))
                .set(format!("{entry}.ContextKeyType"), "string")
                .set(format!("{entry}.ContextKeyValues.member.1"), cluster);
        }
        let answer = self.call(&self.endpoints().iam, "SimulatePrincipalPolicy", &parameters).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let result = answer.child("SimulatePrincipalPolicyResult").cloned().unwrap_or_default();
        let told = result.list("EvaluationResults");
        Ok(told.map(|told| (told.text("EvalActionName"), told.text("EvalDecision"))).collect())
    }
}

fn verdict(outcome: Result<(), CallError>) -> Verdict {
    match outcome {
        Err(error) if error.cause == Cause::Denied => Verdict::Denied(error.message),
        Err(error) if matches!(error.cause, Cause::Throttled | Cause::Unavailable | Cause::Credentials) => {
            Verdict::Unknown(error.to_string())
        }
        // Whatever else is said, it came as far as to be looked at.
        Ok(()) | Err(_) => Verdict::Allowed,
    }
}

/// What is called of EC2, and whether it changes something.
fn ec2(cluster: &str, vpc: &str, group: &str) -> Vec<(&'static str, bool, Parameters)> {
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
        .set("VpcId", vpc)
        .set("TagSpecification.1.ResourceType", "security-group")
        .set("TagSpecification.1.Tag.1.Key", Owner::CLUSTER_KEY)
        .set("TagSpecification.1.Tag.1.Value", cluster);
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
fn elb(caller: &Caller, cluster: &str, region: &str) -> Vec<(&'static str, bool, Parameters)> {
    let balancer = || Parameters::default().set("LoadBalancerArn", caller.nobodys("loadbalancer", region));
    let pool = || Parameters::default().set("TargetGroupArn", caller.nobodys("targetgroup", region));
    let listener = || Parameters::default().set("ListenerArn", caller.nobodys("listener", region));
    let page = || Parameters::default().set("PageSize", 1);
    let tagged =
        || Parameters::default().set("ResourceArns.member.1", caller.nobodys("loadbalancer", region));
    let target = || pool().set("Targets.member.1.Id", "i-00000000000000000");
    let attribute = |parameters: Parameters, key: &str| {
        parameters.set("Attributes.member.1.Key", key).set("Attributes.member.1.Value", "false")
    };
    let forward = |parameters: Parameters| {
        parameters
            .set("Port", 1)
            .set("Protocol", "TCP")
            .set("DefaultActions.member.1.Type", "forward")
            .set("DefaultActions.member.1.TargetGroupArn", caller.nobodys("targetgroup", region))
    };
    let name = || {
        Parameters::default()
            .set("Name", NO_NAME)
            .set("Tags.member.1.Key", Owner::CLUSTER_KEY)
            .set("Tags.member.1.Value", cluster)
    };
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
    use super::*;
    use crate::policy::{MAKES, MAKES_GROUPS, READS, RULES};

    /// What is looked for is what the policy allows, and nothing else.
    #[test]
    fn all_of_the_policy_is_checked() {
        let checked = ec2("demo", "vpc-1", "sg-1").into_iter().map(|(action, ..)| format!("ec2:{action}"));
        let more = elb(&Caller::default(), "demo", "r")
            .into_iter()
            .map(|(action, ..)| format!("elasticloadbalancing:{action}"));
        let checked: BTreeSet<String> = checked.chain(more).collect();
        let allowed = [&READS[..], &MAKES, &MAKES_GROUPS, &TAGS, &RULES, &CHANGES].concat();
        let allowed: BTreeSet<String> = allowed
            .iter()
            .filter(|action| !action.starts_with("sts:"))
            .map(|action| (*action).to_owned())
            .collect();
        assert_eq!(checked, allowed);
    }

    #[test]
    fn callers_by_their_arns() {
        for (arn, partition, account, principal) in [
            ("arn:aws:iam::1:user/me", "aws", "1", Some("arn:aws:iam::1:user/me")),
            ("arn:aws-cn:sts::2:assumed-role/r/s", "aws-cn", "2", Some("arn:aws-cn:iam::2:role/r")),
            (
                "arn:aws-us-gov:sts::3:assumed-role/r/s",
                "aws-us-gov",
                "3",
                Some("arn:aws-us-gov:iam::3:role/r"),
            ),
            ("arn:aws:sts::4:federated-user/f", "aws", "4", None),
            ("somebody", "aws", "000000000000", None),
        ] {
            let found = Caller::of(arn);
            assert_eq!((found.partition.as_str(), found.account.as_str()), (partition, account), "{arn}");
            assert_eq!(found.principal.as_deref(), principal, "{arn}");
        }
        let caller = Caller::of("arn:aws-cn:iam::2:user/me");
        let start = "arn:aws-cn:elasticloadbalancing:r:2:";
        for (action, kind) in [
            ("elasticloadbalancing:DeleteListener", "listener/"),
            ("elasticloadbalancing:CreateListener", "loadbalancer/"),
            ("elasticloadbalancing:RegisterTargets", "targetgroup/"),
            ("elasticloadbalancing:SetSubnets", "loadbalancer/"),
        ] {
            assert!(caller.resource(action, "r").starts_with(&format!("{start}{kind}")), "{action}");
        }
        assert_eq!(caller.resource("ec2:DeleteTags", "r"), "arn:aws-cn:ec2:r:2:security-group/sg-00000000");
    }
}

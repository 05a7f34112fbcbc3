//! What a role on AWS has to be allowed.

use serde_json::{Value, json};

use portcullis_core::Owner;

/// What only looks.
pub(crate) const READS: [&str; 12] = [
    "ec2:DescribeInstances",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "elasticloadbalancing:DescribeListeners",
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeTags",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetHealth",
    "sts:GetCallerIdentity",
];

/// What makes something, which carries the tags of the cluster from the start.
pub(crate) const MAKES: [&str; 4] = [
    "ec2:CreateSecurityGroup",
    "elasticloadbalancing:CreateListener",
    "elasticloadbalancing:CreateLoadBalancer",
    "elasticloadbalancing:CreateTargetGroup",
];

/// What writes tags.
pub(crate) const TAGS: [&str; 4] =
    ["ec2:CreateTags", "ec2:DeleteTags", "elasticloadbalancing:AddTags", "elasticloadbalancing:RemoveTags"];

/// What changes rules: also in the nodes' groups, which carry no tags of ours.
pub(crate) const RULES: [&str; 4] = [
    "ec2:AuthorizeSecurityGroupEgress",
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:RevokeSecurityGroupEgress",
    "ec2:RevokeSecurityGroupIngress",
];

/// What changes or takes away something of the cluster.
pub(crate) const CHANGES: [&str; 13] = [
    "ec2:DeleteSecurityGroup",
    "elasticloadbalancing:DeleteListener",
    "elasticloadbalancing:DeleteLoadBalancer",
    "elasticloadbalancing:DeleteTargetGroup",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:ModifyListener",
    "elasticloadbalancing:ModifyLoadBalancerAttributes",
    "elasticloadbalancing:ModifyTargetGroup",
    "elasticloadbalancing:ModifyTargetGroupAttributes",
    "elasticloadbalancing:RegisterTargets",
    "elasticloadbalancing:SetIpAddressType",
    "elasticloadbalancing:SetSecurityGroups",
    "elasticloadbalancing:SetSubnets",
];

/// What taking over load balancers of other controllers needs besides.
const ADOPTS: [&str; 1] = ["ec2:UpdateSecurityGroupRuleDescriptionsIngress"];

/// The policy: for one cluster, if it is named; only to look, if that is all; also to take over what others made.
pub fn policy(cluster: Option<&str>, observe: bool, adopt: bool) -> Value {
    let allow = |name: &str, actions: &[&str], condition: Option<Value>| {
        let mut statement = json!({"Sid": name, "Effect": "Allow", "Action": actions, "Resource": "*"});
        if let Some(condition) = condition {
            statement["Condition"] = condition;
        }
        statement
    };
    let tag = |kind: &str| {
        cluster.map(
            |cluster| json!({"StringEquals": {format!("aws:{kind}Tag/{}", Owner::CLUSTER_KEY): cluster}}),
        )
    };
    let mut statements = vec![allow("Look", &READS, None)];
    if adopt {
        statements.push(allow("Adopt", &ADOPTS, None));
    }
    if !observe {
        // A group is made in a VPC, which carries no tags of ours: both have to be allowed.
        statements.push(allow("Make", &MAKES, None));
        statements.push(allow("Rules", &RULES, None));
        statements.push(allow("Tags", &TAGS, None));
        statements.push(allow("Change", &CHANGES, tag("Resource")));
        statements.push(json!({
            "Sid": "ServiceLinkedRole",
            "Effect": "Allow",
            "Action": ["iam:CreateServiceLinkedRole"],
            "Resource": "*",
            "Condition": {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}},
        }));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(policy: &Value) -> Vec<&str> {
        let statements = policy["Statement"].as_array().unwrap().iter();
        let actions = statements.flat_map(|statement| statement["Action"].as_array().unwrap());
        actions.map(|action| action.as_str().unwrap()).collect()
    }

    #[test]
    fn watching_changes_nothing() {
        let policy = policy(None, true, false);
        assert!(
            actions(&policy).iter().all(|action| action.contains(":Describe") || action.contains(":Get"))
        );
    }

    #[test]
    fn changes_are_of_the_cluster() {
        let policy = policy(Some("demo"), false, true);
        let change =
            policy["Statement"].as_array().unwrap().iter().find(|statement| statement["Sid"] == "Change");
        assert_eq!(
            change.unwrap()["Condition"]["StringEquals"]["aws:ResourceTag/portcullis.dev/cluster"],
            "demo"
        );
        let mut all = actions(&policy);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "none is there twice");
    }
}

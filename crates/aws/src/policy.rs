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
pub(crate) const MAKES: [&str; 2] =
    ["elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup"];

/// What makes a group, in a VPC that carries no tags of ours: AWS asks for both.
pub(crate) const MAKES_GROUPS: [&str; 1] = ["ec2:CreateSecurityGroup"];

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
pub(crate) const CHANGES: [&str; 14] = [
    "ec2:DeleteSecurityGroup",
    "elasticloadbalancing:CreateListener",
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

/// What asking for permissions of tagged objects needs.
const CHECKS: [&str; 1] = ["iam:SimulatePrincipalPolicy"];

/// The key by which AWS says of which cluster something is: of what is there, or of what is asked for.
pub(crate) fn tag_key(of: Tagged) -> String {
    tag_key_of(of, Owner::CLUSTER_KEY)
}

/// The key by which AWS says what is written on something under another key.
fn tag_key_of(of: Tagged, key: &str) -> String {
    let of = match of {
        Tagged::Resource => "Resource",
        Tagged::Request => "Request",
    };
    format!("aws:{of}Tag/{key}")
}

/// What carries a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// What is there.
    Resource,
    /// What is asked for.
    Request,
}

/// What a policy is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyFor<'a> {
    /// One cluster; without it, objects of any may be changed.
    pub cluster: Option<&'a str>,
    /// Owners of one kind; without it, objects of any may be changed.
    pub kind: Option<&'a str>,
    /// One VPC; without it, rules of any group may be changed.
    pub vpc: Option<&'a str>,
    /// Only to look.
    pub observe: bool,
    /// Also to take over what others made.
    pub adopt: bool,
    /// Also to find out what is allowed on objects of the cluster.
    pub check: bool,
}

/// The least that has to be allowed.
pub fn policy(asked: PolicyFor<'_>) -> Value {
    let mut statements = vec![allow("Look", &READS, &[])];
    if asked.check {
        statements.push(allow("Check", &CHECKS, &[]));
    }
    if !asked.observe {
        statements.extend(changes(asked));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

fn changes(asked: PolicyFor<'_>) -> Vec<Value> {
    let equals = |key: &str, value: Value| ("StringEquals", key.to_owned(), value);
    let tags = |of: Tagged| -> Vec<_> {
        let said = [(Owner::CLUSTER_KEY, asked.cluster), (Owner::KIND_KEY, asked.kind)];
        let said = said.into_iter().filter_map(|(key, value)| Some((key, value?)));
        said.map(|(key, value)| equals(&tag_key_of(of, key), json!(value))).collect()
    };
    // Each part of it is compared by itself, and only the last one is known here.
    let vpc =
        asked.vpc.map(|vpc| ("ArnLike", "ec2:Vpc".to_owned(), json!(format!("arn:*:ec2:*:*:vpc/{vpc}"))));
    let vpc: Vec<_> = vpc.into_iter().collect();
    let (existing, new) = (tags(Tagged::Resource), tags(Tagged::Request));
    let mut statements = vec![
        allow("Make", &MAKES, &new),
        allow("MakeGroups", &MAKES_GROUPS, &[]),
        allow("Rules", &RULES, &vpc),
        allow("Change", &CHANGES, &existing),
        allow("Tags", &TAGS, &existing),
    ];
    if !new.is_empty() {
        // Whoever could write the cluster on anything could take it away then.
        let groups = equals("ec2:CreateAction", json!(["CreateSecurityGroup"]));
        let others = ["CreateListener", "CreateLoadBalancer", "CreateTargetGroup"];
        let others = equals("elasticloadbalancing:CreateAction", json!(others));
        let with = |action| new.iter().cloned().chain([action]).collect::<Vec<_>>();
        statements.push(allow("TagNewGroups", &["ec2:CreateTags"], &with(groups)));
        statements.push(allow("TagNew", &["elasticloadbalancing:AddTags"], &with(others)));
    }
    if asked.adopt {
        statements.push(allow("AdoptRules", &ADOPTS, &vpc));
        if !new.is_empty() {
            statements.push(allow("Adopt", &["ec2:CreateTags", "elasticloadbalancing:AddTags"], &new));
        }
    }
    let balancing = equals("iam:AWSServiceName", json!("elasticloadbalancing.amazonaws.com"));
    statements.push(allow("ServiceLinkedRole", &["iam:CreateServiceLinkedRole"], &[balancing]));
    statements
}

/// A statement: these actions, if all of these conditions are met.
fn allow(name: &str, actions: &[&str], conditions: &[(&str, String, Value)]) -> Value {
    let mut statement = json!({"Sid": name, "Effect": "Allow", "Action": actions, "Resource": "*"});
    for (operator, key, value) in conditions {
        statement["Condition"][operator][key] = value.clone();
    }
    statement
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CLUSTER: PolicyFor<'_> = PolicyFor {
        cluster: Some("demo"),
        kind: None,
        vpc: Some("vpc-1"),
        observe: false,
        adopt: false,
        check: false,
    };

    fn statements(asked: PolicyFor<'_>) -> Vec<Value> {
        policy(asked)["Statement"].as_array().unwrap().clone()
    }

    fn actions(statement: &Value) -> Vec<&str> {
        statement["Action"].as_array().unwrap().iter().map(|action| action.as_str().unwrap()).collect()
    }

    /// All conditions under which an action is allowed.
    fn conditions(asked: PolicyFor<'_>, action: &str) -> Vec<Value> {
        let found = statements(asked).into_iter().filter(|statement| actions(statement).contains(&action));
        found.map(|statement| statement["Condition"].clone()).collect()
    }

    #[test]
    fn watching_changes_nothing() {
        let look = statements(PolicyFor { observe: true, ..PolicyFor::default() });
        let all: Vec<&str> = look.iter().flat_map(actions).collect();
        assert!(all.iter().all(|action| action.contains(":Describe") || action.contains(":Get")), "{all:?}");
    }

    #[test]
    fn iam_takes_it() {
        for bits in 0..32 {
            let is = |bit: u8| bits & bit != 0;
            let asked = PolicyFor {
                cluster: is(1).then_some("demo"),
                kind: is(16).then_some("AWSNLB"),
                vpc: is(2).then_some("vpc-1"),
                observe: false,
                adopt: is(4),
                check: is(8),
            };
            let all = statements(asked);
            let names: BTreeSet<&str> =
                all.iter().map(|statement| statement["Sid"].as_str().unwrap()).collect();
            assert_eq!(names.len(), all.len(), "names are there once");
            for statement in &all {
                let name = statement["Sid"].as_str().unwrap();
                assert!(name.chars().all(|character| character.is_ascii_alphanumeric()), "{name}");
                assert!(!actions(statement).is_empty(), "{name}");
                let condition = statement.get("Condition");
                assert!(
                    condition
                        .is_none_or(|condition| condition.as_object().is_some_and(|all| !all.is_empty()))
                );
            }
            let unconditional = |action| conditions(asked, action).iter().any(Value::is_null);
            for action in CHANGES.iter().chain(&TAGS).chain(&MAKES) {
                assert_eq!(
                    unconditional(action),
                    asked.cluster.is_none() && asked.kind.is_none(),
                    "{action}"
                );
            }
            for action in &RULES {
                assert_eq!(unconditional(action), asked.vpc.is_none(), "{action}");
            }
        }
    }

    #[test]
    fn changes_are_of_the_cluster() {
        let only = |action: &str| {
            let mut all = conditions(CLUSTER, action);
            assert_eq!(all.len(), 1, "{action}");
            all.remove(0)
        };
        let existing = json!({"StringEquals": {"aws:ResourceTag/portcullis.dev/cluster": "demo"}});
        let new = json!({"StringEquals": {"aws:RequestTag/portcullis.dev/cluster": "demo"}});
        assert_eq!(only("elasticloadbalancing:DeleteLoadBalancer"), existing);
        assert_eq!(only("elasticloadbalancing:CreateListener"), existing);
        assert_eq!(only("elasticloadbalancing:CreateLoadBalancer"), new);
        let vpc = json!({"ArnLike": {"ec2:Vpc": "arn:*:ec2:*:*:vpc/vpc-1"}});
        assert_eq!(only("ec2:AuthorizeSecurityGroupIngress"), vpc);

        // Many clusters, and only what is made for Cluster API.
        let kind = PolicyFor { cluster: None, kind: Some("AWSNLB"), ..CLUSTER };
        let of_kind = json!({"StringEquals": {"aws:ResourceTag/portcullis.dev/kind": "AWSNLB"}});
        assert_eq!(conditions(kind, "elasticloadbalancing:DeregisterTargets"), [of_kind]);

        // What is of nobody cannot be made one of the cluster, but by whom that was asked of.
        let made = json!({"StringEquals": {
            "aws:RequestTag/portcullis.dev/cluster": "demo",
            "ec2:CreateAction": ["CreateSecurityGroup"],
        }});
        assert_eq!(conditions(CLUSTER, "ec2:CreateTags"), [existing.clone(), made.clone()]);
        assert_eq!(only("ec2:DeleteTags"), existing);
        let tags = conditions(CLUSTER, "elasticloadbalancing:AddTags");
        assert_eq!(tags.len(), 2);
        assert!(tags[1]["StringEquals"]["elasticloadbalancing:CreateAction"].is_array(), "{tags:?}");
        let adopt = PolicyFor { adopt: true, ..CLUSTER };
        assert_eq!(conditions(adopt, "ec2:CreateTags"), [existing, made, new]);
        assert_eq!(conditions(adopt, ADOPTS[0]), [vpc]);
        assert!(conditions(CLUSTER, ADOPTS[0]).is_empty() && conditions(CLUSTER, CHECKS[0]).is_empty());
    }
}

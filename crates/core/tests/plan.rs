//! What a plan looks like, as text and as JSON.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use portcullis_core::{
    Change, Cidr, Detail, Direction, Family, Owner, Peer, PlanView, PortRange, Protocol, Reach, Rule, Sign,
    Traffic, placeholder,
};
use serde_json::json;

fn owner() -> Owner {
    Owner::new("demo", "Service", Some("shop".to_owned()), "web").unwrap()
}

fn from(range: &str, traffic: Traffic) -> Rule {
    let range: Cidr = range.parse().unwrap();
    Rule::new(Direction::Ingress, range.family(), traffic, Peer::Range(range)).unwrap()
}

fn tcp(port: u16) -> Traffic {
    Traffic::ports(Protocol::TCP, PortRange::single(port)).unwrap()
}

/// A load balancer that is made from nothing.
fn first_plan() -> PlanView {
    let https = from("203.0.113.0/24", tcp(443));
    let path_mtu = from("203.0.113.0/24", Traffic::icmp(Family::V4, 3, Some(4)));
    let node_port = placeholder("node port");
    PlanView {
        owner: owner(),
        place: "aws-nlb in vpc-0a1b (mode Managed)".to_owned(),
        changes: vec![
            Change::new(
                Sign::Create,
                "security group",
                format!("k8s-shop-web-{}", placeholder("after creation")),
            )
            .with(Detail::rule(Sign::Create, &https, "Service ports × source ranges"))
            .with(Detail::rule(Sign::Create, &path_mtu, "path MTU discovery"))
            .with(Detail::new(
                Sign::Create,
                ["out", &format!("tcp {node_port}"), "to group sg-nodes"],
                "target port",
            )),
            Change::new(Sign::Create, "load balancer", "internet-facing, 3 subnets").with(Detail::new(
                Sign::Create,
                ["in the three subnets that are tagged for this cluster"],
                "",
            )),
            Change::new(Sign::Keep, "security group", "sg-nodes admits our load balancers already"),
        ],
        before: Reach::nobody(),
        after: Reach::of(&[https]),
        calls: 8,
        destructive_calls: 0,
    }
}

#[test]
fn a_first_plan() {
    let expected = "\
Service shop/web  →  aws-nlb in vpc-0a1b (mode Managed)

  + security group  k8s-shop-web-‹after creation›
      + in   tcp 443          from 203.0.113.0/24    Service ports × source ranges
      + in   icmp 3/4         from 203.0.113.0/24    path MTU discovery
      + out  tcp ‹node port›  to group sg-nodes      target port
  + load balancer   internet-facing, 3 subnets
      + in the three subnets that are tagged for this cluster
  = security group  sg-nodes admits our load balancers already

Who may reach it:  before  nobody
                   after   203.0.113.0/24 on tcp 443
Access gets wider: 203.0.113.0/24 on tcp 443
8 calls, none destructive.
";
    assert_eq!(first_plan().to_string(), expected);
    assert!(!first_plan().is_empty());
}

/// Access moves from one range to a part of it, and a load balancer goes.
#[test]
fn a_plan_that_narrows_and_deletes() {
    let (wide, narrow) = (from("10.0.0.0/8", tcp(80)), from("10.0.0.0/9", tcp(80)));
    let plan = PlanView {
        owner: Owner::new("demo", "IngressController", None, "default").unwrap(),
        place: "host".to_owned(),
        changes: vec![
            Change::new(Sign::Update, "ranges", "router-default")
                .with(Detail::rule(Sign::Create, &narrow, "allowed source ranges"))
                .with(Detail::rule(Sign::Delete, &wide, "no longer allowed")),
            Change::new(Sign::Delete, "load balancer", "old"),
        ],
        before: Reach::of(&[wide]),
        after: Reach::of(&[narrow]),
        calls: 1,
        destructive_calls: 1,
    };
    let expected = "\
IngressController default  →  host

  ~ ranges         router-default
      + in  tcp 80  from 10.0.0.0/9    allowed source ranges
      - in  tcp 80  from 10.0.0.0/8    no longer allowed
  - load balancer  old

Who may reach it:  before  10.0.0.0/8 on tcp 80
                   after   10.0.0.0/9 on tcp 80
1 call, 1 destructive.
";
    assert_eq!(plan.to_string(), expected);
    assert!(plan.wider().is_nobody());
}

#[test]
fn a_plan_without_changes() {
    let open = Reach::of(&[from("0.0.0.0/0", tcp(80)), from("::/0", tcp(80))]);
    let plan = PlanView {
        owner: owner(),
        place: "ovn".to_owned(),
        changes: vec![Change::new(Sign::Keep, "load balancer", "web")],
        before: open.clone(),
        after: open,
        calls: 0,
        destructive_calls: 0,
    };
    assert!(plan.is_empty());
    assert_eq!(
        plan.to_string(),
        "Service shop/web  →  ovn\n\nNothing to change.\nWho may reach it:  everyone on tcp 80, as before\n"
    );
    let deleted =
        PlanView { changes: vec![Change::new(Sign::Delete, "load balancer", "web")], ..plan.clone() };
    assert!(!deleted.is_empty());
    let changed = PlanView {
        changes: vec![Change::new(Sign::Keep, "load balancer", "web").with(Detail::new(
            Sign::Update,
            ["tls"],
            "",
        ))],
        ..plan
    };
    assert!(!changed.is_empty());
}

#[test]
fn a_plan_as_json() {
    let mut plan = first_plan();
    plan.changes.truncate(1);
    assert_eq!(
        serde_json::to_value(plan).unwrap(),
        json!({
            "owner": {"cluster": "demo", "kind": "Service", "namespace": "shop", "name": "web"},
            "place": "aws-nlb in vpc-0a1b (mode Managed)",
            "changes": [{
                "sign": "create",
                "kind": "security group",
                "name": "k8s-shop-web-‹after creation›",
                "details": [
                    {
                        "sign": "create",
                        "text": "in tcp 443 from 203.0.113.0/24",
                        "why": "Service ports × source ranges",
                    },
                    {"sign": "create", "text": "in icmp 3/4 from 203.0.113.0/24", "why": "path MTU discovery"},
                    {"sign": "create", "text": "out tcp ‹node port› to group sg-nodes", "why": "target port"},
                ],
            }],
            "before": [],
            "after": [{"who": ["203.0.113.0/24"], "on": ["tcp 443"]}],
            "wider": [{"who": ["203.0.113.0/24"], "on": ["tcp 443"]}],
            "calls": 8,
            "destructive_calls": 0,
        })
    );
}

//! What a plan looks like, as text and as JSON.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::slice;

use portcullis_core::{
    Access, Calls, Change, Cidr, Detail, Direction, Family, Owner, Peer, PlanError, PlanView, PortRange,
    Protocol, Reach, ReachChange, Rule, Sign, Traffic, placeholder,
};
use serde_json::json;

fn owner() -> Owner {
    Owner::new("demo", "Service", Some("shop".to_owned()), "web").unwrap()
}

fn from(range: &str, traffic: Traffic) -> Rule {
    let range: Cidr = range.parse().unwrap();
    Rule::new(Direction::Ingress, range.family(), traffic, Peer::Range(range)).unwrap()
}

fn to(range: &str, traffic: Traffic) -> Rule {
    let range: Cidr = range.parse().unwrap();
    Rule::new(Direction::Egress, range.family(), traffic, Peer::Range(range)).unwrap()
}

/// Access that goes from what some rules allow to what others do.
fn access(before: &[Rule], after: &[Rule]) -> Access {
    let change =
        |direction| ReachChange { before: Reach::of(direction, before), after: Reach::of(direction, after) };
    Access { ingress: change(Direction::Ingress), egress: change(Direction::Egress) }
}

fn calls(all: usize, destructive: usize) -> Calls {
    Calls { all, destructive }
}

fn tcp(port: u16) -> Traffic {
    Traffic::ports(Protocol::TCP, PortRange::single(port)).unwrap()
}

/// A load balancer that is made from nothing.
fn first_plan() -> PlanView {
    let https = from("203.0.113.0/24", tcp(443));
    let path_mtu = from("203.0.113.0/24", Traffic::icmp(Family::V4, 3, Some(4)));
    let node_port = placeholder("node port");
    PlanView::new(
        owner(),
        "aws-nlb in vpc-0a1b (mode Managed)",
        vec![
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
        calls(8, 0),
        access(&[], &[https]),
    )
    .unwrap()
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
    let plan = PlanView::new(
        Owner::new("demo", "IngressController", None, "default").unwrap(),
        "host",
        vec![
            Change::new(Sign::Update, "ranges", "router-default")
                .with(Detail::rule(Sign::Create, &narrow, "allowed source ranges"))
                .with(Detail::rule(Sign::Delete, &wide, "no longer allowed")),
            Change::new(Sign::Delete, "load balancer", "old"),
        ],
        calls(1, 1),
        access(&[wide], &[narrow]),
    );
    let plan = plan.unwrap();
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
    assert_eq!(plan.wider(), []);
}

/// What the members may be sent to opens, and who may come in stays.
#[test]
fn a_plan_that_reaches_further() {
    let (web, near, far) =
        (from("10.0.0.0/8", tcp(80)), to("10.0.1.0/24", tcp(8080)), to("10.0.0.0/16", tcp(8080)));
    let plan = |before: &[Rule], after: &[Rule]| {
        let changes = vec![Change::new(Sign::Update, "security group", "web")];
        PlanView::new(owner(), "ovn", changes, calls(2, 0), access(before, after)).unwrap()
    };
    let expected = "\
Service shop/web  →  ovn

  ~ security group  web

Who may reach it:  10.0.0.0/8 on tcp 80, as before
What it may reach: before  nothing
                   after   10.0.1.0/24 on tcp 8080
Reaches further:   10.0.1.0/24 on tcp 8080
2 calls, none destructive.
";
    assert_eq!(plan(slice::from_ref(&web), &[web.clone(), near.clone()]).to_string(), expected);
    let wider = plan(slice::from_ref(&near), &[web.clone(), far.clone()]);
    let texts: Vec<String> = wider.wider().iter().map(|(way, reach)| format!("{way} {reach}")).collect();
    assert_eq!(
        texts,
        [
            "ingress 10.0.0.0/8 on tcp 80",
            "egress 10.0.0.0/24, 10.0.2.0/23, 10.0.4.0/22, 10.0.8.0/21, 10.0.16.0/20, 10.0.32.0/19, \
             10.0.64.0/18, 10.0.128.0/17 on tcp 8080",
        ]
    );
    let narrower = plan(&[web.clone(), far.clone()], &[web, near]);
    assert_eq!(narrower.wider(), []);
    assert!(narrower.to_string().contains("What it may reach: before  10.0.0.0/16 on tcp 8080\n"));
}

#[test]
fn a_plan_without_changes() {
    let open = [from("0.0.0.0/0", tcp(80)), from("::/0", tcp(80))];
    let keep = || Change::new(Sign::Keep, "load balancer", "web");
    let plan = |changes, calls, access| PlanView::new(owner(), "ovn", changes, calls, access);
    let stays = || access(&open, &open);

    let empty = plan(vec![keep()], calls(0, 0), stays()).unwrap();
    assert!(empty.is_empty());
    assert_eq!(
        empty.to_string(),
        "Service shop/web  →  ovn\n\nNothing to change.\nWho may reach it:  everyone on tcp 80, as before\n"
    );
    let delete = || vec![Change::new(Sign::Delete, "load balancer", "web")];
    assert!(!plan(delete(), calls(1, 1), stays()).unwrap().is_empty());
    let part = vec![keep().with(Detail::new(Sign::Update, ["tls"], ""))];
    assert!(!plan(part, calls(1, 0), stays()).unwrap().is_empty());

    for (changes, calls, access, error) in [
        (delete(), calls(1, 2), stays(), PlanError::Destructive(calls(1, 2))),
        (delete(), calls(0, 0), stays(), PlanError::NoCalls),
        (vec![keep()], calls(1, 0), stays(), PlanError::OnlyCalls(1)),
        (vec![keep()], calls(0, 0), access(&[], &open), PlanError::OnlyAccess),
        (vec![], calls(0, 0), access(&[to("::/0", tcp(80))], &[]), PlanError::OnlyAccess),
    ] {
        assert_eq!(plan(changes, calls, access), Err(error));
    }
    assert_eq!(
        PlanError::Destructive(calls(1, 2)).to_string(),
        "a plan of 1 calls cannot have 2 destructive ones"
    );
}

/// Columns line up where a character takes two places, and nothing that was given moves the cursor.
#[test]
fn a_plan_with_foreign_text() {
    let changes = vec![
        Change::new(Sign::Create, "負荷分散", "東京\n  - everything")
            .with(Detail::new(Sign::Create, ["入", "tcp 443"], "ja\u{1b}[2K"))
            .with(Detail::new(Sign::Create, ["in", "tcp\u{202e} 80"], "en")),
        Change::new(Sign::Create, "pool", "web"),
    ];
    let plan = PlanView::new(owner(), "ovn\r", changes, calls(1, 0), Access::default()).unwrap();
    let expected = "\
Service shop/web  →  ovn\\r

  + 負荷分散  東京\\n  - everything
      + 入  tcp 443           ja\\u{1b}[2K
      + in  tcp\\u{202e} 80    en
  + pool      web

Who may reach it:  nobody, as before
1 call, none destructive.
";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn a_plan_as_json() {
    let reach = json!([{
        "who": [{"text": "203.0.113.0/24", "peer": {"range": "203.0.113.0/24"}, "families": ["IPv4"]}],
        "on": [{"text": "tcp 443", "protocol": "tcp", "ports": {"first": 443, "last": 443}}],
    }]);
    let mut written = serde_json::to_value(first_plan()).unwrap();
    written["changes"].as_array_mut().unwrap().truncate(1);
    assert_eq!(
        written,
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
                        "rule": {
                            "direction": "ingress",
                            "family": "IPv4",
                            "traffic": {
                                "text": "tcp 443",
                                "protocol": "tcp",
                                "ports": {"first": 443, "last": 443},
                            },
                            "peer": {"range": "203.0.113.0/24"},
                        },
                    },
                    {
                        "sign": "create",
                        "text": "in icmp 3/4 from 203.0.113.0/24",
                        "why": "path MTU discovery",
                        "rule": {
                            "direction": "ingress",
                            "family": "IPv4",
                            "traffic": {
                                "text": "icmp 3/4",
                                "protocol": "icmp",
                                "icmp_types": {"first": 3, "last": 3},
                                "icmp_codes": {"first": 4, "last": 4},
                            },
                            "peer": {"range": "203.0.113.0/24"},
                        },
                    },
                    {"sign": "create", "text": "out tcp ‹node port› to group sg-nodes", "why": "target port"},
                ],
            }],
            "ingress": {"before": [], "after": reach, "wider": reach},
            "egress": {"before": [], "after": [], "wider": []},
            "calls": 8,
            "destructive_calls": 0,
        })
    );
}

//! What cannot be is refused before anything is made, and the text says which annotation and which value it is.

use portcullis_aws::PREFIX;
use portcullis_core::{Outcome, Problem, Provider as _};

use crate::held;
use crate::scene::{Service, account, dual_stack, fake};

type Annotations = &'static [(&'static str, &'static str)];

/// Annotations; which of them is wrong; and a part of the reason.
const ROWS: [(Annotations, &str, &str); 67] = [
    (&[("scheme", "public")], "scheme", "it can be `internal` or `internet-facing`"),
    (&[("scheme", "internet-facing"), ("internal", "true")], "internal", "says otherwise"),
    (&[("scheme", "internal"), ("internal", "false")], "internal", "says otherwise"),
    (&[("name", "a-name-of-more-than-32-characters-here")], "name", "at most 32 letters"),
    (&[("name", "under_score")], "name", "letters, digits and dashes"),
    (&[("name", "-front")], "name", "no dash at an end"),
    (&[("name", "front-")], "name", "no dash at an end"),
    (&[("name", "internal-front")], "name", "not `internal-` in front"),
    (&[("ip-address-type", "ipv6")], "ip-address-type", "it can be `ipv4` or `dualstack`"),
    (&[("nlb-target-type", "pod")], "nlb-target-type", "it can be `instance` or `ip`"),
    (&[("target-node-labels", "=a")], "target-node-labels", "no key before its `=`"),
    (&[("target-node-labels", "a=1,a=2")], "target-node-labels", "it has `a` twice"),
    (&[("eip-allocations", "192.0.2.1")], "eip-allocations", "`192.0.2.1`"),
    (&[("eip-allocations", "eipalloc-1,eipalloc-1")], "eip-allocations", "twice"),
    (&[("private-ipv4-addresses", "10.0.1"), ("internal", "true")], "private-ipv4-addresses", "`10.0.1`"),
    (
        &[("private-ipv4-addresses", "10.0.1.9,fd00::1"), ("internal", "true")],
        "private-ipv4-addresses",
        "`fd00::1` is not an IPv4 address",
    ),
    (
        &[("private-ipv4-addresses", "10.0.1.9,10.0.1.9"), ("internal", "true")],
        "private-ipv4-addresses",
        "twice",
    ),
    (
        &[("private-ipv4-addresses", "10.0.1.9"), ("eip-allocations", "eipalloc-1")],
        "private-ipv4-addresses",
        "either these or elastic addresses",
    ),
    (&[("security-groups", "user,user")], "security-groups", "it has a group twice"),
    (
        &[("manage-backend-security-group-rules", "no")],
        "manage-backend-security-group-rules",
        "`true` or `false`",
    ),
    (&[("security-group-prefix-lists", "10.0.0.0/8")], "security-group-prefix-lists", "`10.0.0.0/8`"),
    (&[("security-group-prefix-lists", "pl-1,pl-1")], "security-group-prefix-lists", "twice"),
    (
        &[("enable-icmp-for-path-mtu-discovery", "maybe")],
        "enable-icmp-for-path-mtu-discovery",
        "`on` or `off`",
    ),
    (&[("ssl-cert", "my-certificate")], "ssl-cert", "arn:"),
    (&[("ssl-cert", "arn:a,arn:b")], "ssl-cert", "a listener gets one certificate"),
    (&[("ssl-ports", "443")], "ssl-ports", "there is no TLS without"),
    (
        &[("ssl-negotiation-policy", "ELBSecurityPolicy-FS-2018-06")],
        "ssl-negotiation-policy",
        "no TLS without",
    ),
    (&[("alpn-policy", "HTTP2Only")], "alpn-policy", "no TLS without"),
    (&[("ssl-cert", "arn:a"), ("alpn-policy", "http3")], "alpn-policy", "`HTTP2Preferred`"),
    (
        &[("ssl-cert", "arn:a"), ("ssl-negotiation-policy", "modern")],
        "ssl-negotiation-policy",
        "ELBSecurityPolicy-",
    ),
    (&[("backend-protocol", "quic")], "backend-protocol", "`ssl` or `tls`"),
    (&[("enable-tcp-udp-listener", "1")], "enable-tcp-udp-listener", "`true` or `false`"),
    (&[("healthcheck-protocol", "UDP")], "healthcheck-protocol", "`tcp` or `http` or `https`"),
    (&[("healthcheck-port", "0")], "healthcheck-port", "it has to be a port, or `traffic-port`"),
    (&[("healthcheck-port", "70000")], "healthcheck-port", "it has to be a port"),
    (&[("healthcheck-port", "http")], "healthcheck-port", "it has to be a port"),
    (
        &[("healthcheck-path", "live"), ("healthcheck-protocol", "http")],
        "healthcheck-path",
        "starts with `/`",
    ),
    (&[("healthcheck-path", "/a b"), ("healthcheck-protocol", "http")], "healthcheck-path", "no spaces"),
    (
        &[("healthcheck-path", "/live"), ("healthcheck-protocol", "tcp")],
        "healthcheck-path",
        "TCP has no path",
    ),
    (&[("healthcheck-interval", "4")], "healthcheck-interval", "from 5 to 300"),
    (&[("healthcheck-interval", "301")], "healthcheck-interval", "from 5 to 300"),
    (&[("healthcheck-interval", "10s")], "healthcheck-interval", "from 5 to 300"),
    (&[("healthcheck-timeout", "1")], "healthcheck-timeout", "from 2 to 120"),
    (&[("healthcheck-timeout", "121")], "healthcheck-timeout", "from 2 to 120"),
    (
        &[("healthcheck-timeout", "11"), ("healthcheck-interval", "10")],
        "healthcheck-timeout",
        "longer than the interval of 10 s",
    ),
    // Also where the interval is the usual one.
    (&[("healthcheck-timeout", "31")], "healthcheck-timeout", "longer than the interval of 30 s"),
    (&[("healthcheck-healthy-threshold", "1")], "healthcheck-healthy-threshold", "from 2 to 10"),
    (&[("healthcheck-healthy-threshold", "11")], "healthcheck-healthy-threshold", "from 2 to 10"),
    (&[("healthcheck-unhealthy-threshold", "-2")], "healthcheck-unhealthy-threshold", "from 2 to 10"),
    (&[("attributes", "=true")], "attributes", "no key before its `=`"),
    (&[("attributes", "load_balancing.cross_zone.enabled=maybe")], "attributes", "`true` or `false`"),
    (
        &[
            ("attributes", "load_balancing.cross_zone.enabled=false"),
            ("cross-zone-load-balancing-enabled", "true"),
        ],
        "cross-zone-load-balancing-enabled",
        "says otherwise",
    ),
    (
        &[("cross-zone-load-balancing-enabled", "yes")],
        "cross-zone-load-balancing-enabled",
        "`true` or `false`",
    ),
    (&[("access-log-enabled", "yes")], "access-log-enabled", "`true` or `false`"),
    (&[("access-log-enabled", "true")], "access-log-enabled", "logs need a bucket"),
    (
        &[("target-group-attributes", "preserve_client_ip.enabled=on")],
        "target-group-attributes",
        "`preserve_client_ip.enabled` can be `true` or `false`",
    ),
    (
        &[("target-group-attributes", "proxy_protocol_v2.enabled=")],
        "target-group-attributes",
        "`proxy_protocol_v2.enabled` can be `true` or `false`",
    ),
    (
        &[("target-group-attributes", "stickiness.enabled=true,stickiness.enabled=false")],
        "target-group-attributes",
        "it has `stickiness.enabled` twice",
    ),
    (&[("additional-resource-tags", "=a")], "additional-resource-tags", "no key before its `=`"),
    (&[("additional-resource-tags", "a=1,a=2")], "additional-resource-tags", "it has `a` twice"),
    (&[("additional-resource-tags", "aws:a=1")], "additional-resource-tags", "`aws:a` is not yours to set"),
    (
        &[("additional-resource-tags", "portcullis.dev/name=x")],
        "additional-resource-tags",
        "`portcullis.dev/name` is not yours to set",
    ),
    (
        &[("additional-resource-tags", "kubernetes.io/cluster/demo=shared")],
        "additional-resource-tags",
        "`kubernetes.io/cluster/demo` is not yours to set",
    ),
    (&[("extra-security-groups", "sg-1")], "extra-security-groups", "for classic load balancers"),
    (&[("connection-draining-enabled", "true")], "connection-draining-enabled", "for classic load balancers"),
    (&[("connection-draining-timeout", "30")], "connection-draining-timeout", "for classic load balancers"),
    (&[("connection-idle-timeout", "60")], "connection-idle-timeout", "for classic load balancers"),
];

fn blocked(outcome: Outcome, of: &str) -> Problem {
    match outcome {
        Outcome::Blocked(problem) => problem,
        other => panic!("{of}: {other:?}"),
    }
}

#[tokio::test]
async fn a_wrong_annotation_is_named_with_its_value() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let untouched = fake.state();
    for made in [false, true] {
        if made {
            assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
        }
        let before = fake.state();
        fake.clear_calls();
        for (annotations, key, why) in ROWS {
            let service = Service { annotations: annotations.to_vec(), ..Service::default() };
            let report = provider.sync(&service.want("web")).await;
            let problem = blocked(report.outcome, &format!("{annotations:?}"));
            let value = annotations.iter().find(|(one, _)| *one == key).unwrap().1;
            assert!(problem.what.starts_with("Service shop/web: annotation "), "{problem}");
            let named = format!("annotation {PREFIX}{key} is `{value}`: ");
            let place = problem.what.find(&named).unwrap_or_else(|| panic!("{named}, in: {problem}"));
            assert!(problem.what[place + named.len()..].contains(why), "{why}, in: {problem}");
            assert_eq!(problem.state, "Nothing was changed.");
            assert_eq!(report.addresses.len(), usize::from(made), "clients find it still");
            assert!(!provider.is_settled(&service.want("web")), "it is tried again");
        }
        assert_eq!(fake.mutating_calls(), 0);
        assert_eq!(fake.state(), before);
        assert_eq!(made, fake.state() != untouched);
    }
    // Nobody else is held up, nor this one once it is right.
    assert_eq!(provider.sync(&Service::default().want("other")).await.outcome, Outcome::Done);
    let right = Service { ports: vec![(81, 30081)], ..Service::default() };
    assert_eq!(provider.sync(&right.want("web")).await.outcome, Outcome::Done);
    assert_eq!(held::listeners(&fake.state(), "web"), ["81 TCP to instance TCP 30081"]);
}

#[tokio::test]
async fn all_that_is_wrong_is_told_at_once() {
    let fake = fake(|_| ());
    let annotations = vec![("scheme", "public"), ("healthcheck-interval", "1"), ("name", "a_b")];
    let service = Service { annotations, ..Service::default() };
    let outcome = account(&fake).provider("Managed").sync(&service.want("web")).await.outcome;
    let problem = blocked(outcome, "three");
    for (key, value) in [("scheme", "public"), ("healthcheck-interval", "1"), ("name", "a_b")] {
        assert!(problem.what.contains(&format!("{PREFIX}{key} is `{value}`")), "{problem}");
    }
}

#[tokio::test]
async fn what_does_not_go_together_is_refused() {
    use portcullis_core::{Listener, ListenerProtocol};
    let fake = dual_stack();
    let before = fake.state();
    let udp = Listener::new(53, ListenerProtocol::Udp, 30053).unwrap();
    for (service, what) in [
        (
            Service {
                annotations: vec![("eip-allocations", "eipalloc-1"), ("internal", "true")],
                ..Service::default()
            },
            "annotation service.beta.kubernetes.io/aws-load-balancer-eip-allocations is for load balancers that face the internet",
        ),
        (
            Service { annotations: vec![("private-ipv4-addresses", "10.0.1.9")], ..Service::default() },
            "annotation service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses is for internal load balancers",
        ),
        (
            Service {
                annotations: vec![
                    ("ssl-cert", "arn:aws:acm:eu-central-1:123456789012:certificate/1"),
                    ("ssl-ports", "80,https"),
                ],
                ..Service::default()
            },
            "annotation service.beta.kubernetes.io/aws-load-balancer-ssl-ports names `https`, and there is no such port",
        ),
        (
            Service { listeners: vec![udp], dual: true, ..Service::default() },
            "port 53 is for UDP, which Portcullis does not do on a load balancer for both families",
        ),
    ] {
        let outcome = account(&fake).provider("Managed").sync(&service.want("web")).await.outcome;
        let problem = blocked(outcome, &format!("{service:?}"));
        assert_eq!(problem.what, format!("Service shop/web: {what}."));
        assert_eq!(fake.state(), before);
    }
}

/// What only AWS can know is refused by AWS, and told as it says it; other Services go on.
#[tokio::test]
async fn what_aws_refuses_is_told() {
    for (annotations, what) in [
        (
            vec![("ssl-cert", "arn:aws:acm:eu-central-1:123456789012:certificate/none")],
            "Certificate 'arn:aws:acm:eu-central-1:123456789012:certificate/none' not found",
        ),
        (vec![("eip-allocations", "eipalloc-1,eipalloc-2")], "The allocation ID 'eipalloc-1' does not exist"),
        (vec![("security-group-prefix-lists", "pl-none")], "pl-none"),
        (vec![("attributes", "no.such.attribute=1")], "attribute key 'no.such.attribute' is not recognized"),
        (
            vec![("target-group-attributes", "no.such.attribute=1")],
            "attribute key 'no.such.attribute' is not recognized",
        ),
    ] {
        let fake = fake(|_| ());
        let provider = account(&fake).provider("Managed");
        let service = Service { annotations: annotations.clone(), ..Service::default() };
        fake.clear_calls();
        let problem = blocked(provider.sync(&service.want("web")).await.outcome, &format!("{annotations:?}"));
        assert!(problem.what.starts_with("Service shop/web: AWS refused. "), "{problem}");
        assert!(problem.what.contains(what), "{problem}");
        let everything = fake.counts().get("DescribeLoadBalancers").copied().unwrap_or_default();
        assert!(everything <= 1, "a value that is wrong is no reason to look at everything: {everything}");
        assert_eq!(provider.sync(&Service::default().want("other")).await.outcome, Outcome::Done);
        // Once it is right, it is done.
        assert_eq!(
            provider.sync(&Service::default().want("web")).await.outcome,
            Outcome::Done,
            "{annotations:?}"
        );
    }
}

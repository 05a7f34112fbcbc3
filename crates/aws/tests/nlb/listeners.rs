//! Ports of load balancers, where they send to, and how those are checked.

use std::time::Duration;

use portcullis_aws_fake::Fake;
use portcullis_core::{
    HealthCheck, HealthPort, Listener, ListenerProtocol, Outcome, Probe, Provider as _, Report,
};

use crate::held;
use crate::scene::{Service, account, dual_stack, fake, gone};
use crate::strict::is_untouched;
use ListenerProtocol::{Tcp, Udp};

const CERTIFICATE: &str = "arn:aws:acm:eu-central-1:123456789012:certificate/1";
const OTHER_CERTIFICATE: &str = "arn:aws:acm:eu-central-1:123456789012:certificate/2";

/// The rules of TLS where none are asked for, and others.
const USUAL: &str = "ELBSecurityPolicy-TLS13-1-2-2021-06";
const STRICT: &str = "ELBSecurityPolicy-TLS13-1-3-2021-06";

/// Nodes are checked by one check for all, in a cloud-config.
const SHARED: &str = "ClusterServiceLoadBalancerHealthProbeMode = Shared";
const OTHER: &str = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n\
                     ClusterServiceSharedLoadBalancerHealthProbePort = 10260\n\
                     ClusterServiceSharedLoadBalancerHealthProbePath = /ready";

type Annotations = &'static [(&'static str, &'static str)];
type Texts = &'static [&'static str];

/// The ports; annotations; the listeners; what is let in by port; what is let out.
type PortRow = (Vec<Listener>, Annotations, Texts, Texts, Texts);

/// What the cloud-config says; the port; annotations; the check.
type CheckRow = (&'static str, Listener, Annotations, &'static str);

fn with_certificates() -> Fake {
    let fake = fake(|_| ());
    fake.act_as_someone_else(|world| {
        world.add_certificate(CERTIFICATE);
        world.add_certificate(OTHER_CERTIFICATE);
    });
    fake
}

fn listener(port: u16, protocol: ListenerProtocol, to: u16) -> Listener {
    Listener::new(port, protocol, to).unwrap()
}

/// A Service with these ports only.
fn service(listeners: &[Listener]) -> Service<'static> {
    Service { ports: Vec::new(), listeners: listeners.to_vec(), ..Service::default() }
}

async fn made(fake: &Fake, service: &Service<'_>) -> Report {
    let report = account(fake).provider("Managed").sync(&service.want("web")).await;
    assert_eq!(report.outcome, Outcome::Done, "{service:?}");
    report
}

#[tokio::test]
async fn ports_and_protocols() {
    let http = || listener(80, Tcp, 30080).with_name("http");
    let https = || listener(443, Tcp, 30443).with_name("https");
    let dns = |protocol| listener(53, protocol, 30053);
    let rows: Vec<PortRow> = vec![
        (
            vec![http(), https()],
            &[],
            &["443 TCP to instance TCP 30443", "80 TCP to instance TCP 30080"],
            &["tcp 443-443", "tcp 80-80"],
            &["tcp 30080-30080", "tcp 30443-30443"],
        ),
        (
            vec![dns(Udp)],
            &[],
            &["53 UDP to instance UDP 30053"],
            &["udp 53-53"],
            // A port for UDP answers no check: the nodes' proxy does.
            &["tcp 10256-10256", "udp 30053-30053"],
        ),
        (
            vec![dns(Tcp), dns(Udp)],
            &[],
            &["53 TCP_UDP to instance TCP_UDP 30053"],
            &["tcp 53-53", "udp 53-53"],
            &["tcp 30053-30053", "udp 30053-30053"],
        ),
        (
            vec![dns(Udp), dns(Tcp), http()],
            &[],
            &["53 TCP_UDP to instance TCP_UDP 30053", "80 TCP to instance TCP 30080"],
            &["tcp 53-53", "tcp 80-80", "udp 53-53"],
            &["tcp 30053-30053", "tcp 30080-30080", "udp 30053-30053"],
        ),
        (
            vec![http(), https()],
            &[("ssl-cert", CERTIFICATE)],
            &["443 TLS to instance TCP 30443", "80 TLS to instance TCP 30080"],
            &["tcp 443-443", "tcp 80-80"],
            &["tcp 30080-30080", "tcp 30443-30443"],
        ),
        (
            vec![http(), https()],
            &[("ssl-cert", CERTIFICATE), ("ssl-ports", "443")],
            &["443 TLS to instance TCP 30443", "80 TCP to instance TCP 30080"],
            &["tcp 443-443", "tcp 80-80"],
            &["tcp 30080-30080", "tcp 30443-30443"],
        ),
        (
            vec![http(), https()],
            &[("ssl-cert", CERTIFICATE), ("ssl-ports", "https"), ("backend-protocol", "ssl")],
            &["443 TLS to instance TLS 30443", "80 TCP to instance TCP 30080"],
            &["tcp 443-443", "tcp 80-80"],
            &["tcp 30080-30080", "tcp 30443-30443"],
        ),
        (
            vec![http(), https(), dns(Udp)],
            &[("ssl-cert", CERTIFICATE), ("ssl-ports", "*"), ("backend-protocol", "tcp")],
            &[
                "443 TLS to instance TCP 30443",
                "53 UDP to instance UDP 30053",
                "80 TLS to instance TCP 30080",
            ],
            &["tcp 443-443", "tcp 80-80", "udp 53-53"],
            &["tcp 10256-10256", "tcp 30080-30080", "tcp 30443-30443", "udp 30053-30053"],
        ),
    ];
    // Each follows on the one before, whatever that was, and is as if it were made anew.
    let fake = with_certificates();
    let provider = account(&fake).provider("Managed");
    for (place, (listeners, annotations, expected, within, without)) in rows.into_iter().enumerate() {
        let annotations = annotations.iter().copied().chain([("enable-icmp-for-path-mtu-discovery", "off")]);
        let service = Service { annotations: annotations.collect(), ..service(&listeners) };
        for name in ["edited".to_owned(), format!("new{place}")] {
            let report = provider.sync(&service.want(&name)).await;
            assert_eq!(report.outcome, Outcome::Done, "{service:?}");
            assert_eq!(report.told, Vec::<String>::new(), "{service:?}");
            let world = fake.state();
            assert_eq!(held::listeners(&world, &name), expected);
            let from = within.iter().map(|rule| format!("{rule} 0.0.0.0/0")).collect::<Vec<_>>();
            assert_eq!(held::lets_in(&world, &name), from, "{service:?}");
            let to = without.iter().map(|rule| format!("{rule} nodes")).collect::<Vec<_>>();
            assert_eq!(held::lets_out(&world, &name), to, "{service:?}");
        }
    }
    let edited = fake
        .state()
        .target_groups
        .values()
        .filter(|pool| pool.tags["portcullis.dev/name"] == "edited")
        .count();
    assert_eq!(edited, 3, "those that nobody sends to any more are gone");
}

#[tokio::test]
async fn tls_is_as_asked_for() {
    let fake = with_certificates();
    let provider = account(&fake).provider("Managed");
    let tls = || {
        let world = fake.state();
        let listener = held::balancer(&world, "web").listeners.values().next().unwrap().clone();
        [listener.certificate, listener.policy, listener.alpn].map(Option::unwrap_or_default)
    };
    for (annotations, expected) in [
        (vec![("ssl-cert", CERTIFICATE)], [CERTIFICATE, USUAL, "None"]),
        (vec![("ssl-cert", OTHER_CERTIFICATE)], [OTHER_CERTIFICATE, USUAL, "None"]),
        (
            vec![
                ("ssl-cert", CERTIFICATE),
                ("ssl-negotiation-policy", STRICT),
                ("alpn-policy", "HTTP2Preferred"),
            ],
            [CERTIFICATE, STRICT, "HTTP2Preferred"],
        ),
        (vec![("ssl-cert", CERTIFICATE)], [CERTIFICATE, USUAL, "None"]),
    ] {
        let service = Service { annotations: annotations.clone(), ..Service::default() };
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done, "{annotations:?}");
        assert_eq!(tls(), expected, "{annotations:?}");
    }
    // And back to what it was without any of it.
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(held::listeners(&fake.state(), "web"), ["80 TCP to instance TCP 30080"]);
    assert_eq!(tls(), ["", "", ""]);
}

#[tokio::test]
async fn ports_for_two_protocols_have_one_way_to_go() {
    let fake = with_certificates();
    let dns = |to| [listener(53, Tcp, 30053), listener(53, Udp, to)];
    for (listeners, annotations, what) in [
        (dns(30054), vec![], "port 53 is for TCP and UDP, which go to ports 30053 and 30054 of the targets"),
        (
            dns(30053),
            vec![("enable-tcp-udp-listener", "false")],
            "port 53 is wanted for two protocols, and annotation service.beta.kubernetes.io/aws-load-balancer-enable-tcp-udp-listener is `false`",
        ),
        (dns(30053), vec![("ssl-cert", CERTIFICATE)], "port 53 is wanted for TLS and UDP"),
    ] {
        let service = Service { annotations, ..service(&listeners) };
        let outcome = account(&fake).provider("Managed").sync(&service.want("web")).await.outcome;
        assert!(
            matches!(&outcome, Outcome::Blocked(problem) if problem.what.starts_with(&format!("Service shop/web: {what}"))),
            "{outcome:?}"
        );
        is_untouched(&fake);
    }
}

#[tokio::test]
async fn targets_are_checked() {
    let local = || {
        let probe = Probe::Http { path: "/healthz".to_owned() };
        let check = HealthCheck::new(probe, HealthPort::Number(31000)).unwrap();
        let check = check.with_timing(Duration::from_secs(10), Duration::from_secs(6)).unwrap();
        listener(80, Tcp, 30080).with_health_check(check.with_thresholds(2, 2).unwrap())
    };
    let plain = || listener(80, Tcp, 30080);
    let datagrams = || listener(80, Udp, 30080);
    let rows: [CheckRow; 19] = [
        ("", plain(), &[], "TCP on traffic-port every 30 s, 10 s, 3/3"),
        ("", local(), &[], "HTTP /healthz on 31000 every 10 s, 6 s, 2/2"),
        ("", datagrams(), &[], "HTTP /healthz on 10256 every 30 s, 6 s, 3/3"),
        (SHARED, plain(), &[], "HTTP /healthz on 10256 every 30 s, 6 s, 3/3"),
        (SHARED, local(), &[], "HTTP /healthz on 31000 every 10 s, 6 s, 2/2"),
        (OTHER, plain(), &[], "HTTP /ready on 10260 every 30 s, 6 s, 3/3"),
        ("", plain(), &[("healthcheck-protocol", "HTTP")], "HTTP / on traffic-port every 30 s, 10 s, 3/3"),
        (
            "",
            plain(),
            &[("healthcheck-protocol", "https"), ("healthcheck-path", "/live")],
            "HTTPS /live on traffic-port every 30 s, 10 s, 3/3",
        ),
        ("", plain(), &[("healthcheck-port", "8081")], "TCP on 8081 every 30 s, 10 s, 3/3"),
        (
            "",
            local(),
            &[("healthcheck-port", "traffic-port")],
            "HTTP /healthz on traffic-port every 10 s, 6 s, 2/2",
        ),
        ("", local(), &[("healthcheck-path", "/live")], "HTTP /live on 31000 every 10 s, 6 s, 2/2"),
        ("", local(), &[("healthcheck-protocol", "TCP")], "TCP on 31000 every 10 s, 6 s, 2/2"),
        ("", plain(), &[("healthcheck-interval", "20")], "TCP on traffic-port every 20 s, 10 s, 3/3"),
        // Nobody waits for longer than until the next check.
        ("", plain(), &[("healthcheck-interval", "5")], "TCP on traffic-port every 5 s, 5 s, 3/3"),
        ("", plain(), &[("healthcheck-timeout", "4")], "TCP on traffic-port every 30 s, 4 s, 3/3"),
        ("", plain(), &[("healthcheck-healthy-threshold", "7")], "TCP on traffic-port every 30 s, 10 s, 7/3"),
        (
            "",
            plain(),
            &[("healthcheck-unhealthy-threshold", "9")],
            "TCP on traffic-port every 30 s, 10 s, 3/9",
        ),
        (SHARED, plain(), &[("healthcheck-path", "/live")], "HTTP /live on 10256 every 30 s, 6 s, 3/3"),
        (
            SHARED,
            plain(),
            &[("healthcheck-protocol", "TCP"), ("healthcheck-port", "traffic-port")],
            "TCP on traffic-port every 30 s, 6 s, 3/3",
        ),
    ];
    let fake = fake(|_| ());
    for (place, (config, listener, annotations, expected)) in rows.into_iter().enumerate() {
        let provider =
            account(&fake).provider_by(&format!("NLBSecurityGroupMode = Managed\n{config}"), |_| ());
        let service = Service { annotations: annotations.to_vec(), ..service(&[listener]) };
        for name in ["edited".to_owned(), format!("new{place}")] {
            assert_eq!(provider.sync(&service.want(&name)).await.outcome, Outcome::Done, "{service:?}");
            let world = fake.state();
            assert_eq!(held::checked(&world, &name, 80), expected, "{service:?}");
            // Checks come from the load balancer, and have to get out of its group.
            let check = &held::pool(&world, &name, 80).health_check.port;
            let to = if check == "traffic-port" { "30080" } else { check };
            let rule = format!("tcp {to}-{to} nodes");
            assert!(
                held::lets_out(&world, &name).contains(&rule),
                "{rule}: {:?}",
                held::lets_out(&world, &name)
            );
        }
    }
}

#[tokio::test]
async fn a_check_outside_of_the_node_ports_is_let_in_by_the_nodes() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let service = Service { annotations: vec![("healthcheck-port", "8081")], ..Service::default() };
    assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
    let mut expected = held::SHARED.to_vec();
    expected.push("tcp 8081-8081 backend");
    expected.sort_unstable();
    assert_eq!(held::nodes(&fake.state()), expected);
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), held::SHARED, "it is closed again");
}

#[tokio::test]
async fn pods_are_targets_by_their_addresses() {
    let fake = dual_stack();
    let ip = vec![("nlb-target-type", "ip")];
    let pods = |pods: &[(&'static str, u16)]| Service {
        ports: vec![(80, 8080)],
        pods: pods.to_vec(),
        annotations: ip.clone(),
        ..Service::default()
    };
    let provider = account(&fake).provider("Managed");
    let both = pods(&[("10.0.1.77", 8080), ("10.0.2.78", 9090)]);
    assert_eq!(provider.sync(&both.want("web")).await.outcome, Outcome::Done);
    let world = fake.state();
    assert_eq!(held::listeners(&world, "web"), ["80 TCP to ip TCP 8080"]);
    assert_eq!(held::targets(&world, "web", 80), ["10.0.1.77:8080", "10.0.2.78:9090"]);
    assert_eq!(held::checked(&world, "web", 80), "TCP on traffic-port every 30 s, 10 s, 3/3");
    // Pods have no group that could be named: it may go where they are.
    let expected = [
        "tcp 8080-8080 10.0.1.0/24",
        "tcp 8080-8080 10.0.2.0/24",
        "tcp 9090-9090 10.0.1.0/24",
        "tcp 9090-9090 10.0.2.0/24",
    ];
    assert_eq!(held::lets_out(&world, "web"), expected);

    // They come and go.
    for (now, targets, out) in [
        (vec![("10.0.2.78", 8080)], vec!["10.0.2.78:8080"], vec!["tcp 8080-8080 10.0.2.0/24"]),
        (vec![("10.0.2.79", 8080)], vec!["10.0.2.79:8080"], vec!["tcp 8080-8080 10.0.2.0/24"]),
        (vec![("100.64.0.7", 8080)], vec!["100.64.0.7:8080"], vec!["tcp 8080-8080 100.64.0.7/32"]),
    ] {
        assert_eq!(provider.sync(&pods(&now).want("web")).await.outcome, Outcome::Done, "{now:?}");
        let world = fake.state();
        assert_eq!(held::targets(&world, "web", 80), targets);
        assert_eq!(held::lets_out(&world, "web"), out);
    }
    // Of nodes to pods and back, in place.
    let arn = fake.state().load_balancers.keys().next().unwrap().clone();
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(held::listeners(&fake.state(), "web"), ["80 TCP to instance TCP 30080"]);
    assert_eq!(provider.sync(&both.want("web")).await.outcome, Outcome::Done);
    assert_eq!(held::listeners(&fake.state(), "web"), ["80 TCP to ip TCP 8080"]);
    assert_eq!(fake.state().load_balancers.keys().collect::<Vec<_>>(), [&arn]);
    assert_eq!(fake.state().target_groups.len(), 1);

    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn pods_with_addresses_of_ipv6() {
    let fake = dual_stack();
    let service = Service {
        ports: vec![(80, 8080)],
        pods: vec![("2001:db8:1:1::7", 8080)],
        annotations: vec![("nlb-target-type", "ip")],
        dual: true,
        ..Service::default()
    };
    made(&fake, &service).await;
    let world = fake.state();
    assert_eq!(held::pool(&world, "web", 80).ip_address_type, "ipv6");
    assert_eq!(held::targets(&world, "web", 80), ["2001:db8:1:1::7:8080"]);
    assert_eq!(held::lets_out(&world, "web"), ["tcp 8080-8080 2001:db8:1:1::/64"]);
}

/// AWS never takes targets of IPv6 on a load balancer for one family: that is told instead of left without a port.
#[tokio::test]
async fn pods_of_ipv6_alone_need_both_families() {
    let fake = dual_stack();
    let pods = |kind| Service {
        ports: vec![(80, 8080)],
        pods: vec![("2001:db8:1:1::7", 8080)],
        annotations: vec![("nlb-target-type", "ip"), ("ip-address-type", kind)],
        dual: true,
        ..Service::default()
    };
    let provider = account(&fake).provider("Managed");
    let outcome = provider.sync(&pods("ipv4").want("web")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        problem.what,
        "Service shop/web: annotation service.beta.kubernetes.io/aws-load-balancer-ip-address-type is `ipv4`, and the targets of port 80 have addresses of IPv6 alone."
    );
    is_untouched(&fake);
    assert_eq!(provider.sync(&pods("dualstack").want("web")).await.outcome, Outcome::Done);
}

/// UDP goes to IPv4 alone, and IPv6 with TCP alone: on one port the one is in the way of the other.
#[tokio::test]
async fn another_protocol_and_another_family_on_the_same_port() {
    let of = |protocols: &[ListenerProtocol], six: bool, groups: Option<&'static str>| Service {
        pods: vec![if six { ("2001:db8:1:1::7", 5353) } else { ("10.0.1.77", 5353) }],
        annotations: [("nlb-target-type", "ip"), ("healthcheck-port", "8181")]
            .into_iter()
            .chain(groups.map(|groups| ("security-groups", groups)))
            .collect(),
        dual: six,
        ..service(&protocols.iter().map(|protocol| listener(53, *protocol, 5353)).collect::<Vec<_>>())
    };
    for (protocols, told) in [(&[Udp][..], "UDP"), (&[Tcp, Udp], "TCP_UDP")] {
        for (first, second) in [(None, None), (None, Some("user")), (Some("user"), None)] {
            let fake = dual_stack();
            let provider = account(&fake).provider("Managed");
            let four = (of(protocols, false, first), format!("53 {told} to ip {told} 5353"), "ipv4");
            let six = (of(&[Tcp], true, second), "53 TCP to ip TCP 5353".to_owned(), "dualstack");
            for (service, expected, kind) in [&four, &six, &four] {
                let outcome = provider.sync(&service.want("web")).await.outcome;
                assert_eq!(outcome, Outcome::Done, "{service:?}");
                let world = fake.state();
                assert_eq!(held::listeners(&world, "web"), [expected.as_str()]);
                assert_eq!(held::balancer(&world, "web").ip_address_type, *kind);
                assert_eq!(world.target_groups.len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn pods_behind_udp_are_checked_by_what_is_told() {
    let fake = fake(|_| ());
    let annotations = vec![("nlb-target-type", "ip")];
    let udp = |annotations| Service {
        pods: vec![("10.0.1.77", 5353)],
        annotations,
        ..service(&[listener(53, Udp, 5353)])
    };
    let report = made(&fake, &udp(annotations.clone())).await;
    let told = "the targets of udp 53 are checked by TCP on the same port: name another one with service.beta.kubernetes.io/aws-load-balancer-healthcheck-port";
    assert_eq!(report.told, [told]);
    let chosen = annotations.into_iter().chain([("healthcheck-port", "8181")]).collect();
    let report = made(&fake, &udp(chosen)).await;
    assert_eq!(report.told, Vec::<String>::new());
    assert_eq!(
        held::lets_out(&fake.state(), "web"),
        ["tcp 8181-8181 10.0.1.0/24", "udp 5353-5353 10.0.1.0/24"]
    );
}

#[tokio::test]
async fn both_families_are_served_by_one_load_balancer() {
    let fake = dual_stack();
    let provider = account(&fake).provider("Managed");
    let dual = Service { dual: true, ..Service::default() };
    let asked = Service { annotations: vec![("ip-address-type", "dualstack")], ..Service::default() };
    let one = Service { annotations: vec![("ip-address-type", "ipv4")], ..dual.clone() };
    for (service, kind) in [
        (&dual, "dualstack"),
        (&Service::default(), "ipv4"),
        (&asked, "dualstack"),
        // What the annotation says counts more.
        (&one, "ipv4"),
    ] {
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done, "{service:?}");
        assert_eq!(held::balancer(&fake.state(), "web").ip_address_type, kind, "{service:?}");
        let open = held::lets_in(&fake.state(), "web");
        assert_eq!(open.contains(&"tcp 80-80 ::/0".to_owned()), kind == "dualstack", "{open:?}");
    }
}

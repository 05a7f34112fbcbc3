use std::net::IpAddr;
use std::time::SystemTime;

use portcullis_core::{EmptyMeans, ListenerProtocol, Scheme, SourceRanges};

use super::*;
use crate::claims::claims;
use crate::wanted::{Balance, Balancer, BalancerId, Wanted};

fn member(name: &str, address: &str) -> Member {
    Member::new(name, [address.parse::<IpAddr>().unwrap()]).unwrap()
}

fn balancer(name: &str, addresses: &[&str], listeners: Vec<Listener>, ranges: Option<&[&str]>) -> Balancer {
    let ranges = SourceRanges::parse(ranges).unwrap();
    let admission = Admission { ranges, empty_means: EmptyMeans::Nobody };
    let by = SystemTime::UNIX_EPOCH;
    let members = vec![
        member("cp-1", "10.0.0.1"),
        member("cp_2", "fd00::2").with_duty(Duty::Rest { by }),
        member("cp-3", "10.0.0.3").with_duty(Duty::Leave { by }),
    ];
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let load_balancer = LoadBalancer::new(name, Scheme::Internal, Family::ALL, listeners, admission)
        .and_then(|balancer| balancer.with_addresses(addresses)?.with_members(members))
        .unwrap();
    Balancer { id: BalancerId::new("prod", name), load_balancer, options: Options::default() }
}

fn wanted() -> Wanted {
    let listener = |port| Listener::new(port, ListenerProtocol::Tcp, 6443).unwrap();
    let check = HealthCheck::new(Probe::Https { path: "/readyz?a='b'".into() }, HealthPort::Traffic).unwrap();
    let api = balancer(
        "api",
        &["192.0.2.10", "2001:db8::10"],
        vec![listener(6443).with_health_check(check)],
        Some(&["10.0.0.7/8", "192.0.2.0/24"]),
    );
    let check = HealthCheck::new(Probe::Http { path: "/healthz".into() }, HealthPort::Number(8080)).unwrap();
    let mut web = balancer("web", &[], vec![listener(80), listener(443).with_health_check(check)], None);
    web.options = Options { send_proxy: true, balance: Balance::RoundRobin };
    let tuning = Tuning { max_connections: Some(5000), user: Some("haproxy".into()), ..Tuning::default() };
    Wanted { balancers: vec![api, web], tuning }
}

fn rendered(wanted: &Wanted, generation: u64) -> String {
    let claims = claims(wanted, &Family::ALL.into(), &BTreeMap::new(), &BTreeMap::new());
    render(Path::new("/run/portcullis/haproxy"), generation, &wanted.tuning, &claims)
}

#[test]
fn the_file_as_it_is_written() {
    assert_eq!(rendered(&wanted(), 7), include_str!("expected.cfg"));
}

#[test]
fn what_is_written_is_read() {
    let text = rendered(&wanted(), 7);
    assert_eq!(generation(&text), Some(7));
    let listening = listening(&text);
    let sockets = |name: &str| -> Vec<String> { listening[name].iter().map(ToString::to_string).collect() };
    assert_eq!(sockets("prod:api:6443"), ["192.0.2.10:6443", "[2001:db8::10]:6443"]);
    assert_eq!(sockets("prod:web:80"), ["0.0.0.0:80", "[::]:80"]);
    let up = [("prod:api:6443".to_owned(), "cp-1:10.0.0.1:6443".to_owned())].into();
    let lines: Vec<String> = states(&text, &up).lines().skip(2).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "1 prod:api:6443 1 cp-1:10.0.0.1:6443 10.0.0.1 2 0 1 1 1 6 3 5 6 0 0 0 - 6443 - 0 0 - - 0",
            "1 prod:web:80 1 cp-1:10.0.0.1:6443 10.0.0.1 0 0 1 1 1 6 0 0 6 0 0 0 - 6443 - 0 0 - - 0",
            "1 prod:web:443 1 cp-1:10.0.0.1:6443 10.0.0.1 0 0 1 1 1 6 0 0 6 0 0 0 - 6443 - 0 0 - - 0",
        ]
    );
}

#[test]
fn members_are_not_the_structure_and_all_else_is() {
    let before = wanted();
    let text = rendered(&before, 1);
    let changed = |change: &dyn Fn(&mut Balancer)| {
        let mut after = before.clone();
        change(&mut after.balancers[0]);
        same_structure(&text, &rendered(&after, 1))
    };
    assert!(changed(&|_| {}));
    assert!(changed(&|api| {
        let members = vec![member("cp-9", "10.0.0.9"), member("cp_2", "fd00::2")];
        api.load_balancer = api.load_balancer.clone().with_members(members).unwrap();
    }));
    assert!(!changed(&|api| api.options.send_proxy = true));
    assert!(!changed(&|api| api.options.balance = Balance::Random));
    assert!(!changed(&|api| {
        let addresses = vec!["192.0.2.11".parse().unwrap()];
        api.load_balancer = api.load_balancer.clone().with_addresses(addresses).unwrap();
    }));
    assert!(!same_structure(&text, &rendered(&before, 2)));
}

#[test]
fn ranges_by_family() {
    for (given, expected) in [
        (None, vec![]),
        (Some(&[][..]), vec![("n.v4", ""), ("n.v6", "")]),
        (Some(&["10.0.0.7/8"]), vec![("n.v4", "10.0.0.0/8\n"), ("n.v6", "")]),
        (
            Some(&["::ffff:10.0.0.0/104", "fd00::/8", "fd00::1/8"]),
            vec![("n.v4", "10.0.0.0/8\n"), ("n.v6", "fd00::/8\n")],
        ),
    ] {
        let listener = Listener::new(80, ListenerProtocol::Tcp, 80).unwrap();
        let of = balancer("web", &[], vec![listener], given).load_balancer;
        let found: Vec<(String, String)> =
            ranges("n", &of).iter().map(|(name, ranges)| (name.clone(), ranges_text(ranges))).collect();
        let expected: Vec<(String, String)> =
            expected.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        assert_eq!(found, expected, "{given:?}");
    }
}

#[test]
fn the_default_check_is_as_documented() {
    let listener = Listener::new(80, ListenerProtocol::Tcp, 80).unwrap();
    assert_eq!(health_check(&listener).to_string(), HEALTH_CHECK);
}

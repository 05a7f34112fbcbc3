//! Connections while everything changes.

use portcullis_core::MemberState;
use portcullis_haproxy::{Balance, Options};

use crate::lab::{Lab, V4, V6, backend, balancer, late, leaving, listener, member, open, wanted, web};
use portcullis_testkit::talk::{Backend, Held, Load, ask};

#[test]
fn nobody_is_refused_or_cut_while_members_and_listeners_come_and_go() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let process = proxy.process();
    let loads = [Load::start(&lab.inside, V4, 80), Load::start(&lab.outside, V6, 80)];
    let some_more = || loads.iter().for_each(|load| load.more(150));
    some_more();

    // Members, without a reload.
    let all = wanted(vec![web(vec![member(1), member(2), member(3)])]);
    let before = proxy.look().workers;
    proxy.settle(&all);
    some_more();
    let less = wanted(vec![web(vec![leaving(1, late()), member(2), member(3)])]);
    proxy.until(&less, "member-1", MemberState::Removed);
    some_more();
    proxy.apply(&wanted(vec![web(vec![member(2), member(3)])]));
    assert_eq!(proxy.look().workers, before);
    assert_eq!(generation(&proxy), 1);

    // Who is simply not spoken of any more.
    proxy.apply(&wanted(vec![web(vec![member(3)])]));
    some_more();
    proxy.settle(&wanted(vec![web(vec![member(3), member(1)])]));
    some_more();

    // Another listener, another load balancer, another way to balance: reloads.
    let members = || vec![member(3), member(1)];
    for round in 0_u16..3 {
        let mut first =
            balancer("web", &[V4, V6], vec![listener(80), listener(81 + round)], open(), members());
        first.options = Options { balance: Balance::RoundRobin, ..Options::default() };
        let other = balancer("other", &[V4], vec![listener(90 + round)], open(), members());
        let wanted = wanted(vec![first, other]);
        proxy.apply(&wanted);
        some_more();
        // A reload forgets nobody, and brings nobody back.
        proxy.settle(&wanted);
        assert!(ask(&lab.inside, V4, 81 + round).is_ok());
        assert!(ask(&lab.inside, V4, 90 + round).is_ok());
    }
    assert_eq!(generation(&proxy), 4);

    // Somebody else writes into the file.
    let file = proxy.path("haproxy.cfg");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("retries 3", "retries 4")).unwrap();
    let last = wanted(vec![web(members())]);
    proxy.settle(&last);
    assert!(std::fs::read_to_string(&file).unwrap().contains("retries 3"));
    some_more();

    assert_eq!(proxy.process(), process);
    for load in loads {
        let (count, failures) = load.end();
        assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
        assert!(count > 1000, "{count}");
    }
    let seen = proxy.settle(&last);
    let totals = seen.balancers.values().next().unwrap().totals;
    assert!(
        totals.connections > 2000 && totals.bytes_received > 10_000 && totals.bytes_sent > 10_000,
        "{totals:?}"
    );
}

fn generation(proxy: &crate::lab::Proxy) -> u64 {
    let text = std::fs::read_to_string(proxy.path("haproxy.cfg")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("    description ")?.parse().ok()).unwrap()
}

#[test]
fn a_member_that_moves_is_checked_where_it_is_now() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members[..2].iter().map(backend).collect();
    let mut proxy = lab.proxy();
    let at = |number: usize| {
        let moved = portcullis_core::Member::new("member", member(number).addresses().to_vec()).unwrap();
        wanted(vec![web(vec![moved])])
    };
    proxy.settle(&at(1));
    let mut held = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");
    proxy.settle(&at(2));
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
    assert_eq!(held.ask().unwrap(), "member-1");
}

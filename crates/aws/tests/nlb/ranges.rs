//! Who may connect: ranges of both families, lists of them, and the messages that clients need to get through.

use portcullis_core::{Outcome, Provider as _};

use crate::held;
use crate::scene::{Service, account, dual_stack};

/// Whether it is for both families; the ranges; annotations; what is let in.
type Row = (bool, Option<Texts>, &'static [(&'static str, &'static str)], Texts);
type Texts = &'static [&'static str];

#[tokio::test]
async fn ranges_become_rules() {
    const LISTS: (&str, &str) = ("security-group-prefix-lists", "pl-1, pl-2");
    const NO_ICMP: (&str, &str) = ("enable-icmp-for-path-mtu-discovery", "off");
    let rows: [Row; 14] = [
        (false, None, &[], &["icmp 3-4 0.0.0.0/0", "tcp 80-80 0.0.0.0/0"]),
        (false, Some(&[]), &[], &["icmp 3-4 0.0.0.0/0", "tcp 80-80 0.0.0.0/0"]),
        (
            true,
            None,
            &[],
            &["icmp 3-4 0.0.0.0/0", "icmpv6 2-0 ::/0", "tcp 80-80 0.0.0.0/0", "tcp 80-80 ::/0"],
        ),
        (
            false,
            Some(&["192.0.2.0/24", "198.51.100.7/32"]),
            &[],
            &[
                "icmp 3-4 192.0.2.0/24",
                "icmp 3-4 198.51.100.7/32",
                "tcp 80-80 192.0.2.0/24",
                "tcp 80-80 198.51.100.7/32",
            ],
        ),
        // AWS keeps no host bits, and neither do we: else there would be a change for ever.
        (false, Some(&["192.0.2.77/24"]), &[], &["icmp 3-4 192.0.2.0/24", "tcp 80-80 192.0.2.0/24"]),
        // Whoever limits one family does not mean to leave the other open.
        (true, Some(&["192.0.2.0/24"]), &[], &["icmp 3-4 192.0.2.0/24", "tcp 80-80 192.0.2.0/24"]),
        (true, Some(&["2001:db8::/32"]), &[], &["icmpv6 2-0 2001:db8::/32", "tcp 80-80 2001:db8::/32"]),
        (
            true,
            Some(&["192.0.2.0/24", "2001:db8::/32"]),
            &[],
            &[
                "icmp 3-4 192.0.2.0/24",
                "icmpv6 2-0 2001:db8::/32",
                "tcp 80-80 192.0.2.0/24",
                "tcp 80-80 2001:db8::/32",
            ],
        ),
        (false, None, &[NO_ICMP], &["tcp 80-80 0.0.0.0/0"]),
        (true, Some(&["2001:db8::/32"]), &[NO_ICMP], &["tcp 80-80 2001:db8::/32"]),
        // Lists alone are all who may; with ranges, both may.
        (false, None, &[LISTS], &["icmp 3-4 pl-1", "icmp 3-4 pl-2", "tcp 80-80 pl-1", "tcp 80-80 pl-2"]),
        (true, None, &[LISTS, NO_ICMP], &["tcp 80-80 pl-1", "tcp 80-80 pl-2"]),
        (
            false,
            Some(&["192.0.2.0/24"]),
            &[LISTS, NO_ICMP],
            &["tcp 80-80 192.0.2.0/24", "tcp 80-80 pl-1", "tcp 80-80 pl-2"],
        ),
        (false, Some(&["0.0.0.0/0"]), &[NO_ICMP], &["tcp 80-80 0.0.0.0/0"]),
    ];
    let fake = dual_stack();
    fake.act_as_someone_else(|world| {
        world.add_prefix_list("pl-1", 5);
        world.add_prefix_list("pl-2", 5);
    });
    // Each is made anew, and each follows on the one before.
    let edited = account(&fake).provider("Managed");
    for (place, (dual, ranges, annotations, expected)) in rows.into_iter().enumerate() {
        let service = Service {
            dual,
            ranges: ranges.map(<[_]>::to_vec),
            annotations: annotations.to_vec(),
            ..Service::default()
        };
        let new = format!("new{place}");
        for name in ["edited", &new] {
            let report = edited.sync(&service.want(name)).await;
            assert_eq!(report.outcome, Outcome::Done, "{service:?}");
            assert_eq!(held::lets_in(&fake.state(), name), expected, "{service:?}");
            let kind = if dual { "dualstack" } else { "ipv4" };
            assert_eq!(held::balancer(&fake.state(), name).ip_address_type, kind);
            // It goes to the nodes and nowhere else, over whatever family clients come.
            assert_eq!(held::lets_out(&fake.state(), name), ["tcp 30080-30080 nodes"]);
        }
    }
}

#[tokio::test]
async fn ranges_that_have_no_effect_are_told_of() {
    let fake = dual_stack();
    let provider = account(&fake).provider("Managed");
    let service = Service { ranges: Some(vec!["192.0.2.0/24", "2001:db8::/32"]), ..Service::default() };
    let report = provider.sync(&service.want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
    let told = "the source range 2001:db8::/32 has no effect: the load balancer has IPv4 only";
    assert_eq!(report.told, [told]);
    assert_eq!(held::lets_in(&fake.state(), "web"), ["icmp 3-4 192.0.2.0/24", "tcp 80-80 192.0.2.0/24"]);

    // With that one alone nobody may connect; certainly not everyone.
    let alone = Service { ranges: Some(vec!["2001:db8::/32"]), ..Service::default() };
    let report = provider.sync(&alone.want("web")).await;
    assert_eq!((report.outcome, report.told), (Outcome::Done, vec![told.to_owned()]));
    assert_eq!(held::lets_in(&fake.state(), "web"), Vec::<String>::new());

    let both = Service { dual: true, ..service };
    let report = provider.sync(&both.want("web")).await;
    assert_eq!((report.outcome, report.told), (Outcome::Done, Vec::new()));
}

use super::*;
use proptest::prelude::*;

const DRAIN: Duration = Duration::from_secs(100);

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn machine(name: &str) -> Candidate {
    let last = name.bytes().next_back().unwrap_or_default();
    Candidate {
        name: name.to_owned(),
        addresses: vec![IpAddr::from([10, 0, 0, last])],
        is_selected: true,
        is_held: true,
        is_control_plane: true,
        ..Candidate::default()
    }
}

fn told(list: &[(&str, &str)]) -> Vec<MemberStatus> {
    let one = |(name, status): &(&str, &str)| MemberStatus {
        name: (*name).to_owned(),
        status: (*status).to_owned(),
        ..MemberStatus::default()
    };
    list.iter().map(one).collect()
}

fn decide(
    candidates: &[Candidate],
    before: &[AssignedMember],
    told: &[MemberStatus],
    now: i64,
) -> Membership {
    Situation {
        candidates,
        before,
        told,
        elsewhere: &Elsewhere::default(),
        deleted: None,
        is_told_of_this: true,
        drain: DRAIN,
        is_paused: false,
        everything_goes: false,
        now: second(now),
    }
    .decide()
}

/// Everybody with its duty and where it is: `a Serve active`.
fn shown(decided: &Membership) -> Vec<String> {
    let duty = |name: &str| {
        let member = decided.members.iter().find(|member| member.name == name);
        member.map_or_else(|| "-".to_owned(), |member| format!("{:?}", member.duty))
    };
    let targets = decided.targets.iter();
    targets.map(|target| format!("{} {} {}", target.name, duty(&target.name), target.status)).collect()
}

#[test]
fn who_has_an_address_serves_once_it_is_let_in() {
    let mut new = machine("b");
    new.addresses.clear();
    let decided = decide(&[machine("a"), new], &[], &[], 0);
    assert_eq!(shown(&decided), ["a Serve adding", "b - adding"]);
    let decided = decide(&[machine("a")], &decided.members, &told(&[("a", "active")]), 0);
    assert_eq!(
        (shown(&decided), decided.active()),
        (vec!["a Serve active".to_owned()], vec!["a".to_owned()])
    );
    let decided = decide(&[machine("a")], &decided.members, &told(&[("a", "warming-up")]), 0);
    assert_eq!(shown(&decided), ["a Serve warming-up"], "a provider's own word");
}

#[test]
fn addresses_stay_in_the_order_in_which_they_were_told_first() {
    let [one, two, three] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
    for going_since in [None, Some(second(10))] {
        let mut members = Vec::new();
        for (reported, expected) in [
            (vec![two, one], vec![two, one]),
            (vec![one, two], vec![two, one]),
            (vec![three, one, two], vec![two, one, three]),
            (vec![], vec![two, one, three]),
            (vec![three, one], vec![one, three]),
            (vec![two, three, one], vec![one, three, two]),
        ] {
            let going_since = going_since.filter(|_| !members.is_empty());
            let candidate = Candidate { addresses: reported.clone(), going_since, ..machine("a") };
            let other = Candidate { addresses: vec![IpAddr::from([10, 0, 0, 9])], ..machine("b") };
            let decided =
                decide(&[candidate, other], &members, &told(&[("a", "active"), ("b", "active")]), 12);
            let duty = if going_since.is_some() { DutyWord::Leave } else { DutyWord::Serve };
            assert_eq!(
                (decided.members[0].duty, &decided.members[0].addresses),
                (duty, &expected),
                "{reported:?}"
            );
            members = decided.members;
        }
    }
}

#[test]
fn a_machine_that_goes_waits_until_it_has_left() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    let candidates = [going, machine("b")];
    let leaving = decide(&candidates, &first.members, &active, 12);
    assert_eq!(shown(&leaving), ["a Leave draining", "b Serve active"]);
    assert_eq!(leaving.members[0].by, Some(Time(second(112))), "from when it was asked to");
    assert!(leaving.released.is_empty() && leaving.again == Some(second(142)), "{leaving:?}");
    // What was told before it was asked to leave says nothing about that.
    let stale = told(&[("a", "removed"), ("b", "active")]);
    assert!(decide(&candidates, &first.members, &stale, 13).released.is_empty());
    let left = decide(&candidates, &leaving.members, &stale, 14);
    assert_eq!(shown(&left), ["a Leave removed", "b Serve active"]);
    assert_eq!(left.released, BTreeSet::from(["a".to_owned()]));
    let gone = decide(&candidates[1..], &left.members, &stale, 15);
    assert_eq!(shown(&gone), ["b Serve active"], "it is pruned");
}

#[test]
fn nobody_waits_for_ever() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    let candidates = [going, machine("b")];
    let leaving = decide(&candidates, &first.members, &active, 10);
    let told = told(&[("a", "draining"), ("b", "active")]);
    assert!(decide(&candidates, &leaving.members, &told, 139).released.is_empty());
    let over = decide(&candidates, &leaving.members, &told, 140);
    assert_eq!((over.released.len(), over.overdue.len()), (1, 1));
}

/// What is being deleted may hear nothing of who is to leave it, and says nothing. Its time counts all the same, from when both were
/// to go.
#[test]
fn nobody_waits_for_ever_for_what_is_being_deleted() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut going = machine("a");
    for (since, deleted, now, by, is_released) in [
        (10, 10, 11, 110, false),
        (10, 10, 139, 110, false),
        (10, 10, 140, 110, true),
        (10, 60, 140, 160, false),
        (10, 60, 190, 160, true),
        (60, 10, 140, 160, false),
        (60, 10, 190, 160, true),
    ] {
        going.going_since = Some(second(since));
        let situation = Situation {
            candidates: &[going.clone(), machine("b")],
            before: &first.members,
            told: &active,
            elsewhere: &Elsewhere::default(),
            deleted: Some(second(deleted)),
            is_told_of_this: true,
            drain: DRAIN,
            is_paused: false,
            everything_goes: false,
            now: second(now),
        };
        // Nothing of it is ever written there.
        let decided = situation.decide();
        assert_eq!(decided.members[0].by, Some(Time(second(by))), "{since} {deleted} {now}");
        assert_eq!(decided.released.contains("a"), is_released, "{since} {deleted} {now}");
        assert_eq!(decided.overdue.contains("a"), is_released, "{since} {deleted} {now}");
        assert_eq!(decided.again, (!is_released).then(|| second(by + 30)), "{since} {deleted} {now}");
    }
}

/// While nobody gets connections by a new provider, the old one serves: who is the last is decided there, and who serves is shown.
#[test]
fn what_made_it_before_counts_until_the_new_one_serves() {
    let first = decide(&[machine("a"), machine("b")], &[], &[], 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    for (here, there, last, shows) in [
        // Another one serves by the old one.
        (vec![], vec!["a", "b"], None, ["a draining", "b active"]),
        (vec![], vec!["b"], None, ["a draining", "b active"]),
        // It is the last one there.
        (vec![], vec!["a"], Some("a"), ["a active", "b adding"]),
        (vec![], vec![], Some("a"), ["a adding", "b adding"]),
        // The new one serves: clients are there.
        (vec!["a"], vec!["a", "b"], Some("a"), ["a active", "b active"]),
        (vec!["b"], vec!["a"], None, ["a draining", "b active"]),
    ] {
        let active = |names: &[&str]| told(&names.iter().map(|name| (*name, "active")).collect::<Vec<_>>());
        let there = Elsewhere { active: active(&there), there: Vec::new() };
        let situation = Situation {
            candidates: &[going.clone(), machine("b")],
            before: &first.members,
            told: &active(&here),
            elsewhere: &there,
            deleted: None,
            is_told_of_this: true,
            drain: DRAIN,
            is_paused: false,
            everything_goes: false,
            now: second(11),
        };
        let decided = situation.decide();
        assert_eq!(decided.last.as_deref(), last, "{here:?} {there:?}");
        let all = decided.with(&there);
        let words = |target: &Target| format!("{} {}", target.name, target.status);
        assert_eq!(all.targets.iter().map(words).collect::<Vec<_>>(), shows, "{here:?} {there:?}");
        // What a provider is asked for is its own.
        assert_eq!(all.members, decided.members);
    }
}

#[test]
fn of_two_control_planes_the_first_takes_its_time() {
    let names = ["a", "b", "c"];
    let active = told(&names.map(|name| (name, "active")));
    let mut candidates = names.map(machine);
    let first = decide(&candidates, &[], &active, 0);
    candidates[1].going_since = Some(second(10));
    candidates[0].going_since = Some(second(11));
    let leaving = decide(&candidates, &first.members, &active, 20);
    let by: Vec<_> = leaving.members.iter().map(|member| member.by.as_ref().map(|by| by.0)).collect();
    assert_eq!(by, [Some(second(120)), Some(second(120)), None]);
    assert_eq!(leaving.released, BTreeSet::from(["a".to_owned()]), "one is waited for");
    // Workers may all wait.
    let workers = candidates.map(|candidate| Candidate { is_control_plane: false, ..candidate });
    let leaving = decide(&workers, &first.members, &active, 20);
    let by: Vec<_> = leaving.members.iter().map(|member| member.by.as_ref().map(|by| by.0)).collect();
    assert_eq!(by, [Some(second(120)), Some(second(120)), None]);
}

/// While providers are changed: who was leaving the one before is waited for, whatever the new one has heard of.
#[test]
fn who_has_left_one_provider_has_not_left_another() {
    let active = told(&[("a", "active"), ("b", "active"), ("c", "active")]);
    let mut candidates = ["a", "b", "c"].map(machine);
    let first = decide(&candidates, &[], &active, 0);
    candidates[0].going_since = Some(second(10));
    let leaving = decide(&candidates, &first.members, &active, 10);
    // The new one hears of the others only, of which another one goes.
    let anew = decide(&candidates[1..], &[], &[], 20);
    candidates[1].going_since = Some(second(30));
    let connections = MemberStatus { connections: Some(3), ..told(&[("a", "draining")]).remove(0) };
    let draining = (leaving.members[0].clone(), connections);
    let active = told(&[("b", "active"), ("c", "active")]);
    for (there, waits, shows) in
        [(vec![draining], &["a", "b"][..], ("draining", Some(3))), (vec![], &["a"], ("removed", None))]
    {
        let elsewhere = Elsewhere { active: Vec::new(), there };
        let decided = Situation {
            candidates: &candidates,
            before: &anew.members,
            told: &active,
            elsewhere: &elsewhere,
            deleted: None,
            is_told_of_this: true,
            drain: DRAIN,
            is_paused: false,
            everything_goes: false,
            now: second(31),
        }
        .decide();
        // One that is let go here is held until it has left there. One control plane at a time takes its time.
        assert!(decided.released.iter().eq(waits), "{elsewhere:?}");
        let shown = decided.with(&elsewhere);
        let target = shown.targets.iter().find(|target| target.name == "a").unwrap();
        assert_eq!((target.status.as_str(), target.connections), shows);
        assert_eq!(shown.members, decided.members);
    }
    // Also who is not meant any more says that it is a member until it is none.
    candidates[0] = Candidate { is_selected: false, going_since: None, ..machine("a") };
    let decided = decide(&candidates, &anew.members, &active, 31);
    assert!(decided.former.contains("a"));
    let there = vec![(leaving.members[0].clone(), MemberStatus::default())];
    let shown = decided.with(&Elsewhere { active: Vec::new(), there });
    assert!(shown.former.is_empty() && shown.targets[0].status == "draining", "{shown:?}");
}

#[test]
fn the_last_one_that_answers_stays() {
    let told = told(&[("a", "active"), ("b", "adding")]);
    let first = decide(&[machine("a"), machine("b")], &[], &told, 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    let candidates = [going, machine("b")];
    let stays = decide(&candidates, &first.members, &told, 20);
    assert_eq!(shown(&stays), ["a Serve active", "b Serve adding"]);
    assert!(stays.last.as_deref() == Some("a") && stays.released.is_empty());
    let over = decide(&candidates, &first.members, &told, 110);
    assert_eq!(shown(&over), ["a Serve active", "b Serve adding"], "it serves as long as it is there");
    assert_eq!(over.released, BTreeSet::from(["a".to_owned()]));
}

#[test]
fn of_several_that_go_one_stays_as_the_last() {
    // Who answers stays; if both do, the first.
    for (states, stays, goes) in [(["active", "active"], "b", "a"), (["active", "adding"], "a", "b")] {
        let told = told(&[("a", states[0]), ("b", states[1]), ("c", "adding")]);
        let mut candidates = ["a", "b", "c"].map(machine);
        let first = decide(&candidates, &[], &told, 0);
        candidates[1].going_since = Some(second(10));
        candidates[0].going_since = Some(second(11));
        let decided = decide(&candidates, &first.members, &told, 20);
        assert_eq!(decided.last.as_deref(), Some(stays));
        assert_eq!(decided.released, BTreeSet::from([goes.to_owned()]), "the other need not wait");
        let duty = |name: &str| decided.members.iter().find(|member| member.name == name).unwrap().duty;
        assert_eq!((duty(stays), duty(goes)), (DutyWord::Serve, DutyWord::Leave));
    }
}

#[test]
fn nobody_leaves_a_provider_that_is_paused() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    let mut new = machine("c");
    new.going_since = Some(second(10));
    let candidates = [going, machine("b"), new];
    let leaving = decide(&candidates, &first.members, &active, 10);
    let draining = told(&[("a", "draining"), ("b", "active")]);
    let removed = told(&[("a", "removed"), ("b", "active")]);
    let alone = told(&[("a", "active"), ("b", "adding")]);
    // However late it is, whether it was told before that or not, and also if it is the last one.
    for (before, said, released, shown_as) in [
        (&first.members, &active, &["c"][..], "a Leave active"),
        (&first.members, &alone, &["c"], "a Serve active"),
        (&leaving.members, &draining, &["c"], "a Leave draining"),
        (&leaving.members, &removed, &["a", "c"], "a Leave removed"),
    ] {
        let paused = Situation {
            candidates: &candidates,
            before,
            told: said,
            elsewhere: &Elsewhere::default(),
            deleted: None,
            is_told_of_this: true,
            is_paused: true,
            drain: DRAIN,
            everything_goes: false,
            now: second(100_000),
        };
        let decided = paused.decide();
        let names: Vec<&str> = decided.released.iter().map(String::as_str).collect();
        assert_eq!((names.as_slice(), shown(&decided)[0].as_str()), (released, shown_as), "{said:?}");
        let waiting = usize::from(!released.contains(&"a"));
        assert_eq!((decided.waiting.len(), decided.overdue.len()), (waiting, 0), "{said:?}");
        let goes = Situation { everything_goes: true, ..paused }.decide();
        assert_eq!((goes.released.len(), goes.waiting.len()), (3, 0), "with the cluster everything goes");
    }
    // When it goes on, who was not told yet has all of its time.
    let after = decide(&candidates, &first.members, &active, 100_000);
    assert_eq!(after.members[0].by, Some(Time(second(100_100))));
}

#[test]
fn who_was_let_go_does_not_come_back() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    let leaving = decide(&[going.clone(), machine("b")], &first.members, &active, 12);
    going.is_held = false;
    let situation = Situation {
        candidates: &[going, machine("b")],
        before: &leaving.members,
        // The other one is not known to answer for a moment.
        told: &told(&[("a", "removed"), ("b", "adding")]),
        elsewhere: &Elsewhere::default(),
        deleted: None,
        is_told_of_this: false,
        drain: DRAIN,
        is_paused: false,
        everything_goes: false,
        now: second(20),
    };
    assert_eq!(shown(&situation.decide()), ["a Leave removed", "b Serve adding"]);
}

#[test]
fn who_is_disabled_stays_so() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let mut candidates = [machine("a"), machine("b")];
    let first = decide(&candidates, &[], &active, 0);
    candidates[0].is_disabled = true;
    let disabling = decide(&candidates, &first.members, &active, 5);
    assert_eq!(shown(&disabling), ["a Rest disabling", "b Serve active"]);
    let told_disabled = told(&[("a", "disabled"), ("b", "adding")]);
    let disabled = decide(&candidates, &disabling.members, &told_disabled, 50);
    assert_eq!(shown(&disabled), ["a Rest disabled", "b Serve adding"], "although nobody answers");
    assert_eq!(disabled.members[0].by, Some(Time(second(105))), "the time does not move");
    candidates[0].is_disabled = false;
    let again = decide(&candidates, &disabled.members, &told_disabled, 60);
    assert_eq!(shown(&again)[0], "a Serve adding");
}

#[test]
fn who_is_not_meant_any_more_leaves_and_is_forgotten() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let mut candidates = [machine("a"), machine("b")];
    let first = decide(&candidates, &[], &active, 0);
    candidates[0].is_selected = false;
    let leaving = decide(&candidates, &first.members, &active, 5);
    assert_eq!(shown(&leaving)[0], "a Leave draining");
    assert_eq!(leaving.members[0].by, Some(Time(second(105))));
    let later = decide(&candidates, &leaving.members, &active, 50);
    assert_eq!(later.members[0].by, Some(Time(second(105))), "the time does not move");
    let left = decide(&candidates, &later.members, &told(&[("a", "removed"), ("b", "active")]), 60);
    assert_eq!(shown(&left), ["b Serve active"]);
    assert_eq!((left.released.len(), left.former.len()), (1, 1));
}

#[test]
fn what_another_has_is_told_and_left() {
    let mut taken = machine("a");
    taken.taken_by = Some("other".to_owned());
    let decided = decide(&[taken.clone()], &[], &[], 0);
    assert_eq!((shown(&decided), decided.taken.len()), (Vec::new(), 1));
    assert!(decided.released.is_empty() && decided.former.is_empty(), "it is not ours to let go");
    let going = Candidate { going_since: Some(second(0)), ..taken.clone() };
    assert_eq!(decide(&[going], &[], &[], 0).released.len(), 1, "nobody waits for who does not have it");
    taken.is_selected = false;
    assert!(decide(&[taken], &[], &[], 0).taken.is_empty());
}

#[test]
fn who_goes_over_to_another_leaves_first() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let mut candidates = [machine("a"), machine("b")];
    let first = decide(&candidates, &[], &active, 0);
    candidates[0].taken_by = Some("other".to_owned());
    let leaving = decide(&candidates, &first.members, &active, 5);
    assert_eq!(shown(&leaving), ["a Leave draining", "b Serve active"]);
    assert_eq!(leaving.members[0].by, Some(Time(second(105))));
    assert!(leaving.released.is_empty(), "it is held until it has left");
    assert_eq!((leaving.taken.len(), leaving.theirs.len()), (1, 1), "and what it says is the other's");
    let removed = told(&[("a", "removed"), ("b", "active")]);
    let left = decide(&candidates, &leaving.members, &removed, 60);
    assert_eq!((shown(&left), left.released.len()), (vec!["b Serve active".to_owned()], 1));
    let after = decide(&candidates, &left.members, &removed, 61);
    assert_eq!((after.members, after.released.len(), after.theirs.len()), (left.members, 0, 1));
    // The last one that answers stays until another does.
    let alone = told(&[("a", "active"), ("b", "adding")]);
    let stays = decide(&candidates, &first.members, &alone, 5);
    assert_eq!((shown(&stays)[0].as_str(), stays.last.as_deref()), ("a Serve active", Some("a")));
    // Who is not meant any more either is as much the other's.
    candidates[0].is_selected = false;
    let leaving = decide(&candidates, &first.members, &active, 5);
    assert_eq!((leaving.taken.len(), leaving.theirs.len()), (0, 1));
}

#[test]
fn two_with_one_address_are_told_apart() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut old = machine("a");
    old.going_since = Some(second(1));
    let leaving = decide(&[old.clone(), machine("b")], &first.members, &active, 1);
    // Another one comes up with the address that the first one had.
    let mut new = machine("c");
    new.addresses = old.addresses.clone();
    let decided = decide(&[old, machine("b"), new.clone()], &leaving.members, &active, 2);
    assert_eq!(shown(&decided), ["a - removed", "b Serve active", "c Serve adding"]);
    assert_eq!(decided.released, BTreeSet::from(["a".to_owned()]));
    new.addresses = machine("b").addresses;
    let decided = decide(&[machine("b"), new], &first.members, &active, 2);
    assert_eq!(shown(&decided), ["b Serve active", "c - adding"], "who had it keeps it");
}

#[test]
fn who_lost_its_address_is_still_known_by_it() {
    let active = told(&[("a", "active")]);
    let first = decide(&[machine("a")], &[], &active, 0);
    let mut without = machine("a");
    without.addresses.clear();
    let decided = decide(&[without], &first.members, &[], 1);
    assert_eq!(decided.members, first.members, "after a move nobody has told its addresses yet");
}

#[test]
fn with_the_cluster_everything_goes_at_once() {
    let active = told(&[("a", "active"), ("b", "active")]);
    let first = decide(&[machine("a"), machine("b")], &[], &active, 0);
    let mut going = machine("a");
    going.going_since = Some(second(10));
    let candidates = [going, machine("b")];
    let situation = Situation {
        candidates: &candidates,
        before: &first.members,
        told: &active,
        elsewhere: &Elsewhere::default(),
        deleted: None,
        is_told_of_this: true,
        drain: DRAIN,
        is_paused: false,
        everything_goes: true,
        now: second(11),
    };
    let decided = situation.decide();
    assert_eq!(decided.released.len(), 2);
    assert_eq!(shown(&decided), ["b Serve active"]);
}

/// What happens to a Machine.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Appear,
    Delete,
    Disable,
    Enable,
    Unselect,
    /// Another load balancer has it, or has it no more.
    Take(bool),
    Check(bool),
    Told,
    Pause(bool),
    /// The provider's object is deleted: from then on it takes nothing, and tells nothing.
    Deafen,
    Wait(u16),
}

fn happenings() -> impl Strategy<Value = Vec<(usize, Happening)>> {
    let one = prop_oneof![
        Just(Happening::Appear),
        Just(Happening::Delete),
        Just(Happening::Disable),
        Just(Happening::Enable),
        Just(Happening::Unselect),
        any::<bool>().prop_map(Happening::Take),
        any::<bool>().prop_map(Happening::Check),
        Just(Happening::Told),
        any::<bool>().prop_map(Happening::Pause),
        (1_u16..120).prop_map(Happening::Wait),
    ];
    let one = prop_oneof![40 => one, 1 => Just(Happening::Deafen)];
    prop::collection::vec((0_usize..5, one), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever happens in whatever order: nobody waits longer than it may, one control plane at most takes its time, who
    /// is disabled is never sent to, and who goes, or is another's, while others answer loses new connections at once. While the provider is
    /// paused, nobody goes whom it has; while it is being deleted, nobody waits longer for what it does not hear.
    #[test]
    fn holds_end_and_wishes_count(happenings in happenings()) {
        let mut machines: BTreeMap<usize, Candidate> = BTreeMap::new();
        let mut answers = [true; 5];
        let mut reported: Vec<MemberStatus> = Vec::new();
        let (mut before, mut now, mut is_told, mut is_paused) = (Vec::new(), 0_i64, false, false);
        let mut deaf: Option<Timestamp> = None;
        for (number, happening) in happenings {
            let name = ["a", "b", "c", "d", "e"][number];
            match happening {
                Happening::Appear => drop(machines.entry(number).or_insert_with(|| machine(name))),
                Happening::Wait(seconds) => now += i64::from(seconds),
                Happening::Check(passes) => answers[number] = passes,
                Happening::Pause(pause) => is_paused = pause,
                Happening::Deafen => drop(deaf.get_or_insert(second(now))),
                Happening::Told if !is_paused && deaf.is_none() => {
                    is_told = true;
                    reported = before.iter().map(|member: &AssignedMember| {
                        let place = usize::from(member.name.as_bytes()[0] - b'a');
                        let over = member.by.as_ref().is_some_and(|by| by.0 <= second(now));
                        let status = match member.duty {
                            DutyWord::Serve if answers[place] => "active",
                            DutyWord::Serve => "adding",
                            DutyWord::Rest => if over { "disabled" } else { "disabling" },
                            DutyWord::Leave => if over { "removed" } else { "draining" },
                        };
                        MemberStatus { name: member.name.clone(), status: status.to_owned(), ..MemberStatus::default() }
                    }).collect();
                }
                _ => {}
            }
            if let Some(machine) = machines.get_mut(&number) {
                match happening {
                    Happening::Delete => drop(machine.going_since.get_or_insert(second(now))),
                    Happening::Disable => machine.is_disabled = true,
                    Happening::Enable => machine.is_disabled = false,
                    Happening::Unselect => machine.is_selected = false,
                    Happening::Take(is) => machine.taken_by = is.then(|| "other".to_owned()),
                    _ => {}
                }
            }
            let candidates: Vec<Candidate> = machines.values().cloned().collect();
            let situation = Situation {
                candidates: &candidates,
                before: &before,
                told: &reported,
                elsewhere: &Elsewhere::default(),
                deleted: deaf,
                is_told_of_this: is_told,
                is_paused,
                drain: DRAIN,
        everything_goes: false,
                now: second(now),
            };
            let decided = situation.decide();
            let mut taking_time = 0;
            for candidate in &candidates {
                let member = decided.members.iter().find(|member| member.name == candidate.name);
                let released = decided.released.contains(&candidate.name);
                if candidate.is_disabled {
                    prop_assert!(member.is_none_or(|member| member.duty != DutyWord::Serve), "{candidate:?}");
                }
                if candidate.taken_by.is_some() {
                    prop_assert!(decided.theirs.contains(&candidate.name), "{candidate:?}");
                    let had = before.iter().any(|before: &AssignedMember| before.name == candidate.name);
                    prop_assert!(had || member.is_none(), "{candidate:?} comes: {decided:?}");
                    let serves = member.is_some_and(|member| member.duty == DutyWord::Serve);
                    prop_assert!(!serves || !situation.another_answers(&candidate.name), "{candidate:?}");
                }
                let Some(since) = candidate.going_since else { continue };
                // It may be asked late, when it was the last one that answered until then.
                let asked = member.and_then(|member| member.by.as_ref()).map_or(since, |by| by.0);
                if is_paused {
                    let has_it = before.iter().find(|before| before.name == candidate.name);
                    let waits = has_it.is_some_and(|before| !situation.is_removed(before));
                    prop_assert_eq!(released, !waits, "{:?}", candidate);
                } else if second(now) >= later(later(since, DRAIN).max(asked), GRACE) {
                    prop_assert!(released, "{candidate:?} waits for ever: {decided:?}");
                }
                let of_both = deaf.filter(|_| !is_paused).map(|deaf| later(deaf.max(since), DRAIN));
                if of_both.is_some_and(|by| second(now) >= later(by, GRACE)) {
                    prop_assert!(released, "{candidate:?} waits for what is deleted: {decided:?}");
                }
                taking_time += usize::from(candidate.is_held && !released);
                if member.is_some_and(|member| member.duty == DutyWord::Serve) {
                    prop_assert!(!situation.another_answers(&candidate.name), "{candidate:?}");
                }
            }
            prop_assert!(is_paused || taking_time <= 1, "{decided:?}");
            // Deciding again, when those who were let go are not held any more, gives the same.
            let mut let_go = candidates.clone();
            for candidate in &mut let_go {
                candidate.is_held &= !decided.released.contains(&candidate.name);
            }
            let is_told_of_this = is_told && decided.members == before;
            let again = Situation { candidates: &let_go, before: &decided.members, is_told_of_this, ..situation.clone() };
            prop_assert_eq!(&again.decide().members, &decided.members);
            if !is_paused && deaf.is_none() {
                is_told &= decided.members == before;
                before = decided.members;
            }
            for name in &decided.released {
                machines.retain(|_, machine| machine.name != *name || machine.going_since.is_none());
            }
        }
    }
}

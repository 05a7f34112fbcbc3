//! Who is a member of a load balancer, and who may go: functions of what was seen.
//!
//! A member that is not to serve any more first loses new connections, then has until a time to end those it has. Only then may its
//! Machine go on with its deletion, which is held until then by two annotations of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_core::MemberState;
use portcullis_kube_api::cluster::{AssignedMember, DutyWord, MemberStatus, Target};

/// An object that may be a member.
#[allow(clippy::struct_excessive_bools, reason = "each is seen of its own")]
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) provider_id: Option<String>,
    /// Whether the selector means it.
    pub(super) is_selected: bool,
    /// Whether somebody wishes it to be kept aside.
    pub(super) is_disabled: bool,
    /// Since when it goes, and may wait for us.
    pub(super) going_since: Option<Timestamp>,
    /// Whether its deletion is held for this load balancer.
    pub(super) is_held: bool,
    /// Whether it is a control plane: of these one at a time may wait.
    pub(super) is_control_plane: bool,
    /// Another load balancer that has it.
    pub(super) taken_by: Option<String>,
}

impl Candidate {
    /// Whether it is a member, or is to be one: it is meant, and no other load balancer has it.
    fn is_meant(&self) -> bool {
        self.is_selected && self.taken_by.is_none()
    }
}

/// What is known when members are decided.
#[derive(Clone, Debug)]
pub(super) struct Situation<'a> {
    pub(super) candidates: &'a [Candidate],
    /// What the provider was told last.
    pub(super) before: &'a [AssignedMember],
    /// What it said.
    pub(super) told: &'a [MemberStatus],
    /// Who gets connections by what else makes the load balancer.
    pub(super) elsewhere: &'a [MemberStatus],
    /// Whether that is about what it was told last.
    pub(super) is_told_of_this: bool,
    /// For how long connections of who leaves are waited for.
    pub(super) drain: Duration,
    /// The provider is paused: it does nothing that it is asked for, and nobody leaves it.
    pub(super) is_paused: bool,
    /// Since when the provider's object is being deleted: what it is asked for may not be done any more, nor told of.
    pub(super) deleted: Option<Timestamp>,
    /// The cluster goes, or the load balancer does: nobody waits for anything.
    pub(super) everything_goes: bool,
    pub(super) now: Timestamp,
}

/// What is decided about members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Membership {
    /// What the provider is told.
    pub(super) members: Vec<AssignedMember>,
    /// Where everybody is, for people.
    pub(super) targets: Vec<Target>,
    /// Whose deletion is not to be held any more.
    pub(super) released: BTreeSet<String>,
    /// Who is no member any more, and should not say that it is.
    pub(super) former: BTreeSet<String>,
    /// Who was meant, and belongs to another load balancer.
    pub(super) taken: BTreeMap<String, String>,
    /// Who belongs to another load balancer, meant or not: that one says on it whose it is, and where.
    pub(super) theirs: BTreeSet<String>,
    /// Whose time is over although the provider did not say that it has left.
    pub(super) overdue: BTreeSet<String>,
    /// Who is to go, and waits for a provider that is paused.
    pub(super) waiting: BTreeSet<String>,
    /// Who would leave, and stays since nobody else answers.
    pub(super) last: Option<String>,
    /// When it has to be decided anew although nothing changed.
    pub(super) again: Option<Timestamp>,
}

/// For so long a provider may take to say that the time of a member is over. After that its Machine waits for nobody.
pub(super) const GRACE: Duration = Duration::from_secs(30);

impl Situation<'_> {
    pub(super) fn decide(&self) -> Membership {
        let mut decided = Membership::default();
        // One that is to leave stays if nobody else answers. Of control planes that leave one alone may take its time: that one, or
        // the first of them.
        let stays = self.who_stays();
        let is_going = |one: &&Candidate| one.is_control_plane && one.going_since.is_some();
        let waits = stays.filter(is_going).map(|one| one.name.as_str()).or_else(|| self.who_waits());
        let stays = stays.map(|one| one.name.as_str());
        for candidate in self.candidates {
            self.place(candidate, stays, waits, &mut decided);
        }
        self.part(&mut decided);
        self.wait(&mut decided);
        decided.members.sort_by(|one, other| one.name.cmp(&other.name));
        decided.targets.sort_by(|one, other| one.name.cmp(&other.name));
        decided
    }

    /// No two members have one address, which nobody could tell apart. Who serves has it before who leaves; then who had it.
    fn part(&self, decided: &mut Membership) {
        let had = |member: &AssignedMember| self.before.iter().any(|before| before.name == member.name);
        decided
            .members
            .sort_by_key(|member| (member.duty != DutyWord::Serve, !had(member), member.name.clone()));
        let mut taken: BTreeMap<IpAddr, String> = BTreeMap::new();
        let mut without = Vec::new();
        for member in &mut decided.members {
            let mut holder = None;
            member.addresses.retain(|address| {
                if let Some(other) = taken.get(address) {
                    holder = Some(other.clone());
                    return false;
                }
                taken.insert(*address, member.name.clone());
                true
            });
            if member.addresses.is_empty() {
                without.push((member.name.clone(), member.duty, holder.unwrap_or_default()));
            }
        }
        decided.members.retain(|member| !member.addresses.is_empty());
        for (name, duty, holder) in without {
            let leaves = duty == DutyWord::Leave;
            let state = if leaves { MemberState::Removed } else { MemberState::Adding };
            decided.targets.retain(|target| target.name != name);
            decided.targets.push(target(&name, state, Some(format!("{holder} has its address."))));
            if leaves {
                decided.released.insert(name);
            }
        }
    }

    /// Whom a paused provider has, it has until it says otherwise, however long that takes: it may still send to them.
    fn wait(&self, decided: &mut Membership) {
        if !self.is_paused || self.everything_goes {
            return;
        }
        let is_there =
            |name: &str| self.before.iter().any(|before| before.name == name && !self.is_removed(before));
        decided.released.retain(|name| !is_there(name));
        decided.overdue.clear();
        let going = self.candidates.iter().filter(|candidate| candidate.going_since.is_some());
        let waiting = going.filter(|candidate| is_there(&candidate.name));
        decided.waiting = waiting.map(|candidate| candidate.name.clone()).collect();
    }

    fn place(
        &self,
        candidate: &Candidate,
        stays: Option<&str>,
        waits: Option<&str>,
        decided: &mut Membership,
    ) {
        let name = &candidate.name;
        let before = self.before.iter().find(|member| member.name == *name);
        if let Some(other) = &candidate.taken_by {
            decided.theirs.insert(name.clone());
            if candidate.is_selected {
                decided.taken.insert(name.clone(), other.clone());
            }
            if before.is_none() {
                // It is no member here: whoever has it holds it, if it is to be held.
                if candidate.going_since.is_some() {
                    decided.released.insert(name.clone());
                }
                return;
            }
        }
        if self.everything_goes {
            decided.released.insert(name.clone());
            if candidate.going_since.is_none() && candidate.is_selected && !candidate.addresses.is_empty() {
                // It still serves those who take the cluster down.
                self.assign(candidate, DutyWord::Serve, None, decided);
            }
            return;
        }
        let leaves = candidate.going_since.is_some() || !candidate.is_meant();
        match (leaves, before) {
            (true, None) => {
                // It never was one, or has left already.
                decided.released.insert(name.clone());
                if candidate.is_selected {
                    decided.targets.push(target(name, MemberState::Removed, None));
                } else {
                    decided.former.insert(name.clone());
                }
            }
            (true, Some(before)) => self.leave(candidate, before, stays, waits, decided),
            // One that is a member already keeps the address that it has until it has another: after a move nobody has any.
            (false, None) if candidate.addresses.is_empty() => {
                let message = "It has no address yet.".to_owned();
                decided.targets.push(target(name, MemberState::Adding, Some(message)));
            }
            (false, _) if candidate.is_disabled => {
                let by = before
                    .filter(|before| before.duty == DutyWord::Rest)
                    .and_then(|before| before.by.clone());
                let by = by.map_or_else(|| later(self.now, self.drain), |by| by.0);
                self.assign(candidate, DutyWord::Rest, Some(by), decided);
            }
            (false, _) => self.assign(candidate, DutyWord::Serve, None, decided),
        }
    }

    fn leave(
        &self,
        candidate: &Candidate,
        before: &AssignedMember,
        stays: Option<&str>,
        waits: Option<&str>,
        decided: &mut Membership,
    ) {
        let name = &candidate.name;
        let started = before.by.clone().filter(|_| before.duty == DutyWord::Leave);
        let since = candidate.going_since.unwrap_or(self.now);
        let full = later(since, self.drain);
        // From when it is asked to leave: who noticed late does not cut connections for that.
        let by = started.map_or_else(|| later(self.now.max(since), self.drain), |by| by.0);
        // What is being deleted may not even take the wish. That is no reason to wait for ever: its time counts all the same.
        let by = self.deleted.map_or(by, |deleted| by.min(later(deleted.max(since), self.drain)));
        if self.is_removed(before) {
            decided.released.insert(name.clone());
            if candidate.is_meant() {
                self.assign(candidate, DutyWord::Leave, Some(by), decided);
            } else {
                decided.former.insert(name.clone());
            }
            return;
        }
        let is_over = self.now >= later(by, GRACE);
        // Who is not held any more is on its way, and serves until it is gone if nobody else answers.
        let is_let_go = !candidate.is_held || self.now >= full;
        let serves_on = is_let_go
            && before.duty == DutyWord::Serve
            && !candidate.is_disabled
            && !self.another_answers(name);
        if serves_on || stays == Some(name) {
            if stays.is_none_or(|stays| stays == name) {
                decided.last = Some(name.clone());
            }
            if self.now >= full {
                decided.released.insert(name.clone());
            } else {
                decided.look_again(full);
            }
            self.assign(candidate, DutyWord::Serve, None, decided);
            return;
        }
        // Two control planes that wait would have Cluster API call the cluster unavailable. A second one is let go at once; its
        // provider has as much time as for any other, since it is not removed sooner by being let go.
        let is_second = candidate.is_control_plane
            && candidate.going_since.is_some()
            && waits.is_some_and(|first| first != name);
        if is_second {
            decided.released.insert(name.clone());
        } else if is_over {
            decided.released.insert(name.clone());
            decided.overdue.insert(name.clone());
        } else {
            decided.look_again(later(by, GRACE));
        }
        self.assign(candidate, DutyWord::Leave, Some(by), decided);
    }

    /// Who is to leave, and is held while nobody else answers: Cluster API itself works through the load balancer, and without an
    /// answer from it no Machine would ever go. One is enough for that: one that answers, then one that still serves, then the first.
    fn who_stays(&self) -> Option<&Candidate> {
        let leaving = self.candidates.iter().filter(|one| one.is_held && !one.is_disabled);
        let leaving = leaving.filter_map(|one| {
            let before = self.before.iter().find(|member| member.name == one.name)?;
            let leaves = one.going_since.is_some() || !one.is_meant();
            let is_over = one.going_since.is_some_and(|since| self.now >= later(since, self.drain));
            if !leaves || is_over || self.is_removed(before) || self.another_answers(&one.name) {
                return None;
            }
            let answers = self.answers(&one.name);
            Some(((!answers, before.duty != DutyWord::Serve, one.going_since, &one.name), one))
        });
        leaving.min_by_key(|(order, _)| *order).map(|(_, one)| one)
    }

    /// The control plane that may take its time, of those who have not left yet: the first that was asked to leave.
    fn who_waits(&self) -> Option<&str> {
        let waiting = self.candidates.iter().filter(|one| one.is_control_plane && one.is_held);
        let waiting = waiting.filter_map(|candidate| {
            let before = self.before.iter().find(|member| member.name == candidate.name)?;
            let asked = before.by.as_ref().filter(|_| before.duty == DutyWord::Leave).map(|by| by.0);
            let order = (asked.is_none(), asked, candidate.going_since?, candidate.name.as_str());
            (!self.is_removed(before)).then_some(order)
        });
        waiting.min().map(|(_, _, _, name)| name)
    }

    /// Whether somebody else gets connections, and is to go on so.
    fn another_answers(&self, name: &str) -> bool {
        self.candidates.iter().any(|other| {
            other.name != name
                && other.is_meant()
                && !other.is_disabled
                && other.going_since.is_none()
                && self.answers(&other.name)
        })
    }

    /// Whether a member gets connections. While nobody does by this provider, clients are where somebody does.
    fn answers(&self, name: &str) -> bool {
        let told = if self.told.iter().any(is_active) { self.told } else { self.elsewhere };
        told.iter().any(|told| told.name == name && is_active(told))
    }

    /// Whether a member was asked to leave, and the provider says that it has.
    fn is_removed(&self, before: &AssignedMember) -> bool {
        self.is_told_of_this
            && before.duty == DutyWord::Leave
            && self.told(&before.name).is_some_and(|told| told.status == "removed")
    }

    fn told(&self, name: &str) -> Option<&MemberStatus> {
        self.told.iter().find(|told| told.name == name)
    }

    fn assign(&self, candidate: &Candidate, duty: DutyWord, by: Option<Timestamp>, decided: &mut Membership) {
        let name = candidate.name.clone();
        // Who has lost its address while it leaves is still the one that the provider knows.
        let before = self.before.iter().find(|member| member.name == name);
        let had = before.map(|before| before.addresses.as_slice()).unwrap_or_default();
        let addresses = if candidate.addresses.is_empty() { had } else { &candidate.addresses };
        let addresses = in_order_of_before(addresses, had);
        decided.targets.push(self.seen(candidate, duty));
        decided.members.push(AssignedMember {
            name,
            addresses,
            provider_id: candidate
                .provider_id
                .clone()
                .or_else(|| before.and_then(|before| before.provider_id.clone())),
            duty,
            by: by.map(Time),
        });
    }

    /// Where a member is: what its provider says, as far as that can be about what it was told.
    fn seen(&self, candidate: &Candidate, duty: DutyWord) -> Target {
        let name = candidate.name.as_str();
        let told = self.told(name).cloned().unwrap_or_default();
        let before = self.before.iter().find(|member| member.name == name);
        // A provider that is paused does what it was told before that.
        let duty = before.filter(|_| self.is_paused).map_or(duty, |before| before.duty);
        // Who was let go has left, also when the provider has not caught up with something else.
        let is_let_go = candidate.going_since.is_some() && !candidate.is_held;
        let is_current =
            (self.is_told_of_this || is_let_go) && before.is_some_and(|before| before.duty == duty);
        let status = match (duty, told.status.as_str()) {
            (DutyWord::Serve, "" | "removed" | "disabled" | "draining" | "disabling") => "adding",
            (DutyWord::Rest, "disabled") if is_current => "disabled",
            (DutyWord::Rest, _) => "disabling",
            (DutyWord::Leave, "removed") if is_current => "removed",
            (DutyWord::Leave, _) => "draining",
            (DutyWord::Serve, other) => other,
        };
        Target { name: name.to_owned(), status: status.to_owned(), ..told }
    }
}

impl Membership {
    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }

    /// Who gets connections.
    pub(super) fn active(&self) -> Vec<String> {
        let active = self.targets.iter().filter(|target| is_active(target));
        active.map(|target| target.name.clone()).collect()
    }

    /// The same, as clients find it: who is on its way into one provider gets connections as long as another one sends them.
    pub(super) fn with(&self, elsewhere: &[MemberStatus]) -> Self {
        let mut all = self.clone();
        let is_on_its_way = |target: &&mut Target| {
            !matches!(target.status.as_str(), "active" | "disabling" | "disabled" | "draining" | "removed")
        };
        for target in all.targets.iter_mut().filter(is_on_its_way) {
            if let Some(told) = elsewhere.iter().find(|told| told.name == target.name && is_active(told)) {
                target.clone_from(told);
            }
        }
        all
    }
}

/// The addresses of a member, those first that it had, in the order in which it had them: a provider may go by the first, and who is told
/// of in another order is no other one for that.
pub(super) fn in_order_of_before(addresses: &[IpAddr], had: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses = addresses.to_vec();
    addresses.sort_by_key(|address| had.iter().position(|had| had == address).unwrap_or(had.len()));
    addresses
}

pub(super) fn is_active(told: &MemberStatus) -> bool {
    told.status == "active"
}

fn target(name: &str, state: MemberState, message: Option<String>) -> Target {
    Target { name: name.to_owned(), status: state.to_string(), connections: None, message }
}

pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
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
            elsewhere: &[],
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
                elsewhere: &[],
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
            let active =
                |names: &[&str]| told(&names.iter().map(|name| (*name, "active")).collect::<Vec<_>>());
            let situation = Situation {
                candidates: &[going.clone(), machine("b")],
                before: &first.members,
                told: &active(&here),
                elsewhere: &active(&there),
                deleted: None,
                is_told_of_this: true,
                drain: DRAIN,
                is_paused: false,
                everything_goes: false,
                now: second(11),
            };
            let decided = situation.decide();
            assert_eq!(decided.last.as_deref(), last, "{here:?} {there:?}");
            let all = decided.with(&active(&there));
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
                elsewhere: &[],
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
            elsewhere: &[],
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
            elsewhere: &[],
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
                    elsewhere: &[],
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
}

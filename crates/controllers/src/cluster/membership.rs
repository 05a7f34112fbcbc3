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
    /// How it is by what else makes the load balancer.
    pub(super) elsewhere: &'a Elsewhere,
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

/// Members by what else makes a load balancer, while another provider is named.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Elsewhere {
    /// Who gets connections there.
    pub(super) active: Vec<MemberStatus>,
    /// Who has not left there, as it was asked and as it is.
    pub(super) there: Vec<(AssignedMember, MemberStatus)>,
}

impl Elsewhere {
    fn is_there(&self, name: &str) -> Option<&(AssignedMember, MemberStatus)> {
        self.there.iter().find(|(member, _)| member.name == name)
    }
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
                    decided.targets.push(removed(name));
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

    /// The control plane that may take its time, of those who have not left yet: the first that was asked to leave, by whichever
    /// provider.
    fn who_waits(&self) -> Option<&str> {
        let waiting = self.candidates.iter().filter(|one| one.is_control_plane && one.is_held);
        let waiting = waiting.filter_map(|candidate| {
            let here = self.before.iter().filter(|member| member.name == candidate.name);
            let here = here.filter(|member| !self.is_removed(member));
            let there = self.elsewhere.is_there(&candidate.name).map(|(member, _)| member);
            let members: Vec<&AssignedMember> = here.chain(there).collect();
            let leaving = members.iter().filter(|member| member.duty == DutyWord::Leave);
            let asked = leaving.filter_map(|member| member.by.as_ref()).map(|by| by.0).min();
            let order = (asked.is_none(), asked, candidate.going_since?, candidate.name.as_str());
            (!members.is_empty()).then_some(order)
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
        let told = if self.told.iter().any(is_active) { self.told } else { &self.elsewhere.active };
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

    /// The same, as clients find it: who is on its way into one provider gets connections as long as another one sends them, and who has
    /// left one has not left while another one has it.
    pub(super) fn with(&self, elsewhere: &Elsewhere) -> Self {
        let mut all = self.clone();
        let (stay, former) = all.former.into_iter().partition(|name| elsewhere.is_there(name).is_some());
        let stay: BTreeSet<String> = stay;
        all.former = former;
        all.targets.extend(stay.iter().map(|name| removed(name)));
        all.targets.sort_by(|one, other| one.name.cmp(&other.name));
        for target in &mut all.targets {
            match target.status.as_str() {
                "active" | "disabling" | "disabled" | "draining" => {}
                "removed" => {
                    if let Some((_, told)) = elsewhere.is_there(&target.name) {
                        let name = target.name.clone();
                        *target = Target { name, status: MemberState::Draining.to_string(), ..told.clone() };
                    }
                }
                _ => {
                    if let Some(told) = elsewhere.active.iter().find(|told| told.name == target.name) {
                        target.clone_from(told);
                    }
                }
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

fn removed(name: &str) -> Target {
    target(name, MemberState::Removed, None)
}

pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;

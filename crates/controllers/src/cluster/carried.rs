//! What machines with `HAProxy` say of a load balancer, put together: functions of what was seen.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_core::AddressSet;
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, DutyWord, InfrastructureStatus, Instance, InstanceMember, MemberStatus,
    set_condition,
};

use super::admitted::{admitted, listed};

/// The reason for which `Ready` is `False` while the address in the status is not one that was given for what is asked for. Machines go
/// by it.
pub(super) const WAITING_FOR_ADDRESS: &str = "WaitingForAddress";

/// What is known when they are put together.
#[derive(Clone, Debug)]
pub(super) struct Carried<'a> {
    pub(super) generation: Option<i64>,
    pub(super) assignment: &'a Assignment,
    /// The pool that carries it.
    pub(super) pool: &'a str,
    /// The machines of that pool that are there.
    pub(super) live: &'a [String],
    /// Those of another pool that had it before, and go on with it until then.
    pub(super) elsewhere: &'a [String],
    /// The address that was given to it; machines have their own otherwise.
    pub(super) address: Address<'a>,
    pub(super) status: &'a InfrastructureStatus,
    pub(super) now: Timestamp,
}

/// Where it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address<'a> {
    /// There: machines know of it by this.
    Given(String),
    /// There as soon as a machine carries it, which may be refused.
    Asked(String),
    /// Wherever its machines are.
    OfMachines,
    /// Nowhere yet, for this reason.
    Awaited(&'a str),
}

impl Carried<'_> {
    pub(super) fn status(&self) -> InfrastructureStatus {
        let current = self.current();
        let is_current = !self.live.is_empty() && current.len() == self.live.len();
        let mut status = self.status.clone();
        // Whoever waits for members to leave reads by this whether it is about what was asked for last.
        if is_current || self.live.is_empty() {
            status.observed_generation = self.generation;
        }
        status.members = self.assignment.members.iter().map(|member| self.member(member, &current)).collect();
        status.address = self.address(&current);
        let works: Vec<&&Instance> = current.iter().filter(|instance| instance.problem.is_none()).collect();
        status.initialization.provisioned |= !works.is_empty() && !status.address.is_empty();
        let works = works.len();
        let asked = admitted(self.assignment.allowed_source_ranges.as_deref());
        let before = admitted(self.status.allowed_source_ranges.as_deref());
        let unheard = self.unheard();
        let admitted = admitted_by(&current, asked.as_ref()).filter(|_| is_current).and_then(|by_live| {
            if unheard.is_empty() { Some(by_live) } else { Some(by_live.union(&before?)) }
        });
        if let Some(admitted) = &admitted {
            status.allowed_source_ranges = if Some(admitted) == asked.as_ref() {
                self.assignment.allowed_source_ranges.clone()
            } else {
                listed(admitted)
            };
        }
        let is_enforced = asked.zip(admitted).is_some_and(|(asked, admitted)| admitted.is_subset(&asked));
        self.conditions(&mut status, is_current, works, is_enforced, &unheard);
        status
    }

    /// Machines that say nothing, and may have ranges still that are not asked for any more: traffic goes on through one whose agent
    /// is away.
    pub(super) fn unheard(&self) -> Vec<&str> {
        let asked = admitted(self.assignment.allowed_source_ranges.as_deref());
        let before = admitted(self.status.allowed_source_ranges.as_deref());
        if asked.zip(before).is_some_and(|(asked, before)| before.is_subset(&asked)) {
            return Vec::new();
        }
        let silent = self.status.instances.iter().filter(|instance| {
            !self.live.contains(&instance.name) && instance.observed_generation != self.generation
        });
        silent.map(|instance| instance.name.as_str()).collect()
    }

    /// Machines that are there and have carried out what was asked for last.
    fn current(&self) -> Vec<&Instance> {
        let instances = self.status.instances.iter();
        instances
            .filter(|instance| {
                self.live.contains(&instance.name) && instance.observed_generation == self.generation
            })
            .collect()
    }

    fn member(&self, member: &AssignedMember, current: &[&Instance]) -> MemberStatus {
        // Machines of the pool before send to whom they list, whatever they know of what was asked for since.
        let lists = |instance: &&Instance| {
            self.elsewhere.contains(&instance.name)
                && instance.members.iter().any(|seen| seen.name == member.name)
        };
        let before = self.status.instances.iter().filter(lists).map(Some);
        let said: Vec<Option<&Instance>> = self
            .live
            .iter()
            .map(|name| {
                // Whether somebody serves is true whatever else was asked for since; who has left was asked to.
                let is_it = |instance: &&Instance| instance.name == *name;
                match member.duty {
                    DutyWord::Serve => self.status.instances.iter().find(is_it),
                    DutyWord::Rest | DutyWord::Leave => current.iter().copied().find(is_it),
                }
            })
            .chain(before)
            .collect();
        let seen: Vec<Option<&InstanceMember>> = said
            .iter()
            .map(|instance| (*instance)?.members.iter().find(|seen| seen.name == member.name))
            .collect();
        // Who leaves has left when every machine that is there says so.
        let counts = |instance: Option<&Instance>| {
            member.duty != DutyWord::Serve || instance.is_some_and(|instance| self.counts(instance))
        };
        let counted: Vec<Option<&InstanceMember>> = said
            .iter()
            .zip(&seen)
            .filter(|(instance, _)| counts(**instance))
            .map(|(_, seen)| *seen)
            .collect();
        let all_say = |status: &str| {
            !counted.is_empty() && counted.iter().all(|seen| seen.is_some_and(|seen| seen.status == status))
        };
        let is_over = member.by.as_ref().is_some_and(|by| self.now >= by.0);
        // Machines that are away may still send to it: its time is what counts then.
        let is_left = |status: &str| all_say(status) || (self.live.is_empty() && is_over);
        let status = match member.duty {
            DutyWord::Serve if all_say("active") => "active",
            DutyWord::Serve => "adding",
            DutyWord::Rest if is_left("disabled") => "disabled",
            DutyWord::Rest => "disabling",
            DutyWord::Leave if is_left("removed") => "removed",
            DutyWord::Leave => "draining",
        };
        let counts: Vec<u64> = seen.iter().flatten().filter_map(|seen| seen.connections).collect();
        let ended: u64 = seen.iter().flatten().map(|seen| seen.ended).sum();
        MemberStatus {
            name: member.name.clone(),
            status: status.to_owned(),
            connections: (!counts.is_empty()).then(|| counts.iter().sum()),
            message: self.message(status, &seen, ended),
        }
    }

    /// Whether clients need a machine to send to a member before it can be called active.
    fn counts(&self, instance: &Instance) -> bool {
        if self.sends(instance) {
            return true;
        }
        // One that cannot carry it, or has not begun to, sends nobody to anybody. Of one on which no check passes it is not known
        // whether that is the members' fault: it is not, if others reach some. Clients come to it all the same where it has the
        // address, and none of those others.
        let has_address = |instance: &Instance| instance.holds_address == Some(true);
        instance.problem.is_none()
            && !self.senders().any(|other| has_address(other) || !has_address(instance))
    }

    /// Whether a machine sends to any member that is to serve.
    fn sends(&self, instance: &Instance) -> bool {
        let members = self.assignment.members.iter().filter(|member| member.duty == DutyWord::Serve);
        let mut names = members.map(|member| &member.name);
        names.any(|name| instance.members.iter().any(|seen| seen.name == *name && seen.status == "active"))
    }

    /// Machines that are there and send to somebody.
    fn senders(&self) -> impl Iterator<Item = &Instance> {
        let live = self.status.instances.iter().filter(|instance| self.live.contains(&instance.name));
        live.filter(|instance| self.sends(instance))
    }

    /// Machines on which no check passes, while others reach members, and what they say of that.
    fn cut_off(&self) -> Vec<String> {
        let serves = |name: &String| {
            self.assignment
                .members
                .iter()
                .any(|member| member.duty == DutyWord::Serve && member.name == *name)
        };
        let live = self.status.instances.iter().filter(|instance| self.live.contains(&instance.name));
        let silent = live.filter(|instance| instance.problem.is_none() && !self.sends(instance));
        let silent = silent.filter(|_| self.senders().next().is_some());
        silent
            .map(|instance| {
                let seen = instance.members.iter().filter(|seen| serves(&seen.name));
                let said = seen.filter_map(|seen| Some(format!("{}: {}", seen.name, seen.message.as_ref()?)));
                let said: Vec<String> = said.collect();
                let words = if said.is_empty() { "none has passed yet".to_owned() } else { said.join(", ") };
                format!("{}: no member passes its check there ({words})", instance.name)
            })
            .collect()
    }

    fn message(&self, status: &str, seen: &[Option<&InstanceMember>], ended: u64) -> Option<String> {
        if ended > 0 && status != "active" {
            return Some(format!("{ended} connections were ended when their time was over."));
        }
        if status != "adding" {
            return None;
        }
        let said: BTreeMap<&str, &str> = self
            .live
            .iter()
            .zip(seen)
            .filter_map(|(machine, seen)| Some((machine.as_str(), seen.as_ref()?.message.as_deref()?)))
            .collect();
        let words: Vec<String> = said.iter().map(|(machine, words)| format!("{machine}: {words}")).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    fn address(&self, current: &[&Instance]) -> String {
        match &self.address {
            Address::Given(address) => address.clone(),
            // One that nobody has refused yet takes nothing from anybody where there was none.
            Address::Asked(address)
                if current.iter().any(|instance| instance.problem.is_none())
                    || (current.is_empty() && self.status.address.is_empty()) =>
            {
                address.clone()
            }
            // What is not known for a moment is no reason to take away what clients use.
            Address::Asked(_) | Address::Awaited(_) => self.status.address.clone(),
            Address::OfMachines => {
                let mut addresses: Vec<(&str, &String)> = current
                    .iter()
                    .filter(|instance| instance.problem.is_none())
                    .flat_map(|instance| {
                        instance.addresses.iter().map(|address| (instance.name.as_str(), address))
                    })
                    .collect();
                addresses.sort_by_key(|(machine, _)| *machine);
                // The one that clients have stays as long as a machine has it. What is not known for a moment is no reason to
                // take it away.
                let stays = addresses.iter().any(|(_, address)| **address == self.status.address);
                match addresses.first() {
                    Some((_, first)) if !stays => (*first).clone(),
                    _ => self.status.address.clone(),
                }
            }
        }
    }

    fn conditions(
        &self,
        status: &mut InfrastructureStatus,
        is_current: bool,
        works: usize,
        is_enforced: bool,
        unheard: &[&str],
    ) {
        let exists = status.initialization.provisioned && !status.address.is_empty();
        let active = status.members.iter().filter(|member| member.status == "active").count();
        let cut_off = self.cut_off();
        let mut say = |type_: &str, is: bool, reason: &str, message: &str| {
            let state = if is { "True" } else { "False" };
            set_condition(
                &mut status.conditions,
                type_,
                state,
                reason,
                message,
                self.generation,
                &Time(self.now),
            );
        };
        // One that cannot do anything says so of what it was asked for before.
        let live = self.status.instances.iter().filter(|instance| self.live.contains(&instance.name));
        let problems: Vec<String> = live
            .filter_map(|instance| Some(format!("{}: {}", instance.name, instance.problem.as_ref()?)))
            .collect();
        let (is_ready, reason, message) = if let Address::Awaited(why) = self.address {
            (false, WAITING_FOR_ADDRESS, why.to_owned())
        } else if self.live.is_empty() {
            let message = format!(
                "No machine of the pool `{}` is there: start an agent on one, name another in spec.pool, or see why those that were do not report. Machines of another pool that had it go on with it until then.",
                self.pool
            );
            (false, "NoInstance", message)
        } else if works == 0 && !problems.is_empty() {
            (false, "Problem", problems.join("; "))
        } else if works == 0 {
            (false, "Starting", "No machine has carried it out yet.".to_owned())
        } else if problems.is_empty() && cut_off.is_empty() {
            (true, "Carried", format!("{works} of {} machines carry it.", self.live.len()))
        } else {
            (true, "CarriedInPart", [problems.as_slice(), cut_off.as_slice()].concat().join("; "))
        };
        say("Ready", is_ready, reason, &message);
        say("Exists", exists, if exists { "Made" } else { "NotMade" }, "");
        let up_to_date = is_current && problems.is_empty();
        say("ConfigUpToDate", up_to_date, if up_to_date { "UpToDate" } else { "Pending" }, "");
        let reachable = is_ready && active > 0;
        say("Reachable", reachable, if reachable { "MembersActive" } else { "NoActiveMember" }, "");
        if self.assignment.allowed_source_ranges.is_some() {
            let reason = if is_enforced { "Enforced" } else { "Pending" };
            let message = if is_enforced {
                "By: rules of HAProxy.".to_owned()
            } else if unheard.is_empty() {
                "Not all machines have the ranges yet.".to_owned()
            } else {
                format!(
                    "{}: nothing is heard of it, and whoever reaches it may get in as before. Have its agent run again, or turn the machine off and delete its Lease.",
                    unheard.join(", ")
                )
            };
            say("SourceRangesEnforced", is_enforced, reason, &message);
        } else {
            status.conditions.retain(|condition| condition.type_ != "SourceRangesEnforced");
        }
        set_condition(
            &mut status.conditions,
            "Paused",
            "False",
            "NotPaused",
            "",
            self.generation,
            &Time(self.now),
        );
    }
}

/// Who gets in by any of these machines, where that is known. What is wrong with one does not keep ranges from becoming narrower.
fn admitted_by(machines: &[&Instance], asked: Option<&AddressSet>) -> Option<AddressSet> {
    machines.iter().try_fold(AddressSet::nobody(), |all, machine| {
        let one = match &machine.allowed_source_ranges {
            Some(said) => admitted(Some(said))?,
            None => asked?.clone(),
        };
        Some(all.union(&one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_kube_api::cluster::condition;
    use serde_json::{Value, json};

    fn put_together(members: Value, instances: Value, live: &[&str], now: i64) -> InfrastructureStatus {
        put_together_at(Address::OfMachines, members, instances, live, now)
    }

    #[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
    fn put_together_at(
        address: Address<'_>,
        members: Value,
        instances: Value,
        live: &[&str],
        now: i64,
    ) -> InfrastructureStatus {
        let assignment: Assignment = serde_json::from_value(
            json!({"loadBalancer": "lb", "members": members, "allowedSourceRanges": ["10.0.0.0/8"]}),
        )
        .unwrap();
        let status: InfrastructureStatus =
            serde_json::from_value(json!({"instances": instances, "address": "192.0.2.2"})).unwrap();
        let live: Vec<String> = live.iter().map(|name| (*name).to_owned()).collect();
        Carried {
            generation: Some(3),
            assignment: &assignment,
            pool: "default",
            live: &live,
            elsewhere: &[],
            address,
            status: &status,
            now: Timestamp::from_second(now).unwrap(),
        }
        .status()
    }

    fn instance(name: &str, generation: i64, status: &str, connections: Option<u64>) -> Value {
        json!({"name": name, "observedGeneration": generation, "addresses": [format!("192.0.2.{}", name.len())],
            "members": [{"name": "m", "status": status, "connections": connections}]})
    }

    #[test]
    fn a_member_has_left_when_every_machine_that_is_there_says_so() {
        let leaves = json!([{"name": "m", "duty": "Leave", "by": "1970-01-01T00:01:40Z"}]);
        let one = |status: &str| instance("a", 3, status, Some(2));
        for (instances, live, now, expected) in [
            (json!([one("removed"), instance("bb", 3, "removed", None)]), &["a", "bb"][..], 0, "removed"),
            (json!([one("removed"), instance("bb", 3, "draining", Some(5))]), &["a", "bb"], 0, "draining"),
            (json!([one("removed"), instance("bb", 2, "removed", None)]), &["a", "bb"], 0, "draining"),
            (json!([one("removed")]), &["a", "bb"], 0, "draining"),
            (json!([one("removed"), instance("bb", 3, "draining", Some(5))]), &["a"], 0, "removed"),
            (json!([one("draining")]), &[], 99, "draining"),
            (json!([one("draining")]), &[], 100, "removed"),
        ] {
            let status = put_together(leaves.clone(), instances.clone(), live, now);
            assert_eq!(status.members[0].status, expected, "{instances} {live:?} {now}");
        }
        let status = put_together(
            leaves,
            json!([one("draining"), instance("bb", 3, "draining", Some(5))]),
            &["a", "bb"],
            0,
        );
        assert_eq!(status.members[0].connections, Some(7));
    }

    #[test]
    fn a_member_serves_when_every_machine_sends_to_it() {
        let serves = json!([{"name": "m", "duty": "Serve"}]);
        let both = json!([instance("a", 3, "active", None), instance("bb", 3, "active", None)]);
        let status = put_together(serves.clone(), both, &["a", "bb"], 0);
        assert_eq!((status.members[0].status.as_str(), status.observed_generation), ("active", Some(3)));
        assert_eq!(condition(&status.conditions, "Reachable").unwrap().status, "True");
        assert_eq!(condition(&status.conditions, "SourceRangesEnforced").unwrap().status, "True");
        assert_eq!(status.allowed_source_ranges.as_deref(), Some(&["10.0.0.0/8".to_owned()][..]));
        let late = json!([instance("a", 3, "active", None), instance("bb", 2, "active", None)]);
        let status = put_together(serves.clone(), late, &["a", "bb"], 0);
        assert_eq!((status.members[0].status.as_str(), status.observed_generation), ("active", None));
        let late = json!([instance("a", 3, "active", None), instance("bb", 2, "active", None)]);
        let status = put_together(serves.clone(), late, &["a", "bb"], 0);
        assert_eq!(condition(&status.conditions, "SourceRangesEnforced").unwrap().status, "False");
        let broken = json!([
            instance("a", 3, "active", None),
            {"name": "bb", "observedGeneration": 3, "problem": "no port", "members": []},
        ]);
        let status = put_together(serves.clone(), broken, &["a", "bb", "ccc"], 0);
        assert_eq!(status.members[0].status, "active", "by who carries it");
        let nobody = put_together(serves, json!([]), &[], 0);
        assert_eq!(condition(&nobody.conditions, "Ready").unwrap().reason, "NoInstance");
    }

    /// Machines of the pool before go on until one of the new pool sends to members: whom they send to is served, and has not left.
    #[test]
    fn machines_of_the_pool_before_count_as_long_as_they_have_it() {
        let says = |name: &str, generation: i64, status: Option<&str>| {
            let members: Vec<Value> =
                status.iter().map(|status| json!({"name": "m", "status": status})).collect();
            json!({"name": name, "observedGeneration": generation, "members": members})
        };
        let old = |status: Option<&str>| says("old", 2, status);
        let new = |status: Option<&str>| says("new", 3, status);
        let (here, nobody) = (&["new"][..], &[][..]);
        for (duty, instances, live, expected) in [
            ("Serve", json!([old(Some("active"))]), nobody, "active"),
            ("Serve", json!([old(None)]), nobody, "adding"),
            ("Serve", json!([old(Some("active")), new(Some("active"))]), here, "active"),
            ("Leave", json!([old(Some("draining"))]), nobody, "draining"),
            ("Leave", json!([old(Some("removed"))]), nobody, "removed"),
            ("Leave", json!([old(Some("draining")), new(Some("removed"))]), here, "draining"),
            ("Leave", json!([old(Some("removed")), new(Some("removed"))]), here, "removed"),
            ("Leave", json!([old(None), new(Some("removed"))]), here, "removed"),
        ] {
            let assignment: Assignment = serde_json::from_value(
                json!({"members": [{"name": "m", "duty": duty, "by": "1970-01-01T00:01:40Z"}]}),
            )
            .unwrap();
            let status: InfrastructureStatus =
                serde_json::from_value(json!({"instances": instances})).unwrap();
            let live: Vec<String> = live.iter().map(|name| (*name).to_owned()).collect();
            let carried = Carried {
                generation: Some(3),
                assignment: &assignment,
                pool: "new",
                live: &live,
                elsewhere: &["old".to_owned()],
                address: Address::OfMachines,
                status: &status,
                now: Timestamp::UNIX_EPOCH,
            };
            assert_eq!(carried.status().members[0].status, expected, "{duty} {instances}");
        }
    }

    /// A machine that says this of two members, and whether it has the address.
    fn says(name: &str, statuses: [&str; 2], holds: Option<bool>) -> Value {
        let member = |(name, status): (&str, &str)| {
            let message = (status == "adding").then_some("no route");
            json!({"name": name, "status": status, "message": message})
        };
        let members: Vec<Value> = ["m", "n"].into_iter().zip(statuses).map(member).collect();
        json!({"name": name, "observedGeneration": 3, "holdsAddress": holds, "members": members})
    }

    #[test]
    fn a_machine_that_reaches_nobody_is_waited_for_only_where_clients_come_to_it() {
        let serve = json!([{"name": "m", "duty": "Serve"}, {"name": "n", "duty": "Serve"}]);
        let (all, none, one) = (["active"; 2], ["adding"; 2], ["active", "adding"]);
        let has = |holds: bool| Some(holds);
        for (instances, expected) in [
            // Everybody has just started.
            ([says("a", none, None), says("b", none, None)], ["adding"; 2]),
            ([says("a", all, None), says("b", none, None)], ["active"; 2]),
            ([says("a", one, None), says("b", none, None)], ["active", "adding"]),
            // One that reaches somebody counts.
            ([says("a", all, None), says("b", one, None)], ["active", "adding"]),
            // Clients come to who has the address.
            ([says("a", all, has(true)), says("b", none, has(false))], ["active"; 2]),
            ([says("a", all, has(false)), says("b", none, has(true))], ["adding"; 2]),
            ([says("a", all, has(false)), says("b", none, has(false))], ["active"; 2]),
            // With routes of equal cost both have it.
            ([says("a", all, has(true)), says("b", none, has(true))], ["active"; 2]),
        ] {
            let status = put_together(serve.clone(), json!(instances), &["a", "b"], 0);
            let found: Vec<&str> = status.members.iter().map(|member| member.status.as_str()).collect();
            assert_eq!(found, expected, "{instances:?}");
        }
        let sick = json!([says("a", all, None), says("b", none, None)]);
        let status = put_together(serve.clone(), sick.clone(), &["a", "b"], 0);
        let ready = condition(&status.conditions, "Ready").unwrap();
        let words = "b: no member passes its check there (m: no route, n: no route)";
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "CarriedInPart"));
        assert_eq!(ready.message, words);
        let gone = put_together(serve, sick, &["b"], 0);
        assert_eq!(gone.members[0].status, "adding", "who is away reaches nobody");
        assert_eq!(condition(&gone.conditions, "Ready").unwrap().reason, "Carried");
    }

    #[test]
    fn what_is_said_of_ranges_is_what_machines_have() {
        let serve = json!([{"name": "m", "duty": "Serve"}, {"name": "n", "duty": "Serve"}]);
        let has = |name: &str, ranges: Value, generation: i64| {
            let mut instance = says(name, ["active"; 2], None);
            instance["observedGeneration"] = json!(generation);
            instance["problem"] = json!("no port");
            instance["allowedSourceRanges"] = ranges;
            instance
        };
        let fine = || says("a", ["active"; 2], None);
        for (instances, in_force, enforced) in [
            // 10.0.0.0/8 is asked for.
            ([fine(), has("b", json!(null), 3)], json!(["10.0.0.0/8"]), "True"),
            ([fine(), has("b", json!(["10.1.0.0/16"]), 3)], json!(["10.0.0.0/8"]), "True"),
            ([has("a", json!(["10.1.0.0/16"]), 3), has("b", json!([]), 3)], json!(["10.1.0.0/16"]), "True"),
            ([fine(), has("b", json!(["0.0.0.0/0", "::/0"]), 3)], json!(null), "False"),
            ([fine(), has("b", json!(["192.0.2.0/24"]), 3)], json!(["10.0.0.0/8", "192.0.2.0/24"]), "False"),
            // It is not known yet.
            ([fine(), has("b", json!(null), 2)], json!(null), "False"),
        ] {
            let status = put_together(serve.clone(), json!(instances), &["a", "b"], 0);
            let said = condition(&status.conditions, "SourceRangesEnforced").unwrap();
            let found = (json!(status.allowed_source_ranges), said.status.as_str());
            assert_eq!(found, (in_force, enforced), "{instances:?}");
            assert_eq!(condition(&status.conditions, "ConfigUpToDate").unwrap().status, "False");
        }
    }

    #[test]
    fn who_is_not_heard_of_may_have_the_ranges_of_before() {
        let serve = json!([{"name": "m", "duty": "Serve"}]);
        let silent = |generation: u64| json!({"name": "b", "observedGeneration": generation, "members": []});
        let put = |in_force: Value, silent: Value| {
            let assignment: Assignment = serde_json::from_value(
                json!({"loadBalancer": "lb", "members": serve, "allowedSourceRanges": ["10.1.0.0/16"]}),
            )
            .unwrap();
            let instances = json!([says("a", ["active"; 2], None), silent]);
            let status = json!({"instances": instances, "allowedSourceRanges": in_force});
            let status: InfrastructureStatus = serde_json::from_value(status).unwrap();
            let live = ["a".to_owned()];
            let carried = Carried {
                generation: Some(3),
                assignment: &assignment,
                pool: "default",
                live: &live,
                elsewhere: &[],
                address: Address::OfMachines,
                status: &status,
                now: Timestamp::from_second(0).unwrap(),
            };
            let unheard = carried.unheard().join(" ");
            let status = carried.status();
            let said = condition(&status.conditions, "SourceRangesEnforced").unwrap().clone();
            (unheard, said.status, json!(status.allowed_source_ranges), said.message)
        };
        let (unheard, state, in_force, message) = put(json!(["10.0.0.0/8"]), silent(2));
        assert_eq!((unheard.as_str(), state.as_str(), in_force), ("b", "False", json!(["10.0.0.0/8"])));
        assert!(message.starts_with("b: nothing is heard of it"), "{message}");
        // It did so before, or it had nothing wider.
        for (before, said_by) in [(json!(["10.0.0.0/8"]), 3), (json!(["10.1.0.0/16"]), 2), (json!([]), 2)] {
            let (unheard, state, in_force, _) = put(before, silent(said_by));
            assert_eq!((unheard.as_str(), state.as_str(), in_force), ("", "True", json!(["10.1.0.0/16"])));
        }
    }

    #[test]
    fn every_machine_is_waited_for_by_who_leaves() {
        let leave = json!([{"name": "m", "duty": "Leave"}, {"name": "n", "duty": "Serve"}]);
        for (said, problem, expected) in [
            ("draining", None, "draining"),
            ("removed", None, "removed"),
            ("adding", None, "draining"),
            // What is wrong with a machine does not make untrue what it says of a member.
            ("draining", Some("no port"), "draining"),
            ("removed", Some("no port"), "removed"),
        ] {
            let mut sick = says("b", [said, "adding"], None);
            sick["problem"] = json!(problem);
            let instances = json!([says("a", ["removed", "active"], None), sick]);
            let status = put_together(leave.clone(), instances, &["a", "b"], 0);
            let found = [&status.members[0].status, &status.members[1].status];
            assert_eq!(found, [expected, "active"], "{said} {problem:?}");
        }
        let silent = json!({"name": "b", "observedGeneration": 3, "problem": "no port", "members": []});
        let status =
            put_together(leave, json!([says("a", ["removed", "active"], None), silent]), &["a", "b"], 0);
        assert_eq!(status.members[0].status, "draining", "it has not said so");
    }

    #[test]
    fn a_change_that_is_refused_takes_nobody_out() {
        let serve = json!([{"name": "m", "duty": "Serve"}, {"name": "n", "duty": "Serve"}]);
        let refusing = |name: &str, statuses| {
            let mut instance = says(name, statuses, None);
            instance["problem"] = json!("no address");
            instance
        };
        for (instances, expected) in [
            ([refusing("a", ["active"; 2]), refusing("b", ["active"; 2])], "active"),
            ([says("a", ["active"; 2], None), refusing("b", ["adding"; 2])], "active"),
            ([refusing("a", ["adding"; 2]), refusing("b", ["adding"; 2])], "adding"),
        ] {
            let status = put_together(serve.clone(), json!(instances), &["a", "b"], 0);
            assert_eq!(status.members[1].status, expected, "{instances:?}");
        }
    }

    #[test]
    fn the_address_is_one_that_a_machine_has_and_stays() {
        let serves = json!([{"name": "m", "duty": "Serve"}]);
        let both = json!([instance("a", 3, "active", None), instance("bb", 3, "active", None)]);
        assert_eq!(put_together(serves.clone(), both.clone(), &["a", "bb"], 0).address, "192.0.2.2");
        assert_eq!(put_together(serves.clone(), both, &["a"], 0).address, "192.0.2.1", "its machine is gone");
        assert_eq!(put_together(serves, json!([]), &[], 0).address, "192.0.2.2", "nothing is known");
    }
    #[test]
    fn an_address_that_is_asked_for_is_told_when_a_machine_carries_it() {
        let wrong = |name: &str, generation: i64| json!({"name": name, "observedGeneration": generation, "problem": "the same virtual router id"});
        let fine = |name: &str, generation: i64| instance(name, generation, "active", None);
        for (instances, expected) in [
            (json!([wrong("a", 3), wrong("bb", 3)]), "192.0.2.2"),
            (json!([fine("a", 2), fine("bb", 2)]), "192.0.2.2"),
            (json!([wrong("a", 3), fine("bb", 2)]), "192.0.2.2"),
            (json!([wrong("a", 3), fine("away", 3)]), "192.0.2.2"),
            (json!([]), "192.0.2.2"),
            (json!([wrong("a", 3), fine("bb", 3)]), "192.0.2.9"),
        ] {
            let asked = Address::Asked("192.0.2.9".to_owned());
            let status = put_together_at(asked, json!([]), instances.clone(), &["a", "bb"], 0);
            assert_eq!(status.address, expected, "{instances}");
        }
        for (current, expected) in [(vec![], "192.0.2.9"), (vec![wrong("a", 3)], "")] {
            let (assignment, status) = (Assignment::default(), InfrastructureStatus::default());
            let current: Vec<Instance> =
                current.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
            let carried = Carried {
                generation: Some(3),
                assignment: &assignment,
                pool: "default",
                live: &[],
                elsewhere: &[],
                address: Address::Asked("192.0.2.9".to_owned()),
                status: &status,
                now: Timestamp::UNIX_EPOCH,
            };
            let current: Vec<&Instance> = current.iter().collect();
            assert_eq!(carried.address(&current), expected, "for the first time");
        }
    }

    #[test]
    fn what_is_said_of_it_through_its_life() {
        let assignment: Assignment = serde_json::from_value(
            json!({"loadBalancer": "lb", "members": [{"name": "m", "duty": "Serve"}]}),
        )
        .unwrap();
        let fine = |generation: i64| instance("a", generation, "active", None);
        let refused = |generation: i64| {
            let mut refused = fine(generation);
            refused["problem"] = json!("no port");
            refused
        };
        let mut status = InfrastructureStatus::default();
        for (when, generation, instances, live, expected) in [
            (
                "nobody is there",
                1,
                json!([]),
                &[][..],
                ["NoInstance", "NotMade", "Pending", "NoActiveMember"],
            ),
            ("one has not begun", 1, json!([]), &["a"], ["Starting", "NotMade", "Pending", "NoActiveMember"]),
            (
                "it cannot",
                1,
                json!([refused(1)]),
                &["a"],
                ["Problem", "NotMade", "Pending", "NoActiveMember"],
            ),
            ("it is made", 1, json!([fine(1)]), &["a"], ["Carried", "Made", "UpToDate", "MembersActive"]),
            ("it is changed", 2, json!([fine(1)]), &["a"], ["Starting", "Made", "Pending", "NoActiveMember"]),
            ("that is done", 2, json!([fine(2)]), &["a"], ["Carried", "Made", "UpToDate", "MembersActive"]),
            (
                "that is refused",
                3,
                json!([refused(3)]),
                &["a"],
                ["Problem", "Made", "Pending", "NoActiveMember"],
            ),
            (
                "another one does it",
                3,
                json!([refused(3), instance("bb", 3, "active", None)]),
                &["a", "bb"],
                ["CarriedInPart", "Made", "Pending", "MembersActive"],
            ),
            ("all are gone", 3, json!([fine(3)]), &[], ["NoInstance", "Made", "Pending", "NoActiveMember"]),
        ] {
            status.instances = serde_json::from_value(instances).unwrap();
            let live: Vec<String> = live.iter().map(|name: &&str| (*name).to_owned()).collect();
            let carried = Carried {
                generation: Some(generation),
                assignment: &assignment,
                pool: "default",
                live: &live,
                elsewhere: &[],
                address: Address::OfMachines,
                status: &status,
                now: Timestamp::UNIX_EPOCH,
            };
            let now = carried.status();
            let types = ["Ready", "Exists", "ConfigUpToDate", "Reachable"];
            let found = types.map(|type_| condition(&now.conditions, type_).unwrap());
            assert_eq!(found.map(|found| found.reason.as_str()), expected, "{when}");
            let good = ["Carried", "CarriedInPart", "Made", "UpToDate", "MembersActive"];
            for found in found {
                assert_eq!(
                    found.status == "True",
                    good.contains(&found.reason.as_str()),
                    "{when}: {found:?}"
                );
                assert_eq!(found.observed_generation, Some(generation), "{when}");
            }
            status = now;
        }
    }

    #[test]
    fn a_machine_that_does_nothing_is_named_with_why() {
        let both = json!([{"name": "m", "duty": "Leave"}, {"name": "n", "duty": "Serve"}]);
        let mut stuck = says("b", ["removed", "adding"], None);
        stuck["problem"] = json!("HAProxy does not run");
        stuck["observedGeneration"] = json!(2);
        let instances = json!([says("a", ["removed", "active"], None), stuck]);
        let status = put_together(both.clone(), instances, &["a", "b"], 0);
        let ready = condition(&status.conditions, "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "CarriedInPart"));
        assert_eq!(ready.message, "b: HAProxy does not run");
        let found = [&status.members[0].status, &status.members[1].status];
        assert_eq!(found, ["draining", "active"], "it has not done what was asked for last");
        let alone = put_together(both, json!([stuck]), &["b"], 0);
        let ready = condition(&alone.conditions, "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Problem"));
        assert_eq!(ready.message, "b: HAProxy does not run");
    }
}

//! Where members are, by what AWS says of the targets they are.
//!
//! AWS says of a target that it is draining, and then nothing any more. It does not say since when, and it may send new
//! connections to a target for up to two minutes after that was taken out. So a member that is not to serve is held: from when
//! it was first known to be in no target group but for its old connections. That moment is in no database. Whoever starts
//! anew counts from when it sees the member so, which may hold it longer, and never shorter; what it is given until bounds both.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use portcullis_core::{Duty, LoadBalancer, Member, MemberReport, MemberState};
use smol_str::SmolStr;

use super::asked::TargetKind;
use super::settings::{MemberReports, Settings};
use super::snapshot::{Balancer, Holding, Pool, Shared};
use super::spec::instance_id;
use super::step::Step;
use super::subnets;
use crate::model::{Target, TargetState};

/// For how long a member is held after it was taken out, among what is said to the provider.
pub const HOLD: &str = "portcullis.dev/aws-hold-seconds";

/// For so long AWS may send new connections to a target that was taken out.
const USUAL_HOLD: Duration = Duration::from_secs(120);

/// For how long a member is held; what was said and could not be understood is told.
pub(super) fn hold(parameters: &BTreeMap<String, String>) -> (Duration, Option<String>) {
    let Some(said) = parameters.get(HOLD) else { return (USUAL_HOLD, None) };
    match said.trim().parse() {
        Ok(seconds) => (Duration::from_secs(seconds), None),
        Err(_) => (
            USUAL_HOLD,
            Some(format!(
                "spec.holdSeconds is `{said}`, which is no number of seconds: members are held for {} s",
                USUAL_HOLD.as_secs()
            )),
        ),
    }
}

/// As often at most AWS is asked of members of whom there has been nothing new for long.
const SELDOM: Duration = Duration::from_secs(60);

/// Whose members are followed, and how far they were.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) wanted: LoadBalancer,
    pub(super) kind: TargetKind,
    pub(super) hold: Duration,
    /// Since when members are known to be out, by their names.
    out: BTreeMap<String, SystemTime>,
    /// What was said of them last.
    said: Vec<MemberReport>,
    /// Since when that is so.
    unchanged: SystemTime,
    /// When AWS was last asked of them, if it was since they are wanted so.
    asked: Option<SystemTime>,
}

/// Where a member stands with AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was not looked at.
    Unknown,
    /// It is no target, and cannot be one, for this reason.
    Unfit(String),
    /// It is in target groups, and does not get its share of everything, for this reason.
    Unwell(String),
    /// It gets its share of everything.
    Well,
    /// It has what it had, and gets nothing new.
    Draining,
    /// No target group has it.
    Out,
}

impl Followed {
    /// Follows the members of a load balancer, as they are wanted now.
    pub(super) fn new(
        before: Option<Followed>,
        wanted: LoadBalancer,
        kind: TargetKind,
        hold: Duration,
        now: SystemTime,
    ) -> Self {
        let Some(before) = before else {
            let (out, said) = Default::default();
            return Followed { wanted, kind, hold, out, said, unchanged: now, asked: None };
        };
        // Whoever wants something else waits for it from now on.
        let is_news = before.wanted != wanted || before.kind != kind;
        let (unchanged, asked) = if is_news { (now, None) } else { (before.unchanged, before.asked) };
        Followed { wanted, kind, hold, out: before.out, said: before.said, unchanged, asked }
    }

    /// What was said of them last.
    pub(super) fn said(&self) -> &[MemberReport] {
        &self.said
    }

    /// This is said of them now.
    pub(super) fn say(&mut self, reports: &[MemberReport], now: SystemTime) {
        if self.said != reports {
            self.said = reports.to_vec();
            self.unchanged = now;
        }
    }

    /// AWS was asked of them.
    pub(super) fn asked(&mut self, now: SystemTime) {
        self.asked = Some(now);
    }

    /// Whether it is time to ask AWS of them. Somebody who asks every few seconds waits for members that do not come: one may
    /// never. The longer nothing changes, the less often AWS is asked. Who leaves is waited for by a machine, and for a bounded
    /// time; and where all is well, whoever asks has a reason to.
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        let is_any = |states: &[MemberState]| self.said.iter().any(|one| states.contains(&one.state));
        let waits =
            is_any(&[MemberState::Adding]) && !is_any(&[MemberState::Disabling, MemberState::Draining]);
        let Some(asked) = self.asked.filter(|_| waits) else { return true };
        let pause = now.duration_since(self.unchanged).unwrap_or_default() / 4;
        now.duration_since(asked).unwrap_or(SELDOM) >= pause.min(SELDOM)
    }

    /// Takes out who is not to serve any more, as far as that is known: whatever else cannot be done, they do not wait for it.
    /// Others ask somebody to leave only while somebody else serves. Where another kind of targets is asked for, the group of the
    /// old kind may serve for long: they leave that, too.
    pub(super) fn let_go(&self, holding: &Holding) -> Vec<Step> {
        let of = |serves: bool| -> BTreeSet<SmolStr> {
            let members = self.wanted.members().iter();
            let members = members.filter(|member| (member.duty() == Duty::Serve) == serves);
            members.flat_map(ids_of_any_kind).collect()
        };
        let (serving, leaving) = (of(true), of(false));
        let steps = holding.pools.values().filter_map(|pool| {
            let there = pool.members().unwrap_or_default();
            let leaves = |target: &&&Target| leaving.contains(&target.id) && !serving.contains(&target.id);
            let targets: Vec<Target> = there.iter().filter(leaves).map(|target| (*target).clone()).collect();
            (!targets.is_empty()).then(|| Step::Deregister { pool: pool.group.arn.clone(), targets })
        });
        steps.collect()
    }

    /// Some were taken out just now: their time counts from here, whoever had put them back.
    pub(super) fn deregistered(&mut self, targets: &[Target]) {
        let Followed { wanted, out, .. } = self;
        let is_among = |name: &str| {
            let member = wanted.members().iter().find(|member| member.name() == name);
            let ids = member.map(ids_of_any_kind).unwrap_or_default();
            targets.iter().any(|target| ids.contains(&target.id))
        };
        out.retain(|name, _| !is_among(name));
    }

    /// What is to be said of each of them now.
    pub(super) fn look(
        &mut self,
        holding: &Holding,
        balancer: Option<&Balancer>,
        known: (&Shared, &Settings),
        now: SystemTime,
    ) -> Vec<MemberReport> {
        let mut out = std::mem::take(&mut self.out);
        let mut reports = Vec::new();
        for member in self.wanted.members() {
            let before = out.remove(member.name());
            let standing = self.standing(member, before.is_some(), holding, balancer, known);
            let since = since(member.duty(), &standing, before, now);
            self.out.extend(since.map(|since| (member.name().to_owned(), since)));
            let before = self.said.iter().find(|said| said.name == member.name()).map(|said| said.state);
            let (state, told) = state(member.duty(), standing, since, self.hold, before, now);
            reports.push(MemberReport { name: member.name().to_owned(), state, connections: None, told });
        }
        reports
    }

    fn is_of_kind(&self, pool: &Pool) -> bool {
        pool.group.kind == self.kind.as_str()
    }

    /// Where a member stands; `was_out` is whether it was known to be out before.
    fn standing(
        &self,
        member: &Member,
        was_out: bool,
        holding: &Holding,
        balancer: Option<&Balancer>,
        (shared, settings): (&Shared, &Settings),
    ) -> Standing {
        let is_unknown = holding.pools.values().any(|pool| pool.targets.is_none());
        if member.duty() != Duty::Serve {
            if is_unknown {
                return Standing::Unknown;
            }
            let standing = leaving(&ids_of_any_kind(member), holding);
            // One that is no target of this kind may have been one of the other.
            let may_have_been = was_out || holding.pools.values().any(|pool| !self.is_of_kind(pool));
            return match ids(member, self.kind) {
                Err(why) if standing == Standing::Out && !may_have_been => Standing::Unfit(why),
                _ => standing,
            };
        }
        let ids = match ids(member, self.kind) {
            Ok(ids) => ids,
            Err(why) => return Standing::Unfit(why),
        };
        if is_unknown {
            return Standing::Unknown;
        }
        if let Some(why) = unfit(&ids, self.kind, shared, settings) {
            return Standing::Unfit(why);
        }
        let listeners = balancer.and_then(|found| found.listeners.as_ref());
        for listener in self.wanted.listeners() {
            let pool = listeners
                .and_then(|listeners| listeners.get(&listener.port())?.target_group.as_ref())
                .and_then(|arn| holding.pools.get(arn));
            let Some(pool) = pool else {
                return Standing::Unwell(format!("nothing listens on port {} yet", listener.port()));
            };
            let port = match self.kind {
                TargetKind::Instance => listener.target_port(),
                TargetKind::Ip => member.port(listener),
            };
            if let Some(why) = unwell(pool, &ids, port) {
                return Standing::Unwell(why);
            }
        }
        Standing::Well
    }
}

/// What targets a member can be, by their ids.
fn ids(member: &Member, kind: TargetKind) -> Result<Vec<SmolStr>, String> {
    match kind {
        TargetKind::Ip => {
            Ok(member.addresses().iter().map(|address| SmolStr::new(address.to_string())).collect())
        }
        TargetKind::Instance => match member.reference() {
            Some(reference) => {
                let id = instance_id(reference);
                let id =
                    id.ok_or_else(|| format!("its providerID, {reference}, is not that of an instance"))?;
                Ok(vec![SmolStr::new(id)])
            }
            None => Err("it has no providerID, by which its instance is known".to_owned()),
        },
    }
}

/// The same of both kinds: another kind may have been asked for before.
fn ids_of_any_kind(member: &Member) -> Vec<SmolStr> {
    let kinds = [TargetKind::Instance, TargetKind::Ip];
    kinds.into_iter().flat_map(|kind| ids(member, kind).unwrap_or_default()).collect()
}

/// Why AWS would not take any of these.
fn unfit(ids: &[SmolStr], kind: TargetKind, shared: &Shared, settings: &Settings) -> Option<String> {
    match kind {
        TargetKind::Instance => {
            let is_known = |id: &&SmolStr| shared.looked_for.contains(id.as_str());
            let mut known = ids.iter().filter(is_known);
            let id = known.find(|id| shared.machine(id, settings).is_none())?;
            Some(match shared.instances.get(id.as_str()) {
                Some(found) => format!("its instance {id} is in {}, and not in {}", found.vpc, settings.vpc),
                None => format!("its instance {id} does not run"),
            })
        }
        TargetKind::Ip => {
            let mut addresses = ids.iter().filter_map(|id| id.parse::<IpAddr>().ok());
            let none = shared.subnets.is_some() && !addresses.any(|one| subnets::can_be_target(shared, one));
            none.then(|| {
                format!(
                    "AWS sends to addresses of the VPC and to private ones, and to none of {}",
                    ids.join(", ")
                )
            })
        }
    }
}

/// Why a target group does not send to any of these on a port, if it does not.
fn unwell(pool: &Pool, ids: &[SmolStr], port: u16) -> Option<String> {
    let is_it = |target: &&Target| ids.contains(&target.id) && target.port == port;
    let found = pool.targets.iter().flatten().map(|(target, state)| (target, *state));
    let found =
        found.filter(|(target, _)| is_it(target)).max_by_key(|(_, state)| *state == TargetState::Healthy);
    match found {
        Some((_, TargetState::Healthy)) => None,
        Some((target, _)) => {
            Some(pool.reasons.get(target).cloned().unwrap_or_else(|| "AWS has not checked it yet".to_owned()))
        }
        None => Some("it is not registered yet".to_owned()),
    }
}

/// Whether anything is left of one that is not to serve, in any target group: also in one that is about to go.
fn leaving(ids: &[SmolStr], holding: &Holding) -> Standing {
    let targets = holding.pools.values().flat_map(|pool| pool.targets.iter().flatten());
    let states: Vec<TargetState> =
        targets.filter(|(target, _)| ids.contains(&target.id)).map(|(_, state)| *state).collect();
    if states.iter().any(|state| *state != TargetState::Draining) {
        return Standing::Unwell("AWS still sends to it".to_owned());
    }
    if states.is_empty() { Standing::Out } else { Standing::Draining }
}

/// Since when a member is out: who is not to serve, and gets nothing new.
fn since(duty: Duty, standing: &Standing, before: Option<SystemTime>, now: SystemTime) -> Option<SystemTime> {
    match (duty, standing) {
        (Duty::Rest { .. } | Duty::Leave { .. }, Standing::Draining | Standing::Out) => {
            Some(before.unwrap_or(now))
        }
        (Duty::Rest { .. } | Duty::Leave { .. }, Standing::Unknown) => before,
        // Somebody put it back: it counts anew.
        (Duty::Serve, _) | (_, Standing::Well | Standing::Unwell(_) | Standing::Unfit(_)) => None,
    }
}

/// Where a member is, and what is to be told of it. `before` is what was said last.
fn state(
    duty: Duty,
    standing: Standing,
    since: Option<SystemTime>,
    hold: Duration,
    before: Option<MemberState>,
    now: SystemTime,
) -> (MemberState, Option<String>) {
    let (going, gone) = match duty {
        Duty::Serve => {
            return match standing {
                Standing::Well => (MemberState::Active, None),
                // What could not be seen is no reason to take it for gone.
                Standing::Unknown if before == Some(MemberState::Active) => (MemberState::Active, None),
                Standing::Unknown => (MemberState::Adding, Some("it is not known how AWS has it".to_owned())),
                Standing::Unfit(why) | Standing::Unwell(why) => (MemberState::Adding, Some(why)),
                Standing::Draining | Standing::Out => (MemberState::Adding, None),
            };
        }
        Duty::Rest { .. } => (MemberState::Disabling, MemberState::Disabled),
        Duty::Leave { .. } => (MemberState::Draining, MemberState::Removed),
    };
    let by = duty.by().unwrap_or(now);
    let is_over = now >= by;
    let held = since.map_or(by, |since| since + hold);
    match standing {
        // It never was one that is sent to.
        Standing::Unfit(_) => (gone, None),
        // As long as new connections are sent to it, no time makes it safe to go.
        Standing::Well | Standing::Unwell(_) => (going, Some("it is not deregistered yet".to_owned())),
        Standing::Unknown if before == Some(gone) => (gone, None),
        Standing::Unknown => (going, Some("it is not known how AWS has it".to_owned())),
        Standing::Draining if is_over => {
            (gone, Some("AWS lets connections of it end, and its time is over".to_owned()))
        }
        Standing::Draining => (going, Some("AWS lets its connections end".to_owned())),
        Standing::Out if now >= held => (gone, None),
        Standing::Out => {
            let told = format!("AWS may send new connections to it until {}", at(held));
            // What it is given is not enough: who is told can give it more.
            match (is_over, held > by) {
                (true, _) => (gone, Some(format!("{told}, and its time is over"))),
                (false, true) => (going, Some(format!("{told}, and its time is over at {}", at(by)))),
                (false, false) => (going, Some(told)),
            }
        }
    }
}

fn at(time: SystemTime) -> String {
    // Whole seconds, and none too early.
    let time = DateTime::from(time);
    let seconds = time.secs() + i64::from(time.subsec_nanos() > 0);
    DateTime::from_secs(seconds).fmt(Format::DateTime).unwrap_or_default()
}

/// The address of a member that is sent to. Where members are machines, those may have public ones, too, which AWS does not
/// send to.
pub(super) fn address(
    member: &Member,
    family: portcullis_core::Family,
    reports: MemberReports,
) -> Option<IpAddr> {
    let mut addresses = member.addresses().iter().copied();
    let private = addresses
        .find(|one| portcullis_core::Family::of(*one) == family && subnets::is_private(*one))
        .filter(|_| reports == MemberReports::Each);
    private.or_else(|| member.address(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(number)
    }

    const HELD: Duration = Duration::from_secs(120);

    fn why(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn who_serves_is_active_once_all_is_well() {
        for (standing, before, expected) in [
            (Standing::Well, None, "active"),
            (
                Standing::Unwell(why("initial: Elb.RegistrationInProgress")),
                None,
                "adding initial: Elb.RegistrationInProgress",
            ),
            (
                Standing::Unwell(why("unhealthy: Target.FailedHealthChecks")),
                Some(MemberState::Active),
                "adding unhealthy: Target.FailedHealthChecks",
            ),
            (
                Standing::Unfit(why("its instance i-1 does not run")),
                None,
                "adding its instance i-1 does not run",
            ),
            (Standing::Unknown, None, "adding it is not known how AWS has it"),
            (Standing::Unknown, Some(MemberState::Active), "active"),
            (Standing::Unknown, Some(MemberState::Removed), "adding it is not known how AWS has it"),
        ] {
            let (state, told) = state(Duty::Serve, standing.clone(), None, HELD, before, second(0));
            let said = [Some(state.to_string()), told].into_iter().flatten().collect::<Vec<_>>().join(" ");
            assert_eq!(said, expected, "{standing:?} after {before:?}");
        }
    }

    #[test]
    fn who_leaves_is_removed_once_it_is_out_and_held() {
        let over = "AWS lets connections of it end, and its time is over";
        let held = "AWS may send new connections to it until 1970-01-01T00:02:10Z";
        let cut = "AWS may send new connections to it until 1970-01-01T00:03:40Z, and its time is over";
        for (standing, since, now, expected) in [
            (Standing::Unwell(why("")), None, 20, "going it is not deregistered yet".to_owned()),
            // However late it is: it may get connections at any moment.
            (Standing::Unwell(why("")), None, 999, "going it is not deregistered yet".to_owned()),
            (Standing::Draining, Some(10), 20, "going AWS lets its connections end".to_owned()),
            // Draining for longer than it is held.
            (Standing::Draining, Some(10), 140, "going AWS lets its connections end".to_owned()),
            (Standing::Draining, Some(10), 150, format!("gone {over}")),
            // Drained at once, since there was nothing: new connections may come.
            (Standing::Out, Some(10), 20, format!("going {held}")),
            (Standing::Out, Some(10), 129, format!("going {held}")),
            (Standing::Out, Some(10), 130, "gone".to_owned()),
            // Whoever starts anew late counts from then, and no longer than it is given; that it is cut short is told.
            (Standing::Out, Some(100), 149, format!("going {cut} at 1970-01-01T00:02:30Z")),
            (Standing::Out, Some(100), 150, format!("gone {cut}")),
            (Standing::Out, Some(30), 150, "gone".to_owned()),
            (Standing::Out, Some(100), 220, "gone".to_owned()),
            (Standing::Unfit(why("")), None, 20, "gone".to_owned()),
            (Standing::Unknown, Some(10), 140, "going it is not known how AWS has it".to_owned()),
        ] {
            for (duty, words) in [
                (Duty::Leave { by: second(150) }, ["draining", "removed"]),
                (Duty::Rest { by: second(150) }, ["disabling", "disabled"]),
            ] {
                let (state, told) = state(duty, standing.clone(), since.map(second), HELD, None, second(now));
                let said =
                    [Some(state.to_string()), told].into_iter().flatten().collect::<Vec<_>>().join(" ");
                let expected = expected.replacen("going", words[0], 1).replacen("gone", words[1], 1);
                assert_eq!(said, expected, "{standing:?} since {since:?} at {now}");
            }
        }
    }

    #[test]
    fn it_is_out_from_when_it_was_first_seen_so() {
        let leave = Duty::Leave { by: second(150) };
        for (duty, standing, before, expected) in [
            (leave, Standing::Draining, None, Some(50)),
            (leave, Standing::Draining, Some(10), Some(10)),
            (leave, Standing::Out, Some(10), Some(10)),
            (leave, Standing::Out, None, Some(50)),
            (leave, Standing::Unknown, Some(10), Some(10)),
            (leave, Standing::Unknown, None, None),
            (leave, Standing::Unwell(why("")), Some(10), None),
            (Duty::Serve, Standing::Out, Some(10), None),
        ] {
            let since = since(duty, &standing, before.map(second), second(50));
            assert_eq!(since, expected.map(second), "{standing:?} before {before:?}");
        }
    }

    #[test]
    fn the_hold_is_a_number_of_seconds() {
        let said = |value: &str| hold(&BTreeMap::from([(HOLD.to_owned(), value.to_owned())]));
        assert_eq!(hold(&BTreeMap::new()), (USUAL_HOLD, None));
        assert_eq!(said("5"), (Duration::from_secs(5), None));
        assert_eq!(said("0"), (Duration::ZERO, None));
        let (time, told) = said("long");
        assert_eq!(time, USUAL_HOLD);
        assert!(told.unwrap().contains("`long`"));
    }
}

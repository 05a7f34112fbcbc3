//! What is said of members.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_core::{Duty, LoadBalancer, Member, MemberReport, MemberState};

use super::desired::{Asked, Desired};

/// What OVN says of one who is asked whether it is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Nobody looks.
    Unknown,
    /// It cannot be seen just now.
    Unseen,
    /// It has not been asked yet. OVN takes that for well.
    Waiting,
    /// It answers.
    Well,
    /// It does not, and gets no new connection.
    Ill,
}

/// Whether the switches that carry packets do what was last decided of one who left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    NotYet,
    Everywhere,
    /// Some do not answer, and nobody waits for them any longer.
    NotEverywhere,
}

/// How long who leaves is known to leave before it is cut off: OVN ends only what it has heard of.
const HEARD: Duration = Duration::from_secs(5);

/// When the time of one is over who left at some time.
pub(crate) fn end(by: SystemTime, since: SystemTime) -> SystemTime {
    by.max(since + HEARD)
}

/// Who served and whose time is over: nothing is to reach them any more.
pub(crate) fn ended(wanted: &LoadBalancer, decided: &Desired, now: SystemTime) -> BTreeSet<String> {
    let left = decided.rows.left();
    let is_over = |member: &&Member| {
        let end = member.duty().by().zip(left.get(member.name())).map(|(by, since)| end(by, *since));
        end.is_some_and(|end| end <= now)
    };
    wanted.members().iter().filter(is_over).map(|member| member.name().to_owned()).collect()
}

/// Where members are.
pub(crate) fn members(
    wanted: &LoadBalancer,
    decided: &Desired,
    health: impl Fn(&Asked) -> Health,
    heard: impl Fn(&str) -> Heard,
    now: SystemTime,
) -> Vec<MemberReport> {
    let left = decided.rows.left();
    let one = |member: &Member| {
        let leaving = |by, states| match left.get(member.name()) {
            Some(since) => leaving(decided, heard(member.name()), end(by, *since), now, states),
            None => (states[1], None),
        };
        let (state, told) = match (member.duty(), decided.trial.get(member.name())) {
            (Duty::Serve, Some(why)) => (MemberState::Adding, Some((*why).to_owned())),
            (Duty::Serve, None) => serving(decided, member.name(), &health),
            (Duty::Rest { by }, _) => leaving(by, [MemberState::Disabling, MemberState::Disabled]),
            (Duty::Leave { by }, _) => leaving(by, [MemberState::Draining, MemberState::Removed]),
        };
        MemberReport { name: member.name().to_owned(), state, connections: None, told }
    };
    wanted.members().iter().map(one).collect()
}

fn serving(
    decided: &Desired,
    member: &str,
    health: &impl Fn(&Asked) -> Health,
) -> (MemberState, Option<String>) {
    let Some(asked) = decided.asked.get(member).filter(|asked| !asked.is_empty()) else {
        return (MemberState::Active, Some("it is not asked whether it is well".to_owned()));
    };
    let states: Vec<Health> = asked.iter().map(health).collect();
    let ill = asked.iter().zip(&states).find(|(_, state)| **state == Health::Ill);
    match ill {
        Some((ill, _)) => {
            let open = decided.open.contains(ill);
            let so = if open { "; it gets connections, since nobody does" } else { "" };
            (MemberState::Adding, Some(format!("it does not answer on {} {}{so}", ill.protocol, ill.port)))
        }
        // OVN sends to it all the same. That is no answer.
        None if states.contains(&Health::Waiting) => {
            let told = "it has not answered its check yet; it gets connections meanwhile";
            (MemberState::Adding, Some(told.to_owned()))
        }
        None if states.contains(&Health::Unseen) => {
            let told = "whether it answers is not known: the southbound database cannot be reached";
            (MemberState::Active, Some(told.to_owned()))
        }
        None if states.contains(&Health::Unknown) => {
            (MemberState::Active, Some("its health is not known here".to_owned()))
        }
        None => (MemberState::Active, None),
    }
}

/// OVN shows nowhere which connections a member has, so it is waited until they have to be over; and then until it is known
/// wherever packets are.
fn leaving(
    decided: &Desired,
    heard: Heard,
    end: SystemTime,
    now: SystemTime,
    [on_its_way, there]: [MemberState; 2],
) -> (MemberState, Option<String>) {
    let time = time_of_day(end);
    if end > now {
        return (on_its_way, Some(format!("until {time}: OVN does not tell which connections are left")));
    }
    match heard {
        Heard::NotYet => {
            (on_its_way, Some(format!("its time was over at {time}: not every chassis has heard of it")))
        }
        _ if !decided.endless.is_empty() => {
            let told = format!("connections that were left at {time} go on: others use the same address");
            (there, Some(told))
        }
        Heard::Everywhere => (there, None),
        Heard::NotEverywhere => {
            let told = "a chassis does not say that it has heard of it: what goes on there is not known";
            (there, Some(told.to_owned()))
        }
    }
}

/// As `HH:MM:SS UTC`.
fn time_of_day(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

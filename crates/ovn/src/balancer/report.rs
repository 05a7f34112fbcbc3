//! What is said of members.

use std::time::{SystemTime, UNIX_EPOCH};

use portcullis_core::{Duty, LoadBalancer, Member, MemberReport, MemberState};

use super::desired::{Asked, Desired};

/// What OVN says of one who is asked whether it is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Nobody can say.
    Unknown,
    /// It has not been asked yet. OVN takes that for well.
    Waiting,
    /// It answers.
    Well,
    /// It does not, and gets no new connection.
    Ill,
}

/// Where members are.
pub(crate) fn members(
    wanted: &LoadBalancer,
    decided: &Desired,
    health: impl Fn(&Asked) -> Health,
    now: SystemTime,
) -> Vec<MemberReport> {
    let left = decided.rows.left();
    let ends = decided.endless.is_empty();
    let one = |member: &Member| {
        let served = left.contains(member.name());
        let (state, told) = match member.duty() {
            Duty::Serve if decided.trial.contains(member.name()) => {
                (MemberState::Adding, Some("it has not answered its check yet".to_owned()))
            }
            Duty::Serve => serving(decided.asked.get(member.name()).map(Vec::as_slice), &health),
            Duty::Rest { by } => {
                leaving(served, ends, by, now, [MemberState::Disabling, MemberState::Disabled])
            }
            Duty::Leave { by } => {
                leaving(served, ends, by, now, [MemberState::Draining, MemberState::Removed])
            }
        };
        MemberReport { name: member.name().to_owned(), state, connections: None, told }
    };
    wanted.members().iter().map(one).collect()
}

fn serving(asked: Option<&[Asked]>, health: &impl Fn(&Asked) -> Health) -> (MemberState, Option<String>) {
    let Some(asked) = asked else {
        return (MemberState::Active, Some("it is not asked whether it is well".to_owned()));
    };
    let states: Vec<Health> = asked.iter().map(health).collect();
    let ill = asked.iter().zip(&states).find(|(_, state)| **state == Health::Ill);
    match ill {
        Some((ill, _)) => {
            let told = format!("it does not answer on {} {}", ill.protocol, ill.port);
            (MemberState::Adding, Some(told))
        }
        None if states.contains(&Health::Unknown) => {
            (MemberState::Active, Some("its health is not known here".to_owned()))
        }
        None => (MemberState::Active, None),
    }
}

/// OVN shows nowhere which connections a member has, so it is waited until they have to be over.
fn leaving(
    served: bool,
    ends: bool,
    by: SystemTime,
    now: SystemTime,
    [on_its_way, there]: [MemberState; 2],
) -> (MemberState, Option<String>) {
    if !served {
        return (there, None);
    }
    let time = time_of_day(by);
    if by <= now {
        let told = || format!("connections that were left at {time} go on: others use the same address");
        return (there, (!ends).then(told));
    }
    (on_its_way, Some(format!("until {time}: OVN does not tell which connections are left")))
}

/// As `HH:MM:SS UTC`.
fn time_of_day(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

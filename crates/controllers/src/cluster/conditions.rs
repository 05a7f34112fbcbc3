//! What is to be known about a load balancer, from one look at everything.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portcullis_kube_api::cluster::{Condition, LoadBalancerStatus, condition, set_condition};

use super::membership::Membership;

/// What was seen, as far as conditions are about it.
#[derive(Clone, Debug)]
pub(super) struct Look<'a> {
    pub(super) generation: Option<i64>,
    /// What is wrong with the spec.
    pub(super) refusals: &'a [String],
    /// What could not be written, and why.
    pub(super) refused: &'a [String],
    /// What makes it, and is paused.
    pub(super) paused: &'a [String],
    /// What makes it, and is being deleted.
    pub(super) deleted: &'a [String],
    /// What makes it, and cannot be read.
    pub(super) unread: &'a [String],
    /// Whether all that make it have the ranges that are asked for, or narrower ones.
    pub(super) has_ranges: bool,
    pub(super) membership: &'a Membership,
    pub(super) endpoint: &'a EndpointLook,
    pub(super) infrastructure: &'a InfrastructureLook,
    /// What made it before, and serves while nobody does in what is named.
    pub(super) served_by: Option<&'a str>,
    /// What made it before, whose own address is where clients look for it.
    pub(super) bound_to: Option<&'a str>,
}

/// What is known about the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointLook {
    Unknown,
    Mismatch(String),
    Answers,
    Silent(String),
    /// Nobody has asked it yet.
    NotAsked,
}

/// What is known about what makes the load balancer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum InfrastructureLook {
    /// Nobody of ours does.
    Others,
    /// Nobody is named, and this makes it still.
    Kept(String),
    /// The Cluster is not there.
    NoCluster(String),
    /// It was made for another Cluster than is named now, and serves as one of that.
    OtherCluster { named: String, is_there: bool, before: String },
    /// The control plane that says whether it is for it is not there.
    NoControlPlane(String),
    /// Its kind is not installed, or cannot be watched.
    UnknownKind(String),
    /// It is not there.
    Missing(String),
    /// It is there, and cannot be read.
    Unread(String, String),
    /// It is there, and makes the load balancer of this one.
    InUse(String, String),
    /// It is there, and says this of itself.
    There(Box<Said>),
}

impl InfrastructureLook {
    /// Whether it may come to be without anybody telling of it.
    pub(super) fn is_lacking(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::UnknownKind(_) | Self::Unread(..) | Self::InUse(..))
    }
}

/// What makes a load balancer, as it says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) ready: Option<Condition>,
    pub(super) enforced: Option<Condition>,
}

/// One condition.
type Saying = (&'static str, &'static str, String, String);

pub(super) fn conditions(status: &mut LoadBalancerStatus, look: &Look<'_>, now: &Time) {
    for (type_, state, reason, message) in [
        available(look),
        endpoint_ready(look),
        infrastructure_ready(look),
        members_up_to_date(look),
        degraded(look),
        ("Deleting", "False", "NotDeleting".to_owned(), String::new()),
        ("Paused", "False", "NotPaused".to_owned(), String::new()),
    ] {
        set_condition(&mut status.conditions, type_, state, &reason, &message, look.generation, now);
    }
    enforced(status, look, now);
}

fn available(look: &Look<'_>) -> Saying {
    let (active, all) = (look.membership.active().len(), look.membership.targets.len());
    if active > 0 {
        let message = match look.served_by {
            Some(old) => format!(
                "{active} of {all} members get connections, by {old}, which made it before: nobody does yet by what is named."
            ),
            None => format!("{active} of {all} members get connections."),
        };
        return ("Available", "True", "MembersActive".to_owned(), message);
    }
    let message = match (all, look.infrastructure) {
        (_, InfrastructureLook::Others) => "Others make it, and nobody here knows its members' health.",
        (0, _) => "No object matches its selector.",
        _ => "None of its members passes its check.",
    };
    let reason =
        if *look.infrastructure == InfrastructureLook::Others { "NotKnown" } else { "NoActiveMember" };
    let state = if reason == "NotKnown" { "Unknown" } else { "False" };
    ("Available", state, reason.to_owned(), message.to_owned())
}

fn endpoint_ready(look: &Look<'_>) -> Saying {
    let (state, reason, message) = match look.endpoint {
        EndpointLook::Unknown => {
            let message = "It is not known yet where it will be found.";
            ("False", "WaitingForEndpoint", message.to_owned())
        }
        EndpointLook::Mismatch(why) => ("False", "EndpointMismatch", sentence(why)),
        EndpointLook::Answers => ("True", "Answering", String::new()),
        EndpointLook::NotAsked => ("Unknown", "NotAsked", "Nobody has connected to it yet.".to_owned()),
        EndpointLook::Silent(why) => {
            ("False", "NotAnswering", format!("It does not answer from here: {why}."))
        }
    };
    ("EndpointReady", state, reason.to_owned(), message)
}

fn infrastructure_ready(look: &Look<'_>) -> Saying {
    let said = |state, reason: &str, message: &str| {
        ("InfrastructureReady", state, reason.to_owned(), message.to_owned())
    };
    match look.infrastructure {
        InfrastructureLook::Others => {
            said("True", "MadeByOthers", "It has no infrastructureRef: others make it.")
        }
        InfrastructureLook::Kept(old) => said(
            "False",
            "ReferenceRemoved",
            &format!(
                "It has no infrastructureRef any more, and {old} still makes it, as it was asked last: Machines come and go. Name it again, or delete it when others serve at the endpoint."
            ),
        ),
        InfrastructureLook::NoCluster(name) => said(
            "False",
            "ClusterNotFound",
            &format!("There is no Cluster {name}, and nothing is made without it."),
        ),
        InfrastructureLook::OtherCluster { named, is_there: false, before } => said(
            "False",
            "ClusterNotFound",
            &format!(
                "There is no Cluster {named}. It serves as before, for {before}: Machines come and go, and nothing else is changed. Correct spec.clusterName."
            ),
        ),
        InfrastructureLook::OtherCluster { named, is_there: true, before } => said(
            "False",
            "ClusterChanged",
            &format!(
                "It was made for Cluster {before}, and does not go to {named}. It serves {before} as before: Machines come and go, and nothing else is changed. Put spec.clusterName back, and make a LoadBalancer of its own for {named}."
            ),
        ),
        InfrastructureLook::NoControlPlane(plane) => said(
            "False",
            "ControlPlaneNotFound",
            &format!(
                "There is no {plane}, which the Cluster names, and which says whether it is in front of it. Until it is there nothing is made, and what serves goes on: its members come and go."
            ),
        ),
        InfrastructureLook::UnknownKind(why) => said("False", "UnknownKind", &sentence(why)),
        InfrastructureLook::Missing(what) => said("False", "NotFound", &format!("There is no {what}.")),
        InfrastructureLook::Unread(what, why) => said(
            "False",
            "NotReadable",
            &format!(
                "{what}: {why}. Nothing is changed, and Machines that are to go wait. Correct it there."
            ),
        ),
        InfrastructureLook::InUse(what, other) => {
            let message = format!("{what} makes {other} already: a load balancer needs one of its own.");
            said("False", "InUse", &message)
        }
        InfrastructureLook::There(about) => {
            let Some(ready) = &about.ready else {
                return said("False", "NotReported", "Its provider has not said anything yet.");
            };
            let state = match ready.status.as_str() {
                "True" => "True",
                "False" => "False",
                _ => "Unknown",
            };
            said(state, &ready.reason, &ready.message)
        }
    }
}

fn members_up_to_date(look: &Look<'_>) -> Saying {
    let membership = look.membership;
    let said = |state, reason: &str, message: String| ("MembersUpToDate", state, reason.to_owned(), message);
    if !membership.taken.is_empty() {
        let each = membership.taken.iter().map(|(name, other)| format!("{name} is a member of {other}"));
        let each: Vec<String> = each.collect();
        let message = format!("{}: a Machine has one load balancer.", each.join(", "));
        return said("False", "MemberOfAnother", message);
    }
    let moving = membership
        .targets
        .iter()
        .filter(|target| !matches!(target.status.as_str(), "active" | "disabled" | "removed"));
    let moving: Vec<String> = moving.map(|target| format!("{} is {}", target.name, target.status)).collect();
    if *look.infrastructure == InfrastructureLook::Others {
        return said("Unknown", "NotKnown", "Others make it.".to_owned());
    }
    if let Some(old) = look.served_by {
        let message = format!(
            "No member is active yet by what is named. Until then {old} serves, which made it before."
        );
        return said("False", "Changing", message);
    }
    if moving.is_empty() {
        return said("True", "UpToDate", String::new());
    }
    said("False", "Changing", format!("{}.", moving.join(", ")))
}

fn degraded(look: &Look<'_>) -> Saying {
    let said = |state, reason: &str, message: String| ("Degraded", state, reason.to_owned(), message);
    if !look.refusals.is_empty() {
        let message = format!("{}. What was there before is still there.", look.refusals.join("; "));
        return said("True", "InvalidSpec", message);
    }
    if !look.paused.is_empty() {
        let paused = look.paused.join(", ");
        let mut message = format!("Paused: {paused}. Nothing is done there until it goes on.");
        let waiting: Vec<&str> = look.membership.waiting.iter().map(String::as_str).collect();
        if !waiting.is_empty() {
            message = format!("{message} Machines that are to go wait for that: {}.", waiting.join(", "));
        }
        return said("True", "ProviderPaused", message);
    }
    if !look.unread.is_empty() {
        let message =
            format!("{}. What was known of it before counts. Correct it there.", look.unread.join("; "));
        return said("True", "NotReadable", message);
    }
    if !look.deleted.is_empty() {
        let message = format!(
            "{} is being deleted, and will make nothing any more: name another in spec.infrastructureRef. Machines that are to go are held for the time to leave, and not longer.",
            look.deleted.join(", ")
        );
        return said("True", "ProviderDeleted", message);
    }
    if !look.refused.is_empty() {
        let message = format!("{}. It is tried again.", look.refused.join("; "));
        return said("True", "ChangeRefused", message);
    }
    if let Some(last) = &look.membership.last {
        let message = format!("{last} is to go, and stays since no other member answers.");
        return said("True", "LastMember", message);
    }
    if !look.membership.overdue.is_empty() {
        let names: Vec<&str> = look.membership.overdue.iter().map(String::as_str).collect();
        let message = format!(
            "{}: the time to leave is over, and the provider has not said that it has left. Its deletion is not held any more.",
            names.join(", ")
        );
        return said("True", "DrainOverdue", message);
    }
    if let Some(old) = look.bound_to {
        let message = format!(
            "The endpoint is the address of {old}, which made it before: it goes on, since clients would find nothing else there. Name {old} in spec.infrastructureRef again, or have clients use another endpoint."
        );
        return said("True", "EndpointOfOldProvider", message);
    }
    if let EndpointLook::Mismatch(why) = look.endpoint {
        return said("True", "EndpointMismatch", sentence(why));
    }
    said("False", "AsExpected", String::new())
}

/// What is said where it is not known of the ranges that are asked for that they are in force.
pub(super) const RANGES_BEFORE: &str =
    "The ranges that were in force before still are: those that are asked for are not yet.";

/// Whether source ranges keep anybody out is said by who knows.
fn enforced(status: &mut LoadBalancerStatus, look: &Look<'_>, now: &Time) {
    let pending = |status: &mut LoadBalancerStatus| {
        let type_ = "SourceRangesEnforced";
        set_condition(&mut status.conditions, type_, "False", "Pending", RANGES_BEFORE, look.generation, now);
    };
    let InfrastructureLook::There(about) = look.infrastructure else {
        // What was said may be of other ranges.
        let before = condition(&status.conditions, "SourceRangesEnforced");
        if before.is_some_and(|before| before.status == "True") && !look.has_ranges {
            pending(status);
        }
        return;
    };
    let Some(said) = &about.enforced else {
        // What was said of ranges that were there is not true of none.
        status.conditions.retain(|condition| condition.type_ != "SourceRangesEnforced");
        return;
    };
    let Condition { type_, status: state, reason, message, .. } = said;
    if state == "True" && !look.has_ranges {
        pending(status);
        return;
    }
    set_condition(&mut status.conditions, type_, state, reason, message, look.generation, now);
}

/// Nothing is done for now.
pub(super) fn paused(conditions: &mut Vec<Condition>, generation: Option<i64>, now: &Time) {
    let message = "It, or its Cluster, is paused: nothing is done.";
    set_condition(conditions, "Paused", "True", "Paused", message, generation, now);
}

/// It goes.
pub(super) fn deleting(conditions: &mut Vec<Condition>, message: &str, generation: Option<i64>, now: &Time) {
    set_condition(conditions, "Deleting", "True", "Deleting", message, generation, now);
}

pub(super) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    let rest = letters.as_str();
    let end = if rest.ends_with('.') { "" } else { "." };
    format!("{first}{rest}{end}")
}

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use thiserror::Error;
use unicode_width::UnicodeWidthStr;

use crate::text::{padded, shown};
use crate::{Direction, Owner, Reach, Rule};

/// What would change for an owner, shown before anything does: readable as text, complete as JSON.
///
/// It does not contradict itself: where nothing changes there are no calls and access stays, where something
/// changes there are calls, and no more of them are destructive than there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanView {
    owner: Owner,
    place: String,
    changes: Vec<Change>,
    calls: Calls,
    access: Access,
}

/// What happens to an object, or to a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// It is made.
    Create,
    /// It is taken away.
    Delete,
    /// It is changed in place.
    Update,
    /// It stays as it is, and is shown for a reason.
    Keep,
}

/// An object in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What happens to it.
    pub sign: Sign,
    /// The kind of object: `security group`.
    pub kind: String,
    /// Its name, or what tells it apart; may hold a [`placeholder`].
    pub name: String,
    /// Its parts.
    pub details: Vec<Detail>,
}

/// A part of an object in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    sign: Sign,
    columns: Vec<String>,
    why: String,
    rule: Option<Rule>,
}

/// The calls of a plan that change something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many it takes.
    pub all: usize,
    /// How many of them take something away that a new plan could not give back.
    pub destructive: usize,
}

/// What a plan does to access, both ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Who may reach it.
    pub ingress: ReachChange,
    /// What it may reach; nobody before and after where the plan does not limit that.
    pub egress: ReachChange,
}

/// A reach now, and when all is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachChange {
    /// Now.
    pub before: Reach,
    /// When all is done.
    pub after: Reach,
}

/// How the parts of a plan contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// More destructive calls than calls.
    #[error("a plan of {all} calls cannot have {destructive} destructive ones", all = .0.all, destructive = .0.destructive)]
    Destructive(Calls),
    /// Changes, and nothing that makes them.
    #[error("a plan that changes something takes at least one call")]
    NoCalls,
    /// Calls, and nothing they change.
    #[error("a plan that changes nothing takes no calls, and this one {0}")]
    OnlyCalls(usize),
    /// Another access, and nothing that makes it so.
    #[error("a plan that changes nothing cannot change who may reach what")]
    OnlyAccess,
}

/// Stands in a plan for what is known only after something was made: `‹node port›`.
pub fn placeholder(what: &str) -> String {
    format!("‹{what}›")
}

impl Change {
    /// An object without parts.
    pub fn new(sign: Sign, kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { sign, kind: kind.into(), name: name.into(), details: Vec::new() }
    }

    /// The same object with one more part.
    #[must_use]
    pub fn with(mut self, detail: Detail) -> Self {
        self.details.push(detail);
        self
    }

    fn keeps_all(&self) -> bool {
        self.sign == Sign::Keep && self.details.iter().all(|detail| detail.sign == Sign::Keep)
    }
}

impl Detail {
    /// A part told in columns, which line up with those of other parts, and why it is so; the reason may be
    /// empty where the part speaks for itself.
    pub fn new<C: Into<String>>(
        sign: Sign,
        columns: impl IntoIterator<Item = C>,
        why: impl Into<String>,
    ) -> Self {
        Self { sign, columns: columns.into_iter().map(Into::into).collect(), why: why.into(), rule: None }
    }

    /// A rule of a group, and why it is there.
    pub fn rule(sign: Sign, rule: &Rule, why: impl Into<String>) -> Self {
        Self { rule: Some(rule.clone()), ..Self::new(sign, rule.columns(), why) }
    }

    /// The columns side by side, each as wide as told.
    fn aligned(&self, widths: &[usize]) -> String {
        let cell = |(column, text): (usize, &String)| {
            let width = widths.get(column).copied().unwrap_or(0);
            padded(&shown(text), width)
        };
        let cells: Vec<String> = self.columns.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    }
}

impl ReachChange {
    /// Nothing changes.
    pub fn stays(reach: Reach) -> Self {
        Self { before: reach.clone(), after: reach }
    }

    /// What becomes reachable that is not now.
    pub fn wider(&self) -> Reach {
        Reach::widened(&self.before, &self.after)
    }

    fn is_none(&self) -> bool {
        self.before == self.after
    }

    /// Three lines at most: now, then, and what opens. `nobody` is what to call a reach without anyone.
    fn fmt_lines(&self, f: &mut fmt::Formatter<'_>, title: &str, opens: &str, nobody: &str) -> fmt::Result {
        let text = |reach: &Reach| if reach.is_nobody() { nobody.to_owned() } else { reach.to_string() };
        if self.is_none() {
            return writeln!(f, "{title:<18} {}, as before", text(&self.after));
        }
        writeln!(f, "{title:<18} before  {}", text(&self.before))?;
        writeln!(f, "{:<18} after   {}", "", text(&self.after))?;
        let wider = self.wider();
        if !wider.is_nobody() {
            writeln!(f, "{opens:<18} {wider}")?;
        }
        Ok(())
    }
}

impl PlanView {
    /// What happens to the objects of an owner at a place, which says by which provider, and where:
    /// `aws-nlb in vpc-0a1b`. The changes are in the order in which they are dealt with.
    pub fn new(
        owner: Owner,
        place: impl Into<String>,
        changes: Vec<Change>,
        calls: Calls,
        access: Access,
    ) -> Result<Self, PlanError> {
        let plan = Self { owner, place: place.into(), changes, calls, access };
        let access_stays = plan.access.ingress.is_none() && plan.access.egress.is_none();
        match plan.is_empty() {
            _ if calls.destructive > calls.all => Err(PlanError::Destructive(calls)),
            true if calls.all > 0 => Err(PlanError::OnlyCalls(calls.all)),
            true if !access_stays => Err(PlanError::OnlyAccess),
            false if calls.all == 0 => Err(PlanError::NoCalls),
            _ => Ok(plan),
        }
    }

    /// Whose objects these are.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// By which provider, and where.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The objects, in the order in which they are dealt with.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The calls it takes.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    /// What it does to access.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Whether everything is as wanted already.
    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(Change::keeps_all)
    }

    /// What becomes reachable that is not now, for each direction in which something does.
    pub fn wider(&self) -> Vec<(Direction, Reach)> {
        let both = [(Direction::Ingress, &self.access.ingress), (Direction::Egress, &self.access.egress)];
        let wider = both.map(|(direction, change)| (direction, change.wider()));
        wider.into_iter().filter(|(_, reach)| !reach.is_nobody()).collect()
    }

    fn details(&self) -> impl Iterator<Item = &Detail> {
        self.changes.iter().flat_map(|change| &change.details)
    }

    /// How wide each column of the details is. The last column of a detail needs no width, as nothing of the
    /// detail follows it.
    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for detail in self.details() {
            let Some((_, columns)) = detail.columns.split_last() else {
                continue;
            };
            for (column, text) in columns.iter().enumerate() {
                if column == widths.len() {
                    widths.push(0);
                }
                widths[column] = widths[column].max(shown(text).width());
            }
        }
        widths
    }

    fn fmt_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let kind_width = longest(&mut self.changes.iter().map(|change| shown(&change.kind).width()));
        let widths = self.widths();
        let explained = self.details().filter(|detail| !detail.why.is_empty());
        let text_width = longest(&mut explained.map(|detail| detail.aligned(&widths).width()));
        for change in &self.changes {
            let kind = padded(&shown(&change.kind), kind_width);
            writeln!(f, "  {} {kind}  {}", change.sign, shown(&change.name))?;
            for detail in &change.details {
                let text = padded(&detail.aligned(&widths), text_width);
                let line = format!("{text}    {}", shown(&detail.why));
                writeln!(f, "      {} {}", detail.sign, line.trim_end())?;
            }
        }
        writeln!(f)
    }

    fn fmt_access(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { ingress, egress } = &self.access;
        ingress.fmt_lines(f, "Who may reach it:", "Access gets wider:", "nobody")?;
        if *egress == ReachChange::default() {
            return Ok(());
        }
        egress.fmt_lines(f, "What it may reach:", "Reaches further:", "nothing")
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Create => "+",
            Self::Delete => "-",
            Self::Update => "~",
            Self::Keep => "=",
        })
    }
}

/// Ends with a line break, so that plans can be printed one after the other. Nothing in a text that was given
/// can start a line of its own or move the cursor.
impl fmt::Display for PlanView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  →  {}", self.owner, shown(&self.place))?;
        writeln!(f)?;
        if self.is_empty() {
            writeln!(f, "Nothing to change.")?;
            // What stays although something else is wanted is told with why.
            if self.details().any(|detail| !detail.why.is_empty()) {
                writeln!(f)?;
                self.fmt_changes(f)?;
            }
            return self.fmt_access(f);
        }
        self.fmt_changes(f)?;
        self.fmt_access(f)?;
        let Calls { all, destructive } = self.calls;
        let calls = if all == 1 { "call" } else { "calls" };
        match destructive {
            0 => writeln!(f, "{all} {calls}, none destructive."),
            destructive => writeln!(f, "{all} {calls}, {destructive} destructive."),
        }
    }
}

/// Its text and why, and for a rule also its parts.
impl Serialize for Detail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut detail = serializer.serialize_struct("Detail", 3 + usize::from(self.rule.is_some()))?;
        detail.serialize_field("sign", &self.sign)?;
        detail.serialize_field("text", &self.columns.join(" "))?;
        detail.serialize_field("why", &self.why)?;
        if let Some(rule) = &self.rule {
            detail.serialize_field("rule", rule)?;
        }
        detail.end()
    }
}

impl Serialize for ReachChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut change = serializer.serialize_struct("ReachChange", 3)?;
        change.serialize_field("before", &self.before)?;
        change.serialize_field("after", &self.after)?;
        change.serialize_field("wider", &self.wider())?;
        change.end()
    }
}

impl Serialize for PlanView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut plan = serializer.serialize_struct("PlanView", 7)?;
        plan.serialize_field("owner", &self.owner)?;
        plan.serialize_field("place", &self.place)?;
        plan.serialize_field("changes", &self.changes)?;
        plan.serialize_field("ingress", &self.access.ingress)?;
        plan.serialize_field("egress", &self.access.egress)?;
        plan.serialize_field("calls", &self.calls.all)?;
        plan.serialize_field("destructive_calls", &self.calls.destructive)?;
        plan.end()
    }
}

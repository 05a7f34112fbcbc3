use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::{Owner, Reach, Rule};

/// What would change for an owner, shown before anything does: readable as text, complete as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanView {
    /// Whose objects these are.
    pub owner: Owner,
    /// By which provider, and where: `aws-nlb in vpc-0a1b`.
    pub place: String,
    /// The objects, in the order in which they are dealt with.
    pub changes: Vec<Change>,
    /// Who may reach it now.
    pub before: Reach,
    /// Who may reach it when all is done.
    pub after: Reach,
    /// How many calls that change something it takes.
    pub calls: usize,
    /// How many of them take something away that a new plan could not give back.
    pub destructive_calls: usize,
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
}

impl Detail {
    /// A part told in columns, which line up with those of other parts, and why it is so; the reason may be
    /// empty where the part speaks for itself.
    pub fn new<C: Into<String>>(
        sign: Sign,
        columns: impl IntoIterator<Item = C>,
        why: impl Into<String>,
    ) -> Self {
        Self { sign, columns: columns.into_iter().map(Into::into).collect(), why: why.into() }
    }

    /// A rule of a group, and why it is there.
    pub fn rule(sign: Sign, rule: &Rule, why: impl Into<String>) -> Self {
        Self::new(sign, rule.columns(), why)
    }

    /// The columns side by side, each as wide as told.
    fn aligned(&self, widths: &[usize]) -> String {
        let cell = |(column, text): (usize, &String)| {
            let width = widths.get(column).copied().unwrap_or(0);
            format!("{text:<width$}")
        };
        let cells: Vec<String> = self.columns.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    }
}

impl PlanView {
    /// Whether everything is as wanted already.
    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(|change| {
            change.sign == Sign::Keep && change.details.iter().all(|detail| detail.sign == Sign::Keep)
        })
    }

    /// What becomes reachable that is not now.
    pub fn wider(&self) -> Reach {
        Reach::widened(&self.before, &self.after)
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
                widths[column] = widths[column].max(text.chars().count());
            }
        }
        widths
    }

    fn fmt_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let kind_width = longest(&mut self.changes.iter().map(|change| change.kind.chars().count()));
        let widths = self.widths();
        let explained = self.details().filter(|detail| !detail.why.is_empty());
        let text_width = longest(&mut explained.map(|detail| detail.aligned(&widths).chars().count()));
        for change in &self.changes {
            writeln!(f, "  {} {:<kind_width$}  {}", change.sign, change.kind, change.name)?;
            for detail in &change.details {
                let line = format!("{:<text_width$}    {}", detail.aligned(&widths), detail.why);
                writeln!(f, "      {} {}", detail.sign, line.trim_end())?;
            }
        }
        writeln!(f)
    }

    fn fmt_reach(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.before == self.after {
            return writeln!(f, "Who may reach it:  {}, as before", self.after);
        }
        writeln!(f, "Who may reach it:  before  {}", self.before)?;
        writeln!(f, "                   after   {}", self.after)?;
        let wider = self.wider();
        if !wider.is_nobody() {
            writeln!(f, "Access gets wider: {wider}")?;
        }
        Ok(())
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

/// Ends with a line break, so that plans can be printed one after the other.
impl fmt::Display for PlanView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  →  {}", self.owner, self.place)?;
        writeln!(f)?;
        if self.is_empty() {
            writeln!(f, "Nothing to change.")?;
            return self.fmt_reach(f);
        }
        self.fmt_changes(f)?;
        self.fmt_reach(f)?;
        let calls = if self.calls == 1 { "call" } else { "calls" };
        match self.destructive_calls {
            0 => writeln!(f, "{} {calls}, none destructive.", self.calls),
            destructive => writeln!(f, "{} {calls}, {destructive} destructive.", self.calls),
        }
    }
}

impl Serialize for Detail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut detail = serializer.serialize_struct("Detail", 3)?;
        detail.serialize_field("sign", &self.sign)?;
        detail.serialize_field("text", &self.columns.join(" "))?;
        detail.serialize_field("why", &self.why)?;
        detail.end()
    }
}

impl Serialize for PlanView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut plan = serializer.serialize_struct("PlanView", 8)?;
        plan.serialize_field("owner", &self.owner)?;
        plan.serialize_field("place", &self.place)?;
        plan.serialize_field("changes", &self.changes)?;
        plan.serialize_field("before", &self.before)?;
        plan.serialize_field("after", &self.after)?;
        plan.serialize_field("wider", &self.wider())?;
        plan.serialize_field("calls", &self.calls)?;
        plan.serialize_field("destructive_calls", &self.destructive_calls)?;
        plan.end()
    }
}

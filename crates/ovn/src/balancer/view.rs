//! A change, for people.

use portcullis_core::{Access, Calls, Change, Detail, Owner, PlanError, PlanView, ReachChange, Sign};
use portcullis_ovsdb::Datum;

use super::difference::Operation;
use super::rows::{Columns, Rows};
use super::tables::{BALANCER, CHECK};
use crate::rows::Reference;
use crate::tables::{ACL, SWITCH};

/// What would be done for an owner.
pub(super) fn plan(
    owner: &Owner,
    operations: &[Operation],
    before: &Rows,
    after: &Rows,
    called: impl Fn(&Reference) -> String,
) -> Result<PlanView, PlanError> {
    let mut changes = Vec::new();
    for operation in operations {
        match operation {
            Operation::Insert { table, columns, .. } => {
                let change = Change::new(Sign::Create, kind(table), name(table, columns));
                changes.push(details(change, Sign::Create, columns));
            }
            Operation::Update { table, uuid, columns, .. } => {
                let all = after.rows.get(&(*table, *uuid)).unwrap_or(columns);
                let change = Change::new(Sign::Update, kind(table), name(table, all));
                changes.push(details(change, Sign::Update, columns));
            }
            Operation::Delete { table, was, .. } => {
                changes.push(Change::new(Sign::Delete, kind(table), name(table, was)));
            }
            Operation::Refer(reference) | Operation::Unrefer(reference) => {
                let sign = if matches!(operation, Operation::Refer(_)) { Sign::Create } else { Sign::Delete };
                let place = if reference.table == SWITCH { "logical switch" } else { "logical router" };
                let what = if reference.column == "acls" { "ACL" } else { "load balancer" };
                let member = reference.member.to_string();
                let change = Change::new(Sign::Update, place, called(reference));
                changes.push(change.with(Detail::new(sign, [what, &member], "")));
            }
        }
    }
    let is_delete = |operation: &&Operation| matches!(operation, Operation::Delete { .. });
    let calls = Calls {
        all: usize::from(!operations.is_empty()),
        destructive: usize::from(operations.iter().any(|operation| is_delete(&operation))),
    };
    let ingress = ReachChange { before: before.reach(), after: after.reach() };
    let access = Access { ingress, ..Access::default() };
    PlanView::new(owner.clone(), "ovn", changes, calls, access)
}

fn kind(table: &str) -> &'static str {
    match table {
        BALANCER => "load balancer",
        CHECK => "health check",
        ACL => "ACL",
        _ => "address set",
    }
}

/// What tells a row apart, for people.
fn name(table: &str, columns: &Columns) -> String {
    let column = match table {
        CHECK => "vip",
        ACL => "match",
        _ => "name",
    };
    columns.get(column).and_then(Datum::text).unwrap_or_default().to_owned()
}

fn details(change: Change, sign: Sign, columns: &Columns) -> Change {
    let shown = columns.iter().filter(|(column, _)| !matches!(**column, "external_ids" | "health_check"));
    shown.fold(change, |mut change, (column, value)| {
        let atom = |atom: &portcullis_ovsdb::Atom| atom.as_text().map(str::to_owned);
        for (key, value) in value.entries() {
            let words = [Some((*column).to_owned()), atom(key), atom(value)];
            change = change.with(Detail::new(sign, words.into_iter().flatten(), ""));
        }
        let texts: Vec<&str> = value.texts().collect();
        if !texts.is_empty() {
            change = change.with(Detail::new(sign, [*column, &texts.join(", ")], ""));
        }
        change
    })
}

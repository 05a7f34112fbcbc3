//! From what is there to what should be: one transaction.

use std::collections::BTreeMap;

use portcullis_ovsdb::{Columns as Values, Datum, Mutator, Rows as Where, Transaction, Until};
use uuid::Uuid;

use super::rows::{Columns, Rows};
use crate::rows::Reference;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Insert {
        table: &'static str,
        uuid: Uuid,
        columns: Columns,
    },
    /// The columns that differ, as they should be and as they are.
    Update {
        table: &'static str,
        uuid: Uuid,
        columns: Columns,
        was: Columns,
    },
    Delete {
        table: &'static str,
        uuid: Uuid,
        was: Columns,
    },
    Refer(Reference),
    Unrefer(Reference),
}

/// What has to be done. All of it is one transaction: who is to be kept out is kept out from the moment on at which there is
/// something to reach.
pub(crate) fn difference(desired: &Rows, there: &Rows) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (&(table, uuid), columns) in &desired.rows {
        match there.rows.get(&(table, uuid)) {
            None => operations.push(Operation::Insert { table, uuid, columns: columns.clone() }),
            Some(is) => {
                let other = |column: &&'static str| is.get(column) != columns.get(column);
                let names: Vec<&'static str> = columns.keys().copied().filter(other).collect();
                if !names.is_empty() {
                    let pick = |from: &Columns| -> Columns {
                        let value = |name: &str| from.get(name).cloned().unwrap_or(Datum::EMPTY);
                        names.iter().map(|name| (*name, value(name))).collect()
                    };
                    let (columns, was) = (pick(columns), pick(is));
                    operations.push(Operation::Update { table, uuid, columns, was });
                }
            }
        }
    }
    operations.extend(desired.references.difference(&there.references).copied().map(Operation::Refer));
    operations.extend(there.references.difference(&desired.references).copied().map(Operation::Unrefer));
    for (&(table, uuid), was) in &there.rows {
        if !desired.rows.contains_key(&(table, uuid)) {
            operations.push(Operation::Delete { table, uuid, was: was.clone() });
        }
    }
    operations
}

/// The same as the database takes it. It is done only while rows that change are as they were when it was decided, and
/// places are called what they were called.
pub(crate) fn transaction(
    operations: &[Operation],
    places: &BTreeMap<(&'static str, Uuid), String>,
    durable: bool,
) -> Transaction {
    let mut transaction = Transaction::new();
    for ((table, uuid), name) in places {
        let expected = Values::new().with("name", name.as_str());
        transaction.wait(*table, Where::Row(*uuid), &["name"], Until::Equal, vec![expected]);
    }
    for operation in operations {
        let (Operation::Update { table, uuid, was, .. } | Operation::Delete { table, uuid, was }) = operation
        else {
            continue;
        };
        let names: Vec<&'static str> = was.keys().copied().collect();
        transaction.wait(*table, Where::Row(*uuid), &names, Until::Equal, vec![values(was)]);
    }
    for operation in operations {
        match operation {
            Operation::Insert { table, uuid, columns } => {
                transaction.insert(*table, *uuid, values(columns));
            }
            Operation::Update { table, uuid, columns, .. } => {
                transaction.update(*table, Where::Row(*uuid), values(columns));
            }
            // A row that nothing refers to any more may be gone by itself, and that is no fault.
            Operation::Delete { table, uuid, .. } => transaction.delete(*table, Where::Row(*uuid)),
            Operation::Refer(to) => {
                transaction.mutate(
                    to.table,
                    Where::Row(to.row),
                    to.column,
                    Mutator::Insert,
                    to.member.into(),
                );
            }
            Operation::Unrefer(to) => {
                transaction.mutate(
                    to.table,
                    Where::Row(to.row),
                    to.column,
                    Mutator::Delete,
                    to.member.into(),
                );
            }
        }
    }
    if durable {
        transaction.durable();
    }
    transaction
}

fn values(columns: &Columns) -> Values {
    columns.iter().fold(Values::new(), |values, (column, value)| values.with(*column, value.clone()))
}

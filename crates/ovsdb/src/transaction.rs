use std::borrow::Cow;

use serde::ser::{Serialize, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize as DeriveSerialize};
use uuid::Uuid;

use crate::Datum;

/// The columns of a row, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns(Vec<(Cow<'static, str>, Datum)>);

impl Columns {
    /// No column.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this column too.
    #[must_use]
    pub fn with(mut self, column: impl Into<Cow<'static, str>>, value: impl Into<Datum>) -> Self {
        self.0.push((column.into(), value.into()));
        self
    }

    /// With all of these too.
    #[must_use]
    pub(crate) fn and(mut self, mut others: Columns) -> Self {
        self.0.append(&mut others.0);
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.0.iter().map(|(column, value)| (&**column, value))
    }
}

impl Serialize for Columns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(column, value)| (column, value)))
    }
}

/// Changes that are made together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    operations: Vec<Operation>,
}

/// Which rows an operation is about.
#[derive(Debug, Clone)]
pub enum Rows {
    /// The row of that number.
    Row(Uuid),
    /// All rows whose column has exactly this value.
    Where(Cow<'static, str>, Datum),
    /// All rows of the table.
    All,
}

/// How a set or a map is changed without saying all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, DeriveSerialize)]
#[serde(rename_all = "lowercase")]
pub enum Mutator {
    /// Members or entries that are not there yet are added.
    Insert,
    /// Members, entries or (given a set) keys are taken away.
    Delete,
}

/// What a `wait` is about: go on only if the rows have these values, or have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, DeriveSerialize)]
pub enum Until {
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    Other,
}

type Name = Cow<'static, str>;

#[derive(Debug, Clone, DeriveSerialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Operation {
    Insert { table: Name, uuid: Uuid, row: Columns },
    Update { table: Name, r#where: Rows, row: Columns },
    Mutate { table: Name, r#where: Rows, mutations: Vec<(Name, Mutator, Datum)> },
    Delete { table: Name, r#where: Rows },
    Select { table: Name, r#where: Rows, columns: Vec<Name> },
    Wait { table: Name, r#where: Rows, columns: Vec<Name>, until: Until, rows: Vec<Columns>, timeout: u32 },
    Commit { durable: bool },
}

impl Transaction {
    /// Without any change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing would be done.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Adds a row under a number chosen here, so that other operations and other systems can refer to it already.
    pub fn insert(&mut self, table: impl Into<Name>, uuid: Uuid, row: Columns) {
        self.operations.push(Operation::Insert { table: table.into(), uuid, row });
    }

    /// Sets columns.
    pub fn update(&mut self, table: impl Into<Name>, rows: Rows, row: Columns) {
        self.operations.push(Operation::Update { table: table.into(), r#where: rows, row });
    }

    /// Adds to, or takes from, one set or map.
    pub fn mutate(
        &mut self,
        table: impl Into<Name>,
        rows: Rows,
        column: impl Into<Name>,
        mutator: Mutator,
        value: Datum,
    ) {
        let mutations = vec![(column.into(), mutator, value)];
        self.operations.push(Operation::Mutate { table: table.into(), r#where: rows, mutations });
    }

    /// Removes rows.
    pub fn delete(&mut self, table: impl Into<Name>, rows: Rows) {
        self.operations.push(Operation::Delete { table: table.into(), r#where: rows });
    }

    /// Reads rows, as they are within the transaction.
    pub fn select(&mut self, table: impl Into<Name>, rows: Rows, columns: &[&'static str]) {
        let columns = columns.iter().map(|column| Name::from(*column)).collect();
        self.operations.push(Operation::Select { table: table.into(), r#where: rows, columns });
    }

    /// Goes on only if the rows are as expected right now; otherwise nothing of the transaction is done.
    pub fn wait(
        &mut self,
        table: impl Into<Name>,
        rows: Rows,
        columns: &[&'static str],
        until: Until,
        expected: Vec<Columns>,
    ) {
        let columns = columns.iter().map(|column| Name::from(*column)).collect();
        self.operations.push(Operation::Wait {
            table: table.into(),
            r#where: rows,
            columns,
            until,
            rows: expected,
            timeout: 0,
        });
    }

    /// Answers only once the changes are on disk.
    pub fn durable(&mut self) {
        self.operations.push(Operation::Commit { durable: true });
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether it only looks: then it makes no difference how often it is done.
    pub(crate) fn only_reads(&self) -> bool {
        self.operations.iter().all(|operation| match operation {
            Operation::Select { .. } | Operation::Wait { .. } | Operation::Commit { .. } => true,
            Operation::Insert { .. }
            | Operation::Update { .. }
            | Operation::Mutate { .. }
            | Operation::Delete { .. } => false,
        })
    }

    /// Adds all changes of another one.
    pub(crate) fn append(&mut self, mut other: Transaction) {
        self.operations.append(&mut other.operations);
    }

    /// The parameters of the request: the database, then the operations.
    pub(crate) fn for_database<'a>(&'a self, database: &'a str) -> impl Serialize + 'a {
        struct Parameters<'a>(&'a str, &'a [Operation]);

        impl Serialize for Parameters<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut parameters = serializer.serialize_seq(Some(self.1.len() + 1))?;
                parameters.serialize_element(self.0)?;
                for operation in self.1 {
                    parameters.serialize_element(operation)?;
                }
                parameters.end()
            }
        }

        Parameters(database, &self.operations)
    }
}

/// As the protocol writes the operations.
impl Serialize for Transaction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.operations.serialize(serializer)
    }
}

impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let conditions: Vec<(&str, &str, Cow<'_, Datum>)> = match self {
            Rows::Row(uuid) => vec![("_uuid", "==", Cow::Owned((*uuid).into()))],
            Rows::Where(column, value) => vec![(column, "==", Cow::Borrowed(value))],
            Rows::All => Vec::new(),
        };
        conditions.serialize(serializer)
    }
}

/// What came of one operation.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct OperationResult {
    /// How many rows were changed.
    #[serde(default)]
    pub count: u64,
    /// The rows read, by column.
    #[serde(default)]
    pub rows: Vec<std::collections::BTreeMap<String, Datum>>,
}

/// Why the server did not do a transaction. Nothing of it was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}{}", if details.is_empty() { String::new() } else { format!(": {details}") })]
pub struct Refused {
    /// Which of its operations, or their number if it failed as a whole.
    pub operation: usize,
    /// The kind, as the protocol has it, such as `constraint violation`.
    pub error: String,
    /// More words.
    pub details: String,
}

impl Refused {
    /// Whether a `wait` did not find what it expected.
    pub fn is_unexpected(&self) -> bool {
        self.error == "timed out"
    }
}

/// Reads the answer to a transaction.
pub(crate) fn results(answer: &str) -> Result<Result<Vec<OperationResult>, Refused>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum One {
        Error {
            error: String,
            #[serde(default)]
            details: String,
        },
        Done(OperationResult),
    }
    // Operations after a failed one are answered with null; a failure of the whole comes as one answer more.
    let answers: Vec<Option<One>> = serde_json::from_str(answer)?;
    let mut done = Vec::with_capacity(answers.len());
    for (operation, answer) in answers.into_iter().enumerate() {
        match answer {
            Some(One::Error { error, details }) => return Ok(Err(Refused { operation, error, details })),
            Some(One::Done(result)) => done.push(result),
            None => done.push(OperationResult::default()),
        }
    }
    Ok(Ok(done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_are_written_as_the_protocol_has_them() {
        let id: Uuid = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let mut transaction = Transaction::new();
        transaction.insert("Port_Group", id, Columns::new().with("name", "pg_1"));
        transaction.mutate("Port_Group", Rows::Row(id), "ports", Mutator::Insert, Datum::from(id));
        transaction.update(
            "ACL",
            Rows::Where("name".into(), "x".into()),
            Columns::new().with("priority", 1002),
        );
        transaction.wait("ACL", Rows::All, &["name"], Until::Other, vec![Columns::new().with("name", "y")]);
        transaction.delete("ACL", Rows::All);
        transaction.durable();
        let written = serde_json::to_value(transaction.for_database("OVN_Northbound")).unwrap();
        let uuid = json!(["uuid", id]);
        assert_eq!(
            written,
            json!([
                "OVN_Northbound",
                {"op": "insert", "table": "Port_Group", "uuid": id, "row": {"name": "pg_1"}},
                {"op": "mutate", "table": "Port_Group", "where": [["_uuid", "==", uuid]], "mutations": [["ports", "insert", uuid]]},
                {"op": "update", "table": "ACL", "where": [["name", "==", "x"]], "row": {"priority": 1002}},
                {"op": "wait", "table": "ACL", "where": [], "columns": ["name"], "until": "!=", "rows": [{"name": "y"}], "timeout": 0},
                {"op": "delete", "table": "ACL", "where": []},
                {"op": "commit", "durable": true},
            ])
        );
    }

    #[test]
    fn answers_are_read() {
        let done = results(
            r#"[{"uuid":["uuid","550e8400-e29b-41d4-a716-446655440000"]},{"count":2},{},{"rows":[{"name":"x"}]}]"#,
        );
        let done = done.unwrap().unwrap();
        assert_eq!((done[1].count, done[3].rows[0]["name"].text()), (2, Some("x")));

        let refused = results(r#"[{"count":1},{"error":"timed out"},null]"#).unwrap().unwrap_err();
        assert!(refused.operation == 1 && refused.is_unexpected());
        let whole = results(r#"[{},{"error":"constraint violation","details":"why"}]"#).unwrap().unwrap_err();
        assert_eq!(whole.to_string(), "constraint violation: why");
        assert!(results("{}").is_err());
    }
}

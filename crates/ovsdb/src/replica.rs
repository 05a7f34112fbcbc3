use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::Datum;
use crate::datum::Reading;
use crate::interner::Interner;
use crate::schema::Schema;
use crate::transaction::{Operation, Rows, Transaction};

/// Which part of a database is replicated: a table, its columns, and by what its rows are looked up.
#[derive(Debug, Clone)]
pub struct TableSpec {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub indexes: &'static [Index],
}

/// A way to look rows up.
#[derive(Debug, Clone, Copy)]
pub struct Index {
    pub name: &'static str,
    /// The keys under which a row is found; most have one.
    pub keys: fn(&Row) -> Vec<String>,
}

/// A row of the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    uuid: Uuid,
    columns: &'static [&'static str],
    values: Box<[Datum]>,
}

impl Row {
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// What a column holds. A column that is not replicated is empty.
    pub fn get(&self, column: &str) -> &Datum {
        const EMPTY: &Datum = &Datum::EMPTY;
        let place = self.columns.iter().position(|name| *name == column);
        place.map_or(EMPTY, |place| &self.values[place])
    }

    fn set(&mut self, column: &str, value: Datum) {
        if let Some(place) = self.columns.iter().position(|name| *name == column) {
            self.values[place] = value;
        }
    }
}

/// One row that changed, as it was and as it is.
#[derive(Debug, Clone)]
pub struct Change {
    pub table: &'static str,
    pub uuid: Uuid,
    pub old: Option<Arc<Row>>,
    pub new: Option<Arc<Row>>,
}

/// The rows of a table.
#[derive(Debug)]
struct Table {
    spec: TableSpec,
    /// Per column: what it holds if it is not mentioned, and whether it holds several values.
    columns: Vec<(Datum, bool)>,
    rows: HashMap<Uuid, Arc<Row>>,
    indexes: Vec<HashMap<String, Vec<Uuid>>>,
}

/// A copy of the declared tables, as the server last told.
#[derive(Debug, Default)]
pub struct Replica {
    tables: HashMap<&'static str, Table>,
    texts: Interner,
}

/// The server told something that does not fit what it told before, or its schema.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Inconsistent {
    #[error("the database has no table {0}")]
    NoTable(String),
    #[error("table {0} of the database has no column {1}")]
    NoColumn(String, String),
    #[error("a change of row {1} of table {0}, which was never told of")]
    NoRow(String, Uuid),
    #[error("unreadable update: {0}")]
    Unreadable(String),
}

/// Values are read row by row, so that what they have in common is held once from the start. Names need no escapes.
#[derive(Debug, Deserialize)]
struct Updates<'a>(#[serde(borrow)] HashMap<&'a str, HashMap<Uuid, RowUpdate<'a>>>);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RowUpdate<'a> {
    #[serde(borrow)]
    Initial(Unread<'a>),
    Insert(Unread<'a>),
    Modify(Unread<'a>),
    /// Told with a null.
    Delete(()),
}

#[derive(Debug, Deserialize)]
struct Unread<'a>(#[serde(borrow)] HashMap<&'a str, &'a RawValue>);

impl Unread<'_> {
    fn take(&mut self, column: &str, texts: &mut Interner) -> Result<Option<Datum>, Inconsistent> {
        let Some(value) = self.0.remove(column) else { return Ok(None) };
        let mut reader = serde_json::Deserializer::from_str(value.get());
        let datum = Reading::new(&mut |text: &str| texts.share(text)).deserialize(&mut reader);
        datum.map(Some).map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &serde_json::Error) -> Inconsistent {
    Inconsistent::Unreadable(error.to_string())
}

impl Replica {
    /// An empty one, for these tables of a database with this schema.
    pub fn new(specs: &[TableSpec], schema: &Schema) -> Result<Self, Inconsistent> {
        let mut tables = HashMap::new();
        for spec in specs {
            let table =
                schema.tables.get(spec.name).ok_or_else(|| Inconsistent::NoTable(spec.name.into()))?;
            let column = |name: &&str| {
                let missing = || Inconsistent::NoColumn(spec.name.into(), (*name).to_owned());
                let column = table.columns.get(*name).ok_or_else(missing)?;
                Ok((column.default_value(), column.is_composite()))
            };
            let columns = spec.columns.iter().map(column).collect::<Result<_, _>>()?;
            let indexes = spec.indexes.iter().map(|_| HashMap::new()).collect();
            tables.insert(spec.name, Table { spec: spec.clone(), columns, rows: HashMap::new(), indexes });
        }
        Ok(Replica { tables, texts: Interner::default() })
    }

    /// Goes on with the columns of another, which a later schema may have changed.
    pub(crate) fn fit(&mut self, other: Replica) {
        for (name, table) in other.tables {
            match self.tables.entry(name) {
                Entry::Occupied(mut known) => known.get_mut().columns = table.columns,
                Entry::Vacant(place) => drop(place.insert(table)),
            }
        }
    }

    /// The row of that number.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables.get(table)?.rows.get(&uuid)
    }

    /// All rows of a table, in no order.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.tables.get(table).into_iter().flat_map(|table| table.rows.values())
    }

    /// How many rows a table has.
    pub fn count(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, |table| table.rows.len())
    }

    /// The rows that a declared index has under a key.
    pub fn find<'a>(
        &'a self,
        table: &str,
        index: &str,
        key: &str,
    ) -> impl Iterator<Item = &'a Arc<Row>> + use<'a> {
        let table = self.tables.get(table);
        let place = table.and_then(|table| table.spec.indexes.iter().position(|known| known.name == index));
        debug_assert!(place.is_some(), "no index {index} was declared");
        let found = table.zip(place).and_then(|(table, place)| Some((table, table.indexes[place].get(key)?)));
        found.into_iter().flat_map(|(table, uuids)| uuids.iter().filter_map(|uuid| table.rows.get(uuid)))
    }

    /// The rows that a transaction would change, as they would be then; None where one would be gone.
    ///
    /// It takes into account what the transaction says of rows by their number. What the server does besides is not
    /// foreseen: rows go to which nothing refers any more, and so do references to rows that are gone.
    pub fn after(&self, transaction: &Transaction) -> HashMap<(&'static str, Uuid), Option<Row>> {
        let mut after = HashMap::new();
        for operation in transaction.operations() {
            let (table, uuid) = match operation {
                Operation::Insert { table, uuid, .. }
                | Operation::Update { table, r#where: Rows::Row(uuid), .. }
                | Operation::Mutate { table, r#where: Rows::Row(uuid), .. }
                | Operation::Delete { table, r#where: Rows::Row(uuid) } => (table, *uuid),
                _ => continue,
            };
            let Some(table) = self.tables.get(&**table) else { continue };
            let row = after
                .entry((table.spec.name, uuid))
                .or_insert_with(|| table.rows.get(&uuid).map(|row| Row::clone(row)));
            match (operation, row) {
                (Operation::Insert { row: columns, .. }, row) => {
                    let values = table.columns.iter().map(|(default, _)| default.clone()).collect();
                    let row = row.insert(Row { uuid, columns: table.spec.columns, values });
                    columns.iter().for_each(|(column, value)| row.set(column, value.clone()));
                }
                (Operation::Update { row: columns, .. }, Some(row)) => {
                    columns.iter().for_each(|(column, value)| row.set(column, value.clone()));
                }
                (Operation::Mutate { mutations, .. }, Some(row)) => {
                    for (column, mutator, value) in mutations {
                        row.set(column, row.get(column).mutated(*mutator, value));
                    }
                }
                (Operation::Delete { .. }, row) => *row = None,
                _ => {}
            }
        }
        after.retain(|(table, uuid), row| self.row(table, *uuid).map(Arc::as_ref) != row.as_ref());
        after
    }

    /// Takes in what the server told, as JSON of `update2`, and says what is different now. Where `whole`, everything it did not mention
    /// is gone. What does not fit changes nothing, so that whoever follows the changes has the same rows as this.
    pub fn apply(&mut self, updates: &str, whole: bool) -> Result<Vec<Change>, Inconsistent> {
        let Updates(updates) = serde_json::from_str(updates).map_err(|error| unreadable(&error))?;
        let mut told = HashMap::new();
        for (name, rows) in updates {
            let table = self.tables.get(name).ok_or_else(|| Inconsistent::NoTable(name.into()))?;
            let texts = &mut self.texts;
            let rows = rows.into_iter().map(|(uuid, update)| Ok((uuid, table.after(uuid, update, texts)?)));
            told.insert(table.spec.name, rows.collect::<Result<HashMap<_, _>, _>>()?);
        }
        let mut changes = Vec::new();
        for table in self.tables.values_mut() {
            let told = told.remove(table.spec.name).unwrap_or_default();
            if whole {
                let gone: Vec<Uuid> =
                    table.rows.keys().copied().filter(|uuid| !told.contains_key(uuid)).collect();
                changes.extend(gone.into_iter().filter_map(|uuid| table.set(uuid, None)));
            }
            changes.extend(told.into_iter().filter_map(|(uuid, row)| table.set(uuid, row)));
        }
        Ok(changes)
    }
}

impl Table {
    /// A row after an update of it.
    fn after(
        &self,
        uuid: Uuid,
        update: RowUpdate<'_>,
        texts: &mut Interner,
    ) -> Result<Option<Row>, Inconsistent> {
        let (mut unread, old) = match update {
            RowUpdate::Delete(()) => return Ok(None),
            RowUpdate::Initial(columns) | RowUpdate::Insert(columns) => (columns, None),
            RowUpdate::Modify(columns) => {
                let missing = || Inconsistent::NoRow(self.spec.name.into(), uuid);
                (columns, Some(self.rows.get(&uuid).ok_or_else(missing)?))
            }
        };
        let columns = self.spec.columns.iter().zip(&self.columns).enumerate();
        let values = columns.map(|(place, (name, (default, composite)))| {
            let told = unread.take(name, texts)?;
            Ok(match (old.map(|old| &old.values[place]), told) {
                (None, told) => told.unwrap_or_else(|| default.clone()),
                (Some(old), None) => old.clone(),
                (Some(old), Some(difference)) if *composite => old.changed(&difference),
                (Some(_), Some(new)) => new,
            })
        });
        let values = values.collect::<Result<_, _>>()?;
        Ok(Some(Row { uuid, columns: self.spec.columns, values }))
    }

    fn set(&mut self, uuid: Uuid, new: Option<Row>) -> Option<Change> {
        // Told again, as it was: nothing changed.
        if self.rows.get(&uuid).map(Arc::as_ref) == new.as_ref() {
            return None;
        }
        let new = new.map(Arc::new);
        let old = match &new {
            Some(row) => self.rows.insert(uuid, Arc::clone(row)),
            None => self.rows.remove(&uuid),
        };
        for (index, spec) in self.indexes.iter_mut().zip(self.spec.indexes) {
            let keys = |row: &Option<Arc<Row>>| row.as_deref().map_or_else(Vec::new, spec.keys);
            let (before, after) = (keys(&old), keys(&new));
            for key in before.iter().filter(|key| !after.contains(key)) {
                if let Some(uuids) = index.get_mut(key) {
                    uuids.retain(|known| *known != uuid);
                    if uuids.is_empty() {
                        index.remove(key);
                    }
                }
            }
            for key in after.into_iter().filter(|key| !before.contains(key)) {
                // Most keys are of one row.
                index.entry(key).or_insert_with(|| Vec::with_capacity(1)).push(uuid);
            }
        }
        Some(Change { table: self.spec.name, uuid, old, new })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mutator;
    use serde_json::json;

    const SPEC: TableSpec = TableSpec {
        name: "T",
        columns: &["name", "ports", "ids"],
        indexes: &[Index { name: "name", keys: |row| row.get("name").texts().map(str::to_owned).collect() }],
    };

    fn replica() -> Replica {
        let schema = json!({"name": "D", "version": "1", "tables": {"T": {"columns": {
            "name": {"type": "string"},
            "ports": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
            "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
        }}}});
        Replica::new(&[SPEC], &serde_json::from_value(schema).unwrap()).unwrap()
    }

    fn one() -> Uuid {
        Uuid::from_u128(1)
    }

    fn tell(replica: &mut Replica, update: &serde_json::Value) -> Vec<Change> {
        replica.apply(&json!({"T": {one().to_string(): update}}).to_string(), false).unwrap()
    }

    fn found(replica: &Replica, name: &str) -> usize {
        replica.find("T", "name", name).count()
    }

    #[test]
    fn rows_come_change_and_go() {
        let mut replica = replica();
        tell(
            &mut replica,
            &json!({"insert": {"name": "a", "ports": ["set", [1, 2]], "ids": ["map", [["k", "v"], ["l", "w"]]]}}),
        );
        assert_eq!((found(&replica, "a"), replica.count("T")), (1, 1));

        let changes = tell(
            &mut replica,
            &json!({"modify": {"name": "b", "ports": ["set", [2, 3]], "ids": ["map", [["k", "v"], ["l", "x"], ["m", "y"]]]}}),
        );
        let row = replica.row("T", one()).unwrap();
        assert_eq!(row.get("ports"), &[1, 3].into_iter().collect::<Datum>());
        assert_eq!(row.get("ids"), &[("l", "x"), ("m", "y")].into_iter().collect::<Datum>());
        assert_eq!((found(&replica, "a"), found(&replica, "b")), (0, 1));
        assert_eq!(changes[0].old.as_ref().unwrap().get("name").text(), Some("a"));

        tell(&mut replica, &json!({"delete": null}));
        assert_eq!((found(&replica, "b"), replica.count("T")), (0, 0));
    }

    #[test]
    fn what_is_not_mentioned_has_its_default() {
        let mut replica = replica();
        tell(&mut replica, &json!({"insert": {}}));
        let row = replica.row("T", one()).unwrap();
        assert_eq!(row.get("name").text(), Some(""));
        assert_eq!(row.get("ports"), &Datum::EMPTY);
        assert_eq!(row.get("nothing"), &Datum::EMPTY);
    }

    #[test]
    fn a_whole_copy_removes_what_it_does_not_mention() {
        let mut replica = replica();
        tell(&mut replica, &json!({"insert": {"name": "old"}}));
        let other = Uuid::from_u128(2);
        let changes = replica
            .apply(&json!({"T": {other.to_string(): {"initial": {"name": "new"}}}}).to_string(), true)
            .unwrap();
        assert_eq!(changes.len(), 2);
        assert_eq!((found(&replica, "old"), found(&replica, "new")), (0, 1));
        let again = json!({"T": {other.to_string(): {"initial": {"name": "new"}}}}).to_string();
        assert!(replica.apply(&again, true).unwrap().is_empty(), "nothing is different");
        assert_eq!(replica.apply("{}", true).unwrap().len(), 1);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut replica = replica();
        let modify = json!({"T": {one().to_string(): {"modify": {}}}}).to_string();
        assert_eq!(replica.apply(&modify, false).unwrap_err(), Inconsistent::NoRow("T".into(), one()));
        assert_eq!(replica.apply(r#"{"U":{}}"#, false).unwrap_err(), Inconsistent::NoTable("U".into()));
        assert!(matches!(replica.apply("[]", false), Err(Inconsistent::Unreadable(_))));
        let half = json!({"T": {one().to_string(): {"insert": {}}, Uuid::nil().to_string(): {"modify": {}}}});
        assert!(replica.apply(&half.to_string(), true).is_err());
        assert_eq!(replica.count("T"), 0, "all of an update, or nothing");
    }

    #[test]
    fn what_a_transaction_does_is_foreseen() {
        let mut replica = replica();
        tell(
            &mut replica,
            &json!({"insert": {"name": "a", "ports": ["set", [1, 2]], "ids": ["map", [["k", "v"], ["l", "w"]]]}}),
        );
        let (gone, new) = (Uuid::from_u128(2), Uuid::from_u128(3));
        replica.apply(&json!({"T": {gone.to_string(): {"insert": {}}}}).to_string(), false).unwrap();

        let ids = |entries: &[(&str, &str)]| entries.iter().copied().collect::<Datum>();
        let numbers = |numbers: &[i64]| numbers.iter().copied().collect::<Datum>();
        let mut transaction = Transaction::new();
        transaction.delete("T", Rows::Row(gone));
        transaction.insert("T", new, crate::Columns::new().with("name", "new"));
        transaction.mutate("T", Rows::Row(new), "ports", Mutator::Insert, 7.into());
        transaction.update("T", Rows::Row(one()), crate::Columns::new().with("name", "b"));
        transaction.mutate("T", Rows::Row(one()), "ports", Mutator::Insert, numbers(&[2, 3]));
        transaction.mutate("T", Rows::Row(one()), "ports", Mutator::Delete, numbers(&[1, 9]));
        transaction.mutate("T", Rows::Row(one()), "ids", Mutator::Insert, ids(&[("k", "other"), ("m", "x")]));
        transaction.mutate("T", Rows::Row(one()), "ids", Mutator::Delete, ["l"].into_iter().collect());
        let foreseen = replica.after(&transaction);

        // As the server tells the same.
        let told = json!({"T": {
            gone.to_string(): {"delete": null},
            new.to_string(): {"insert": {"name": "new", "ports": 7}},
            one().to_string(): {"modify": {"name": "b", "ports": ["set", [1, 3]], "ids": ["map", [["l", "w"], ["m", "x"]]]}},
        }});
        let changes = replica.apply(&told.to_string(), false).unwrap();
        assert_eq!(changes.len(), foreseen.len());
        for change in changes {
            let row = &foreseen[&(change.table, change.uuid)];
            assert_eq!(row.as_ref(), change.new.as_deref());
        }

        let mut nothing = Transaction::new();
        nothing.update("T", Rows::Row(one()), crate::Columns::new().with("name", "b"));
        nothing.mutate("T", Rows::Row(one()), "ids", Mutator::Delete, ids(&[("k", "another value")]));
        nothing.delete("T", Rows::Row(gone));
        assert!(replica.after(&nothing).is_empty());
    }
}

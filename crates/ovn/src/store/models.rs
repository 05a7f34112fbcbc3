//! The objects as the database has them, kept in step with its replica.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use portcullis_ovsdb::{Change, Journal, Row};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::error;
use uuid::Uuid;

use super::{FORMAT, FORMAT_KEY, JOURNAL};
use crate::model::Model;
use crate::rows::{self, Meaning, meaning, owns_key};
use crate::tables::columns;

/// How long after a change of our rows by somebody else it is undone: who makes it in several steps is waited for.
pub(super) const SOON: Duration = Duration::from_millis(100);

/// How long after a change of another server all rows are looked at. That server notices what came with its change, unless
/// it ended meanwhile; looking at everything takes too long to be done each time.
const LATER: Duration = Duration::from_secs(60);

/// The objects, and who wants to know of new ones.
pub(super) struct Models {
    current: RwLock<Arc<Model>>,
    expected: Mutex<Option<Expected>>,
    /// Whether something else came than what was expected.
    surprised: AtomicBool,
    generation: watch::Sender<u64>,
    /// When to look whether all rows are as the objects need them.
    check: watch::Sender<Option<Instant>>,
}

/// A change on its way: the objects after it, and the rows that the database then tells of.
pub(super) struct Expected {
    pub(super) base: Arc<Model>,
    pub(super) model: Arc<Model>,
    pub(super) rows: HashMap<(&'static str, Uuid), Option<Row>>,
}

/// What an update is, compared with what is expected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// That, and nothing else.
    Same,
    /// That, and what is no harm.
    More,
    /// Something else.
    Other,
}

impl Default for Models {
    fn default() -> Self {
        Models {
            current: RwLock::default(),
            expected: Mutex::default(),
            surprised: AtomicBool::new(false),
            generation: watch::channel(0).0,
            check: watch::channel(None).0,
        }
    }
}

impl Models {
    pub(super) fn current(&self) -> Arc<Model> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says which change is on its way.
    pub(super) fn expect(&self, expected: Expected) {
        *self.expected() = Some(expected);
    }

    /// Says that nothing is on its way any more, and tells whether something else came instead.
    pub(super) fn was_surprised(&self) -> bool {
        *self.expected() = None;
        self.surprised.swap(false, Ordering::Relaxed)
    }

    fn expected(&self) -> MutexGuard<'_, Option<Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the number of the last change.
    pub(super) fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Follows when to look at all rows.
    pub(super) fn check(&self) -> watch::Receiver<Option<Instant>> {
        self.check.subscribe()
    }

    /// All rows are to be looked at after a while, at the latest.
    pub(super) fn check_within(&self, time: Duration) {
        let then = Instant::now() + time;
        self.check.send_if_modified(|check| {
            let sooner = check.is_none_or(|known| then < known);
            if sooner {
                *check = Some(then);
            }
            sooner
        });
    }

    /// All rows are being looked at.
    pub(super) fn checking(&self) {
        self.check.send_replace(None);
    }

    /// Takes in what the replica learnt.
    pub(super) fn follow(&self, changes: &[Change]) {
        let current = self.current();
        let counted = changes.iter().find(|change| change.uuid == JOURNAL);
        let expected = counted.and_then(|_| self.expected().take());
        let likeness = expected
            .as_ref()
            .zip(counted)
            .map_or(Likeness::Other, |(expected, counted)| expected.likeness(changes, counted));
        let was_expecting = expected.is_some();
        if was_expecting && likeness == Likeness::Other {
            self.surprised.store(true, Ordering::Relaxed);
        }
        let model = match expected {
            Some(expected) if likeness == Likeness::Same && Arc::ptr_eq(&expected.base, &current) => {
                if cfg!(debug_assertions) {
                    assert_read_as_written(&expected.model, &read(&current, changes), changes);
                }
                expected.model
            }
            _ => Arc::new(read(&current, changes)),
        };
        let generation = model.generation;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = model;
        self.generation.send_replace(generation);
        if counted.is_some() && !was_expecting {
            self.check_within(LATER);
        } else if counted.is_none() && changes.iter().any(is_disturbing) {
            self.check_within(SOON);
        }
    }
}

impl Expected {
    fn likeness(&self, changes: &[Change], counted: &Change) -> Likeness {
        let journal = counted.new.as_deref().filter(|row| format_of(row) == Some(FORMAT));
        if journal.map(generation_of) != Some(self.model.generation) {
            return Likeness::Other;
        }
        let mut likeness = Likeness::Same;
        let mut missing = self.rows.len();
        for change in changes.iter().filter(|change| change.uuid != JOURNAL) {
            match self.rows.get(&(change.table, change.uuid)) {
                Some(row) if row.as_ref() == change.new.as_deref() => missing -= 1,
                None if !is_disturbing(change) => likeness = Likeness::More,
                _ => return Likeness::Other,
            }
        }
        if missing == 0 { likeness } else { Likeness::Other }
    }
}

fn generation_of(journal: &Row) -> u64 {
    Journal::generation_in(journal.get("records"))
}

fn format_of(journal: &Row) -> Option<&str> {
    journal.get("external_ids").value_of(FORMAT_KEY)
}

/// The objects after some changes of rows.
fn read(current: &Model, changes: &[Change]) -> Model {
    let mut model = current.clone();
    let telling = || changes.iter().filter(|change| !says_the_same(change));
    for change in telling() {
        model.unreadable.remove_mut(&change.uuid);
        if let Some(old) = &change.old
            && let Meaning::Object(kind) = meaning(old)
            && change.new.as_ref().map(|new| meaning(new)) != Some(Meaning::Object(kind))
        {
            rows::forget(&mut model, change.table, kind, change.uuid);
        }
    }
    for change in telling() {
        if change.uuid == JOURNAL {
            model.generation = change.new.as_ref().map_or(0, |row| generation_of(row));
            let format = change.new.as_deref().and_then(format_of);
            if let Some(format) = format.filter(|format| *format != FORMAT) {
                let why =
                    format!("row {JOURNAL} of {}: another Portcullis writes format {format}", change.table);
                error!(
                    format,
                    known = FORMAT,
                    "another Portcullis writes a format that this one does not know"
                );
                model.unreadable.insert_mut(JOURNAL, why.into());
            }
        } else if let Some(new) = &change.new
            && let Meaning::Object(kind) = meaning(new)
            && let Err(error) = rows::read(&mut model, change.table, kind, new)
        {
            let why = format!("row {} of {}, a {}: {error}", change.uuid, change.table, kind.name());
            error!(table = change.table, row = %change.uuid, kind = kind.name(), %error, "a row of ours cannot be read");
            rows::forget(&mut model, change.table, kind, change.uuid);
            model.unreadable.insert_mut(change.uuid, why.into());
        }
    }
    model
}

/// Whether the object of a row is the same after a change, which was of what follows from objects.
fn says_the_same(change: &Change) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if change.uuid != JOURNAL => {
            ["external_ids", "up"].into_iter().all(|column| old.get(column) == new.get(column))
        }
        _ => false,
    }
}

/// Whether a row of ours was changed in something that we decide on.
fn is_disturbing(change: &Change) -> bool {
    let ours = |row: &Option<Arc<Row>>| row.as_ref().is_some_and(|row| meaning(row) != Meaning::Foreign);
    if !ours(&change.old) && !ours(&change.new) {
        return false;
    }
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => columns(change.table).iter().any(|column| {
            let (old, new) = (old.get(column), new.get(column));
            let entries = || old.entries().iter().chain(new.entries());
            let of_ours = |key: Option<&str>| {
                key.is_some_and(|key| {
                    owns_key(change.table, column, key) && old.value_of(key) != new.value_of(key)
                })
            };
            match *column {
                // Whether a machine is plugged in, and with which address, is for OVN to say.
                "up" | "dynamic_addresses" => false,
                _ if entries().next().is_some() => entries().any(|(key, _)| of_ours(key.as_text())),
                _ => old != new,
            }
        }),
        _ => true,
    }
}

/// That reading what was written gives what was meant.
fn assert_read_as_written(expected: &Model, read: &Model, changes: &[Change]) {
    for row in changes.iter().flat_map(|change| [&change.old, &change.new]).flatten() {
        if let Meaning::Object(kind) = meaning(row) {
            let (meant, found) = (expected.describe(kind, row.uuid()), read.describe(kind, row.uuid()));
            assert_eq!(meant, found, "what a row says is not what was written");
        }
    }
    assert_eq!(expected.generation, read.generation);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::draft::Draft;
    use crate::objects::{Meta, SecurityGroup};
    use crate::schema;
    use crate::tables::{NOTE, PORT_GROUP, specs};
    use portcullis_ovsdb::Replica;
    use serde_json::{Value, json};

    /// Objects that follow a replica, and are told what a server would tell.
    struct Followed {
        models: Models,
        replica: Replica,
    }

    impl Followed {
        fn new() -> Self {
            let text = std::fs::read_to_string("/usr/share/ovn/ovn-nb.ovsschema").unwrap();
            let schema = schema::parse(&text).unwrap();
            Followed { models: Models::default(), replica: Replica::new(&specs(), &schema).unwrap() }
        }

        fn told(&mut self, updates: &Value) {
            let changes = self.replica.apply(&updates.to_string(), false).unwrap();
            self.models.follow(&changes);
        }

        /// A group that is on its way, and how the server tells of its row.
        fn expect_group(&self, generation: u64) -> (Uuid, Value) {
            let base = self.models.current();
            let mut draft = Draft::new(Arc::clone(&base));
            let meta = Meta { id: Uuid::new_v4(), name: "group".into(), ..Meta::default() };
            let id = meta.id;
            draft.put(SecurityGroup { meta, ..SecurityGroup::default() });
            let plan = draft.plan(&Options::default(), &self.replica);
            let rows = self.replica.after(&plan.transaction);
            let row = rows[&(PORT_GROUP, id)].clone().unwrap();
            let mut model = draft.model().clone();
            model.generation = generation;
            self.models.expect(Expected { base, model: Arc::new(model), rows });
            (id, json!({"insert": {"name": row.get("name"), "external_ids": row.get("external_ids")}}))
        }
    }

    fn counted(generation: u64) -> Value {
        let records = json!(["map", [["generation", generation.to_string()]]]);
        let ids = json!(["map", [[FORMAT_KEY, FORMAT]]]);
        json!({JOURNAL.to_string(): {"insert": {"records": records, "external_ids": ids}}})
    }

    #[test]
    fn what_was_expected_is_taken_over() {
        let mut followed = Followed::new();
        let (id, row) = followed.expect_group(1);
        followed.told(&json!({NOTE: counted(1), PORT_GROUP: {id.to_string(): row}}));
        let model = followed.models.current();
        assert!(model.generation == 1 && model.get::<SecurityGroup>(id).is_some());
        assert!(!followed.models.was_surprised());
    }

    #[test]
    fn what_comes_with_it_is_noticed() {
        for tampered in ["another row", "another value", "another number", "nothing at all"] {
            let mut followed = Followed::new();
            let (id, mut row) = followed.expect_group(1);
            let mut generation = 1;
            let mut rows = serde_json::Map::new();
            let theirs =
                json!({"insert": {"name": "x", "external_ids": ["map", [["portcullis:kind", "derived"]]]}});
            match tampered {
                "another row" => drop(rows.insert(Uuid::new_v4().to_string(), theirs)),
                "another value" => row["insert"]["name"] = json!("other"),
                "another number" => generation = 2,
                _ => {}
            }
            if tampered != "nothing at all" {
                rows.insert(id.to_string(), row);
            }
            followed.told(&json!({NOTE: counted(generation), PORT_GROUP: rows}));
            assert!(followed.models.was_surprised(), "{tampered}");
            let there = followed.models.current().get::<SecurityGroup>(id).is_some();
            assert_eq!(there, tampered != "nothing at all", "what the rows say counts");
        }
    }

    #[test]
    fn what_comes_with_the_change_of_another_server_is_looked_at_later() {
        let mut followed = Followed::new();
        let check = followed.models.check();
        followed.told(&json!({NOTE: counted(1)}));
        let due = check.borrow().expect("it is looked at");
        assert!(due > Instant::now() + SOON && due <= Instant::now() + LATER);
        followed.models.checking();

        let (id, row) = followed.expect_group(2);
        let records = json!(["map", [["generation", "2"]]]);
        let counted = json!({JOURNAL.to_string(): {"modify": {"records": records}}});
        followed.told(&json!({NOTE: counted, PORT_GROUP: {id.to_string(): row}}));
        assert_eq!(*check.borrow(), None, "of our own we know all");

        let tampered = json!({id.to_string(): {"modify": {"name": "other"}}});
        followed.told(&json!({ PORT_GROUP: tampered }));
        assert!(check.borrow().is_some_and(|due| due <= Instant::now() + SOON));
    }

    #[test]
    fn what_is_no_harm_is_no_surprise() {
        let mut followed = Followed::new();
        let (id, row) = followed.expect_group(1);
        let theirs = json!({"insert": {"name": "theirs"}});
        let rows = json!({id.to_string(): row, Uuid::new_v4().to_string(): theirs});
        followed.told(&json!({NOTE: counted(1), PORT_GROUP: rows}));
        assert!(!followed.models.was_surprised());
        assert!(followed.models.current().get::<SecurityGroup>(id).is_some());
    }
}

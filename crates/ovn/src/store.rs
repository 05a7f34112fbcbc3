//! The objects in a northbound database: read from a replica, changed one transaction at a time.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use portcullis_ovsdb::{
    Change, Client, Columns, CommitError, Journal, Place, Remote, Row, Schema, Settings, Tls, Transaction,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::draft::{Draft, mend};
use crate::model::Model;
use crate::ovirt::{self, Survey};
use crate::rows::{self, Meaning, meaning};
use crate::tables::{ADDRESS_SET, DHCP_OPTIONS, NOTE, PORT_GROUP, ROUTER, SWITCH, specs};
use crate::{Options, flat, schema};

/// Where the database is, and how to treat it.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Where it is served; of a cluster, all members.
    pub remotes: Vec<Remote>,
    pub tls: Option<Tls>,
    /// Whether a change counts as made only once it is on disk.
    pub durable: bool,
    /// Whether others may have rows in the same database.
    pub coexist: bool,
    /// Whether nothing may be changed.
    pub read_only: bool,
    pub options: Options,
}

/// See the module. Cloned, it is the same store.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    models: Arc<Models>,
    options: Options,
    jobs: mpsc::Sender<Box<dyn Work>>,
    opened: watch::Receiver<Option<Result<(), OpenError>>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("client", &self.inner.client).finish_non_exhaustive()
    }
}

/// Why a database cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the northbound database has version {version} of its schema, which lacks {missing}. Upgrade OVN to 23.03 or later",
        missing = missing.join(", ")
    )]
    TooOld { version: String, missing: Vec<String> },
    #[error(
        "the northbound database was written by a later Portcullis, in format {found}; this one knows format {FORMAT}. \
         Nothing was changed. Use the later one"
    )]
    TooNew { found: String },
    #[error(
        "the northbound database has rows that are not ours: {0}. Nothing was changed. \
         If another system may keep its rows there, set networking.northbound.coexist to true: its rows are then never touched"
    )]
    Foreign(String),
    #[error("the rows that objects need could not be written: {0}")]
    Mend(String),
}

/// Why a change was not made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done.
    #[error("the northbound database cannot be used now: {0}")]
    Unavailable(String),
    /// It was made, or it was not.
    #[error("the connection to the northbound database was lost while it was changed: look whether it was")]
    InDoubt,
    /// Nothing was done, and trying again would not help.
    #[error("the northbound database refused the change: {0}")]
    Refused(String),
    /// Nothing was done: without all objects no decision is safe.
    #[error(
        "the northbound database has a row that cannot be read, and until it can, nothing is changed: {0}. \
         Mend its external_ids, or remove them if it is not ours"
    )]
    Unreadable(Arc<str>),
    /// Nothing may be changed.
    #[error("this server only watches (mode: observe): it changes nothing")]
    ReadOnly,
}

/// A change that is not made, for its own reason or the store's.
#[derive(Clone, Debug)]
pub enum Rejected<E> {
    /// The decision was against it.
    Decided(E),
    Store(StoreError),
}

/// The version of the encoding that is written.
pub const FORMAT: &str = "1";

/// The row of the journal: one per database.
const JOURNAL: Uuid = Uuid::from_u128(0x706f_7274_6375_6c6c_6973_6a6f_7572_6e61);
/// What it is called where other rows have their kind.
const JOURNAL_KIND: &str = "journal";
const FORMAT_KEY: &str = "portcullis:format";

/// How many changes share a transaction at most, so that one of them does not wait for too many others.
const BATCH: usize = 64;

/// How long after a change of our rows by somebody else it is undone.
const CALM: Duration = Duration::from_millis(100);

impl Store {
    /// Starts following a database. Must be called within a tokio runtime.
    pub fn start(settings: StoreSettings) -> Self {
        let StoreSettings { remotes, tls, durable, coexist, read_only, options } = settings;
        let models = Arc::new(Models::default());
        let observer = Arc::clone(&models);
        let database = schema::DATABASE.to_owned();
        let client = Client::observed(
            Settings { remotes, tls, database, tables: specs(), leader_only: true },
            move |changes: &[Change]| observer.follow(changes),
        );
        let place = Place {
            table: NOTE,
            row: JOURNAL,
            column: "records",
            columns: Columns::new().with(
                "external_ids",
                [(flat::KIND, JOURNAL_KIND), (FORMAT_KEY, FORMAT)]
                    .into_iter()
                    .collect::<portcullis_ovsdb::Datum>(),
            ),
        };
        let journal =
            Journal::new(client.clone(), place).expect("the table of notes is replicated").durable(durable);
        let (jobs, queue) = mpsc::channel(1024);
        let (opening, opened) = watch::channel(None);
        let writer =
            Writer { client: client.clone(), models: Arc::clone(&models), journal, options: options.clone() };
        tokio::spawn(writer.run(queue, opening, coexist, read_only));
        Store { inner: Arc::new(Inner { client, models, options, jobs, opened }) }
    }

    /// Waits until the database was found to be one that can be used, however long it takes.
    pub async fn opened(&self) -> Result<(), OpenError> {
        let mut opened = self.inner.opened.clone();
        match opened.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            // The writer ends with the program only.
            Err(_) => Ok(()),
        }
    }

    /// Whether objects can be read; they can while the connection is lost.
    pub fn is_open(&self) -> bool {
        matches!(&*self.inner.opened.borrow(), Some(Ok(())))
    }

    /// Whether the database can be reached just now, and if not, why.
    pub fn state(&self) -> Result<(), Arc<str>> {
        self.inner.client.state()
    }

    /// The schema of the database, once it was reached.
    pub fn schema(&self) -> Option<Arc<Schema>> {
        self.inner.client.schema()
    }

    /// The objects, as of now.
    pub fn model(&self) -> Arc<Model> {
        self.inner.models.current()
    }

    /// What a draft would do to the database.
    pub fn transaction(&self, draft: &Draft) -> Transaction {
        self.inner.client.read(|replica| draft.transaction(&self.inner.options, replica))
    }

    /// What would have to be done to the database so that it holds what its objects need: nothing, unless somebody else
    /// changed rows of ours.
    pub fn drift(&self) -> Transaction {
        loop {
            let model = self.model();
            let drift = self.inner.client.read(|replica| {
                // The objects are a moment behind the rows while a change comes in.
                let row = replica.row(NOTE, JOURNAL);
                let generation = row.and_then(|row| row.get("records").value_of("generation")?.parse().ok());
                (generation.unwrap_or(0) == model.generation)
                    .then(|| mend(&model, &self.inner.options, replica))
            });
            match drift {
                Some(drift) => return drift,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Decides on a change and makes it. The decision may be asked several times, on newer objects each time, and only
    /// the last one counts; what it answers is handed out once the database has the change.
    pub async fn change<T, E>(
        &self,
        decide: impl FnMut(&mut Draft) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Rejected<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let (reply, outcome) = oneshot::channel();
        let job = Job { decide, decided: None, reply };
        let closed = || Rejected::Store(StoreError::Unavailable("the server is stopping".to_owned()));
        self.inner.jobs.send(Box::new(job)).await.map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }
}

impl Store {
    /// What the rows of ovirt-provider-ovn in the database would become, for a project to have them.
    pub fn survey_ovirt(&self, project: &str, now: i64) -> Survey {
        let model = self.model();
        self.inner.client.read(|replica| ovirt::survey(replica, &model, project, now))
    }

    /// Adopts the rows of ovirt-provider-ovn, in one transaction. What no object can be made of is left as it is, with
    /// all that hangs together with it, or nothing is adopted at all.
    pub async fn adopt_ovirt(
        &self,
        project: String,
        now: i64,
        leave: bool,
    ) -> Result<Survey, Rejected<Box<Survey>>> {
        let client = self.inner.client.clone();
        self.change(move |draft| {
            let survey = client.read(|replica| ovirt::survey(replica, draft.model(), &project, now));
            if !survey.findings.is_empty() && !leave {
                return Err(Box::new(survey));
            }
            survey.apply(draft);
            Ok(survey)
        })
        .await
    }
}

/// The objects, and who wants to know of new ones.
struct Models {
    current: RwLock<Arc<Model>>,
    generation: watch::Sender<u64>,
    /// Told when somebody changed rows of ours behind our back.
    disturbed: Notify,
}

impl Default for Models {
    fn default() -> Self {
        Models { current: RwLock::default(), generation: watch::channel(0).0, disturbed: Notify::new() }
    }
}

impl Models {
    fn current(&self) -> Arc<Model> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in what the replica learnt.
    fn follow(&self, changes: &[Change]) {
        let mut model = Model::clone(&self.current());
        let before = model.generation;
        for change in changes {
            model.unreadable.remove_mut(&change.uuid);
            if let Some(old) = &change.old
                && let Meaning::Object(kind) = meaning(old)
                && change.new.as_ref().map(|new| meaning(new)) != Some(Meaning::Object(kind))
            {
                rows::forget(&mut model, change.table, kind, change.uuid);
            }
        }
        for change in changes {
            if change.uuid == JOURNAL {
                let records = change.new.as_ref().and_then(|row| row.get("records").value_of("generation"));
                model.generation = records.and_then(|text| text.parse().ok()).unwrap_or_default();
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
        let generation = model.generation;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(model);
        self.generation.send_replace(generation);
        if generation == before && changes.iter().any(is_disturbing) {
            self.disturbed.notify_one();
        }
    }
}

/// Whether a row of ours was changed in something that we decide on.
fn is_disturbing(change: &Change) -> bool {
    let ours = |row: &Option<Arc<Row>>| row.as_ref().is_some_and(|row| meaning(row) != Meaning::Foreign);
    if !ours(&change.old) && !ours(&change.new) {
        return false;
    }
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let spec = specs().into_iter().find(|spec| spec.name == change.table);
            // Whether a machine is plugged in is for OVN to say.
            let columns = spec.map_or(&[][..], |spec| spec.columns).iter().filter(|column| **column != "up");
            columns.into_iter().any(|column| old.get(column) != new.get(column))
        }
        _ => true,
    }
}

/// A change that waits for its turn.
trait Work: Send {
    /// Whether the decision is for a change.
    fn decide(&mut self, draft: &mut Draft) -> bool;
    /// Answers who asked.
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Job<T, E, D> {
    decide: D,
    decided: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, Rejected<E>>>,
}

impl<T: Send, E: Send, D: FnMut(&mut Draft) -> Result<T, E> + Send> Work for Job<T, E, D> {
    fn decide(&mut self, draft: &mut Draft) -> bool {
        self.decided.insert((self.decide)(draft)).is_ok()
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let answer = match (self.decided, outcome) {
            (Some(Err(error)), _) => Err(Rejected::Decided(error)),
            (_, Err(error)) => Err(Rejected::Store(error)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(Rejected::Store(StoreError::Unavailable("it was not decided".to_owned()))),
        };
        // Who asked may have gone.
        let _ = self.reply.send(answer);
    }
}

struct Writer {
    client: Client,
    models: Arc<Models>,
    journal: Journal,
    options: Options,
}

impl Writer {
    async fn run(
        mut self,
        mut queue: mpsc::Receiver<Box<dyn Work>>,
        opening: watch::Sender<Option<Result<(), OpenError>>>,
        coexist: bool,
        read_only: bool,
    ) {
        let opened = {
            let open = self.open(coexist, read_only);
            tokio::pin!(open);
            loop {
                tokio::select! {
                    outcome = &mut open => break outcome,
                    work = queue.recv() => match work {
                        Some(work) => work.finish(Err(StoreError::Unavailable("it is not open yet".to_owned()))),
                        None => return,
                    },
                }
            }
        };
        let refusal = match &opened {
            Err(error) => Some(StoreError::Unavailable(error.to_string())),
            Ok(()) => read_only.then_some(StoreError::ReadOnly),
        };
        opening.send_replace(Some(opened));
        let mut batch = Vec::with_capacity(BATCH);
        let models = Arc::clone(&self.models);
        loop {
            let received = tokio::select! {
                received = queue.recv_many(&mut batch, BATCH) => received,
                () = models.disturbed.notified(), if refusal.is_none() => {
                    self.undo().await;
                    continue;
                }
            };
            match &refusal {
                _ if received == 0 => return,
                Some(error) => batch.drain(..).for_each(|work| work.finish(Err(error.clone()))),
                None => self.write(std::mem::take(&mut batch)).await,
            }
        }
    }

    /// Makes the changes of a batch in one transaction; all of them, except those that were decided against.
    async fn write(&mut self, mut batch: Vec<Box<dyn Work>>) {
        loop {
            let base = self.models.current();
            if let Some(why) = base.unreadable.values().next() {
                let error = StoreError::Unreadable(Arc::clone(why));
                return batch.into_iter().for_each(|work| work.finish(Err(error.clone())));
            }
            let basis = base.generation;
            let mut draft = Draft::new(base);
            for work in &mut batch {
                let before = draft.clone();
                if !work.decide(&mut draft) {
                    draft = before;
                }
            }
            let outcome = self.commit(&draft, basis).await;
            match outcome {
                Err(CommitError::Stale) => self.newer_than(basis).await,
                // One of them is to blame; the others shall not suffer.
                Err(CommitError::Refused(_)) if batch.len() > 1 => {
                    for work in batch {
                        Box::pin(self.write(vec![work])).await;
                    }
                    return;
                }
                outcome => {
                    let outcome = outcome.map_err(|error| match error {
                        CommitError::Unavailable(error) => StoreError::Unavailable(error.to_string()),
                        CommitError::Refused(error) => {
                            error!(%error, "the northbound database refused a change");
                            StoreError::Refused(error.to_string())
                        }
                        CommitError::Stale | CommitError::InDoubt(_) => StoreError::InDoubt,
                    });
                    for work in batch {
                        work.finish(outcome.clone());
                    }
                    return;
                }
            }
        }
    }

    async fn commit(&mut self, draft: &Draft, basis: u64) -> Result<(), CommitError> {
        let transaction = self.client.read(|replica| draft.transaction(&self.options, replica));
        if transaction.is_empty() { Ok(()) } else { self.journal.commit(transaction, basis).await }
    }

    /// Waits for objects on which another writer's change can be seen. It is a matter of moments; if the connection is
    /// lost meanwhile, the next attempt says so.
    async fn newer_than(&self, basis: u64) {
        let mut generation = self.models.generation.subscribe();
        let newer = generation.wait_for(|generation| *generation != basis);
        let _ = tokio::time::timeout(Duration::from_secs(1), newer).await;
    }

    /// Waits for the database, checks it and mends what is not as the objects need it.
    async fn open(&mut self, coexist: bool, read_only: bool) -> Result<(), OpenError> {
        loop {
            while self.client.connected(Duration::from_secs(10)).await.is_err() {
                warn!(why = %self.client.state().err().unwrap_or_default(), "no northbound database yet");
            }
            self.check(coexist)?;
            if read_only {
                return Ok(());
            }
            match self.mend().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(OpenError::Mend(error)),
            }
        }
    }

    /// Puts right what is not as the objects need it. False if it has to be looked at again, an error if it cannot be.
    async fn mend(&mut self) -> Result<bool, String> {
        let model = self.models.current();
        if !model.unreadable.is_empty() {
            return Ok(true);
        }
        let transaction = self.client.read(|replica| mend(&model, &self.options, replica));
        if transaction.is_empty() {
            return Ok(true);
        }
        let operations = transaction.len();
        match self.journal.commit(transaction, model.generation).await {
            Ok(()) => {
                warn!(operations, "rows were not as the objects need them, and were put right");
                Ok(true)
            }
            Err(CommitError::Refused(error)) => Err(error.to_string()),
            Err(CommitError::Stale) => {
                self.newer_than(model.generation).await;
                Ok(false)
            }
            Err(CommitError::Unavailable(_) | CommitError::InDoubt(_)) => Ok(false),
        }
    }

    /// Undoes what somebody did to our rows. Who does it in several steps is waited for.
    async fn undo(&mut self) {
        tokio::time::sleep(CALM).await;
        if let Err(error) = self.mend().await {
            error!(%error, "rows are not as the objects need them, and could not be put right");
        }
    }

    fn check(&self, coexist: bool) -> Result<(), OpenError> {
        if let Some(schema) = self.client.schema() {
            let missing = schema::missing(&schema);
            if !missing.is_empty() {
                return Err(OpenError::TooOld { version: schema.version.clone(), missing });
            }
            info!(version = schema.version, "the northbound database's schema has all that is needed");
        }
        self.client.read(|replica| {
            if let Some(journal) = replica.row(NOTE, JOURNAL) {
                let found = journal.get("external_ids").value_of(FORMAT_KEY).unwrap_or_default();
                if found != FORMAT {
                    return Err(OpenError::TooNew { found: found.to_owned() });
                }
            }
            let foreign: Vec<String> = [SWITCH, ROUTER, PORT_GROUP, ADDRESS_SET, DHCP_OPTIONS]
                .into_iter()
                .filter_map(|table| {
                    let count = replica.rows(table).filter(|row| meaning(row) == Meaning::Foreign).count();
                    (count > 0).then(|| format!("{count} in {table}"))
                })
                .collect();
            match foreign.is_empty() {
                true => Ok(()),
                false if coexist => {
                    info!(
                        rows = foreign.join(", "),
                        "others have rows in this database, which stay untouched"
                    );
                    Ok(())
                }
                false => Err(OpenError::Foreign(foreign.join(", "))),
            }
        })
    }
}

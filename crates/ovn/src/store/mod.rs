//! The objects in a northbound database: read from a replica, changed one transaction at a time.

mod models;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_ovsdb::{Change, Client, Columns, Journal, Place, Remote, Schema, Settings, Tls, Transaction};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::draft::{Draft, mend};
use crate::model::Model;
use crate::ovirt::{self, Survey};
use crate::tables::{NOTE, specs};
use crate::{Options, flat, schema};
use models::Models;
use writer::{Job, Work, Writer};

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
    /// Nothing was done.
    #[error("the change could not be decided on because of a mistake in Portcullis; the log has more")]
    Broken,
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

/// For how long rows that just came in are waited to become objects.
const PATIENCE: Duration = Duration::from_secs(10);

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
        self.inner.client.read(|replica| draft.plan(&self.inner.options, replica).transaction)
    }

    /// What would have to be done to the database so that it holds what its objects need: nothing, unless somebody else
    /// changed rows of ours.
    pub fn drift(&self) -> Transaction {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let model = self.model();
            let drift = self.inner.client.read(|replica| {
                // The objects are a moment behind the rows while a change comes in.
                let row = replica.row(NOTE, JOURNAL);
                let generation = row.map_or(0, |row| Journal::generation_in(row.get("records")));
                (generation == model.generation || Instant::now() > deadline)
                    .then(|| mend(&model, &self.inner.options, replica).transaction)
            });
            match drift {
                Some(drift) => return drift,
                None => std::thread::sleep(Duration::from_millis(1)),
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
        let job = Job::new(decide, reply);
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

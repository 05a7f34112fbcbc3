use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::connection::{Answer, Connection, Ended, Listener, Lost};
use crate::observer::Observer;
use crate::replica::{Change, Index, Replica, TableSpec};
use crate::schema::Schema;
use crate::transaction::{OperationResult, Refused, Transaction, results};
use crate::{Remote, Tls};

/// Which database to follow, and what of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is served; of a cluster, all members.
    pub remotes: Vec<Remote>,
    /// The certificates, if some remotes want them.
    pub tls: Option<Tls>,
    /// Its name.
    pub database: String,
    /// What of it is replicated.
    pub tables: Vec<TableSpec>,
    /// Of a cluster, talk to the leader only: it alone is never behind.
    pub leader_only: bool,
}

/// A client of one database: transactions, and a replica that is kept up to date. Cloned, it is the same client.
///
/// It connects, and connects again, by itself. Who has the result of a transaction finds its changes in the replica.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the replica, which has everything.
        f.debug_struct("Client")
            .field("database", &self.shared.settings.database)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Shared {
    settings: Settings,
    observer: Box<dyn Observer>,
    replica: RwLock<Replica>,
    schema: RwLock<Option<Arc<Schema>>>,
    /// The last transaction that the replica has, for the server to go on from.
    last: Mutex<Option<Uuid>>,
    newest: Mutex<Newest>,
    link: watch::Sender<Link>,
    changes: broadcast::Sender<Arc<[Change]>>,
    copies: AtomicU64,
}

/// How far into the log of which cluster the replica is. A server that is not as far would lead it back: also a
/// leader, which first has to find out how much of its log is agreed upon.
#[derive(Debug, Default, Clone, Copy)]
struct Newest {
    cluster: Option<Uuid>,
    index: i64,
}

/// Whether there is a server to talk to.
#[derive(Debug, Clone)]
enum Link {
    Up(Connection),
    /// And why not.
    Down(Arc<str>),
}

/// Why a transaction has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It was not sent: nothing was done.
    #[error("the database {database} cannot be reached: {why}")]
    Unavailable { database: String, why: Arc<str> },
    /// The connection was lost before the answer came: it was done, or it was not.
    #[error(
        "the connection to the database {database} was lost before it answered: the change was made, or it was not"
    )]
    InDoubt { database: String },
    /// The server refused it: nothing was done.
    #[error("the database {database} refused the change: {refused}")]
    Refused { database: String, refused: Refused },
    /// The server answered something that is no answer.
    #[error("the database {database} gave an answer that makes no sense: {answer}")]
    Nonsense { database: String, answer: String },
}

/// How many updates a follower of changes may be behind before it has to look at everything again.
const CHANGES_KEPT: usize = 4096;

/// For a step of connecting, which takes microseconds on a machine that works.
const STEP: Duration = Duration::from_secs(10);

/// How long a transaction waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two rounds over all remotes: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

impl Client {
    /// Starts following a database. Must be called within a tokio runtime.
    pub fn new(settings: Settings) -> Self {
        Self::observed(settings, |_: &[Change]| {})
    }

    /// Starts following a database, with someone who is told of every change before anybody else can know of it.
    pub fn observed(settings: Settings, observer: impl Observer) -> Self {
        let (link, _) = watch::channel(Link::Down("not connected yet".into()));
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        let shared = Arc::new(Shared {
            settings,
            observer: Box::new(observer),
            replica: RwLock::default(),
            schema: RwLock::default(),
            last: Mutex::default(),
            newest: Mutex::default(),
            link,
            changes,
            copies: AtomicU64::new(0),
        });
        let task = tokio::spawn(follow(Arc::clone(&shared)));
        Client { shared, _task: Arc::new(Task(task)) }
    }

    /// Waits until the replica is complete, as of now; gives the reason if it is not within `patience`.
    pub async fn connected(&self, patience: Duration) -> Result<(), Error> {
        self.connection(patience).await.map(drop)
    }

    /// Whether there is a connection just now, and if not, why.
    pub fn state(&self) -> Result<(), Arc<str>> {
        match &*self.shared.link.borrow() {
            Link::Up(_) => Ok(()),
            Link::Down(why) => Err(Arc::clone(why)),
        }
    }

    /// The schema of the database, once a server told it; also of one that lacks what is to be replicated.
    pub fn schema(&self) -> Option<Arc<Schema>> {
        self.shared.schema.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often everything had to be told anew. Once is the least; a lost connection alone does not add to it where
    /// the server remembers what happened in the meantime.
    pub fn copies(&self) -> u64 {
        self.shared.copies.load(Ordering::Relaxed)
    }

    /// Looks at the replica. Nothing in it changes meanwhile, so be quick.
    pub fn read<T>(&self, look: impl FnOnce(&Replica) -> T) -> T {
        look(&self.shared.replica.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows the changes of the replica from now on, those of one transaction together: for who comes and goes, and
    /// can look at everything again when it falls behind. An [`Observer`] misses nothing.
    pub fn changes(&self) -> broadcast::Receiver<Arc<[Change]>> {
        self.shared.changes.subscribe()
    }

    /// Makes the changes of a transaction, together or not at all, once.
    ///
    /// It waits a while for a connection, and is sent once: what was lost on the way is [`Error::InDoubt`]. What only
    /// reads is sent again.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Vec<OperationResult>, Error> {
        self.transact_within(transaction, PATIENCE).await
    }

    /// The same, with another patience for a connection.
    pub(crate) async fn transact_within(
        &self,
        transaction: &Transaction,
        patience: Duration,
    ) -> Result<Vec<OperationResult>, Error> {
        let database = &self.shared.settings.database;
        let deadline = Instant::now() + patience;
        loop {
            let connection = self.connection(patience).await?;
            match connection.request("transact", transaction.for_database(database)).await {
                Ok(answer) => return self.outcome(answer, transaction),
                // The connection was lost before: another one may be up.
                Err(Lost::Unsent) => sleep(PAUSE.0).await,
                Err(Lost::InDoubt) if transaction.only_reads() && Instant::now() < deadline => {
                    sleep(PAUSE.0).await;
                }
                Err(Lost::InDoubt) => return Err(self.in_doubt()),
            }
        }
    }

    pub(crate) fn in_doubt(&self) -> Error {
        Error::InDoubt { database: self.shared.settings.database.clone() }
    }

    /// Whether the replica has this column.
    pub(crate) fn replicates(&self, table: &str, column: &str) -> bool {
        let tables = &self.shared.settings.tables;
        tables.iter().any(|spec| spec.name == table && spec.columns.contains(&column))
    }

    fn outcome(&self, answer: Answer, transaction: &Transaction) -> Result<Vec<OperationResult>, Error> {
        let database = self.shared.settings.database.clone();
        // An error in place of an answer is about the request as such, of which nothing was done.
        let whole = |error| Refused { operation: transaction.len(), error, details: String::new() };
        let outcome = match answer {
            Err(error) => Err(whole(error)),
            Ok(answer) => results(answer.get()).map_err(|error| {
                let answer = error.to_string();
                Error::Nonsense { database: database.clone(), answer }
            })?,
        };
        outcome.map_err(|refused| Error::Refused { database, refused })
    }

    async fn connection(&self, patience: Duration) -> Result<Connection, Error> {
        let mut link = self.shared.link.subscribe();
        let waited = timeout(patience, link.wait_for(|link| matches!(link, Link::Up(_)))).await;
        if let Ok(Ok(link)) = waited
            && let Link::Up(connection) = &*link
        {
            return Ok(connection.clone());
        }
        let why = self.state().err().unwrap_or_else(|| "it has just come back".into());
        Err(Error::Unavailable { database: self.shared.settings.database.clone(), why })
    }
}

/// Says so if following ends, which only a panic of an observer or an index can do: nobody shall wait in vain.
struct Following(Arc<Shared>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.link.send_replace(Link::Down("the client has failed".into()));
    }
}

/// Connects to one remote after the other, for ever.
async fn follow(shared: Arc<Shared>) {
    let _following = Following(Arc::clone(&shared));
    let mut pause = PAUSE.0;
    loop {
        for remote in &shared.settings.remotes {
            let was_up = matches!(*shared.link.borrow(), Link::Up(_));
            let ended = session(&shared, remote).await;
            let database = &shared.settings.database;
            let served = matches!(*shared.link.borrow(), Link::Up(_));
            if served {
                warn!(%remote, database, why = %ended, "lost the database");
                pause = PAUSE.0;
            } else if was_up {
                info!(%remote, database, why = %ended, "cannot use this server");
            } else {
                debug!(%remote, database, why = %ended, "cannot use this server");
            }
            shared.link.send_replace(Link::Down(format!("{remote}: {ended}").into()));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Connects to a server, checks that it is the right one, takes the replica from it, and stays until the end.
async fn session(shared: &Arc<Shared>, remote: &Remote) -> Ended {
    let stream = match timeout(STEP, remote.connect(shared.settings.tls.as_ref())).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return error.into(),
        Err(_) => return Ended::Unwanted("it does not answer".into()),
    };
    let told = Arc::new(Mutex::new(Told::default()));
    let listener = Follower { shared: Arc::clone(shared), told: Arc::clone(&told) };
    let (connection, work) = Connection::new(stream, listener);
    tokio::pin!(work);
    let set_up = set_up(shared, &connection, &told);
    tokio::select! {
        ended = &mut work => return ended,
        result = set_up => if let Err(ended) = result { return ended },
    }
    info!(%remote, database = shared.settings.database, "following the database");
    shared.link.send_replace(Link::Up(connection));
    work.await
}

async fn set_up(shared: &Shared, connection: &Connection, told: &Mutex<Told>) -> Result<(), Ended> {
    check_server(shared, connection, told).await?;
    let database = &shared.settings.database;
    let schema = ask(connection, "get_schema", json!([database])).await?;
    let schema: Schema = serde_json::from_str(schema.get())?;
    let fresh = Replica::new(&shared.settings.tables, &schema).map_err(Ended::from);
    // Also of a database that lacks something, so that one can say what.
    *shared.schema.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(schema));
    shared.replica.write().unwrap_or_else(PoisonError::into_inner).fit(fresh?);
    let wanted: serde_json::Map<_, _> = shared
        .settings
        .tables
        .iter()
        .map(|table| (table.name.to_owned(), json!([{ "columns": table.columns }])))
        .collect();
    let last = lock(&shared.last).unwrap_or_default();
    let asked = connection.request("monitor_cond_since", json!([database, DATA, wanted, last]));
    // All rows may take their time; a server that has gone silent is noticed.
    let answer = answered("monitor_cond_since", asked.await)?;
    let (found, last, updates): (bool, Uuid, &RawValue) = serde_json::from_str(answer.get())?;
    // What came in the meantime has waited.
    let mut told = lock(told);
    if !found {
        shared.copies.fetch_add(1, Ordering::Relaxed);
    }
    apply(shared, last, updates.get(), !found)?;
    for params in told.data.go_on() {
        data_update(shared, &params)?;
    }
    Ok(())
}

/// The names of our monitors in the server's notifications.
const DATA: &str = "data";
const SERVER: &str = "server";

/// What of the server's own database tells whether this server is the one to talk to.
const SERVER_TABLE: TableSpec = TableSpec {
    name: "Database",
    columns: &["name", "model", "connected", "leader", "cid", "index"],
    indexes: &[Index { name: "name", keys: |row| row.get("name").texts().map(str::to_owned).collect() }],
};

async fn check_server(shared: &Shared, connection: &Connection, told: &Mutex<Told>) -> Result<(), Ended> {
    // Without it the server would cut the connection at every change of its databases.
    ask(connection, "set_db_change_aware", json!([true])).await?;
    let schema = ask(connection, "get_schema", json!(["_Server"])).await?;
    let schema: Schema = serde_json::from_str(schema.get())?;
    let mut replica = Replica::new(&[SERVER_TABLE], &schema).map_err(Ended::from)?;
    let wanted = json!({ SERVER_TABLE.name: [{ "columns": SERVER_TABLE.columns }] });
    let answer = ask(connection, "monitor_cond", json!(["_Server", SERVER, wanted])).await?;
    let mut told = lock(told);
    replica.apply(answer.get(), true).map_err(Ended::from)?;
    for params in told.server.go_on() {
        server_update(&mut replica, &params)?;
    }
    suitable(shared, &replica)?;
    told.server_replica = Some(replica);
    Ok(())
}

/// Whether this server is one to talk to.
fn suitable(shared: &Shared, server: &Replica) -> Result<(), Ended> {
    let database = &shared.settings.database;
    let Some(row) = server.find(SERVER_TABLE.name, "name", database).next() else {
        return Err(Ended::Unwanted(format!("it has no database {database}")));
    };
    let yes = |column: &str| row.get(column).boolean() == Some(true);
    if row.get("model").text() != Some("clustered") {
        return Ok(());
    }
    if !yes("connected") {
        return Err(Ended::Unwanted("it has lost its cluster".into()));
    }
    if shared.settings.leader_only && !yes("leader") {
        return Err(Ended::Unwanted("it does not lead its cluster".into()));
    }
    let now = Newest {
        cluster: row.get("cid").uuids().next(),
        index: row.get("index").integer().unwrap_or_default(),
    };
    let mut newest = lock(&shared.newest);
    if newest.cluster == now.cluster && newest.index > now.index {
        return Err(Ended::Unwanted("it does not have yet what others of its cluster already told".into()));
    }
    *newest = now;
    Ok(())
}

async fn ask(
    connection: &Connection,
    method: &str,
    params: serde_json::Value,
) -> Result<Box<RawValue>, Ended> {
    match timeout(STEP, connection.request(method, params)).await {
        Ok(answer) => answered(method, answer),
        Err(_) => Err(Ended::Unwanted(format!("it does not answer {method}"))),
    }
}

fn answered(method: &str, answer: Result<Answer, Lost>) -> Result<Box<RawValue>, Ended> {
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Ended::Unwanted(format!("it refuses {method}: {error}"))),
        Err(_) => Err(Ended::Closed),
    }
}

/// What the server tells without being asked, until we are ready to take it in.
#[derive(Debug, Default)]
struct Told {
    data: Held,
    server: Held,
    server_replica: Option<Replica>,
}

/// Updates that came before the copy that they change.
#[derive(Debug)]
enum Held {
    Back(Vec<String>),
    No,
}

impl Default for Held {
    fn default() -> Self {
        Held::Back(Vec::new())
    }
}

impl Held {
    /// Whether it has to wait, and does now.
    fn back(&mut self, params: &str) -> bool {
        match self {
            Held::Back(waiting) => {
                waiting.push(params.to_owned());
                true
            }
            Held::No => false,
        }
    }

    /// What has waited; nothing waits from now on.
    fn go_on(&mut self) -> Vec<String> {
        match std::mem::replace(self, Held::No) {
            Held::Back(waiting) => waiting,
            Held::No => Vec::new(),
        }
    }
}

struct Follower {
    shared: Arc<Shared>,
    told: Arc<Mutex<Told>>,
}

impl Listener for Follower {
    fn notified(&mut self, method: &str, params: &str) -> Result<(), Ended> {
        let mut told = lock(&self.told);
        match method {
            "update3" if told.data.back(params) => Ok(()),
            "update3" => data_update(&self.shared, params),
            "update2" if told.server.back(params) => Ok(()),
            "update2" => {
                let Some(replica) = &mut told.server_replica else { return Ok(()) };
                server_update(replica, params)?;
                suitable(&self.shared, replica)
            }
            "monitor_canceled" => Err(Ended::Unwanted("it does not serve the database any more".into())),
            _ => Ok(()),
        }
    }
}

fn data_update(shared: &Shared, params: &str) -> Result<(), Ended> {
    let (_, last, updates): (&RawValue, Uuid, &RawValue) = serde_json::from_str(params)?;
    apply(shared, last, updates.get(), false)
}

fn server_update(replica: &mut Replica, params: &str) -> Result<(), Ended> {
    let (_, updates): (&RawValue, &RawValue) = serde_json::from_str(params)?;
    replica.apply(updates.get(), false).map(drop).map_err(Ended::from)
}

fn apply(shared: &Shared, last: Uuid, updates: &str, whole: bool) -> Result<(), Ended> {
    let outcome = shared.replica.write().unwrap_or_else(PoisonError::into_inner).apply(updates, whole);
    // What cannot be taken in is missing from now on: next time everything has to be told again.
    *lock(&shared.last) = outcome.is_ok().then_some(last);
    let changes = outcome?;
    if !changes.is_empty() {
        shared.observer.changed(&changes);
        // Nobody may be following.
        let _ = shared.changes.send(changes.into());
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Makes changes, several in one transaction where several wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use portcullis_ovsdb::{Client, CommitError, Journal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::models::{Expected, Models, SOON};
use super::{FORMAT, FORMAT_KEY, JOURNAL, OpenError, Rejected, StoreError};
use crate::balancer::is_balancers;
use crate::draft::{Draft, Plan, mend, mend_each};
use crate::model::Model;
use crate::rows::{Meaning, meaning};
use crate::tables::{ADDRESS_SET, DHCP_OPTIONS, NOTE, PORT_GROUP, ROUTER, SWITCH};
use crate::{Options, schema};

/// How many changes share a transaction at most, so that one of them does not wait for too many others.
const BATCH: usize = 64;

/// For so long a change is tried again that comes too late each time, because others change the same.
const PATIENCE: Duration = Duration::from_secs(15);

/// A change that waits for its turn.
pub(super) trait Work: Send {
    /// Whether the decision is for a change.
    fn decide(&mut self, draft: &mut Draft) -> bool;
    /// Since when it waits.
    fn since(&self) -> Instant;
    /// Answers who asked.
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

pub(super) struct Job<T, E, D> {
    decide: D,
    decided: Option<Result<T, E>>,
    /// Whether it was decided on what the database has, and not on changes that others wanted at the same time.
    alone: bool,
    since: Instant,
    reply: oneshot::Sender<Result<T, Rejected<E>>>,
}

impl<T, E, D> Job<T, E, D> {
    pub(super) fn new(decide: D, reply: oneshot::Sender<Result<T, Rejected<E>>>) -> Self {
        Job { decide, decided: None, alone: false, since: Instant::now(), reply }
    }
}

impl<T: Send, E: Send, D: FnMut(&mut Draft) -> Result<T, E> + Send> Work for Job<T, E, D> {
    fn decide(&mut self, draft: &mut Draft) -> bool {
        self.alone = draft.is_empty();
        self.decided.insert((self.decide)(draft)).is_ok()
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let answer = match (self.decided, outcome) {
            // What it was decided against for may not have come about.
            (Some(Err(_)), Err(error)) if !self.alone => Err(Rejected::Store(error)),
            (Some(Err(error)), _) => Err(Rejected::Decided(error)),
            (_, Err(error)) => Err(Rejected::Store(error)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(Rejected::Store(StoreError::Broken)),
        };
        // Who asked may have gone.
        let _ = self.reply.send(answer);
    }
}

type Batch = Vec<Box<dyn Work>>;

pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) models: Arc<Models>,
    pub(super) journal: Journal,
    pub(super) options: Options,
}

impl Writer {
    pub(super) async fn run(
        self,
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
        let mut check = self.models.check();
        loop {
            let mut batch = Vec::new();
            let due = *check.borrow_and_update();
            tokio::select! {
                received = queue.recv_many(&mut batch, BATCH) => match &refusal {
                    _ if received == 0 => return,
                    Some(error) => finish(batch, error),
                    None => {
                        gather(&mut queue, &mut batch).await;
                        if let Err(error) = self.write(batch).await {
                            // Who came meanwhile would wait for the same.
                            while let Ok(work) = queue.try_recv() {
                                work.finish(Err(error.clone()));
                            }
                        }
                    }
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && refusal.is_none() => {
                    if !self.mend().await {
                        self.models.check_within(SOON);
                    }
                }
                Ok(()) = check.changed() => {}
            }
        }
    }

    /// Makes the changes of a batch in one transaction; all of them, except those that were decided against. An error
    /// if the database cannot be used.
    async fn write(&self, mut batch: Batch) -> Result<(), StoreError> {
        loop {
            let base = self.models.current();
            if let Some(why) = base.unreadable.values().next() {
                finish(batch, &StoreError::Unreadable(Arc::clone(why)));
                return Ok(());
            }
            let draft = decide(&mut batch, &base);
            match self.commit(&draft).await {
                Ok(()) => {
                    for work in batch {
                        work.finish(Ok(()));
                    }
                    return Ok(());
                }
                Err(Uncommitted::Late) => {
                    self.newer_than(base.generation).await;
                    let late: Batch =
                        batch.extract_if(.., |work| work.since().elapsed() > PATIENCE).collect();
                    finish(late, &StoreError::Unavailable("others change it all the time".to_owned()));
                    if batch.is_empty() {
                        return Ok(());
                    }
                }
                // One of them is to blame; the others shall not suffer.
                Err(Uncommitted::For(StoreError::Refused(_) | StoreError::Broken)) if batch.len() > 1 => {
                    let mut works = batch.into_iter();
                    while let Some(work) = works.next() {
                        if let Err(error) = Box::pin(self.write(vec![work])).await {
                            finish(works.collect(), &error);
                            return Err(error);
                        }
                    }
                    return Ok(());
                }
                Err(Uncommitted::For(error)) => {
                    finish(batch, &error);
                    return match error {
                        StoreError::Unavailable(_) => Err(error),
                        _ => Ok(()),
                    };
                }
            }
        }
    }

    async fn commit(&self, draft: &Draft) -> Result<(), Uncommitted> {
        let plan =
            catch_unwind(AssertUnwindSafe(|| self.client.read(|replica| draft.plan(&self.options, replica))));
        let plan = plan.map_err(|_| Uncommitted::For(StoreError::Broken))?;
        if plan.transaction.is_empty() {
            return Ok(());
        }
        self.carry_out(plan, draft.base(), draft.model()).await.map_err(|error| match error {
            CommitError::Stale => Uncommitted::Late,
            CommitError::Unavailable(error) => Uncommitted::For(StoreError::Unavailable(error.to_string())),
            CommitError::Refused(error) => {
                error!(%error, "the northbound database refused a change");
                Uncommitted::For(StoreError::Refused(error.to_string()))
            }
            CommitError::InDoubt(_) => Uncommitted::For(StoreError::InDoubt),
        })
    }

    /// Makes the change that leads from some objects to others.
    async fn carry_out(&self, plan: Plan, base: &Arc<Model>, model: &Model) -> Result<(), CommitError> {
        let generation = base.generation;
        let mut rows = self.client.read(|replica| replica.after(&plan.transaction));
        rows.extend(plan.gone.into_iter().map(|row| (row, None)));
        let mut model = model.clone();
        model.generation += 1;
        let model = Arc::new(model);
        self.models.expect(Expected { base: Arc::clone(base), model, rows });
        let outcome = self.journal.commit(plan.transaction, generation).await;
        if self.models.was_surprised() && matches!(outcome, Ok(()) | Err(CommitError::InDoubt(_))) {
            self.models.check_within(SOON);
        }
        outcome
    }

    /// Waits for objects on which another writer's change can be seen. It is a matter of moments; if the connection is
    /// lost meanwhile, the next attempt says so.
    async fn newer_than(&self, basis: u64) {
        let mut generation = self.models.generation();
        let newer = generation.wait_for(|generation| *generation != basis);
        let _ = tokio::time::timeout(Duration::from_secs(1), newer).await;
    }

    /// Waits for the database, checks it and mends what is not as the objects need it.
    async fn open(&self, coexist: bool, read_only: bool) -> Result<(), OpenError> {
        loop {
            while self.client.connected(Duration::from_secs(10)).await.is_err() {
                self.check_schema()?;
                warn!(why = %self.client.state().err().unwrap_or_default(), "no northbound database yet");
            }
            self.check(coexist)?;
            if read_only || self.mend().await {
                return Ok(());
            }
        }
    }

    /// Puts right what is not as the objects need it. False if it has to be looked at again.
    async fn mend(&self) -> bool {
        self.models.checking();
        let model = self.models.current();
        if !model.unreadable.is_empty() {
            return true;
        }
        let plan = self.client.read(|replica| mend(&model, &self.options, replica));
        let operations = plan.transaction.len();
        if operations == 0 {
            return true;
        }
        match self.carry_out(plan, &model, &model).await {
            Ok(()) => {
                warn!(operations, "rows were not as the objects need them, and were put right");
                true
            }
            Err(CommitError::Refused(_)) => self.mend_each().await,
            Err(CommitError::Stale) => {
                self.newer_than(model.generation).await;
                false
            }
            Err(CommitError::Unavailable(_) | CommitError::InDoubt(_)) => false,
        }
    }

    /// The same row by row, so that one that the database does not take leaves the others be.
    async fn mend_each(&self) -> bool {
        let model = self.models.current();
        let plans = self.client.read(|replica| mend_each(&model, &self.options, replica));
        for (row, plan) in plans {
            let model = self.models.current();
            let (table, row) = row.map_or(("", Uuid::nil()), |row| row);
            match self.carry_out(plan, &model, &model).await {
                Ok(()) => warn!(table, %row, "a row was not as the objects need it, and was put right"),
                Err(CommitError::Refused(error)) => {
                    error!(table, %row, %error, "a row is not as the objects need it, and cannot be put right");
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn check_schema(&self) -> Result<(), OpenError> {
        let Some(schema) = self.client.schema() else { return Ok(()) };
        let missing = schema::missing(&schema);
        if missing.is_empty() {
            return Ok(());
        }
        Err(OpenError::TooOld { version: schema.version.clone(), missing })
    }

    fn check(&self, coexist: bool) -> Result<(), OpenError> {
        self.check_schema()?;
        if let Some(schema) = self.client.schema() {
            info!(version = schema.version, "the northbound database's schema has all that is needed");
        }
        self.client.read(|replica| {
            if let Some(journal) = replica.row(NOTE, JOURNAL) {
                let found = journal.get("external_ids").value_of(FORMAT_KEY).unwrap_or_default();
                if found != FORMAT {
                    return Err(OpenError::TooNew { found: found.to_owned() });
                }
            }
            let foreign: Vec<String> = [SWITCH, ROUTER, PORT_GROUP, ADDRESS_SET, DHCP_OPTIONS, NOTE]
                .into_iter()
                .filter_map(|table| {
                    let foreign = replica.rows(table).filter(|row| meaning(row) == Meaning::Foreign);
                    // What the load balancers of ours need is nobody else's.
                    let foreign = foreign.filter(|row| row.uuid() != JOURNAL && !is_balancers(row));
                    let count = foreign.count();
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

/// Why a change was not made.
enum Uncommitted {
    /// The objects were others by then.
    Late,
    For(StoreError),
}

/// Adds what comes while everybody else who has something to do does it: those who just got an answer often ask again.
async fn gather(queue: &mut mpsc::Receiver<Box<dyn Work>>, batch: &mut Batch) {
    let mut known = 0;
    while known < batch.len() && batch.len() < BATCH {
        known = batch.len();
        tokio::task::yield_now().await;
        while batch.len() < BATCH
            && let Ok(work) = queue.try_recv()
        {
            batch.push(work);
        }
    }
}

fn finish(batch: Batch, error: &StoreError) {
    for work in batch {
        work.finish(Err(error.clone()));
    }
}

/// The objects after the changes of a batch, one on top of the other, without those that were decided against. Who
/// breaks down in deciding is answered and taken out.
fn decide(batch: &mut Batch, base: &Arc<Model>) -> Draft {
    if let Some(draft) = decide_boldly(batch, base) {
        return draft;
    }
    let mut draft = Draft::new(Arc::clone(base));
    let mut left = Vec::with_capacity(batch.len());
    for mut work in batch.drain(..) {
        let before = draft.clone();
        match catch_unwind(AssertUnwindSafe(|| work.decide(&mut draft))) {
            Ok(true) => left.push(work),
            Ok(false) => {
                draft = before;
                left.push(work);
            }
            Err(_) => {
                draft = before;
                work.finish(Err(StoreError::Broken));
            }
        }
    }
    *batch = left;
    draft
}

/// The same without a copy before each decision, which would have to be made of all that is then changed. None if
/// one is needed: somebody changed something, and then decided against it.
fn decide_boldly(batch: &mut Batch, base: &Arc<Model>) -> Option<Draft> {
    let mut draft = Draft::new(Arc::clone(base));
    for work in batch {
        let edits = draft.edits();
        let decided = catch_unwind(AssertUnwindSafe(|| work.decide(&mut draft))).ok()?;
        if !decided && draft.edits() != edits {
            return None;
        }
    }
    Some(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Meta, Network};

    type Reply = oneshot::Receiver<Result<(), Rejected<&'static str>>>;

    /// Somebody who adds a network, and then says what he thinks of it.
    fn job(name: &'static str, opinion: fn() -> Result<(), &'static str>) -> (Box<dyn Work>, Reply) {
        let (reply, answer) = oneshot::channel();
        let decide = move |draft: &mut Draft| {
            let meta = Meta { id: Uuid::new_v4(), name: name.to_owned(), ..Meta::default() };
            draft.put(Network { meta, ..Network::default() });
            opinion()
        };
        (Box::new(Job::new(decide, reply)), answer)
    }

    fn names(draft: &Draft) -> Vec<String> {
        let mut names: Vec<_> = draft.all::<Network>(None).map(|network| network.meta.name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn of_who_decides_against_it_nothing_is_left() {
        let (mut batch, _answers): (Batch, Vec<_>) =
            [job("a", || Ok(())), job("b", || Err("no")), job("c", || Ok(()))].into_iter().unzip();
        let draft = decide(&mut batch, &Arc::default());
        assert_eq!((names(&draft), batch.len()), (vec!["a".to_owned(), "c".to_owned()], 3));
    }

    #[test]
    fn who_breaks_down_is_answered_and_taken_out() {
        let (mut batch, mut answers): (Batch, Vec<_>) =
            [job("a", || Ok(())), job("b", || panic!("a mistake that a test makes"))].into_iter().unzip();
        let draft = decide(&mut batch, &Arc::default());
        assert_eq!((names(&draft), batch.len()), (vec!["a".to_owned()], 1));
        let answer = answers[1].try_recv().unwrap();
        assert!(matches!(answer, Err(Rejected::Store(StoreError::Broken))), "{answer:?}");
    }

    #[test]
    fn a_refusal_for_what_did_not_come_about_is_none() {
        let (mut batch, mut answers): (Batch, Vec<_>) =
            [job("a", || Err("alone")), job("b", || Ok(())), job("c", || Err("after b"))].into_iter().unzip();
        decide(&mut batch, &Arc::default());
        finish(batch, &StoreError::InDoubt);
        let [a, b, c] = [0, 1, 2].map(|place: usize| answers[place].try_recv().unwrap());
        assert!(matches!(a, Err(Rejected::Decided("alone"))), "{a:?}");
        assert!(matches!(b, Err(Rejected::Store(StoreError::InDoubt))), "{b:?}");
        assert!(matches!(c, Err(Rejected::Store(StoreError::InDoubt))), "{c:?}");
    }
}

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::Datum;
use crate::client::{Client, Error};
use crate::transaction::{Columns, Refused, Rows, Transaction, Until};

/// Makes changes exactly once, and only if nobody else made any since one looked: for several writers, in several
/// processes, that decide on what they read.
///
/// One row of the database counts the changes. Who wants to make one takes [`generation`](Self::generation), looks at
/// the replica, decides, and [`commit`](Self::commit)s on that generation. All writers of the same data must use the
/// same row, and nobody may remove it.
///
/// Its map column holds the number of the last change, `generation`, and for each writer the number of the last change
/// that it made. Every change first waits, for no time, for the whole column to be as it was last seen, and sets it:
/// of all changes on generation N, at most one is ever made, the one that makes it N + 1.
///
/// That is why a change whose answer was lost can be sent again as it is. If the second sending is made, the first was
/// not, and never will be, wherever it still is: in a server's queue, or in the log of a former leader of a cluster. A
/// server evaluates the wait on the state that the change is then applied to; a cluster's leader takes a change only if
/// that state is the end of its log, and the log never changes behind a change that was answered. So the first would
/// have to find generation N at a place of the log after N + 1. If the second sending is refused because the column is
/// different, the column itself tells whether the first was made: then the writer stands there with N + 1. A cluster's
/// server that lost its leader sends changes again on its own; the same holds for them.
#[derive(Debug)]
pub struct Journal {
    client: Client,
    place: Place,
    durable: bool,
    patience: Duration,
    /// One change at a time. Taken out meanwhile: who gives up on a change never comes back under the same name, so
    /// that what stands under a name is about the change at hand.
    writer: Mutex<Option<Writer>>,
}

/// Where a journal is kept. The column must be replicated, and hold a map from text to text.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its table, whose rows stay when no other row refers to them.
    pub table: &'static str,
    pub row: Uuid,
    pub column: &'static str,
    /// What else the row has when the first change creates it.
    pub columns: Columns,
}

/// The place of a journal is not among what the client replicates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of table {table} is not replicated")]
pub struct NotReplicated {
    pub table: &'static str,
    pub column: &'static str,
}

/// Why a change was not made, or may not have been.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// It was not made: someone else made one since, or the database never had that generation. Look again and decide
    /// anew.
    #[error("someone else changed the database meanwhile")]
    Stale,
    /// It was not made: the server refused it. Operations are counted as in the transaction that was given.
    #[error("the database refused the change: {0}")]
    Refused(Refused),
    /// It was not made: it could not be sent.
    #[error(transparent)]
    Unavailable(Error),
    /// It was made, or it was not, or it still will be.
    #[error("whether the change was made could not be found out: {0}")]
    InDoubt(Error),
}

#[derive(Debug, Clone, Copy)]
struct Writer {
    id: Uuid,
    /// The generation that it last made.
    made: u64,
}

/// The column as last seen.
struct Seen {
    generation: u64,
    /// None if the row does not exist.
    column: Option<Datum>,
}

const GENERATION: &str = "generation";

/// For so many generations it is remembered who made one.
const REMEMBERED: u64 = 1000;

const PATIENCE: Duration = Duration::from_secs(15);

/// Before another look at a replica that is behind.
const PAUSE: Duration = Duration::from_millis(20);

/// The operations that come before those of the given transaction.
const OWN_OPERATIONS: usize = 2;

impl Journal {
    /// A journal that is not durable. Each has a name of its own, so that several can be in one process.
    pub fn new(client: Client, place: Place) -> Result<Self, NotReplicated> {
        let Place { table, column, .. } = place;
        if !client.replicates(table, column) {
            return Err(NotReplicated { table, column });
        }
        let writer = Mutex::new(None);
        Ok(Journal { client, place, durable: false, patience: PATIENCE, writer })
    }

    /// Whether a change counts as made only once it is on disk. A cluster's always is.
    #[must_use]
    pub fn durable(self, durable: bool) -> Self {
        Journal { durable, ..self }
    }

    /// How long to try to find out what became of a change after the connection was lost.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Journal { patience, ..self }
    }

    /// The number of the last change in the replica; 0 before the first. Take it before looking at anything else: a
    /// change that comes between the two then makes a commit fail that did not see it.
    pub fn generation(&self) -> u64 {
        self.look().generation
    }

    /// Makes a change that was decided on what was seen at generation `basis`. Then the generation is one more.
    ///
    /// After a lost connection it finds out whether the change was made, and makes it if not. Dropped before it is
    /// ready, the change is in doubt. One is made after the other: several changes at a time go into one transaction.
    pub async fn commit(&self, transaction: Transaction, basis: u64) -> Result<(), CommitError> {
        let mut known = self.writer.lock().await;
        let writer = known.take().filter(|writer| writer.made <= basis);
        let writer = writer.unwrap_or_else(|| Writer { id: Uuid::new_v4(), made: 0 });
        let outcome = self.make(transaction, basis, writer.id).await;
        let made = match outcome {
            Ok(()) => Some(basis + 1),
            Err(CommitError::InDoubt(_)) => None,
            Err(_) => Some(writer.made),
        };
        *known = made.map(|made| Writer { made, ..writer });
        outcome
    }

    async fn make(&self, transaction: Transaction, basis: u64, me: Uuid) -> Result<(), CommitError> {
        let mut sent = false;
        let mut doubt = self.client.in_doubt();
        let mut deadline = None;
        loop {
            let seen = self.look();
            if seen.generation > basis {
                return match sent {
                    true if seen.made_by(me) == Some(basis + 1) => Ok(()),
                    // Too long ago to tell who made the one that is asked about.
                    true if seen.generation > basis + REMEMBERED => Err(CommitError::InDoubt(doubt)),
                    _ => Err(CommitError::Stale),
                };
            }
            // Otherwise this server is behind what we have seen.
            if seen.generation == basis {
                let sending = self.sending(&seen, &transaction, me);
                let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
                let patience = deadline.map_or(self.patience, left);
                let again = std::mem::replace(&mut sent, true);
                match self.client.transact_within(&sending, patience).await {
                    Ok(_) => return Ok(()),
                    // The next look tells why.
                    Err(Error::Refused { refused, .. }) if is_about_the_column(&refused) => {}
                    Err(Error::Refused { refused, .. }) if !again => {
                        return Err(CommitError::Refused(without_own_operations(refused)));
                    }
                    Err(error @ Error::Unavailable { .. }) if !again => {
                        return Err(CommitError::Unavailable(error));
                    }
                    // It does not tell what became of an earlier sending.
                    Err(error @ Error::Refused { .. }) => return Err(CommitError::InDoubt(error)),
                    Err(error) => doubt = error,
                }
            }
            if self.generation() <= basis {
                if *deadline.get_or_insert_with(|| Instant::now() + self.patience) <= Instant::now() {
                    return Err(if sent { CommitError::InDoubt(doubt) } else { CommitError::Stale });
                }
                sleep(PAUSE).await;
            }
        }
    }

    /// The number of the last change in the column of a journal.
    pub fn generation_in(column: &Datum) -> u64 {
        number_of(column, GENERATION).unwrap_or(0)
    }

    fn look(&self) -> Seen {
        let column = self.client.read(|replica| {
            let row = replica.row(self.place.table, self.place.row)?;
            Some(row.get(self.place.column).clone())
        });
        let generation = column.as_ref().map_or(0, Self::generation_in);
        Seen { generation, column }
    }

    /// The transaction, on condition that the column is as seen, with the column as it then is.
    fn sending(&self, seen: &Seen, transaction: &Transaction, me: Uuid) -> Transaction {
        let Place { table, row, column, ref columns } = self.place;
        let new = Columns::new().with(column, seen.next(me));
        let mut sending = Transaction::new();
        let expected = seen.column.iter().map(|seen| Columns::new().with(column, seen.clone())).collect();
        sending.wait(table, Rows::Row(row), &[column], Until::Equal, expected);
        if seen.column.is_some() {
            sending.update(table, Rows::Row(row), new);
        } else {
            sending.insert(table, row, columns.clone().and(new));
        }
        sending.append(transaction.clone());
        if self.durable {
            sending.durable();
        }
        sending
    }
}

impl Seen {
    /// The generation that a writer last made, if it is remembered.
    fn made_by(&self, writer: Uuid) -> Option<u64> {
        number_of(self.column.as_ref()?, &writer.to_string())
    }

    /// The column after one change more.
    fn next(&self, me: Uuid) -> Datum {
        let (generation, me) = (self.generation + 1, me.to_string());
        let is_kept = |(key, value): &(&str, &str)| {
            let forgotten =
                || value.parse().is_ok_and(|made: u64| made.saturating_add(REMEMBERED) <= generation);
            // What is no writer is not ours.
            *key != GENERATION && *key != me && !(key.parse::<Uuid>().is_ok() && forgotten())
        };
        let entries = self.column.as_ref().map_or(&[][..], Datum::entries);
        let entries = entries.iter().filter_map(|(key, value)| Some((key.as_text()?, value.as_text()?)));
        let now = generation.to_string();
        entries.filter(is_kept).chain([(GENERATION, &*now), (&*me, &*now)]).collect()
    }
}

fn number_of(column: &Datum, key: &str) -> Option<u64> {
    // Not more than what one can still count on from.
    column.value_of(key)?.parse().ok().filter(|number| *number < u64::MAX / 2)
}

fn is_about_the_column(refused: &Refused) -> bool {
    refused.operation == 0 && refused.is_unexpected()
}

fn without_own_operations(refused: Refused) -> Refused {
    Refused { operation: refused.operation.saturating_sub(OWN_OPERATIONS), ..refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_counts_and_forgets() {
        let [me, recent, old] = [1, 2, 3].map(Uuid::from_u128);
        let column = [
            ("generation".to_owned(), "2000"),
            (recent.to_string(), "1002"),
            (old.to_string(), "1001"),
            ("note".to_owned(), "7"),
        ];
        let seen = Seen { generation: 2000, column: Some(column.into_iter().collect()) };
        let expected = [
            ("generation".to_owned(), "2001"),
            (me.to_string(), "2001"),
            (recent.to_string(), "1002"),
            ("note".to_owned(), "7"),
        ];
        let next = seen.next(me);
        assert_eq!(next, expected.into_iter().collect());
        let beyond: Datum = [("generation", u64::MAX.to_string())].into_iter().collect();
        assert_eq!(number_of(&beyond, GENERATION), None);
        let seen = Seen { generation: 2001, column: Some(next) };
        assert_eq!([me, recent, old].map(|writer| seen.made_by(writer)), [Some(2001), Some(1002), None]);
        let first = Seen { generation: 0, column: None }.next(me);
        assert_eq!(first, [("generation".to_owned(), "1"), (me.to_string(), "1")].into_iter().collect());
    }
}

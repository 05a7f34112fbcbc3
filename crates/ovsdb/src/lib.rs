//! A client of OVSDB, the protocol and the databases of Open vSwitch and OVN (RFC 7047, and what ovsdb-server(7)
//! adds to it).
//!
//! [`Client`] follows one database: it holds a [`Replica`] of the tables declared in [`Settings`], which is always
//! up to date with the answers it gives, and sends [`Transaction`]s, many at a time. It reconnects by itself, goes on
//! where it stopped, and follows the leader of a cluster. A [`Journal`] makes changes exactly once, also when an answer
//! is lost, and only on what the decision was made on.

mod atom;
mod client;
mod connection;
mod datum;
mod frames;
#[cfg(test)]
mod hostile;
mod interner;
mod journal;
mod observer;
mod remote;
mod replica;
mod schema;
mod tls;
mod transaction;

pub use atom::Atom;
pub use client::{Client, Error, Settings};
pub use datum::Datum;
pub use journal::{CommitError, Journal, NotReplicated, Place};
pub use observer::Observer;
pub use remote::{Remote, UnknownRemote};
pub use replica::{Change, Inconsistent, Index, Replica, Row, TableSpec};
pub use schema::{Column, Schema, Table};
pub use tls::Tls;
pub use transaction::{Columns, Mutator, OperationResult, Refused, Rows, Transaction, Until};

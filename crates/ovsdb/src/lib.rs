#![doc = include_str!("../README.md")]

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
#[cfg(test)]
mod silence;
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

//! A client of OVSDB.

mod connection;
mod frames;
mod remote;
mod replica;
mod schema;
mod transaction;
mod value;
pub use remote::{Remote, UnknownRemote};
pub use replica::{Change, Inconsistent, Index, Replica, Row, TableSpec};
pub use schema::{Column, Schema, Table};
pub use transaction::{Columns, Mutator, OperationResult, Refused, Rows, Transaction, Until};
pub use value::{Atom, Datum};

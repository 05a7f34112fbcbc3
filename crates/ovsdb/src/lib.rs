//! A client of OVSDB.

mod frames;
mod schema;
mod transaction;
mod value;
pub use schema::{Column, Schema, Table};
pub use transaction::*;
pub use value::{Atom, Datum};

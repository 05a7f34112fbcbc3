//! A client of OVSDB.

mod frames;
mod value;
pub use value::{Atom, Datum};

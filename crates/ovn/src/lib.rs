//! OVN's northbound database: what Portcullis needs of it.

mod schema;

pub use schema::{Schema, Unreadable};

//! OVN's northbound database: what Portcullis needs of it.

pub mod schema;

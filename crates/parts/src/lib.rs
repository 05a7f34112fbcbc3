//! The real programs that Portcullis works with, started on this machine: a Kubernetes API, OVN, an AWS
//! simulator. `portcullis up` and the tests start them the same way.
//!
//! Everything started here ends with the process that started it, however that process ends, and lives on
//! sockets, ports and directories of its own, so that several can run side by side.

mod aws_site;
mod certificates;
mod error;
mod interrupt;
mod namespace;
mod port;
mod process;
mod scratch;

pub mod aws_simulator;
pub mod catalogue;
pub mod install;
pub mod kubernetes;
pub mod ovn;

pub use aws_simulator::AwsSimulator;
pub use aws_site::{AwsSite, join_nodes};
pub use certificates::{Authority, Identity};
pub use error::Error;
pub use interrupt::{interrupt, interrupted};
pub use namespace::Namespace;
pub use port::Port;
pub use process::{Launch, Process, answers, run};
pub use scratch::Scratch;

/// The result of starting or asking a part.
pub type Result<T> = std::result::Result<T, Error>;

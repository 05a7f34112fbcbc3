//! Network load balancers: what is wanted, what is there, and the steps between.

mod adopt;
mod arrange;
mod asked;
mod clock;
mod decide;
mod defaults;
mod execute;
mod fleet;
mod listing;
mod look;
mod members;
mod names;
mod node_side;
mod provider;
mod record;
mod recorded;
mod refresh;
mod release;
mod round;
mod rules;
mod settings;
mod simulation;
mod snapshot;
mod spec;
mod step;
mod subnets;
#[cfg(test)]
mod tests;
mod view;
mod words;

pub use adopt::{Estate, Maker};
pub use asked::{PREFIX, TargetKind};
pub use clock::Clock;
pub use fleet::{Fleet, REGION, Site, Usual, VPC};
pub use members::HOLD;
pub use provider::{Held, Provider, members};
pub use record::{Record, RecordError};
pub use recorded::Recorded;
pub use release::GivenRules;
pub use settings::{MemberReports, NodeRules, Settings};
pub(crate) use spec::instance_id;

//! The nftables datapath of a node: who may connect to a frontend, and where its connections go.
//!
//! ```text
//!  frontends, mode, interfaces ─▶ desired ─▶ Ruleset ─┐
//!                                                     ├─▶ difference ─▶ Plan ─▶ batches of rules and of elements
//!  kernel ─────────────────────▶ read, once ─▶ Ruleset┘
//! ```
//!
//! All of it is in one table, `inet portcullis`. Its **skeleton** (sets, chains, rules) is small, and the same for one
//! frontend and for ten thousand. What differs between frontends are **elements** of hash sets and maps, which have the
//! address, protocol and port of their frontend in their key: no two frontends share one, and a change of a frontend is a
//! change of its elements. A batch holds whole frontends, so each changes in one step: who may connect and where it goes
//! change together, and nobody gets further in between than before or after.
//!
//! - Ranges are looked at for every packet, ahead of address translation: who is excluded loses connections as well.
//! - There is a set of ranges for every length of prefix in use: a hash takes no longer with more ranges, where one set of
//!   intervals would be copied by the kernel for every change.
//! - Everything is said to the kernel by netlink: it takes no program, and one change does not wait for another.
//! - No packet marks: what was translated, and how, follows from what conntrack knows of the connection.

mod changes;

mod element;
mod error;
mod frontend;
mod kernel;
mod others;
mod ruleset;
mod skeleton;
mod sync;
mod wire;

pub use changes::{Change, Finish, Plan, difference};

pub use element::{Element, Verdict};
pub use error::Error;
pub use frontend::{ClientAddress, Frontend, FrontendError, Place};
pub use kernel::{Count, Counters};
pub use others::Others;
pub use ruleset::{Interface, Mode, Ruleset, desired};
pub use skeleton::Skeleton;
pub use sync::{Datapath, Synced};

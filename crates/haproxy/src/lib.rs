//! A machine that balances with HAProxy: a supervised real one, which has its configuration file first and is then told by
//! its runtime interface, so that no connection is lost to a change.
//!
//! ```text
//!  wanted ─▶ claims ─▶ file ─┐
//!                            ├─▶ next ─▶ steps ─▶ files, then the master and its workers
//!  Look ─────────────────────┘                                    │
//!    ▲                                                            │
//!    └──────────── `show proc`, `show stat`, … ◀──────────────────┘
//! ```
//!
//! - **File first.** A reload reads the file and nothing else: it forgets members that only the runtime interface knew, and
//!   brings back those that were only taken away there.
//! - **Members never take a reload**, and neither do source ranges. Listeners and options do: one for all that changed.
//! - **Nothing is sent to a member before it has passed a check**, also after a reload and after HAProxy died.
//! - **Connections are counted in all workers.** After a reload the old ones keep those they have, for as long as these last. What is
//!   ended is ended here, and counted: HAProxy itself ends nothing.
//!
//! [`vrrp`] has the other half of a pair of machines: addresses that one of them has, by keepalived.

#![warn(missing_docs)]

mod answers;
mod backoff;
mod claims;
mod error;
mod file;
mod holder;
mod instance;
mod names;
mod next;
mod seen;
mod socket;
mod supervised;
mod tally;
pub mod vrrp;
mod wanted;

pub use answers::{Admin, Server};
pub use error::Error;
pub use file::{HEALTH_CHECK, health_check};
pub use instance::{Instance, Settings};
pub use next::{Decision, Look, Memory, Order, Running, Step, Why, closing, keeps_out, next, questions};
pub use seen::{BalancerSeen, MemberSeen, Seen, Totals};
pub use wanted::{Balance, Balancer, BalancerId, Options, Tuning, Wanted};

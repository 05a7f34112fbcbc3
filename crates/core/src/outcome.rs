use std::time::Duration;

use crate::Problem;

/// How far a provider got with a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as wanted.
    Done,
    /// It is on its way, and needs nobody.
    Pending {
        /// What is waited for.
        why: String,
        /// When to look again; `None` where a change of something watched will tell.
        retry_after: Option<Duration>,
    },
    /// It stays as it is until someone acts.
    Blocked(Problem),
}

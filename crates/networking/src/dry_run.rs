//! What a change would do, without doing it.

use portcullis_ovn::{Draft, Store};
use serde_json::json;

use crate::resources::Context;
use crate::server::Answer;

/// Tells what a change would do to the database, and what it would be answered with.
pub(crate) fn told(store: &Store, draft: &Draft, _context: &Context, answer: Answer) -> Answer {
    let transaction = store.transaction(draft);
    Answer::ok(json!({"dry_run": {"transaction": transaction, "result": answer.body}}))
}

use crate::Change;

/// Keeps something of its own in step with the replica, such as a model built from its rows.
///
/// A function of the changes is one: `Client::observed(settings, move |changes: &[Change]| …)`.
pub trait Observer: Send + Sync + 'static {
    /// The replica has taken in these changes, which came together; the first call has all rows there are.
    ///
    /// It is called once per update, one after the other, and before any later answer is handed out: who has the
    /// result of a transaction finds its changes in what the observer keeps. After a lost connection it hears of what
    /// is different now, whether the server went on or told everything anew. The replica may be read meanwhile, but
    /// everything waits for the return, so be quick. A panic ends the client.
    fn changed(&self, changes: &[Change]);
}

impl<F: Fn(&[Change]) + Send + Sync + 'static> Observer for F {
    fn changed(&self, changes: &[Change]) {
        self(changes);
    }
}

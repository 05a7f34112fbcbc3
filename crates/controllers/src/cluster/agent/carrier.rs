//! A machine that carries traffic: its `HAProxy`, the addresses that it shares with others, and its interfaces.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::SystemTime;

use portcullis_haproxy::vrrp::{Keepalived, SharedAddress};
use portcullis_haproxy::{BalancerId, Error, Instance, Seen, Settings, Wanted};
use portcullis_host::interfaces::{Interfaces, WatchError};
use thiserror::Error as ThisError;
use tokio::sync::{mpsc, oneshot, watch};

/// A machine that carries traffic, in the network namespace of the thread that started this. One thread of that namespace does
/// everything, one thing after the other, so whoever uses it may be anywhere.
#[derive(Clone, Debug)]
pub struct Carrier {
    jobs: mpsc::UnboundedSender<Job>,
    interfaces: watch::Receiver<Interfaces>,
    directory: PathBuf,
}

#[derive(Debug)]
enum Job {
    Carry { wanted: Wanted, shared: Vec<SharedAddress>, done: oneshot::Sender<Outcome> },
    Ask { wanted: Wanted, done: oneshot::Sender<Result<Obstacles, Error>> },
}

/// What is said where nothing can be asked any more.
pub(super) const ENDED: &str = "the thread that carries traffic has ended: restart the agent";

/// What is in the way of load balancers, in words.
pub(super) type Obstacles = BTreeMap<BalancerId, String>;

/// How far it got with what it was to carry.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What `HAProxy` does, where it can be asked.
    pub(super) seen: Option<Seen>,
    /// What keeps `HAProxy` from what is wanted.
    pub(super) problem: Option<Error>,
    /// Whether all the same nobody gets in who is not wanted to, and who is to leave or to rest gets nothing new.
    pub(super) closed: bool,
    /// What keeps addresses from being shared.
    pub(super) unshared: Option<Error>,
}

/// Why a machine cannot carry traffic.
#[derive(Debug, ThisError)]
pub enum CarrierError {
    /// Its interfaces are not told.
    #[error(transparent)]
    Interfaces(#[from] WatchError),
    /// There is no thread to be had.
    #[error("no thread can be started: {0}")]
    Thread(#[from] io::Error),
    /// Its programs cannot be used.
    #[error(transparent)]
    Programs(#[from] Error),
}

impl Carrier {
    /// Looks at the machine and its programs, which have their files in a directory of their own. What runs there already is taken
    /// over as it is.
    pub fn start(settings: Settings) -> Result<Self, CarrierError> {
        let interfaces = portcullis_host::interfaces::watch()?;
        let directory = settings.directory.clone();
        let (jobs, mut todo) = mpsc::unbounded_channel::<Job>();
        let (ready, started) = std::sync::mpsc::channel();
        let place = directory.join("shared");
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error.into()))),
            };
            runtime.block_on(async {
                let opened = async { Ok((Instance::start(settings).await?, Keepalived::start(place)?)) };
                let (mut instance, mut keepalived) = match opened.await {
                    Ok(both) => both,
                    Err(error) => return drop(ready.send(Err(CarrierError::Programs(error)))),
                };
                let _ = ready.send(Ok(()));
                while let Some(job) = todo.recv().await {
                    let (wanted, shared, done) = match job {
                        Job::Carry { wanted, shared, done } => (wanted, shared, done),
                        Job::Ask { wanted, done } => {
                            let found = instance.obstacles(&wanted).await;
                            let words = found.map(|found| {
                                found.into_iter().map(|(id, problem)| (id, problem.to_string())).collect()
                            });
                            let _ = done.send(words);
                            continue;
                        }
                    };
                    let (seen, problem) = match instance.apply(&wanted, SystemTime::now()).await {
                        Ok(seen) => (Some(seen), None),
                        Err(problem) => (what_runs(&mut instance, &problem).await, Some(problem)),
                    };
                    // An address leads to where somebody answers.
                    // One that was refused a change still answers as it did before.
                    let unshared = keepalived.apply(&shared, instance.is_there()).await.err();
                    let _ = done.send(Outcome { seen, problem, closed: instance.has_closed(), unshared });
                }
            });
        };
        thread::Builder::new().name("carrier".to_owned()).spawn(work)?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended").into()))?;
        Ok(Carrier { jobs, interfaces, directory })
    }

    /// Its interfaces, live.
    pub fn interfaces(&self) -> watch::Receiver<Interfaces> {
        self.interfaces.clone()
    }

    /// Where its files are.
    pub(super) fn directory(&self) -> &PathBuf {
        &self.directory
    }

    /// Makes it so that what is wanted is carried, as far as that goes without waiting.
    pub(super) async fn carry(&self, wanted: Wanted, shared: Vec<SharedAddress>) -> Option<Outcome> {
        let (done, result) = oneshot::channel();
        self.jobs.send(Job::Carry { wanted, shared, done }).ok()?;
        result.await.ok()
    }

    /// What would be in the way of load balancers, if this was to be carried, or why that cannot be known. Nothing is changed.
    pub(super) async fn obstacles(&self, wanted: Wanted) -> Result<Obstacles, String> {
        let (done, result) = oneshot::channel();
        // One that is gone is not asked, and nobody answers.
        let _ = self.jobs.send(Job::Ask { wanted, done });
        let found = result.await.map_err(|_| ENDED.to_owned())?;
        found.map_err(|problem| problem.in_full())
    }
}

/// What an `HAProxy` does that could not be changed. One that does not answer was waited for already.
async fn what_runs(instance: &mut Instance, problem: &Error) -> Option<Seen> {
    if !instance.is_there() || matches!(problem, Error::Silent { .. }) {
        return None;
    }
    let seen = instance.look().await.ok()?;
    // It may just have ended, and then nothing is known of its connections.
    instance.is_there().then_some(seen)
}

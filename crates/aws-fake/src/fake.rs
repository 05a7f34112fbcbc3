//! What a test holds in its hands.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Notify;

use crate::machine::Machine;
use crate::{Call, Config, Credentials, Fault, Logged, World, server};

type Faults = Box<dyn FnMut(&Call) -> Fault + Send>;

/// AWS, on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct Fake {
    url: String,
    shared: Arc<Shared>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// What the server and the test share.
pub(crate) struct Shared {
    machine: Mutex<Machine>,
    faults: Mutex<Faults>,
    frozen: AtomicBool,
    number: AtomicU64,
    latency: Duration,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    pub(crate) fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    pub(crate) fn fault(&self, call: &Call) -> Fault {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)(call)
    }
}

impl Fake {
    /// Starts one on a port of its own. It has a thread of its own too, and needs no runtime.
    pub fn start(config: Config) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            latency: config.latency,
            machine: Mutex::new(Machine::new(config)),
            faults: Mutex::new(Box::new(|_| Fault::None)),
            frozen: AtomicBool::new(false),
            number: AtomicU64::new(0),
        });
        let stop = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (served, stopped) = (shared.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("aws-fake".to_owned())
            .spawn(move || runtime.block_on(server::serve(listener, served, stopped)))?;
        Ok(Fake { url, shared, stop, thread: Some(thread) })
    }

    /// Where every service answers: what `AWS_ENDPOINT_URL` is to be set to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All that is there now, whatever Describe calls tell.
    pub fn state(&self) -> World {
        let mut machine = self.shared.machine();
        machine.settle();
        machine.moment.world.clone()
    }

    /// Somebody else changes something: for drift, and for what tests need later.
    pub fn act_as_someone_else<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut machine = self.shared.machine();
        machine.settle();
        let done = change(&mut machine.moment.world);
        machine.follow(None);
        machine.keep();
        done
    }

    /// All calls so far, in the order in which they took effect. Those to a frozen fake are not among them.
    pub fn calls(&self) -> Vec<Logged> {
        self.shared.machine().log.clone()
    }

    /// How often each action was called.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for logged in &self.shared.machine().log {
            *counts.entry(logged.call.action.clone()).or_default() += 1;
        }
        counts
    }

    /// How many calls there were that change something, whether they did or not.
    pub fn mutating_calls(&self) -> usize {
        self.shared.machine().log.iter().filter(|logged| logged.call.mutating).count()
    }

    /// Forgets the calls so far; their numbers go on.
    pub fn clear_calls(&self) {
        self.shared.machine().log.clear();
    }

    /// From now on, this decides what goes wrong with a call. It must not call the fake itself.
    pub fn faults(&self, faults: impl FnMut(&Call) -> Fault + Send + 'static) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(faults);
    }

    /// From now on, nothing goes wrong.
    pub fn clear_faults(&self) {
        self.faults(|_| Fault::None);
    }

    /// The caller was killed: every call, also one that is waiting for its latency, has no effect and no answer.
    pub fn freeze(&self) {
        self.shared.frozen.store(true, Ordering::SeqCst);
    }

    /// Calls are answered again.
    pub fn thaw(&self) {
        self.shared.frozen.store(false, Ordering::SeqCst);
    }

    /// Lets time go by for what happens by itself, without waiting.
    pub fn pass(&self, time: Duration) {
        self.shared.machine().pass(time);
    }

    /// Whoever has these credentials of a session may call, too: somebody else gave them out.
    pub fn give_out(&self, credentials: Credentials, token: &str) {
        let key = credentials.key.clone();
        self.shared.machine().sessions.insert(key, (credentials, token.to_owned()));
    }

    /// Takes away the right to call an action.
    pub fn deny(&self, action: &str) {
        self.shared.machine().denied.insert(action.to_owned());
    }

    /// Gives that right back.
    pub fn allow(&self, action: &str) {
        self.shared.machine().denied.remove(action);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, somebody heard of it already.
            let _ = thread.join();
        }
    }
}

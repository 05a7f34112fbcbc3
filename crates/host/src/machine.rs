//! This machine, as one network namespace has it.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;

use thiserror::Error;
use tokio::sync::{oneshot, watch};

use crate::claims::Listening;
use crate::datapath::{self, Datapath};
use crate::interfaces::{self, Interfaces, WatchError};
use crate::listening::Listeners;

/// The machine, in the network namespace of the thread that started this. One thread of that namespace does everything, one
/// thing after the other, so whoever uses it may be anywhere.
#[derive(Clone, Debug)]
pub struct Machine {
    jobs: mpsc::Sender<Job>,
    interfaces: watch::Receiver<Interfaces>,
}

type Job = Box<dyn FnOnce(&mut Tools) + Send>;

/// What the thread has.
#[derive(Debug, Default)]
struct Tools {
    datapath: Option<Datapath>,
    listeners: Listeners,
}

/// Why the machine cannot be used.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Its interfaces are not told.
    #[error(transparent)]
    Interfaces(#[from] WatchError),
    /// There is no thread to be had.
    #[error("no thread can be started: {0}")]
    Thread(#[from] io::Error),
}

impl Machine {
    /// Looks at the machine, and follows its interfaces from now on.
    pub fn start() -> Result<Self, MachineError> {
        let interfaces = interfaces::watch()?;
        let (jobs, todo) = mpsc::channel::<Job>();
        let work = move || {
            let mut tools = Tools::default();
            while let Ok(job) = todo.recv() {
                job(&mut tools);
            }
        };
        thread::Builder::new().name("machine".to_owned()).spawn(work)?;
        Ok(Machine { jobs, interfaces })
    }

    /// Its interfaces, live.
    pub fn interfaces(&self) -> watch::Receiver<Interfaces> {
        self.interfaces.clone()
    }

    /// Where its programs listen.
    pub async fn listening(&self) -> io::Result<BTreeSet<Listening>> {
        self.have_done(|tools| tools.listeners.look()).await.unwrap_or_else(|| Err(gone()))
    }

    /// Whether it forwards packets, by IPv4 and IPv6.
    pub async fn forwards(&self) -> (bool, bool) {
        let is_on = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0");
        let both = move |_: &mut Tools| {
            let of_it = "/proc/sys/net";
            (is_on(&format!("{of_it}/ipv4/ip_forward")), is_on(&format!("{of_it}/ipv6/conf/all/forwarding")))
        };
        self.have_done(both).await.unwrap_or((true, true))
    }

    /// Listens at an address.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let bound = self.have_done(move |_| TcpListener::bind(address)).await;
        bound.unwrap_or_else(|| Err(gone()))
    }

    /// Has something done with the datapath, which is opened first if it is not yet.
    pub async fn datapath<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Datapath) -> Result<T, datapath::Error> + Send + 'static,
    ) -> Result<T, datapath::Error> {
        let done = self.have_done(|tools| {
            let datapath = match &mut tools.datapath {
                Some(datapath) => datapath,
                none => none.insert(Datapath::open()?),
            };
            work(datapath)
        });
        let lost = || datapath::Error::Kernel { what: "get to hear of it", source: gone() };
        done.await.unwrap_or_else(|| Err(lost()))
    }

    async fn have_done<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tools) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move |tools: &mut Tools| drop(sender.send(work(tools))));
        self.jobs.send(job).ok()?;
        receiver.await.ok()
    }
}

/// It ends with the last who could ask it for something.
fn gone() -> io::Error {
    io::Error::other("the thread that does everything is gone")
}

//! What `portcullis serve` runs: one file per role.

pub(crate) mod cloud_config;
pub(crate) mod cluster_api;
pub(crate) mod cluster_aws;
pub(crate) mod haproxy;
pub(crate) mod host;
pub(crate) mod ingress;
pub(crate) mod networking;
pub(crate) mod other_services;
pub(crate) mod services;
pub(crate) mod single_node;

use portcullis_controllers::{Lease, LeaseError};
use tokio::sync::watch;
use tracing::warn;

use crate::exit::{Exit, Failure};

/// Works until `stop` says so. With a Lease only while it is held: of several replicas one acts. Who only watches may do
/// so beside others, needs no right to write, and so takes none.
async fn lead(
    lease: Option<Lease>,
    mut stop: watch::Receiver<bool>,
    work: impl Future<Output = ()>,
) -> Result<(), Failure> {
    match lead_once(lease, &mut stop, work).await {
        Led::Ended => Ok(()),
        // What was begun goes on in tasks of its own: it ends with the process.
        Led::Lost(why) => Err(Failure::new(Exit::Failed, format!("{why}"))),
    }
}

/// Does so, and waits for the Lease again when it is lost: what else this process does for its machine goes on meanwhile.
async fn lead_again<W: Future<Output = ()>>(
    lease: Option<Lease>,
    mut stop: watch::Receiver<bool>,
    mut work: impl FnMut() -> W,
) -> Result<(), Failure> {
    loop {
        match lead_once(lease.clone(), &mut stop, work()).await {
            Led::Ended => return Ok(()),
            Led::Lost(why) => warn!(%why, "somebody else may act by now; it is waited for its turn"),
        }
    }
}

enum Led {
    Ended,
    Lost(LeaseError),
}

async fn lead_once(
    lease: Option<Lease>,
    stop: &mut watch::Receiver<bool>,
    work: impl Future<Output = ()>,
) -> Led {
    let Some(lease) = lease else {
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        return Led::Ended;
    };
    let mut leadership = tokio::select! {
        leadership = lease.clone().hold() => leadership,
        _ = stop.wait_for(|stop| *stop) => return Led::Ended,
    };
    tokio::select! {
        () = work => {}
        why = leadership.lost() => return Led::Lost(why),
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop(leadership);
    lease.release().await;
    Led::Ended
}

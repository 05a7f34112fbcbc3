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

use portcullis_controllers::Lease;
use tokio::sync::watch;

use crate::exit::{Exit, Failure};

/// Works until `stop` says so. With a Lease only while it is held: of several replicas one acts. Who only watches may do
/// so beside others, needs no right to write, and so takes none.
async fn lead(
    lease: Option<Lease>,
    mut stop: watch::Receiver<bool>,
    work: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let Some(lease) = lease else {
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        return Ok(());
    };
    let mut leadership = tokio::select! {
        leadership = lease.clone().hold() => leadership,
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    tokio::select! {
        () = work => {}
        why = leadership.lost() => {
            // Somebody else may act by now: nothing must go on here.
            return Err(Failure::new(Exit::Failed, format!("{why}")));
        }
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop(leadership);
    lease.release().await;
    Ok(())
}

//! What came to Services at the addresses of a node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_host::Machine;
use portcullis_host::claims::Name;
use portcullis_host::datapath::{Counters, Place};
use tokio::time::sleep;
use tracing::debug;

/// How often it is looked at: whoever collects metrics does not ask more often.
const LOOK: Duration = Duration::from_secs(10);

/// What came to each Service, as it was seen last.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Mutex<Arc<BTreeMap<Name, Counters>>>>);

impl Traffic {
    /// By Service.
    pub fn latest(&self) -> Arc<BTreeMap<Name, Counters>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at it again and again.
    pub(super) async fn follow(self, machine: Machine) {
        loop {
            sleep(LOOK).await;
            let looked = machine.datapath(|datapath| {
                let counted = datapath.counters()?;
                let owners = datapath.frontends().map(|frontend| {
                    let owner = frontend.owner();
                    let name = format!("{}/{}", owner.namespace().unwrap_or_default(), owner.name());
                    (frontend.place(), Name::from(name))
                });
                Ok(by_service(&counted, owners.collect()))
            });
            match looked.await {
                Ok(seen) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen),
                Err(problem) => debug!(%problem, "what came to this node cannot be read"),
            }
        }
    }
}

/// What came to each Service, by what came to its places.
fn by_service(
    counted: &BTreeMap<Place, Counters>,
    owners: BTreeMap<Place, Name>,
) -> BTreeMap<Name, Counters> {
    let mut all: BTreeMap<Name, Counters> = BTreeMap::new();
    for (place, name) in owners {
        let Some(counters) = counted.get(&place) else { continue };
        let sum = all.entry(name).or_default();
        for (sum, one) in [(&mut sum.arrived, counters.arrived), (&mut sum.dropped, counters.dropped)] {
            sum.packets += one.packets;
            sum.bytes += one.bytes;
        }
    }
    all
}

//! One look at everything: what is next for each owner, and for what they share.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::Owner;

use super::decide::{self, Next, Scene};
use super::node_side::{self, NodeSide};
use super::settings::Settings;
use super::snapshot::{Holding, Snapshot};
use super::spec::Spec;

/// What all owners want, as far as it can be said in AWS's words.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) present: BTreeMap<Owner, Spec>,
    /// Whose objects go.
    pub(super) gone: BTreeSet<Owner>,
}

/// What was found out on the way.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// For whom all is open that is wanted.
    pub(super) opened: BTreeSet<Owner>,
    /// Of whom nothing is left, as AWS said when asked.
    pub(super) verified: BTreeSet<Owner>,
}

/// What is next on the nodes' side.
pub(super) fn nodes(
    wanted: &Wanted,
    snapshot: &Snapshot,
    settings: &Settings,
    progress: &Progress,
) -> NodeSide {
    node_side::look_at(&wanted.present, snapshot, settings, &progress.opened)
}

/// What is next for one owner.
pub(super) fn owner(
    owner: &Owner,
    wanted: &Wanted,
    snapshot: &Snapshot,
    settings: &Settings,
    nodes: &NodeSide,
    progress: &Progress,
) -> Next {
    let empty = Holding::default();
    let holding = snapshot.holdings.get(owner).map_or(&empty, |holding| holding);
    match wanted.present.get(owner) {
        Some(spec) => decide::present(spec, holding, Scene { settings, shared: &snapshot.shared, nodes }),
        None if wanted.gone.contains(owner) => {
            decide::gone(owner, holding, nodes, progress.verified.contains(owner))
        }
        // Nobody said anything about it.
        None => Next::default(),
    }
}

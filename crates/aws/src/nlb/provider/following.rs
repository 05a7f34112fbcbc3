//! Members of owners that somebody waits for: how they do, and who leaves.

use std::collections::BTreeSet;

use portcullis_core::{Duty, MemberReport, Owner};
use tokio::time::Instant;
use tracing::warn;

use super::{Provider, State};
use crate::client::CallError;
use crate::nlb::look::Look;
use crate::nlb::snapshot::Holding;
use crate::nlb::{decide, names};

impl Provider {
    /// Looks at the members of an owner that somebody waits for, and takes out those of them that are not to serve any more:
    /// whatever stands in the way of everything else, they do not wait for that.
    pub(super) async fn look_after_members(&self, owner: &Owner) -> Result<(), CallError> {
        let is_due = {
            let state = self.state();
            let Some(followed) = state.followed.get(owner) else { return Ok(()) };
            followed.is_due(self.0.clock.now())
        };
        if self.state().looked.is_none() {
            self.look_at_everything(Instant::now()).await?;
        }
        if is_due {
            self.look_for_machines(owner);
            self.look_at_members(owner).await?;
        }
        let steps = {
            let state = self.state();
            let holding = state.snapshot.holdings.get(owner);
            let followed = state.followed.get(owner);
            followed.zip(holding).map(|(followed, holding)| followed.let_go(holding)).unwrap_or_default()
        };
        // It is still to be done, and is told of where that is.
        if let Err(error) = self.perform(owner, &steps).await {
            warn!(%owner, %error, "who leaves could not be deregistered");
            self.state().doubt(owner);
        }
        Ok(())
    }

    /// One that did not run yet is looked at again: somebody waits for it.
    pub(super) fn look_for_machines(&self, owner: &Owner) {
        let mut state = self.state();
        let State { followed, snapshot, .. } = &mut *state;
        let Some(followed) = followed.get(owner) else { return };
        let serving = followed.wanted.members().iter().filter(|member| member.duty() == Duty::Serve);
        let shared = &mut snapshot.shared;
        for id in serving.filter_map(|member| crate::nlb::spec::instance_id(member.reference()?)) {
            if !shared.instances.contains_key(id) {
                shared.looked_for.remove(id);
            }
        }
    }

    /// Looks at how members do that somebody waits for: one call for each target group.
    pub(super) async fn look_at_members(&self, owner: &Owner) -> Result<(), CallError> {
        let looks: BTreeSet<Look> = {
            let mut state = self.state();
            let State { followed, snapshot, .. } = &mut *state;
            let Some(followed) = followed.get_mut(owner) else { return Ok(()) };
            let Some(holding) = snapshot.holdings.get(owner) else { return Ok(()) };
            followed.asked(self.0.clock.now());
            holding.pools.keys().map(|arn| Look::Targets(arn.clone())).collect()
        };
        self.look(&looks).await
    }

    /// Looks at those of which it is not known any more how they do: where AWS refuses something, who leaves is waited for.
    pub(super) async fn look_at_doubted_members(&self, owner: &Owner) {
        let looks: BTreeSet<Look> = {
            let state = self.state();
            let holding = state.snapshot.holdings.get(owner).filter(|_| state.followed.contains_key(owner));
            let pools = holding.iter().flat_map(|holding| &holding.pools);
            pools
                .filter(|(_, pool)| pool.targets.is_none())
                .map(|(arn, _)| Look::Targets(arn.clone()))
                .collect()
        };
        if let Err(error) = self.look(&looks).await {
            warn!(%owner, %error, "it is not known how its members do");
        }
    }

    /// Where the members of an owner are, as far as that is known, and as it was said last.
    pub(super) fn members_of(
        &self,
        state: &mut State,
        owner: &Owner,
    ) -> (Vec<MemberReport>, Vec<MemberReport>) {
        // Before AWS was looked at, nothing is known: that there is nothing would be something.
        if state.looked.is_none() {
            return Default::default();
        }
        let Some(followed) = state.followed.get_mut(owner) else { return Default::default() };
        let empty = Holding::default();
        let holding = state.snapshot.holdings.get(owner).map_or(&empty, |holding| holding);
        let name = state.wanted.present.get(owner).map(|spec| spec.name.clone());
        let balancer = decide::balancer(holding, &name.unwrap_or_else(|| names::load_balancer(owner)));
        let now =
            followed.look(holding, balancer, (&state.snapshot.shared, &self.0.settings), self.0.clock.now());
        (now, followed.said().to_vec())
    }

    /// Says where members are.
    pub(super) fn say_members(&self, owner: &Owner) -> Vec<MemberReport> {
        let mut state = self.state();
        let (now, _) = self.members_of(&mut state, owner);
        if let Some(followed) = state.followed.get_mut(owner) {
            followed.say(&now, self.0.clock.now());
        }
        now
    }
}

//! What is looked at, and when.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::{Owner, Want};
use tokio::time::Instant;

use super::{Provider, State};
use crate::client::{CallError, TAGGED};
use crate::model::{LoadBalancer as LoadBalancerOfAws, SecurityGroup};
use crate::nlb::execute::{self, Seen};
use crate::nlb::listing::Reading;
use crate::nlb::look::Look;
use crate::nlb::names;
use crate::nlb::refresh::{self, Known, owner_of};
use crate::nlb::snapshot::{Balancer, Group};

impl Provider {
    /// Looks at all that an owner has; whether something is not as it should be.
    pub(super) async fn look_at(&self, owner: &Owner) -> Result<bool, CallError> {
        let (mut looks, mut arns) = (BTreeSet::new(), Vec::new());
        if let Some(holding) = self.state().snapshot.holdings.get(owner) {
            for arn in holding.balancers.keys() {
                looks.insert(Look::Listeners(arn.clone()));
                looks.insert(Look::Attributes(arn.clone()));
                arns.push(arn.clone());
            }
            for arn in holding.pools.keys() {
                looks.insert(Look::Targets(arn.clone()));
                looks.insert(Look::PoolAttributes(arn.clone()));
                arns.push(arn.clone());
            }
        }
        let start = Instant::now();
        let seen = execute::look(&self.0.client, &self.0.settings, &looks).await?;
        // Of listeners, too. As many as one call takes: where there are more, those that come next are read the next time.
        arns.extend(seen.iter().flat_map(Seen::listeners).map(|listener| listener.arn.clone()));
        if arns.len() > TAGGED {
            let mut state = self.state();
            let next = state.read.entry(owner.clone()).or_default();
            let first = *next % arns.len();
            *next = first + TAGGED;
            arns.rotate_left(first);
            arns.truncate(TAGGED);
        }
        let tags = self.0.client.tags(&arns).await?;
        let state = &mut *self.state();
        for seen in seen {
            let changed = |id: &str| state.changed.get(id).is_some_and(|when| *when >= start);
            if let Some(seen) = seen.without(changed) {
                seen.take_in(&mut state.snapshot);
            }
        }
        if let Some(holding) = state.snapshot.known(owner) {
            for (arn, tags) in tags {
                if let Some(found) = holding.balancers.get_mut(&arn) {
                    found.tags = tags;
                } else if let Some(found) = holding.pools.get_mut(&arn) {
                    found.tags = tags;
                } else if let Some(found) =
                    holding.balancers.values_mut().find(|found| found.listens_by(&arn))
                {
                    found.listener_tags.insert(arn, tags);
                }
            }
        }
        let nodes = self.nodes(state);
        Ok(!self.next(state, owner, &nodes).is_done())
    }

    pub(super) async fn look(&self, looks: &BTreeSet<Look>) -> Result<(), CallError> {
        for look in looks {
            match look {
                Look::Leftovers(owner) => self.look_for_leftovers(owner).await?,
                Look::Whose(owner) => self.look_whose(owner).await?,
                _ => {}
            }
        }
        let (shared, own): (BTreeSet<Look>, BTreeSet<Look>) =
            looks.iter().cloned().partition(Look::is_shared);
        if !shared.is_empty() {
            // Whoever waited here most likely finds that it was looked at meanwhile.
            let _held = self.0.looking.lock().await;
            let unknown = |look: &Look| !look.is_answered(&self.state().snapshot.shared);
            self.see(&shared.into_iter().filter(unknown).collect()).await?;
        }
        self.see(&own).await
    }

    pub(super) async fn see(&self, looks: &BTreeSet<Look>) -> Result<(), CallError> {
        let start = Instant::now();
        let seen = execute::look(&self.0.client, &self.0.settings, looks).await?;
        let state = &mut *self.state();
        for seen in seen {
            let changed = |id: &str| state.changed.get(id).is_some_and(|when| *when >= start);
            if let Some(seen) = seen.without(changed) {
                seen.take_in(&mut state.snapshot);
            }
        }
        Ok(())
    }

    /// Whose the load balancers and target groups of an owner are, of which that is not sure.
    pub(super) async fn look_whose(&self, owner: &Owner) -> Result<(), CallError> {
        let arns: Vec<String> = {
            let state = self.state();
            let Some(holding) = state.snapshot.holdings.get(owner) else { return Ok(()) };
            let balancers = holding.balancers.iter().filter(|(_, found)| !found.seen).map(|(arn, _)| arn);
            let pools = holding.pools.iter().filter(|(_, found)| !found.seen).map(|(arn, _)| arn);
            balancers.chain(pools).cloned().collect()
        };
        let tags = self.0.client.tags(&arns).await?;
        let mut state = self.state();
        for arn in &arns {
            // One that AWS does not tell of yet can only be new.
            let ours = tags
                .get(arn)
                .is_none_or(|tags| owner_of(tags, &self.0.settings.cluster).as_ref() == Some(owner));
            let holding = state.snapshot.holding(owner);
            if ours {
                holding.balancers.get_mut(arn).into_iter().for_each(|found| found.seen = true);
                holding.pools.get_mut(arn).into_iter().for_each(|found| found.seen = true);
                continue;
            }
            let balancer = holding.balancers.remove(arn).map(|found| found.balancer.name);
            let pool = holding.pools.remove(arn).map(|found| found.group.name);
            holding.taken.extend(balancer.into_iter().chain(pool));
            state.changed.remove(arn);
            state.tags.insert(arn.clone(), tags.get(arn).cloned().unwrap_or_default());
        }
        Ok(())
    }

    /// Whether something is left that was not known of: by the name it would have, and by what would be written on it.
    pub(super) async fn look_for_leftovers(&self, owner: &Owner) -> Result<(), CallError> {
        let client = &self.0.client;
        let seen = execute::look(client, &self.0.settings, &[Look::Groups(owner.clone())].into()).await?;
        let balancer = client.load_balancer_by_name(&names::load_balancer(owner)).await?;
        let mut tags = match &balancer {
            Some(found) => client.tags(std::slice::from_ref(&found.arn)).await?,
            None => BTreeMap::new(),
        };
        let is_here = |vpc: &str| vpc.is_empty() || vpc == self.0.settings.vpc;
        let mut state = self.state();
        let recent = state.recent();
        for seen in seen {
            let Seen::Own(_, groups) = seen else { continue };
            // What is in other VPCs is for whoever looks after these, and knows who lets it in there.
            let is_left = |group: &SecurityGroup| is_here(&group.vpc) && !recent.gone.contains(&group.id);
            for group in groups.into_iter().filter(is_left) {
                let holding = state.snapshot.holding(owner);
                holding.groups.insert(group.id.clone(), Group { group, seen: true });
            }
        }
        let is_left = |found: &LoadBalancerOfAws| is_here(&found.vpc) && !recent.gone.contains(&found.arn);
        if let Some(balancer) = balancer.filter(is_left) {
            let tags = tags.remove(&balancer.arn).unwrap_or_default();
            if owner_of(&tags, &self.0.settings.cluster).as_ref() == Some(owner) {
                let arn = balancer.arn.clone();
                let found = Balancer { balancer, tags, seen: true, ..Balancer::default() };
                state.snapshot.holding(owner).balancers.insert(arn, found);
            }
        }
        if state.snapshot.holdings.get(owner).is_none_or(|holding| holding.is_empty()) {
            state.snapshot.holdings.remove(owner);
            state.progress.verified.insert(owner.clone());
        }
        Ok(())
    }

    /// Of what it is read again whose it is: of owners of whom nobody says anything. What they have may have been given away.
    pub(super) fn doubted_tags(&self, state: &State) -> BTreeSet<String> {
        let holdings = self.unwanted(state).filter_map(|owner| state.snapshot.holdings.get(owner));
        holdings.flat_map(|holding| holding.balancers.keys().chain(holding.pools.keys())).cloned().collect()
    }

    /// Looks for the load balancer of an owner that was taken over: nobody here made it, so nobody here knows it.
    pub(super) async fn look_for_adopted(&self, want: &Want) -> Result<(), CallError> {
        {
            let mut state = self.state();
            let holding = state.snapshot.holdings.get(&want.owner);
            // Who is on the way out was looked for already.
            if !want.parameters.contains_key(Owner::ADOPTED_KEY)
                || state.wanted.gone.contains(&want.owner)
                || holding.is_some_and(|holding| !holding.balancers.is_empty())
            {
                return Ok(());
            }
            state.others_anew = true;
        }
        self.look_at_everything(Instant::now()).await
    }

    /// Looks at everything, unless somebody did since then.
    pub(super) async fn look_at_everything(&self, since: Instant) -> Result<(), CallError> {
        let _held = self.0.looking.lock().await;
        let (known, others, reading) = {
            let state = self.state();
            if state.looked.is_some_and(|looked| looked >= since) {
                return Ok(());
            }
            let reading = match state.looked {
                Some(_) => Reading::since(since),
                None => Reading::of_late(),
            };
            let doubted = self.doubted_tags(&state);
            let reading = Reading { doubted, others: state.others_anew, ..reading };
            (state.tags.clone(), state.looked.map(|_| Known::of(&state.snapshot.shared)), reading)
        };
        let start = Instant::now();
        let listing = (self.listing(), &reading);
        let found =
            refresh::look_at_everything(&self.0.client, &self.0.settings, listing, &known, others.as_ref());
        let found = found.await?;
        let mut state = self.state();
        state.others_anew &= !reading.others;
        let recent = state.recent();
        let state = &mut *state;
        found.take_in(&self.0.settings.cluster, &mut state.snapshot, &mut state.tags, &recent);
        state.looked = Some(start);
        Ok(())
    }
}

//! What an account has in a region, read once for all who look after load balancers there.
//!
//! AWS lists load balancers and target groups of everybody, and says whose they are only of so many at a time. Whoever looks
//! after many clusters would read all of it for each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::refresh::{KnownTags, owner_of};
use super::settings::Settings;
use crate::client::{CallError, Client};
use crate::model::{LoadBalancer, Tags, TargetGroup};

/// What was read so long ago may be used by another one. What they changed themselves since then is known to them for longer.
const FRESH: Duration = Duration::from_secs(30);

/// What an account has in a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing(Arc<Mutex<Listed>>);

#[derive(Debug, Default)]
struct Listed {
    /// When it was read, by the start of it.
    read: Option<Instant>,
    balancers: Vec<LoadBalancer>,
    pools: Vec<TargetGroup>,
    /// What is written on them; nobody else changes whose they are.
    tags: KnownTags,
}

/// How much of it is read again.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// All, unless it was read since then.
    pub(super) since: Instant,
    /// What is written on these.
    pub(super) doubted: BTreeSet<String>,
    /// What is written on all that is not known to be of the cluster.
    pub(super) others: bool,
}

impl Reading {
    /// What was not read since then, and nothing else.
    pub(super) fn since(since: Instant) -> Self {
        Reading { since, doubted: BTreeSet::new(), others: false }
    }

    /// Whatever was read a moment ago, for who has not changed anything yet.
    pub(super) fn of_late() -> Self {
        let now = Instant::now();
        Reading::since(now.checked_sub(FRESH).unwrap_or(now))
    }
}

/// What is of a cluster in a VPC, and what is written on it where that was not known.
#[derive(Debug, Default)]
pub(super) struct Ours {
    pub(super) balancers: Vec<LoadBalancer>,
    pub(super) pools: Vec<TargetGroup>,
    pub(super) tags: BTreeMap<String, Tags>,
}

impl Listing {
    /// What is of a cluster in its VPC. What is written on `known` is not read.
    pub(super) async fn ours(
        &self,
        client: &Client,
        settings: &Settings,
        known: &KnownTags,
        reading: &Reading,
    ) -> Result<Ours, CallError> {
        let in_vpc = |vpc: &str| vpc.is_empty() || vpc == settings.vpc;
        // Whoever waited here most likely finds that it was read meanwhile.
        let mut listed = self.0.lock().await;
        listed.read(client, reading.since).await?;
        let balancers = listed.balancers.iter().filter(|found| in_vpc(&found.vpc));
        let pools = listed.pools.iter().filter(|found| in_vpc(&found.vpc));
        let arns = balancers.map(|found| &found.arn).chain(pools.map(|found| &found.arn));
        let is_read = |arn: &String| !reading.others && listed.tags.contains_key(arn);
        let is_unknown =
            |arn: &&String| reading.doubted.contains(*arn) || !(known.contains_key(*arn) || is_read(arn));
        let unknown: Vec<String> = arns.filter(is_unknown).cloned().collect();
        listed.tags.extend(client.tags(&unknown).await?);

        let written = |arn: &str| {
            let known = known.get(arn).filter(|_| !reading.doubted.contains(arn));
            known.or_else(|| listed.tags.get(arn))
        };
        let is_ours = |arn: &str, vpc: &str| {
            in_vpc(vpc) && written(arn).is_some_and(|tags| owner_of(tags, &settings.cluster).is_some())
        };
        let balancers = listed.balancers.iter().filter(|found| is_ours(&found.arn, &found.vpc));
        let pools = listed.pools.iter().filter(|found| is_ours(&found.arn, &found.vpc));
        let (balancers, pools): (Vec<_>, Vec<_>) = (balancers.cloned().collect(), pools.cloned().collect());
        let arns = balancers.iter().map(|found| &found.arn).chain(pools.iter().map(|found| &found.arn));
        let tags = arns.filter_map(|arn| Some((arn.clone(), written(arn)?.clone()))).collect();
        Ok(Ours { balancers, pools, tags })
    }
}

impl Listing {
    /// The VPC of the load balancer that has an address, if there is one.
    pub(super) async fn vpc_at(&self, client: &Client, address: &str) -> Result<Option<String>, CallError> {
        let mut listed = self.0.lock().await;
        listed.read(client, Reading::of_late().since).await?;
        let found = listed.balancers.iter().find(|found| found.dns_name.eq_ignore_ascii_case(address));
        Ok(found.map(|found| found.vpc.clone()).filter(|vpc| !vpc.is_empty()))
    }
}

impl Listed {
    /// Reads all of it, unless somebody did since then.
    async fn read(&mut self, client: &Client, since: Instant) -> Result<(), CallError> {
        let start = Instant::now();
        let oldest = start.checked_sub(FRESH).map_or(since, |oldest| since.max(oldest));
        if self.read.is_some_and(|read| read >= oldest) {
            return Ok(());
        }
        let mut balancers = client.load_balancers().await?;
        balancers.retain(|found| found.kind == "network");
        let pools = client.target_groups().await?;
        let arns = balancers.iter().map(|found| &found.arn).chain(pools.iter().map(|found| &found.arn));
        let arns: BTreeSet<&String> = arns.collect();
        self.tags.retain(|arn, _| arns.contains(arn));
        (self.balancers, self.pools, self.read) = (balancers, pools, Some(start));
        Ok(())
    }
}

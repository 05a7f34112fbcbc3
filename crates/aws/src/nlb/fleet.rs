//! Load balancers of many clusters, in many VPCs and regions: one provider for each of them, made when it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{self, StreamExt as _};
use portcullis_core::{Members, Outcome, Owner, PlanView, Problem, Provider as _, Report, Target, Want};
use tokio::time::Instant;
use tracing::{info, warn};

use super::listing::Listing;
use super::provider::{self, Provider};

/// The VPC that a load balancer is in, among what is said to the provider.
pub const VPC: &str = "portcullis.dev/aws-vpc";

/// The region that it is in.
pub const REGION: &str = "portcullis.dev/aws-region";

/// So many are looked at together.
const TOGETHER: usize = 4;

/// Where load balancers of a cluster are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The cluster.
    pub cluster: String,
    /// The VPC.
    pub vpc: String,
    /// The region.
    pub region: String,
}

/// Where load balancers are of which nobody says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// The VPC; without it, each has to name one.
    pub vpc: Option<String>,
    /// The region.
    pub region: String,
}

type Making = Pin<Box<dyn Future<Output = Result<Provider, Problem>> + Send>>;

/// Load balancers of many clusters.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    usual: Usual,
    make: Box<dyn Fn(Site) -> Making + Send + Sync>,
    state: Mutex<State>,
    /// Who holds it makes providers: no site gets two.
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    providers: BTreeMap<Site, Provider>,
    /// Where owners have their load balancers, or are about to.
    homes: BTreeMap<Owner, Site>,
    /// What the account has in each region, which providers read together.
    listings: BTreeMap<String, Listing>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("state", &self.0.state).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Has providers made by this, when they are needed.
    pub fn new<F>(usual: Usual, make: impl Fn(Site) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Provider, Problem>> + Send + 'static,
    {
        Fleet(Arc::new(Inner {
            usual,
            make: Box::new(move |site| Box::pin(make(site))),
            state: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a load balancer is, by what is said of it.
    fn site(&self, owner: &Owner, parameters: &BTreeMap<String, String>) -> Result<Site, Problem> {
        let said = |key: &str| parameters.get(key).filter(|value| !value.is_empty()).cloned();
        let vpc = said(VPC).or_else(|| self.0.usual.vpc.clone()).ok_or_else(|| {
            Problem::new(
                format!("{owner}: it is not known in which VPC it is to be."),
                "Nothing was changed.",
                "Name it in spec.vpc, or set aws.vpc for all that name none.",
            )
        })?;
        Ok(Site { vpc, ..self.nowhere(owner, parameters) })
    }

    /// In no VPC.
    fn nowhere(&self, owner: &Owner, parameters: &BTreeMap<String, String>) -> Site {
        let said = parameters.get(REGION).filter(|value| !value.is_empty()).cloned();
        let region = said.unwrap_or_else(|| self.0.usual.region.clone());
        Site { cluster: owner.cluster().to_owned(), vpc: String::new(), region }
    }

    async fn provider(&self, site: &Site) -> Result<Provider, Problem> {
        let known = || self.state().providers.get(site).cloned();
        if let Some(known) = known() {
            return Ok(known);
        }
        let _held = self.0.making.lock().await;
        if let Some(known) = known() {
            return Ok(known);
        }
        let made = (self.0.make)(site.clone()).await?;
        info!(cluster = site.cluster, vpc = site.vpc, region = site.region, "load balancers are made here");
        let mut state = self.state();
        made.share(state.listings.entry(site.region.clone()).or_default().clone());
        state.providers.insert(site.clone(), made.clone());
        Ok(made)
    }

    /// The provider of an owner, if it is known.
    fn of(&self, owner: &Owner) -> Option<Provider> {
        let state = self.state();
        state.providers.get(state.homes.get(owner)?).cloned()
    }

    fn all(&self) -> Vec<Provider> {
        self.state().providers.values().cloned().collect()
    }

    /// Where the load balancer of an owner is, or is to be if there is none yet.
    async fn home(&self, want: &Want, wanted: &Site) -> Result<Site, Outcome> {
        let owner = &want.owner;
        let known = self.state().homes.get(owner).cloned();
        if let Some(known) = known.filter(|known| known == wanted || self.holds(known, owner)) {
            return Ok(known);
        }
        // Nothing came of it there, or nobody could look.
        self.of(owner).into_iter().for_each(|provider| provider.forget(owner));
        Ok(self.found(want, wanted).await?.unwrap_or_else(|| wanted.clone()))
    }

    fn holds(&self, site: &Site, owner: &Owner) -> bool {
        let provider = self.state().providers.get(site).cloned();
        provider.is_some_and(|provider| provider.holds(owner))
    }

    /// Where the load balancer is that had the address of an owner: what says where it is wanted may have been changed while
    /// nobody was there to see it.
    async fn found(&self, want: &Want, wanted: &Site) -> Result<Option<Site>, Outcome> {
        let address = want.parameters.get(Owner::ADDRESS_KEY);
        let Some((address, region)) = address.and_then(|address| Some((address, region_of(address)?))) else {
            return Ok(None);
        };
        // Who looks at one VPC sees them all.
        let guess = Site { region: region.to_owned(), ..wanted.clone() };
        let provider = self.provider(&guess).await.map_err(Outcome::Blocked)?;
        let vpc = provider.vpc_at(&want.owner, address).await;
        let found = vpc.map(|vpc| vpc.map(|vpc| Site { vpc, ..guess.clone() }));
        if !matches!(&found, Ok(found) if *found.as_ref().unwrap_or(wanted) == guess) {
            self.retire(&[guess].into());
        }
        found
    }

    /// Takes away what an owner has, wherever that may be: where it was last, and where anything of its cluster is.
    async fn take_away(&self, want: &Want) -> Report {
        let owner = &want.owner;
        let wanted = self.site(owner, &want.parameters);
        let mut sites: BTreeSet<Site> = {
            let state = self.state();
            let known = state.providers.keys().filter(|site| site.cluster == owner.cluster());
            known.chain(state.homes.get(owner)).chain(wanted.as_ref().ok()).cloned().collect()
        };
        // Whatever VPC it names: that of the load balancer is found. Nothing can have been made where nobody ever said where.
        let Some(any) = sites.first().cloned() else { return Report::new(Outcome::Done) };
        match self.found(want, &any).await {
            Ok(found) => sites.extend(found),
            Err(outcome) => return Report::new(outcome),
        }
        let report = self.take_from(want, &sites).await;
        if report.outcome == Outcome::Done {
            self.state().homes.remove(owner);
            self.retire(&sites);
        }
        report
    }

    async fn take_from(&self, want: &Want, sites: &BTreeSet<Site>) -> Report {
        let gone = Want { target: Target::Gone, ..want.clone() };
        let mut first: Option<Report> = None;
        for site in sites {
            let report = match self.provider(site).await {
                Ok(provider) => provider.sync(&gone).await,
                Err(problem) => Report::new(Outcome::Blocked(problem)),
            };
            if report.outcome != Outcome::Done {
                first.get_or_insert(report);
            }
        }
        first.unwrap_or_else(|| Report::new(Outcome::Done))
    }

    /// Lets go of providers that nobody wants anything of: they would look after nothing.
    fn retire(&self, sites: &BTreeSet<Site>) {
        let mut state = self.state();
        let State { providers, homes, .. } = &mut *state;
        for site in sites {
            let is_wanted = homes.values().any(|home| home == site);
            if !is_wanted && providers.get(site).is_some_and(Provider::is_idle) {
                providers.remove(site);
            }
        }
    }
}

impl portcullis_core::Provider for Fleet {
    fn members(&self, parameters: &BTreeMap<String, String>) -> Result<Members, Problem> {
        Ok(provider::members(parameters))
    }

    fn is_settled(&self, want: &Want) -> bool {
        let Ok(site) = self.site(&want.owner, &want.parameters) else { return false };
        let is_there = self.state().homes.get(&want.owner) == Some(&site);
        is_there && self.of(&want.owner).is_some_and(|provider| provider.is_settled(want))
    }

    async fn sync(&self, want: &Want) -> Report {
        if want.target == Target::Gone {
            return self.take_away(want).await;
        }
        // Also while nobody says where it is to be, it is somewhere, and its members come and go.
        let (site, unknown) = match self.site(&want.owner, &want.parameters) {
            Ok(site) => (site, None),
            Err(problem) => (self.nowhere(&want.owner, &want.parameters), Some(problem)),
        };
        let home = match self.home(want, &site).await {
            Ok(home) => home,
            Err(outcome) => return Report::new(outcome),
        };
        if let Some(problem) = unknown.as_ref().filter(|_| home == site) {
            self.retire(&BTreeSet::from([site]));
            return Report::new(Outcome::Blocked(problem.clone()));
        }
        let before = self.state().homes.insert(want.owner.clone(), home.clone());
        self.retire(&before.into_iter().collect());
        let provider = match self.provider(&home).await {
            Ok(provider) => provider,
            Err(problem) => return Report::new(Outcome::Blocked(problem)),
        };
        let report = provider.sync(want).await;
        if home == site {
            return report;
        }
        // Where it is, it is looked after: its clients are there, and members come and go.
        let problem = unknown.unwrap_or_else(|| immovable(&want.owner, &home, &site));
        Report { outcome: Outcome::Blocked(problem), ..report }
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        let site = self.site(&want.owner, &want.parameters)?;
        self.provider(&site).await?.preview(want).await
    }

    fn forget(&self, owner: &Owner) {
        self.of(owner).into_iter().for_each(|provider| provider.forget(owner));
        let home = self.state().homes.remove(owner);
        self.retire(&home.into_iter().collect());
    }

    fn forgotten(&self) -> Vec<Owner> {
        self.all().iter().flat_map(portcullis_core::Provider::forgotten).collect()
    }

    async fn look_at_all(&self) -> Result<Vec<Owner>, Problem> {
        let (all, now) = (self.all(), Instant::now());
        let number = all.len();
        let looks = all.into_iter().map(|provider| async move { provider.look_at_all_since(now).await });
        let looked: Vec<Result<Vec<Owner>, Problem>> =
            stream::iter(looks).buffer_unordered(TOGETHER).collect().await;
        let (mut wrong, mut problems) = (Vec::new(), Vec::new());
        for one in looked {
            match one {
                Ok(owners) => wrong.extend(owners),
                Err(problem) => problems.push(problem),
            }
        }
        // Where one region does not answer, the others are looked after.
        match problems.pop() {
            Some(problem) if problems.len() + 1 == number => Err(problem),
            Some(problem) => {
                warn!(%problem, "some load balancers cannot be looked at");
                Ok(wrong)
            }
            None => Ok(wrong),
        }
    }

    async fn look_closely(&self, owner: &Owner) -> Result<bool, Problem> {
        match self.of(owner) {
            Some(provider) => provider.look_closely(owner).await,
            None => Ok(false),
        }
    }
}

/// The region of a load balancer that has such an address.
fn region_of(address: &str) -> Option<&str> {
    let labels: Vec<&str> = address.split('.').collect();
    // `name-0123.elb.eu-central-1.amazonaws.com`, or `name-0123.eu-central-1.elb.amazonaws.com`.
    let place = labels.iter().skip(1).position(|label| *label == "elb")? + 1;
    let is_region = |place: usize| labels.get(place).copied().filter(|label| label.contains('-'));
    is_region(place + 1).or_else(|| is_region(place - 1).filter(|_| place > 1))
}

/// Why a load balancer is not where it is wanted. One that went would take its clients' connections along, and its address.
fn immovable(owner: &Owner, home: &Site, wanted: &Site) -> Problem {
    Problem::new(
        format!(
            "{owner}: its load balancer is in {} of {}, and cannot move to {} of {}.",
            home.vpc, home.region, wanted.vpc, wanted.region
        ),
        "It stays where it is, and goes on there.",
        format!(
            "Set spec.vpc to {} and spec.region to {}; or make another AWSNLB and name it in spec.infrastructureRef of the LoadBalancer: both serve, and this one drains.",
            home.vpc, home.region
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_in_which_region_it_is() {
        for (address, expected) in [
            ("api-0123456789abcdef.elb.eu-central-1.amazonaws.com", Some("eu-central-1")),
            ("api-0123456789abcdef.elb.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("elb-0123456789abcdef.elb.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("api-1.us-east-1.elb.amazonaws.com", Some("us-east-1")),
            ("api-1.elb.amazonaws.com", None),
            ("elb.eu-central-1.example.com", None),
            ("api.example.com", None),
            ("192.0.2.1", None),
            ("", None),
        ] {
            assert_eq!(region_of(address), expected, "{address}");
        }
    }
}

//! Load balancers of many clusters, in many VPCs and regions: one provider for each of them, made when it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{self, StreamExt as _};
use portcullis_core::{
    MemberState, Members, Outcome, Owner, PlanView, Problem, Provider as _, Report, Target, Want,
};
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
    /// Where owners have their load balancers.
    sites: BTreeMap<Owner, BTreeSet<Site>>,
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
        let region = said(REGION).unwrap_or_else(|| self.0.usual.region.clone());
        Ok(Site { cluster: owner.cluster().to_owned(), vpc, region })
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

    /// Providers of an owner, as far as they are known.
    fn of(&self, owner: &Owner) -> Vec<Provider> {
        let state = self.state();
        let sites = state.sites.get(owner).into_iter().flatten();
        sites.filter_map(|site| state.providers.get(site).cloned()).collect()
    }

    fn all(&self) -> Vec<Provider> {
        self.state().providers.values().cloned().collect()
    }

    /// Notes where an owner wants its load balancer; why it cannot be there, if so. In one region AWS has one of a name, so that
    /// it cannot be made before the old one is gone.
    fn settle_in(&self, owner: &Owner, site: &Site) -> Option<Problem> {
        let mut state = self.state();
        let sites = state.sites.entry(owner.clone()).or_default();
        if let Some(other) = sites.iter().find(|other| other.region == site.region && other.vpc != site.vpc) {
            return Some(Problem::new(
                format!(
                    "{owner}: it is in {}, and cannot move to {} of the same region.",
                    other.vpc, site.vpc
                ),
                "Nothing was changed.",
                "Take the change back, or make another one beside it and have the LoadBalancer use that.",
            ));
        }
        sites.insert(site.clone());
        None
    }

    /// Takes away what an owner has, wherever that may be: where it was wanted last, and where anything of its cluster is.
    async fn take_away(&self, want: &Want) -> Report {
        let owner = &want.owner;
        let mut sites: BTreeSet<Site> = {
            let state = self.state();
            let known = state.providers.keys().filter(|site| site.cluster == owner.cluster());
            known.chain(state.sites.get(owner).into_iter().flatten()).cloned().collect()
        };
        match self.site(owner, &want.parameters) {
            Ok(site) => drop(sites.insert(site)),
            // Nothing can have been made where nobody ever said where.
            Err(_) if sites.is_empty() => return Report::new(Outcome::Done),
            Err(_) => {}
        }
        let report = self.take_from(want, &sites).await;
        if report.outcome == Outcome::Done {
            self.state().sites.remove(owner);
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
        let State { providers, sites: wanted, .. } = &mut *state;
        for site in sites {
            let is_wanted = wanted.values().any(|sites| sites.contains(site));
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
        let provider = {
            let state = self.state();
            let elsewhere = |sites: &BTreeSet<Site>| sites.iter().any(|one| *one != site);
            if state.sites.get(&want.owner).is_some_and(elsewhere) {
                return false;
            }
            state.providers.get(&site).cloned()
        };
        provider.is_some_and(|provider| provider.is_settled(want))
    }

    async fn sync(&self, want: &Want) -> Report {
        if want.target == Target::Gone {
            return self.take_away(want).await;
        }
        let site = match self.site(&want.owner, &want.parameters) {
            Ok(site) => site,
            Err(problem) => return Report::new(Outcome::Blocked(problem)),
        };
        if let Some(problem) = self.settle_in(&want.owner, &site) {
            return Report::new(Outcome::Blocked(problem));
        }
        let provider = match self.provider(&site).await {
            Ok(provider) => provider,
            Err(problem) => return Report::new(Outcome::Blocked(problem)),
        };
        let report = provider.sync(want).await;
        // One that was elsewhere before goes from there, once all members serve in the new place.
        let elsewhere: BTreeSet<Site> = {
            let state = self.state();
            let sites = state.sites.get(&want.owner).into_iter().flatten();
            sites.filter(|one| **one != site).cloned().collect()
        };
        let comes = report.members.iter().any(|member| member.state == MemberState::Adding);
        if report.outcome != Outcome::Done || comes || elsewhere.is_empty() {
            return report;
        }
        let left = self.take_from(want, &elsewhere).await;
        if left.outcome != Outcome::Done {
            return Report { outcome: left.outcome, ..report };
        }
        self.state().sites.insert(want.owner.clone(), [site].into());
        self.retire(&elsewhere);
        report
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        let site = self.site(&want.owner, &want.parameters)?;
        self.provider(&site).await?.preview(want).await
    }

    fn forget(&self, owner: &Owner) {
        for provider in self.of(owner) {
            provider.forget(owner);
        }
        let sites = self.state().sites.remove(owner).unwrap_or_default();
        self.retire(&sites);
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
        let mut wrong = false;
        for provider in self.of(owner) {
            wrong |= provider.look_closely(owner).await?;
        }
        Ok(wrong)
    }
}

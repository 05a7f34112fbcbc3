use std::collections::BTreeMap;
use std::future::Future;

use crate::{Owner, PlanView, Problem, Report, Want};

/// Who a load balancer sends to, for one that is asked for by these parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The nodes that have all of these labels, on their node ports.
    Nodes(BTreeMap<String, String>),
    /// The addresses behind the Service.
    Endpoints,
}

/// Makes load balancers somewhere. Whoever holds one tells it wants, and hears how far they got; how it is done stays in
/// the provider.
pub trait Provider: Clone + Send + Sync + 'static {
    /// Who the members of a load balancer are, by what is said to the provider.
    fn members(&self, parameters: &BTreeMap<String, String>) -> Result<Members, Problem>;

    /// Whether, as far as is known, all is as wanted, so that nothing would be done.
    fn is_settled(&self, want: &Want) -> bool;

    /// Makes it so that what is wanted is, as far as that goes without waiting for others.
    fn sync(&self, want: &Want) -> impl Future<Output = Report> + Send;

    /// What would be done, without doing it.
    fn preview(&self, want: &Want) -> impl Future<Output = Result<PlanView, Problem>> + Send;

    /// Nobody says any more what an owner wants; what it has is left as it is.
    fn forget(&self, owner: &Owner);

    /// Owners that have something, and of whom nobody said that they want it, or that it may go.
    fn forgotten(&self) -> Vec<Owner>;

    /// Looks at everything by few calls, and gives the owners for which something is not as it should be.
    fn look_at_all(&self) -> impl Future<Output = Result<Vec<Owner>, Problem>> + Send;

    /// Looks at all that an owner has; whether something is not as it should be.
    fn look_closely(&self, owner: &Owner) -> impl Future<Output = Result<bool, Problem>> + Send;
}

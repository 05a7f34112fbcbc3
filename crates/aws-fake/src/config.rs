//! How a fake is.

use std::time::Duration;

use crate::World;
use crate::limits::RateLimits;

/// How a fake is. The default is an empty account in which everything happens at once.
#[derive(Clone, Debug)]
pub struct Config {
    /// The region that calls have to be signed for.
    pub region: String,
    /// The number of the account.
    pub account: String,
    /// Who may call.
    pub credentials: Credentials,
    /// What is there at the start.
    pub world: World,
    /// How much may be there.
    pub quotas: Quotas,
    /// How long every call takes at least.
    pub latency: Duration,
    /// So old is what Describe calls tell. Zero: they tell what is.
    pub staleness: Duration,
    /// How long a new load balancer is `provisioning`.
    pub provisioning: Duration,
    /// How long a new target is `initial` once somebody sends to it.
    pub checking: Duration,
    /// How long a target is `draining` that somebody sent to. Without it, as long as the attribute of its target group says,
    /// as AWS has it; few tests have that time.
    pub draining: Option<Duration>,
    /// How long the interfaces of a load balancer hold on to its groups after it was deleted.
    pub lingering: Duration,
    /// How many calls are answered; none are refused where there are no limits.
    pub rate_limits: Option<RateLimits>,
}

/// A key, and the secret to sign with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The key.
    pub key: String,
    /// The secret.
    pub secret: String,
}

/// How much may be there, as AWS has it unless asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Rules of a group in one direction, for IPv4 and IPv6 each. A group or a prefix list counts for both.
    pub rules: usize,
    /// Groups of a VPC.
    pub groups: usize,
    /// Load balancers.
    pub load_balancers: usize,
    /// Target groups.
    pub target_groups: usize,
    /// Listeners of a load balancer.
    pub listeners: usize,
    /// Targets of a target group.
    pub targets: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            rules: 60,
            groups: 2500,
            load_balancers: 50,
            target_groups: 3000,
            listeners: 50,
            targets: 1000,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            region: "eu-central-1".to_owned(),
            account: "123456789012".to_owned(),
            credentials: Credentials {
                key: "AKIAFAKEFAKEFAKEFAKE".to_owned(),
                secret: "a-secret-of-the-fake".to_owned(),
            },
            world: World::default(),
            quotas: Quotas::default(),
            latency: Duration::ZERO,
            staleness: Duration::ZERO,
            provisioning: Duration::ZERO,
            checking: Duration::ZERO,
            draining: Some(Duration::ZERO),
            lingering: Duration::ZERO,
            rate_limits: None,
        }
    }
}

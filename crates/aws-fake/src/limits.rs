//! How many calls AWS answers.

use std::collections::BTreeMap;
use std::time::Instant;

/// So many at once, and so many a second after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// At once.
    pub burst: f64,
    /// In a second.
    pub rate: f64,
}

/// How many calls are answered. Each action of EC2 has a bucket of its own; of Elastic Load Balancing, all have one that
/// look, all that register or deregister targets, and all others.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimits {
    /// Of EC2, for what only looks.
    pub ec2_reads: Limit,
    /// Of EC2, for what changes.
    pub ec2_changes: Limit,
    /// Of Elastic Load Balancing, for what only looks.
    pub elb_reads: Limit,
    /// Of Elastic Load Balancing, for what changes.
    pub elb_changes: Limit,
    /// Of single actions; of Elastic Load Balancing, of those that are named here together.
    pub own: BTreeMap<String, Limit>,
}

impl RateLimits {
    /// What AWS publishes for an account and region.
    pub fn published() -> Self {
        let registration = Limit { burst: 20.0, rate: 4.0 };
        RateLimits {
            ec2_reads: Limit { burst: 100.0, rate: 20.0 },
            ec2_changes: Limit { burst: 50.0, rate: 5.0 },
            elb_reads: Limit { burst: 40.0, rate: 10.0 },
            elb_changes: Limit { burst: 20.0, rate: 3.0 },
            own: ["RegisterTargets", "DeregisterTargets"]
                .map(|action| (action.to_owned(), registration))
                .into(),
        }
    }
}

/// What is left, by action.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<String, (f64, Instant)>);

impl Buckets {
    /// Whether a call is answered.
    pub(crate) fn take(&mut self, action: &str, limit: Limit, now: Instant) -> bool {
        let (left, since) = self.0.entry(action.to_owned()).or_insert((limit.burst, now));
        let refill = now.saturating_duration_since(*since).as_secs_f64() * limit.rate;
        *left = (*left + refill).min(limit.burst);
        *since = now;
        let answered = *left >= 1.0;
        if answered {
            *left -= 1.0;
        }
        answered
    }
}

//! How many calls are made in a second, so that AWS has no reason to refuse any, and others of the account get theirs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// So many at once, and so many a second after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// At once.
    pub burst: f64,
    /// In a second.
    pub rate: f64,
}

/// What is asked for of AWS at most, by action; each has a bucket of its own, as with AWS.
#[derive(Debug)]
pub struct Limits {
    reads: Limit,
    changes: Limit,
    own: BTreeMap<&'static str, Limit>,
    buckets: Mutex<BTreeMap<&'static str, Bucket>>,
}

/// When the next call may be made if calls were spread evenly; up to a burst ahead of time it is allowed now.
#[derive(Debug)]
struct Bucket {
    due: Instant,
}

/// Half of what AWS publishes for an account and region, which others use too.
impl Default for Limits {
    fn default() -> Self {
        Limits {
            reads: Limit { burst: 20.0, rate: 10.0 },
            changes: Limit { burst: 10.0, rate: 3.0 },
            own: BTreeMap::from([
                // EC2 gives more for what is looked at by filter.
                ("DescribeInstances", Limit { burst: 50.0, rate: 10.0 }),
                ("DescribeSubnets", Limit { burst: 50.0, rate: 10.0 }),
                ("DescribeSecurityGroups", Limit { burst: 50.0, rate: 10.0 }),
                // Its rules change often, and AWS lets them.
                ("AuthorizeSecurityGroupIngress", Limit { burst: 25.0, rate: 5.0 }),
                ("AuthorizeSecurityGroupEgress", Limit { burst: 25.0, rate: 5.0 }),
                ("RevokeSecurityGroupIngress", Limit { burst: 25.0, rate: 5.0 }),
                ("RevokeSecurityGroupEgress", Limit { burst: 25.0, rate: 5.0 }),
                // Membership follows every node that comes and goes.
                ("RegisterTargets", Limit { burst: 20.0, rate: 5.0 }),
                ("DeregisterTargets", Limit { burst: 20.0, rate: 5.0 }),
            ]),
            buckets: Mutex::default(),
        }
    }
}

impl Limits {
    /// Without any, for where there is nobody to spare.
    pub fn none() -> Self {
        let endless = Limit { burst: f64::INFINITY, rate: f64::INFINITY };
        Limits { reads: endless, changes: endless, own: BTreeMap::new(), buckets: Mutex::default() }
    }

    /// Other limits: for what only looks, and for what changes.
    pub fn new(reads: Limit, changes: Limit) -> Self {
        Limits { reads, changes, own: BTreeMap::new(), buckets: Mutex::default() }
    }

    fn of(&self, action: &'static str) -> Limit {
        let usual = if is_read(action) { self.reads } else { self.changes };
        self.own.get(action).copied().unwrap_or(usual)
    }

    /// Waits until it is this call's turn.
    pub(crate) async fn turn(&self, action: &'static str) {
        let limit = self.of(action);
        if limit.rate.is_infinite() {
            return;
        }
        let (step, ahead) =
            (Duration::from_secs_f64(1.0 / limit.rate), (limit.burst - 1.0).max(0.0) / limit.rate);
        let at = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let bucket = buckets.entry(action).or_insert(Bucket { due: now });
            let due = bucket.due.max(now);
            bucket.due = due + step;
            due.checked_sub(Duration::from_secs_f64(ahead)).unwrap_or(now)
        };
        sleep_until(at).await;
    }

    /// AWS said that it is too much: nobody calls this again until then.
    pub(crate) fn pause(&self, action: &'static str, until: Instant) {
        let limit = self.of(action);
        if limit.rate.is_infinite() {
            return;
        }
        let burst = Duration::from_secs_f64((limit.burst - 1.0).max(0.0) / limit.rate);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(action).or_insert(Bucket { due: until });
        bucket.due = bucket.due.max(until + burst);
    }
}

/// Whether an action only looks.
pub(crate) fn is_read(action: &str) -> bool {
    action.starts_with("Describe") || action.starts_with("Get") || action.starts_with("Simulate")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn calls_within(limits: &Limits, action: &'static str, seconds: u64) -> usize {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut calls = 0;
        while tokio::time::timeout_at(end, limits.turn(action)).await.is_ok() {
            calls += 1;
        }
        calls
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_a_rate() {
        let limits = Limits::new(Limit { burst: 5.0, rate: 2.0 }, Limit { burst: 1.0, rate: 1.0 });
        assert_eq!(calls_within(&limits, "DescribeTags", 10).await, 5 + 2 * 10);
        // Another action has a bucket of its own.
        assert_eq!(calls_within(&limits, "CreateListener", 10).await, 11);
        // Idle time gives the burst back, and no more.
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(calls_within(&limits, "DescribeTags", 10).await, 5 + 2 * 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_kept_by_all() {
        let limits = Limits::new(Limit { burst: 5.0, rate: 2.0 }, Limit { burst: 1.0, rate: 1.0 });
        limits.pause("DescribeTags", Instant::now() + Duration::from_secs(4));
        assert_eq!(calls_within(&limits, "DescribeTags", 3).await, 0);
    }
}

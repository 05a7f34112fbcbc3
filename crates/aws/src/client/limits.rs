//! How many calls are made in a second, so that AWS has no reason to refuse any, and others of the account get theirs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::endpoint::Endpoint;

/// So many at once, and so many a second after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// At once.
    pub burst: f64,
    /// In a second.
    pub rate: f64,
}

/// What is asked for of AWS at most. Calls count as they do with AWS: each action of EC2 by itself; of Elastic Load Balancing
/// all that look together, all that change who is sent to, and all that change anything else.
#[derive(Debug)]
pub struct Limits {
    reads: Limit,
    changes: Limit,
    balancing_reads: Limit,
    balancing_changes: Limit,
    registrations: Limit,
    buckets: Mutex<BTreeMap<&'static str, Bucket>>,
}

/// When the next call may be made if calls were spread evenly; up to a burst ahead of time it is allowed now.
#[derive(Debug)]
struct Bucket {
    due: Instant,
}

/// No faster than AWS publishes for an account and region; at once half of that, as others use it too.
impl Default for Limits {
    fn default() -> Self {
        Limits {
            reads: Limit { burst: 50.0, rate: 10.0 },
            changes: Limit { burst: 25.0, rate: 5.0 },
            balancing_reads: Limit { burst: 20.0, rate: 10.0 },
            balancing_changes: Limit { burst: 10.0, rate: 3.0 },
            registrations: Limit { burst: 10.0, rate: 4.0 },
            buckets: Mutex::default(),
        }
    }
}

impl Limits {
    /// Without any, for where there is nobody to spare.
    pub fn none() -> Self {
        let endless = Limit { burst: f64::INFINITY, rate: f64::INFINITY };
        Limits::new(endless, endless)
    }

    /// Other limits: for what only looks, and for what changes.
    pub fn new(reads: Limit, changes: Limit) -> Self {
        Limits {
            reads,
            changes,
            balancing_reads: reads,
            balancing_changes: changes,
            registrations: changes,
            buckets: Mutex::default(),
        }
    }

    /// With what a call counts, and how many of these there may be.
    fn of(&self, endpoint: &Endpoint, action: &'static str) -> (&'static str, Limit) {
        match (endpoint.is_balancing(), action) {
            (true, "RegisterTargets" | "DeregisterTargets") => ("who is sent to", self.registrations),
            (true, action) if is_read(action) => ("looks at load balancers", self.balancing_reads),
            (true, _) => ("changes of load balancers", self.balancing_changes),
            (false, action) if is_read(action) => (action, self.reads),
            (false, action) => (action, self.changes),
        }
    }

    /// Waits until it is this call's turn.
    pub(crate) async fn turn(&self, endpoint: &Endpoint, action: &'static str) {
        let (bucket, limit) = self.of(endpoint, action);
        if limit.rate.is_infinite() {
            return;
        }
        let (step, ahead) =
            (Duration::from_secs_f64(1.0 / limit.rate), (limit.burst - 1.0).max(0.0) / limit.rate);
        let at = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let bucket = buckets.entry(bucket).or_insert(Bucket { due: now });
            let due = bucket.due.max(now);
            bucket.due = due + step;
            due.checked_sub(Duration::from_secs_f64(ahead)).unwrap_or(now)
        };
        sleep_until(at).await;
    }

    /// AWS said that it is too much: nobody calls what counts with it until then.
    pub(crate) fn pause(&self, endpoint: &Endpoint, action: &'static str, until: Instant) {
        let (bucket, limit) = self.of(endpoint, action);
        if limit.rate.is_infinite() {
            return;
        }
        let burst = Duration::from_secs_f64((limit.burst - 1.0).max(0.0) / limit.rate);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(bucket).or_insert(Bucket { due: until });
        bucket.due = bucket.due.max(until + burst);
    }
}

/// Whether an action only looks.
pub(crate) fn is_read(action: &str) -> bool {
    action.starts_with("Describe") || action.starts_with("Get") || action.starts_with("Simulate")
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::Endpoints;
    use super::*;
    use crate::CloudConfig;
    use portcullis_aws_fake::RateLimits;

    fn endpoints() -> Endpoints {
        Endpoints::new("eu-west-1", &CloudConfig::default(), |_| None).unwrap()
    }

    async fn calls_within(
        limits: &Limits,
        endpoint: &Endpoint,
        actions: &[&'static str],
        seconds: u64,
    ) -> usize {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut calls = 0;
        for action in actions.iter().cycle() {
            if tokio::time::timeout_at(end, limits.turn(endpoint, action)).await.is_err() {
                break;
            }
            calls += 1;
        }
        calls
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_a_rate() {
        let limits = Limits::new(Limit { burst: 5.0, rate: 2.0 }, Limit { burst: 1.0, rate: 1.0 });
        let Endpoints { ec2, elb, .. } = endpoints();
        assert_eq!(calls_within(&limits, &elb, &["DescribeTags"], 10).await, 5 + 2 * 10);
        // What changes has a bucket of its own.
        assert_eq!(calls_within(&limits, &elb, &["CreateListener"], 10).await, 11);
        // Idle time gives the burst back, and no more.
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(calls_within(&limits, &elb, &["DescribeTags"], 10).await, 5 + 2 * 10);
        // All looks at load balancers count together, each of EC2 by itself.
        tokio::time::advance(Duration::from_secs(1000)).await;
        let looks = ["DescribeTags", "DescribeListeners", "DescribeTargetHealth"];
        assert_eq!(calls_within(&limits, &elb, &looks, 10).await, 5 + 2 * 10);
        let looks = ["DescribeInstances", "DescribeSubnets", "DescribeRouteTables"];
        assert_eq!(calls_within(&limits, &ec2, &looks, 10).await, 3 * (5 + 2 * 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_kept_by_all() {
        let limits = Limits::new(Limit { burst: 5.0, rate: 2.0 }, Limit { burst: 1.0, rate: 1.0 });
        let Endpoints { ec2, elb, .. } = endpoints();
        limits.pause(&elb, "DescribeTags", Instant::now() + Duration::from_secs(7));
        for action in ["DescribeTags", "DescribeListeners"] {
            assert_eq!(calls_within(&limits, &elb, &[action], 3).await, 0);
        }
        assert_eq!(calls_within(&limits, &elb, &["CreateListener"], 0).await, 1, "it is another bucket");
        assert_eq!(calls_within(&limits, &ec2, &["DescribeSubnets"], 0).await, 5);
    }

    /// A bucket as AWS describes its own: so many tokens, and some back in each second.
    struct Tokens {
        limit: portcullis_aws_fake::Limit,
        left: f64,
        since: Instant,
    }

    impl Tokens {
        fn new(limit: portcullis_aws_fake::Limit) -> Self {
            Tokens { limit, left: limit.burst, since: Instant::now() }
        }

        /// What is left after a call.
        fn take(&mut self) -> f64 {
            let back = self.since.elapsed().as_secs_f64() * self.limit.rate;
            self.left = (self.left + back).min(self.limit.burst) - 1.0;
            self.since = Instant::now();
            self.left
        }
    }

    /// With all that can be called waiting for its turn all the time, AWS refuses nothing, and half of what it lets
    /// through at once is left for others; and in the long run it is AWS's pace, not a slower one of ours, but for looks
    /// at EC2, of which there are few.
    #[tokio::test(start_paused = true)]
    async fn the_pace_is_what_aws_publishes() {
        const HOUR: u64 = 3600;
        let published = RateLimits::published();
        let Endpoints { ec2, elb, .. } = endpoints();
        let registrations = published.own["RegisterTargets"];
        assert_eq!(registrations, published.own["DeregisterTargets"]);
        for (endpoint, actions, limit, slower) in [
            (
                &elb,
                &["DescribeLoadBalancers", "DescribeTargetGroups", "DescribeTags", "DescribeTargetHealth"][..],
                published.elb_reads,
                1.0,
            ),
            (
                &elb,
                &["CreateLoadBalancer", "ModifyListener", "DeleteTargetGroup", "AddTags"],
                published.elb_changes,
                1.0,
            ),
            (&elb, &["RegisterTargets", "DeregisterTargets"], registrations, 1.0),
            (&ec2, &["DescribeSecurityGroups"], published.ec2_reads, 2.0),
            (&ec2, &["AuthorizeSecurityGroupIngress"], published.ec2_changes, 1.0),
            (&ec2, &["CreateSecurityGroup"], published.ec2_changes, 1.0),
        ] {
            let limits = Limits::default();
            let (mut tokens, mut calls) = (Tokens::new(limit), 0_u32);
            let end = Instant::now() + Duration::from_secs(HOUR);
            for action in actions.iter().cycle() {
                if tokio::time::timeout_at(end, limits.turn(endpoint, action)).await.is_err() {
                    break;
                }
                calls += 1;
                let left = tokens.take();
                // The clock counts milliseconds.
                assert!(left >= limit.burst / 2.0 - 0.1, "{action}: {left} after {calls}");
            }
            let least = limit.rate / slower * f64::from(u32::try_from(HOUR).unwrap());
            assert!(f64::from(calls) >= least, "{actions:?}: {calls} in an hour");
        }
    }

    /// A thousand load balancers with three ports, each looked at closely within six hours, as is usual: nobody ever waits
    /// for a turn, and AWS has nearly all left for whoever else looks.
    #[tokio::test(start_paused = true)]
    async fn close_looks_take_little_of_it() {
        let (limits, elb) = (Limits::default(), endpoints().elb);
        let mut tokens = Tokens::new(RateLimits::published().elb_reads);
        let (within, balancers, ports) = (Duration::from_secs(6 * 3600), 1000_u32, 3);
        let start = Instant::now();
        let usual = ["DescribeListeners", "DescribeLoadBalancerAttributes", "DescribeTags"];
        let each = ["DescribeTargetHealth", "DescribeTargetGroupAttributes"].repeat(ports);
        for _ in 0..balancers {
            tokio::time::sleep(within / balancers).await;
            for action in usual.iter().chain(&each) {
                let before = Instant::now();
                limits.turn(&elb, action).await;
                assert_eq!(before.elapsed(), Duration::ZERO, "{action} waits");
                let left = tokens.take();
                assert!(left >= 40.0 - 9.0, "{left}");
            }
        }
        assert!(start.elapsed() < within + Duration::from_secs(1) * balancers / 100, "{:?}", start.elapsed());
    }
}

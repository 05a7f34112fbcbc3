//! The world in time: what is to happen by itself, and how it was a while ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::Buckets;
use crate::world::{LoadBalancer, Target, TargetGroup, TargetId, World};
use crate::{Config, Credentials, Logged};

/// The world in time.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) config: Arc<Config>,
    pub(crate) moment: Moment,
    /// Earlier moments, the oldest first; only as many as stale answers need.
    history: VecDeque<(Instant, Moment)>,
    /// What has passed without anybody waiting.
    skipped: Duration,
    number: u64,
    pub(crate) log: Vec<Logged>,
    pub(crate) buckets: Buckets,
    /// Actions that are not allowed.
    pub(crate) denied: BTreeSet<String>,
    /// Roles that were assumed: secrets and tokens, by key.
    pub(crate) sessions: BTreeMap<String, (Credentials, String)>,
}

/// The world at some moment, and what is to happen by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) world: World,
    due: Vec<(Instant, Event)>,
}

/// What happens by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A load balancer is ready.
    Active(String),
    /// The interfaces of a load balancer are gone.
    Released(String),
    /// A target is found healthy.
    Healthy(String, TargetId),
    /// A target is not sent to any more.
    Drained(String, TargetId),
}

impl Moment {
    fn settle(&mut self, now: Instant) {
        let mut happens: Vec<Event> = Vec::new();
        self.due.sort_by_key(|(when, _)| *when);
        while self.due.first().is_some_and(|(when, _)| *when <= now) {
            happens.push(self.due.remove(0).1);
        }
        for event in happens {
            match event {
                Event::Active(arn) => {
                    if let Some(found) = self.world.load_balancers.get_mut(&arn) {
                        "active".clone_into(&mut found.state);
                    }
                }
                Event::Released(arn) => drop(self.world.lingering.remove(&arn)),
                Event::Healthy(arn, target) => {
                    let group = self.world.target_groups.get_mut(&arn);
                    if let Some(found) = group.and_then(|group| group.targets.get_mut(&target))
                        && found.health == "initial"
                    {
                        "healthy".clone_into(&mut found.health);
                    }
                }
                Event::Drained(arn, target) => {
                    if let Some(group) = self.world.target_groups.get_mut(&arn) {
                        group.targets.remove(&target);
                    }
                }
            }
        }
    }

    /// What was to happen to a target does not.
    pub(crate) fn forget_target(&mut self, group: &str, target: &TargetId) {
        self.due.retain(|(_, event)| match event {
            Event::Healthy(arn, other) | Event::Drained(arn, other) => arn != group || other != target,
            Event::Active(_) | Event::Released(_) => true,
        });
    }
}

impl Machine {
    pub(crate) fn new(config: Config) -> Self {
        let moment = Moment { world: config.world.clone(), due: Vec::new() };
        Machine {
            config: Arc::new(config),
            history: VecDeque::from([(Instant::now(), moment.clone())]),
            moment,
            skipped: Duration::ZERO,
            number: 0,
            log: Vec::new(),
            buckets: Buckets::default(),
            denied: BTreeSet::new(),
            sessions: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.skipped
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.skipped += time;
    }

    /// What was to happen until now happens.
    pub(crate) fn settle(&mut self) {
        let now = self.now();
        self.moment.settle(now);
    }

    /// A number that no other object has, and in whose order they do not come.
    pub(crate) fn number(&mut self) -> u64 {
        self.number += 1;
        self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// How many objects were made.
    pub(crate) fn count(&self) -> u64 {
        self.number
    }

    /// An id as EC2 has them.
    pub(crate) fn id(&mut self, kind: &str) -> String {
        format!("{kind}-0{:016x}", self.number())
    }

    /// Something happens after a while, or now.
    pub(crate) fn later(&mut self, after: Duration, event: Event) {
        let when = self.now() + after;
        self.moment.due.push((when, event));
        self.settle();
    }

    /// Keeps how it is now, for who looks later.
    pub(crate) fn keep(&mut self) {
        if self.config.staleness.is_zero() {
            return;
        }
        let now = self.now();
        self.history.push_back((now, self.moment.clone()));
        let oldest = now.checked_sub(self.config.staleness);
        while let Some(oldest) = oldest
            && self.history.get(1).is_some_and(|(when, _)| *when <= oldest)
        {
            self.history.pop_front();
        }
    }

    /// The world as somebody who looks sees it.
    pub(crate) fn seen<T>(&mut self, look: impl FnOnce(&World) -> T) -> T {
        let seen = self.now().checked_sub(self.config.staleness);
        match seen {
            Some(at) if !self.config.staleness.is_zero() => {
                let last = self.history.iter().rev().find(|(when, _)| *when <= at);
                let mut moment =
                    last.or(self.history.front()).map(|(_, moment)| moment.clone()).unwrap_or_default();
                moment.settle(at);
                look(&moment.world)
            }
            _ => look(&self.moment.world),
        }
    }

    /// Targets are used as their groups are: what was not sent to begins, and what is sent to no more ends. Only those of
    /// some groups are looked at where these are named.
    pub(crate) fn follow(&mut self, groups: Option<&[String]>) {
        let world = &self.moment.world;
        let mut changes = Vec::new();
        let all: Vec<String> = match groups {
            Some(groups) => groups.to_vec(),
            None => world.target_groups.keys().cloned().collect(),
        };
        for arn in all {
            let Some(group) = world.target_groups.get(&arn) else { continue };
            let users: Vec<&LoadBalancer> = world.users(&arn).map(|(_, found)| found).collect();
            for (id, target) in &group.targets {
                let used = is_sent_to(world, group, &users, id, target);
                match target.health.as_str() {
                    "unused" if used => changes.push((arn.clone(), id.clone(), "initial")),
                    "unused" | "draining" => {}
                    _ if !used => changes.push((arn.clone(), id.clone(), "unused")),
                    _ => {}
                }
            }
        }
        let checking = self.config.checking;
        for (arn, id, health) in changes {
            let group = self.moment.world.target_groups.get_mut(&arn);
            if let Some(target) = group.and_then(|group| group.targets.get_mut(&id)) {
                health.clone_into(&mut target.health);
            }
            self.moment.forget_target(&arn, &id);
            if health == "initial" {
                self.later(checking, Event::Healthy(arn, id));
            }
        }
    }
}

/// Whether any load balancer sends to a target: it runs, and is in a zone of one that sends to its group.
fn is_sent_to(
    world: &World,
    group: &TargetGroup,
    users: &[&LoadBalancer],
    id: &TargetId,
    target: &Target,
) -> bool {
    const CROSS: &str = "load_balancing.cross_zone.enabled";
    if group.kind == "instance" && world.instances.get(&id.id).is_none_or(|found| found.state != "running") {
        return false;
    }
    let own = group.attributes.get(CROSS).map(String::as_str);
    let zone = target.zone.as_deref().or_else(|| world.zone_of(id));
    users.iter().any(|found| {
        let its = found.attributes.get(CROSS).map(String::as_str);
        let across = own == Some("true") || own != Some("false") && its == Some("true");
        let mut zones = found.subnets.keys().filter_map(|subnet| world.subnets.get(subnet));
        across || zone == Some("all") || zones.any(|subnet| Some(subnet.zone.as_str()) == zone)
    })
}

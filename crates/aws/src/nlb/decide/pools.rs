//! The target groups of an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use smol_str::{SmolStr, ToSmolStr};

use super::Decision;
use super::tags::{tag, wanted_tags};
use crate::client::NewTargetGroup;
use crate::model::Target;
use crate::nlb::asked::TargetKind;
use crate::nlb::settings::MemberReports;
use crate::nlb::snapshot::Pool;
use crate::nlb::spec::Listening;
use crate::nlb::step::Step;
use crate::nlb::{defaults, names, subnets};

impl<'a> Decision<'a> {
    /// Brings the target groups in order, and tells which one is for which port, as far as they are there.
    pub(super) fn pools(&mut self) -> BTreeMap<u16, &'a Pool> {
        let mut pools: BTreeMap<u16, &Pool> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for (port, listening) in &self.spec.listeners {
            if let Some(pool) = self.pool(*port, listening, &taken) {
                taken.insert(pool.group.arn.as_str());
                pools.insert(*port, pool);
            }
        }
        for (port, listening) in &self.spec.listeners {
            match pools.get(port) {
                Some(pool) => self.keep_pool(pool, listening),
                None => self.create_pool(*port, listening),
            }
        }
        pools
    }

    /// The target group for a port: the one its listener sends to, or the one that is called so, or any that fits.
    pub(super) fn pool(&self, port: u16, listening: &Listening, taken: &BTreeSet<&str>) -> Option<&'a Pool> {
        let backend = &listening.backend;
        let fits = |pool: &&'a Pool| {
            let group = &pool.group;
            group.protocol == backend.protocol
                && group.port == backend.port
                && group.kind == self.spec.target_kind.as_str()
                && group.ip_address_type == backend.ip_address_type
                && !taken.contains(group.arn.as_str())
        };
        let used = self
            .balancer
            .and_then(|found| found.listeners.as_ref()?.get(&port)?.target_group.as_ref())
            .and_then(|arn| self.holding.pools.get(arn))
            .filter(fits);
        let name = names::target_group(self.spec, port, backend);
        let unused = |pool: &&Pool| pool.group.load_balancers.is_empty();
        used.or_else(|| self.holding.pools.values().filter(fits).find(|pool| pool.group.name == name))
            .or_else(|| self.holding.pools.values().filter(fits).find(unused))
    }

    pub(super) fn create_pool(&mut self, port: u16, listening: &Listening) {
        let backend = &listening.backend;
        self.next.steps.push(Step::CreatePool(NewTargetGroup {
            name: names::target_group(self.spec, port, backend),
            protocol: backend.protocol.to_owned(),
            port: backend.port,
            vpc: self.scene.settings.vpc.clone(),
            kind: self.spec.target_kind.as_str().to_owned(),
            ip_address_type: backend.ip_address_type.to_owned(),
            health_check: backend.health.clone(),
            tags: wanted_tags(&self.spec.tags),
        }));
    }

    /// Who can be sent to. A machine that does not run cannot, and AWS would refuse the others with it.
    pub(super) fn targets(&self, listening: &Listening) -> BTreeSet<Target> {
        let shared = self.scene.shared;
        let settings = self.scene.settings;
        let runs = |id: &str| !shared.looked_for.contains(id) || shared.machine(id, settings).is_some();
        let is_target = self.spec.target_kind == TargetKind::Instance;
        let is_served = |id: &&SmolStr| is_target && runs(id) && !self.spec.aside.contains(*id);
        let machines = self.spec.machines.iter().filter(is_served).map(|id| Target {
            id: id.clone(),
            port: listening.backend.port,
            outside: false,
        });
        // One address that AWS refuses would keep out all others.
        let reports = settings.members == MemberReports::Each;
        let is_taken = |address: IpAddr| !reports || subnets::can_be_target(shared, address);
        let addresses = listening.backend.addresses.iter().filter(|(address, _)| is_taken(*address));
        let addresses = addresses.map(|(address, port)| Target {
            id: address.to_smolstr(),
            port: *port,
            outside: !subnets::contain(shared, *address),
        });
        machines.chain(addresses).collect()
    }

    pub(super) fn keep_pool(&mut self, pool: &Pool, listening: &Listening) {
        let (arn, backend) = (&pool.group.arn, &listening.backend);
        let targets = self.targets(listening);
        let mut steps = Vec::new();
        if pool.group.health_check != backend.health {
            steps.push(Step::Check { pool: arn.clone(), check: backend.health.clone() });
        }
        if let Some(known) = &pool.attributes {
            let usual = defaults::of_pool(backend.protocol, self.spec.target_kind);
            let attributes = defaults::changed(known, &self.spec.target_attributes, &usual);
            if !attributes.is_empty() {
                steps.push(Step::SetPoolAttributes { pool: arn.clone(), attributes });
            }
        }
        let there = pool.members().unwrap_or_default();
        // Who stays serves as before, whatever waits: those who are gone do not have to, and their addresses may be given away.
        let is_served = targets.is_empty()
            || targets.iter().any(|one| there.contains(one) && !pool.unproven.contains(one));
        let missing: Vec<Target> = targets.iter().filter(|one| !there.contains(one)).cloned().collect();
        let surplus: Vec<Target> = there.into_iter().filter(|one| !targets.contains(one)).cloned().collect();
        // Those who come take over before those who go are gone.
        if !missing.is_empty() {
            self.next.steps.push(Step::Register { pool: arn.clone(), targets: missing });
        } else if !surplus.is_empty() {
            let steps = if is_served { &mut self.next.steps } else { &mut steps };
            steps.push(Step::Deregister { pool: arn.clone(), targets: surplus });
        }
        let used = !pool.group.load_balancers.is_empty();
        if used { &mut self.later } else { &mut self.next.steps }.append(&mut steps);
        tag(&mut self.next.steps, [(arn.as_str(), &pool.tags)], &self.spec.tags);
    }
}

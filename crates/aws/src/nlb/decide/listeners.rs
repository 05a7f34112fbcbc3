//! Listeners, and what has to be let through before they serve.

use std::collections::{BTreeMap, BTreeSet};

use super::tags::wanted_tags;
use super::{Decision, Groups, ip_address_type};
use crate::client::NewListener;
use crate::model::Listener;
use crate::nlb::defaults;
use crate::nlb::snapshot::{Balancer, Pool};
use crate::nlb::spec::{Listening, transports};
use crate::nlb::step::Step;

impl Decision<'_> {
    /// Has the load balancer take clients of IPv6, too: AWS wants all its subnets to have addresses for them, and no UDP.
    /// A port for UDP that is to send to targets of IPv6 has to go first.
    pub(super) fn take_both_families(&mut self, found: &Balancer) {
        if self.later.iter().any(|step| matches!(step, Step::SetSubnets { .. })) {
            return;
        }
        let listeners = found.listeners.iter().flatten();
        let mut udp = listeners.filter(|(_, known)| transports(&known.protocol).contains(&"udp")).peekable();
        if udp.peek().is_some() {
            let steps = udp.filter_map(|(port, known)| match self.spec.listeners.get(port) {
                Some(listening) if is_accepted(found, listening) => None,
                Some(listening) => {
                    Some(narrowed(found, *port, listening).unwrap_or_else(|| deleted(*port, known)))
                }
                None => Some(deleted(*port, known)),
            });
            self.later.extend(steps);
            return;
        }
        let kind = ip_address_type(self.spec);
        self.later.push(Step::SetIpAddressType { balancer: found.balancer.arn.clone(), kind });
    }

    /// Has the load balancer take clients of IPv4 alone before it is time to, as AWS takes no UDP otherwise: once nothing sends
    /// to targets of IPv6.
    pub(super) fn take_one_family(&mut self, found: &Balancer, pools: &BTreeMap<u16, &Pool>) {
        let is_six = |known: &Listener| {
            let pool = known.target_group.as_ref().and_then(|arn| self.holding.pools.get(arn));
            pool.is_some_and(|pool| pool.group.ip_address_type == "ipv6")
        };
        let mut six = found.listeners.iter().flatten().filter(|(_, known)| is_six(known)).peekable();
        let steps: Vec<Step> = if six.peek().is_none() {
            let kind = ip_address_type(self.spec);
            vec![Step::SetIpAddressType { balancer: found.balancer.arn.clone(), kind }]
        } else {
            let steps = six.filter_map(|(port, known)| match self.spec.listeners.get(port) {
                Some(listening) if is_accepted(found, listening) => None,
                // Not before there is somebody it can send to.
                Some(listening) => match self.listener(found, *port, listening, pools)? {
                    // TCP goes on while UDP waits.
                    Step::ModifyListener { arn, listener }
                        if known.protocol == "TCP" && listener.protocol == "TCP_UDP" =>
                    {
                        let listener = NewListener { protocol: known.protocol.clone(), ..listener };
                        Some(Step::ModifyListener { arn, listener })
                    }
                    _ => Some(deleted(*port, known)),
                },
                None => Some(deleted(*port, known)),
            });
            steps.collect()
        };
        for step in steps {
            if !self.next.steps.contains(&step) {
                self.next.steps.push(step);
            }
        }
    }

    /// Gives the load balancer its groups; whether it has them.
    pub(super) fn attach(
        &mut self,
        found: &Balancer,
        ids: &BTreeSet<String>,
        pools: &BTreeMap<u16, &Pool>,
    ) -> bool {
        if found.balancer.groups == *ids || ids.is_empty() {
            return true;
        }
        // Nobody here knows what a group of others lets in: not to what is about to go.
        let foreign = |id: &String| {
            !self.holding.groups.contains_key(id) && Some(id) != self.scene.nodes.backend.as_ref()
        };
        if ids.difference(&found.balancer.groups).any(foreign) {
            let mut narrower = self.surplus_listeners(found);
            let listeners = self.spec.listeners.iter();
            for (port, listening) in listeners.filter(|(port, listening)| is_wider(found, **port, listening))
            {
                let known = found.listeners.as_ref().and_then(|there| there.get(port));
                let step = narrowed(found, *port, listening);
                let step = step.or_else(|| match known {
                    Some(known) if !is_accepted(found, listening) => Some(deleted(*port, known)),
                    _ => self.listener(found, *port, listening, pools),
                });
                let Some(step) = step else { return false };
                narrower.push(step);
            }
            if !narrower.is_empty() {
                self.next.steps.extend(narrower);
                return false;
            }
        }
        let groups = ids.iter().cloned().collect();
        self.next.steps.push(Step::SetGroups { balancer: found.balancer.arn.clone(), groups });
        false
    }

    /// Brings the ports in order; whether they are.
    pub(super) fn listen(&mut self, found: &Balancer, pools: &BTreeMap<u16, &Pool>, ready: bool) -> bool {
        let mut all = true;
        for (port, listening) in &self.spec.listeners {
            let known = found.listeners.as_ref().and_then(|there| there.get(port));
            let pool = pools.get(port).map(|pool| pool.group.arn.as_str()).unwrap_or_default();
            if known.is_some_and(|known| is_as(known, &wanted_listener(*port, listening, pool))) {
                continue;
            }
            all = false;
            if known.is_some_and(|known| self.would_be_emptied(known, listening, pool)) {
                self.emptied.get_or_insert(*port);
            }
            if ready && is_accepted(found, listening) {
                let step = self.listener(found, *port, listening, pools);
                self.next.steps.extend(step);
            } else if ready && is_dual(found) {
                self.take_one_family(found, pools);
            }
        }
        all
    }

    /// Makes a listener as wanted, once there is somebody it can send to.
    pub(super) fn listener(
        &self,
        found: &Balancer,
        port: u16,
        listening: &Listening,
        pools: &BTreeMap<u16, &Pool>,
    ) -> Option<Step> {
        let pool = pools.get(&port)?;
        let members = pool.members().unwrap_or_default();
        if !self.targets(listening).iter().all(|target| members.contains(target)) {
            return None;
        }
        let known = found.listeners.as_ref().and_then(|there| there.get(&port));
        if known.is_some_and(|known| self.would_be_emptied(known, listening, &pool.group.arn)) {
            return None;
        }
        let wanted = wanted_listener(port, listening, &pool.group.arn);
        Some(match known {
            Some(known) => Step::ModifyListener { arn: known.arn.clone(), listener: wanted },
            None => Step::CreateListener {
                balancer: found.balancer.arn.clone(),
                listener: wanted,
                tags: wanted_tags(&self.spec.tags),
            },
        })
    }

    /// Whether a listener that has somebody to send to would have nobody in another group, although somebody is to serve.
    fn would_be_emptied(&self, known: &Listener, listening: &Listening, pool: &str) -> bool {
        let group = known.target_group.as_deref().filter(|group| *group != pool);
        let group = group.and_then(|group| self.holding.pools.get(group));
        let has_some = group.and_then(Pool::members).is_some_and(|members| !members.is_empty());
        has_some && self.spec.is_served && self.targets(listening).is_empty()
    }

    pub(super) fn surplus_listeners(&self, found: &Balancer) -> Vec<Step> {
        let listeners = found.listeners.iter().flatten();
        let surplus = listeners.filter(|(port, _)| !self.spec.listeners.contains_key(port));
        surplus.map(|(port, listener)| deleted(*port, listener)).collect()
    }

    /// Takes away what was needed before, from the outside in.
    pub(super) fn close(
        &mut self,
        found: &Balancer,
        pools: &BTreeMap<u16, &Pool>,
        groups: &Groups,
        ready: bool,
    ) {
        let surplus = self.surplus_listeners(found);
        if !surplus.is_empty() {
            self.next.steps = surplus;
            return;
        }
        // Nothing sends to targets of IPv6 any more, which AWS would insist on.
        let kind = ip_address_type(self.spec);
        if found.balancer.ip_address_type != kind {
            self.next.steps.push(Step::SetIpAddressType { balancer: found.balancer.arn.clone(), kind });
        }
        let kept: BTreeSet<&str> = pools.values().map(|pool| pool.group.arn.as_str()).collect();
        for (arn, pool) in &self.holding.pools {
            if !kept.contains(arn.as_str()) && pool.group.load_balancers.is_empty() {
                self.next.steps.push(Step::DeletePool { pool: arn.clone() });
            }
        }
        if *groups == Groups::Managed {
            self.close_rules();
        }
        // What the load balancer does not have any more, nobody needs; but as long as the nodes let it in, it stays.
        if !ready {
            return;
        }
        let unused = self
            .holding
            .groups
            .keys()
            .filter(|id| !found.balancer.groups.contains(*id) && !self.scene.nodes.let_in.contains(*id));
        let unused: Vec<Step> = unused.map(|id| Step::DeleteGroup { group: id.clone() }).collect();
        self.next.steps.extend(unused);
    }
}

pub(super) fn wanted_listener(port: u16, listening: &Listening, pool: &str) -> NewListener {
    let tls = listening.protocol == "TLS";
    NewListener {
        port,
        protocol: listening.protocol.to_owned(),
        target_group: pool.to_owned(),
        certificate: listening.certificate.clone(),
        policy: tls.then(|| listening.policy.clone().unwrap_or_else(|| defaults::TLS_POLICY.to_owned())),
        alpn: tls.then(|| listening.alpn.clone().unwrap_or_else(|| "None".to_owned())),
    }
}

pub(super) fn deleted(port: u16, known: &Listener) -> Step {
    Step::DeleteListener { arn: known.arn.clone(), port }
}

pub(super) fn is_dual(found: &Balancer) -> bool {
    found.balancer.ip_address_type == "dualstack"
}

/// Whether a load balancer takes such a listener as it is: AWS lets it send to targets of IPv6 once it has both families,
/// and take UDP once it has one.
pub(super) fn is_accepted(found: &Balancer, listening: &Listening) -> bool {
    if is_dual(found) {
        !listening.transports().contains(&"udp")
    } else {
        listening.backend.ip_address_type != "ipv6"
    }
}

/// Whether a listener takes packets that it is not to take any more.
pub(super) fn is_wider(found: &Balancer, port: u16, listening: &Listening) -> bool {
    let known = found.listeners.as_ref().and_then(|there| there.get(&port));
    known.is_some_and(|known| {
        transports(&known.protocol).iter().any(|transport| !listening.transports().contains(transport))
    })
}

/// A listener for two protocols that is to have one of them, with its targets as they are: packets of that one go on as
/// before.
pub(super) fn narrowed(found: &Balancer, port: u16, listening: &Listening) -> Option<Step> {
    let known = found.listeners.as_ref()?.get(&port)?;
    if known.protocol != "TCP_UDP" || !matches!(listening.protocol, "TCP" | "UDP") {
        return None;
    }
    let listener = wanted_listener(port, listening, known.target_group.as_ref()?);
    Some(Step::ModifyListener { arn: known.arn.clone(), listener })
}

pub(super) fn is_as(known: &Listener, wanted: &NewListener) -> bool {
    let tls = wanted.protocol == "TLS";
    known.port == wanted.port
        && known.protocol == wanted.protocol
        && known.target_group.as_deref() == Some(&wanted.target_group)
        && (!tls
            || (known.certificate == wanted.certificate
                && known.policy == wanted.policy
                && known.alpn.as_deref().unwrap_or("None") == wanted.alpn.as_deref().unwrap_or("None")))
}

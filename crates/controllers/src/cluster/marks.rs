//! What Machines say of themselves, and what holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::Family;
use portcullis_kube_api::cluster::{
    CLUSTER_LABEL, CONTROL_PLANE_LABEL, DISABLED, InfrastructureStatus, MEMBER, MEMBER_TOO, MachineSpec,
    MachineStatus, NAME_LABEL, STATUS, hooks,
};
use serde_json::{Map, json};

use super::controller::Context;
use super::found::{Made, Plane, is_assigned};
use super::membership::{Candidate, Membership};
use super::reconcile::Failed;
use super::shelf::Shelf;
use super::thing::{LoadBalancer, Machine};

/// Where the load balancer itself is found, but by addresses that the machines carrying it have for themselves: one of these may be a
/// member as well.
fn own_addresses(balancer: &LoadBalancer, made: &[&Made]) -> BTreeSet<IpAddr> {
    let spec = &balancer.spec;
    let hosts = spec.endpoint().into_iter().chain(&spec.alternate_endpoints).map(|endpoint| &endpoint.host);
    let is_machines_own = |status: &InfrastructureStatus| {
        status.instances.iter().any(|instance| instance.addresses.contains(&status.address))
    };
    let statuses = || made.iter().map(|(_, made)| &made.status);
    let machines_own =
        |host: &String| statuses().any(|status| status.address == *host && is_machines_own(status));
    let all = hosts.chain(statuses().map(|status| &status.address)).filter(|host| !machines_own(host));
    all.filter_map(|text| text.parse::<IpAddr>().ok()).map(|address| address.to_canonical()).collect()
}

/// A machine's addresses without the load balancer's. One that has it, as where kube-vip holds it, reports it among its own; by it a
/// load balancer would reach itself, or whoever has it by then. What is all that it has of a family is its own.
fn but(mut addresses: Vec<IpAddr>, own: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
    let others: BTreeSet<Family> = addresses
        .iter()
        .filter(|address| !own.contains(address))
        .map(|address| Family::of(*address))
        .collect();
    addresses.retain(|address| !own.contains(address) || !others.contains(&Family::of(*address)));
    addresses
}

/// How Machines are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold<'a> {
    /// Whether who is a member is.
    pub(super) members: bool,
    /// The Cluster whose Machines of the control plane are made with the hooks: they are put on again wherever they are taken off.
    pub(super) template: Option<&'a str>,
}

impl Context {
    /// What may be a member: who the selector means, and who is one still.
    pub(super) fn candidates(
        &self,
        balancer: &LoadBalancer,
        found: &[Arc<Machine>],
        made: &[&Made],
    ) -> Vec<Candidate> {
        let selection = balancer.spec.selection(balancer.name());
        let hooks = hooks(balancer.name());
        let rivals: Vec<Arc<LoadBalancer>> = self
            .balancers
            .of(balancer.namespace())
            .into_iter()
            .filter(|other| {
                other.name() != balancer.name()
                    && !other.is_going()
                    && other.spec.target_kind() == balancer.spec.target_kind()
            })
            .collect();
        let is_assigned = |name: &str| made.iter().any(|made| is_assigned(made, name));
        let own = own_addresses(balancer, made);
        let mut candidates = Vec::new();
        for machine in found {
            let labels = machine.metadata.labels.as_ref();
            // All of a load balancer is of one Cluster, whomever else a selector that was given matches.
            let is_selected =
                selection.matches(labels) && is_of_cluster(machine, &balancer.spec.cluster_name);
            let is_held = hooks.is_on(machine.metadata.annotations.as_ref());
            let says = machine.annotation(MEMBER).or_else(|| machine.annotation(MEMBER_TOO));
            if !is_selected && !is_held && !is_assigned(machine.name()) && says != Some(balancer.name()) {
                continue;
            }
            let rival = |other: &&Arc<LoadBalancer>| {
                is_of_cluster(machine, &other.spec.cluster_name)
                    && other.spec.selection(other.name()).matches(labels)
            };
            // Who has it keeps it until it has left, whatever its labels say by now.
            let has_it = |other: &&Arc<LoadBalancer>| {
                says == Some(other.name())
                    && (rival(other)
                        || other.status.targets.iter().any(|target| target.name == machine.name()))
            };
            let holder = rivals.iter().find(has_it);
            let age = |balancer: &LoadBalancer| {
                (balancer.metadata.creation_timestamp.clone().map(|time| time.0), balancer.name().to_owned())
            };
            let older = || {
                rivals
                    .iter()
                    .filter(rival)
                    .filter(|other| age(other) < age(balancer))
                    .min_by_key(|other| age(other))
            };
            // Who is a member here is not another's for being older alone.
            let older = || if is_assigned(machine.name()) { None } else { older() };
            let taken_by = match says {
                Some(name) if name == balancer.name() => None,
                _ => holder.or_else(older).map(|other| other.name().to_owned()),
            };
            let deletion = machine.status.deletion.clone().unwrap_or_default();
            let since = machine.metadata.deletion_timestamp.clone().map(|deleted| {
                let waits = deletion.wait_for_pre_drain_hook_start_time;
                waits.map_or(deleted.0, |waits| waits.0.max(deleted.0))
            });
            candidates.push(Candidate {
                name: machine.name().to_owned(),
                addresses: but(machine.status.reachable(), &own),
                provider_id: machine.spec.provider_id.clone(),
                is_selected,
                is_disabled: machine.annotation(DISABLED).is_some(),
                going_since: since,
                is_held,
                is_control_plane: machine.label(CONTROL_PLANE_LABEL).is_some(),
                taken_by,
            });
        }
        candidates
    }

    /// Writes on a Machine what it should say of itself, and what holds it.
    pub(super) async fn mark(
        &self,
        shelf: &Shelf<MachineSpec, MachineStatus>,
        machine: &Machine,
        balancer: &str,
        membership: &Membership,
        released: &BTreeSet<&String>,
        hold: Hold<'_>,
    ) -> Result<(), Failed> {
        let name = machine.name().to_owned();
        let target = membership.targets.iter().find(|target| target.name == name);
        let is_former = membership.former.contains(&name);
        if target.is_none() && !is_former && !released.contains(&name) {
            return Ok(());
        }
        let mut wanted: BTreeMap<String, Option<String>> = BTreeMap::new();
        // Who leaves for another is that one's by what it says: two that write it would never come to rest.
        let target = target.filter(|_| !membership.theirs.contains(&name));
        if let Some(target) = target {
            wanted.insert(MEMBER.to_owned(), Some(balancer.to_owned()));
            wanted.insert(STATUS.to_owned(), Some(target.status.clone()));
        } else if machine.annotation(MEMBER) == Some(balancer) {
            wanted.insert(MEMBER.to_owned(), None);
            wanted.insert(STATUS.to_owned(), None);
        }
        let is_member = membership.members.iter().any(|member| member.name == name);
        for (hook, holder) in hooks(balancer).annotations() {
            if released.contains(&name) {
                let is_made_so = hold.template.is_some() && machine.label(CLUSTER_LABEL) == hold.template;
                let comes_back = is_made_so && machine.label(CONTROL_PLANE_LABEL).is_some();
                if machine.is_going() || !comes_back {
                    wanted.insert(hook, None);
                }
            } else if hold.members && is_member && !machine.is_going() && machine.annotation(&hook).is_none()
            {
                // On one that goes already nothing can be hung any more.
                wanted.insert(hook, Some(holder));
            }
        }
        wanted.retain(|key, value| machine.annotation(key) != value.as_deref());
        if wanted.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": wanted}});
        shelf.patch(&self.client, machine, patch).await?;
        Ok(())
    }

    /// What Machines of a control plane are made from holds them from their first moment.
    pub(super) async fn mark_plane(
        &self,
        (shelf, plane): &Plane,
        balancer: &LoadBalancer,
        hold: bool,
    ) -> Result<(), Failed> {
        let is_kubeadm = shelf.resource().kind == "KubeadmControlPlane";
        if plane.is_going() || (plane.spec.machine_template.is_none() && !is_kubeadm) {
            return Ok(());
        }
        let template = plane.spec.machine_template.clone().unwrap_or_default().metadata;
        let mut annotations: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (hook, holder) in hooks(balancer.name()).annotations() {
            annotations.insert(hook, hold.then_some(holder));
        }
        annotations.retain(|key, value| template.annotations.get(key) != value.as_ref());
        let mut labels = Map::new();
        if hold
            && balancer.spec.selector().is_none()
            && template.labels.get(NAME_LABEL).map(String::as_str) != Some(balancer.name())
        {
            labels.insert(NAME_LABEL.to_owned(), json!(balancer.name()));
        }
        if annotations.is_empty() && labels.is_empty() {
            return Ok(());
        }
        let metadata = json!({"annotations": annotations, "labels": labels});
        let patch = json!({"spec": {"machineTemplate": {"metadata": metadata}}});
        shelf.patch(&self.client, plane, patch).await?;
        Ok(())
    }
}

/// Whether an object may be of a Cluster: its label names no other.
fn is_of_cluster(machine: &Machine, cluster: &str) -> bool {
    machine.label(CLUSTER_LABEL).is_none_or(|named| named == cluster)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn who_is_of_no_cluster_may_be_of_any() {
        for (labels, expected) in
            [(json!({}), true), (json!({CLUSTER_LABEL: "c"}), true), (json!({CLUSTER_LABEL: "d"}), false)]
        {
            let machine = json!({"metadata": {"name": "m", "namespace": "a", "labels": labels}});
            let machine: Machine = serde_json::from_value(machine).unwrap();
            assert_eq!(is_of_cluster(&machine, "c"), expected, "{machine:?}");
        }
    }

    fn addresses(all: &[&str]) -> Vec<IpAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn nobody_is_reached_by_the_address_of_the_load_balancer() {
        let own: BTreeSet<IpAddr> = addresses(&["192.0.2.10", "2001:db8::10"]).into_iter().collect();
        for (reported, left) in [
            (&["192.0.2.10", "192.0.2.20"][..], &["192.0.2.20"][..]),
            (&["192.0.2.20", "192.0.2.10"], &["192.0.2.20"]),
            (&["192.0.2.20", "2001:db8::10", "2001:db8::20"], &["192.0.2.20", "2001:db8::20"]),
            // What else would it be?
            (&["192.0.2.10"], &["192.0.2.10"]),
            (&["192.0.2.10", "2001:db8::20"], &["192.0.2.10", "2001:db8::20"]),
        ] {
            assert_eq!(but(addresses(reported), &own), addresses(left), "{reported:?}");
        }
    }

    #[test]
    fn the_address_of_the_load_balancer_is_none_that_its_machines_have() {
        let balancer: LoadBalancer = serde_json::from_value(json!({"metadata": {"name": "lb"}, "spec": {
            "clusterName": "c",
            "endpoint": {"host": "192.0.2.10", "port": 443},
            "alternateEndpoints": [{"host": "::ffff:192.0.2.11", "port": 443}, {"host": "api.example.com", "port": 443}],
        }}))
        .unwrap();
        let own = |address: &str, instances: Value| {
            let status = json!({"address": address, "instances": instances});
            let made = serde_json::from_value(json!({"metadata": {"name": "lb"}, "status": status})).unwrap();
            let shelf =
                Shelf::new(kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()), None);
            own_addresses(&balancer, &[&(Arc::new(shelf), Arc::new(made))]).into_iter().collect::<Vec<_>>()
        };
        let shares = json!([{"name": "m", "addresses": ["192.0.2.1"]}]);
        assert_eq!(own("192.0.2.12", shares), addresses(&["192.0.2.10", "192.0.2.11", "192.0.2.12"]));
        let has = json!([{"name": "m", "addresses": ["192.0.2.1", "192.0.2.12"]}]);
        assert_eq!(own("192.0.2.12", has), addresses(&["192.0.2.10", "192.0.2.11"]));
        // The endpoint follows the address that a machine has for itself.
        let has = json!([{"name": "m", "addresses": ["192.0.2.10"]}]);
        assert_eq!(own("192.0.2.10", has), addresses(&["192.0.2.11"]));
    }
}

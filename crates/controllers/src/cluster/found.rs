//! What belongs to a load balancer, as it is found: its Cluster and control plane, its members, and what makes it.

use std::sync::Arc;

use portcullis_kube_api::cluster::{
    CONTROL_PLANE, ClusterSpec, ClusterStatus, ControlPlaneSpec, Flavour, InfrastructureSpec,
    InfrastructureStatus, MachineSpec, MachineStatus, Reference, TEMPLATE, TargetKind, condition, hooks,
};
use serde::de::DeserializeOwned;

use super::conditions::{InfrastructureLook, Said};
use super::controller::Context;
use super::kinds::Lack;
use super::reconcile::Failed;
use super::shelf::Shelf;
use super::thing::{Cluster, Infrastructure, LoadBalancer, Thing};

pub(super) type Shelved<S, T> = (Arc<Shelf<S, T>>, Arc<Thing<S, T>>);
pub(super) type Made = Shelved<InfrastructureSpec, InfrastructureStatus>;
/// What makes a load balancer, what made it before, and what there is to say of that.
pub(super) type Makers = (Option<Made>, Vec<Made>, InfrastructureLook);
pub(super) type Plane = Shelved<ControlPlaneSpec, ClusterStatus>;

/// What belongs to a load balancer.
pub(super) struct Surroundings {
    pub(super) cluster: Shelved<ClusterSpec, ClusterStatus>,
    /// The control plane that it is for, if it is for one and that is an object.
    pub(super) plane: Option<Plane>,
    pub(super) is_control_plane: bool,
    /// Why the control plane that it is for cannot be seen, if it cannot.
    pub(super) unseen: Option<String>,
    /// The control plane that the Cluster names, where that alone says whether it is for it, and is not there.
    pub(super) undecided: Option<String>,
}

impl Context {
    /// The objects that its members are of. While a wrong kind is named these are those of the kind that it was for, as which it is
    /// looked after: they come and go all the same.
    pub(super) async fn machines_of(
        &self,
        balancer: &Arc<LoadBalancer>,
    ) -> Result<(Arc<LoadBalancer>, Arc<Shelf<MachineSpec, MachineStatus>>, Option<Lack>), Lack> {
        let target = balancer.spec.target_kind();
        let lack = match self.machines.shelf(&target.api_group, &target.kind).await {
            Ok(machines) => return Ok((Arc::clone(balancer), machines, None)),
            Err(lack) => lack,
        };
        let Some((kind, machines)) = self.kind_before(balancer).await else { return Err(lack) };
        let mut as_before = LoadBalancer::clone(balancer);
        as_before.0.spec.target_kind = Some(kind);
        Ok((Arc::new(as_before), machines, Some(lack)))
    }

    /// The kind that its members were of, if that was another one and is known.
    async fn kind_before(
        &self,
        balancer: &LoadBalancer,
    ) -> Option<(TargetKind, Arc<Shelf<MachineSpec, MachineStatus>>)> {
        let words = &balancer.status.target_kind;
        let (kind, group) = words.split_once('.').unwrap_or((words, ""));
        let kind = TargetKind { api_group: group.to_owned(), kind: kind.to_owned() };
        if kind.kind.is_empty() || kind == balancer.spec.target_kind() {
            return None;
        }
        let shelf = self.machines.shelf(&kind.api_group, &kind.kind).await.ok()?;
        Some((kind, shelf))
    }

    /// The Cluster, and the control plane that it is for, if it is.
    pub(super) async fn surroundings(
        &self,
        balancer: &LoadBalancer,
        cluster: Shelved<ClusterSpec, ClusterStatus>,
    ) -> Result<Surroundings, Failed> {
        let plane = match cluster.1.spec.control_plane() {
            Some(reference) => self.plane(balancer.namespace(), reference).await,
            None => Ok(None),
        };
        let (plane, unseen) = match plane {
            Ok(plane) => (plane, None),
            Err(why) if self.settings.flavour == Flavour::Own => (None, Some(why)),
            // In the shape of the proposal nothing else says what it is for.
            Err(why) => {
                self.tell_missing(balancer, InfrastructureLook::UnknownKind(why.clone())).await?;
                return Err(why);
            }
        };
        let is_control_plane = match self.settings.flavour {
            Flavour::Own => is_for_control_plane(balancer, &cluster.1),
            Flavour::Proposed => plane.as_ref().is_some_and(|(_, plane)| {
                plane
                    .spec
                    .load_balancer_ref
                    .as_ref()
                    .is_some_and(|reference| reference.name == balancer.name())
            }),
        };
        let named = cluster.1.spec.control_plane();
        let undecided = named
            .filter(|_| self.settings.flavour == Flavour::Proposed && plane.is_none())
            .map(|reference| format!("{} {}", reference.kind, reference.name));
        // One that was for it, and is not any more, has hooks of ours still.
        let plane = plane.filter(|plane| is_control_plane || has_hooks(plane, balancer));
        let unseen = unseen.filter(|_| is_control_plane);
        Ok(Surroundings { cluster, plane, is_control_plane, unseen, undecided })
    }

    /// All control planes whose Machines would be held for a load balancer from their first moment.
    pub(super) async fn planes_with_hooks(&self, balancer: &LoadBalancer) -> Result<Vec<Plane>, Failed> {
        let shelves = self.planes.known().await?;
        let all = shelves.into_iter().flat_map(|shelf| {
            let found = shelf.of(balancer.namespace());
            found.into_iter().map(move |plane| (Arc::clone(&shelf), plane))
        });
        Ok(all.filter(|plane| has_hooks(plane, balancer)).collect())
    }

    pub(super) async fn plane(
        &self,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<Plane>, Failed> {
        // The proposal's own example names the group of Clusters.
        for group in [reference.group(), "controlplane.cluster.x-k8s.io"] {
            let shelf = Lack::none(self.planes.shelf(group, &reference.kind).await)?;
            let found = shelf.and_then(|shelf| Some((shelf.get(namespace, &reference.name)?, shelf)));
            if let Some((plane, shelf)) = found {
                return Ok(Some((shelf, plane)));
            }
        }
        Ok(None)
    }

    /// What makes it, what made it before, and what there is to say of that.
    pub(super) async fn infrastructures(&self, balancer: &LoadBalancer) -> Result<Makers, Failed> {
        let reference = balancer.spec.infrastructure_ref.as_ref();
        let mut main = None;
        let mut look = match reference {
            None => InfrastructureLook::Others,
            // What cannot be seen, and never was asked for anything, is as good as not there.
            Some(reference) => match self.infrastructures.shelf(reference.group(), &reference.kind).await {
                Err(lack) => InfrastructureLook::UnknownKind(lack.to_string()),
                Ok(shelf) => match shelf.get(balancer.namespace(), &reference.name) {
                    None => InfrastructureLook::Missing(format!("{} {}", reference.kind, reference.name)),
                    Some(made) if self.is_of_another(&made, balancer) => {
                        let other =
                            made.spec.assignment.as_ref().map(|assignment| assignment.load_balancer.clone());
                        let what = format!("{} {}", reference.kind, reference.name);
                        InfrastructureLook::InUse(what, other.unwrap_or_default())
                    }
                    Some(made) => {
                        let said = |type_| condition(&made.status.conditions, type_).cloned();
                        let about = Said { ready: said("Ready"), enforced: said("SourceRangesEnforced") };
                        let look = InfrastructureLook::There(Box::new(about));
                        main = Some((shelf, made));
                        look
                    }
                },
            },
        };
        // What nobody refers to any more is of a kind of ours, of one that somebody refers to, or was noted.
        for asked in reference.into_iter().chain(&balancer.status.infrastructure_refs) {
            match self.infrastructures.shelf(asked.group(), &asked.kind).await {
                // What is named, and never was asked for anything, is told as that.
                Err(Lack::Unseen(_)) if Some(asked) == reference && !is_noted(balancer, asked) => {}
                Err(lack @ Lack::Unseen(_)) => {
                    return Err(self.tell_lack(balancer, lack).await.err().unwrap_or_default());
                }
                Err(Lack::NoKind(_)) => {}
                // It may have members, and must not be taken for one that has none.
                Ok(shelf) => {
                    let unknown = shelf.unknown(balancer.namespace());
                    if let Some((_, why)) = unknown.into_iter().find(|(name, _)| *name == asked.name) {
                        let what = format!("{} {}", asked.kind, asked.name);
                        let unread = InfrastructureLook::Unread(what.clone(), why.clone());
                        // What never was asked for anything has none.
                        if Some(asked) == reference && !is_noted(balancer, asked) {
                            look = unread;
                            continue;
                        }
                        self.tell_missing(balancer, unread).await?;
                        return Err(format!("{what}: {why}"));
                    }
                }
            }
        }
        let flavour = self.settings.flavour;
        for kind in [flavour.aws_nlb(), flavour.haproxy(), flavour.ovn()] {
            Lack::none(self.infrastructures.shelf(kind.group, kind.kind).await)?;
        }
        let mut others = Vec::new();
        for shelf in self.infrastructures.known().await? {
            for made in shelf.of(balancer.namespace()) {
                let is_ours = made
                    .spec
                    .assignment
                    .as_ref()
                    .is_some_and(|assignment| assignment.load_balancer == balancer.name());
                let found = (Arc::clone(&shelf), made);
                let is_main = reference.is_some_and(|reference| reference.is_same(&reference_to(&found)));
                if is_ours && !is_main {
                    others.push(found);
                }
            }
        }
        if reference.is_none() && !others.is_empty() {
            let all: Vec<String> = others.iter().map(words).collect();
            look = InfrastructureLook::Kept(all.join(", "));
        }
        Ok((main, others, look))
    }

    /// Whether an object makes the load balancer of somebody else, who is there.
    fn is_of_another(&self, made: &Infrastructure, balancer: &LoadBalancer) -> bool {
        made.spec.assignment.as_ref().is_some_and(|assignment| {
            let other = &assignment.load_balancer;
            let is_there = || self.balancers.get(made.namespace(), other).is_some();
            !assignment.service.is_empty() || (other != balancer.name() && is_there())
        })
    }
}

/// Whether a load balancer is for the control plane of its Cluster, which names it. One that was made from a template is so before
/// that: it is named only when it is there, and would have an endpoint of its own until then.
fn is_for_control_plane(balancer: &LoadBalancer, cluster: &Cluster) -> bool {
    match cluster.annotation(CONTROL_PLANE) {
        Some(named) => named == balancer.name(),
        None => balancer.annotation(TEMPLATE).is_some() && balancer.name() == cluster.name(),
    }
}

/// The Cluster that something was made for, if it was.
pub(super) fn made_for(balancer: &LoadBalancer, (main, others, _): &Makers) -> Option<String> {
    let mut asked = main.iter().chain(others).filter_map(|(_, made)| made.spec.assignment.as_ref());
    let asked =
        asked.find(|asked| asked.load_balancer == balancer.name() && !asked.cluster_name.is_empty())?;
    Some(asked.cluster_name.clone())
}

/// What is asked to make a load balancer, in an order that does not change by itself.
pub(super) fn references(main: Option<&Made>, others: &[Made]) -> Vec<Reference> {
    let mut all: Vec<Reference> = main.into_iter().chain(others).map(reference_to).collect();
    all.sort_by(|one, other| {
        (one.group(), &one.kind, &one.name).cmp(&(other.group(), &other.kind, &other.name))
    });
    all
}

pub(super) fn reference_to((shelf, made): &Made) -> Reference {
    let resource = shelf.resource();
    Reference {
        api_group: Some(resource.group.clone()),
        api_version: None,
        kind: resource.kind.clone(),
        name: made.name().to_owned(),
    }
}

/// Whether what Machines of a control plane are made from holds them for a load balancer.
fn has_hooks((_, plane): &Plane, balancer: &LoadBalancer) -> bool {
    let template = plane.spec.machine_template.as_ref();
    hooks(balancer.name()).is_on(template.map(|template| &template.metadata.annotations))
}

/// Whether a member is one for what makes a load balancer.
pub(super) fn is_assigned((_, made): &Made, name: &str) -> bool {
    let mut members = made.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    members.any(|member| member.name == name)
}

/// What makes a load balancer, in words.
pub(super) fn words((shelf, made): &Made) -> String {
    format!("{} {}", shelf.resource().kind, made.name())
}

/// Whether something was asked to make a load balancer before.
fn is_noted(balancer: &LoadBalancer, reference: &Reference) -> bool {
    balancer.status.infrastructure_refs.iter().any(|noted| noted.is_same(reference))
}

/// What is told of an object that could not be written.
pub(super) fn not_changed<S, T>((shelf, object): &Shelved<S, T>, why: &str) -> String
where
    S: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    T: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    kind_not_changed(&shelf.resource().kind, object.name(), why)
}

/// The same by its kind and its name.
pub(super) fn kind_not_changed(kind: &str, name: &str, why: &str) -> String {
    format!("{kind} {name} cannot be changed: {why}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_cluster_names_what_is_for_its_control_plane() {
        let from_template = json!({TEMPLATE: "standard"});
        for (what, name, annotations, named, expected) in [
            ("it is named", "other", json!({}), json!({CONTROL_PLANE: "other"}), true),
            ("it is not", "other", json!({}), json!({}), false),
            ("it has the name of the Cluster, and is somebody's", "c", json!({}), json!({}), false),
            (
                "it was made from a template, and is named in a moment",
                "c",
                from_template.clone(),
                json!({}),
                true,
            ),
            ("another one is", "c", from_template.clone(), json!({CONTROL_PLANE: "other"}), false),
            ("what is made from a template has the Cluster's name", "other", from_template, json!({}), false),
        ] {
            let metadata = |name: &str, annotations: Value| json!({"metadata": {"name": name, "namespace": "a", "annotations": annotations}});
            let balancer: LoadBalancer = serde_json::from_value(metadata(name, annotations)).unwrap();
            let cluster: Cluster = serde_json::from_value(metadata("c", named)).unwrap();
            assert_eq!(is_for_control_plane(&balancer, &cluster), expected, "{what}");
        }
    }
}

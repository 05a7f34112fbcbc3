//! Whether source ranges keep anybody out.

use std::collections::BTreeSet;

use portcullis_core::Enforcement;

use super::{Groups, Scene};
use crate::model::Peer;
use crate::nlb::asked::{PREFIX, TargetKind};
use crate::nlb::settings::NodeRules;
use crate::nlb::spec::{Listening, Spec};
use crate::nlb::{rules, words};

/// What has to be said so that source ranges limit somebody without any group: targets never see clients of another family
/// than their own.
pub(super) fn how_targets_see_clients(spec: &Spec) -> String {
    let are_hidden = |listening: &Listening| !rules::keeps_client_addresses(spec, &listening.backend);
    let hidden = spec
        .listeners
        .values()
        .any(are_hidden)
        .then(|| format!("have targets see clients with {}", words::seeing_clients(&spec.owner)));
    let families = spec.dual_stack.then(|| {
        format!(
            "serve one family with {}: ipv4 (where all ranges are of IPv4, a check on another port with {} will do)",
            words::key(&spec.owner, "ip-address-type"),
            words::key(&spec.owner, "healthcheck-port")
        )
    });
    hidden.into_iter().chain(families).collect::<Vec<_>>().join(" and ")
}

/// Whether source ranges keep anybody out, once all is as wanted. Where that is not sure, they do not.
pub(super) fn enforcement(spec: &Spec, groups: &Groups, scene: Scene<'_>) -> Enforcement {
    let not = |why: &str| Enforcement::Not(why.to_owned());
    let lists = spec.clients.iter().any(|peer| matches!(peer, Peer::PrefixList(_)));
    match groups {
        Groups::Given(_) => Enforcement::Not(format!(
            "The security groups that {} names decide alone who may connect.",
            words::key(&spec.owner, "security-groups")
        )),
        _ if lists => Enforcement::Not(format!(
            "Annotation {PREFIX}security-group-prefix-lists lets in others besides its source ranges."
        )),
        Groups::Managed => Enforcement::By("The security groups of its load balancer on AWS".to_owned()),
        Groups::Without if scene.settings.node_rules == NodeRules::Off => not(
            "Its load balancer on AWS has no security group, and those of the nodes are not looked after.",
        ),
        Groups::Without if rules::limits_nobody(spec) => not(
            "Its load balancer on AWS has no security group, and its targets do not see the addresses of clients.",
        ),
        Groups::Without if spec.target_kind == TargetKind::Ip => not(
            "Its load balancer on AWS has no security group, and what those of the nodes let in for pods of others on the same port is let in for its own.",
        ),
        Groups::Without => by_nodes(spec, scene),
    }
}

/// The same, where only the groups of the nodes can keep anybody out: each rule in any of them counts, whosever it is.
pub(super) fn by_nodes(spec: &Spec, scene: Scene<'_>) -> Enforcement {
    let (nodes, shared) = (scene.nodes, scene.shared);
    let machines = spec.machines.iter().filter_map(|id| shared.instances.get(id.as_str()));
    let mut ids: BTreeSet<&String> = machines.flat_map(|machine| &machine.groups).collect();
    ids.extend(&nodes.groups);
    let groups: Option<Vec<_>> = ids.into_iter().map(|id| shared.groups.get(id)).collect();
    let Some(groups) = groups.filter(|_| !nodes.groups.is_empty() && nodes.told.is_empty()) else {
        return Enforcement::Not(
            "Its load balancer on AWS has no security group, and not all those of the nodes are known."
                .to_owned(),
        );
    };
    let rules = groups.iter().flat_map(|group| group.ingress.iter().map(move |rule| (&group.id, rule)));
    let marks = rules::mark(&spec.owner);
    let mut others = rules.filter(|(_, (rule, mark))| **mark != marks && rules::may_enter_by(spec, rule));
    if let Some((group, (rule, _))) = others.next() {
        return Enforcement::Not(format!(
            "Its load balancer on AWS has no security group, and that of the nodes, {group}, lets in {} from {}.",
            rule.traffic(),
            rule.peer
        ));
    }
    let who = "The security groups of the nodes on AWS";
    Enforcement::By(if rules::is_checked_where_it_serves(spec) {
        format!("{who}, besides the load balancer's own subnets for its checks,")
    } else {
        who.to_owned()
    })
}

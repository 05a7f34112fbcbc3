use std::sync::Arc;

use super::{Desired, Scene, Wanted};
use crate::acl::{ALLOW, group_name, matches, pipeline};
use crate::objects::{Rule, SecurityGroup};
use crate::tables::{ACL, PORT_GROUP};

pub(super) fn rows(desired: &mut Desired, group: Option<&Arc<SecurityGroup>>) {
    let Some(group) = group else { return };
    let id = group.meta.id;
    desired.row(PORT_GROUP, id, Wanted::of(&**group).with("name", group_name(id)));
}

pub(super) fn rule_rows(desired: &mut Desired, scene: Scene<'_>, rule: Option<&Arc<Rule>>) {
    let Some(rule) = rule else { return };
    let Some(group) = scene.model.get::<SecurityGroup>(rule.group) else { return };
    let row = Wanted::of(&**rule)
        .with("direction", pipeline(rule.direction))
        .with("priority", ALLOW)
        .with("match", matches(rule))
        .with("action", if group.stateful { "allow-related" } else { "allow-stateless" });
    desired.row(ACL, rule.meta.id, row);
    desired.refer(PORT_GROUP, rule.group, "acls", rule.meta.id);
}

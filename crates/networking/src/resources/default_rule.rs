use portcullis_core::{Direction, Family};
use portcullis_ovn::Model;
use portcullis_ovn::objects::{Meta, Rule, RuleTemplate};
use uuid::Uuid;

/// The rules that new groups get: those of the database, or, as long as nobody touched them, the usual ones.
pub(crate) fn in_force(model: &Model) -> Vec<RuleTemplate> {
    let stored: Vec<RuleTemplate> =
        model.all::<RuleTemplate>(None).map(|template| (**template).clone()).collect();
    if stored.is_empty() {
        usual()
    } else {
        stored.into_iter().filter(|template| !is_mark(template)).collect()
    }
}

/// Everything out, for all groups; into a default group, what comes from its other members.
pub(crate) fn usual() -> Vec<RuleTemplate> {
    let template = |number: u128, direction, ethertype, remote_is_parent, in_others| RuleTemplate {
        meta: Meta {
            id: Uuid::from_u128(0x7275_6c65_0000_4000_8000_0000_0000_0000 + number),
            ..Meta::default()
        },
        rule: Rule { direction, ethertype, ..Rule::default() },
        remote_is_parent,
        in_default: true,
        in_others,
    };
    vec![
        template(1, Direction::Egress, Family::V4, false, true),
        template(2, Direction::Egress, Family::V6, false, true),
        template(3, Direction::Ingress, Family::V4, true, false),
        template(4, Direction::Ingress, Family::V6, true, false),
    ]
}

/// A template for no group at all, which says that the usual ones were replaced.
pub(crate) fn is_mark(template: &RuleTemplate) -> bool {
    !template.in_default && !template.in_others
}

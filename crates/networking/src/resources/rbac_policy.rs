use portcullis_ovn::objects::{Meta, RbacPolicy};
use uuid::Uuid;

/// Something that everybody may do with an object.
pub(crate) fn everybody(object_type: &str, object: Uuid, action: &str) -> RbacPolicy {
    RbacPolicy {
        meta: Meta { id: Uuid::new_v4(), ..Meta::default() },
        object_type: object_type.to_owned(),
        object,
        action: action.to_owned(),
        target: "*".to_owned(),
    }
}

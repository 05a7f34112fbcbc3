use std::sync::Arc;

use portcullis_core::Family;

use super::{Desired, Wanted, number};
use crate::acl::address_group_name;
use crate::objects::AddressGroup;
use crate::tables::{ADDRESS_SET, NOTE};

pub(super) fn rows(desired: &mut Desired, group: Option<&Arc<AddressGroup>>) {
    let Some(group) = group else { return };
    let id = group.meta.id;
    desired.row(NOTE, id, Wanted::of(&**group));
    for family in Family::ALL {
        let addresses = group.addresses.iter().filter(|range| range.family() == family);
        let row = Wanted::derived()
            .with("name", address_group_name(id, family))
            .with_set("addresses", addresses.map(|range| range.network().to_string()));
        desired.row(ADDRESS_SET, number(id, &format!("addresses {family}")), row);
    }
}

//! What rows of ours are called, and their numbers: both follow from the owner, so what is there is found again, and two
//! who make the same do not make it twice.

use portcullis_core::{Family, Owner};
use uuid::Uuid;

use super::tables::{BALANCER, key};
use crate::tables::ADDRESS_SET;

/// Where the numbers of owners come from.
const OWNERS: Uuid = Uuid::from_u128(0x706f_7274_6375_6c6c_6973_6261_6c61_6e63);

/// Protocols as OVN has them.
pub(super) const PROTOCOLS: [&str; 2] = ["tcp", "udp"];

/// The number that stands for an owner.
fn of(owner: &Owner) -> Uuid {
    Uuid::new_v5(&OWNERS, key(owner).as_bytes())
}

/// The number of a row.
pub(super) fn number(owner: &Owner, role: &str) -> Uuid {
    Uuid::new_v5(&of(owner), role.as_bytes())
}

/// What a load balancer is called.
pub(super) fn balancer(owner: &Owner, protocol: &str) -> String {
    format!("portcullis/{}/{protocol}", key(owner))
}

/// What the one is called whose members are only asked whether they are well.
pub(super) fn trial(owner: &Owner, protocol: &str) -> String {
    format!("{}/trial", balancer(owner, protocol))
}

/// What the one is called that ends the connections of who left.
pub(super) fn farewell(owner: &Owner) -> String {
    format!("portcullis/{}/farewell", key(owner))
}

/// What the set of who is kept out is called. A dash would be taken for a minus, so it is made from the number.
pub(super) fn set(owner: &Owner, family: Family) -> String {
    let family = match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    format!("portcullis_{}_{family}", of(owner).simple())
}

/// All names that rows of an owner may have, by table.
pub(super) fn names(owner: &Owner) -> Vec<(&'static str, String)> {
    let balancers = PROTOCOLS
        .into_iter()
        .flat_map(|protocol| [(BALANCER, balancer(owner, protocol)), (BALANCER, trial(owner, protocol))]);
    let sets = Family::ALL.map(|family| (ADDRESS_SET, set(owner, family)));
    balancers.chain([(BALANCER, farewell(owner))]).chain(sets).collect()
}

use portcullis_core::{Owner, OwnerError};
use proptest::prelude::*;

/// An owner with any values that one can have.
fn owner() -> impl Strategy<Value = Owner> {
    let text = any::<String>;
    let parts = (text(), text(), prop::option::of(text()), text());
    parts.prop_filter_map("no values of an owner", |(cluster, kind, namespace, name)| {
        Owner::new(cluster, kind, namespace, name).ok()
    })
}

fn read(pairs: &[(&str, String)]) -> Result<Option<Owner>, OwnerError> {
    Owner::from_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str())))
}

proptest! {
    #[test]
    fn an_owner_reads_back_from_among_foreign_marks(
        owner in owner(),
        foreign in prop::collection::vec(("[a-z./-]{0,20}", any::<String>()), 0..4),
        turn in any::<prop::sample::Index>(),
    ) {
        let mut pairs = owner.to_pairs();
        pairs.extend(foreign.iter().map(|(key, value)| (key.as_str(), value.clone())));
        let middle = turn.index(pairs.len());
        pairs.rotate_left(middle);
        prop_assert_eq!(read(&pairs), Ok(Some(owner.clone())));

        let (key, value) = turn.get(&owner.to_pairs()).clone();
        pairs.push((key, value));
        prop_assert_eq!(read(&pairs), Err(OwnerError::Twice(key)));
    }
}

//! Who may connect, as fields have it and as a set: without a list everyone, by an empty one nobody.

use portcullis_core::{AddressSet, Admission, EmptyMeans, Family, SourceRanges};

/// The set; `None` where there is a range that is none.
pub(super) fn admitted(ranges: Option<&[String]>) -> Option<AddressSet> {
    let admission = Admission { ranges: SourceRanges::parse(ranges).ok()?, empty_means: EmptyMeans::Nobody };
    let of = Family::ALL.into_iter().map(|family| admission.addresses(family));
    Some(of.fold(AddressSet::nobody(), |all, one| all.union(&one)))
}

/// Whether nobody gets in by the ranges that something has who is not to by those that are asked for.
pub(super) fn is_within(has: Option<&[String]>, asked: Option<&[String]>) -> bool {
    matches!((admitted(has), admitted(asked)), (Some(has), Some(asked)) if has.is_subset(&asked))
}

/// The field.
pub(super) fn listed(admitted: &AddressSet) -> Option<Vec<String>> {
    (*admitted != AddressSet::everyone()).then(|| ranges(admitted))
}

/// A list, also of everyone.
pub(super) fn ranges(admitted: &AddressSet) -> Vec<String> {
    admitted.cidrs().iter().map(ToString::to_string).collect()
}

/// What is left of the ranges that something has by those that are asked for: nobody gets in who did not, and nobody who is not to. It is
/// in the words of one of them, where it is one of them.
pub(super) fn narrowed(has: Option<&[String]>, asked: Option<&[String]>) -> Option<Vec<String>> {
    let words = |ranges: Option<&[String]>| ranges.map(<[String]>::to_vec);
    match (admitted(has), admitted(asked)) {
        (Some(before), Some(now)) if !before.is_subset(&now) => {
            if now.is_subset(&before) {
                words(asked)
            } else {
                listed(&before.intersection(&now))
            }
        }
        // What cannot be read says nothing of anybody.
        _ => words(has),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn ranges_become_narrower_and_never_wider() {
        for (has, asked, left) in [
            (json!(null), json!(null), json!(null)),
            (json!(null), json!(["10.0.0.0/8"]), json!(["10.0.0.0/8"])),
            (json!(null), json!([]), json!([])),
            (json!(["10.0.0.0/8"]), json!(null), json!(["10.0.0.0/8"])),
            (json!([]), json!(null), json!([])),
            (json!([]), json!(["10.0.0.0/8"]), json!([])),
            (json!(["0.0.0.0/0"]), json!(["10.0.0.0/8"]), json!(["10.0.0.0/8"])),
            (json!(["10.0.0.0/8"]), json!(["0.0.0.0/0"]), json!(["10.0.0.0/8"])),
            (json!(["10.0.0.0/8"]), json!(["192.0.2.0/24"]), json!([])),
            (
                json!(["10.0.0.0/9", "10.128.0.0/9"]),
                json!(["10.0.0.0/8"]),
                json!(["10.0.0.0/9", "10.128.0.0/9"]),
            ),
            (
                json!(["10.0.0.0/8", "192.0.2.0/24"]),
                json!(["10.1.0.0/16", "198.51.100.0/24"]),
                json!(["10.1.0.0/16"]),
            ),
            // A list of one family has nobody of the other.
            (json!(["0.0.0.0/0"]), json!(["::/0"]), json!([])),
            (json!(["0.0.0.0/0", "2001:db8::/32"]), json!(["::/0"]), json!(["2001:db8::/32"])),
            (
                json!(["10.0.0.0/8", "::/0"]),
                json!(["0.0.0.0/0", "2001:db8::/32"]),
                json!(["10.0.0.0/8", "2001:db8::/32"]),
            ),
            (json!(["10.0.0.0/8"]), json!(["10.0.0.0/33"]), json!(["10.0.0.0/8"])),
        ] {
            let list =
                |ranges: &Value| serde_json::from_value::<Option<Vec<String>>>(ranges.clone()).unwrap();
            let found = narrowed(list(&has).as_deref(), list(&asked).as_deref());
            assert_eq!(found, list(&left), "{has} {asked}");
        }
    }
}

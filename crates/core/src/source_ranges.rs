use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::{AddressSet, Cidr, CidrError, Family, Peer};

/// The ranges that may connect, as a source gives them. Absent, empty and listed are three things: the
/// sources agree that an absent list leaves access open, and disagree on an empty one.
///
/// There is no default, and nothing that reads it from JSON: a misspelt field would become an absent list, and
/// leave access open. In JSON that is written: null, `[]`, and a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SourceRanges(Option<Vec<Cidr>>);

/// The entries of a list that are not address ranges: all of them, so that they can be mended at once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct SourceRangesError(Vec<(usize, CidrError)>);

/// What a source means by an empty list. There is no default: guessing wrong opens or closes everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EmptyMeans {
    /// An empty list is like none, as in an OpenShift `IngressController`.
    Everyone,
    /// An empty list admits nobody, as proposed for the Kubernetes load balancer resource.
    Nobody,
}

/// Who may connect: a list of ranges, with what its source means by an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Admission {
    /// The ranges, as given.
    pub ranges: SourceRanges,
    /// What an empty list means to whoever gave it.
    pub empty_means: EmptyMeans,
}

impl SourceRanges {
    /// No list was given.
    pub fn absent() -> Self {
        Self(None)
    }

    /// A list was given, which may be empty.
    pub fn listed(ranges: impl IntoIterator<Item = Cidr>) -> Self {
        Self(Some(ranges.into_iter().collect()))
    }

    /// Reads a list, or that there is none. Spaces around an entry are left out, as Kubernetes allows them.
    pub fn parse<T: AsRef<str>>(
        entries: Option<impl IntoIterator<Item = T>>,
    ) -> Result<Self, SourceRangesError> {
        let Some(entries) = entries else {
            return Ok(Self::absent());
        };
        let (mut ranges, mut wrong) = (Vec::new(), Vec::new());
        for (index, entry) in entries.into_iter().enumerate() {
            match entry.as_ref().trim().parse() {
                Ok(range) => ranges.push(range),
                Err(error) => wrong.push((index, error)),
            }
        }
        if wrong.is_empty() { Ok(Self::listed(ranges)) } else { Err(SourceRangesError(wrong)) }
    }

    /// Whether no list was given.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// The ranges as given, in their order; none when the list is absent or empty.
    pub fn ranges(&self) -> &[Cidr] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl SourceRangesError {
    /// Each wrong entry, by its index from 0, and what is wrong with it.
    pub fn entries(&self) -> &[(usize, CidrError)] {
        &self.0
    }
}

/// The entries as a field path has them: `[0]: … [3]: …`.
impl fmt::Display for SourceRangesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> =
            self.0.iter().map(|(index, error)| format!("[{index}]: {error}")).collect();
        f.pad(&entries.join("; "))
    }
}

impl Admission {
    /// Who of a family may connect. A list with ranges of the other family only gives none: the family is
    /// closed, because whoever limits one family does not mean to leave the other open.
    pub fn peers(&self, family: Family) -> Vec<Peer> {
        match (&self.ranges.0, self.empty_means) {
            (None, _) => vec![Peer::Everyone],
            (Some(ranges), EmptyMeans::Everyone) if ranges.is_empty() => vec![Peer::Everyone],
            (Some(ranges), _) => {
                ranges.iter().filter(|range| range.family() == family).copied().map(Peer::Range).collect()
            }
        }
    }

    /// The addresses of a family that may connect.
    pub fn addresses(&self, family: Family) -> AddressSet {
        let ranges = self.peers(family).into_iter().filter_map(|peer| match peer {
            Peer::Everyone => Some(Cidr::everything(family)),
            Peer::Range(range) => Some(range),
            Peer::Group(_) => None,
        });
        ranges.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_empty_and_listed_are_three_things() {
        let listed = SourceRanges::listed(["10.0.0.0/8".parse().unwrap()]);
        for (entries, ranges, json) in [
            (None, SourceRanges::absent(), "null"),
            (Some(vec![]), SourceRanges::listed([]), "[]"),
            (Some(vec!["10.0.0.0/8"]), listed.clone(), "[\"10.0.0.0/8\"]"),
            (Some(vec![" 10.0.0.0/8\t"]), listed, "[\"10.0.0.0/8\"]"),
        ] {
            assert_eq!(SourceRanges::parse(entries), Ok(ranges.clone()));
            assert_eq!(serde_json::to_string(&ranges).unwrap(), json);
        }
        assert_ne!(SourceRanges::absent(), SourceRanges::listed([]));
    }

    #[test]
    fn every_wrong_entry_is_named() {
        let error = SourceRanges::parse(Some([" 10.0.0.3", "10.0.0.0/8", "", "::/0\u{1b}[2J"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "[0]: `10.0.0.3` is not an address range: the prefix is missing, as in `10.0.0.3/32` for one address; \
             [2]: `` is not an address range: `` is not an IPv4 or IPv6 address; \
             [3]: `::/0\\u{1b}[2J` is not an address range: the prefix is a plain number, without sign or leading zero"
        );
        assert_eq!(error.entries().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 2, 3]);
    }

    #[test]
    fn who_may_connect() {
        let v4: Cidr = "10.0.0.0/8".parse().unwrap();
        let mapped: Cidr = "::ffff:192.0.2.0/120".parse().unwrap();
        for (ranges, empty_means, in_v4, in_v6) in [
            (SourceRanges::absent(), EmptyMeans::Everyone, vec![Peer::Everyone], vec![Peer::Everyone]),
            (SourceRanges::absent(), EmptyMeans::Nobody, vec![Peer::Everyone], vec![Peer::Everyone]),
            (SourceRanges::listed([]), EmptyMeans::Everyone, vec![Peer::Everyone], vec![Peer::Everyone]),
            (SourceRanges::listed([]), EmptyMeans::Nobody, vec![], vec![]),
            (SourceRanges::listed([v4]), EmptyMeans::Everyone, vec![Peer::Range(v4)], vec![]),
            (SourceRanges::listed([v4]), EmptyMeans::Nobody, vec![Peer::Range(v4)], vec![]),
            (SourceRanges::listed([mapped]), EmptyMeans::Nobody, vec![Peer::Range(mapped)], vec![]),
        ] {
            let admission = Admission { ranges, empty_means };
            assert_eq!(admission.peers(Family::V4), in_v4, "{admission:?}");
            assert_eq!(admission.peers(Family::V6), in_v6, "{admission:?}");
        }
    }

    #[test]
    fn addresses_are_all_that_a_list_covers() {
        for (entries, in_v4, in_v6) in [
            (None, &["0.0.0.0/0"][..], &["::/0"][..]),
            (Some(vec![]), &[], &[]),
            (Some(vec!["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16"]), &["10.0.0.0/8"], &[]),
            (Some(vec!["192.0.2.0/24", "2001:db8::/32"]), &["192.0.2.0/24"], &["2001:db8::/32"]),
        ] {
            let ranges = SourceRanges::parse(entries).unwrap();
            let admission = Admission { ranges, empty_means: EmptyMeans::Nobody };
            for (family, expected) in [(Family::V4, in_v4), (Family::V6, in_v6)] {
                let found = admission.addresses(family).cidrs();
                assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
            }
        }
    }
}

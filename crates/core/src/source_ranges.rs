use serde::{Deserialize, Serialize};

use crate::{Cidr, Family, Peer};

/// The ranges that may connect, as a source gives them. Absent, empty and listed are three things: the
/// sources agree that an absent list leaves access open, and disagree on an empty one.
///
/// In JSON: an absent field (with `#[serde(default)]`) or null, `[]`, and a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceRanges(Option<Vec<Cidr>>);

/// What a source means by an empty list. There is no default: guessing wrong opens or closes everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmptyMeans {
    /// An empty list is like none, as in an OpenShift `IngressController`.
    Everyone,
    /// An empty list admits nobody, as proposed for the Kubernetes load balancer resource.
    Nobody,
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

    /// Whether no list was given.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// The ranges as given, in their order; none when the list is absent or empty.
    pub fn ranges(&self) -> &[Cidr] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Who of a family may connect. A list with ranges of the other family only gives none: the family is
    /// closed, because whoever limits one family does not mean to leave the other open.
    pub fn peers(&self, family: Family, empty_means: EmptyMeans) -> Vec<Peer> {
        match (&self.0, empty_means) {
            (None, _) => vec![Peer::Everyone],
            (Some(ranges), EmptyMeans::Everyone) if ranges.is_empty() => vec![Peer::Everyone],
            (Some(ranges), _) => {
                ranges.iter().filter(|range| range.family() == family).copied().map(Peer::Range).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Spec {
        #[serde(default)]
        ranges: SourceRanges,
    }

    fn read(json: &str) -> SourceRanges {
        serde_json::from_str::<Spec>(json).unwrap().ranges
    }

    #[test]
    fn absent_empty_and_listed_are_three_things() {
        assert_eq!(read("{}"), SourceRanges::absent());
        assert_eq!(read(r#"{"ranges": null}"#), SourceRanges::absent());
        assert_eq!(read(r#"{"ranges": []}"#), SourceRanges::listed([]));
        assert_ne!(SourceRanges::absent(), SourceRanges::listed([]));
        assert_eq!(read(r#"{"ranges": ["10.0.0.0/8"]}"#).ranges().len(), 1);
        assert!(serde_json::from_str::<Spec>(r#"{"ranges": ["10.0.0.0"]}"#).is_err());
        assert_eq!(serde_json::to_string(&SourceRanges::absent()).unwrap(), "null");
        assert_eq!(serde_json::to_string(&SourceRanges::listed([])).unwrap(), "[]");
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
            assert_eq!(ranges.peers(Family::V4, empty_means), in_v4, "{ranges:?} {empty_means:?}");
            assert_eq!(ranges.peers(Family::V6, empty_means), in_v6, "{ranges:?} {empty_means:?}");
        }
    }
}

use std::collections::BTreeSet;
use std::net::IpAddr;

use portcullis_core::Family;

use super::{Element, Place, Verdict};

/// The sets, chains and rules of the table: what they are follows from this. It does not grow with the number of
/// frontends, only with how different they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skeleton {
    /// Whether connections are forwarded, or only filtered.
    pub forwards: bool,
    /// The interfaces where packets are filtered as they arrive, before anything else sees them.
    pub interfaces: BTreeSet<String>,
    /// The node's own addresses, for filtering node ports there.
    pub local: BTreeSet<IpAddr>,
    /// Addresses of the node where no node port is served.
    pub kept: BTreeSet<IpAddr>,
    /// The lengths of prefixes that have a set of ranges.
    pub prefixes: BTreeSet<(Family, u8)>,
    /// The numbers of endpoints that have a chain to draw from.
    pub picks: BTreeSet<(Family, u32)>,
    /// The seconds for which clients keep an endpoint that have a map of clients.
    pub timeouts: BTreeSet<(Family, u32)>,
}

impl Skeleton {
    /// Makes room for these elements.
    pub(crate) fn hold(&mut self, place: Place, elements: &[Element]) {
        let family = place.family();
        for element in elements {
            match element {
                Element::Frontend(_) | Element::Arrived | Element::Dropped => continue,
                Element::Admit(range) => {
                    self.prefixes.insert((family, range.prefix_len()));
                    continue;
                }
                Element::Serve(Verdict::Pick(count)) => drop(self.picks.insert((family, *count))),
                Element::Member(timeout, _) => drop(self.timeouts.insert((family, *timeout))),
                Element::Serve(Verdict::Refuse)
                | Element::Slot(..)
                | Element::Masquerade
                | Element::Hairpin(_) => {}
            }
            self.forwards = true;
        }
    }

    /// Holds what either holds.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            forwards: self.forwards || other.forwards,
            interfaces: &self.interfaces | &other.interfaces,
            local: &self.local | &other.local,
            kept: &self.kept | &other.kept,
            prefixes: &self.prefixes | &other.prefixes,
            picks: &self.picks | &other.picks,
            timeouts: &self.timeouts | &other.timeouts,
        }
    }
}

/// A set of numbers, kept as sorted inclusive intervals with a gap between any two, so that equal sets are
/// equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Intervals(Vec<(u128, u128)>);

impl Intervals {
    pub(crate) fn as_slice(&self) -> &[(u128, u128)] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, number: u128) -> bool {
        self.ending_from(number).first().is_some_and(|&(first, _)| first <= number)
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).copied().collect()
    }

    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    #[must_use]
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        'interval: for &(first, last) in &self.0 {
            let mut from = first;
            for &(cut_first, cut_last) in other.ending_from(first) {
                if cut_first > last {
                    break;
                }
                if cut_first > from {
                    left.push((from, cut_first - 1));
                }
                if cut_last >= last {
                    continue 'interval;
                }
                from = cut_last + 1;
            }
            left.push((from, last));
        }
        Self(left)
    }

    /// The intervals that end at `number` or after it.
    fn ending_from(&self, number: u128) -> &[(u128, u128)] {
        &self.0[self.0.partition_point(|&(_, last)| last < number)..]
    }
}

impl FromIterator<(u128, u128)> for Intervals {
    fn from_iter<I: IntoIterator<Item = (u128, u128)>>(intervals: I) -> Self {
        let mut intervals: Vec<_> = intervals.into_iter().collect();
        intervals.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

//! Counters that go on where a worker ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::answers::{Counts, Key};
use crate::seen::Totals;

/// What workers counted, those that have ended as well: each starts from nothing, and together they never go back.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    workers: BTreeMap<u32, Sums>,
    ended: Sums,
    cut: BTreeMap<Key, u64>,
    /// Those whose connections are being ended; they are counted once.
    being_cut: BTreeSet<Key>,
}

#[derive(Debug, Default)]
struct Sums {
    frontends: BTreeMap<String, Totals>,
    servers: BTreeMap<Key, Totals>,
}

impl Tally {
    /// Takes in what the workers that there are have counted so far.
    pub(crate) fn take(&mut self, counts: &BTreeMap<u32, Counts>) {
        let gone: Vec<u32> = self.workers.keys().filter(|pid| !counts.contains_key(pid)).copied().collect();
        for pid in gone {
            let sums = self.workers.remove(&pid).unwrap_or_default();
            sums.frontends
                .into_iter()
                .for_each(|(key, sum)| *self.ended.frontends.entry(key).or_default() += sum);
            sums.servers
                .into_iter()
                .for_each(|(key, sum)| *self.ended.servers.entry(key).or_default() += sum);
        }
        for (&pid, counts) in counts {
            self.take_some(pid, counts);
        }
    }

    /// Takes in some of what a worker has counted.
    pub(crate) fn take_some(&mut self, worker: u32, counts: &Counts) {
        let sums = self.workers.entry(worker).or_default();
        for (key, totals) in &counts.frontends {
            sums.frontends.insert(key.clone(), *totals);
        }
        // One that was taken away stays with what it had.
        for (key, server) in &counts.servers {
            let sum = sums.servers.entry(key.clone()).or_default();
            if sum.connections > server.totals.connections {
                // It was taken away and came back, and counts from nothing.
                let before = std::mem::take(sum);
                *self.ended.servers.entry(key.clone()).or_default() += before;
            }
            *sum = server.totals;
        }
    }

    pub(crate) fn frontend(&self, proxy: &str) -> Totals {
        let all = self.workers.values().chain([&self.ended]);
        all.filter_map(|sums| sums.frontends.get(proxy)).fold(Totals::default(), |sum, one| sum + *one)
    }

    pub(crate) fn server(&self, key: &Key) -> Totals {
        let all = self.workers.values().chain([&self.ended]);
        all.filter_map(|sums| sums.servers.get(key)).fold(Totals::default(), |sum, one| sum + *one)
    }

    /// Connections are about to be ended: all those of a server, in all workers. They may take a moment to end.
    pub(crate) fn cutting(&mut self, cuts: &BTreeMap<Key, u64>) {
        for (key, sessions) in cuts {
            if self.being_cut.insert(key.clone()) {
                *self.cut.entry(key.clone()).or_default() += sessions;
            }
        }
        self.being_cut.retain(|key| cuts.contains_key(key));
    }

    pub(crate) fn cut(&self, key: &Key) -> u64 {
        self.cut.get(key).copied().unwrap_or_default()
    }

    /// Forgets load balancers that nobody wants any more.
    pub(crate) fn keep(&mut self, proxies: &BTreeSet<String>) {
        self.cut.retain(|key, _| proxies.contains(&key.0));
        for sums in self.workers.values_mut().chain([&mut self.ended]) {
            sums.frontends.retain(|proxy, _| proxies.contains(proxy));
            sums.servers.retain(|key, _| proxies.contains(&key.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::ServerCounts;

    fn key() -> Key {
        ("p".to_owned(), "s".to_owned())
    }

    fn counted(connections: u64) -> Counts {
        let totals = Totals { connections, ..Totals::default() };
        let server = ServerCounts { totals, ..ServerCounts::default() };
        Counts { frontends: [("p".to_owned(), totals)].into(), servers: [(key(), server)].into() }
    }

    #[test]
    fn totals_never_go_back() {
        let mut tally = Tally::default();
        for (workers, sum) in [
            (vec![(1, 5)], 5),
            // A reload: the old one goes on for a while.
            (vec![(1, 6), (2, 1)], 7),
            (vec![(2, 4)], 10),
            (vec![], 10),
            (vec![(3, 1)], 11),
        ] {
            tally.take(&workers.into_iter().map(|(pid, count)| (pid, counted(count))).collect());
            assert_eq!(tally.frontend("p").connections, sum);
            assert_eq!(tally.server(&key()).connections, sum);
        }
    }

    #[test]
    fn connections_are_cut_once() {
        let mut tally = Tally::default();
        for (cuts, sum) in [(vec![(key(), 3)], 3), (vec![(key(), 2)], 3), (vec![], 3), (vec![(key(), 4)], 7)]
        {
            tally.cutting(&cuts.into_iter().collect());
            assert_eq!(tally.cut(&key()), sum);
        }
    }
}

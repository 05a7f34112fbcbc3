//! Counters that go on where a worker ends.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::Member;

use crate::answers::{Counts, Key};
use crate::names;
use crate::next::Why;
use crate::seen::Totals;

/// What workers counted, those that have ended as well: each starts from nothing, and together they never go back.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    workers: BTreeMap<u32, Sums>,
    ended: Sums,
    cut: BTreeMap<Why, BTreeMap<Key, u64>>,
    /// Those whose connections in a worker are being ended; they are counted once.
    being_cut: BTreeSet<(Key, u32)>,
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

    /// What clients of a load balancer did, also by listeners that it had before.
    pub(crate) fn clients(&self, balancer: &str) -> Totals {
        let (from, to) = names::proxies_between(balancer);
        let all = self.workers.values().chain([&self.ended]);
        let all = all.flat_map(|sums| sums.frontends.range(from.clone()..to.clone()));
        all.fold(Totals::default(), |sum, (_, one)| sum + *one)
    }

    /// What a member of a load balancer did, also by listeners that it had before.
    pub(crate) fn member(&self, balancer: &str, member: &Member) -> Totals {
        let all = self.workers.values().chain([&self.ended]);
        let all = all.flat_map(|sums| of_member(&sums.servers, balancer, member));
        all.fold(Totals::default(), |sum, (_, one)| sum + *one)
    }

    /// Connections are about to be ended: all those of a server in a worker. They may take a moment to end. Gives those that
    /// were not known to be.
    pub(crate) fn cutting(&mut self, cuts: &BTreeMap<(Key, u32), (u64, Why)>) -> Vec<(Key, u32)> {
        let mut new = Vec::new();
        for ((key, worker), (sessions, why)) in cuts {
            if self.being_cut.insert((key.clone(), *worker)) {
                *self.cut.entry(*why).or_default().entry(key.clone()).or_default() += sessions;
                new.push((key.clone(), *worker));
            }
        }
        self.being_cut.retain(|one| cuts.contains_key(one));
        new
    }

    /// The connections of a member that were ended for this.
    pub(crate) fn cut(&self, why: Why, balancer: &str, member: &Member) -> u64 {
        self.cut
            .get(&why)
            .into_iter()
            .flat_map(|cut| of_member(cut, balancer, member))
            .map(|(_, cut)| cut)
            .sum()
    }

    /// Forgets all load balancers but these.
    pub(crate) fn keep(&mut self, balancers: &BTreeSet<String>) {
        let stays = |proxy: &str| balancers.contains(names::balancer_of(proxy));
        self.cut.values_mut().for_each(|cut| cut.retain(|key, _| stays(&key.0)));
        for sums in self.workers.values_mut().chain([&mut self.ended]) {
            sums.frontends.retain(|proxy, _| stays(proxy));
            sums.servers.retain(|key, _| stays(&key.0));
        }
    }
}

/// What is known of a member of a load balancer, by all listeners that it has or had.
pub(crate) fn of_member<'a, V>(
    all: &'a BTreeMap<Key, V>,
    balancer: &str,
    member: &Member,
) -> impl Iterator<Item = (&'a Key, &'a V)> {
    let (from, to) = names::proxies_between(balancer);
    all.range((from, String::new())..(to, String::new())).filter(|(key, _)| names::is_of(&key.1, member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::ServerCounts;

    fn key() -> Key {
        ("a:b:80".to_owned(), "m:10.0.0.1:6443".to_owned())
    }

    fn member() -> Member {
        Member::new("m", ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]).unwrap()
    }

    fn counted(connections: u64) -> Counts {
        let totals = Totals { connections, ..Totals::default() };
        let server = ServerCounts { totals, ..ServerCounts::default() };
        Counts { frontends: [(key().0, totals)].into(), servers: [(key(), server)].into() }
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
            assert_eq!(tally.clients("a:b").connections, sum);
            assert_eq!(tally.member("a:b", &member()).connections, sum);
        }
        tally.keep(&["a:b".to_owned()].into());
        assert_eq!(tally.clients("a:b").connections, 11);
        tally.keep(&["a:c".to_owned()].into());
        assert_eq!(tally.clients("a:b").connections, 0);
    }

    #[test]
    fn connections_are_cut_once() {
        let mut tally = Tally::default();
        for (cuts, new, sum) in [
            (vec![(1, 3)], 1, 3),
            (vec![(1, 2)], 0, 3),
            // In another worker.
            (vec![(1, 2), (2, 1)], 1, 4),
            (vec![], 0, 4),
            (vec![(1, 4)], 1, 8),
        ] {
            let cuts =
                |why| cuts.iter().map(|(worker, sessions)| ((key(), *worker), (*sessions, why))).collect();
            assert_eq!(tally.cutting(&cuts(Why::TimeIsOver)).len(), new);
            assert_eq!(tally.cut(Why::TimeIsOver, "a:b", &member()), sum);
        }
        assert_eq!(tally.cutting(&[((key(), 3), (2, Why::TooManyWorkers))].into()).len(), 1);
        assert_eq!(tally.cut(Why::TooManyWorkers, "a:b", &member()), 2);
        assert_eq!(tally.cut(Why::TimeIsOver, "a:b", &member()), 8);
    }
}

//! Which addresses of a machine somebody means, by what they wrote.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use portcullis_core::{Cidr, Family};
use thiserror::Error;

use super::{Interface, Interfaces};

/// What somebody wrote: the name of an interface, or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// All addresses of the interface of this name.
    Name(String),
    /// This address. However it is written, it is the same.
    Address(IpAddr),
}

impl From<&str> for Entry {
    fn from(text: &str) -> Self {
        let text = text.trim();
        text.parse().map_or_else(
            |_| Entry::Name(text.to_owned()),
            |address: IpAddr| Entry::Address(address.to_canonical()),
        )
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Name(name) => f.pad(name),
            Entry::Address(address) => f.pad(&address.to_string()),
        }
    }
}

/// An entry that means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotHere {
    /// No interface has this name.
    #[error("no interface `{name}` on this host. Interfaces here: {here}.")]
    Interface {
        /// What was written.
        name: String,
        /// What there is instead.
        here: String,
    },
    /// No interface has this address.
    #[error("no interface of this host has the address {address}. Interfaces here: {here}.")]
    Address {
        /// What was written.
        address: IpAddr,
        /// What there is instead.
        here: String,
    },
    /// The interface is not for Services.
    #[error("{what} is kept for those who look after this host. Interfaces here: {here}.")]
    Kept {
        /// What was written.
        what: String,
        /// What there is instead.
        here: String,
    },
    /// The interface has no address that others could come to, and never will.
    #[error("interface `{name}` only leads back to this host. Interfaces here: {here}.")]
    Loopback {
        /// What was written.
        name: String,
        /// What there is instead.
        here: String,
    },
    /// Clients cannot use this address, or not those that are meant.
    #[error("{address} is an address that clients do not come to: {why}.")]
    Unusable {
        /// What was written.
        address: IpAddr,
        /// Why not.
        why: &'static str,
    },
    /// The cluster has no Services of this family.
    #[error("{address} is of {family}, and the cluster's Services are not.")]
    OtherFamily {
        /// What was written.
        address: IpAddr,
        /// Its family.
        family: Family,
    },
}

/// How addresses are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Interfaces that belong to the network between pods, whose addresses nobody outside means: a name, or its start
    /// and `*`.
    pub internal: Vec<String>,
    /// Interfaces that are kept for those who look after the machine.
    pub management: Vec<String>,
    /// The families of the cluster's Services.
    pub families: BTreeSet<Family>,
}

/// Addresses that clients do not come to, and why.
const UNUSABLE: [(&str, &str); 5] = [
    ("127.0.0.0/8", "it only leads back to this host"),
    ("::1/128", "it only leads back to this host"),
    ("169.254.0.0/16", "it is only known on one link"),
    ("fe80::/10", "it is only known on one link"),
    ("fd69::/125", "it belongs to the network between pods"),
];

impl Selection {
    /// What is usual: the interfaces of the well-known networks between pods are theirs.
    pub fn usual() -> Self {
        let internal = [
            "cni*",
            "veth*",
            "lxc*",
            "cali*",
            "wireguard.cali",
            "wg-v6.cali",
            "tunl*",
            "vxlan*",
            "genev*",
            "flannel*",
            "cilium*",
            "kube-*",
            "nodelocaldns",
            "docker*",
            "podman*",
            "virbr*",
            "ovn*",
            "ovs-*",
            "br-int",
            "antrea-*",
            "weave*",
            "kilo0",
            "vx-submariner",
        ];
        Selection {
            internal: internal.map(str::to_owned).to_vec(),
            management: Vec::new(),
            families: BTreeSet::from([Family::V4, Family::V6]),
        }
    }

    /// The addresses by which others reach this machine, if nobody says which.
    pub fn external(&self, interfaces: &Interfaces) -> BTreeSet<IpAddr> {
        let outside = interfaces
            .iter()
            .filter(|interface| !interface.is_loopback && !self.is_internal(&interface.name));
        let all = outside.flat_map(|interface| self.of(interface));
        all.filter(|address| !self.keeps(*address, interfaces)).collect()
    }

    /// The addresses that entries mean. What is not there at the moment is none, and no mistake: interfaces and addresses
    /// come and go.
    pub fn chosen(&self, entries: &[Entry], interfaces: &Interfaces) -> BTreeSet<IpAddr> {
        let mut all = BTreeSet::new();
        for entry in entries {
            match entry {
                Entry::Name(name) => {
                    all.extend(interfaces.find(name).into_iter().flat_map(|interface| self.of(interface)));
                }
                Entry::Address(address) => {
                    let is_here = interfaces.have(*address) && self.serves(*address);
                    all.extend(is_here.then_some(*address));
                }
            }
        }
        all.retain(|address| !self.keeps(*address, interfaces));
        all
    }

    /// What of the entries means nothing here.
    pub fn check(&self, entries: &[Entry], interfaces: &Interfaces) -> Vec<(Entry, NotHere)> {
        let wrong = entries.iter().filter_map(|entry| Some((entry.clone(), self.wrong(entry, interfaces)?)));
        wrong.collect()
    }

    fn wrong(&self, entry: &Entry, interfaces: &Interfaces) -> Option<NotHere> {
        match entry {
            Entry::Name(name) if interfaces.find(name).is_none() => {
                Some(NotHere::Interface { name: name.clone(), here: self.here(interfaces) })
            }
            Entry::Name(name) => {
                let found = interfaces.find(name)?;
                if self.is_kept(found) {
                    return Some(NotHere::Kept {
                        what: format!("interface `{name}`"),
                        here: self.here(interfaces),
                    });
                }
                let leads_back = found.is_loopback && self.of(found).next().is_none();
                leads_back.then(|| NotHere::Loopback { name: name.clone(), here: self.here(interfaces) })
            }
            Entry::Address(address) if !interfaces.have(*address) => {
                Some(NotHere::Address { address: *address, here: self.here(interfaces) })
            }
            Entry::Address(address) => {
                if self.keeps(*address, interfaces) {
                    return Some(NotHere::Kept { what: address.to_string(), here: self.here(interfaces) });
                }
                let family = Family::of(*address);
                if !self.families.contains(&family) {
                    return Some(NotHere::OtherFamily { address: *address, family });
                }
                unusable(*address).map(|why| NotHere::Unusable { address: *address, why })
            }
        }
    }

    /// Whether an interface of this name belongs to the network between pods.
    pub fn is_internal(&self, name: &str) -> bool {
        is_listed(&self.internal, name)
    }

    /// Whether an interface is kept for those who look after the machine.
    pub fn is_kept(&self, interface: &Interface) -> bool {
        is_listed(&self.management, &interface.name)
    }

    /// Whether an address is one by which the machine is looked after, whatever other interface has it as well.
    fn keeps(&self, address: IpAddr, interfaces: &Interfaces) -> bool {
        interfaces.iter().any(|found| self.is_kept(found) && found.addresses.contains(&address))
    }

    /// The addresses of an interface that clients come to.
    fn of(&self, interface: &Interface) -> impl Iterator<Item = IpAddr> {
        let free = interface.master.is_none();
        interface.addresses.iter().copied().filter(move |address| free && self.serves(*address))
    }

    fn serves(&self, address: IpAddr) -> bool {
        unusable(address).is_none() && self.families.contains(&Family::of(address))
    }

    /// The interfaces that could be meant, for people.
    fn here(&self, interfaces: &Interfaces) -> String {
        let shown = interfaces.iter().filter(|interface| {
            !interface.is_loopback
                && interface.master.is_none()
                && !self.is_internal(&interface.name)
                && !self.is_kept(interface)
        });
        let shown = shown.map(|interface| {
            let addresses: Vec<String> = self.of(interface).map(|address| address.to_string()).collect();
            if addresses.is_empty() {
                return interface.name.clone();
            }
            format!("{} ({})", interface.name, addresses.join(", "))
        });
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    }
}

fn unusable(address: IpAddr) -> Option<&'static str> {
    UNUSABLE.iter().find(|one| is_within(address, std::slice::from_ref(one))).map(|(_, why)| *why)
}

fn is_within(address: IpAddr, ranges: &[(&str, &str)]) -> bool {
    ranges.iter().any(|(range, _)| range.parse::<Cidr>().is_ok_and(|range| range.contains(address)))
}

/// Whether a name is listed, as it is or by its start and `*`.
fn is_listed(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => entry == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            master: None,
            is_loopback: name == "lo",
            is_veth: false,
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    fn here() -> Interfaces {
        let enslaved = Interface { master: Some(2), ..interface("enp5s0", &["198.51.100.9"]) };
        let all = [
            interface("lo", &["127.0.0.1", "::1", "10.44.0.0"]),
            interface("enp3s0", &["192.0.2.7", "2001:db8::7", "fe80::7"]),
            interface("enp4s0", &["10.0.7.4", "169.254.169.2"]),
            enslaved,
            interface("cni0", &["10.42.0.1"]),
        ];
        all.into_iter().enumerate().map(|(index, one)| (u32::try_from(index).unwrap(), one)).collect()
    }

    fn entries(texts: &[&str]) -> Vec<Entry> {
        texts.iter().map(|text| Entry::from(*text)).collect()
    }

    fn texts(addresses: BTreeSet<IpAddr>) -> Vec<String> {
        addresses.into_iter().map(|address| address.to_string()).collect()
    }

    #[test]
    fn the_addresses_of_the_host() {
        assert_eq!(texts(Selection::usual().external(&here())), ["10.0.7.4", "192.0.2.7", "2001:db8::7"]);
        let kept = Selection { management: vec!["enp4s0".to_owned()], ..Selection::usual() };
        assert_eq!(texts(kept.external(&here())), ["192.0.2.7", "2001:db8::7"]);
        let four = Selection { families: BTreeSet::from([Family::V4]), ..Selection::usual() };
        assert_eq!(texts(four.external(&here())), ["10.0.7.4", "192.0.2.7"]);
    }

    #[test]
    fn interfaces_of_networks_between_pods() {
        let usual = Selection::usual();
        for name in [
            "cni0",
            "cali0a1b2c3d4e5",
            "vxlan.calico",
            "wireguard.cali",
            "wg-v6.cali",
            "flannel.1",
            "cilium_host",
            "kube-ipvs0",
            "ovn-k8s-mp0",
            "antrea-gw0",
            "kilo0",
            "vx-submariner",
        ] {
            assert!(usual.is_internal(name), "{name}");
        }
        for name in ["enp3s0", "eth0", "bond0", "br0", "wg0", "wireguard0", "vx0"] {
            assert!(!usual.is_internal(name), "{name}");
        }
    }

    #[test]
    fn what_entries_mean() {
        let usual = Selection::usual();
        for (written, expected) in [
            (&["enp3s0"][..], &["192.0.2.7", "2001:db8::7"][..]),
            (&["192.0.2.7"], &["192.0.2.7"]),
            // The same twice, by name and address, and written otherwise.
            (&["enp3s0", "192.0.2.7", "2001:0db8:0::7", "enp3s0"], &["192.0.2.7", "2001:db8::7"]),
            (&["::ffff:192.0.2.7"], &["192.0.2.7"]),
            (&["enp5s0"], &[]),
            (&["enp9s9", "192.0.2.99"], &[]),
            // Who names an interface of the network between pods means it.
            (&["cni0"], &["10.42.0.1"]),
            // An API server's own address.
            (&["10.44.0.0"], &["10.44.0.0"]),
            (&["127.0.0.1", "fe80::7"], &[]),
        ] {
            assert_eq!(texts(usual.chosen(&entries(written), &here())), expected, "{written:?}");
        }
        let kept = Selection { management: vec!["enp4s0".to_owned()], ..usual };
        assert_eq!(
            texts(kept.chosen(&entries(&["enp4s0", "10.0.7.4", "enp3s0"]), &here())),
            ["192.0.2.7", "2001:db8::7"]
        );
    }

    /// The machine is looked after by an address that another interface has as well, whichever comes first.
    #[test]
    fn an_address_that_is_kept_is_kept_on_every_interface() {
        let of_both = ["192.0.2.7", "192.0.2.8"];
        for kept in ["eth0", "eth1"] {
            let selection = Selection { management: vec![kept.to_owned()], ..Selection::usual() };
            let both = [interface("eth0", &["192.0.2.7"]), interface("eth1", &["192.0.2.7"])];
            let other = interface("eth2", &of_both);
            let here = (1..).zip(both.into_iter().chain([other])).collect();
            assert_eq!(texts(selection.external(&here)), ["192.0.2.8"], "{kept}");
            for (written, expected) in
                [("192.0.2.7", &[][..]), ("eth0", &[]), ("eth1", &[]), ("eth2", &["192.0.2.8"])]
            {
                assert_eq!(
                    texts(selection.chosen(&entries(&[written]), &here)),
                    expected,
                    "{kept} {written}"
                );
            }
            let wrong = selection.check(&entries(&["192.0.2.7"]), &here);
            assert!(matches!(wrong[..], [(_, NotHere::Kept { .. })]), "{kept} {wrong:?}");
        }
    }

    #[test]
    fn what_means_nothing_is_told() {
        let here = here();
        let told = |selection: &Selection, text: &str| {
            let wrong = selection.check(&entries(&[text]), &here);
            wrong.first().map(|(_, wrong)| wrong.to_string())
        };
        let usual = Selection::usual();
        for fine in ["enp3s0", "192.0.2.7", "2001:DB8::7", "10.44.0.0", "enp5s0"] {
            assert_eq!(told(&usual, fine), None, "{fine}");
        }
        let rest = "Interfaces here: enp3s0 (192.0.2.7, 2001:db8::7), enp4s0 (10.0.7.4).";
        assert_eq!(told(&usual, "enp3s1").unwrap(), format!("no interface `enp3s1` on this host. {rest}"));
        assert_eq!(
            told(&usual, "192.0.2.99").unwrap(),
            format!("no interface of this host has the address 192.0.2.99. {rest}")
        );
        let kept = Selection { management: vec!["enp4s0".to_owned()], ..Selection::usual() };
        for (written, what) in [("enp4s0", "interface `enp4s0`"), ("10.0.7.4", "10.0.7.4")] {
            assert_eq!(
                told(&kept, written).unwrap(),
                format!(
                    "{what} is kept for those who look after this host. Interfaces here: enp3s0 (192.0.2.7, 2001:db8::7)."
                )
            );
        }
        assert_eq!(told(&usual, "lo"), None, "it has an API server's address");
        let alone: Interfaces = [(1, interface("lo", &["127.0.0.1", "::1"]))].into_iter().collect();
        let wrong = usual.check(&entries(&["lo"]), &alone);
        assert_eq!(
            wrong[0].1.to_string(),
            "interface `lo` only leads back to this host. Interfaces here: none."
        );
        assert!(told(&usual, "127.0.0.1").unwrap().contains("only leads back to this host"));
        assert!(told(&usual, "fe80::7").unwrap().contains("only known on one link"));
        let four = Selection { families: BTreeSet::from([Family::V4]), ..usual };
        assert_eq!(
            told(&four, "2001:db8::7").unwrap(),
            "2001:db8::7 is of IPv6, and the cluster's Services are not."
        );
    }
}

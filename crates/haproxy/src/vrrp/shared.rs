use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use portcullis_core::Family;
use thiserror::Error;

/// An address that one of several machines has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAddress {
    address: IpAddr,
    interface: String,
    router: u8,
    priority: u8,
    peers: Vec<IpAddr>,
    interval: Duration,
}

/// Why an address cannot be shared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SharedAddressError {
    /// It is none that a machine has.
    #[error("{0} cannot be shared by machines: give the address of one")]
    Address(IpAddr),
    /// The interface has no possible name.
    #[error("{0:?} is not the name of an interface: it has 1 to 15 letters, digits, `-`, `_` and `.`")]
    Interface(String),
    /// The number is taken by the protocol.
    #[error("{0}: a virtual router id is a number from 1 to 255")]
    Router(IpAddr),
    /// The priority is taken by the protocol.
    #[error("{0}: a priority is a number from 1 to 254")]
    Priority(IpAddr),
    /// Another family.
    #[error("{address}: the peer {peer} is of another family, and would hear nothing")]
    Peer {
        /// The shared address.
        address: IpAddr,
        /// The peer.
        peer: IpAddr,
    },
    /// The pace is none that the protocol has.
    #[error("{0}: advertisements come every 10 ms to 40 s")]
    Interval(IpAddr),
    /// Two with one number.
    #[error("{0} and {1} have the same virtual router id on the same interface: give each its own")]
    SameRouter(IpAddr, IpAddr),
}

impl SharedAddress {
    /// An address that is on `interface` of the machine that has it. `router` is the same on all machines, and no other
    /// address of the family has it in that network; the higher `priority` gets the address if nobody has it.
    pub fn new(
        address: IpAddr,
        interface: impl Into<String>,
        router: u8,
        priority: u8,
    ) -> Result<Self, SharedAddressError> {
        let (address, interface) = (address.to_canonical(), interface.into());
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return Err(SharedAddressError::Address(address));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if interface.is_empty() || interface.len() > 15 || !interface.bytes().all(plain) {
            return Err(SharedAddressError::Interface(interface));
        }
        if router == 0 {
            return Err(SharedAddressError::Router(address));
        }
        // Who has the address for good has 255, and who gives it up says 0.
        if priority == 0 || priority == 255 {
            return Err(SharedAddressError::Priority(address));
        }
        Ok(Self { address, interface, router, priority, peers: Vec::new(), interval: Duration::from_secs(1) })
    }

    /// The same address, with other machines that are told one by one: for networks that carry no multicast.
    pub fn with_peers(self, peers: Vec<IpAddr>) -> Result<Self, SharedAddressError> {
        let other = |peer: &&IpAddr| Family::of(**peer) != Family::of(self.address);
        if let Some(&peer) = peers.iter().find(other) {
            return Err(SharedAddressError::Peer { address: self.address, peer });
        }
        Ok(Self { peers, ..self })
    }

    /// The same address at another pace. Who has it is missed after three times as long.
    pub fn with_interval(self, interval: Duration) -> Result<Self, SharedAddressError> {
        if interval < Duration::from_millis(10) || interval > Duration::from_secs(40) {
            return Err(SharedAddressError::Interval(self.address));
        }
        Ok(Self { interval, ..self })
    }

    /// The address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The interface that it comes to.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

/// The configuration of keepalived. `unfit` is a file with `0` while this machine can serve.
pub(crate) fn render(shared: &[SharedAddress], unfit: &Path) -> Result<String, SharedAddressError> {
    let mut known: BTreeMap<(Family, &str, u8), IpAddr> = BTreeMap::new();
    for one in shared {
        let key = (Family::of(one.address), one.interface.as_str(), one.router);
        if let Some(other) = known.insert(key, one.address) {
            return Err(SharedAddressError::SameRouter(other, one.address));
        }
    }
    let mut text = String::new();
    write_all(&mut text, shared, unfit).expect("a string takes everything");
    Ok(text)
}

fn write_all(text: &mut String, shared: &[SharedAddress], unfit: &Path) -> std::fmt::Result {
    writeln!(text, "# Written by portcullis, which replaces it: changes here do not stay.")?;
    writeln!(text, "global_defs {{\n    router_id portcullis\n    vrrp_version 3\n}}\n")?;
    // With weight 0, anything but a 0 in the file is a fault: the address goes at once, whatever the priorities are.
    writeln!(text, "track_file unfit {{\n    file \"{}\"\n    weight 0\n}}", unfit.display())?;
    for one in shared {
        let family = if one.address.is_ipv4() { "v4" } else { "v6" };
        let bits = Family::of(one.address).bits();
        let SharedAddress { address, interface, router, priority, .. } = one;
        writeln!(text, "\nvrrp_instance {family}-{interface}-{router} {{")?;
        // Who comes back does not take the address from who has it: each move costs connections.
        writeln!(text, "    state BACKUP\n    nopreempt")?;
        writeln!(text, "    interface {interface}\n    virtual_router_id {router}\n    priority {priority}")?;
        writeln!(text, "    advert_int {:.2}", one.interval.as_secs_f64())?;
        // Told again now and then, for switches and neighbours that missed it.
        writeln!(text, "    garp_master_refresh 30")?;
        if !one.peers.is_empty() {
            writeln!(text, "    unicast_peer {{")?;
            for peer in &one.peers {
                writeln!(text, "        {peer}")?;
            }
            writeln!(text, "    }}")?;
        }
        writeln!(text, "    virtual_ipaddress {{\n        {address}/{bits} dev {interface}\n    }}")?;
        writeln!(text, "    track_file {{\n        unfit\n    }}\n}}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(address: &str, router: u8) -> SharedAddress {
        SharedAddress::new(address.parse().unwrap(), "eth0", router, 100).unwrap()
    }

    #[test]
    fn what_keepalived_reads() {
        let peers = vec!["192.0.2.11".parse().unwrap(), "192.0.2.12".parse().unwrap()];
        let v4 = shared("192.0.2.100", 51).with_peers(peers).unwrap();
        let v6 = shared("2001:db8::100", 51).with_interval(Duration::from_millis(200)).unwrap();
        let expected = "\
# Written by portcullis, which replaces it: changes here do not stay.
global_defs {
    router_id portcullis
    vrrp_version 3
}

track_file unfit {
    file \"/run/unfit\"
    weight 0
}

vrrp_instance v4-eth0-51 {
    state BACKUP
    nopreempt
    interface eth0
    virtual_router_id 51
    priority 100
    advert_int 1.00
    garp_master_refresh 30
    unicast_peer {
        192.0.2.11
        192.0.2.12
    }
    virtual_ipaddress {
        192.0.2.100/32 dev eth0
    }
    track_file {
        unfit
    }
}

vrrp_instance v6-eth0-51 {
    state BACKUP
    nopreempt
    interface eth0
    virtual_router_id 51
    priority 100
    advert_int 0.20
    garp_master_refresh 30
    virtual_ipaddress {
        2001:db8::100/128 dev eth0
    }
    track_file {
        unfit
    }
}
";
        assert_eq!(render(&[v4, v6], Path::new("/run/unfit")).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let new = |address: &str, interface: &str, router, priority| {
            SharedAddress::new(address.parse().unwrap(), interface, router, priority).unwrap_err().to_string()
        };
        assert_eq!(
            new("0.0.0.0", "eth0", 1, 1),
            "0.0.0.0 cannot be shared by machines: give the address of one"
        );
        assert_eq!(
            new("192.0.2.1", "eth0 }", 1, 1),
            "\"eth0 }\" is not the name of an interface: it has 1 to 15 letters, digits, `-`, `_` and `.`"
        );
        assert_eq!(
            new("192.0.2.1", "eth0", 0, 1),
            "192.0.2.1: a virtual router id is a number from 1 to 255"
        );
        assert_eq!(new("192.0.2.1", "eth0", 1, 255), "192.0.2.1: a priority is a number from 1 to 254");
        let (one, other) = (shared("192.0.2.1", 7), shared("192.0.2.2", 7));
        assert!(one.clone().with_peers(vec!["2001:db8::1".parse().unwrap()]).is_err());
        assert!(one.clone().with_interval(Duration::from_secs(41)).is_err());
        assert_eq!(
            render(&[one.clone(), other], Path::new("/x")).unwrap_err().to_string(),
            "192.0.2.1 and 192.0.2.2 have the same virtual router id on the same interface: give each its own"
        );
        assert!(render(&[one, shared("2001:db8::1", 7)], Path::new("/x")).is_ok());
    }
}

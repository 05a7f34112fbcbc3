use std::collections::BTreeSet;
use std::net::IpAddr;

use thiserror::Error;

use crate::{Direction, Family, GroupId, IcmpOfOtherFamily, Traffic};

/// The first packet of a connection, as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    direction: Direction,
    local: IpAddr,
    remote: IpAddr,
    traffic: Traffic,
    remote_groups: BTreeSet<GroupId>,
}

/// Why the parts do not make a packet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// One end is IPv4, the other IPv6.
    #[error("no packet goes between {local} and {remote}: one is IPv4, the other IPv6")]
    MixedFamilies {
        /// The protected end.
        local: IpAddr,
        /// The other end.
        remote: IpAddr,
    },
    /// The traffic could be that of many packets.
    #[error("`{0}` is not the traffic of one packet: give one port, or one ICMP type and code")]
    NotSingle(Traffic),
    /// The ICMP is of the other family.
    #[error(transparent)]
    Icmp(#[from] IcmpOfOtherFamily),
}

impl Packet {
    /// A packet between the protected endpoint `local` and `remote`. Its traffic names the destination port.
    pub fn new(
        direction: Direction,
        local: IpAddr,
        remote: IpAddr,
        traffic: Traffic,
    ) -> Result<Self, PacketError> {
        if Family::of(local) != Family::of(remote) {
            return Err(PacketError::MixedFamilies { local, remote });
        }
        traffic.check_family(Family::of(remote))?;
        if !traffic.is_single() {
            return Err(PacketError::NotSingle(traffic));
        }
        let (local, remote) = (local.to_canonical(), remote.to_canonical());
        Ok(Self { direction, local, remote, traffic, remote_groups: BTreeSet::new() })
    }

    /// The same packet, with the groups the remote end belongs to.
    #[must_use]
    pub fn with_remote_groups(self, groups: impl IntoIterator<Item = GroupId>) -> Self {
        Self { remote_groups: groups.into_iter().collect(), ..self }
    }

    /// Which way it goes, seen from the protected endpoint.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The family of both addresses.
    pub fn family(&self) -> Family {
        Family::of(self.remote)
    }

    /// The address of the protected endpoint.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The address of the other end.
    pub fn remote(&self) -> IpAddr {
        self.remote
    }

    /// Its protocol, with the port or the ICMP type and code.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The groups the other end belongs to.
    pub fn remote_groups(&self) -> &BTreeSet<GroupId> {
        &self.remote_groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortRange, Protocol};

    fn packet(local: &str, remote: &str, traffic: Traffic) -> Result<Packet, PacketError> {
        Packet::new(Direction::Ingress, local.parse().unwrap(), remote.parse().unwrap(), traffic)
    }

    #[test]
    fn is_of_one_family_and_one_traffic() {
        let http = Traffic::ports(Protocol::TCP, PortRange::single(80)).unwrap();
        assert_eq!(
            packet("10.0.0.1", "2001:db8::1", http).unwrap_err().to_string(),
            "no packet goes between 10.0.0.1 and 2001:db8::1: one is IPv4, the other IPv6"
        );
        assert_eq!(
            packet("10.0.0.1", "10.0.0.2", Traffic::of(Protocol::TCP)).unwrap_err().to_string(),
            "`tcp` is not the traffic of one packet: give one port, or one ICMP type and code"
        );
        assert_eq!(
            packet("2001:db8::1", "2001:db8::2", Traffic::icmp(Family::V4, 8, Some(0)))
                .unwrap_err()
                .to_string(),
            "icmp does not exist in IPv6: use ipv6-icmp"
        );
        assert_eq!(packet("10.0.0.1", "::ffff:10.0.0.2", http), packet("10.0.0.1", "10.0.0.2", http));
    }
}

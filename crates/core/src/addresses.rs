use std::net::IpAddr;

use thiserror::Error;

/// The address is not that of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{address} is not the address of one machine: it is {kind}")]
pub struct NotUnicast {
    address: IpAddr,
    kind: &'static str,
}

/// The addresses in their order, each in its plain form (an IPv4-mapped one as IPv4) and none twice. One that
/// nobody can be sent to is refused: it would be listened on or sent to as something else than it looks.
pub(crate) fn unicast(addresses: impl IntoIterator<Item = IpAddr>) -> Result<Vec<IpAddr>, NotUnicast> {
    let mut distinct: Vec<IpAddr> = Vec::new();
    for address in addresses.into_iter().map(|address| address.to_canonical()) {
        if let Some(kind) = other_kind(address) {
            return Err(NotUnicast { address, kind });
        }
        if !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    Ok(distinct)
}

/// What an address is that is not unicast.
fn other_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("unspecified"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_and_distinct() {
        let given = ["192.0.2.2", "::ffff:192.0.2.1", "192.0.2.1", "2001:db8::1", "127.0.0.1", "fe80::1"];
        let plain = ["192.0.2.2", "192.0.2.1", "2001:db8::1", "127.0.0.1", "fe80::1"];
        let addresses =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(unicast(addresses(&given)), Ok(addresses(&plain)));
    }

    #[test]
    fn refuses_what_is_not_one_machine() {
        for (address, sentence) in [
            ("0.0.0.0", "0.0.0.0 is not the address of one machine: it is unspecified"),
            ("::ffff:0.0.0.0", "0.0.0.0 is not the address of one machine: it is unspecified"),
            ("::", ":: is not the address of one machine: it is unspecified"),
            ("224.0.0.1", "224.0.0.1 is not the address of one machine: it is a multicast address"),
            ("ff02::1", "ff02::1 is not the address of one machine: it is a multicast address"),
            (
                "255.255.255.255",
                "255.255.255.255 is not the address of one machine: it is the broadcast address",
            ),
        ] {
            assert_eq!(unicast([address.parse().unwrap()]).unwrap_err().to_string(), sentence);
        }
    }
}

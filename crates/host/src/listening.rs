//! Where programs of this machine listen, as the kernel tells in `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_core::Protocol;

use crate::claims::{Listening, Port};

/// The state of a TCP socket that waits for connections, and of a UDP socket that anybody may send to.
const LISTENS: (&str, &str) = ("0A", "07");

/// From here on the kernel gives ports to who asks for any, unless it says otherwise: those come and go.
const USUAL_FIRST_ANY: u16 = 32768;

/// Where programs listen, in the network namespace of the thread that calls this. Loopback addresses are left out: nobody
/// comes to them from elsewhere. So are UDP ports that the kernel gives to who asks for any: clients have them.
pub fn listening() -> io::Result<BTreeSet<Listening>> {
    let first_any = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(USUAL_FIRST_ANY);
    let mut all = BTreeSet::new();
    for (file, protocol) in
        [("tcp", Protocol::TCP), ("tcp6", Protocol::TCP), ("udp", Protocol::UDP), ("udp6", Protocol::UDP)]
    {
        match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
            Ok(text) => all.extend(read(&text, protocol, first_any)),
            // A machine without IPv6 has no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// What one of the files says.
fn read(text: &str, protocol: Protocol, first_any: u16) -> BTreeSet<Listening> {
    let lines = text.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let (address, number) = local.split_once(':')?;
        let number = u16::from_str_radix(number, 16).ok()?;
        let address = address_of(address)?;
        let (listens, any) = match protocol {
            Protocol::UDP => (state == LISTENS.1, number >= first_any),
            _ => (state == LISTENS.0, false),
        };
        let address = address.to_canonical();
        (listens && !any && !address.is_loopback()).then_some(Listening {
            port: Port { protocol, number },
            // Who listens at all addresses of IPv6 mostly does at those of IPv4, too.
            address: (!address.is_unspecified()).then_some(address),
        })
    });
    lines.collect()
}

/// An address as words of four bytes, each in the order of this machine.
fn address_of(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for start in (0..hex.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(hex.get(start..start + 8)?, 16).ok()?.to_ne_bytes());
    }
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes.as_slice()).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn what_the_files_say() {
        let found = |lines: &str, protocol| -> Vec<(String, u16)> {
            let all = read(&format!("{HEAD}{lines}"), protocol, 32768).into_iter();
            all.map(|one| (one.address.map_or("*".to_owned(), |at| at.to_string()), one.port.number))
                .collect()
        };
        let tcp = "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1\n\
                   \x20  1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1\n\
                   \x20  2: 070200C0:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1\n\
                   \x20  3: 070200C0:0016 0A0200C0:C350 01 00000000:00000000 00:00000000 00000000 0 0 1\n";
        assert_eq!(found(tcp, Protocol::TCP), [("*".to_owned(), 22), ("192.0.2.7".to_owned(), 6443)]);
        let tcp6 = "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0 0\n\
                    \x20  1: B80D0120000000000000000007000000:01BB 00000000000000000000000000000000:0000 0A 0 0\n\
                    \x20  2: 0000000000000000FFFF0000070200C0:01BC 00000000000000000000000000000000:0000 0A 0 0\n";
        assert_eq!(
            found(tcp6, Protocol::TCP),
            [("*".to_owned(), 80), ("2001:db8::7".to_owned(), 443), ("192.0.2.7".to_owned(), 444)]
        );
        let udp = "   0: 00000000:0035 00000000:0000 07 0 0\n\
                   \x20  1: 00000000:D431 00000000:0000 07 0 0\n\
                   \x20  2: 070200C0:0044 0A0200C0:0043 01 0 0\n";
        assert_eq!(found(udp, Protocol::UDP), [("*".to_owned(), 53)]);
    }

    #[test]
    fn nonsense_is_left_out() {
        for text in ["", "x", "a b c d e", "0: zz:zz 0:0 0A", "0: 0000:0016 0:0 0A", "0: é00000000:0016 0 0A"]
        {
            assert_eq!(read(&format!("{HEAD}{text}"), Protocol::TCP, 32768), BTreeSet::new(), "{text}");
        }
    }
}

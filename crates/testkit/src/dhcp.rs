use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::Host;

/// What a DHCP server offers a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub address: Ipv4Addr,
    /// By their numbers, as they came.
    pub options: BTreeMap<u8, Vec<u8>>,
}

impl Offer {
    /// An option that is a list of addresses.
    pub fn addresses(&self, option: u8) -> Vec<Ipv4Addr> {
        let bytes = self.options.get(&option).map_or(&[][..], Vec::as_slice);
        bytes.chunks_exact(4).map(|part| Ipv4Addr::new(part[0], part[1], part[2], part[3])).collect()
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Where options begin, and what stands there.
const OPTIONS: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];

/// Asks for an address on a link that has none, and gives the first offer; none if nobody answers.
pub fn ask_dhcp(host: &Host, link: &str, mac: &str) -> Option<Offer> {
    // Answers come from addresses that there is no way to yet.
    for name in ["all", link] {
        host.set(&format!("net/ipv4/conf/{name}/rp_filter"), "0");
    }
    let asked = (**host).run(|| discover(link, mac));
    asked.unwrap_or_else(|error| panic!("asking for an address on {}: {error}", host.name()))
}

fn discover(link: &str, mac: &str) -> io::Result<Option<Offer>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68))?;
    socket2::SockRef::from(&socket).bind_device(Some(link.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.set_read_timeout(Some(Duration::from_millis(250)))?;
    let deadline = Instant::now() + PATIENCE;
    let mut buffer = [0; 1500];
    while Instant::now() < deadline {
        socket.send_to(&question(mac), SocketAddr::from((Ipv4Addr::BROADCAST, 67)))?;
        if let Ok((length, _)) = socket.recv_from(&mut buffer)
            && let Some(offer) = offer(&buffer[..length])
        {
            return Ok(Some(offer));
        }
    }
    Ok(None)
}

fn question(mac: &str) -> Vec<u8> {
    let mut packet = vec![0; OPTIONS];
    // A request, on Ethernet, whose addresses have six bytes; any number; to be answered to everybody.
    packet[..8].copy_from_slice(&[1, 1, 6, 0, 1, 2, 3, 4]);
    packet[10] = 0x80;
    let bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a hardware address"));
    for (place, byte) in bytes.enumerate() {
        packet[28 + place] = byte;
    }
    packet[236..OPTIONS].copy_from_slice(&COOKIE);
    // "Who offers something?"; the end.
    packet.extend([53, 1, 1, 255]);
    packet
}

fn offer(packet: &[u8]) -> Option<Offer> {
    let (head, mut rest) = (packet.get(..OPTIONS)?, packet.get(OPTIONS..)?);
    if head[0] != 2 || head[236..] != COOKIE {
        return None;
    }
    let mut options = BTreeMap::new();
    while let [number, more @ ..] = rest {
        rest = match (number, more) {
            (255, _) => break,
            (0, more) => more,
            (_, [length, more @ ..]) => {
                let (value, more) = more.split_at_checked(usize::from(*length))?;
                options.insert(*number, value.to_vec());
                more
            }
            (_, []) => return None,
        };
    }
    let is_offer = options.get(&53).is_some_and(|kind| kind == &[2]);
    is_offer.then(|| Offer { address: Ipv4Addr::new(head[16], head[17], head[18], head[19]), options })
}

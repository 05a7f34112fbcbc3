//! Where programs of this machine listen, as the kernel tells in `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use portcullis_core::Protocol;

use crate::claims::{Listening, Port};

/// The state of a TCP socket that waits for connections, and of a UDP socket that anybody may send to.
const LISTENS: (&str, &str) = ("0A", "07");

/// The same of SCTP, which is told in another way.
const SCTP_LISTENS: &str = "10";

/// From here on the kernel gives ports to who asks for any, unless it says otherwise.
const USUAL_FIRST_ANY: u16 = 32768;

/// UDP does not tell who waits to be asked from who waits for an answer, and the latter have ports that the kernel gives to who
/// asks for any. Nobody waits that long for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks where programs listen.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// Sockets that may be a client's, and when they were seen first; `None` for what was there before anything was seen.
    since: BTreeMap<u64, Option<Instant>>,
    has_looked: bool,
}

/// A socket that may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    listening: Listening,
    /// By which it is told from another one that has the same port later.
    number: u64,
    may_be_a_client: bool,
}

impl Listeners {
    /// Where programs listen now, in the network namespace of the thread that calls this. Loopback addresses are left out: nobody
    /// comes to them from elsewhere. So are clients.
    pub(crate) fn look(&mut self) -> io::Result<BTreeSet<Listening>> {
        let first_any = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
            .ok()
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(USUAL_FIRST_ANY);
        let mut sockets = Vec::new();
        for (file, protocol) in [
            ("tcp", Protocol::TCP),
            ("tcp6", Protocol::TCP),
            ("udp", Protocol::UDP),
            ("udp6", Protocol::UDP),
            ("sctp/eps", Protocol::SCTP),
        ] {
            match File::open(format!("/proc/thread-self/net/{file}")) {
                Ok(file) if protocol == Protocol::SCTP => {
                    sockets.extend(read_sctp(&io::read_to_string(file)?));
                }
                Ok(file) => sockets.extend(read(BufReader::new(file), protocol, first_any)?),
                // A machine without IPv6, or SCTP, has no such file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.told(&sockets, Instant::now()))
    }

    /// Those who are no clients.
    fn told(&mut self, sockets: &[Socket], now: Instant) -> BTreeSet<Listening> {
        let before = std::mem::take(&mut self.since);
        let first_seen = if self.has_looked { Some(now) } else { None };
        self.has_looked = true;
        let mut told = BTreeSet::new();
        for socket in sockets {
            if socket.may_be_a_client {
                let since = before.get(&socket.number).copied().unwrap_or(first_seen);
                self.since.insert(socket.number, since);
                if since.is_some_and(|since| now.duration_since(since) < PATIENCE) {
                    continue;
                }
            }
            told.insert(socket.listening);
        }
        told
    }
}

/// What one of the files of TCP or UDP says. Of TCP the kernel tells of who listens before it tells of connections, and of these there
/// may be a hundred thousand: they are not read.
fn read(file: impl BufRead, protocol: Protocol, first_any: u16) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for line in file.lines().skip(1) {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if protocol == Protocol::TCP && words.get(3).is_some_and(|state| *state != LISTENS.0) {
            break;
        }
        sockets.extend(socket(&words, protocol, first_any));
    }
    Ok(sockets)
}

/// Somebody who may be asked, by one line of such a file.
fn socket(words: &[&str], protocol: Protocol, first_any: u16) -> Option<Socket> {
    let (local, state, inode) = (words.get(1)?, *words.get(3)?, words.get(9)?);
    let (address, number) = local.split_once(':')?;
    let number = u16::from_str_radix(number, 16).ok()?;
    let (listens, may_be_a_client) = match protocol {
        Protocol::UDP => (state == LISTENS.1, number >= first_any),
        _ => (state == LISTENS.0, false),
    };
    let listening = at(address_of(address)?, Port { protocol, number })?;
    listens.then_some(Socket { listening, number: inode.parse().ok()?, may_be_a_client })
}

/// What the file of SCTP says, where a socket has many addresses.
fn read_sctp(text: &str) -> Vec<Socket> {
    let lines = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (state, number, inode) = (*words.get(3)?, words.get(5)?, words.get(7)?);
        let port = Port { protocol: Protocol::SCTP, number: number.parse().ok()? };
        let number = inode.parse().ok()?;
        let addresses = words.into_iter().skip(8).filter_map(|address| address.parse().ok());
        let sockets = addresses.filter_map(move |address| {
            Some(Socket { listening: at(address, port)?, number, may_be_a_client: false })
        });
        (state == SCTP_LISTENS).then_some(sockets)
    });
    lines.flatten().collect()
}

/// Somebody who is reached at an address, unless nobody comes to it from elsewhere.
fn at(address: IpAddr, port: Port) -> Option<Listening> {
    let address = address.to_canonical();
    // Who listens at all addresses of IPv6 mostly does at those of IPv4, too.
    (!address.is_loopback())
        .then_some(Listening { port, address: (!address.is_unspecified()).then_some(address) })
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
    use portcullis_testkit::Host;
    use portcullis_testkit::parts::Namespace;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn places(sockets: &[Socket]) -> Vec<(String, u16)> {
        let place = |socket: &Socket| {
            let Listening { port, address } = socket.listening;
            (address.map_or("*".to_owned(), |at| at.to_string()), port.number)
        };
        sockets.iter().map(place).collect()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn what_the_files_say() {
        let found = |lines: &[&str], protocol| {
            let lines: Vec<String> = lines
                .iter()
                .enumerate()
                .map(|(number, line)| format!("  {number}: {line} 0:0 00:0 0 0 0 7{number} 1 0 0"))
                .collect();
            let text = format!("{HEAD}{}", lines.join("\n"));
            let sockets = read(text.as_bytes(), protocol, 32768).unwrap();
            (places(&sockets), sockets)
        };
        let tcp = [
            "00000000:0016 00000000:0000 0A",
            "0100007F:1F90 00000000:0000 0A",
            "070200C0:192B 00000000:0000 0A",
            "00000000:D431 00000000:0000 0A",
            "070200C0:0016 0A0200C0:C350 01",
        ];
        let (at, sockets) = found(&tcp, Protocol::TCP);
        assert_eq!(at, [("*".to_owned(), 22), ("192.0.2.7".to_owned(), 6443), ("*".to_owned(), 54321)]);
        assert!(sockets.iter().all(|socket| !socket.may_be_a_client), "who waits for connections is none");
        let tcp6 = [
            "00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A",
            "B80D0120000000000000000007000000:01BB 00000000000000000000000000000000:0000 0A",
            "0000000000000000FFFF0000070200C0:01BC 00000000000000000000000000000000:0000 0A",
        ];
        assert_eq!(
            found(&tcp6, Protocol::TCP).0,
            [("*".to_owned(), 80), ("2001:db8::7".to_owned(), 443), ("192.0.2.7".to_owned(), 444)]
        );
        let udp = [
            "00000000:0035 00000000:0000 07",
            "00000000:D431 00000000:0000 07",
            "070200C0:0044 0A0200C0:0043 01",
        ];
        let (at, sockets) = found(&udp, Protocol::UDP);
        assert_eq!(at, [("*".to_owned(), 53), ("*".to_owned(), 54321)]);
        assert_eq!(sockets.iter().map(|socket| socket.may_be_a_client).collect::<Vec<_>>(), [false, true]);
        assert_eq!(sockets.iter().map(|socket| socket.number).collect::<Vec<_>>(), [70, 71]);
    }

    #[test]
    fn what_the_file_of_sctp_says() {
        let text = " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n\
            ffff8881 ffff8882 2   10  35   3868      0 21001 0.0.0.0 \n\
            ffff8883 ffff8884 2   10  36   3869      0 21002 192.0.2.7 198.51.100.7 127.0.0.1 \n\
            ffff8885 ffff8886 0   7   37   36412     0 21003 0.0.0.0 \n\
            ffff8887 ffff8888 2   10  38   3870      0 21004 2001:0db8:0000:0000:0000:0000:0000:0007 \n";
        let expected = [("*", 3868), ("192.0.2.7", 3869), ("198.51.100.7", 3869), ("2001:db8::7", 3870)];
        assert_eq!(places(&read_sctp(text)), expected.map(|(at, port)| (at.to_owned(), port)));
        assert!(read_sctp(text).iter().all(|socket| socket.listening.port.protocol == Protocol::SCTP));
    }

    #[test]
    fn nonsense_is_left_out() {
        for text in ["", "x", "a b c d e", "0: zz:zz 0:0 0A", "0: 0000:0016 0:0 0A", "0: é00000000:0016 0 0A"]
        {
            let line = format!("{HEAD}{text} 0 0 0 0 0 1");
            assert_eq!(read(line.as_bytes(), Protocol::TCP, 32768).unwrap(), [], "{text}");
            assert_eq!(read_sctp(&line), [], "{text}");
        }
    }

    /// A port that the kernel gives to clients is somebody's who has it for longer than any answer takes.
    #[test]
    fn clients_come_and_go() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let socket = |number, inode| Socket {
            listening: Listening { port: Port { protocol: Protocol::UDP, number }, address: None },
            number: inode,
            may_be_a_client: true,
        };
        let mut listeners = Listeners::default();
        let mut told = |sockets: &[Socket], now| -> Vec<u16> {
            listeners.told(sockets, at(now)).iter().map(|one| one.port.number).collect()
        };
        let tunnel = socket(51820, 1);
        assert_eq!(told(&[tunnel], 0), [51820], "since when is not known");
        assert_eq!(told(&[tunnel, socket(40000, 2)], 2), [51820]);
        assert_eq!(told(&[tunnel, socket(40000, 3)], 12), [51820], "another one has it");
        assert_eq!(told(&[tunnel, socket(40000, 3)], 21), [51820]);
        assert_eq!(told(&[tunnel, socket(40000, 3)], 22), [40000, 51820]);
        assert_eq!(told(&[socket(51820, 4)], 24), [0_u16; 0], "it was ended, and one more began");
        assert_eq!(told(&[socket(51820, 4)], 34), [51820]);
    }

    /// The kernel tells of those who listen first, however many connections there are and whichever came first.
    #[test]
    fn who_listens_among_connections() {
        let host = Host::new("connections");
        host.run("ip link set lo up");
        Namespace::run(&host, || {
            let server = TcpListener::bind("127.0.0.1:4000").unwrap();
            let connections: Vec<(TcpStream, TcpStream)> = (0..200)
                .map(|_| (TcpStream::connect("127.0.0.1:4000").unwrap(), server.accept().unwrap().0))
                .collect();
            let late: Vec<TcpListener> =
                (5000..5100).map(|port| TcpListener::bind(("0.0.0.0", port)).unwrap()).collect();
            let found = Listeners::default().look().unwrap();
            let ports: Vec<u16> = found.iter().map(|one| one.port.number).collect();
            assert_eq!(ports, (5000..5100).collect::<Vec<u16>>());
            drop((connections, late));
        });
    }

    /// Tunnels are the kernel's own: nobody has opened their sockets.
    #[test]
    fn tunnels_of_the_kernel_and_programs() {
        let host = Host::new("listens");
        host.run("ip link set lo up");
        host.run("ip link add tunnel type vxlan id 5 dstport 51820");
        host.run("ip link set tunnel up");
        Namespace::run(&host, || {
            let program = UdpSocket::bind("0.0.0.0:40000").unwrap();
            let mut listeners = Listeners::default();
            let mut ports =
                || -> BTreeSet<u16> { listeners.look().unwrap().iter().map(|one| one.port.number).collect() };
            assert_eq!(ports(), BTreeSet::from([40000, 51820]));
            drop(program);
            assert_eq!(ports(), BTreeSet::from([51820]));
            let _other = UdpSocket::bind("0.0.0.0:40000").unwrap();
            assert_eq!(ports(), BTreeSet::from([51820]), "it may be a client");
        });
    }
}

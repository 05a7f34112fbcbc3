//! Who may connect.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use portcullis_core::{Enforcement, ListenerProtocol, Provider as _};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::talk::Held;
use portcullis_testkit::{Target, can_connect, eventually};
use socket2::{Domain, Protocol, Socket, Type};

use crate::lab::{
    Lab, Machine, PORT, TARGET, VIP, VIP6, answer, everyone, listener, member, now, want, want_on,
};

/// Which of both addresses a machine reaches.
fn reaches(machine: &Machine, target: Target) -> [bool; 2] {
    [VIP, VIP6].map(|vip| can_connect(&machine.host, vip, target))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_ranges_get_in_and_who_is_in_stays() {
    let lab = Lab::new();
    let (one, two) = (lab.machine("one", 10), lab.machine("two", 11));
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let talking = lab.machine("b2", 22);
    let _talking = portcullis_testkit::talk::Backend::start(&talking.host, TARGET);
    let provider = lab.provider();
    let both = || listener(ListenerProtocol::TcpUdp);
    let wanted = |ranges| want_on("web", &[VIP, VIP6], both(), vec![member(&server)], ranges);
    let (tcp, udp) = (Target::Tcp(PORT), Target::Udp(PORT));

    for (ranges, of_one, of_two) in [
        (everyone(), [true, true], [true, true]),
        (Some(&["10.0.0.10/32"][..]), [true, false], [false, false]),
        (Some(&["10.0.0.11/32", "fd00::a/128"]), [false, true], [true, false]),
        (Some(&["10.0.0.0/28", "fd00::/124"]), [true, true], [true, true]),
        (Some(&[]), [false, false], [false, false]),
        (Some(&["0.0.0.0/0"]), [true, false], [true, false]),
        (everyone(), [true, true], [true, true]),
    ] {
        let report = lab.make(&provider, &wanted(ranges)).await;
        assert_eq!(report.enforcement, Some(Enforcement::By("OVN ACLs".to_owned())));
        for target in [tcp, udp] {
            // Packets of flows that the switch has just seen may pass for a moment after it was told otherwise.
            eventually(&format!("{ranges:?} are in force"), || {
                (reaches(&one, target), reaches(&two, target)) == (of_one, of_two)
            });
        }
        // A check may answer late on a busy machine, and is told of then.
        eventually("nothing is left to do", || {
            let rests = now(provider.look_at_all()).unwrap().is_empty();
            rests || {
                now(lab.make(&provider, &wanted(ranges)));
                false
            }
        });
    }

    // Those that are in stay when they would not be let in any more.
    let talks = |ranges| want_on("web", &[VIP, VIP6], both(), vec![member(&talking)], ranges);
    lab.make(&provider, &talks(everyone())).await;
    // Packets like those that the switch has just seen may go where those went for a moment after it was told otherwise.
    let mut held = [VIP, VIP6].map(|vip| {
        let mut held = None;
        eventually("another one answers", || {
            held = Held::connect(&one.host, vip, PORT).ok();
            held.as_mut().is_some_and(|held| held.ask().is_ok_and(|name| name == "b2"))
        });
        held.unwrap()
    });
    lab.make(&provider, &talks(Some(&[]))).await;
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b2");
    }
    eventually("nobody gets in", || reaches(&one, tcp) == [false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ranges_are_no_burden() {
    let lab = Lab::new();
    let (one, two) = (lab.machine("one", 10), lab.machine("two", 11));
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let ranges: Vec<String> =
        (0..200).map(|number| format!("10.{}.{}.0/24", number / 10 + 1, number * 7 % 256)).collect();
    let ranges: Vec<&str> = ranges.iter().map(String::as_str).chain(["10.0.0.10/32"]).collect();
    let provider = lab.provider();
    let wanted =
        want_on("web", &[VIP, VIP6], listener(ListenerProtocol::Tcp), vec![member(&server)], Some(&ranges));
    lab.make(&provider, &wanted).await;
    let all = || (reaches(&one, Target::Tcp(PORT)), reaches(&two, Target::Tcp(PORT)));
    eventually("they are in force", || all() == ([true, false], [false, false]));
}

/// Packets of TCP that the kernel knows nothing of.
struct Raw {
    socket: Socket,
    from: Ipv4Addr,
}

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

impl Raw {
    fn new(machine: &Machine) -> Self {
        // The kernel ends what it does not know, with packets of its own.
        machine.host.nft(
            "table inet quiet { chain out { type filter hook output priority 0; tcp flags & rst == rst drop; }; }",
        );
        let IpAddr::V4(from) = machine.addresses[0] else { panic!("its first address is of IPv4") };
        let socket = Namespace::run(&machine.host, || {
            Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).unwrap()
        });
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Raw { socket, from }
    }

    fn send(&self, port: u16, sequence: u32, flags: u8) {
        let to: Ipv4Addr = VIP.parse().unwrap();
        let mut packet = Vec::new();
        packet.extend(port.to_be_bytes());
        packet.extend(PORT.to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend(u32::from(flags & ACK != 0).to_be_bytes());
        packet.extend([5 << 4, flags]);
        packet.extend(u16::MAX.to_be_bytes());
        packet.extend([0; 4]);
        // The checksum is also about both addresses, the protocol and the length.
        let mut whole = [self.from.octets(), to.octets()].concat();
        whole.extend([0, 6, 0, 20]);
        whole.extend(&packet);
        let sum: u32 = whole.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
        packet[16..18].copy_from_slice(&checksum.to_be_bytes());
        self.socket.send_to(&packet, &SocketAddr::from((to, 0)).into()).unwrap();
    }

    /// Whether somebody accepts the connection from that port.
    fn is_accepted(&self, port: u16) -> bool {
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            let mut buffer = [0; 128];
            let Ok(length) = (&self.socket).read(&mut buffer) else { continue };
            let packet = &buffer[usize::from(buffer[0] & 0xf) * 4..length];
            if packet[2..4] == port.to_be_bytes() && packet[13] & (SYN | ACK | RST) == SYN | ACK {
                return true;
            }
        }
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_from_the_middle_of_a_connection_opens_nothing() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    // A member that says nothing to strange packets, as many packet filters have it.
    server.host.nft(
        "table inet quiet { chain out { type filter hook output priority 0; tcp flags & rst == rst drop; }; }",
    );
    let provider = lab.provider();
    let wanted =
        |ranges| want_on("web", &[VIP], listener(ListenerProtocol::Tcp), vec![member(&server)], ranges);
    let raw = Raw::new(&client);
    lab.make(&provider, &wanted(everyone())).await;
    eventually("who may gets in", || {
        raw.send(2000, 1, SYN);
        raw.is_accepted(2000)
    });
    lab.make(&provider, &wanted(Some(&["10.0.0.99/32"]))).await;
    eventually("who may not does not", || !can_connect(&client.host, VIP, Target::Tcp(PORT)));
    for port in 3000..3003 {
        raw.send(port, 1000, ACK);
        std::thread::sleep(Duration::from_millis(200));
        for sequence in [1000, 1001, 5000] {
            raw.send(port, sequence, SYN);
            assert!(!raw.is_accepted(port), "an ACK lets in the SYN after it");
        }
    }
}

/// A flow of datagrams that a switch knows is not cut by ranges; who is new does not get in.
#[tokio::test(flavor = "multi_thread")]
async fn datagrams_that_are_in_stay_in_on_the_switch_itself() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let provider = lab.provider();
    let wanted =
        |ranges| want_on("web", &[VIP], listener(ListenerProtocol::Udp), vec![member(&server)], ranges);
    lab.make(&provider, &wanted(everyone())).await;
    let flow = Namespace::run(&client.host, || UdpSocket::bind("0.0.0.0:0").unwrap());
    flow.connect((VIP, PORT)).unwrap();
    let answers = || answer(&flow).is_some();
    eventually("it is in", answers);
    lab.make(&provider, &wanted(Some(&[]))).await;
    eventually("nobody gets in", || {
        assert!(answers(), "who is in stays");
        !can_connect(&client.host, VIP, Target::Udp(PORT))
    });
    assert!(answers(), "who is in stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_let_in_before_ours_is_asked_is_said() {
    let lab = Lab::new();
    let one = lab.machine("one", 10);
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let provider = lab.provider();
    let wanted = want(vec![member(&server)], Some(&["10.0.0.99/32"]));
    let by = Enforcement::By("OVN ACLs".to_owned());
    assert_eq!(lab.make(&provider, &wanted).await.enforcement, Some(by.clone()));
    eventually("it does not get in", || reaches(&one, Target::Tcp(PORT)) == [false, false]);
    lab.nbctl("pg-add group one");
    for (add, remove) in [
        ("acl-add sw from-lport 1100 ip4 allow-related", "acl-del sw from-lport 1100 ip4"),
        ("acl-add group from-lport 2000 inport==@group allow-related", "acl-del group"),
    ] {
        lab.nbctl(add);
        eventually("it is seen", || now(provider.look_at_all()).unwrap() == [wanted.owner.clone()]);
        let report = lab.make(&provider, &wanted).await;
        let Some(Enforcement::Not(why)) = report.enforcement else { panic!("{report:?}") };
        assert!(why.starts_with("On the logical switch `sw` the ACL `"), "{why}");
        if add.contains("2000") {
            eventually("it gets in", || reaches(&one, Target::Tcp(PORT))[0]);
        }
        lab.nbctl(remove);
        eventually("it is seen", || now(provider.look_at_all()).unwrap() == [wanted.owner.clone()]);
        assert_eq!(lab.make(&provider, &wanted).await.enforcement, Some(by.clone()));
        eventually("it does not get in", || reaches(&one, Target::Tcp(PORT)) == [false, false]);
    }
    // What is below, or about something else, changes nothing.
    lab.nbctl("acl-add sw from-lport 1099 ip4 allow-related");
    lab.nbctl("acl-add sw from-lport 3000 arp allow");
    lab.nbctl("acl-add sw to-lport 3000 ip4 allow-related");
    assert_eq!(lab.make(&provider, &wanted).await.enforcement, Some(by));
    assert_eq!(reaches(&one, Target::Tcp(PORT)), [false, false]);
}

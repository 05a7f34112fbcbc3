use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use portcullis_parts::{Namespace, run};

/// A machine of the lab: a network namespace with its own links, addresses, routes and packet filters.
#[derive(Clone)]
pub struct Host {
    namespace: Namespace,
}

impl Host {
    /// A machine without any link but loopback.
    pub fn new(name: &str) -> Self {
        assert!(
            std::path::Path::new("/proc/sys/net/ipv6").exists(),
            "this kernel has no IPv6, which the lab needs"
        );
        let host = Host { namespace: Namespace::new(name).unwrap_or_else(|error| panic!("{error}")) };
        // Every IPv6 address is usable at once. Otherwise a router cannot even look for its neighbours in the
        // first seconds, while it waits whether somebody else claims its own address.
        host.set("net/ipv6/conf/default/accept_dad", "0");
        // Lets probes send ICMP echo requests without raw sockets.
        host.set("net/ipv4/ping_group_range", "0 2147483647");
        host
    }

    /// Runs a command inside and gives its output; fails the test if the command fails.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        run(&self.namespace, words[0], &words[1..])
            .unwrap_or_else(|error| panic!("on {}: {error}", self.name()))
    }

    /// Sets one of the kernel's variables of this machine, such as `net/ipv4/ip_forward`.
    #[track_caller]
    pub fn set(&self, variable: &str, value: &str) {
        let path = format!("/proc/sys/{variable}");
        self.namespace
            .run(|| std::fs::write(&path, value))
            .unwrap_or_else(|error| panic!("on {}: cannot write {path}: {error}", self.name()));
    }

    /// Makes it a router: it forwards packets between its links.
    pub fn forward(&self) {
        self.set("net/ipv4/ip_forward", "1");
        self.set("net/ipv6/conf/all/forwarding", "1");
    }

    /// Sends what it has no better route for to `gateway`.
    pub fn default_route(&self, gateway: &str) {
        self.run(&format!("ip route replace default via {gateway}"));
    }

    /// Loads an nftables ruleset on this machine.
    #[track_caller]
    pub fn nft(&self, ruleset: &str) {
        let file = crate::directory("nft").join("ruleset");
        std::fs::write(&file, ruleset).unwrap_or_else(|error| panic!("cannot write a ruleset: {error}"));
        self.run(&format!("nft -f {}", file.display()));
    }

    /// Serves TCP and UDP on `port`: each client is told the address it was seen with.
    pub fn serve(&self, port: u16) -> Server {
        let any: SocketAddr = ([0u16; 8], port).into();
        let (tcp, udp) = self.namespace.run(|| {
            let tcp =
                TcpListener::bind(any).unwrap_or_else(|error| panic!("cannot listen on tcp {port}: {error}"));
            let udp =
                UdpSocket::bind(any).unwrap_or_else(|error| panic!("cannot listen on udp {port}: {error}"));
            (tcp, udp)
        });
        Server::start(tcp, udp)
    }
}

impl Deref for Host {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.name())
    }
}

/// Joins two machines by a cable and gives each end its addresses (with prefix lengths, v4 or v6).
///
/// The link on each side is named after the machine at the other end.
#[track_caller]
pub fn link(left: &Host, left_addresses: &[&str], right: &Host, right_addresses: &[&str]) {
    let (to_right, to_left) = (link_name(right), link_name(left));
    cable(left, &to_right, right, &to_left);
    for (host, link, addresses) in [(left, &to_right, left_addresses), (right, &to_left, right_addresses)] {
        add_addresses(host, link, addresses);
    }
}

/// The kernel allows 15 bytes.
fn link_name(host: &Host) -> String {
    format!("to-{}", host.name()).chars().take(15).collect()
}

/// Joins two namespaces by a pair of links with these names, both up.
#[track_caller]
pub(crate) fn cable(left: &Host, left_name: &str, right: &Namespace, right_name: &str) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The other end is born under a name that nothing else there has, then moved and renamed.
    let temporary = format!("pc{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let ip = |namespace: &Namespace, command: &str| {
        let words: Vec<&str> = command.split_whitespace().collect();
        run(namespace, "ip", &words).unwrap_or_else(|error| panic!("{error}"));
    };
    ip(left, &format!("link add {left_name} type veth peer name {temporary}"));
    ip(left, &format!("link set {temporary} netns {}", right.path()));
    ip(right, &format!("link set {temporary} name {right_name} up"));
    ip(left, &format!("link set {left_name} up"));
}

#[track_caller]
pub(crate) fn add_addresses(host: &Host, link: &str, addresses: &[&str]) {
    for address in addresses {
        host.run(&format!("ip address add {address} dev {link}"));
    }
}

/// A server in a namespace; it ends when dropped.
pub struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    fn start(tcp: TcpListener, udp: UdpSocket) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        tcp.set_nonblocking(true).expect("a listener can be non-blocking");
        udp.set_read_timeout(Some(PAUSE)).expect("a socket can have a timeout");
        let (stop_tcp, stop_udp) = (Arc::clone(&stop), Arc::clone(&stop));
        let threads = vec![
            thread::spawn(move || {
                while !stop_tcp.load(Ordering::Relaxed) {
                    match tcp.accept() {
                        Ok((mut client, from)) => {
                            let _ = client.write_all(seen(from).as_bytes());
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
                        Err(_) => return,
                    }
                }
            }),
            thread::spawn(move || {
                let mut buffer = [0; 2048];
                while !stop_udp.load(Ordering::Relaxed) {
                    if let Ok((_, from)) = udp.recv_from(&mut buffer) {
                        let _ = udp.send_to(seen(from).as_bytes(), from);
                    }
                }
            }),
        ];
        Server { stop, threads }
    }
}

/// Between two looks at whether the server is to end.
const PAUSE: Duration = Duration::from_millis(5);

fn seen(from: SocketAddr) -> String {
    from.ip().to_canonical().to_string()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

//! Conversations that last: what becomes of established connections, and who is at the other end.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use portcullis_testkit::Host;
use portcullis_testkit::parts::Namespace;

use crate::lab::on;

/// For an answer that is to come: much longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// For one that is not to come. A packet that is lost while neighbours are resolved is sent again within this time.
const SILENCE: Duration = Duration::from_millis(1500);

/// Answers whatever is said to it on TCP and UDP with the name of its host, until the test ends.
pub(crate) fn speak(host: &Host, port: u16) {
    let any: SocketAddr = ([0u16; 8], port).into();
    let (tcp, udp) = on(host, || (TcpListener::bind(any).unwrap(), UdpSocket::bind(any).unwrap()));
    let name = host.name().to_owned();
    let of_udp = name.clone();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(of_udp.as_bytes(), from);
        }
    });
    thread::spawn(move || {
        for mut client in tcp.incoming().flatten() {
            let name = name.clone();
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while client.read(&mut buffer).is_ok_and(|length| length > 0) {
                    let _ = client.write_all(name.as_bytes());
                }
            });
        }
    });
}

/// A TCP connection.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(from: &Namespace, to: &str, port: u16) -> Self {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let stream = from.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Whether nobody answers any more.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.0.set_read_timeout(Some(SILENCE)).unwrap();
        self.ask().is_none()
    }

    /// Who answers; nobody if it takes too long.
    pub(crate) fn ask(&mut self) -> Option<String> {
        self.0.write_all(b"?").ok()?;
        let mut buffer = [0; 64];
        let length = self.0.read(&mut buffer).ok().filter(|length| *length > 0)?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

/// Packets of UDP from one port, which are one flow to the kernel.
pub(crate) struct Packets(UdpSocket);

impl Packets {
    pub(crate) fn to(from: &Namespace, to: &str, port: u16) -> Self {
        let to: IpAddr = to.parse().unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = from.run(|| UdpSocket::bind(any)).unwrap();
        socket.connect((to, port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    pub(crate) fn ask(&self) -> Option<String> {
        self.0.send(b"?").ok()?;
        let mut buffer = [0; 64];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

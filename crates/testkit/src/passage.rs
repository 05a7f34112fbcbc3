use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A way to a server that can be cut, or closed for a while.
#[derive(Debug)]
pub struct Passage {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
    /// Both ends of every connection.
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Passage {
    /// Passes on what comes to an address of its own.
    #[track_caller]
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap_or_else(|error| panic!("{error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("{error}"));
        let passage =
            Passage { address, is_open: Arc::new(AtomicBool::new(true)), connections: Arc::default() };
        let (is_open, connections) = (Arc::clone(&passage.is_open), Arc::clone(&passage.connections));
        // It ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_open.load(Ordering::SeqCst) {
                    let _ = pass(client, server, &connections);
                }
            }
        });
        passage
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections; new ones get through.
    pub fn cut(&self) {
        for stream in self.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts all connections, and lets no new one through until it is opened.
    pub fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        self.cut();
    }

    /// Lets connections through again.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// Passes on both ways, by a thread each.
fn pass(client: TcpStream, server: SocketAddr, connections: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let ends = [client.try_clone()?, server.try_clone()?];
    connections.lock().unwrap_or_else(PoisonError::into_inner).extend(ends);
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

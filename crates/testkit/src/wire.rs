use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;

/// Stands between a client and the socket of a database: hears what the client says, and can be cut.
#[derive(Debug)]
pub struct Wire {
    socket: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: PathBuf,
    state: Mutex<State>,
    /// What the client said on each connection.
    heard: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// The next transaction still reaches the server, and its answer nobody.
    Tearing,
    /// Nobody gets through.
    Cut,
}

impl Wire {
    /// To who listens on a socket.
    #[track_caller]
    pub fn to(server: &Path) -> Self {
        let socket = crate::directory("wire").join("sock");
        let listener = UnixListener::bind(&socket).unwrap_or_else(|error| panic!("{error}"));
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            state: Mutex::new(State::Whole),
            heard: Mutex::default(),
        });
        let carrier = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if carrier.state() != State::Cut {
                    carry(&carrier, client);
                }
            }
        });
        Wire { socket, shared }
    }

    /// How a client names it.
    pub fn remote(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// Lets one more transaction reach the server, and cuts the wire before its answer.
    pub fn cut_at_next_transaction(&self) {
        self.shared.turn(State::Tearing);
    }

    /// Whether it was cut.
    pub fn is_cut(&self) -> bool {
        self.shared.state() == State::Cut
    }

    /// Lets clients through again.
    pub fn mend(&self) {
        self.shared.turn(State::Whole);
    }

    /// What clients have said so far.
    pub fn heard(&self) -> Vec<Value> {
        let heard = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let messages =
            |bytes: &Vec<u8>| serde_json::Deserializer::from_slice(bytes).into_iter().flatten().collect();
        // The last may be a part of one.
        heard.iter().flat_map(|bytes| -> Vec<Value> { messages(bytes) }).collect()
    }
}

impl Shared {
    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn hear(&self, connection: usize, bytes: &[u8]) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard[connection].extend_from_slice(bytes);
    }
}

/// Carries a connection, both ways, until one side ends it.
fn carry(shared: &Arc<Shared>, client: UnixStream) {
    let Ok(server) = UnixStream::connect(&shared.server) else { return };
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
    let connection = {
        let mut heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push(Vec::new());
        heard.len() - 1
    };
    let hearing = Arc::clone(shared);
    thread::spawn(move || {
        pass(from_client, server, |bytes| {
            hearing.hear(connection, bytes);
            let transacts = bytes.windows(10).any(|part| part == br#""transact""#);
            if transacts && hearing.state() == State::Tearing {
                // Before it is forwarded: what the server then says goes nowhere.
                hearing.turn(State::Cut);
            }
            true
        });
    });
    let cutting = Arc::clone(shared);
    thread::spawn(move || pass(from_server, client, |_| cutting.state() != State::Cut));
}

/// Passes on what comes, as long as it may, and then ends both sides.
fn pass(mut from: UnixStream, mut to: UnixStream, mut may: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !may(&buffer[..length]) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

//! Who is talked to, and who talks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use portcullis_parts::Namespace;

use crate::{Host, eventually};

/// The most that anything waits for: much longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A member. It answers each line with its name, and a GET with a status, over TLS as well.
#[derive(Debug)]
pub struct Backend {
    shared: Arc<Shared>,
    listener: TcpListener,
}

#[derive(Debug)]
struct Shared {
    name: String,
    status: AtomicU16,
    /// Connections on which somebody said something that was not a check.
    served: AtomicU64,
    /// What the PROXY protocol said of clients.
    told: Mutex<Vec<IpAddr>>,
    stopped: AtomicBool,
}

impl Backend {
    /// Starts one on a host.
    #[track_caller]
    pub fn start(host: &Host, port: u16) -> Self {
        let any: SocketAddr = ([0u16; 8], port).into();
        let listener = Namespace::run(host, || TcpListener::bind(any))
            .unwrap_or_else(|error| panic!("cannot listen on tcp {port}: {error}"));
        let shared = Arc::new(Shared {
            name: host.name().to_owned(),
            status: AtomicU16::new(200),
            served: AtomicU64::new(0),
            told: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let (accepting, of) = (listener.try_clone().expect("a socket can be shared"), Arc::clone(&shared));
        thread::spawn(move || {
            while let Ok((stream, _)) = accepting.accept() {
                if of.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let of = Arc::clone(&of);
                // Whoever is there goes away in their own way.
                thread::spawn(move || of.talk(stream));
            }
        });
        Backend { shared, listener }
    }

    /// What it answers to checks.
    pub fn set_status(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// On how many connections it was asked for something.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::SeqCst)
    }

    /// Which clients it was told of.
    pub fn told(&self) -> Vec<IpAddr> {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Who waits for connections is woken up.
        let _ = socket2_shutdown(&self.listener);
    }
}

fn socket2_shutdown(listener: &TcpListener) -> io::Result<()> {
    socket2::SockRef::from(listener).shutdown(Shutdown::Both)
}

impl Shared {
    fn talk(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut first = [0; 1];
        stream.peek(&mut first)?;
        // The PROXY protocol comes before anything else.
        if first[0] == b'\r' {
            let client = proxied(&mut stream)?;
            if stream.peek(&mut first)? > 0 {
                self.told.lock().unwrap_or_else(PoisonError::into_inner).extend(client);
            }
        }
        // A hello of TLS.
        if first[0] == 0x16 {
            let tls = ServerConnection::new(Arc::clone(&TLS)).map_err(io::Error::other)?;
            return self.answer(StreamOwned::new(tls, stream));
        }
        self.answer(stream)
    }

    fn answer(&self, stream: impl Read + Write) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut line, mut counted) = (String::new(), false);
        while stream.read_line(&mut line)? > 0 {
            if line.starts_with("GET ") {
                while stream.read_line(&mut line)? > 2 {}
                let status = self.status.load(Ordering::SeqCst);
                let answer = format!("HTTP/1.0 {status} It is so\r\nContent-Length: 0\r\n\r\n");
                stream.get_mut().write_all(answer.as_bytes())?;
                return stream.get_mut().flush();
            }
            if !std::mem::replace(&mut counted, true) {
                self.served.fetch_add(1, Ordering::SeqCst);
            }
            stream.get_mut().write_all(format!("{}\n", self.name).as_bytes())?;
            line.clear();
        }
        Ok(())
    }
}

/// Reads a header of the PROXY protocol: which client it tells of, unless it is `HAProxy` itself that asks.
fn proxied(stream: &mut TcpStream) -> io::Result<Option<IpAddr>> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let mut rest = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
    stream.read_exact(&mut rest)?;
    Ok(match (head[12], head[13]) {
        (0x21, 0x11) => rest.first_chunk::<4>().map(|address| (*address).into()),
        (0x21, 0x21) => rest.first_chunk::<16>().map(|address| (*address).into()),
        _ => None,
    })
}

static TLS: LazyLock<Arc<ServerConfig>> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["member".to_owned()]).expect("a certificate can be made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("it has a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("there are versions of TLS").with_no_client_auth();
    Arc::new(
        config.with_single_cert(vec![made.cert.der().clone()], key).expect("the key is the certificate's"),
    )
});

/// A connection that somebody keeps.
#[derive(Debug)]
pub struct Held {
    stream: BufReader<TcpStream>,
}

impl Held {
    /// Connects.
    pub fn connect(from: &Host, to: &str, port: u16) -> io::Result<Self> {
        let to = SocketAddr::new(to.parse().expect("an address"), port);
        let stream = Namespace::run(from, || TcpStream::connect_timeout(&to, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Held { stream: BufReader::new(stream) })
    }

    /// Asks who is there.
    pub fn ask(&mut self) -> io::Result<String> {
        self.stream.get_mut().write_all(b"who?\n")?;
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// Ends it, as who has nothing more to say; an error if it was reset, or the other side said anything.
    pub fn end(mut self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)?;
        match self.stream.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Whether it was ended: nothing more comes.
    pub fn has_ended(&mut self) -> bool {
        self.ask().is_err()
    }
}

/// Who answers a new connection.
pub fn ask(from: &Host, to: &str, port: u16) -> io::Result<String> {
    Held::connect(from, to, port)?.ask()
}

/// Between two connections of one of those who make them.
const PACE: Duration = Duration::from_millis(5);

/// Connection after connection, by several at once.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts, and goes on until it is ended.
    pub fn start(from: &Host, to: &str, port: u16) -> Self {
        // Each connection keeps its port for a minute after its end: at this pace there are enough.
        from.set("net/ipv4/ip_local_port_range", "1024 65535");
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..4).map(|_| {
            let (stop, count, from, to) =
                (Arc::clone(&stop), Arc::clone(&count), from.clone(), to.to_owned());
            thread::spawn(move || {
                Namespace::run(&from, || {
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        if let Err(error) = one(&to, port) {
                            failures.push(error.to_string());
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(PACE);
                    }
                    failures
                })
            })
        });
        Load { threads: threads.collect(), stop, count }
    }

    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for so many more.
    #[track_caller]
    pub fn more(&self, connections: u64) {
        let until = self.count() + connections;
        eventually("there are more connections", || self.count() >= until);
    }

    /// Waits until there were so many.
    #[track_caller]
    pub fn until(&self, connections: u64) {
        while self.count() < connections {
            self.more(connections.saturating_sub(self.count()).min(200));
        }
    }

    /// How many there were, and what went wrong.
    pub fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures =
            self.threads.into_iter().flat_map(|thread| thread.join().expect("nobody panics there")).collect();
        (self.count.load(Ordering::Relaxed), failures)
    }
}

/// Between two questions of a visit.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections that last for a second to six, one after the other, by several at once. Each of them asks all the time, always gets its
/// answer from the same member, and ends when its client wants it to.
#[derive(Debug)]
pub struct Visits {
    stop: Arc<AtomicBool>,
    /// Whom each of them talks to now.
    now: Vec<Arc<Mutex<Option<String>>>>,
    threads: Vec<JoinHandle<Vec<Visit>>>,
}

/// How a visit was.
#[derive(Debug)]
struct Visit {
    /// How old it was when its last question, or its end, began.
    age: Duration,
    broken: Option<String>,
}

impl Visits {
    /// Starts, and goes on until it is ended.
    pub fn start(from: &Host, to: &str, port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let now: Vec<Arc<Mutex<Option<String>>>> = (0..12).map(|_| Arc::default()).collect();
        let threads = now.iter().enumerate().map(|(number, now)| {
            let (stop, now, from, to) = (Arc::clone(&stop), Arc::clone(now), from.clone(), to.to_owned());
            // None is as long as the one before, nor as those of others at the same time.
            let lengths = (0..)
                .map(move |turn: usize| Duration::from_millis(1000 + 700 * ((3 * turn + number) % 8) as u64));
            thread::spawn(move || {
                let visits = lengths.map_while(|length| {
                    let goes_on = || !stop.load(Ordering::Relaxed);
                    goes_on().then(|| visit((&from, &to, port), length, &now, goes_on))
                });
                visits.collect()
            })
        });
        Visits { threads: threads.collect(), now, stop }
    }

    /// How many talk to a member now.
    pub fn with(&self, member: &str) -> usize {
        let talks = |now: &Mutex<Option<String>>| {
            now.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(member)
        };
        self.now.iter().filter(|now| talks(now)).count()
    }

    /// How many there were, and what went wrong with those that were not as old as this.
    pub fn end(self, age: Duration) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let all: Vec<Visit> =
            self.threads.into_iter().flat_map(|thread| thread.join().expect("nobody panics there")).collect();
        let young = all.iter().filter(|visit| visit.age < age);
        (all.len(), young.filter_map(|visit| visit.broken.clone()).collect())
    }
}

fn visit(
    (from, to, port): (&Host, &str, u16),
    length: Duration,
    now: &Mutex<Option<String>>,
    goes_on: impl Fn() -> bool,
) -> Visit {
    let (start, mut age) = (Instant::now(), Duration::ZERO);
    let set = |member| *now.lock().unwrap_or_else(PoisonError::into_inner) = member;
    let mut talk = || {
        let mut held = Held::connect(from, to, port)?;
        let member = held.ask()?;
        set(Some(member.clone()));
        while start.elapsed() < length && goes_on() {
            thread::sleep(PAUSE);
            age = start.elapsed();
            let answer = held.ask()?;
            if answer != member {
                return Err(io::Error::other(format!("{answer} answers for {member}")));
            }
        }
        age = start.elapsed();
        held.end()
    };
    let broken = talk().err();
    set(None);
    Visit { age, broken: broken.map(|error| format!("{error}, after {age:?}")) }
}

/// A connection with a question and an answer.
fn one(to: &str, port: u16) -> io::Result<()> {
    let stream =
        TcpStream::connect_timeout(&SocketAddr::new(to.parse().expect("an address"), port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Held { stream: BufReader::new(stream) }.ask().map(drop)
}

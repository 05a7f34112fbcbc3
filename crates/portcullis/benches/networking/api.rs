//! A client of the Networking API that does little itself.

use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use portcullis_testkit::figures::millis;
use portcullis_testkit::{Answer, Http};
use serde_json::{Value, json};

/// Where the API is, and who asks.
pub(crate) struct Api {
    host: String,
    token: String,
}

/// How long each of some requests took.
pub(crate) struct Rate {
    times: Vec<Duration>,
    all: Duration,
}

impl Rate {
    /// The rate of several together.
    pub(crate) fn all(rates: Vec<Rate>) -> Rate {
        let all = rates.iter().map(|rate| rate.all).sum();
        let mut times: Vec<Duration> = rates.into_iter().flat_map(|rate| rate.times).collect();
        times.sort_unstable();
        Rate { times, all }
    }

    pub(crate) fn count(&self) -> u128 {
        self.times.len() as u128
    }

    pub(crate) fn per_second(&self) -> f64 {
        f64::from(u32::try_from(self.times.len()).unwrap()) / self.all.as_secs_f64()
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place among some thousand"
    )]
    pub(crate) fn percentile(&self, part: f64) -> Duration {
        let place = (self.times.len() as f64 * part) as usize;
        self.times[place.min(self.times.len() - 1)]
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |part| millis(self.percentile(part));
        write!(
            f,
            "{:>8.0}/s   median {:.2} ms, p99 {:.2} ms",
            self.per_second(),
            milliseconds(0.5),
            milliseconds(0.99)
        )
    }
}

impl Api {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        let host = url.trim_start_matches("http://").trim_end_matches('/').trim_end_matches("/v2.0");
        Api { host: host.to_owned(), token: token.to_owned() }
    }

    fn connect(&self) -> Http {
        Http::connect(&self.host).unwrap_or_else(|error| panic!("{}: {error}", self.host))
    }

    fn send(&self, connection: &mut Http, (method, path, body): &(&str, String, String)) {
        let headers = [("X-Auth-Token", self.token.as_str()), ("Content-Type", "application/json")];
        connection.send(method, &format!("/v2.0/{path}"), &headers, body).unwrap();
    }

    /// The answer to one request, which must succeed.
    pub(crate) fn ask(&self, method: &'static str, path: &str, body: &str) -> Value {
        let mut connection = self.connect();
        self.send(&mut connection, &(method, path.to_owned(), body.to_owned()));
        received(&mut connection).json()
    }

    /// Makes objects, many at a time, and gives their ids.
    pub(crate) fn create_all(&self, path: &str, plural: &str, objects: &[Value]) -> Vec<String> {
        let mut ids = Vec::new();
        for some in objects.chunks(500) {
            let answer = self.ask("POST", path, &json!({plural: some}).to_string());
            let made = answer[plural].as_array().unwrap().iter();
            ids.extend(made.map(|object| object["id"].as_str().unwrap().to_owned()));
        }
        ids
    }

    /// Asks by some clients at once, one request after the other each, and gives how long they took, with the answers.
    ///
    /// One thread does it for all of them: the server needs the processors more.
    pub(crate) fn load(
        &self,
        clients: usize,
        during: Duration,
        mut request: impl FnMut(usize) -> (&'static str, String, String),
    ) -> (Rate, Vec<Answer>) {
        let mut connections: Vec<(Http, Instant)> = Vec::new();
        let start = Instant::now();
        for client in 0..clients {
            let mut connection = self.connect();
            self.send(&mut connection, &request(client));
            connections.push((connection, Instant::now()));
        }
        let (mut times, mut answers) = (Vec::new(), Vec::new());
        let mut asking = clients;
        while asking > 0 {
            for client in ready(&connections) {
                let (connection, sent) = &mut connections[client];
                answers.push(received(connection));
                times.push(sent.elapsed());
                if start.elapsed() < during {
                    *sent = Instant::now();
                    self.send(connection, &request(client));
                } else {
                    asking -= 1;
                }
            }
        }
        let all = start.elapsed();
        times.sort_unstable();
        (Rate { times, all }, answers)
    }
}

fn received(connection: &mut Http) -> Answer {
    let answer = connection.receive().unwrap();
    assert!(answer.status < 300, "{}", String::from_utf8_lossy(&answer.body));
    answer
}

/// Who has an answer.
fn ready(connections: &[(Http, Instant)]) -> Vec<usize> {
    let mut waiting: Vec<PollFd<'_>> = connections
        .iter()
        .map(|(connection, _)| PollFd::new(connection.as_fd(), PollFlags::POLLIN))
        .collect();
    poll(&mut waiting, PollTimeout::NONE).unwrap();
    let has_answer = |polled: &PollFd<'_>| polled.any().unwrap_or(true);
    (0..waiting.len()).filter(|place| has_answer(&waiting[*place])).collect()
}

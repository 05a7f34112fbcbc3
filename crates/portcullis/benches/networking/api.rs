//! A client of the Networking API that does little itself.

use std::fmt;
use std::time::{Duration, Instant};

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
        let milliseconds = |part| self.percentile(part).as_secs_f64() * 1000.0;
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

    fn send(&self, connection: &mut Http, method: &str, path: &str, body: &str) -> Answer {
        let headers = [("X-Auth-Token", self.token.as_str()), ("Content-Type", "application/json")];
        let answer = connection.ask(method, &format!("/v2.0/{path}"), &headers, body).unwrap();
        assert!(answer.status < 300, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        answer
    }

    /// The answer to one request, which must succeed.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        self.send(&mut self.connect(), method, path, body).json()
    }

    /// Makes objects, many at a time, and gives their ids.
    pub(crate) fn create_all(&self, path: &str, plural: &str, objects: Vec<Value>) -> Vec<String> {
        let mut ids = Vec::new();
        for some in objects.chunks(500) {
            let answer = self.ask("POST", path, &json!({plural: some}).to_string());
            let made = answer[plural].as_array().unwrap().iter();
            ids.extend(made.map(|object| object["id"].as_str().unwrap().to_owned()));
        }
        ids
    }

    /// Asks by some clients at once, one request after the other each, and gives how long they took, with the answers.
    pub(crate) fn load(
        &self,
        clients: usize,
        during: Duration,
        request: impl Fn(usize) -> (&'static str, String, String) + Sync,
    ) -> (Rate, Vec<Answer>) {
        let start = Instant::now();
        let answers: Vec<(Duration, Answer)> = std::thread::scope(|scope| {
            let request = &request;
            let tasks: Vec<_> = (0..clients)
                .map(|client| {
                    scope.spawn(move || {
                        let mut connection = self.connect();
                        let mut answers = Vec::new();
                        while start.elapsed() < during {
                            let (method, path, body) = request(client);
                            let before = Instant::now();
                            let answer = self.send(&mut connection, method, &path, &body);
                            answers.push((before.elapsed(), answer));
                        }
                        answers
                    })
                })
                .collect();
            tasks.into_iter().flat_map(|task| task.join().unwrap()).collect()
        });
        let all = start.elapsed();
        let (mut times, answers): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
        times.sort_unstable();
        (Rate { times, all }, answers)
    }
}

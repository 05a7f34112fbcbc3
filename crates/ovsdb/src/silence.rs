//! Servers that ask whether we are there, that are slow, and that say nothing any more. Time passes when told.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Connection, Ended, Listener};
use crate::remote::Stream;
use crate::{Client, Columns, Error, Settings, TableSpec, Transaction};

struct Deaf;

impl Listener for Deaf {
    fn notified(&mut self, _: &str, _: &str) -> Result<(), Ended> {
        Ok(())
    }
}

/// The other end of a connection.
struct Server {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Server {
    fn new(stream: UnixStream) -> Self {
        Server { stream, read: Vec::new() }
    }

    /// What the client says next; nothing once it is gone.
    async fn hear(&mut self) -> Option<Value> {
        loop {
            let mut messages = serde_json::Deserializer::from_slice(&self.read).into_iter();
            if let Some(Ok(message)) = messages.next() {
                let length = messages.byte_offset();
                self.read.drain(..length);
                return Some(message);
            }
            if self.stream.read_buf(&mut self.read).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    async fn say(&mut self, message: &Value) {
        self.stream.write_all(message.to_string().as_bytes()).await.unwrap();
    }
}

fn connection() -> (Connection, tokio::task::JoinHandle<Ended>, Server) {
    let (near, far) = UnixStream::pair().unwrap();
    let (connection, work) = Connection::new(Stream::Unix(near), Deaf);
    (connection, tokio::spawn(work), Server::new(far))
}

#[tokio::test(start_paused = true)]
async fn who_asks_whether_we_are_there_is_answered() {
    let (_connection, work, mut server) = connection();
    for id in [json!("echo"), json!(7), json!(["any", {"thing": null}])] {
        server.say(&json!({"method": "echo", "params": ["are", "you"], "id": id})).await;
        let answer = server.hear().await;
        assert_eq!(answer, Some(json!({"id": id, "result": ["are", "you"], "error": null})));
    }
    assert!(!work.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_and_then_given_up() {
    let (connection, work, mut server) = connection();
    let waits = tokio::spawn(async move { connection.request("transact", json!([])).await });
    assert_eq!(server.hear().await.unwrap()["method"], "transact");
    let begin = Instant::now();
    let question = server.hear().await.unwrap();
    assert_eq!((&question["method"], begin.elapsed().as_secs()), (&json!("echo"), 5));
    let ended = work.await.unwrap();
    assert_eq!(
        (ended.to_string().as_str(), begin.elapsed().as_secs()),
        ("the server has been silent for 10 s", 10)
    );
    assert!(waits.await.unwrap().is_err(), "who waits is told that no answer will come");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_answers_that_it_is_there_is_kept() {
    let (_connection, work, mut server) = connection();
    let begin = Instant::now();
    for _ in 0..100 {
        let question = server.hear().await.unwrap();
        assert_eq!(question["method"], "echo");
        server.say(&json!({"id": question["id"], "result": question["params"], "error": null})).await;
    }
    assert!(begin.elapsed() >= Duration::from_secs(500) && !work.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_arrives() {
    let (connection, work, mut server) = connection();
    let asked = tokio::spawn(async move { connection.request("transact", json!([])).await });
    let id = server.hear().await.unwrap()["id"].take();
    // Four seconds for each piece of it, far more than a silence in all.
    for piece in json!({"id": id, "result": [{"count": 1}], "error": null}).to_string().as_bytes().chunks(4) {
        sleep(Duration::from_secs(4)).await;
        server.stream.write_all(piece).await.unwrap();
    }
    assert_eq!(asked.await.unwrap().unwrap().unwrap().get(), r#"[{"count":1}]"#);
    assert!(!work.is_finished());
}

/// As a server does, for one that follows the table `T`, until a transaction comes.
async fn serve(server: &mut Server) -> Option<Value> {
    let column = json!({"type": "string"});
    let database = json!({"columns": {
        "name": column, "model": column, "connected": {"type": "boolean"}, "leader": {"type": "boolean"},
        "cid": {"type": {"key": "uuid", "min": 0}}, "index": {"type": {"key": "integer", "min": 0}},
    }});
    let row = json!({"initial": {"name": "D", "model": "standalone", "connected": true, "leader": true}});
    let number = "11111111-1111-4111-8111-111111111111";
    while let Some(message) = server.hear().await {
        let result = match (message["method"].as_str().unwrap(), &message["params"][0]) {
            ("get_schema", name) if name == "_Server" => {
                json!({"name": "_Server", "version": "1.2.0", "tables": {"Database": database}})
            }
            ("get_schema", name) => {
                json!({"name": name, "version": "1.0.0", "tables": {"T": {"columns": {"name": column}}}})
            }
            ("monitor_cond", _) => json!({"Database": {number: row}}),
            ("monitor_cond_since", _) => json!([false, number, {}]),
            ("transact", _) => return Some(message),
            _ => json!({}),
        };
        server.say(&json!({"id": message["id"], "result": result, "error": null})).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn who_was_given_up_is_asked_again_by_a_new_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let client = Client::new(Settings {
        remotes: vec![format!("unix:{}", path.display()).parse().unwrap()],
        tls: None,
        database: "D".to_owned(),
        tables: vec![TableSpec { name: "T", columns: &["name"], indexes: &[] }],
        leader_only: true,
    });
    let mut transaction = Transaction::new();
    transaction.insert("T", uuid::Uuid::new_v4(), Columns::new().with("name", "a"));
    let sent = |transaction: &Transaction| {
        let (client, transaction) = (client.clone(), transaction.clone());
        tokio::spawn(async move { client.transact(&transaction).await })
    };

    let lost = sent(&transaction);
    let mut silent = Server::new(listener.accept().await.unwrap().0);
    serve(&mut silent).await.unwrap();
    // From now on it says nothing, and its connection stays open.
    assert!(matches!(lost.await.unwrap(), Err(Error::InDoubt { .. })));
    let begin = Instant::now();
    let mut speaking =
        Server::new(timeout(Duration::from_secs(5), listener.accept()).await.unwrap().unwrap().0);
    let made = sent(&transaction);
    let message = serve(&mut speaking).await.unwrap();
    speaking
        .say(&json!({"id": message["id"], "result": [{"uuid": ["uuid", uuid::Uuid::nil()]}], "error": null}))
        .await;
    made.await.unwrap().unwrap();
    assert!(client.state().is_ok() && begin.elapsed() < Duration::from_secs(5));
}

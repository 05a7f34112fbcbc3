//! What the database does by itself.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Deserializer, Value, json};

/// Transactions a second, of which some are always on their way, for a time at most.
pub(crate) fn rate(
    socket: &Path,
    transactions: &[Value],
    depth: usize,
    durable: bool,
    during: Duration,
) -> f64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    let messages: Vec<String> = transactions
        .iter()
        .enumerate()
        .map(|(number, operations)| {
            let mut params = vec![json!("OVN_Northbound")];
            params.extend(operations.as_array().unwrap().iter().cloned());
            if durable {
                params.push(json!({"op": "commit", "durable": true}));
            }
            json!({"method": "transact", "params": params, "id": number}).to_string()
        })
        .collect();
    let mut answers = Deserializer::from_reader(stream.try_clone().unwrap()).into_iter::<Value>();
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    loop {
        while sent < messages.len() && sent < received + depth && start.elapsed() < during {
            stream.write_all(messages[sent].as_bytes()).unwrap();
            sent += 1;
        }
        if received == sent {
            return f64::from(u32::try_from(received).unwrap()) / start.elapsed().as_secs_f64();
        }
        let answer = answers.next().unwrap().unwrap();
        let refused =
            answer["result"].as_array().into_iter().flatten().find(|result| result.get("error").is_some());
        assert!(refused.is_none(), "{answer}");
        received += 1;
    }
}

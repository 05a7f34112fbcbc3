//! moto's server: an independent implementation of the AWS wire format.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::{Launch, Namespace, Port, Process, Result};

/// A running simulator, with one account and nothing in it but what AWS gives to every account.
#[derive(Debug)]
pub struct AwsSimulator {
    port: Port,
    process: Process,
}

impl AwsSimulator {
    /// Starts one on loopback. Its log goes to `logs`.
    pub fn start(port: Port, logs: &Path) -> Result<Self> {
        let mut process = Launch::new("moto_server")?
            .args(["-H", "127.0.0.1", "-p"])
            .arg(port.number().to_string())
            .start(&Namespace::host(), logs)?;
        process.wait_until(Duration::from_secs(120), || {
            TcpStream::connect(("127.0.0.1", port.number())).is_ok()
        })?;
        Ok(AwsSimulator { port, process })
    }

    /// Its program, to see whether it still runs.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Where every AWS service answers: what `AWS_ENDPOINT_URL` is to be set to.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }
}

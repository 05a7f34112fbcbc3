use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_parts::{Launch, Namespace, Process};

/// A real HAProxy: a master with its workers, in a namespace of the lab.
#[derive(Debug)]
pub struct HaProxy {
    configuration: PathBuf,
    socket: PathBuf,
    process: Process,
}

impl HaProxy {
    /// Starts one with this configuration (without a `global` section's sockets: the master's is made here).
    #[track_caller]
    pub fn start(namespace: &Namespace, configuration: &str) -> Self {
        let directory = crate::directory("haproxy");
        let file = directory.join("haproxy.cfg");
        let socket = directory.join("master.sock");
        std::fs::write(&file, configuration)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        let started = Launch::new("haproxy").and_then(|launch| {
            let launch = launch.args(["-W", "-S"]).arg(&socket).arg("-f").arg(&file);
            let mut process = launch.start(namespace, &directory)?;
            let has_worker = || ask(&socket, "show proc").is_ok_and(|answer| answer.lines().any(is_worker));
            process.wait_until(Duration::from_secs(120), has_worker)?;
            Ok(process)
        });
        HaProxy { configuration: file, socket, process: started.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// The file that it was started with.
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// Sends a command to the master's socket and gives the answer.
    #[track_caller]
    pub fn ask(&self, command: &str) -> String {
        ask(&self.socket, command)
            .unwrap_or_else(|error| panic!("HAProxy does not answer `{command}`: {error}"))
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        // It takes its workers along.
        self.process.stop(Duration::from_secs(2));
    }
}

/// A line of `show proc`: number, kind, …
fn is_worker(line: &str) -> bool {
    line.split_whitespace().nth(1) == Some("worker")
}

fn ask(socket: &Path, command: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    writeln!(stream, "{command}")?;
    // It answers and then closes only when it knows that no other command follows.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

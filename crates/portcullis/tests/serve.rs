//! `portcullis serve` and pipes, as real processes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Longer than the program waits for open requests, shorter than anyone's patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// It is killed when the test is.
fn portcullis(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis")]).args(args);
    command.env_remove("PORTCULLIS_CONFIG").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command
}

/// A running `portcullis serve` on a free port; it ends with the test, however that ends.
struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    /// The line that says so, and those before it.
    started: String,
    before: String,
    address: SocketAddr,
    _files: TempDir,
}

impl Server {
    fn start(config: &str) -> Self {
        let files = TempDir::new().unwrap();
        let file = files.path().join("config.yaml");
        fs::write(&file, config).unwrap();
        let args = ["serve", "--config", file.to_str().unwrap(), "--set", "telemetry.listen=127.0.0.1:0"];
        Self::spawn(portcullis(&args), files)
    }

    fn spawn(mut command: Command, files: TempDir) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut started, mut before) = (String::new(), String::new());
        while !started.contains(" serving ") && !started.contains("\"serving\"") {
            before.push_str(&started);
            started.clear();
            assert_ne!(log.read_line(&mut started).unwrap(), 0, "it ended before it served: {before}");
        }
        let address = started.split("127.0.0.1:").nth(1).unwrap();
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
        Self { child, log, started, before, address, _files: files }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Status line, headers and body of a GET.
    fn get(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not end in time");
    }

    fn rest_of_log(&mut self) -> String {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn it_tells_about_itself() {
    let server = Server::start("mode: observe\n");
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    for part in [version, "mode=observe", "config.yaml\"", "listen=127.0.0.1:"] {
        assert!(server.started.contains(part), "{}", server.started);
    }
    assert!(!server.started.contains('\u{1b}'), "no colours into a pipe: {:?}", server.started);

    let livez = server.get("/livez");
    assert!(livez.starts_with("HTTP/1.1 200 "), "{livez}");
    assert_eq!(body(&livez), "ok\n");

    let readyz = server.get("/readyz");
    assert!(readyz.starts_with("HTTP/1.1 200 "), "{readyz}");
    assert_eq!(body(&readyz), "ok\nserve: ready\n");

    let metrics = server.get("/metrics");
    assert!(
        metrics.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{metrics}"
    );
    for line in [
        concat!("\nportcullis_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\","),
        "\n# TYPE process_start_time_seconds gauge\n",
        "\nportcullis_ready{check=\"serve\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(metrics.ends_with("\n# EOF\n"), "{metrics}");
    assert_eq!(body(&metrics), body(&server.get("/metrics")), "nothing happened between the two scrapes");

    let missing = server.get("/healthz");
    assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
    assert_eq!(body(&missing), "no /healthz here; there is /livez, /readyz and /metrics\n");
}

/// Neither the lack of a database nor of users keeps it from starting: both may come.
#[test]
fn it_says_which_database_is_missing_and_ends_without_it() {
    let mut server = Server::start(
        "networking:\n  enabled: true\n  listen: 127.0.0.1:0\n  northbound: {remotes: ['unix:/nowhere/nb.sock']}\n\
         identity: {listen: '127.0.0.1:0'}\n",
    );
    let readyz = server.get("/readyz");
    assert!(readyz.starts_with("HTTP/1.1 503 "), "{readyz}");
    assert!(readyz.contains("\nnetworking: not ready: no northbound database: "), "{readyz}");
    let metrics = server.get("/metrics");
    for line in ["\nportcullis_ready{check=\"networking\"} 0\n", "\nportcullis_objects{kind=\"port\"} 0\n"] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
}

/// What is allowed, and is rarely meant.
#[test]
fn it_warns_of_what_is_rarely_meant() {
    let server = Server::start("networking: {portSecurity: false}\n");
    assert!(server.before.contains("no role is enabled"), "{}", server.before);

    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let start = |mode: u32| {
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        Server::start(&format!(
            "networking:\n  enabled: true\n  listen: 127.0.0.1:0\n  northbound: {{remotes: ['unix:/nowhere/nb.sock']}}\n\
             identity:\n  listen: '127.0.0.1:0'\n  local: {{tokenKeyFile: '{}'}}\n",
            secret.path().display()
        ))
    };
    let open = start(0o644);
    for part in
        ["everybody on this machine may read this secret", "identity.local.tokenKeyFile", "chmod o-r "]
    {
        assert!(open.before.contains(part), "{}", open.before);
    }
    assert!(!open.before.contains("no role is enabled"), "{}", open.before);
    let keystone = Server::start(
        "networking:\n  enabled: true\n  listen: 127.0.0.1:0\n  northbound: {remotes: ['unix:/nowhere/nb.sock']}\n\
         identity:\n  listen: '127.0.0.1:0'\n  keystone: {url: 'http://keystone.example.com:5000', password: x}\n",
    );
    for part in ["can be read on the way to Keystone", "key=\"identity.listen\"", "it is not used"] {
        assert!(keystone.before.contains(part), "{}", keystone.before);
    }
    let closed = start(0o640);
    assert!(!closed.before.contains("may read"), "{}", closed.before);
}

/// Every connection is one.
#[test]
fn it_has_as_many_open_files_as_the_system_allows() {
    let files = TempDir::new().unwrap();
    let file = files.path().join("config.yaml");
    fs::write(&file, "").unwrap();
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "--",
        "sh",
        "-c",
        "ulimit -Sn 64; ulimit -Hn 1000; exec \"$@\"",
        "sh",
    ]);
    command.args([
        env!("CARGO_BIN_EXE_portcullis"),
        "serve",
        "--set",
        "telemetry.listen=127.0.0.1:0",
        "--config",
    ]);
    command.arg(&file).env_remove("PORTCULLIS_CONFIG").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    let server = Server::spawn(command, files);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["1000", "1000"], "{line}");
}

#[test]
fn either_signal_ends_it_well() {
    for (signal, name) in [(Signal::SIGTERM, "SIGTERM"), (Signal::SIGINT, "SIGINT")] {
        let mut server = Server::start("");
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        let log = server.rest_of_log();
        assert!(log.contains(name) && log.trim_end().ends_with("stopped"), "{log}");
    }
}

#[test]
fn an_idle_connection_does_not_delay_the_end() {
    let mut server = Server::start("");
    let mut stream = server.connect();
    write!(stream, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    let log = server.rest_of_log();
    assert!(!log.contains("cut off") && log.trim_end().ends_with("stopped"), "{log}");
}

/// A request whose head never ends is open for good; it may delay the end, but not prevent it.
#[test]
fn an_open_request_does_not_prevent_the_end() {
    let mut server = Server::start("");
    let mut stream = server.connect();
    write!(stream, "GET /livez HTTP/1.1\r\nHost:").unwrap();
    // The answer to a later connection shows that this one has been accepted.
    server.get("/livez");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(TcpStream::connect(server.address).is_err());
    let log = server.rest_of_log();
    assert!(log.contains("requests were still open and have been cut off"), "{log}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start("");
    let mut stream = server.connect();
    write!(stream, "GET /livez HTTP/1.1\r\nHost:").unwrap();
    server.get("/livez");
    server.signal(Signal::SIGTERM);
    let mut line = String::new();
    server.log.read_line(&mut line).unwrap();
    assert!(line.contains("stopping; a second signal ends at once"), "{line}");
    server.signal(Signal::SIGINT);
    assert_eq!(server.wait().code(), Some(1));
    // Waiting for the open request to the end would say that it was cut off.
    assert_eq!(server.rest_of_log(), "error: ended by a second signal, SIGINT, with requests still open\n");
}

#[test]
fn logs_are_json_when_asked_even_the_warnings() {
    let mut server = Server::start("log: {format: json}\nlgo: 1\n");
    let started: Value = serde_json::from_str(&server.started).unwrap();
    assert_eq!(started["message"], "serving");
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(started["mode"], "manage");
    assert!(started["timestamp"].is_string());
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    for line in server.rest_of_log().lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[test]
fn a_warning_in_the_configuration_is_an_event_of_the_log() {
    let files = TempDir::new().unwrap();
    let file = files.path().join("config.yaml");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fs::write(&file, format!("lgo: 1\nlog: {{format: json}}\ntelemetry:\n  listen: {address}\n")).unwrap();
    let file = file.to_str().unwrap();
    let output = portcullis(&["serve", "--config", file]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let (event, error) = stderr.split_once('\n').unwrap();

    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["level"], "WARN");
    assert_eq!(event["key"], "lgo");
    assert_eq!(event["at"], format!("{file}:1"));
    assert_eq!(event["message"], "unknown key, ignored. Did you mean `log`?");

    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        error,
        format!(
            "error: cannot listen on {address} (telemetry.listen, {file}:4): the port is in use by another program
  Nothing was started.
  Stop that program (`ss -ltnp 'sport = :{}'` names it), or choose another address: \
             --set telemetry.listen=127.0.0.1:0 takes any free port.
",
            address.port()
        )
    );
}

#[test]
fn an_empty_variable_counts_as_unset_but_an_empty_flag_is_refused() {
    let unset = portcullis(&["show-config"]).output().unwrap();
    let empty = portcullis(&["show-config"]).env("PORTCULLIS_CONFIG", "").output().unwrap();
    assert_eq!(empty, unset);

    let named = portcullis(&["show-config"]).env("PORTCULLIS_CONFIG", "/nowhere.yaml").output().unwrap();
    let stderr = String::from_utf8(named.stderr).unwrap();
    assert!(stderr.starts_with("error: /nowhere.yaml: there is no such file\n"), "{stderr}");

    let flag = portcullis(&["show-config", "--config", ""]).output().unwrap();
    assert_eq!(flag.status.code(), Some(2));
    let stderr = String::from_utf8(flag.stderr).unwrap();
    assert!(stderr.contains("the name of a file is missing"), "{stderr}");
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = portcullis(&["completions", shell]).output().unwrap();
        assert!(output.status.success(), "{shell}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("show-config"), "{shell}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child =
        portcullis(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = portcullis(&["version"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("error: cannot write to standard output: No space left on device"),
        "{stderr}"
    );
}

#[test]
fn colours_can_be_forced() {
    let output =
        portcullis(&["--color", "always", "show-config", "--config", "/nowhere.yaml"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("\u{1b}["));
}

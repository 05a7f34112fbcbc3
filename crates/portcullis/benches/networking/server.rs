//! A release build of the program on a real northbound database.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::parts::{Launch, Namespace, Port, Process, answers};
use portcullis_testkit::{Http, figures};
use serde_json::json;
use tempfile::TempDir;

use crate::api::Api;

/// Of the password `bench`, made cheaply: it is used once.
const HASH: &str =
    "$argon2id$v=19$m=64,t=1,p=1$D1nu51F9Bj6v63mB511pXA$Ws9Rg4G4sBs/X+J6M/YrUggyi6zHe3t7Il6ud850HiQ";

pub(crate) struct Server {
    process: RefCell<Option<Process>>,
    ovn: Ovn,
    files: TempDir,
    pub(crate) durable: bool,
    telemetry: SocketAddr,
    networking: SocketAddr,
    identity: SocketAddr,
    _ports: [Port; 3],
}

impl Server {
    pub(crate) fn start(durable: bool) -> Self {
        let files = TempDir::new().unwrap();
        let ovn = Ovn::start(files.path(), files.path(), None).unwrap();
        let ports = [Port::any().unwrap(), Port::any().unwrap(), Port::any().unwrap()];
        let [telemetry, networking, identity] =
            [0, 1, 2].map(|place| SocketAddr::from(([127, 0, 0, 1], ports[place].number())));
        let unlimited = ["network", "subnet", "port", "security_group", "security_group_rule"];
        let quotas: Vec<String> = unlimited.iter().map(|name| format!("{name}: -1")).collect();
        let config = format!(
            "log: {{level: warn}}\ntelemetry: {{listen: '{telemetry}'}}\n\
             networking:\n  enabled: true\n  listen: '{networking}'\n  quotas: {{{}}}\n  \
             northbound: {{remotes: ['{}'], durable: {durable}}}\n\
             identity:\n  listen: '{identity}'\n  local:\n    tokenLifetime: 24h\n    projects: [{{name: bench}}]\n    \
             users: [{{name: bench, password: '{HASH}', assignments: [{{project: bench, roles: [member]}}]}}]\n",
            quotas.join(", "),
            ovn.northbound(),
        );
        fs::write(files.path().join("config.yaml"), config).unwrap();
        let process = RefCell::new(None);
        let server = Server { process, ovn, files, durable, telemetry, networking, identity, _ports: ports };
        server.restart();
        server
    }

    pub(crate) fn stop(&self) {
        *self.process.borrow_mut() = None;
    }

    /// Starts the program anew, and gives how long that took.
    pub(crate) fn restart(&self) -> Duration {
        self.stop();
        let start = Instant::now();
        let mut process = Launch::path("portcullis", env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "--config"])
            .arg(self.files.path().join("config.yaml"))
            .start(&Namespace::host(), self.files.path())
            .unwrap();
        process.wait_until(Duration::from_secs(60), || answers(self.telemetry, "/readyz")).unwrap();
        *self.process.borrow_mut() = Some(process);
        start.elapsed()
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(&format!("http://{}", self.networking), &self.token())
    }

    /// A token, as a client gets one.
    fn token(&self) -> String {
        let domain = json!({"id": "default"});
        let user = json!({"name": "bench", "password": "bench", "domain": domain});
        let auth = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": "bench", "domain": domain}},
        }})
        .to_string();
        let mut connection = Http::connect(&self.identity.to_string()).unwrap();
        let headers = [("Content-Type", "application/json")];
        let answer = connection.ask("POST", "/v3/auth/tokens", &headers, &auth).unwrap();
        answer.header("x-subject-token").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(self.ovn.northbound().trim_start_matches("unix:"))
    }

    /// Waits until northd has done all it has to do.
    pub(crate) fn settle(&self) {
        // With a whole site in the database it takes its time.
        self.ovn.nbctl(&["--timeout=600", "--wait=sb", "sync"]).unwrap();
    }

    fn id(&self) -> u32 {
        self.process.borrow().as_ref().unwrap().id()
    }

    /// How long the program has computed since it started.
    pub(crate) fn cpu(&self) -> Duration {
        figures::cpu(self.id())
    }

    /// What the program holds in memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        figures::memory(self.id())
    }
}

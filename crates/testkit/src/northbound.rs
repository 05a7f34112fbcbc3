use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use portcullis_parts::{Launch, Namespace, Process, ovn, run};

/// A northbound database alone, whose server can be killed and started again.
#[derive(Debug)]
pub struct Northbound {
    directory: PathBuf,
    process: Option<Process>,
}

impl Northbound {
    /// Starts one with nothing in it.
    #[track_caller]
    pub fn start() -> Self {
        let mut northbound = Northbound { directory: crate::directory("nb"), process: None };
        northbound.create();
        northbound.restart();
        northbound
    }

    /// A database with nothing in it.
    fn create(&self) {
        let schema = ovn::schema_file("ovn-nb").display().to_string();
        let created = run(
            &Namespace::host(),
            "ovsdb-tool",
            &["create", &self.database().display().to_string(), &schema],
        );
        created.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Kills it at once, as a power failure would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it (again); returns when it listens.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        let started = Launch::new("ovsdb-server").and_then(|launch| {
            let mut process = launch
                .arg(format!("--remote=punix:{}", self.socket().display()))
                .arg(format!("--unixctl={}", self.directory.join("ctl").display()))
                .arg(self.database())
                .start(&Namespace::host(), &self.directory)?;
            let listens = || UnixStream::connect(self.socket()).is_ok();
            process.wait_until(Duration::from_secs(30), listens)?;
            Ok(process)
        });
        self.process = Some(started.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Kills it, and starts it with nothing in it.
    pub fn forget(&mut self) {
        self.kill();
        std::fs::remove_file(self.database()).expect("the file that was just served");
        self.create();
        self.restart();
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("sock")
    }

    /// How a client names it.
    pub fn remote(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn database(&self) -> PathBuf {
        self.directory.join("nb.db")
    }

    /// Runs `ovn-nbctl`.
    #[track_caller]
    pub fn nbctl(&self, args: &[&str]) -> String {
        let database = format!("--db={}", self.remote());
        let said =
            run(&Namespace::host(), "ovn-nbctl", &[&[database.as_str(), "--timeout=30"], args].concat());
        said.unwrap_or_else(|error| panic!("{error}"))
    }
}

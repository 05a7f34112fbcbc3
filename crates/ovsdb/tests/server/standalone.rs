use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use portcullis_testkit::parts::{Launch, Namespace, Process, ovn, run};

use crate::PATIENCE;

/// A northbound database alone, whose server can be killed and started again.
pub(crate) struct Standalone {
    directory: tempfile::TempDir,
    process: Option<Process>,
}

impl Standalone {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Standalone { directory, process: None };
        server.create();
        server.restart();
        server
    }

    /// A database with nothing in it.
    fn create(&self) {
        let schema = ovn::schema_file("ovn-nb").display().to_string();
        run(&Namespace::host(), "ovsdb-tool", &["create", &self.database().display().to_string(), &schema])
            .unwrap();
    }

    /// Kills it at once, as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it (again); returns when it listens.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut process = Launch::new("ovsdb-server")
            .unwrap()
            .arg(format!("--remote=punix:{}", self.socket().display()))
            .arg(format!("--unixctl={}", self.directory.path().join("ctl").display()))
            .arg(self.database())
            .start(&Namespace::host(), self.directory.path())
            .unwrap();
        process.wait_until(PATIENCE, || UnixStream::connect(self.socket()).is_ok()).unwrap();
        self.process = Some(process);
    }

    /// Kills it, and starts it with nothing in it.
    pub(crate) fn forget(&mut self) {
        self.kill();
        std::fs::remove_file(self.database()).unwrap();
        self.create();
        self.restart();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("sock")
    }

    pub(crate) fn remote(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("nb.db")
    }
}

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_parts::{Launch, Namespace, Process, ovn, run};

/// A northbound database alone, whose server can be killed and started again.
#[derive(Debug)]
pub struct Northbound {
    directory: PathBuf,
    schema: PathBuf,
    process: Option<Process>,
}

impl Northbound {
    /// Starts one with nothing in it.
    #[track_caller]
    pub fn start() -> Self {
        Self::with_schema(&ovn::schema_file("ovn-nb"))
    }

    /// Starts one as another version of OVN has it.
    #[track_caller]
    pub fn without_column(table: &str, column: &str) -> Self {
        let text = std::fs::read_to_string(ovn::schema_file("ovn-nb")).expect("OVN is installed");
        let mut schema: serde_json::Value = serde_json::from_str(&text).expect("OVN's schema is JSON");
        let removed = schema["tables"][table]["columns"].as_object_mut().and_then(|all| all.remove(column));
        assert!(removed.is_some(), "OVN has no column {column} in {table}");
        let file = crate::directory("schema").join("nb.ovsschema");
        std::fs::write(&file, schema.to_string()).expect("a directory of ours");
        Self::with_schema(&file)
    }

    #[track_caller]
    fn with_schema(schema: &Path) -> Self {
        let directory = crate::directory("nb");
        let mut northbound = Northbound { directory, schema: schema.to_owned(), process: None };
        northbound.create();
        northbound.restart();
        northbound
    }

    /// A database with nothing in it.
    fn create(&self) {
        let schema = self.schema.display().to_string();
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

    /// The number of its process.
    pub fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
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
            process.wait_until(Duration::from_secs(120), listens)?;
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
            run(&Namespace::host(), "ovn-nbctl", &[&[database.as_str(), "--timeout=120"], args].concat());
        said.unwrap_or_else(|error| panic!("{error}"))
    }
}

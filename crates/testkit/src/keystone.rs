use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE;
use portcullis_parts::{Launch, Namespace, Port, Process, catalogue, run};

/// A real Keystone with a database of its own.
#[derive(Debug)]
pub struct Keystone {
    configuration: PathBuf,
    port: Port,
    process: Process,
}

/// Keystone reads the arguments of the program that it is in: there must be none left when it is loaded.
const SERVE: &str = "
import sys
listen = sys.argv.pop()
from keystone.wsgi.api import application
import waitress
waitress.serve(application, listen=listen)
";

impl Keystone {
    /// Starts one whose tokens live for so many seconds. Its user `admin` of project `admin` has the password `secret`.
    #[track_caller]
    pub fn start(token_lifetime: u32) -> Self {
        let directory = crate::directory("keystone");
        prepare(&directory, token_lifetime)
            .unwrap_or_else(|error| panic!("cannot prepare Keystone in {}: {error}", directory.display()));
        let configuration = directory.join("keystone.conf");
        manage(&configuration, &["db_sync"]);
        manage(&configuration, &["bootstrap", "--bootstrap-password", "secret"]);
        let part = catalogue::part("Keystone");
        let python = part.directory().unwrap_or_default().join("bin/python");
        let started = Port::any().and_then(|port| {
            let address = format!("127.0.0.1:{}", port.number());
            let launch = Launch::path("keystone", python).args(["-c", SERVE]).arg(&address);
            let launch = launch.env("OS_KEYSTONE_CONFIG_DIR", &directory);
            let mut process = launch.start(&Namespace::host(), &directory)?;
            process.wait_until(Duration::from_secs(120), || TcpStream::connect(&address).is_ok())?;
            Ok((port, process))
        });
        let (port, process) = started.unwrap_or_else(|error| panic!("{error}"));
        Keystone { configuration, port, process }
    }

    /// Where it answers, on loopback.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Adds a user with a role in a project; what is not there yet is made.
    #[track_caller]
    pub fn add_user(&self, name: &str, password: &str, project: &str, role: &str) {
        let user = ["--bootstrap-username", name, "--bootstrap-password", password];
        let place = ["--bootstrap-project-name", project, "--bootstrap-role-name", role];
        manage(&self.configuration, &[&["bootstrap"], &user[..], &place[..]].concat());
    }

    /// Its program.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Writes its configuration, and the keys that it makes tokens with.
fn prepare(directory: &Path, token_lifetime: u32) -> std::io::Result<()> {
    let place = directory.display();
    let configuration = format!(
        "[database]\nconnection = sqlite:///{place}/keystone.db\n\
         [token]\nprovider = fernet\nexpiration = {token_lifetime}\n\
         [fernet_tokens]\nkey_repository = {place}/fernet-keys\n\
         [fernet_receipts]\nkey_repository = {place}/fernet-keys\n\
         [credential]\nkey_repository = {place}/credential-keys\n\
         [identity]\npassword_hash_rounds = 4\n"
    );
    fs::write(directory.join("keystone.conf"), configuration)?;
    for keys in ["fernet-keys", "credential-keys"] {
        let keys = directory.join(keys);
        fs::DirBuilder::new().mode(0o700).create(&keys)?;
        for number in ["0", "1"] {
            let mut key = [0; 32];
            fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
            fs::write(keys.join(number), BASE64_URL_SAFE.encode(key))?;
        }
    }
    Ok(())
}

#[track_caller]
fn manage(configuration: &Path, command: &[&str]) {
    let file = configuration.to_string_lossy();
    let done = run(&Namespace::host(), "keystone-manage", &[&["--config-file", &file], command].concat());
    done.unwrap_or_else(|error| panic!("{error}"));
}

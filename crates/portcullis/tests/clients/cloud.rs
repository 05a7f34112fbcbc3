use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use portcullis_testkit::Http;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::parts::{Launch, Namespace, Port, Process, answers};
use serde_json::json;
use tempfile::TempDir;

/// What every user's password is; the hash is cheap, since it is checked hundreds of times.
pub(crate) const PASSWORD: &str = "secret";
pub(crate) const HASH: &str =
    "$argon2id$v=19$m=64,t=1,p=1$FOig+vISZ3yS71gn1f9RXQ$l28X46xIfXzXFcmUs/pSX8lGvDoAwwaS40Gmi1+7kj0";

/// A user, its project and its role there.
pub(crate) type User = (&'static str, &'static str, &'static str);

/// A running Portcullis with a network for the world.
pub(crate) struct Cloud {
    pub(crate) files: TempDir,
    pub(crate) identity: SocketAddr,
    pub(crate) networking: SocketAddr,
    telemetry: SocketAddr,
    portcullis: Option<Process>,
    pub(crate) ovn: Ovn,
    _ports: [Port; 3],
}

/// A second server.
pub(crate) struct Another {
    pub(crate) identity: SocketAddr,
    pub(crate) networking: SocketAddr,
    _portcullis: Process,
    _ports: [Port; 3],
}

impl Cloud {
    pub(crate) fn start(users: &[User]) -> Self {
        Self::start_with(users, |_, _| {})
    }

    /// On another northbound database than its own OVN's.
    pub(crate) fn start_on(users: &[User], remote: &str) -> Self {
        Self::start_with(users, |drop_ins, _| {
            let northbound = format!("networking: {{northbound: {{remotes: ['{remote}']}}}}\n");
            fs::write(drop_ins.join("northbound.yaml"), northbound).unwrap();
        })
    }

    /// With another configuration, by drop-ins in a directory that is handed over with the address of the Networking
    /// API.
    pub(crate) fn start_with(users: &[User], change: impl FnOnce(&Path, SocketAddr)) -> Self {
        let files = TempDir::new().unwrap();
        let ovn = Ovn::start(files.path(), files.path(), None).unwrap();
        let ports = [Port::any().unwrap(), Port::any().unwrap(), Port::any().unwrap()];
        let [telemetry, networking, identity] =
            [0, 1, 2].map(|place| SocketAddr::from(([127, 0, 0, 1], ports[place].number())));
        let mut config = format!(
            "telemetry: {{listen: '{telemetry}'}}\n\
             networking:\n  enabled: true\n  listen: '{networking}'\n  northbound: {{remotes: ['{}'], durable: false}}\n  \
             quotas: {{router: 100, floatingip: 500, security_group: 150, security_group_rule: 1000}}\n\
             identity:\n  listen: '{identity}'\n  local:\n    tokenLifetime: 24h\n    projects:\n",
            ovn.northbound()
        );
        let mut projects: Vec<&str> = users.iter().map(|(_, project, _)| *project).collect();
        projects.dedup();
        for project in projects {
            writeln!(config, "    - {{name: {project}}}").unwrap();
        }
        config.push_str("    users:\n");
        for (user, project, role) in users {
            let assignment = format!("[{{project: {project}, roles: [{role}]}}]");
            writeln!(config, "    - {{name: {user}, password: '{HASH}', assignments: {assignment}}}")
                .unwrap();
        }
        fs::write(files.path().join("config.yaml"), config).unwrap();
        fs::create_dir(files.path().join("config.d")).unwrap();
        change(&files.path().join("config.d"), networking);
        let portcullis = None;
        let mut cloud = Cloud { files, identity, networking, telemetry, portcullis, ovn, _ports: ports };
        cloud.restart();
        cloud
    }

    /// Kills it at once, as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.portcullis = None;
    }

    /// Starts it (again); returns when it is ready.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut portcullis = Launch::path("portcullis", env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "--config"])
            .arg(self.path("config.yaml"))
            .start(&Namespace::host(), self.files.path())
            .unwrap();
        portcullis.wait_until(Duration::from_secs(120), || answers(self.telemetry, "/readyz")).unwrap();
        self.portcullis = Some(portcullis);
    }

    /// A token, as a client gets one.
    pub(crate) fn token(&self, user: &str, project: &str) -> String {
        token(&self.identity.to_string(), user, project)
    }

    /// What it logged since it was started last.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("portcullis.log")).unwrap()
    }

    /// Another server on the same database, with a configuration that differs by a drop-in.
    pub(crate) fn another(&self, drop_in: &str) -> Another {
        let directory = self.path("another");
        let ports = [Port::any().unwrap(), Port::any().unwrap(), Port::any().unwrap()];
        let [telemetry, networking, identity] =
            [0, 1, 2].map(|place| SocketAddr::from(([127, 0, 0, 1], ports[place].number())));
        fs::create_dir_all(directory.join("config.d")).unwrap();
        fs::copy(self.path("config.yaml"), directory.join("config.yaml")).unwrap();
        fs::write(directory.join("config.d/drop-in.yaml"), drop_in).unwrap();
        let mut portcullis = Launch::path("another", env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "--config"])
            .arg(directory.join("config.yaml"))
            .args(["--set".to_owned(), format!("telemetry.listen={telemetry}")])
            .args(["--set".to_owned(), format!("networking.listen={networking}")])
            .args(["--set".to_owned(), format!("identity.listen={identity}")])
            .start(&Namespace::host(), &directory)
            .unwrap();
        portcullis.wait_until(Duration::from_secs(120), || answers(telemetry, "/readyz")).unwrap();
        Another { _portcullis: portcullis, identity, networking, _ports: ports }
    }

    /// No limits for a project, which an administrator has.
    pub(crate) fn without_limits(&self, user: &str, project: &str) -> String {
        let token = self.token(user, project);
        let me = self.openstack(user, project, &format!("project show {project} -f value -c id"));
        let names = ["network", "port", "security_group", "security_group_rule"];
        let quota: serde_json::Map<_, _> =
            names.into_iter().map(|name| (name.to_owned(), (-1).into())).collect();
        let mut connection = Http::connect(&self.networking.to_string()).unwrap();
        let headers = [("X-Auth-Token", token.as_str())];
        let path = format!("/v2.0/quotas/{me}");
        let answer = connection.ask("PUT", &path, &headers, &json!({"quota": quota}).to_string()).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        token
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A program of the clients, as a user of a project.
    pub(crate) fn command(&self, program: &str, user: &str, project: &str) -> Command {
        self.as_user(Command::new(find(program).unwrap()), user, project)
    }

    /// A line as it is typed, by a user of a project.
    pub(crate) fn typed(&self, line: &str, user: &str, project: &str) -> Command {
        let programs = find("openstack").unwrap();
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = self.as_user(Command::new("sh"), user, project);
        shell.env("PATH", path).args(["-c", line]);
        shell
    }

    fn as_user(&self, mut command: Command, user: &str, project: &str) -> Command {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OS_")) {
            command.env_remove(name);
        }
        command
            .env("OS_AUTH_URL", format!("http://{}/v3", self.identity))
            .env("OS_USERNAME", user)
            .env("OS_PASSWORD", PASSWORD)
            .env("OS_PROJECT_NAME", project)
            .env("OS_USER_DOMAIN_NAME", "Default")
            .env("OS_PROJECT_DOMAIN_NAME", "Default")
            .env("OS_REGION_NAME", "RegionOne")
            // Nothing on loopback is asked for at a proxy.
            .env("no_proxy", "127.0.0.1,localhost")
            .env("NO_PROXY", "127.0.0.1,localhost")
            .current_dir(self.files.path());
        command
    }

    /// Runs `openstack`, which must do what it is told.
    #[track_caller]
    pub(crate) fn openstack(&self, user: &str, project: &str, words: &str) -> String {
        let output =
            self.command("openstack", user, project).args(words.split_whitespace()).output().unwrap();
        said(words, &output)
    }
}

/// A token of a user whose password is [`PASSWORD`], from who gives them.
pub(crate) fn token(identity: &str, user: &str, project: &str) -> String {
    let domain = json!({"id": "default"});
    let user = json!({"name": user, "password": PASSWORD, "domain": domain});
    let auth = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": project, "domain": domain}},
    }});
    let mut connection = Http::connect(identity).unwrap();
    let headers = [("Content-Type", "application/json")];
    let answer = connection.ask("POST", "/v3/auth/tokens", &headers, &auth.to_string()).unwrap();
    answer.header("x-subject-token").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// What a program said; it must have succeeded.
#[track_caller]
pub(crate) fn said(what: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}\n{text}\n{error}");
    text
}

/// Where Python packages of a program are.
pub(crate) fn packages(program: &str) -> PathBuf {
    let environment = find(program).unwrap();
    let library = environment.parent().and_then(Path::parent).unwrap().join("lib");
    let python = fs::read_dir(library).unwrap().next().unwrap().unwrap().path();
    python.join("site-packages")
}

//! A Kubernetes API: etcd, kube-apiserver and, if asked, kube-controller-manager.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine};

use crate::certificates::{signing_key, write_secret};
use crate::{Authority, Error, Launch, Namespace, Port, Process, Result, catalogue};

/// How to start one.
#[derive(Debug)]
pub struct Options {
    /// Where it runs. In a fresh namespace only programs of that namespace reach it.
    pub namespace: Namespace,
    /// Everything it writes goes here.
    pub directory: PathBuf,
    /// Where its logs go.
    pub logs: PathBuf,
    /// The port of the API.
    pub port: Port,
    /// Also start kube-controller-manager: garbage collection, deletion of namespaces, `EndpointSlices`.
    pub controllers: bool,
    /// The ports that Services get on nodes, if not the usual ones.
    pub node_ports: Option<RangeInclusive<u16>>,
}

/// A running Kubernetes API, with RBAC in force. It is reached by [`Kubernetes::kubeconfig`].
#[derive(Debug)]
pub struct Kubernetes {
    namespace: Namespace,
    directory: PathBuf,
    logs: PathBuf,
    authority: Authority,
    kubeconfig: PathBuf,
    port: Port,
    _etcd_ports: [Port; 2],
    // Dropped in this order: those who depend on another first.
    controllers: Option<Process>,
    api_server: Process,
    etcd: Process,
}

/// The ports that Services get on nodes.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// An API server on two busy cores has been seen to take 25 s.
const START: Duration = Duration::from_secs(120);

impl Kubernetes {
    /// Starts one and returns when it answers.
    pub fn start(options: Options) -> Result<Self> {
        let Options { namespace, directory, logs, port, controllers, node_ports } = options;
        let certificates = directory.join("certificates");
        fs::create_dir_all(&certificates)
            .map_err(Error::io(format!("cannot make {}", certificates.display())))?;
        let authority = Authority::new(&certificates)?;
        signing_key(&certificates.join("tokens.key"), &certificates.join("tokens.pub"))?;

        let etcd_ports = [Port::any()?, Port::any()?];
        let etcd = start_etcd(&namespace, &directory, &logs, &etcd_ports)?;
        let node_ports = node_ports.unwrap_or(NODE_PORTS);
        let ports = (&port, &etcd_ports[0], &node_ports);
        let api_server = start_api_server(&namespace, &certificates, &logs, &authority, ports)?;
        let mut kubernetes = Kubernetes {
            kubeconfig: directory.join("kubeconfig"),
            namespace,
            directory,
            logs,
            authority,
            port,
            _etcd_ports: etcd_ports,
            controllers: None,
            api_server,
            etcd,
        };
        // The first certificate holder may do everything: Kubernetes gives this group to no role, but to all.
        kubernetes.kubeconfig = kubernetes.user("admin", Some("system:masters"))?;
        kubernetes.wait_for_api()?;
        if controllers {
            // Only now: it gives an API that is not there ten seconds, and then gives up.
            let mut controllers = kubernetes.start_controllers()?;
            let works = ["get", "serviceaccount", "default", "--namespace=default"];
            controllers.wait_until(START, || kubernetes.kubectl(&works).is_ok())?;
            kubernetes.controllers = Some(controllers);
        }
        Ok(kubernetes)
    }

    /// The URL of the API, inside its namespace.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port.number())
    }

    /// A kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where it runs.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The authority that signed its certificate and those of its users.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where the logs of what runs beside it go.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Its programs, to see whether they still run.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        [&mut self.etcd, &mut self.api_server].into_iter().chain(&mut self.controllers)
    }

    /// Makes a kubeconfig for a user with what RBAC grants to that name and group.
    pub fn user(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let file = user.replace(':', "-");
        let identity = self.authority.client(&file, user, group)?;
        let path = self.directory.join(if file == "admin" {
            "kubeconfig".into()
        } else {
            format!("{file}.kubeconfig")
        });
        let data = |path: &Path| {
            let text = fs::read(path).map_err(Error::io(format!("cannot read {}", path.display())))?;
            Ok(BASE64.encode(text))
        };
        // Whole, so that it can be copied elsewhere.
        let text = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "portcullis", "cluster": {
                "server": self.url(),
                "certificate-authority-data": data(self.authority.certificate())?,
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": data(&identity.certificate)?,
                "client-key-data": data(&identity.key)?,
            }}],
            "contexts": [{"name": "portcullis", "context": {"cluster": "portcullis", "user": user}}],
            "current-context": "portcullis",
        });
        // JSON is YAML: every reader of a kubeconfig takes it.
        write_secret(&path, &format!("{text:#}\n"))?;
        Ok(path)
    }

    /// Runs kubectl as administrator and gives what it printed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_as(&self.kubeconfig, args, "")
    }

    /// Creates or changes the objects of a manifest (YAML or JSON).
    pub fn apply(&self, manifest: &str) -> Result<String> {
        let args =
            ["apply", "--server-side", "--force-conflicts", "--field-manager=portcullis-parts", "-f", "-"];
        self.kubectl_as(&self.kubeconfig, &args, manifest)
    }

    /// Creates or changes the types (`CustomResourceDefinitions`) of a manifest, and waits until they are taken.
    pub fn apply_types(&self, manifest: &str) -> Result<()> {
        self.apply(manifest)?;
        let wait = ["wait", "--for=condition=Established", "--timeout=60s", "-f", "-"];
        self.kubectl_as(&self.kubeconfig, &wait, manifest).map(drop)
    }

    /// Runs kubectl with another user's kubeconfig, with `input` on its standard input.
    pub fn kubectl_as(&self, kubeconfig: &Path, args: &[&str], input: &str) -> Result<String> {
        let kubectl = catalogue::find("kubectl")?;
        let cannot = || Error::io("cannot run kubectl");
        self.namespace.run(|| {
            let mut child = Command::new(kubectl)
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .arg("--cache-dir")
                .arg(self.directory.join("kubectl-cache"))
                .arg("--request-timeout=60s")
                .args(args)
                // The preferences of whoever runs this do not belong here.
                .env("KUBERC", "off")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(cannot())?;
            let stdin = child.stdin.take();
            let output = thread::scope(|scope| {
                // Aside, since it prints while it still reads. It may refuse before it has read everything;
                // its exit status says so.
                scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
                child.wait_with_output().map_err(cannot())
            })?;
            if output.status.success() {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            Err(Error::Command {
                command: format!("kubectl {}", args.join(" ")),
                output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            })
        })
    }

    /// Waits until it is ready, and has made the namespace that everybody expects.
    fn wait_for_api(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        let port = self.port.number();
        loop {
            for process in self.processes() {
                process.check()?;
            }
            // A connection is cheap to try, kubectl is not.
            let listens = self.namespace.run(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
            if listens
                && self.kubectl(&["get", "--raw=/readyz"]).is_ok()
                && self.kubectl(&["get", "namespace", "default"]).is_ok()
            {
                return Ok(());
            }
            self.api_server.still_waiting(deadline, START)?;
        }
    }

    fn start_controllers(&self) -> Result<Process> {
        let certificates = self.directory.join("certificates");
        let kubeconfig = self.user("system:kube-controller-manager", None)?;
        Launch::new("kube-controller-manager")?
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--service-account-private-key-file={}", certificates.join("tokens.key").display()))
            .arg(format!("--root-ca-file={}", self.authority.certificate().display()))
            // No kubelet runs here: these would call every Node dead and evict its Pods.
            .arg(
                "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller",
            )
            .args(["--leader-elect=false", "--use-service-account-credentials=true", "--secure-port=0"])
            .start(&self.namespace, &self.logs)
    }
}

fn start_etcd(namespace: &Namespace, directory: &Path, logs: &Path, ports: &[Port; 2]) -> Result<Process> {
    let [clients, peers] = ports.each_ref().map(|port| format!("http://127.0.0.1:{}", port.number()));
    Launch::new("etcd")?
        .arg(format!("--data-dir={}", directory.join("etcd").display()))
        .arg(format!("--listen-client-urls={clients}"))
        .arg(format!("--advertise-client-urls={clients}"))
        .arg(format!("--listen-peer-urls={peers}"))
        .arg(format!("--initial-advertise-peer-urls={peers}"))
        .arg(format!("--initial-cluster=default={peers}"))
        // What is lost with the machine is a sandbox: waiting for the disk only makes it slow.
        .args(["--unsafe-no-fsync", "--log-level=warn"])
        .start(namespace, logs)
}

fn start_api_server(
    namespace: &Namespace,
    certificates: &Path,
    logs: &Path,
    authority: &Authority,
    (port, etcd, node_ports): (&Port, &Port, &RangeInclusive<u16>),
) -> Result<Process> {
    let names = ["localhost", "127.0.0.1", "kubernetes.default.svc", "10.0.0.1"];
    let server = authority.server("kube-apiserver", &names)?;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    Launch::new("kube-apiserver")?
        .arg(format!("--etcd-servers=http://127.0.0.1:{}", etcd.number()))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        // Loopback cannot be an endpoint of the Service `kubernetes`.
        .arg("--endpoint-reconciler-type=none")
        .arg(format!("--secure-port={}", port.number()))
        .arg(file("tls-cert-file", &server.certificate))
        .arg(file("tls-private-key-file", &server.key))
        .arg(file("client-ca-file", authority.certificate()))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(file("service-account-key-file", &certificates.join("tokens.pub")))
        .arg(file("service-account-signing-key-file", &certificates.join("tokens.key")))
        // Services of both families, if they ask for them; the API itself is reached by IPv4, and needs no other.
        .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/16,fd00:10::/108"])
        .arg(format!("--service-node-port-range={}-{}", node_ports.start(), node_ports.end()))
        // Pods are objects here, nothing runs them, and nobody waits for their service account.
        .arg("--disable-admission-plugins=ServiceAccount")
        .start(namespace, logs)
}

//! Everything on this machine: a local OVN, a local Kubernetes API, an AWS simulator, and Portcullis serving them.

mod cloud;
mod cluster;
mod directory;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use portcullis_ovn::schema;
use portcullis_parts::catalogue::{self, PARTS, Use};
use portcullis_parts::kubernetes::{self, Kubernetes};
use portcullis_parts::ovn::{self, Ovn};
use portcullis_parts::{AwsSimulator, AwsSite, Launch, Namespace, Port, Process, answers};

pub(crate) use directory::{Directory, is_up, stop};

use self::cloud::Cloud;
use crate::config::{Config, ListenAddress, Loaded, Mode, Northbound, RemoteAddress, ServerTls};
use crate::exit::{Exit, Failure};
use crate::listen::cannot_listen;
use crate::output;
use crate::progress::Progress;

/// The ports to take if they are free. Another sandbox beside this one gets others.
const KUBERNETES_PORT: u16 = 16443;
const AWS_PORT: u16 = 5000;
const TELEMETRY_PORT: u16 = 9695;
const NETWORKING_PORT: u16 = 9696;
const IDENTITY_PORT: u16 = 35357;

/// A running sandbox. Dropped, it is killed; [`Sandbox::stop`] lets Portcullis end in order.
#[derive(Debug)]
pub(crate) struct Sandbox {
    // Dropped in this order: Portcullis before what it works with.
    portcullis: Process,
    cloud: Cloud,
    kubernetes: Kubernetes,
    ovn: Ovn,
    aws: AwsSimulator,
}

/// Looks for everything that could keep the sandbox from starting, before anything starts.
pub(crate) fn check(loaded: &Loaded) -> Result<(), Failure> {
    check_addresses(loaded)?;
    let missing: Vec<_> =
        PARTS.iter().filter(|part| part.sandbox == Use::Needed && !part.missing().is_empty()).collect();
    if !missing.is_empty() {
        let names: Vec<_> =
            missing.iter().map(|part| format!("{} ({})", part.name, part.missing().join(", "))).collect();
        return Err(Failure::new(Exit::Lacking, format!("not installed here: {}", names.join("; ")))
            .note("Nothing was started.")
            .note("Install what is missing and start: portcullis up --install   (in a checkout: make up)"));
    }
    check_schema(&ovn::schema_file("ovn-nb"))?;
    for (keys, listen) in listens(&mut loaded.config.clone()) {
        if let Some(listen) = chosen_address(loaded, keys, listen.0) {
            TcpListener::bind(listen).map_err(|error| cannot_listen(loaded, keys, listen, &error))?;
        }
    }
    Ok(())
}

/// Its users have passwords that everybody knows, and there is no TLS: it is for this machine alone.
fn check_addresses(loaded: &Loaded) -> Result<(), Failure> {
    let Config { networking, identity, .. } = &loaded.config;
    for (key, listen) in [("networking.listen", networking.listen), ("identity.listen", identity.listen)] {
        if !listen.0.ip().to_canonical().is_loopback() {
            let what = format!(
                "{listen} can be reached from other machines, and the passwords of the sandbox's users are their \
                 names: use an address of this machine only, such as 127.0.0.1:0"
            );
            return Err(Failure::from(loaded.mistake(key, what)).state("Nothing was started."));
        }
    }
    Ok(())
}

/// The addresses that Portcullis listens on, and where they stand in the configuration.
fn listens(config: &mut Config) -> [(&'static [&'static str], &mut ListenAddress); 3] {
    [
        (&["telemetry", "listen"], &mut config.telemetry.listen),
        (&["networking", "listen"], &mut config.networking.listen),
        (&["identity", "listen"], &mut config.identity.listen),
    ]
}

/// An address that the user has chosen. Port 0 leaves the choice to us.
fn chosen_address(loaded: &Loaded, keys: &[&str], listen: SocketAddr) -> Option<SocketAddr> {
    loaded.origin(keys).filter(|_| listen.port() != 0).map(|_| listen)
}

fn check_schema(path: &Path) -> Result<(), Failure> {
    let lacking = |what: String| {
        Failure::new(Exit::Lacking, format!("{}: {what}", path.display()))
            .note("Nothing was started.")
            .note("Install a newer OVN (23.03 has all of it), or set OVN_PKGDATADIR to the directory with its schemas.")
    };
    let text = fs::read_to_string(path).map_err(|error| lacking(format!("cannot be read: {error}")))?;
    let schema = schema::parse(&text).map_err(|error| lacking(error.to_string()))?;
    match schema::missing(&schema).as_slice() {
        [] => Ok(()),
        missing => {
            let what = missing.join(", ");
            Err(lacking(format!(
                "the northbound schema {} has no {what}, which Portcullis needs",
                schema.version
            )))
        }
    }
}

impl Sandbox {
    /// Starts everything, what does not depend on each other at the same time.
    pub(crate) fn start(
        directory: &Directory,
        loaded: &Loaded,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let (ovn, kubernetes, aws) = thread::scope(|scope| {
            let ovn = scope.spawn(|| start_ovn(directory, progress));
            let kubernetes = scope.spawn(|| start_kubernetes(directory, progress));
            let aws = scope.spawn(|| start_aws(directory, progress));
            (join(ovn), join(kubernetes), join(aws))
        });
        // A failure of one ends the others: they are dropped here.
        let (ovn, kubernetes, aws) = (ovn?, kubernetes?, aws?);
        let kubeconfig = fs::read_to_string(kubernetes.kubeconfig()).context("cannot read the kubeconfig")?;
        directory.write("kubeconfig", &kubeconfig)?;
        let site = cluster::prepare(&kubernetes, &aws.url())?;
        let parts = Parts { ovn: &ovn, kubernetes: &kubernetes, aws: &aws, site };
        let (portcullis, cloud) = start_portcullis(directory, loaded, &parts, progress)?;
        let sandbox = Sandbox { portcullis, cloud, kubernetes, ovn, aws };
        // Last: whoever finds it may rely on everything else.
        directory.write("env", &sandbox.environment(directory)?)?;
        Ok(sandbox)
    }

    /// The first of its programs that has ended, though nobody asked it to.
    pub(crate) fn ended(&mut self) -> Option<Failure> {
        let ended = self
            .kubernetes
            .processes()
            .chain(self.ovn.processes())
            .chain([self.aws.process(), &mut self.portcullis])
            .find_map(|process| process.ended().map(|status| (process, status)));
        ended.map(|(process, status)| {
            Failure::new(
                Exit::Failed,
                format!("{} has ended ({status}), and the sandbox with it", process.name()),
            )
            .note(format!("Its log is {}", process.log().display()))
        })
    }

    /// Ends everything.
    pub(crate) fn stop(mut self) {
        self.portcullis.stop(Duration::from_secs(10));
    }

    /// What a shell has to know to use the sandbox.
    fn environment(&self, directory: &Directory) -> Result<String, Failure> {
        let own = std::env::current_exe().context("cannot find the program's own path")?;
        let kubectl = catalogue::find("kubectl").map_err(failure)?;
        // Who does not have the clients of OpenStack can use the API otherwise.
        let clients = catalogue::find("openstack").ok();
        let programs: Vec<_> = [Some(&own), Some(&kubectl), clients.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|path| path.parent())
            .map(quoted)
            .collect();
        let variables = [
            ("KUBECONFIG", quoted(&directory.path().join("kubeconfig"))),
            ("OVN_NB_DB", quote(&self.ovn.northbound())),
            ("OVN_SB_DB", quote(&self.ovn.southbound())),
            ("OS_CLIENT_CONFIG_FILE", quoted(&directory.path().join("clouds.yaml"))),
            ("OS_CLOUD", "portcullis".into()),
            // What is on this machine is not asked for at a proxy.
            ("no_proxy", r#""${no_proxy:+$no_proxy,}127.0.0.1,localhost""#.into()),
            ("NO_PROXY", r#""${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost""#.into()),
            ("PORTCULLIS_NETWORKING_URL", quote(&self.cloud.networking_url())),
            ("PORTCULLIS_CONFIG", quoted(&directory.path().join("config.yaml"))),
            // Behind what is there, so that nobody's own programs are hidden.
            ("PATH", format!("\"$PATH\":{}", programs.join(":"))),
        ];
        let aws = aws_variables(&self.aws).map(|(name, value)| (name, quote(&value)));
        let lines: Vec<String> = variables
            .into_iter()
            .chain(aws)
            .map(|(name, value)| format!("export {name}={value}\n"))
            .collect();
        // They would win over the files that are named here.
        let unset = "unset AWS_SESSION_TOKEN AWS_PROFILE OS_AUTH_TYPE OS_AUTH_URL OS_TOKEN OS_USERNAME OS_USER_ID \
                     OS_PASSWORD OS_PROJECT_NAME OS_PROJECT_ID OS_USER_DOMAIN_NAME OS_USER_DOMAIN_ID \
                     OS_PROJECT_DOMAIN_NAME OS_PROJECT_DOMAIN_ID OS_DOMAIN_NAME OS_DOMAIN_ID OS_DEFAULT_DOMAIN \
                     OS_SYSTEM_SCOPE OS_TRUST_ID OS_INTERFACE OS_ENDPOINT OS_ENDPOINT_OVERRIDE OS_REGION_NAME OS_CACERT";
        Ok(format!("# For a shell that is to use this sandbox: source it.\n{unset}\n{}", lines.concat()))
    }
}

fn start_ovn(directory: &Directory, progress: &Progress) -> Result<Ovn, Failure> {
    let step = progress.step("OVN");
    let namespace = match Namespace::new("ovn") {
        Ok(namespace) => Some(namespace),
        Err(portcullis_parts::Error::NotPermitted { .. }) => None,
        Err(error) => return Err(failure(error)),
    };
    let datapath = if namespace.is_some() { "userspace datapath" } else { "no datapath (that takes root)" };
    let ovn = Ovn::start(&directory.run("ovn")?, &directory.logs(), namespace).map_err(failure)?;
    step.done(&format!("northbound ready, {datapath}"));
    Ok(ovn)
}

fn start_kubernetes(directory: &Directory, progress: &Progress) -> Result<Kubernetes, Failure> {
    let step = progress.step("Kubernetes API");
    let options = kubernetes::Options {
        namespace: Namespace::host(),
        directory: directory.run("kubernetes")?,
        logs: directory.logs(),
        port: Port::preferably(KUBERNETES_PORT).map_err(failure)?,
        controllers: true,
        node_ports: None,
    };
    let kubernetes = Kubernetes::start(options).map_err(failure)?;
    step.done(&kubernetes.url());
    Ok(kubernetes)
}

fn start_aws(directory: &Directory, progress: &Progress) -> Result<AwsSimulator, Failure> {
    let step = progress.step("AWS simulator");
    let port = Port::preferably(AWS_PORT).map_err(failure)?;
    let aws = AwsSimulator::start(port, &directory.logs()).map_err(failure)?;
    step.done(&aws.url());
    Ok(aws)
}

/// What Portcullis works with.
struct Parts<'a> {
    ovn: &'a Ovn,
    kubernetes: &'a Kubernetes,
    aws: &'a AwsSimulator,
    site: AwsSite,
}

/// Runs `portcullis serve`, the same as in production, with a configuration of its own.
fn start_portcullis(
    directory: &Directory,
    loaded: &Loaded,
    parts: &Parts<'_>,
    progress: &Progress,
) -> Result<(Process, Cloud), Failure> {
    let step = progress.step("Portcullis");
    let mut config = loaded.config.clone();
    // Claimed until it listens on them.
    let mut ports = Vec::new();
    let usual = [TELEMETRY_PORT, NETWORKING_PORT, IDENTITY_PORT];
    for ((keys, listen), usual) in listens(&mut config).into_iter().zip(usual) {
        if chosen_address(loaded, keys, listen.0).is_none() {
            let port = Port::preferably(usual).map_err(failure)?;
            listen.0.set_port(port.number());
            ports.push(port);
        }
    }
    use_sandbox(&mut config, parts.ovn);
    let cloud_config = directory.write("cloud.conf", cluster::CLOUD_CONFIG)?;
    cluster::configure(&mut config, parts.kubernetes, &parts.site, cloud_config);
    let listen = config.telemetry.listen.0;
    let cloud = Cloud { networking: config.networking.listen.0, identity: config.identity.listen.0 };
    let mut text = serde_json::to_value(&config).context("cannot print the configuration")?;
    cloud::with_hashes(&mut text, &config.identity.local);
    let file = directory.write("config.yaml", &output::yaml(&text)?)?;
    let own = std::env::current_exe().context("cannot find the program's own path")?;
    let launch = Launch::path("portcullis", own).arg("serve").arg("--config").arg(file);
    let launch =
        aws_variables(parts.aws).into_iter().fold(launch, |launch, (key, value)| launch.env(key, value));
    let mut process = launch.start(&Namespace::host(), &directory.logs()).map_err(failure)?;
    process.wait_until(Duration::from_secs(60), || answers(listen, "/readyz")).map_err(failure)?;
    step.done(&format!("http://{listen}/readyz"));

    let step = progress.step("Networking API");
    let clouds = cloud.clouds(&config.identity.local.region);
    directory.write("clouds.yaml", &output::yaml(&clouds)?)?;
    if config.mode == Mode::Manage {
        cloud.add_samples().context("cannot make the sample objects")?;
    }
    step.done(&format!("{}   identity {}", cloud.networking_url(), cloud.identity_url()));

    if config.mode == Mode::Manage {
        let step = progress.step("IngressController");
        step.done(&cluster::add_samples(parts.kubernetes)?);
    }
    Ok((process, cloud))
}

/// What a client of AWS has to know to use the simulator instead.
fn aws_variables(aws: &AwsSimulator) -> [(&'static str, String); 5] {
    [
        ("AWS_ENDPOINT_URL", aws.url()),
        ("AWS_ACCESS_KEY_ID", "sandbox".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "sandbox".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
    ]
}

/// Turns the Networking API on, with the sandbox's own database and users, whatever else is configured.
fn use_sandbox(config: &mut Config, ovn: &Ovn) {
    config.networking.enabled = true;
    config.networking.tls = ServerTls::default();
    config.networking.northbound =
        Northbound { remotes: vec![RemoteAddress(ovn.northbound())], ..Northbound::default() };
    if ovn.chassis().is_some() && config.networking.gateway_chassis.is_empty() {
        config.networking.gateway_chassis = vec![ovn::CHASSIS.to_owned()];
    }
    config.identity.tls = ServerTls::default();
    config.identity.keystone = None;
    config.identity.local = cloud::users();
}

/// A failure of a part as a failure of the program.
pub(crate) fn failure(error: portcullis_parts::Error) -> Failure {
    use portcullis_parts::Error;
    let exit = match &error {
        Error::Missing { .. } | Error::NotPermitted { .. } | Error::Unsuitable(_) => Exit::Lacking,
        Error::Process { .. } | Error::Command { .. } | Error::Io { .. } | Error::Interrupted => Exit::Failed,
    };
    Failure { exit, ..Failure::from(anyhow::Error::new(error)) }
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(crate) fn quoted(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// As one word of a shell; left alone if it is one already.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_without_what_is_needed_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, r#"{"name":"OVN_Northbound","version":"5.4.0","tables":{"ACL":{"columns":{}}}}"#)
            .unwrap();
        let refused = check_schema(file.path()).unwrap_err();
        assert_eq!(refused.exit, Exit::Lacking);
        assert!(refused.errors[0].contains("schema 5.4.0 has no ACL.action"), "{refused:?}");
        assert!(refused.errors[0].contains("Port_Group"), "{refused:?}");
    }

    #[test]
    fn a_word_of_a_shell_stays_one() {
        assert_eq!(quote("it's here"), r"'it'\''s here'");
        assert_eq!(quote("/tmp/box-1"), "/tmp/box-1");
        assert_eq!(quote("$HOME"), "'$HOME'");
    }
}

//! OVN: the northbound and southbound databases, northd and, where this user may, a chassis with the
//! userspace datapath.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, Launch, Namespace, Process, Result, run};

/// A running OVN. Its databases answer on Unix sockets; its switch lives in a network namespace of its own,
/// so that several can run on one machine.
#[derive(Debug)]
pub struct Ovn {
    northbound: PathBuf,
    southbound: PathBuf,
    chassis: Option<Chassis>,
    processes: Vec<Process>,
}

/// The virtual switch on this machine that carries packets.
#[derive(Debug)]
pub struct Chassis {
    namespace: Namespace,
    database: PathBuf,
    processes: Vec<Process>,
}

/// What the switch is called in the southbound database.
pub const CHASSIS: &str = "portcullis";

const START: Duration = Duration::from_secs(120);

impl Ovn {
    /// Starts the databases and northd in `directory`, and a chassis in `namespace`, if one is given.
    pub fn start(directory: &Path, logs: &Path, namespace: Option<Namespace>) -> Result<Self> {
        let northbound = database("nb", "ovn-nb", directory, logs)?;
        let southbound = database("sb", "ovn-sb", directory, logs)?;
        let (nb, sb) = (remote(&northbound.socket), remote(&southbound.socket));
        let northd = Launch::new("ovn-northd")?
            .arg(format!("--ovnnb-db={nb}"))
            .arg(format!("--ovnsb-db={sb}"))
            .arg(format!("--unixctl={}", directory.join("northd.ctl").display()))
            .start(&Namespace::host(), logs)?;
        let chassis =
            namespace.map(|namespace| Chassis::start(namespace, directory, logs, &sb)).transpose()?;
        let ovn = Ovn {
            northbound: northbound.socket,
            southbound: southbound.socket,
            chassis,
            processes: vec![northd, northbound.process, southbound.process],
        };
        ovn.nbctl(&["init"])?;
        if ovn.chassis.is_some() {
            // Until it is registered, there is no switch for `settle` to wait for.
            let registered = ["--timeout=120", "wait-until", "Chassis", CHASSIS];
            run(
                &Namespace::host(),
                "ovn-sbctl",
                &[&[format!("--db={sb}").as_str()], &registered[..]].concat(),
            )?;
        }
        ovn.settle()?;
        Ok(ovn)
    }

    /// How a client names the northbound database: `unix:…`.
    pub fn northbound(&self) -> String {
        remote(&self.northbound)
    }

    /// How a client names the southbound database: `unix:…`.
    pub fn southbound(&self) -> String {
        remote(&self.southbound)
    }

    /// The switch, if one was started.
    pub fn chassis(&self) -> Option<&Chassis> {
        self.chassis.as_ref()
    }

    /// Its programs, to see whether they still run.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.iter_mut().chain(self.chassis.iter_mut().flat_map(|chassis| &mut chassis.processes))
    }

    /// Runs `ovn-nbctl`.
    pub fn nbctl(&self, args: &[&str]) -> Result<String> {
        let database = format!("--db={}", self.northbound());
        run(&Namespace::host(), "ovn-nbctl", &[&[database.as_str(), "--timeout=120"], args].concat())
    }

    /// Waits until what is in the northbound database is in force: in the switch, where there is one.
    pub fn settle(&self) -> Result<()> {
        let wait = if self.chassis.is_some() { "--wait=hv" } else { "--wait=sb" };
        self.nbctl(&[wait, "sync"]).map(drop)
    }
}

impl Chassis {
    fn start(namespace: Namespace, directory: &Path, logs: &Path, southbound: &str) -> Result<Self> {
        let switch = database("ovs", "vswitch", directory, logs)?;
        let chassis = Chassis { namespace, database: switch.socket, processes: Vec::new() };
        chassis.vsctl(&["--no-wait", "init"])?;
        chassis.vsctl(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            &format!("external_ids:system-id={CHASSIS}"),
            &format!("external_ids:ovn-remote={southbound}"),
            "external_ids:ovn-encap-type=geneve",
            "external_ids:ovn-encap-ip=127.0.0.1",
            // The kernel may not have the openvswitch module; the userspace datapath needs none.
            "external_ids:ovn-bridge-datapath-type=netdev",
        ])?;
        let program = |name: &str| -> Result<Process> {
            Launch::new(name)?
                .env("OVS_RUNDIR", directory)
                .env("OVN_RUNDIR", directory)
                .arg(remote(&chassis.database))
                .start(&chassis.namespace, logs)
        };
        let vswitchd = program("ovs-vswitchd")?;
        let mut controller = program("ovn-controller")?;
        // The controller makes the bridge, and then tells the southbound database that it is there.
        controller.wait_until(START, || chassis.vsctl(&["br-exists", "br-int"]).is_ok())?;
        Ok(Chassis { processes: vec![controller, vswitchd, switch.process], ..chassis })
    }

    /// The network namespace that the switch is in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs `ovs-vsctl`.
    pub fn vsctl(&self, args: &[&str]) -> Result<String> {
        let database = format!("--db={}", remote(&self.database));
        run(&self.namespace, "ovs-vsctl", &[&[database.as_str(), "--timeout=120"], args].concat())
    }
}

/// A database server of its own, as in production.
struct Database {
    socket: PathBuf,
    process: Process,
}

fn database(name: &str, schema: &str, directory: &Path, logs: &Path) -> Result<Database> {
    let file = directory.join(format!("{name}.db"));
    let socket = directory.join(format!("{name}.sock"));
    check_socket_path(&socket)?;
    let schema = schema_file(schema);
    run(&Namespace::host(), "ovsdb-tool", &["create", &file.to_string_lossy(), &schema.to_string_lossy()])?;
    let mut process = Launch::new("ovsdb-server")?
        .named(&format!("ovsdb-server-{name}"))
        .arg(format!("--remote=p{}", remote(&socket)))
        .arg(format!("--unixctl={}", directory.join(format!("{name}.ctl")).display()))
        .arg(file)
        .start(&Namespace::host(), logs)?;
    process.wait_until(START, || UnixStream::connect(&socket).is_ok())?;
    Ok(Database { socket, process })
}

/// Where OVN's packages keep their schemas. The variables are OVN's and Open vSwitch's own.
pub fn schema_file(schema: &str) -> PathBuf {
    let (variable, default) = if schema.starts_with("ovn-") {
        ("OVN_PKGDATADIR", "/usr/share/ovn")
    } else {
        ("OVS_PKGDATADIR", "/usr/share/openvswitch")
    };
    let directory = std::env::var_os(variable).map_or_else(|| default.into(), PathBuf::from);
    directory.join(format!("{schema}.ovsschema"))
}

fn remote(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

/// The kernel cuts longer paths off, and programs then complain about something else.
fn check_socket_path(path: &Path) -> Result<()> {
    if path.as_os_str().len() <= 107 {
        return Ok(());
    }
    Err(Error::Unsuitable(format!(
        "the path of the socket {} is longer than 107 bytes: use a shorter directory",
        path.display()
    )))
}

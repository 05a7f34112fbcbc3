//! `portcullis up`

use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_parts::catalogue::{self, Use};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::parts;
use crate::cli::ConfigArgs;
use crate::config::Loaded;
use crate::exit::Failure;
use crate::output;
use crate::progress::Progress;
use crate::sandbox::{self, Directory, Sandbox, quoted};
use crate::signals::Signals;

/// Start everything on this machine: a local OVN, Kubernetes API and AWS simulator, and Portcullis
///
/// It runs until Ctrl-C, which leaves nothing behind. Portcullis works with these alone. The configuration of this
/// machine's production is not read: only a file that is named, and --set, count.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for everything it makes [default: portcullis in the user's state directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Install first what is missing: Debian and Python packages, parts built from Go modules
    #[arg(long)]
    install: bool,

    /// Return when everything runs, and leave it running; `portcullis down` ends it
    #[arg(long)]
    detach: bool,

    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let path = Directory::choose(args.dir);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    if args.detach {
        return runtime.block_on(detach(&path));
    }
    let loaded = args.config.sources().without_default().load();
    let loaded = loaded.map_err(|unusable| Failure::from(unusable).state("Nothing was started."))?;
    output::warnings(&loaded.warnings);
    runtime.block_on(foreground(path, args.install, loaded))
}

/// Starts everything and waits for a signal, or for a program of the sandbox to end by itself.
async fn foreground(path: PathBuf, install: bool, loaded: Loaded) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let directory = Directory::claim(&path)?;
    let mut starting = spawn_blocking(move || start(directory, install, &loaded));
    let mut interrupted = false;
    let started = tokio::select! {
        started = &mut starting => started,
        _ = signals.next() => {
            interrupted = true;
            portcullis_parts::interrupt();
            starting.await
        }
    };
    let (mut sandbox, directory) = started.context("the start broke down")??;
    if !interrupted {
        output::print(&welcome(directory.path(), "Ctrl-C stops it all and leaves nothing behind."))?;
        if let Some(failure) = first_end(&mut sandbox, &mut signals).await {
            sandbox.stop();
            directory.keep_logs(&failure);
            return Err(failure);
        }
    }
    sandbox.stop();
    directory.remove();
    output::print("\nStopped. Nothing is left.\n")?;
    Ok(())
}

/// Installs if asked, looks whether everything is there, and starts it.
fn start(directory: Directory, install: bool, loaded: &Loaded) -> Result<(Sandbox, Directory), Failure> {
    let progress = Progress::new();
    let prepared = || {
        if install {
            let installed = parts::install_missing(|part| part.sandbox != Use::None, &progress);
            installed.map_err(|failure| failure.note("Nothing was started."))?;
        }
        sandbox::check(loaded)
    };
    if let Err(failure) = prepared() {
        directory.remove();
        return Err(failure);
    }
    match Sandbox::start(&directory, loaded, &progress) {
        Ok(sandbox) => Ok((sandbox, directory)),
        Err(failure) => {
            let failure = failure.note("What had started was stopped again.");
            // Who interrupted it knows why it ended.
            if portcullis_parts::interrupted() {
                directory.remove();
            } else {
                directory.keep_logs(&failure);
            }
            Err(failure)
        }
    }
}

/// Waits for a signal, which is no failure, or for a program of the sandbox to end by itself.
async fn first_end(sandbox: &mut Sandbox, signals: &mut Signals) -> Option<Failure> {
    let mut looks = interval(Duration::from_millis(500));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = signals.next() => return None,
            _ = looks.tick() => if let Some(failure) = sandbox.ended() {
                return Some(failure);
            },
        }
    }
}

/// Starts another process that does the work in the background, and shows what it says until everything runs.
async fn detach(path: &Path) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let log = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut said = log.reopen().context("cannot read a temporary file")?;
    let written =
        OpenOptions::new().append(true).open(log.path()).context("cannot write a temporary file")?;
    let own = std::env::current_exe().context("cannot find the program's own path")?;
    let mut child = Command::new("setsid")
        .arg(own)
        .args(std::env::args_os().skip(1).filter(|arg| arg != "--detach"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(written)
        .spawn()
        .context("cannot start setsid")?;
    loop {
        let ended = child.try_wait().context("cannot watch the process in the background")?;
        let ready = sandbox::is_up(path, child.id());
        let mut text = Vec::new();
        let _ = said.read_to_end(&mut text);
        output::stderr(&String::from_utf8_lossy(&text));
        if let Some(status) = ended {
            return Err(Failure::said(status));
        }
        if ready {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let stop =
                format!("`portcullis down --dir {}` stops it all and leaves nothing behind.", quoted(&path));
            return Ok(output::print(&welcome(&path, &stop))?);
        }
        tokio::select! {
            () = sleep(Duration::from_millis(50)) => {}
            // It ends in order, and the next look says so.
            _ = signals.next() => terminate(&child),
        }
    }
}

fn terminate(child: &Child) {
    let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
}

fn welcome(directory: &Path, stop: &str) -> String {
    let shown = quoted(directory);
    // Its clients are welcome, not needed.
    let networking = match catalogue::find("openstack") {
        Ok(_) => "openstack security group list",
        Err(_) => {
            "curl $PORTCULLIS_NETWORKING_URL   (`portcullis parts --install` brings the openstack client)"
        }
    };
    format!(
        "\nEverything runs. Try, in another terminal:\n  source {shown}/env\n  {networking}\n  \
         kubectl get services -A\n  portcullis get\n  ovn-nbctl show\nLogs are in {}/logs.\n{stop}\n",
        directory.display()
    )
}

//! `portcullis up`

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::parts;
use crate::cli::ConfigArgs;
use crate::config::Loaded;
use crate::exit::Failure;
use crate::output;
use crate::progress::Progress;
use crate::sandbox::{self, Directory, Sandbox, UP_LOG};
use crate::signals::Signals;

/// Start everything on this machine: a local OVN, Kubernetes API and AWS simulator, and Portcullis
///
/// It runs until Ctrl-C, which leaves nothing behind. Nothing outside this machine is touched: of the configuration
/// only a file named with --config counts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for everything it makes [default: portcullis in the user's state directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Install first what is missing: Debian packages, parts built from Go modules
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
    if args.detach {
        return detach(&path);
    }
    let loaded = args.config.sources().without_default().load();
    let loaded = loaded.map_err(|unusable| Failure::from(unusable).state("Nothing was started."))?;
    output::warnings(&loaded.warnings);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let install = args.install;
    runtime.block_on(async move {
        let mut signals = Signals::new()?;
        let mut starting = spawn_blocking(move || start(&path, install, loaded));
        let started = tokio::select! {
            started = &mut starting => started,
            _ = signals.next() => {
                portcullis_parts::interrupt();
                starting.await
            }
        };
        let (sandbox, directory) = started.context("the start broke down")??;
        output::print(&welcome(directory.path(), "Ctrl-C stops it all and leaves nothing behind."))?;
        let outcome = watch(sandbox, &mut signals).await;
        if outcome.is_err() {
            directory.keep_logs();
            return outcome;
        }
        directory.remove();
        Ok(output::print("\nStopped. Nothing is left.\n")?)
    })
}

/// Installs if asked, looks whether everything is there, and starts it.
fn start(path: &Path, install: bool, loaded: Loaded) -> Result<(Sandbox, Directory), Failure> {
    let progress = Progress::new();
    if install {
        parts::install_missing(|part| part.for_sandbox, &progress)?;
    }
    sandbox::check()?;
    let directory = Directory::claim(path)?;
    match Sandbox::start(&directory, loaded, &progress) {
        Ok(sandbox) => Ok((sandbox, directory)),
        Err(failure) => {
            directory.keep_logs();
            Err(failure.note("What had started was stopped again."))
        }
    }
}

/// Starts another process that does the work in the background, and shows what it says until everything runs.
fn detach(path: &Path) -> Result<(), Failure> {
    let directory = Directory::claim(path)?;
    let path = directory.path().to_owned();
    let log = directory.logs().join(UP_LOG);
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let own = std::env::current_exe().context("cannot find the program's own path")?;
    // The other process claims it.
    drop(directory);
    let mut child = Command::new("setsid")
        .arg(own)
        .args(std::env::args_os().skip(1).filter(|arg| arg != "--detach"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .spawn()
        .context("cannot start setsid")?;
    let mut said = File::open(&log).with_context(|| format!("cannot read {}", log.display()))?;
    loop {
        let ended = child.try_wait().context("cannot watch the process in the background")?;
        let ready = path.join("env").exists();
        let mut text = String::new();
        let _ = said.read_to_string(&mut text);
        output::stderr(&text);
        if let Some(status) = ended {
            return Err(Failure::said(status));
        }
        if ready {
            let stop =
                format!("`portcullis down --dir {}` stops it all and leaves nothing behind.", path.display());
            return Ok(output::print(&welcome(&path, &stop))?);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits for a signal, or for a program of the sandbox to end by itself, and ends everything.
async fn watch(mut sandbox: Sandbox, signals: &mut Signals) -> Result<(), Failure> {
    let mut looks = interval(Duration::from_millis(500));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = signals.next() => break,
            _ = looks.tick() => if let Some(failure) = sandbox.ended() {
                sandbox.stop();
                return Err(failure);
            },
        }
    }
    sandbox.stop();
    Ok(())
}

fn welcome(directory: &Path, stop: &str) -> String {
    let directory = directory.display();
    format!(
        "\nEverything runs. Try, in another terminal:\n  source {directory}/env\n  kubectl get services -A\n  ovn-nbctl show\n\
         Logs are in {directory}/logs.\n{stop}\n"
    )
}

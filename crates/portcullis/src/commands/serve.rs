//! `portcullis serve`

use std::io::{self, ErrorKind};
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::version::VERSION;
use crate::cli::ConfigArgs;
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::signals::Signals;
use crate::telemetry::{self, Metrics, Readiness};

/// How long requests in flight may take to finish after a signal. Well below the 30 seconds that Kubernetes
/// waits, and the 90 of systemd, before they kill.
const GRACE: Duration = Duration::from_secs(5);

/// Run the roles that the configuration enables, until a signal ends them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let loaded = args.config.sources().load();
    let loaded = loaded.map_err(|unusable| Failure::from(unusable).state("Nothing was started."))?;
    logging::start(&loaded.config.log)?;
    // In the log rather than on the terminal: whoever reads JSON from standard error gets nothing else.
    for warning in &loaded.warnings {
        warn!(at = %warning.at, key = warning.path, "{}", warning.text());
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(&loaded))
}

async fn serve(loaded: &Loaded) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let listen = loaded.config.telemetry.listen.0;
    let listener = TcpListener::bind(listen).await.map_err(|error| cannot_listen(loaded, &error))?;
    let listen = listener.local_addr().context("cannot read back the address listened on")?;

    let readiness = Readiness::default();
    let check = readiness.register("serve");
    let router = telemetry::router(readiness.clone(), Metrics::new(VERSION, readiness));
    let (stop, stopped) = oneshot::channel::<()>();
    let mut server = tokio::spawn(telemetry::serve(listener, router, async {
        // Either way, sent or dropped, it means stop.
        let _ = stopped.await;
    }));
    check.ready();
    info!(version = VERSION, mode = %loaded.config.mode, config = files(loaded), listen = %listen, "serving");

    let signal = tokio::select! {
        signal = signals.next() => signal,
        ended = &mut server => {
            let result = ended.context("the telemetry server broke down")?;
            result.context("the telemetry server failed")?;
            return Err(Failure::new(Exit::Failed, "the telemetry server ended by itself"));
        }
    };
    check.not_ready("shutting down");
    info!(signal, "stopping; a second signal ends at once");
    drop(stop);
    tokio::select! {
        ended = &mut server => ended.context("the telemetry server broke down")?.context("the telemetry server failed")?,
        () = tokio::time::sleep(GRACE) => {
            warn!(seconds = GRACE.as_secs(), "requests were still open and have been cut off");
        }
        signal = signals.next() => {
            let error = format!("ended by a second signal, {signal}, with requests still open");
            return Err(Failure::new(Exit::Failed, error));
        }
    }
    info!("stopped");
    Ok(())
}

fn files(loaded: &Loaded) -> String {
    if loaded.files.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> = loaded.files.iter().map(|f| f.display().to_string()).collect();
    names.join(", ")
}

fn cannot_listen(loaded: &Loaded, error: &io::Error) -> Failure {
    let listen = loaded.config.telemetry.listen.0;
    let origin = match loaded.origin(&["telemetry", "listen"]) {
        Some(at) => format!("telemetry.listen, {at}"),
        None => "telemetry.listen, the default".to_owned(),
    };
    let other = "or choose another address: --set telemetry.listen=127.0.0.1:0 takes any free port.";
    let (problem, advice) = match error.kind() {
        ErrorKind::AddrInUse => (
            "the port is in use by another program".to_owned(),
            format!("Stop that program (`ss -ltnp 'sport = :{}'` names it), {other}", listen.port()),
        ),
        ErrorKind::AddrNotAvailable => (
            "this machine does not have that address".to_owned(),
            format!("Use one of those that `ip address` shows, {other}"),
        ),
        ErrorKind::PermissionDenied => (
            "this user may not use that port".to_owned(),
            format!("Ports below 1024 need the capability CAP_NET_BIND_SERVICE: grant it, {other}"),
        ),
        _ => (error.to_string(), format!("Mend that, {other}")),
    };
    Failure::new(Exit::Lacking, format!("cannot listen on {listen} ({origin}): {problem}"))
        .note("Nothing was started.")
        .note(advice)
}

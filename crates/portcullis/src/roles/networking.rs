//! The Networking API and the Identity API.

use std::sync::Arc;
use std::time::Duration;

use portcullis_networking::identity::{Identity, Local};
use portcullis_networking::{Networking, Settings};
use portcullis_ovn::{Options, Store, StoreSettings};
use portcullis_ovsdb::Tls;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use crate::config::{Config, Loaded, Mode, RemoteAddress};
use crate::exit::{Exit, Failure};
use crate::listen::bind;
use crate::telemetry::{Check, Readiness};

/// Between two looks at whether the database can be reached.
const LOOK: Duration = Duration::from_millis(500);

/// Starts it; each task ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let config = &loaded.config;
    let check = readiness.register("networking");
    let networking = bind(loaded, &["networking", "listen"], config.networking.listen).await?;
    let identity = bind(loaded, &["identity", "listen"], config.identity.listen).await?;
    let store = Store::start(store_settings(config)?);
    let local = Local::new(store.clone(), config.identity.local.clone())
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()).note("Nothing was started."))?;
    let port = networking.local_addr().map(|address| address.port()).ok();
    let api = Networking::new(store.clone(), settings(config), Arc::new(local.clone()), false).router();
    let who = Identity::new(local, false, port).router();
    info!(listen = %config.networking.listen, identity = %config.identity.listen, "serving the Networking API");
    tasks.spawn(serve(networking, api, stop.clone()));
    tasks.spawn(serve(identity, who, stop.clone()));
    tasks.spawn(watch_store(store, check, stop.clone()));
    Ok(())
}

fn store_settings(config: &Config) -> Result<StoreSettings, Failure> {
    let northbound = &config.networking.northbound;
    let tls = match (&northbound.authority, &northbound.certificate, &northbound.key) {
        (Some(authority), Some(certificate), Some(key)) => {
            Some(Tls { authority: authority.clone(), certificate: certificate.clone(), key: key.clone() })
        }
        (None, None, None) => None,
        _ => {
            let error = "networking.northbound: authority, certificate and key belong together: give all three, or none";
            return Err(Failure::new(Exit::Usage, error).note("Nothing was started."));
        }
    };
    Ok(StoreSettings {
        remotes: northbound.remotes.iter().filter_map(RemoteAddress::remote).collect(),
        tls,
        durable: northbound.durable,
        coexist: northbound.coexist,
        read_only: config.mode == Mode::Observe,
        options: Options {
            gateway_chassis: config.networking.gateway_chassis.clone(),
            dhcp_lease: config.networking.dhcp_lease,
            dns_domain: config.networking.dns_domain.clone(),
        },
    })
}

fn settings(config: &Config) -> Settings {
    let networking = &config.networking;
    Settings {
        port_security: networking.port_security,
        mtu: networking.mtu,
        physical_mtu: networking.physical_mtu,
        quotas: networking.quotas.clone(),
        ..Settings::default()
    }
}

async fn serve(
    listener: TcpListener,
    router: axum::Router,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let stopped = async move {
        // Sent or dropped, it means stop.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router)
        .with_graceful_shutdown(stopped)
        .await
        .map_err(|error| Failure::new(Exit::Failed, format!("the Networking API's server failed: {error}")))
}

/// Says whether the database can be used, and ends everything if it must not be.
async fn watch_store(store: Store, check: Check, mut stop: watch::Receiver<bool>) -> Result<(), Failure> {
    check.not_ready("no northbound database yet");
    tokio::select! {
        opened = store.opened() => opened.map_err(|error| Failure::new(Exit::Lacking, error.to_string()))?,
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    }
    loop {
        match store.state() {
            Ok(()) => check.ready(),
            Err(why) => check.not_ready(format!("no northbound database: {why}")),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
}

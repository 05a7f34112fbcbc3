//! The Networking API, and the Identity API beside it.

mod metrics;
mod settings;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use portcullis_networking::identity::{Identity, Keystone, Local, join};
use portcullis_networking::listen::{ListenError, Listener};
use portcullis_networking::{Authenticate, Networking};
use portcullis_ovn::Store;
use portcullis_ovn::objects::Router as LogicalRouter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use self::metrics::{Requests, Stored};
use self::settings::{Door, Doors};
pub(crate) use self::settings::{balancers as balancer_settings, store as store_settings};
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::listen::cannot_listen;
use crate::telemetry::{Check, Metrics, Readiness};

/// Between two looks at whether the database can be reached.
const LOOK: Duration = Duration::from_millis(500);

/// Starts it; each task ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    metrics: &mut Metrics,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let config = &loaded.config;
    let check = readiness.register("networking");
    let doors = Doors::new(loaded)?;
    let (store, api) = (settings::store(loaded, &[])?, settings::api(loaded)?);
    for remote in store.remotes.iter().filter(|remote| settings::is_exposed(remote)) {
        let key = "networking.northbound.remotes";
        warn!(%remote, key, "without TLS, password hashes and the key of tokens can be read on the way to the database");
    }
    warn_of_open_files(loaded);
    let most = files::connections(if doors.identity.is_some() { 2 } else { 1 });
    let networking = listen(loaded, &doors.networking).await?.with_most(most);
    let identity = match &doors.identity {
        Some(door) => Some(listen(loaded, door).await?.with_most(most)),
        None => None,
    };
    let store = Store::start(store);
    let who = who(loaded, &store)?;
    let requests = Requests::new(metrics.registry());
    metrics.registry().register_collector(Box::new(Stored(store.clone())));
    let serve = |listener: Listener, router: Router, tasks: &mut JoinSet<_>| {
        let mut stop = stop.clone();
        // Sent or dropped, it means stop.
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        let router = requests.clone().of(router);
        tasks.spawn(async move {
            listener.serve(router, stopped).await;
            Ok(())
        });
    };

    info!(listen = %networking.address(), tls = networking.is_secure(), mode = %config.mode, "the Networking API is here");
    let api = Networking::new(store.clone(), api, who.authority(), networking.is_secure());
    let mut api = api.router();
    match who {
        Who::Keystone(_) => {}
        Who::Local(local) => {
            if config.identity.local.users.is_empty() {
                warn!("identity.local.users is empty: nobody can log in but those whom the API has created");
            }
            let users = config.identity.local.users.len();
            if let Some(identity) = identity {
                info!(listen = %identity.address(), tls = identity.is_secure(), users, "the Identity API is here");
                let port = networking.address().port();
                let router = Identity::new(local, identity.is_secure(), Some(port)).router();
                serve(identity, router, tasks);
            } else {
                info!(users, "the Identity API is on the same port");
                api = join(api, &Identity::new(local, networking.is_secure(), None));
            }
        }
    }
    serve(networking, api, tasks);
    let gateways = !loaded.config.networking.gateway_chassis.is_empty();
    tasks.spawn(watch_store(store, gateways, check, stop.clone()));
    Ok(())
}

/// Who knows whose a token is.
enum Who {
    Local(Local),
    Keystone(Keystone),
}

impl Who {
    fn authority(&self) -> Arc<dyn Authenticate> {
        match self {
            Who::Local(local) => Arc::new(local.clone()),
            Who::Keystone(keystone) => Arc::new(keystone.clone()),
        }
    }
}

fn who(loaded: &Loaded, store: &Store) -> Result<Who, Failure> {
    let identity = &loaded.config.identity;
    if let Some(keystone) = &identity.keystone {
        let known = Keystone::new(keystone.clone());
        let known = known.map_err(|error| settings::wrong(loaded, "identity.keystone", &error))?;
        info!(url = keystone.url, user = keystone.user, "tokens are checked by Keystone");
        if known.is_exposed() {
            let key = "identity.keystone.url";
            warn!(
                url = keystone.url,
                key, "without TLS, our password and all tokens can be read on the way to Keystone"
            );
        }
        for keys in [["identity", "listen"], ["identity", "tls"], ["identity", "local"]] {
            if loaded.origin(&keys).is_some() {
                let key = keys.join(".");
                warn!(
                    key,
                    "it is not used: with identity.keystone there are no users and no Identity API of our own"
                );
            }
        }
        return Ok(Who::Keystone(known));
    }
    let local = Local::new(store.clone(), identity.local.clone());
    local.map(Who::Local).map_err(|error| settings::wrong(loaded, "identity.local", &error))
}

/// Says which of the configured secrets are open to everybody.
fn warn_of_open_files(loaded: &Loaded) {
    let (networking, identity) = (&loaded.config.networking, &loaded.config.identity);
    let password = identity.keystone.as_ref().and_then(|keystone| keystone.password_file.as_ref());
    for (key, file) in [
        ("networking.tls.key", &networking.tls.key),
        ("networking.northbound.key", &networking.northbound.key),
        ("identity.tls.key", &identity.tls.key),
        ("identity.local.tokenKeyFile", &identity.local.token_key_file),
        ("identity.keystone.passwordFile", &password.cloned()),
    ] {
        if let Some(file) = file {
            files::warn_if_open(key, file);
        }
    }
}

async fn listen(loaded: &Loaded, door: &Door) -> Result<Listener, Failure> {
    let section = door.section;
    let listener = Listener::bind(door.listen, door.tls.clone()).await.map_err(|error| match error {
        ListenError::Address { address, source } => {
            cannot_listen(loaded, &[section, "listen"], address, &source)
        }
        ListenError::Certificate(what) => settings::mistake(loaded, &format!("{section}.tls"), what),
    })?;
    if !listener.is_secure() && !is_private(listener.address()) {
        let key = format!("{section}.tls");
        warn!(listen = %listener.address(), key, "without TLS, passwords and tokens can be read on the wire");
    }
    Ok(listener)
}

fn is_private(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Says whether the database can be used, and ends everything if it must not be.
async fn watch_store(
    store: Store,
    gateways: bool,
    check: Check,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut opened = Box::pin(store.opened());
    loop {
        match (store.is_open(), store.state()) {
            (true, Ok(())) => check.ready(),
            (true, Err(why)) => {
                check
                    .not_ready(format!("reads are answered, changes are not: no northbound database: {why}"));
            }
            (false, Ok(())) => check.not_ready("the northbound database is being looked at"),
            (false, Err(why)) => check.not_ready(format!("no northbound database: {why}")),
        }
        tokio::select! {
            result = &mut opened, if !store.is_open() => {
                result.map_err(|error| Failure::new(Exit::Lacking, error.to_string()))?;
                let ways_out = store.model().all::<LogicalRouter>(None).filter(|router| router.gateway.is_some()).count();
                if !gateways && ways_out > 0 {
                    warn!(
                        routers = ways_out,
                        "routers have a gateway and networking.gatewayChassis names no chassis: no traffic leaves by them"
                    );
                }
            }
            () = tokio::time::sleep(LOOK) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
}

//! One of several replicas acts: the one that holds the Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// A Lease to be held.
#[derive(Clone)]
pub struct Lease {
    api: Api<Object>,
    name: String,
    namespace: String,
    holder: String,
    /// How long it is held without being renewed.
    pub duration: Duration,
    /// How often it is renewed, and asked for by those who wait.
    pub retry: Duration,
}

/// Who holds the Lease may act, until this says otherwise.
#[derive(Debug)]
pub struct Leadership(tokio::task::JoinHandle<LeaseError>);

/// Why leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// Somebody else holds it.
    #[error("the lease {0} is held by {1} now")]
    Taken(String, String),
    /// It could not be renewed in time.
    #[error("the lease {0} could not be renewed for too long: {1}")]
    Lost(String, String),
}

/// What another one holds, as far as it was seen: the record, and when it was seen to change.
#[derive(Debug, Default)]
struct Seen {
    record: Option<(Option<String>, Option<MicroTime>, Option<i32>)>,
    since: Option<Instant>,
}

impl Lease {
    /// A Lease, for a holder of that name.
    pub fn new(client: Client, namespace: &str, name: &str, holder: &str) -> Self {
        Lease {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            retry: Duration::from_secs(2),
        }
    }

    /// Waits until it is held, and renews it from then on.
    pub async fn hold(self) -> Leadership {
        let mut seen = Seen::default();
        let mut told = String::new();
        loop {
            match self.take(&mut seen).await {
                Ok(None) => break,
                Ok(Some(other)) if other != told => {
                    info!(lease = self.name, holder = other, "another one acts; waiting");
                    told = other;
                }
                Ok(Some(_)) => {}
                Err(error) => warn!(lease = self.name, %error, "the lease cannot be had"),
            }
            sleep(self.retry).await;
        }
        info!(lease = self.name, holder = self.holder, "acting now");
        Leadership(tokio::spawn(self.keep()))
    }

    /// Takes or renews it; who else holds it, if somebody does.
    async fn take(&self, seen: &mut Seen) -> Result<Option<String>, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.duration.as_secs()).unwrap_or(15);
        let Some(mut found) = self.api.get_opt(&self.name).await? else {
            let spec = LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(seconds),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            };
            let metadata = ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            };
            self.api.create(&PostParams::default(), &Object { metadata, spec: Some(spec) }).await?;
            return Ok(None);
        };
        let spec = found.spec.get_or_insert_default();
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        if let Some(other) = holder.filter(|holder| *holder != self.holder) {
            // Clocks differ between machines: what counts is how long nothing changed, by this one's.
            let record = (spec.holder_identity.clone(), spec.renew_time.clone(), spec.lease_transitions);
            if seen.record.as_ref() != Some(&record) {
                *seen = Seen { record: Some(record), since: Some(Instant::now()) };
            }
            let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or(seconds)).unwrap_or(15);
            if seen.since.is_none_or(|since| since.elapsed() < Duration::from_secs(theirs)) {
                return Ok(Some(other));
            }
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(seconds);
        spec.renew_time = Some(now);
        // Refused if somebody else wrote meanwhile.
        self.api.replace(&self.name, &PostParams::default(), &found).await.map(|_| None)
    }

    /// Renews it until that fails for too long.
    async fn keep(self) -> LeaseError {
        let mut seen = Seen::default();
        let mut renewed = Instant::now();
        let mut last = String::new();
        // It is given up a while before others may take it.
        let patience = self.duration * 2 / 3;
        loop {
            sleep(self.retry).await;
            match tokio::time::timeout(patience.saturating_sub(renewed.elapsed()), self.take(&mut seen)).await
            {
                Ok(Ok(None)) => renewed = Instant::now(),
                Ok(Ok(Some(other))) => return LeaseError::Taken(self.name, other),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => return LeaseError::Lost(self.name, last),
            }
            if renewed.elapsed() >= patience {
                return LeaseError::Lost(self.name, last);
            }
        }
    }

    /// Gives it back, so that the next one need not wait.
    pub async fn release(&self) {
        let Ok(Some(mut found)) = self.api.get_opt(&self.name).await else { return };
        let spec = found.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() == Some(&self.holder) {
            spec.holder_identity = None;
            // Whoever waits sees it in time, too.
            let _ = self.api.replace(&self.name, &PostParams::default(), &found).await;
        }
    }
}

impl Leadership {
    /// Waits until it is over, and says why.
    pub async fn lost(&mut self) -> LeaseError {
        match (&mut self.0).await {
            Ok(error) => error,
            Err(error) => LeaseError::Lost("of this process".to_owned(), error.to_string()),
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

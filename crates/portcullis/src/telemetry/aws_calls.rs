//! How often AWS was called, by all who call it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_aws::Client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// The clients whose calls are counted. There is one metric for all roles: of two by one name nobody could read either.
#[derive(Clone, Debug, Default)]
pub(crate) struct AwsCalls(Arc<Mutex<Vec<Client>>>);

impl AwsCalls {
    /// Counts the calls of one more.
    pub(crate) fn add(&self, client: &Client) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
    }

    fn counts(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let mut counts = BTreeMap::new();
        for client in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            for (call, count) in client.calls() {
                *counts.entry(call).or_default() += count;
            }
        }
        counts
    }
}

impl Collector for AwsCalls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Calls of AWS, by action and by how they ended";
        let mut family =
            encoder.encode_descriptor("portcullis_aws_calls", help, None, MetricType::Counter)?;
        for ((action, end), count) in self.counts() {
            ConstCounter::new(count).encode(family.encode_family(&[("action", action), ("end", end)])?)?;
        }
        Ok(())
    }
}

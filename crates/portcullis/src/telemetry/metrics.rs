//! The metrics, in the `OpenMetrics` text format.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::aws_calls::AwsCalls;
use super::readiness::{Readiness, State};

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    aws_calls: Option<AwsCalls>,
}

impl Metrics {
    pub(crate) fn new(version: &'static str, readiness: Readiness) -> Self {
        let mut registry = Registry::default();
        let build = [("version", version), ("os", std::env::consts::OS), ("arch", std::env::consts::ARCH)];
        registry.register("portcullis_build", "What is running", Info::new(build.to_vec()));
        // The start, not the time since: it does not change between two scrapes.
        let start = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        registry.register_with_unit(
            "process_start_time",
            "When this process started, since the epoch",
            Unit::Seconds,
            ConstGauge::new(start),
        );
        registry.register_collector(Box::new(readiness));
        Self { registry, aws_calls: None }
    }

    /// Where roles add their own.
    pub(crate) fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Where roles that call AWS say by which clients: one metric has them all.
    pub(crate) fn aws_calls(&mut self) -> AwsCalls {
        let registry = &mut self.registry;
        let register = || {
            let calls = AwsCalls::default();
            registry.register_collector(Box::new(calls.clone()));
            calls
        };
        self.aws_calls.get_or_insert_with(register).clone()
    }

    pub(crate) fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

impl Collector for Readiness {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether a check of /readyz is ready (1) or not (0)";
        let mut family = encoder.encode_descriptor("portcullis_ready", help, None, MetricType::Gauge)?;
        for (name, state) in self.states() {
            let gauge = ConstGauge::new(i64::from(state == State::Ready));
            gauge.encode(family.encode_family(&[("check", name)])?)?;
        }
        Ok(())
    }
}

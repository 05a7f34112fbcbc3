//! What plans are made against: AWS, or a record of it.

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use portcullis_aws::{Provider, Record, RecordError, Recorded};
use portcullis_core::{PlanView, Problem, Want};
use tokio::time::Instant;

use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::roles::services::{self, Nodes};

/// What plans are made against.
pub(super) enum Planner {
    /// AWS, of which all is looked at once since then, for all plans.
    Live(Provider, Instant),
    /// What AWS had at one time.
    Recorded(Box<Recorded>),
}

impl Planner {
    /// AWS as it is now.
    pub(super) async fn live(loaded: &Loaded, nodes: &[Node]) -> Result<Self, Failure> {
        let provider = services::provider(loaded, Nodes::Given(nodes)).await?;
        Ok(Planner::Live(provider, Instant::now()))
    }

    /// AWS as it is now, which is written into a file first: plans are made against what is in it.
    pub(super) async fn recording(loaded: &Loaded, nodes: &[Node], file: &Path) -> Result<Self, Failure> {
        let provider = services::provider(loaded, Nodes::Given(nodes)).await?;
        let record = Record::take(&provider, services::machines(nodes)).await;
        let record =
            record.map_err(|error| Failure::new(Exit::Failed, format!("AWS cannot be asked. {error}")))?;
        save(&record, file)?;
        let recorded = Recorded::new(record, provider.settings().clone());
        Ok(Planner::Recorded(Box::new(recorded.context("cannot plan against the record")?)))
    }

    /// AWS as it was when a file was written.
    pub(super) fn recorded(loaded: &Loaded, file: &Path) -> Result<Self, Failure> {
        let wrong = |what: String, remedy: &str| {
            Failure::new(Exit::Usage, what).state("Nothing was planned.").note(remedy)
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            wrong(format!("cannot read the record {}: {error}", file.display()), "Look at --from.")
        })?;
        let unusable = |error: RecordError| {
            let remedy = match &error {
                RecordError::Elsewhere { .. } => {
                    "Use a record of what is configured, or configure what is recorded."
                }
                _ => "Take a new record with `portcullis plan --record`.",
            };
            wrong(format!("the record {} cannot be used: {error}", file.display()), remedy)
        };
        let record = Record::read(&text).map_err(unusable)?;
        let settings = services::settings_for(loaded, &record)?;
        let recorded = Recorded::new(record, settings).map_err(unusable)?;
        Ok(Planner::Recorded(Box::new(recorded)))
    }

    pub(super) fn cluster(&self) -> &str {
        match self {
            Planner::Live(provider, _) => &provider.settings().cluster,
            Planner::Recorded(recorded) => &recorded.settings().cluster,
        }
    }

    pub(super) async fn plan(&self, want: &Want) -> Result<PlanView, Problem> {
        match self {
            Planner::Live(provider, since) => provider.plan(want, *since).await,
            Planner::Recorded(recorded) => recorded.plan(want),
        }
    }
}

/// Writes a record so that nobody else can read it, since it shows the network.
fn save(record: &Record, file: &Path) -> Result<(), Failure> {
    let cannot = || format!("cannot write the record {}", file.display());
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    let mut opened = opened.with_context(cannot)?;
    // One that was there before has the permissions that it had.
    if opened.metadata().with_context(cannot)?.is_file() {
        opened.set_permissions(Permissions::from_mode(0o600)).with_context(cannot)?;
    }
    Ok(opened.write_all(record.write().as_bytes()).with_context(cannot)?)
}

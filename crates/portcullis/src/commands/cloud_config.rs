//! `portcullis cloud-config`

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use portcullis_aws::CloudConfig;

use crate::exit::{Exit, Failure};
use crate::output;

/// Print a cloud-config of AWS's controllers with what OpenShift lays down
///
/// Security groups of network load balancers become managed, and one health check serves for all nodes unless the
/// cloud-config says otherwise. Keys that nobody knows are left out, with a warning.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cloud-config; `-` reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// Only say whether a controller can work by it as it is
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let name = args.file.display();
    let text = if args.file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?
    };
    let wrong = |error| Failure::new(Exit::Usage, format!("{name}: {error}"));
    let (config, unknown) = CloudConfig::parse(&text).map_err(wrong)?;
    for finding in unknown {
        output::warning(&format!("{name}: {finding}"));
    }
    if args.check {
        return config.check().map_err(wrong);
    }
    Ok(output::print(&config.with_openshift_defaults().to_string())?)
}

//! The command line.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::commands::{
    adopt, adopt_ovirt, check, clear_filters, cloud_config, completions, crds, down, get, hash_password,
    iam_policy, manifests, network_policy, parts, plan, release, serve, show_config, up, version,
};
use crate::config::{Setting, Sources};
use crate::exit::{Exit, Failure};
use crate::output::Color;

/// Decides who may reach what, through which load balancer, and makes AWS, OVN, HAProxy and the host agree.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, after_help = Exit::list())]
pub(crate) struct Cli {
    /// When to use colours
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Color,

    #[command(subcommand)]
    command: Command,
}

const CONFIG_VARIABLE: &str = "PORTCULLIS_CONFIG";

/// For the commands that read the configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: /etc/portcullis/config.yaml, if it exists]
    ///
    /// Files named *.yaml in the directory of the same name ending in .d (/etc/portcullis/config.d/), though not in
    /// directories below it, are merged over it in lexical order: maps are merged, lists are replaced, and a null
    /// brings back the default.
    #[arg(long, value_name = "FILE", env = CONFIG_VARIABLE, hide_env_values = true, value_parser = config_file())]
    config: Option<PathBuf>,

    /// Set one configuration key, over what the files say; may be repeated
    ///
    /// Examples: --set mode=observe, --set telemetry.listen=127.0.0.1:9695
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Setting>,
}

impl ConfigArgs {
    pub(crate) fn sources(self) -> Sources {
        Sources::new(self.config.filter(|file| !file.as_os_str().is_empty()), self.set)
    }
}

/// Takes an empty variable, which counts as unset, but no empty flag: that is `--config "$UNSET"`.
fn config_file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|name| {
        if name.is_empty() && std::env::var_os(CONFIG_VARIABLE).is_none_or(|value| !value.is_empty()) {
            return Err("the name of a file is missing");
        }
        Ok(PathBuf::from(name))
    })
}

/// One module in `commands` each.
#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Down(down::Args),
    Serve(serve::Args),
    ShowConfig(show_config::Args),
    HashPassword(hash_password::Args),
    AdoptOvirt(adopt_ovirt::Args),
    Plan(plan::Args),
    Adopt(adopt::Args),
    Release(release::Args),
    Get(get::Args),
    Check(check::Args),
    CloudConfig(cloud_config::Args),
    IamPolicy(iam_policy::Args),
    Manifests(manifests::Args),
    Crds(crds::Args),
    #[command(name = "networkpolicy")]
    NetworkPolicy(network_policy::Args),
    ClearFilters(clear_filters::Args),
    Parts(parts::Args),
    Completions(completions::Args),
    Version(version::Args),
}

/// Reads the command line and does what it says. Wrong usage ends the program here, with clap's own words.
pub(crate) fn run() -> Result<(), Failure> {
    let Cli { color, command } = Cli::parse();
    color.apply();
    match command {
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(args),
        Command::Serve(args) => serve::run(args),
        Command::ShowConfig(args) => show_config::run(args),
        Command::HashPassword(args) => hash_password::run(&args),
        Command::AdoptOvirt(args) => adopt_ovirt::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Adopt(args) => adopt::run(args),
        Command::Release(args) => release::run(args),
        Command::Get(args) => get::run(args),
        Command::Check(args) => check::run(args),
        Command::CloudConfig(args) => cloud_config::run(&args),
        Command::IamPolicy(args) => iam_policy::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::NetworkPolicy(args) => network_policy::run(&args),
        Command::ClearFilters(args) => clear_filters::run(&args),
        Command::Parts(args) => parts::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Version(args) => version::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

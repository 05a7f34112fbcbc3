//! One module per subcommand: its arguments and a `run`. `cli::Command` lists them.

pub(crate) mod adopt;
pub(crate) mod adopt_ovirt;
pub(crate) mod check;
pub(crate) mod clear_filters;
pub(crate) mod cloud_config;
pub(crate) mod completions;
pub(crate) mod crds;
pub(crate) mod down;
pub(crate) mod get;
pub(crate) mod hash_password;
pub(crate) mod iam_policy;
pub(crate) mod manifests;
pub(crate) mod network_policy;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod release;
pub(crate) mod serve;
pub(crate) mod show_config;
pub(crate) mod up;
pub(crate) mod version;

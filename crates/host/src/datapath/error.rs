use std::io;

use thiserror::Error;

/// Why the datapath is not as it should be. The kernel is as it was before the step that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// Only some may change packet filters.
    #[error(
        "this process may not change the packet filters of this machine: run it as root, or with the capability CAP_NET_ADMIN"
    )]
    NotPermitted,
    /// The rules were refused.
    #[error(
        "the kernel did not take the rules, and the packet filters are as they were: it has to have nf_tables, nf_nat, nf_conntrack and what nft calls fib, masquerade and reject, and to be Linux 5.10 or newer to filter where packets arrive"
    )]
    Rules(#[source] io::Error),
    /// They are more than fits into a message.
    #[error(
        "all rules and elements of this node are more than this process may send at once, and the packet filters are as they were: raise net.core.wmem_max (16777216 is enough for ten thousand Services), or run `portcullis clear-filters` where a moment without filters does no harm"
    )]
    TooMany,
    /// The kernel refused elements, or did not tell what it has.
    #[error(
        "the kernel did not {what}; what it took before that is in force, and all is read anew before the next change"
    )]
    Kernel {
        /// What it was to do.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// All is as it should be, but for what was already under way.
    #[error(
        "the packet filters are as wanted, but flows to endpoints that are gone were not ended, which is tried again with the next change: load the module nf_conntrack_netlink if it is missing"
    )]
    Flows(#[source] io::Error),
    /// There is no nftables in this kernel.
    #[error(
        "this kernel has no nftables: load the module nf_tables, or use a kernel with CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET"
    )]
    NoNftables,
    /// Something in our table is not from us, or from a version that wrote it differently.
    #[error("the table `inet portcullis` has elements that this version does not know")]
    Foreign,
    /// Somebody else changed packet filters all the time.
    #[error(
        "packet filters of this machine changed whenever they were read: find out which program changes them without a pause"
    )]
    Restless,
}

impl Error {
    /// What the kernel said, when it was to take rules.
    pub(crate) fn rules(source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(nix::libc::EPERM | nix::libc::EACCES) => Self::NotPermitted,
            Some(nix::libc::EMSGSIZE) => Self::TooMany,
            _ => Self::Rules(source),
        }
    }

    /// What the kernel said, when it was to do something.
    pub(crate) fn kernel(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(code) if code == nix::libc::EPERM || code == nix::libc::EACCES => Self::NotPermitted,
            Some(code) if code == nix::libc::EPROTONOSUPPORT => Self::NoNftables,
            _ => Self::Kernel { what, source },
        }
    }
}

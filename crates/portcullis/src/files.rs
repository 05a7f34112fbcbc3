//! Open files: how many there may be, and who may read them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portcullis_networking::listen::MOST;
use tracing::warn;

/// What is kept for all that is not a connection of a client: the database, Keystone, telemetry, files.
const KEPT: u64 = 256;
/// What there is even where next to no files may be open.
const LEAST: usize = 16;

/// Lets this process have as many open files as the system lets it have, which by default are many more than it gets.
pub(crate) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        warn!(%error, "the limit of open files stays as it is");
    }
}

/// How many clients each of so many servers may have at the same time, so that they leave files for the rest.
pub(crate) fn connections(servers: u64) -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    share(limit, servers)
}

fn share(limit: u64, servers: u64) -> usize {
    let share = limit.saturating_sub(KEPT) / servers.max(1);
    usize::try_from(share).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// Says so if everybody on this machine may read a file with a secret in it.
pub(crate) fn warn_if_open(key: &str, file: &Path) {
    let open = std::fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o004 != 0);
    if open {
        let file = file.display();
        warn!(key, %file, "everybody on this machine may read this secret: `chmod o-r {file}`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_files_for_the_rest() {
        for (limit, servers, expected) in
            [(1024, 2, 384), (1024, 1, 768), (100, 2, 16), (0, 0, 16), (u64::MAX, 2, MOST), (8704, 2, MOST)]
        {
            assert_eq!(share(limit, servers), expected, "{limit} for {servers}");
        }
    }
}

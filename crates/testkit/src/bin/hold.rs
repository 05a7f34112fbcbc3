//! Starts parts and holds them until it is killed: `tests/real_parts/lifetime.rs` looks at what is left.
//!
//! Prints the path of a file among theirs when all of them run.

use portcullis_testkit::{HaProxy, Host, Raft, aws, kubernetes, ovn, plug};

const CONFIGURATION: &str = "
defaults
  mode tcp
  timeout connect 1s
  timeout client 1s
  timeout server 1s
listen nobody
  bind 127.0.0.1:1
";

#[allow(clippy::print_stdout)]
fn main() {
    let haproxy = HaProxy::start(&Host::new("held"), CONFIGURATION);
    let _raft = Raft::start();
    let _aws = aws();
    kubernetes();
    let ovn = ovn();
    ovn.nbctl(&["ls-add", "net", "--", "lsp-add", "net", "vm"]).unwrap_or_else(|error| panic!("{error}"));
    let _machine = plug(&ovn, "vm", "02:00:00:00:00:01", &["10.0.0.1/24"]);
    println!("{}", haproxy.configuration().display());
    match std::env::args().nth(1).as_deref() {
        Some("panic") => panic!("as asked"),
        Some("return") => {}
        _ => std::thread::sleep(std::time::Duration::from_secs(60)),
    }
}

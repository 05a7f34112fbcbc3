//! Starts parts and holds them until it is killed: `tests/real_parts/lifetime.rs` looks at what is left.
//!
//! Prints the path of a file among theirs when all of them run.

use portcullis_testkit::{HaProxy, Host, Raft};

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
    println!("{}", haproxy.configuration().display());
    match std::env::args().nth(1).as_deref() {
        Some("panic") => panic!("as asked"),
        Some("return") => {}
        _ => std::thread::sleep(std::time::Duration::from_secs(60)),
    }
}

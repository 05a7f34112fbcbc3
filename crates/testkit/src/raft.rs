use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use portcullis_parts::{Launch, Namespace, Process, ovn, run};

/// A northbound database served by three ovsdb-servers that agree by raft. Members can be killed and started.
#[derive(Debug)]
pub struct Raft {
    directory: PathBuf,
    members: [Option<Process>; 3],
}

const DATABASE: &str = "OVN_Northbound";

impl Raft {
    /// Starts the three and returns when one leads.
    #[track_caller]
    pub fn start() -> Self {
        let directory = crate::directory("raft");
        let schema = ovn::schema_file("ovn-nb");
        let mut raft = Raft { directory, members: [None, None, None] };
        let tool = |args: &[&str]| {
            run(&Namespace::host(), "ovsdb-tool", args).unwrap_or_else(|error| panic!("{error}"));
        };
        let [first, second, third] = [0, 1, 2].map(|member| raft.peer_address(member));
        let file = |member| raft.file(member, "db").display().to_string();
        tool(&["create-cluster", &file(0), &schema.display().to_string(), &first]);
        tool(&["join-cluster", &file(1), DATABASE, &second, &first]);
        tool(&["join-cluster", &file(2), DATABASE, &third, &first]);
        for member in 0..3 {
            raft.restart(member);
        }
        crate::eventually("all three members have joined", || {
            (0..3).all(|member| {
                raft.status(member).is_some_and(|status| status.contains("Status: cluster member"))
            })
        });
        raft
    }

    /// How a client names all of them, in the order of their numbers.
    pub fn remotes(&self) -> [String; 3] {
        [0, 1, 2].map(|member| format!("unix:{}", self.file(member, "sock").display()))
    }

    /// The number of the member that leads.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let mut leader = None;
        crate::eventually("a member leads", || {
            leader = (0..3)
                .find(|&member| self.status(member).is_some_and(|status| status.contains("Role: leader")));
            leader.is_some()
        });
        leader.expect("just seen")
    }

    /// Has a member that leads hand over to another; it lives on and follows.
    #[track_caller]
    pub fn hand_over(&self, member: usize) {
        let control = self.file(member, "ctl").display().to_string();
        let asked = ["-t", &control, "cluster/failure-test", "transfer-leadership"];
        run(&Namespace::host(), "ovs-appctl", &asked).unwrap_or_else(|error| panic!("{error}"));
        crate::eventually("it leads no more", || {
            self.status(member).is_some_and(|status| status.contains("Role: follower"))
        });
    }

    /// Kills a member at once, as a power failure would.
    pub fn kill(&mut self, member: usize) {
        self.members[member] = None;
    }

    /// Starts a member (again); returns when it listens.
    #[track_caller]
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        let socket = self.file(member, "sock");
        let started = Launch::new("ovsdb-server").and_then(|launch| {
            let mut process = launch
                .named(&format!("ovsdb-server-{member}"))
                .arg(format!("--remote=punix:{}", socket.display()))
                .arg(format!("--unixctl={}", self.file(member, "ctl").display()))
                .arg(self.file(member, "db"))
                .start(&Namespace::host(), &self.directory)?;
            process.wait_until(Duration::from_secs(120), || UnixStream::connect(&socket).is_ok())?;
            Ok(process)
        });
        self.members[member] = Some(started.unwrap_or_else(|error| panic!("{error}")));
    }

    fn status(&self, member: usize) -> Option<String> {
        self.members[member].as_ref()?;
        let control = self.file(member, "ctl").display().to_string();
        run(&Namespace::host(), "ovs-appctl", &["-t", &control, "cluster/status", DATABASE]).ok()
    }

    /// Where the others find a member. Unix sockets do for raft, and need no ports.
    fn peer_address(&self, member: usize) -> String {
        format!("unix:{}", self.file(member, "raft").display())
    }

    fn file(&self, member: usize, suffix: &str) -> PathBuf {
        self.directory.join(format!("nb{member}.{suffix}"))
    }
}

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What a process has in memory now, in bytes.
pub fn memory(process: u32) -> u64 {
    of_status(process, "VmRSS:")
}

/// What a process had in memory at most, in bytes.
pub fn most_memory(process: u32) -> u64 {
    of_status(process, "VmHWM:")
}

fn of_status(process: u32, name: &str) -> u64 {
    let status = read(process, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("every kernel tells that");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kilobytes") * 1024
}

/// How long a process has computed since it started.
pub fn cpu(process: u32) -> Duration {
    let stat = read(process, "stat");
    // After the name, which may have blanks in it; times of the program and of the kernel are in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|field| fields[*field].parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn read(process: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/{file}"))
        .unwrap_or_else(|error| panic!("process {process} is not there: {error}"))
}

/// The bench once more, in a process of its own: memory and time are its own then. It knows by a word what it is, is talked to
/// by lines, and ends with this value.
#[derive(Debug)]
pub struct OtherProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl OtherProcess {
    /// Starts it with a word, and what it has to know.
    pub fn start(word: &str, about: impl AsRef<OsStr>) -> Self {
        let program = std::env::current_exe().expect("a program knows where it is");
        let mut child = Command::new(program)
            .arg(word)
            .arg(about)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("another process cannot be started: {error}"));
        let lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        OtherProcess { child, lines }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something.
    pub fn say(&mut self, line: &str) {
        let told = self.child.stdin.as_mut().map(|told| writeln!(told, "{line}"));
        assert!(matches!(told, Some(Ok(()))), "the other process does not listen: {told:?}");
    }

    /// The next line that it says.
    pub fn hear(&mut self) -> String {
        let mut heard = String::new();
        let length = self.lines.read_line(&mut heard).expect("lines can be read");
        assert!(length > 0, "the other process ended");
        heard.trim_end().to_owned()
    }

    /// Has it end: nobody talks to it any more.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.end();
    }
}

//! A program that goes on when we end.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A log that is longer is begun anew when the program is started.
const LONGEST_LOG: u64 = 4 << 20;

/// Starts a program in a process group of its own, so that what ends us does not end it, with its words in a file.
pub(crate) fn start(command: &mut Command, log: &Path) -> io::Result<Child> {
    let long = fs::metadata(log).is_ok_and(|log| log.len() > LONGEST_LOG);
    if long {
        fs::remove_file(log)?;
    }
    let output = OpenOptions::new().create(true).append(true).open(log)?;
    let errors = output.try_clone()?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0).spawn()
}

/// The last that a program said, on one line.
pub(crate) fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines[lines.len().saturating_sub(5)..] {
        [] => "it said nothing".to_owned(),
        ref last => last.join("; "),
    }
}

/// Replaces a file by one with this text, so that nobody ever reads half of it.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

/// Whether a process runs that was started in a directory: its number alone may be somebody else's by now. One that has
/// ended is nowhere, also where nobody has taken notice of its end.
pub(crate) fn is_running(pid: &str, directory: &Path) -> bool {
    let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    let works_in =
        || Some((fs::read_link(format!("/proc/{pid}/cwd")).ok()?, fs::canonicalize(directory).ok()?));
    is_number && works_in().is_some_and(|(one, other)| one == other)
}

//! Installing what is missing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::catalogue::{COMPLETE, GoModule, Part, Source, search_path};
use crate::interrupt::interrupted;
use crate::{Error, Result};

/// Hears what happens in the meantime, a few words at a time.
type Progress<'a> = &'a mut dyn FnMut(&str);

/// Installs one part.
pub fn install(part: &Part, progress: Progress<'_>) -> Result<()> {
    match &part.source {
        Source::Debian { packages } => debian(packages, progress),
        Source::Go(module) => {
            into_cache(part, progress, |directory, progress| go(module, directory, progress))
        }
        Source::Python { requirements, only, .. } => into_cache(part, progress, |directory, progress| {
            python(requirements, directory, progress)?;
            only.map_or(Ok(()), |(group, package)| keep_only(directory, group, package))
        }),
    }?;
    match part.missing().as_slice() {
        [] => Ok(()),
        missing => {
            Err(Error::Unsuitable(format!("{}: installed, but without {}", part.name, missing.join(", "))))
        }
    }
}

/// Looks whether this machine has what installing these parts takes, before minutes are spent on the first.
pub fn check_tools<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<()> {
    for part in parts {
        match &part.source {
            Source::Debian { packages } => check_root(packages)?,
            Source::Go(_) => check_go(&program_output("go", &["env", "GOVERSION"])?)?,
            Source::Python { .. } => drop(program_output("python3", &["--version"])?),
        }
    }
    Ok(())
}

/// Which version is installed: ours to choose, or Debian's.
pub fn installed_version(part: &Part) -> Option<String> {
    let Source::Debian { packages } = &part.source else { return part.version().map(str::to_owned) };
    program_output("dpkg-query", &["--show", "--showformat=${Version}", packages[0]]).ok()
}

fn check_root(packages: &[&str]) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::NotPermitted {
        what: format!("only root can install {}", packages.join(", ")),
        remedy: format!("Run: sudo apt-get install {}", packages.join(" ")),
    })
}

/// The first version of Go that all modules build with; their `go.mod` say the same.
const GO: (u32, u32) = (1, 26);

fn check_go(version: &str) -> Result<()> {
    let mut numbers = version.trim().trim_start_matches("go").split('.').map(str::parse);
    if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next())
        && (major, minor) >= GO
    {
        return Ok(());
    }
    Err(Error::Unsuitable(format!("Go {}.{} or newer is needed, and `go` is {}", GO.0, GO.1, version.trim())))
}

fn debian(packages: &[&str], progress: Progress<'_>) -> Result<()> {
    check_root(packages)?;
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        // A machine that has just started may be updating itself.
        apt.args(["-o", "DPkg::Lock::Timeout=300"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        // Stopped halfway, it would leave the system's packages in disorder.
        Watched { command: apt, stop_when_interrupted: false }
    };
    progress("reading the list of packages");
    apt(&["update"]).run(|_| {})?;
    progress(&packages.join(", "));
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat()).run(|_| {})
}

/// Makes a part at its place in the cache, and marks it when it is whole: a Python environment knows its own
/// path and could not be moved there. Another process that wants the same part waits for this one.
fn into_cache(
    part: &Part,
    progress: Progress<'_>,
    make: impl FnOnce(&Path, Progress<'_>) -> Result<()>,
) -> Result<()> {
    let Some(place) = part.directory() else { return Ok(()) };
    let parent = place.parent().unwrap_or(Path::new("/"));
    let _lock = lock(parent, &place, progress)?;
    if part.missing().is_empty() {
        return Ok(());
    }
    let cannot = || Error::io(format!("cannot write {}", place.display()));
    // What an interrupted run left.
    if place.exists() {
        fs::remove_dir_all(&place).map_err(cannot())?;
    }
    fs::create_dir_all(&place).map_err(cannot())?;
    make(&place, progress).inspect_err(|_| {
        let _ = fs::remove_dir_all(&place);
    })?;
    fs::write(place.join(COMPLETE), "").map_err(cannot())
}

/// Keeps others from making the same part at the same time.
fn lock(parent: &Path, place: &Path, progress: Progress<'_>) -> Result<Flock<File>> {
    let path = PathBuf::from(format!("{}.lock", place.display()));
    let file = fs::create_dir_all(parent).and_then(|()| File::create(&path)).map_err(|error| {
        Error::NotPermitted {
            what: format!("cannot write in {}: {error}", parent.display()),
            remedy: "Set PORTCULLIS_CACHE to a directory that you may write in.".into(),
        }
    })?;
    let mut file = file;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((_, errno)) if errno != nix::errno::Errno::EWOULDBLOCK => {
                return Err(Error::io(format!("cannot lock {}", path.display()))(errno.into()));
            }
            Err((unlocked, _)) => file = unlocked,
        }
        if interrupted() {
            return Err(Error::Interrupted);
        }
        progress("waiting for another process that makes it");
        thread::sleep(Duration::from_millis(200));
    }
}

fn go(module: &GoModule, directory: &Path, progress: Progress<'_>) -> Result<()> {
    let sources = directory.join("src");
    for (path, text) in module.files {
        let path = sources.join(path);
        let parent = path.parent().unwrap_or(&sources);
        fs::create_dir_all(parent).map_err(Error::io(format!("cannot make {}", parent.display())))?;
        fs::write(&path, text).map_err(Error::io(format!("cannot write {}", path.display())))?;
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&sources).env("CGO_ENABLED", "0");
        // What is pinned decides, not the settings of whoever builds it.
        command.env("GOTOOLCHAIN", "local").env("GOWORK", "off").env("GOFLAGS", "-mod=readonly");
        command
    };
    let flags = link_flags(module);
    let mut compiled = 0;
    for (program, package) in module.packages {
        progress(program);
        let output = directory.join("bin").join(program).display().to_string();
        let build = go(&["build", "-v", "-trimpath", "-ldflags", &flags, "-o", &output, package]);
        Watched::build(build).run(|line| {
            if let Some(module) = line.strip_prefix("go: downloading ") {
                progress(&format!("{program}: fetching {module}"));
            } else {
                compiled += 1;
                progress(&format!("{program}: {compiled} packages compiled"));
            }
        })?;
    }
    for (dependency, from, to) in module.keep {
        let found = output_of(&mut go(&["list", "-m", "-f", "{{.Dir}}", dependency]))?;
        let mut copy = Command::new("cp");
        copy.args(["-r", "--no-preserve=mode"])
            .arg(Path::new(found.trim()).join(from))
            .arg(directory.join(to));
        Watched::build(copy).run(|_| {})?;
    }
    Ok(())
}

fn link_flags(module: &GoModule) -> String {
    let mut numbers = module.version.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let variables = module.version_variables.iter().flat_map(|package| {
        [
            ("gitVersion", format!("v{}", module.version)),
            ("gitMajor", major.into()),
            ("gitMinor", minor.into()),
        ]
        .map(|(variable, value)| format!(" -X {package}.{variable}={value}"))
    });
    std::iter::once("-s -w".to_owned()).chain(variables).collect()
}

fn python(requirements: &str, directory: &Path, progress: Progress<'_>) -> Result<()> {
    let list = directory.join("requirements.txt");
    fs::write(&list, requirements).map_err(Error::io(format!("cannot write {}", list.display())))?;
    // Debian's Python comes without what makes an environment.
    if program_output("python3", &["-c", "import ensurepip"]).is_err() {
        debian(&["python3-venv"], progress)?;
    }
    progress("fetching packages");
    let mut environment = Command::new("python3");
    environment.args(["-m", "venv"]).arg(directory);
    Watched::build(environment).run(|_| {})?;
    let mut pip = Command::new(directory.join("bin/pip"));
    pip.args(["install", "--disable-pip-version-check", "--no-deps", "-r"]).arg(list);
    Watched::build(pip).run(|_| {})
}

/// Removes all packages of a group but one.
fn keep_only(environment: &Path, group: &str, package: &str) -> Result<()> {
    let cannot = |error| Error::io(format!("cannot remove packages in {}", environment.display()))(error);
    let library = environment.join("lib");
    // There is one: that of the Python which made the environment.
    for python in fs::read_dir(&library).map_err(cannot)? {
        let group = python.map_err(cannot)?.path().join("site-packages").join(group);
        for entry in fs::read_dir(&group).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if entry.file_name() != package && entry.file_type().map_err(cannot)?.is_dir() {
                fs::remove_dir_all(entry.path()).map_err(cannot)?;
            }
        }
    }
    Ok(())
}

/// A command whose standard error is followed line by line.
struct Watched {
    command: Command,
    stop_when_interrupted: bool,
}

/// How many of the last lines an error quotes.
const LINES_KEPT: usize = 12;

impl Watched {
    fn build(command: Command) -> Self {
        Watched { command, stop_when_interrupted: true }
    }

    /// Runs it, hands each line to `line`, and fails with the last of them.
    fn run(mut self, mut line: impl FnMut(&str)) -> Result<()> {
        // A group of its own, so that Ctrl-C at the terminal reaches only us and the package manager works on.
        self.command.process_group(0).env("PATH", search_path());
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|error| cannot_run(&self.command, error))?;
        let group = Pid::from_raw(child.id().cast_signed());
        let (sender, lines) = channel();
        let (errors, mut output) = (child.stderr.take(), child.stdout.take());
        thread::spawn(move || {
            for text in errors
                .into_iter()
                .flat_map(|errors| BufReader::new(errors).lines())
                .map_while(std::result::Result::ok)
            {
                let _ = sender.send(text);
            }
        });
        // Read aside, so that neither pipe can fill up and stop the command.
        let aside = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = output.as_mut().map(|output| output.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut last: Vec<String> = Vec::new();
        loop {
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(text) => {
                    line(&text);
                    last.push(text);
                    if last.len() > LINES_KEPT {
                        last.remove(0);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if interrupted() && self.stop_when_interrupted {
                let _ = killpg(group, Signal::SIGKILL);
            }
        }
        let status = child.wait().map_err(|error| cannot_run(&self.command, error))?;
        let said = aside.join().unwrap_or_default();
        if interrupted() {
            return Err(Error::Interrupted);
        }
        if status.success() {
            return Ok(());
        }
        let quoted = if last.is_empty() { said.trim().to_owned() } else { last.join("\n") };
        Err(Error::Command { command: shown(&self.command), output: quoted })
    }
}

/// What a short command prints.
fn program_output(program: &str, arguments: &[&str]) -> Result<String> {
    output_of(Command::new(program).args(arguments))
}

fn output_of(command: &mut Command) -> Result<String> {
    command.env("PATH", search_path());
    let output = command.stdin(Stdio::null()).output().map_err(|error| cannot_run(command, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        command: shown(command),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn cannot_run(command: &Command, error: std::io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() != ErrorKind::NotFound {
        return Error::io(format!("cannot run {program}"))(error);
    }
    let install = match &*program {
        "go" => format!("Go {}.{} or newer, as its web site says: Debian's is older", GO.0, GO.1),
        "python3" => "apt-get install python3 python3-venv".into(),
        other => format!("your distribution's package of {other}"),
    };
    Error::Missing { program, install }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_group_of_packages_one_is_kept() {
        let environment = tempfile::tempdir().unwrap();
        let group = environment.path().join("lib/python3.11/site-packages/group");
        for package in ["one", "other"] {
            fs::create_dir_all(group.join(package)).unwrap();
        }
        fs::write(group.join("module.py"), "").unwrap();
        keep_only(environment.path(), "group", "one").unwrap();
        assert!(group.join("one").exists() && group.join("module.py").exists());
        assert!(!group.join("other").exists());
    }

    #[test]
    fn a_go_that_is_too_old_is_refused() {
        for good in ["go1.26\n", "go1.26.8", "go1.30.1", "go2.0"] {
            check_go(good).unwrap();
        }
        for old in ["go1.19.8", "go1.25", "", "devel"] {
            let refused = check_go(old).unwrap_err().to_string();
            assert!(refused.starts_with("Go 1.26 or newer is needed"), "{old}: {refused}");
        }
    }

    #[test]
    fn a_tool_that_is_missing_says_where_it_comes_from() {
        let missing =
            |program: &str| cannot_run(&Command::new(program), ErrorKind::NotFound.into()).to_string();
        assert!(missing("go").starts_with("go is not installed here; install it with: Go 1.26 or newer"));
        assert!(missing("python3").ends_with("apt-get install python3 python3-venv"));
        assert!(
            program_output("no-such-program-here", &[])
                .unwrap_err()
                .to_string()
                .contains("is not installed here")
        );
    }

    #[test]
    fn a_failed_command_is_quoted_with_the_end_of_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "for i in $(seq 40); do echo line $i >&2; done; exit 3"]);
        let mut lines = 0;
        let failed = Watched::build(command).run(|_| lines += 1).unwrap_err().to_string();
        assert_eq!(lines, 40);
        assert!(
            failed.contains("line 40") && failed.contains("line 29") && !failed.contains("line 28\n"),
            "{failed}"
        );
    }

    #[test]
    fn who_comes_second_waits_until_the_first_is_done() {
        let cache = tempfile::tempdir().unwrap();
        let place = cache.path().join("part");
        let first = lock(cache.path(), &place, &mut |_| {}).unwrap();
        let (told, waiting) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                lock(cache.path(), &place, &mut |words| drop(told.send(words.to_owned()))).unwrap()
            });
            assert_eq!(waiting.recv().unwrap(), "waiting for another process that makes it");
            drop(first);
        });
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_what_to_set() {
        let refused =
            lock(Path::new("/proc/nowhere"), Path::new("/proc/nowhere/part"), &mut |_| {}).unwrap_err();
        assert!(refused.to_string().contains("PORTCULLIS_CACHE"), "{refused}");
    }

    #[test]
    fn kubectl_knows_its_version() {
        let module =
            GoModule { version: "1.35.8", files: &[], packages: &[], version_variables: &["v"], keep: &[] };
        assert_eq!(link_flags(&module), "-s -w -X v.gitVersion=v1.35.8 -X v.gitMajor=1 -X v.gitMinor=35");
    }
}

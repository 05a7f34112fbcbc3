//! Installing what is missing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};

use crate::catalogue::{COMPLETE, GoModule, Part, Source};
use crate::interrupt::interrupted;
use crate::{Error, Result};

/// Installs one part. `progress` hears what happens in the meantime, a few words at a time.
pub fn install(part: &Part, progress: &mut dyn FnMut(&str)) -> Result<()> {
    match &part.source {
        Source::Debian { packages } => debian(packages, progress),
        Source::Go(module) => {
            into_cache(part, progress, |directory, progress| go(module, directory, progress))
        }
        Source::Python { requirements, .. } => {
            into_cache(part, progress, |directory, progress| python(requirements, directory, progress))
        }
    }?;
    match part.missing().as_slice() {
        [] => Ok(()),
        missing => {
            Err(Error::Unsuitable(format!("{}: installed, but without {}", part.name, missing.join(", "))))
        }
    }
}

/// Which version is installed: ours to choose, or Debian's.
pub fn installed_version(part: &Part) -> Option<String> {
    let Source::Debian { packages } = &part.source else { return part.version().map(str::to_owned) };
    let query = ["--show", "--showformat=${Version}", packages[0]];
    let output =
        Command::new("dpkg-query").args(query).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn debian(packages: &[&str], progress: &mut dyn FnMut(&str)) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotPermitted {
            what: format!("only root can install {}", packages.join(", ")),
            remedy: format!("Run: sudo apt-get install {}", packages.join(" ")),
        });
    }
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive");
    progress("reading the list of packages");
    watch(Command::new("apt-get").arg("update"), |_| {})?;
    progress(&packages.join(", "));
    watch(&mut install, |_| {})
}

/// Makes a part at its place in the cache, and marks it when it is whole: a Python environment knows its own
/// path and could not be moved there. Another process that wants the same part waits for this one.
fn into_cache(
    part: &Part,
    progress: &mut dyn FnMut(&str),
    make: impl FnOnce(&Path, &mut dyn FnMut(&str)) -> Result<()>,
) -> Result<()> {
    let Some(place) = part.directory() else { return Ok(()) };
    let beside = |suffix: &str| {
        place.with_file_name(format!("{}{suffix}", place.file_name().unwrap_or_default().display()))
    };
    let io = |path: &Path| Error::io(format!("cannot write {}", path.display()));
    if let Some(cache) = place.parent() {
        fs::create_dir_all(cache).map_err(io(cache))?;
    }
    let lock_path = beside(".lock");
    let lock_file = File::create(&lock_path).map_err(io(&lock_path))?;
    let _lock =
        Flock::lock(lock_file, FlockArg::LockExclusive).map_err(|(_, errno)| io(&lock_path)(errno.into()))?;
    if part.missing().is_empty() {
        return Ok(());
    }
    // What an interrupted run left.
    if place.exists() {
        fs::remove_dir_all(&place).map_err(io(&place))?;
    }
    fs::create_dir_all(&place).map_err(io(&place))?;
    make(&place, progress).inspect_err(|_| {
        let _ = fs::remove_dir_all(&place);
    })?;
    let complete = place.join(COMPLETE);
    fs::write(&complete, "").map_err(io(&complete))
}

fn go(module: &GoModule, directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let sources = directory.join("src");
    for (path, text) in module.files {
        let path = sources.join(path);
        let parent = path.parent().unwrap_or(&sources);
        fs::create_dir_all(parent).map_err(Error::io(format!("cannot make {}", parent.display())))?;
        fs::write(&path, text).map_err(Error::io(format!("cannot write {}", path.display())))?;
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        // A Go older than the modules ask for says so, instead of looking for a newer one.
        command.args(arguments).current_dir(&sources).env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local");
        command
    };
    let mut compiled = 0;
    for (program, package) in module.packages {
        progress(program);
        let flags = link_flags(module);
        let output = directory.join("bin").join(program);
        let mut build = go(&["build", "-v", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o"]);
        watch(build.arg(output).arg(package), |line| {
            if let Some(module) = line.strip_prefix("go: downloading ") {
                progress(&format!("{program}: fetching {module}"));
            } else {
                compiled += 1;
                progress(&format!("{program}: {compiled} packages compiled"));
            }
        })?;
    }
    for (dependency, from, to) in module.keep {
        let source = Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", dependency])
            .current_dir(&sources)
            .output()
            .map_err(Error::io("cannot run go"))?;
        let from = Path::new(String::from_utf8_lossy(&source.stdout).trim()).join(from);
        watch(
            Command::new("cp").args(["-r", "--no-preserve=mode"]).arg(from).arg(directory.join(to)),
            |_| {},
        )?;
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

fn python(requirements: &str, directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let list = directory.join("requirements.txt");
    fs::write(&list, requirements).map_err(Error::io(format!("cannot write {}", list.display())))?;
    // Debian's Python comes without what makes an environment.
    if watch(Command::new("python3").args(["-c", "import ensurepip"]), |_| {}).is_err() {
        debian(&["python3-venv"], progress)?;
    }
    progress("fetching packages");
    watch(Command::new("python3").args(["-m", "venv"]).arg(directory), |_| {})?;
    let mut pip = Command::new(directory.join("bin/pip"));
    watch(pip.args(["install", "--disable-pip-version-check", "--no-deps", "-r"]).arg(list), |_| {})
}

/// Runs a command, hands each line of its standard error to `line`, and fails with the last of them.
fn watch(command: &mut Command, mut line: impl FnMut(&str)) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(
            |source| match source.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::Missing { program: name.clone(), install: install_hint(&name) }
                }
                _ => Error::Io { what: format!("cannot run {name}"), source },
            },
        )?;
    // Standard output is read aside, so that neither pipe can fill up and stop the command.
    let mut output = child.stdout.take();
    let aside = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(output) = &mut output {
            let _ = output.read_to_end(&mut text);
        }
        text
    });
    let mut last: Vec<String> = Vec::new();
    if let Some(errors) = child.stderr.take() {
        for text in BufReader::new(errors).lines().map_while(std::result::Result::ok) {
            line(&text);
            // Only what talks while it works is stopped halfway: a build, never the system's package manager.
            if interrupted() {
                let _ = child.kill();
            }
            if last.len() == LINES_KEPT {
                last.remove(0);
            }
            last.push(text);
        }
    }
    let status = child.wait().map_err(Error::io(format!("cannot wait for {name}")))?;
    let said = aside.join().unwrap_or_default();
    if interrupted() {
        return Err(Error::Interrupted);
    }
    if status.success() {
        return Ok(());
    }
    if last.is_empty() {
        last = String::from_utf8_lossy(&said).lines().rev().take(LINES_KEPT).map(str::to_owned).collect();
        last.reverse();
    }
    let arguments = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    Err(Error::Command {
        command: std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" "),
        output: last.join("\n"),
    })
}

const LINES_KEPT: usize = 12;

fn install_hint(program: &str) -> String {
    match program {
        "go" => "Go 1.26 or newer, from your distribution or golang's own packages".into(),
        "python3" => "apt-get install python3 python3-venv".into(),
        _ => format!("your distribution's package of {program}"),
    }
}

//! Finds the configuration files, merges them and decodes the result.
//!
//! `/etc/portcullis/config.yaml` is read first, then every `*.yaml` directly in `/etc/portcullis/config.d/` (not
//! in directories below it) in the byte order of their names, then the `--set` flags. Each one changes what the
//! ones before it said.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decode::{Decoded, decode};
use super::merge::merge;
use super::node::{Location, Node, Value};
use super::problem::Problem;
use super::set::Setting;
use super::{Config, yaml};

const DEFAULT_FILE: &str = "/etc/portcullis/config.yaml";

/// What the command line says about where the configuration comes from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// A file named by the user must exist; the default one need not.
    pub(crate) file: Option<PathBuf>,
    pub(crate) settings: Vec<Setting>,
}

/// A configuration, and how it came to be.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The files read, in the order they were merged.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) warnings: Vec<Problem>,
    merged: Node,
}

/// What holds when nothing is set anywhere.
impl Default for Loaded {
    fn default() -> Self {
        let nothing = Node::new(Value::Null, Location::Flag);
        Self {
            config: Config::default(),
            files: Vec::new(),
            warnings: Vec::new(),
            merged: nothing,
        }
    }
}

/// Why there is no configuration, with the warnings that may explain it.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) errors: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
    /// A file is there and may not be read: no edit of it would help.
    pub(crate) denied: bool,
}

impl Loaded {
    /// Where the value of `keys` was written, or `None` if it is the default.
    pub(crate) fn origin(&self, keys: &[&str]) -> Option<&Location> {
        self.merged.find(keys)
    }
}

impl Sources {
    pub(crate) fn load(self) -> Result<Loaded, Unusable> {
        let mut warnings = Vec::new();
        let (files, merged) = self.read(&mut warnings).map_err(|problems| Unusable {
            denied: problems.iter().any(|p| p.denied),
            errors: problems.into_iter().map(|p| p.problem).collect(),
            warnings: Vec::new(),
        })?;
        let Decoded {
            result,
            warnings: more,
        } = decode::<Config>(&merged);
        warnings.extend(more);
        match result {
            Ok(config) => Ok(Loaded {
                config,
                files,
                warnings,
                merged,
            }),
            Err(errors) => Err(Unusable {
                errors,
                warnings,
                denied: false,
            }),
        }
    }

    fn read(self, warnings: &mut Vec<Problem>) -> Result<(Vec<PathBuf>, Node), Vec<Unreadable>> {
        let named = self.file.is_some();
        let file = self.file.unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let mut merged = Node::new(Value::Map(Vec::new()), Location::File(Arc::from(file.as_path())));

        let drop_ins = drop_ins(&file, warnings).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        for (path, required) in std::iter::once((file, named)).chain(drop_ins.into_iter().map(|f| (f, true)))
        {
            match read(&path, required) {
                Ok(None) => {}
                Ok(Some(node)) => {
                    files.push(path);
                    merged = merge(merged, node);
                }
                Err(error) => errors.push(error),
            }
        }
        for setting in self.settings {
            merged = merge(merged, setting.into_node());
        }
        if errors.is_empty() {
            Ok((files, merged))
        } else {
            Err(errors)
        }
    }
}

struct Unreadable {
    problem: Problem,
    denied: bool,
}

impl Unreadable {
    fn io(path: &Path, error: &io::Error) -> Self {
        let at = Location::File(Arc::from(path));
        let denied = error.kind() == ErrorKind::PermissionDenied;
        let problem = match error.kind() {
            ErrorKind::NotFound => Problem::new(at, "", "there is no such file"),
            ErrorKind::IsADirectory => Problem::new(at, "", "this is a directory, not a YAML file"),
            ErrorKind::NotADirectory => Problem::new(at, "", "this is not a directory"),
            ErrorKind::PermissionDenied => Problem::new(at, "", "not readable for this user"),
            _ => Problem::new(at, "", format!("cannot be read: {error}")),
        };
        Self { problem, denied }
    }
}

impl From<Problem> for Unreadable {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            denied: false,
        }
    }
}

/// The content of one file; `None` for a file that is not there and need not be.
fn read(path: &Path, required: bool) -> Result<Option<Node>, Unreadable> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && !required => return Ok(None),
        Err(error) => return Err(Unreadable::io(path, &error)),
    };
    let text = str::from_utf8(&bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = good.split(|b| *b == b'\n').count();
        Problem::new(
            Location::Line {
                file: Arc::from(path),
                line,
                column: None,
            },
            "",
            "this is not UTF-8 text",
        )
    })?;
    let node = yaml::parse(path, text)?;
    match node.value {
        // An empty file, or one with comments only, changes nothing; by the letter of RFC 7396 a null would
        // erase all the files before it.
        Value::Null => Ok(Some(Node::new(Value::Map(Vec::new()), node.at))),
        Value::Map(_) => Ok(Some(node)),
        ref other => {
            let message = format!(
                "expected keys and values such as `mode: observe`, found {}",
                other.describe()
            );
            Err(Problem::new(node.at, "", message).into())
        }
    }
}

/// The drop-in files of `file`, in the order they are merged.
fn drop_ins(file: &Path, warnings: &mut Vec<Problem>) -> Result<Vec<PathBuf>, Unreadable> {
    let directory = file.with_extension("d");
    if directory == file {
        return Ok(Vec::new());
    }
    let listing = match std::fs::read_dir(&directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Unreadable::io(&directory, &error)),
    };
    let mut names = Vec::new();
    for entry in listing {
        names.push(
            entry
                .map_err(|error| Unreadable::io(&directory, &error))?
                .file_name(),
        );
    }
    names.sort();
    let mut files = Vec::new();
    for name in names {
        let path = directory.join(&name);
        match path.extension().and_then(OsStr::to_str) {
            // Editors and mounted ConfigMaps keep files of their own behind a dot.
            _ if name.as_encoded_bytes().starts_with(b".") => {}
            Some("yaml") => files.push(path),
            Some("yml") => warnings.push(Problem::new(
                Location::File(Arc::from(path)),
                "",
                "not read: the names of drop-in files end in `.yaml`",
            )),
            _ => {}
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;

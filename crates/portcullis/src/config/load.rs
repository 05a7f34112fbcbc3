//! Finds the configuration files, merges them and decodes the result.
//!
//! `/etc/portcullis/config.yaml` is read first, then every `*.yaml` directly in `/etc/portcullis/config.d/` (not
//! in directories below it) in the byte order of their names, then the `--set` flags. Each one changes what the
//! ones before it said.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decode::{Unknown, decode};
use super::finding::Finding;
use super::merge::merge;
use super::node::{Location, Node, Value};
use super::set::Setting;
use super::{Config, yaml};

const DEFAULT_FILE: &str = "/etc/portcullis/config.yaml";

/// What the command line says about where the configuration comes from.
#[derive(Debug)]
pub(crate) struct Sources {
    main: Main,
    settings: Vec<Setting>,
}

/// The file whose name also says where the drop-ins are.
#[derive(Debug)]
enum Main {
    /// By the user: it must exist.
    Named(PathBuf),
    /// By nobody: it need not exist.
    Default(PathBuf),
    None,
}

/// A configuration, and how it came to be.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The files read, in the order they were merged.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) warnings: Vec<Finding>,
    merged: Node,
}

/// What holds when nothing is set anywhere.
impl Default for Loaded {
    fn default() -> Self {
        let nothing = Node::new(Value::Null, Location::Flag);
        Self { config: Config::default(), files: Vec::new(), warnings: Vec::new(), merged: nothing }
    }
}

/// Why there is no configuration, with the warnings that may explain it.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) errors: Vec<Finding>,
    pub(crate) warnings: Vec<Finding>,
    pub(crate) why: Why,
}

/// What would help, if there is no configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// An edit of a file or a flag.
    Wrong,
    /// Another path: the file named by the user is not there.
    Missing,
    /// Another user: the file is there and may not be read.
    Denied,
}

impl Loaded {
    /// Where the value of `keys` was written, or `None` if it is the default.
    pub(crate) fn origin(&self, keys: &[&str]) -> Option<&Location> {
        self.merged.written_at(keys)
    }

    /// What is wrong with a value, or with the lack of one, that only shows when it is used.
    pub(crate) fn mistake(&self, path: &str, what: impl Into<String>) -> Unusable {
        // Not written anywhere: then it is missing where most would write it.
        let nowhere = || self.files.last().map_or(Location::Flag, |file| Location::File(Arc::from(&**file)));
        let at = self.merged.written_near(path).cloned().unwrap_or_else(nowhere);
        Unusable { errors: vec![Finding::new(at, path, what)], warnings: Vec::new(), why: Why::Wrong }
    }
}

impl Sources {
    pub(crate) fn new(file: Option<PathBuf>, settings: Vec<Setting>) -> Self {
        let main = file.map_or_else(|| Main::Default(DEFAULT_FILE.into()), Main::Named);
        Self { main, settings }
    }

    /// Without the file that is read when none is named: it describes this machine's production.
    pub(crate) fn without_default(self) -> Self {
        match self.main {
            Main::Default(_) => Self { main: Main::None, ..self },
            Main::Named(_) | Main::None => self,
        }
    }

    pub(crate) fn load(self) -> Result<Loaded, Unusable> {
        let mut warnings = Vec::new();
        let Read { files, documents, unreadable } = self.read(&mut warnings);
        if let Some(first) = unreadable.first() {
            let why = first.why;
            let errors = unreadable.into_iter().map(|u| u.finding).collect();
            return Err(Unusable { errors, warnings, why });
        }
        let mut errors = Vec::new();
        // Before the merge: there a null removes its key, and a misspelt one would go with it unseen.
        for Unknown { mut finding, slip } in documents.iter().flat_map(|d| decode::<Config>(d).unknown) {
            // A file may be shared with a newer version that knows more keys. What was typed just now is a
            // mistake, and so is a known key written wrongly: `Mode: observe` must not end in writes.
            if slip || finding.at == Location::Flag {
                // A flag may be repeated.
                if !errors.contains(&finding) {
                    errors.push(finding);
                }
            } else {
                finding.message.push_str(", ignored");
                warnings.push(finding);
            }
        }
        let at = documents.first().map_or(Location::Flag, |document| document.at.clone());
        let nothing = Node::new(Value::Map(Vec::new()), at);
        let merged = documents.into_iter().fold(nothing, merge);
        match decode::<Config>(&merged).result {
            Ok(config) if errors.is_empty() => Ok(Loaded { config, files, warnings, merged }),
            result => {
                let mut errors = [result.err().unwrap_or_default(), errors].concat();
                errors.sort_by(|a, b| a.at.cmp(&b.at));
                Err(Unusable { errors, warnings, why: Why::Wrong })
            }
        }
    }

    fn read(self, warnings: &mut Vec<Finding>) -> Read {
        let mut read = Read::default();
        let main = match self.main {
            Main::Named(file) => Some((file, true)),
            Main::Default(file) => Some((file, false)),
            Main::None => None,
        };
        let drop_ins = main.as_ref().map_or(Ok(Vec::new()), |(file, _)| drop_ins(file, warnings));
        let drop_ins = drop_ins.unwrap_or_else(|error| {
            read.unreadable.push(error);
            Vec::new()
        });
        // A drop-in that has gone since it was listed is simply not there.
        for (path, required) in main.into_iter().chain(drop_ins.into_iter().map(|file| (file, false))) {
            match document(&path, required) {
                Ok(None) => {}
                Ok(Some(node)) => {
                    read.files.push(path);
                    read.documents.push(node);
                }
                Err(error) => read.unreadable.push(error),
            }
        }
        read.documents.extend(self.settings.into_iter().map(Setting::into_node));
        read
    }
}

/// What the files and flags say, in the order they are merged.
#[derive(Default)]
struct Read {
    files: Vec<PathBuf>,
    /// One for each file, then one for each flag.
    documents: Vec<Node>,
    unreadable: Vec<Unreadable>,
}

struct Unreadable {
    finding: Finding,
    why: Why,
}

impl Unreadable {
    fn io(path: &Path, error: &io::Error) -> Self {
        let (why, message) = match error.kind() {
            ErrorKind::NotFound if path.is_symlink() => {
                (Why::Wrong, "this is a link that leads nowhere".to_owned())
            }
            ErrorKind::NotFound => (Why::Missing, "there is no such file".to_owned()),
            ErrorKind::PermissionDenied => (Why::Denied, "not readable for this user".to_owned()),
            ErrorKind::IsADirectory => (Why::Wrong, "this is a directory, not a YAML file".to_owned()),
            ErrorKind::NotADirectory => (Why::Wrong, "this is not a directory".to_owned()),
            _ => (Why::Wrong, format!("cannot be read: {error}")),
        };
        Self { finding: Finding::new(Location::File(Arc::from(path)), "", message), why }
    }
}

impl From<Finding> for Unreadable {
    fn from(finding: Finding) -> Self {
        Self { finding, why: Why::Wrong }
    }
}

/// The content of one file; `None` for a file that is not there and need not be.
fn document(path: &Path, required: bool) -> Result<Option<Node>, Unreadable> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(content(path, &bytes)?)),
        // A link is there, even if it leads nowhere.
        Err(error) if error.kind() == ErrorKind::NotFound && !required && !path.is_symlink() => Ok(None),
        Err(error) => Err(Unreadable::io(path, &error)),
    }
}

fn content(path: &Path, bytes: &[u8]) -> Result<Node, Finding> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = good.split(|b| *b == b'\n').count();
        Finding::new(
            Location::Line { file: Arc::from(path), line, column: None },
            "",
            "this is not UTF-8 text",
        )
    })?;
    let node = yaml::parse(path, text)?;
    match node.value {
        // An empty file, or one with comments only, changes nothing; by the letter of RFC 7396 a null would
        // erase all the files before it.
        Value::Null => Ok(Node::new(Value::Map(Vec::new()), node.at)),
        Value::Map(_) => Ok(node),
        ref other => {
            let message =
                format!("expected keys and values such as `mode: observe`, found {}", other.describe());
            Err(Finding::new(node.at, "", message))
        }
    }
}

/// The drop-in files of `file`, in the order they are merged.
fn drop_ins(file: &Path, warnings: &mut Vec<Finding>) -> Result<Vec<PathBuf>, Unreadable> {
    let directory = file.with_extension("d");
    if directory == file {
        return Ok(Vec::new());
    }
    let listing = match std::fs::read_dir(&directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound && !directory.is_symlink() => return Ok(Vec::new()),
        Err(error) => return Err(Unreadable::io(&directory, &error)),
    };
    let mut names = Vec::new();
    for entry in listing {
        names.push(entry.map_err(|error| Unreadable::io(&directory, &error))?.file_name());
    }
    names.sort();
    let mut files = Vec::new();
    for name in names {
        let path = directory.join(&name);
        match path.extension().and_then(OsStr::to_str) {
            // Editors and mounted ConfigMaps keep files of their own behind a dot.
            _ if name.as_encoded_bytes().starts_with(b".") => {}
            Some("yaml") => files.push(path),
            Some("yml") => warnings.push(Finding::new(
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

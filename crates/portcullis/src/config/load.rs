//! Finds the configuration files, merges them and decodes the result.
//!
//! `/etc/portcullis/config.yaml` is read first, then every `*.yaml` directly in `/etc/portcullis/config.d/` (not
//! in directories below it) in the byte order of their names, then the `--set` flags. Each one changes what the
//! ones before it said. Below all of them is what `MicroShift` says, if they name its configuration.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decode::{Unknown, decode};
use super::finding::Finding;
use super::merge::merge;
use super::microshift::{self, MicroShift};
use super::node::{Location, Node, Value};
use super::set::Setting;
use super::single_node::{Ingress, IngressStatus};
use super::{Config, yaml};

const DEFAULT_FILE: &str = "/etc/portcullis/config.yaml";

/// Where `MicroShift` has its own router.
const THEIR_NAMESPACE: &str = "openshift-ingress";

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
        Unusable { errors: vec![self.finding(path, what)], warnings: Vec::new(), why: Why::Wrong }
    }

    /// What is to be said about a value, with the place where it was written.
    pub(crate) fn finding(&self, path: &str, what: impl Into<String>) -> Finding {
        // Not written anywhere: then it is missing where most would write it.
        let nowhere = || self.files.last().map_or(Location::Flag, |file| Location::File(Arc::from(&**file)));
        let at = self.merged.written_near(path).cloned().unwrap_or_else(nowhere);
        Finding::new(at, path, what)
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
        let Together { merged, theirs } = match together(&documents) {
            Ok(found) => found,
            Err(NoMicroShift::Missing(finding)) => {
                return Err(Unusable { errors: vec![finding], warnings, why: Why::Wrong });
            }
            Err(NoMicroShift::Unreadable(unreadable)) => {
                let why = unreadable.first().map_or(Why::Wrong, |first| first.why);
                let errors = unreadable.into_iter().map(|u| u.finding).collect();
                return Err(Unusable { errors, warnings, why });
            }
        };
        let is_removed = has_status(&merged, IngressStatus::Removed);
        // Before the merge: there a null removes its key, and a misspelt one would go with it unseen.
        for Unknown { mut finding, slip } in documents.iter().flat_map(|d| decode::<Config>(d).unknown) {
            let counts = !(is_removed && finding.path.starts_with("ingress."));
            // A file may be shared with a newer version that knows more keys. What was typed just now is a
            // mistake, and so is a known key written wrongly: `Mode: observe` must not end in writes.
            if counts && (slip || finding.at == Location::Flag) {
                // A flag may be repeated.
                if !errors.contains(&finding) {
                    errors.push(finding);
                }
            } else {
                finding.message.push_str(", ignored");
                warnings.push(finding);
            }
        }
        let merged = if is_removed { without_the_rest(merged) } else { merged };
        match decode::<Config>(&merged).result {
            Ok(config) if errors.is_empty() => {
                warnings.extend(doubts(&config, &merged, theirs.as_ref()));
                let theirs = theirs.map(|theirs| {
                    warnings.extend(theirs.unknown);
                    theirs.files
                });
                let files = theirs.into_iter().flatten().chain(files).collect();
                Ok(Loaded { config, files, warnings, merged })
            }
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

/// What all files and flags amount to.
struct Together {
    merged: Node,
    /// What `MicroShift` says, if it is asked.
    theirs: Option<MicroShift>,
}

/// Why `MicroShift`'s configuration cannot be read.
enum NoMicroShift {
    Missing(Finding),
    Unreadable(Vec<Unreadable>),
}

/// Merges what the files and flags say, over what `MicroShift` says if one of them names its configuration.
fn together(documents: &[Node]) -> Result<Together, NoMicroShift> {
    let at = documents.first().map_or(Location::Flag, |document| document.at.clone());
    let nothing = Node::new(Value::Map(Vec::new()), at);
    let merged = documents.iter().cloned().fold(nothing, merge);
    let is_enabled = merged.get(&["singleNode", "enabled"]).map(|node| &node.value);
    let named = merged.get(&["singleNode", "microshift"]).map(|node| (&node.value, &node.at));
    let (Some(Value::Bool(true, _)), Some((Value::Text(file), at))) = (is_enabled, named) else {
        return Ok(Together { merged, theirs: None });
    };
    let file = Path::new(file);
    let Some(theirs) = microshift::read(file).map_err(NoMicroShift::Unreadable)? else {
        return Err(NoMicroShift::Missing(microshift::missing(file, at.clone())));
    };
    let merged = documents.iter().cloned().fold(theirs.document.clone(), merge);
    Ok(Together { merged, theirs: Some(theirs) })
}

fn has_status(node: &Node, status: IngressStatus) -> bool {
    let word = match status {
        IngressStatus::Managed => "Managed",
        IngressStatus::Removed => "Removed",
    };
    let found = node.get(&["ingress", "status"]).map(|node| &node.value);
    matches!(found, Some(Value::Text(text)) if text == word)
}

/// Without what nobody reads of a router that is not there. It may be wrong.
fn without_the_rest(mut merged: Node) -> Node {
    if let Value::Map(sections) = &mut merged.value {
        for section in sections.iter_mut().filter(|section| section.key == "ingress") {
            if let Value::Map(entries) = &mut section.node.value {
                entries.retain(|entry| entry.key == "status");
            }
        }
    }
    merged
}

/// What can be carried out, and is hardly what somebody wants.
fn doubts(config: &Config, merged: &Node, theirs: Option<&MicroShift>) -> Option<Finding> {
    let single_node = &config.single_node;
    if !single_node.enabled {
        let at = merged.written_at(&["ingress"])?.clone();
        let what = "nothing comes of this section, which is about the router of a single node";
        // What `show-config` printed has all sections.
        return (config.ingress != Ingress::default()).then(|| {
            Finding::new(at, "ingress", what).with_hint("Set singleNode.enabled, or remove the section")
        });
    }
    if config.ingress.status == IngressStatus::Removed {
        return None;
    }
    let at = merged.written_at(&["singleNode", "microshift"])?.clone();
    let file = theirs?.files.last()?.display();
    if !has_status(&theirs?.document, IngressStatus::Removed) {
        let what = "MicroShift makes a router of its own, which wants the same ports";
        let hint =
            format!("Set ingress.status to Removed in {file} or in a file beside it, and to Managed here");
        return Some(Finding::new(at, "singleNode.microshift", what).with_hint(hint));
    }
    // Whoever has its own router removed loses the namespace with it.
    (single_node.namespace == THEIR_NAMESPACE).then(|| {
        let at = merged.written_at(&["singleNode", "namespace"]).cloned().unwrap_or(at);
        let what = format!("MicroShift deletes the namespace {THEIR_NAMESPACE} whenever it starts without a router of its own");
        Finding::new(at, "singleNode.namespace", what).with_hint("Choose another one")
    })
}

/// What the files and flags say, in the order they are merged.
#[derive(Default)]
struct Read {
    files: Vec<PathBuf>,
    /// One for each file, then one for each flag.
    documents: Vec<Node>,
    unreadable: Vec<Unreadable>,
}

#[derive(Debug)]
pub(super) struct Unreadable {
    finding: Finding,
    why: Why,
}

impl Unreadable {
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
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
pub(super) fn document(path: &Path, required: bool) -> Result<Option<Node>, Unreadable> {
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

//! `MicroShift`'s configuration, as a document in the words of ours.
//!
//! It is read as `MicroShift` reads it: the file, then every `*.yaml` in `config.d` beside it and in directories below that, each
//! merged over the ones before. Keys are known in any case. What is null or an empty text there says nothing.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path as FilePath, PathBuf};

use serde_json::{Value as Pattern, json};

use super::finding::{Finding, did_you_mean};
use super::load::{Unreadable, document};
use super::merge::merge;
use super::node::{Entry, Location, Node, Value};
use super::path::Path;
use super::single_node::Ingress;

/// What of it is of use here.
#[derive(Debug)]
pub(super) struct MicroShift {
    /// The files read, in the order they were merged.
    pub(super) files: Vec<PathBuf>,
    /// Our own configuration, as far as it says anything about that.
    pub(super) document: Node,
    /// Keys of the router that are not known.
    pub(super) unknown: Vec<Finding>,
}

/// Reads it; nothing, if there is neither the file nor anything beside it.
pub(super) fn read(file: &FilePath) -> Result<Option<MicroShift>, Vec<Unreadable>> {
    let mut paths = vec![file.to_owned()];
    let beside = file.with_file_name("config.d");
    drop_ins(&beside, &mut paths).map_err(|error| vec![Unreadable::io(&beside, &error)])?;
    let (mut files, mut documents, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        match document(&path, false) {
            Ok(None) => {}
            Ok(Some(node)) => {
                files.push(path);
                documents.push(node);
            }
            Err(error) => wrong.push(error),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    // The first one is no change of anything: its nulls stay, and say nothing.
    let Some(merged) = documents.into_iter().reduce(merge) else { return Ok(None) };
    let (document, unknown) = in_our_words(merged);
    Ok(Some(MicroShift { files, document, unknown }))
}

/// All files of a directory, and of those in it, by name.
fn drop_ins(directory: &FilePath, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let listing = match std::fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut entries = listing.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_type()?.is_dir() {
            drop_ins(&entry.path(), files)?;
        } else if is_read(&entry.file_name()) {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn is_read(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b".yaml")
}

/// What is taken from it, in our words, and which keys of its router are not known.
fn in_our_words(merged: Node) -> (Node, Vec<Finding>) {
    let at = merged.at.clone();
    let pattern = json!({
        "ingress": Ingress::keys(),
        "dns": {"baseDomain": null},
        "network": {"clusterNetwork": [], "serviceNetwork": []},
    });
    let mut unknown = Vec::new();
    let read = folded(merged, &pattern, &Path::Top, &mut unknown);
    // Everything else there is its own business.
    unknown.retain(|finding| finding.path.starts_with("ingress."));
    let mut single_node = Vec::new();
    let mut document = Vec::new();
    let Value::Map(sections) = read.value else { return (Node::new(Value::Map(document), at), unknown) };
    for section in sections {
        match section.key.as_str() {
            "dns" => {
                let entries = entries(section.node).into_iter();
                single_node.extend(entries.filter(|entry| entry.key == "baseDomain"));
            }
            "network" => single_node.extend(addresses(entries(section.node))),
            "ingress" => document.push(section),
            _ => {}
        }
    }
    if let Some(first) = single_node.first() {
        let at = first.key_at.clone();
        let node = Node::new(Value::Map(single_node), at.clone());
        document.push(Entry { key: "singleNode".to_owned(), key_at: at, node });
    }
    (Node::new(Value::Map(document), at), unknown)
}

/// Which families the networks of the cluster have.
fn addresses(network: Vec<Entry>) -> Option<Entry> {
    let (mut four, mut six, mut place) = (false, false, None);
    for entry in network {
        let Value::List(ranges) = &entry.node.value else { continue };
        for range in ranges {
            let Value::Text(text) = &range.value else { continue };
            match text.split('/').next().and_then(|address| address.parse().ok()) {
                Some(IpAddr::V4(_)) => four = true,
                Some(IpAddr::V6(_)) => six = true,
                // MicroShift does not start with it.
                None => continue,
            }
            place.get_or_insert_with(|| entry.key_at.clone());
        }
    }
    let word = match (four, six) {
        (true, true) => "both",
        (true, false) => "ipv4",
        (false, true) => "ipv6",
        (false, false) => return None,
    };
    let key_at = place?;
    let node = Node::new(Value::Text(word.to_owned()), key_at.clone());
    Some(Entry { key: "addresses".to_owned(), key_at, node })
}

fn entries(node: Node) -> Vec<Entry> {
    match node.value {
        Value::Map(entries) => entries,
        _ => Vec::new(),
    }
}

/// A node with its keys as they are written in `pattern`, and without what says nothing.
///
/// Go writes keys in the order of their bytes before it reads them, and of those that are the same but for their case the last
/// one counts.
fn folded(node: Node, pattern: &Pattern, path: &Path<'_>, unknown: &mut Vec<Finding>) -> Node {
    let at = node.at;
    let value = match (node.value, pattern) {
        (Value::Map(mut entries), Pattern::Object(known)) => {
            entries.sort_by(|a, b| a.key.cmp(&b.key));
            let mut all: Vec<Entry> = Vec::new();
            for entry in entries {
                let Some((key, pattern)) = find(known, &entry.key) else {
                    unknown.push(not_known(&entry, known, path));
                    continue;
                };
                let node = folded(entry.node, pattern, &Path::Key(path, key), unknown);
                if says_nothing(&node) {
                    continue;
                }
                let entry = Entry { key: key.clone(), key_at: entry.key_at, node };
                match all.iter_mut().find(|other| other.key == entry.key) {
                    Some(other) => {
                        let nothing = Node::new(Value::Null, other.node.at.clone());
                        let before = std::mem::replace(&mut other.node, nothing);
                        *other = Entry { node: merge(before, entry.node), ..entry };
                    }
                    None => all.push(entry),
                }
            }
            Value::Map(all)
        }
        (Value::List(items), Pattern::Array(entries)) => {
            let pattern = entries.first().unwrap_or(&Pattern::Null);
            let items = items.into_iter().enumerate();
            let items = items.map(|(index, item)| folded(item, pattern, &Path::Item(path, index), unknown));
            Value::List(items.filter(|item| !says_nothing(item)).collect())
        }
        (value, _) => value,
    };
    Node::new(value, at)
}

fn says_nothing(node: &Node) -> bool {
    matches!(&node.value, Value::Null) || matches!(&node.value, Value::Text(text) if text.is_empty())
}

fn find<'a>(known: &'a serde_json::Map<String, Pattern>, written: &str) -> Option<(&'a String, &'a Pattern)> {
    let same = |key: &&String| key.to_lowercase() == written.to_lowercase();
    known.get_key_value(written).or_else(|| known.iter().find(|(key, _)| same(key)))
}

fn not_known(entry: &Entry, known: &serde_json::Map<String, Pattern>, path: &Path<'_>) -> Finding {
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let place = Path::Key(path, &entry.key).to_string();
    let finding = Finding::new(entry.key_at.clone(), place, "unknown key, ignored");
    match did_you_mean(&entry.key, &names) {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    }
}

/// What would be read, for who says that nothing is there.
pub(super) fn missing(file: &FilePath, at: Location) -> Finding {
    let what = format!("there is no {}, and nothing in config.d beside it", file.display());
    Finding::new(at, "singleNode.microshift", what)
        .with_hint("Name MicroShift's configuration, such as /etc/microshift/config.yaml, or remove the key")
}

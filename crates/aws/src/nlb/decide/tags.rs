//! Tags, which say whose something is.

use std::collections::BTreeMap;

use crate::client::TAGGED;
use crate::model::Tags;
use crate::nlb::snapshot::Group;
use crate::nlb::step::Step;

/// Which keys were written besides ours, so that they can be taken away again.
const TAGS_KEY: &str = "portcullis.dev/tags";

/// What stands between keys in a list of them.
const BETWEEN: &str = "=";

/// The tags with a list of those that are not ours by their key.
pub(in crate::nlb) fn wanted_tags(tags: &Tags) -> Tags {
    let others =
        tags.keys().filter(|key| !key.starts_with("portcullis.dev/") && !key.starts_with("kubernetes.io/"));
    // Keys may have blanks in them. Those with the sign between them stay when nobody wants them any more.
    let others = others.filter(|key| !key.contains(BETWEEN));
    let list = others.cloned().collect::<Vec<_>>().join(BETWEEN);
    let mut tags = tags.clone();
    // A longer one cannot be written; those tags stay when nobody wants them any more.
    if !list.is_empty() && list.chars().count() <= 256 {
        tags.insert(TAGS_KEY.to_owned(), list);
    }
    tags
}

/// What has to be written, and what to be taken away.
fn tag_changes(known: &Tags, wanted: &Tags) -> (Tags, Vec<String>) {
    let add = wanted.iter().filter(|(key, value)| known.get(*key) != Some(value));
    let add = add.map(|(key, value)| (key.clone(), value.clone())).collect();
    let written = known.get(TAGS_KEY).map(String::as_str).unwrap_or_default().split(BETWEEN);
    let mut remove: Vec<String> = written
        .chain([TAGS_KEY])
        .filter(|key| known.contains_key(*key) && !wanted.contains_key(*key))
        .map(str::to_owned)
        .collect();
    remove.sort_unstable();
    (add, remove)
}

/// Writes on objects, by what is written on each; those that lack the same by one call.
pub(super) fn tag<'a>(
    steps: &mut Vec<Step>,
    known: impl IntoIterator<Item = (&'a str, &'a Tags)>,
    tags: &Tags,
) {
    let wanted = wanted_tags(tags);
    let (mut adding, mut removing) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
    for (arn, known) in known {
        let (add, remove) = tag_changes(known, &wanted);
        adding.entry(add).or_default().push(arn.to_owned());
        removing.entry(remove).or_default().push(arn.to_owned());
    }
    for (tags, arns) in adding.into_iter().filter(|(tags, _)| !tags.is_empty()) {
        steps.extend(arns.chunks(TAGGED).map(|arns| Step::Tag { arns: arns.to_vec(), tags: tags.clone() }));
    }
    for (keys, arns) in removing.into_iter().filter(|(keys, _)| !keys.is_empty()) {
        steps.extend(arns.chunks(TAGGED).map(|arns| Step::Untag { arns: arns.to_vec(), keys: keys.clone() }));
    }
}

pub(in crate::nlb) fn tag_group(steps: &mut Vec<Step>, group: &Group, wanted: &Tags) {
    let (add, remove) = tag_changes(&group.group.tags, wanted);
    let id = || group.group.id.clone();
    if !add.is_empty() {
        steps.push(Step::TagGroup { group: id(), tags: add });
    }
    if !remove.is_empty() {
        steps.push(Step::UntagGroup { group: id(), keys: remove });
    }
}

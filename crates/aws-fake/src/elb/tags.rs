//! What is written on load balancers, target groups and listeners.

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::World;
use crate::{Tags, xml};

use super::{Kind, invalid};

/// So many are on one object at most.
const MOST: usize = 50;

/// So many objects are named by a call at most.
const NAMED: usize = 20;

/// Takes the tags of something that is to be made.
pub(super) fn take(request: &mut Request) -> Result<Tags, Refusal> {
    let mut tags = Tags::new();
    for mut tag in request.structures("Tags")? {
        let key = tag.needed("Key")?;
        let value = tag.text("Value")?.unwrap_or_default();
        tag.end()?;
        check(&key, 128)?;
        check(&value, 256)?;
        if key.to_ascii_lowercase().starts_with("aws:") {
            return Err(invalid(format!("Tag key '{key}' is reserved: it begins with 'aws:'")));
        }
        if tags.insert(key.clone(), value).is_some() {
            return Err(Refusal::new("DuplicateTagKeys", format!("Tag key '{key}' is given twice")));
        }
    }
    if tags.len() > MOST { Err(too_many()) } else { Ok(tags) }
}

fn too_many() -> Refusal {
    Refusal::new("TooManyTags", format!("The maximum number of tags per resource is {MOST}"))
}

fn check(text: &str, longest: usize) -> Result<(), Refusal> {
    let allowed = |character: char| {
        character.is_alphanumeric() || character.is_whitespace() || "_.:/=+-@".contains(character)
    };
    if text.chars().count() <= longest && text.chars().all(allowed) {
        return Ok(());
    }
    Err(invalid(format!(
        "1 validation error detected: Value '{text}' at 'tags' failed to satisfy constraint"
    )))
}

fn resources(request: &mut Request) -> Result<Vec<String>, Refusal> {
    let arns = request.list("ResourceArns")?;
    if arns.is_empty() {
        return Err(request.missing("ResourceArns"));
    }
    if arns.len() > NAMED {
        let message =
            format!("Up to '{NAMED}' resource ARNs can be specified, but '{}' were specified", arns.len());
        return Err(invalid(message));
    }
    for arn in &arns {
        Kind::of(arn).ok_or_else(|| invalid(format!("'{arn}' is not a valid resource ARN")))?;
    }
    Ok(arns)
}

/// The tags of something.
fn tags_of<'a>(world: &'a World, arn: &str) -> Result<&'a Tags, Refusal> {
    let kind = Kind::of(arn).ok_or_else(|| invalid(format!("'{arn}' is not a valid resource ARN")))?;
    let found = match kind {
        Kind::LoadBalancer => world.load_balancers.get(arn).map(|found| &found.tags),
        Kind::TargetGroup => world.target_groups.get(arn).map(|found| &found.tags),
        Kind::Listener => {
            let mut all = world.load_balancers.values().filter_map(|found| found.listeners.get(arn));
            all.next().map(|found| &found.tags)
        }
    };
    found.ok_or_else(|| kind.not_found(arn))
}

/// The same, to be changed.
fn tags_mut<'a>(world: &'a mut World, arn: &str) -> Option<&'a mut Tags> {
    match Kind::of(arn)? {
        Kind::LoadBalancer => world.load_balancers.get_mut(arn).map(|found| &mut found.tags),
        Kind::TargetGroup => world.target_groups.get_mut(arn).map(|found| &mut found.tags),
        Kind::Listener => {
            let mut all = world.load_balancers.values_mut().filter_map(|found| found.listeners.get_mut(arn));
            all.next().map(|found| &mut found.tags)
        }
    }
}

pub(super) fn describe(world: &World, mut request: Request) -> Result<String, Refusal> {
    let arns = resources(&mut request)?;
    request.end()?;
    let mut entries = Vec::new();
    for arn in &arns {
        let tags = tags_of(world, arn)?.iter();
        let tags = tags.map(|(key, value)| xml::leaf("Key", key) + &xml::leaf("Value", value));
        entries.push(xml::leaf("ResourceArn", arn) + &xml::members("Tags", tags));
    }
    Ok(xml::members("TagDescriptions", entries))
}

pub(super) fn add(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arns = resources(&mut request)?;
    let tags = take(&mut request)?;
    if tags.is_empty() {
        return Err(request.missing("Tags"));
    }
    request.end()?;
    let world = &mut machine.moment.world;
    for arn in &arns {
        let found = tags_of(world, arn)?;
        if found.len() + tags.keys().filter(|key| !found.contains_key(*key)).count() > MOST {
            return Err(too_many());
        }
    }
    for arn in &arns {
        if let Some(found) = tags_mut(world, arn) {
            found.extend(tags.clone());
        }
    }
    Ok(String::new())
}

pub(super) fn remove(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arns = resources(&mut request)?;
    let keys = request.list("TagKeys")?;
    if keys.is_empty() {
        return Err(request.missing("TagKeys"));
    }
    request.end()?;
    let world = &mut machine.moment.world;
    for arn in &arns {
        tags_of(world, arn)?;
    }
    for arn in &arns {
        if let Some(found) = tags_mut(world, arn) {
            found.retain(|key, _| !keys.contains(key));
        }
    }
    Ok(String::new())
}

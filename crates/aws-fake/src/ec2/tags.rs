//! What is written on objects of EC2.

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{Rule, World};
use crate::{Tags, xml};

use super::invalid;

/// So many are on one object at most.
const MOST: usize = 50;

/// Takes a list of tags.
fn take(request: &mut Request, name: &str) -> Result<Tags, Refusal> {
    let mut tags = Tags::new();
    for mut tag in request.structures(name)? {
        let key = tag.needed("Key")?;
        let value = tag.text("Value")?.unwrap_or_default();
        tag.end()?;
        check(&key, &value)?;
        if tags.insert(key.clone(), value).is_some() {
            return Err(invalid(format!("Duplicate tag key '{key}' specified.")));
        }
    }
    Ok(tags)
}

fn check(key: &str, value: &str) -> Result<(), Refusal> {
    if key.to_ascii_lowercase().starts_with("aws:") {
        return Err(invalid("Tag keys starting with 'aws:' are reserved for internal use"));
    }
    if key.chars().count() > 127 {
        return Err(invalid(format!("Tag key exceeds the maximum length of 127 characters: {key}")));
    }
    if value.chars().count() > 256 {
        return Err(invalid(format!("Tag value exceeds the maximum length of 256 characters: {value}")));
    }
    Ok(())
}

fn too_many() -> Refusal {
    Refusal::new("TagLimitExceeded", "More than 50 tags specified")
}

/// Takes the tags of something that is to be made.
pub(super) fn specified(request: &mut Request, kind: &str) -> Result<Tags, Refusal> {
    let mut tags = Tags::new();
    for mut specification in request.structures("TagSpecification")? {
        let found = specification.needed("ResourceType")?;
        if found != kind {
            return Err(invalid(format!(
                "'{found}' is not a valid taggable resource type for this operation."
            )));
        }
        let mut more = take(&mut specification, "Tag")?;
        specification.end()?;
        if more.is_empty() {
            return Err(invalid("Tag specification must have at least one tag"));
        }
        tags.append(&mut more);
    }
    if tags.len() > MOST { Err(too_many()) } else { Ok(tags) }
}

/// The tags of something.
fn tags_of<'a>(world: &'a mut World, id: &str) -> Result<&'a mut Tags, Refusal> {
    let kind = id.split('-').next().unwrap_or_default();
    let found = match kind {
        "sg" => world.groups.get_mut(id).map(|found| &mut found.tags),
        "subnet" => world.subnets.get_mut(id).map(|found| &mut found.tags),
        "vpc" => world.vpcs.get_mut(id).map(|found| &mut found.tags),
        "rtb" => world.route_tables.get_mut(id).map(|found| &mut found.tags),
        "i" => world.instances.get_mut(id).map(|found| &mut found.tags),
        "sgr" => {
            let groups = world.groups.values_mut();
            let mut rules =
                groups.flat_map(|group| group.ingress.values_mut().chain(group.egress.values_mut()));
            rules.find(|rule: &&mut Rule| rule.id == id).map(|rule| &mut rule.tags)
        }
        _ => return Err(Refusal::new("InvalidID", format!("The ID '{id}' is not valid"))),
    };
    let word = match kind {
        "sg" => "InvalidGroup",
        "subnet" => "InvalidSubnetID",
        "vpc" => "InvalidVpcID",
        "rtb" => "InvalidRouteTableID",
        "i" => "InvalidInstanceID",
        _ => "InvalidSecurityGroupRuleId",
    };
    found.ok_or_else(|| Refusal::new(&format!("{word}.NotFound"), format!("The ID '{id}' does not exist")))
}

fn resources(request: &mut Request) -> Result<Vec<String>, Refusal> {
    let ids = request.list("ResourceId")?;
    if ids.is_empty() {
        return Err(request.missing("ResourceId"));
    }
    if ids.len() > 1000 {
        return Err(invalid("Up to 1000 resources are tagged by a call"));
    }
    Ok(ids)
}

pub(super) fn create(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let ids = resources(&mut request)?;
    let tags = take(&mut request, "Tag")?;
    if tags.is_empty() {
        return Err(request.missing("Tag"));
    }
    request.end()?;
    let world = &mut machine.moment.world;
    for id in &ids {
        let found = tags_of(world, id)?;
        if found.len() + tags.keys().filter(|key| !found.contains_key(*key)).count() > MOST {
            return Err(too_many());
        }
    }
    for id in &ids {
        tags_of(world, id)?.extend(tags.clone());
    }
    Ok(xml::leaf("return", true))
}

pub(super) fn delete(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let ids = resources(&mut request)?;
    let mut tags = Vec::new();
    for mut tag in request.structures("Tag")? {
        tags.push((tag.needed("Key")?, tag.text("Value")?));
        tag.end()?;
    }
    request.end()?;
    let world = &mut machine.moment.world;
    for id in &ids {
        tags_of(world, id)?;
    }
    for id in &ids {
        let found = tags_of(world, id)?;
        // Without any, all go; with a value, only one that has it.
        found.retain(|key, value| {
            let goes = |(gone, with): &(String, Option<String>)| {
                gone == key && with.as_ref().is_none_or(|with| with == value)
            };
            !tags.is_empty() && !tags.iter().any(goes)
        });
    }
    Ok(xml::leaf("return", true))
}

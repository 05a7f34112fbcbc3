use std::sync::{Arc, LazyLock};

use portcullis_core::Cidr;
use portcullis_ovn::objects::AddressGroup;
use portcullis_ovn::{Draft, Model};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Context, Few, Resource, common, network};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{Kind, SAID, list, range, shown};
use crate::query::Query;

pub(crate) struct AddressGroups;

static ATTRIBUTES: LazyLock<Vec<Attribute<AddressGroup>>> = LazyLock::new(|| {
    let mut attributes = common::attributes();
    attributes.extend([
        common::name(),
        Attribute::new("shared", SAID, |group, view| json!(is_shared(group, view))),
        Attribute::new("addresses", ADDRESSES, |group: &AddressGroup, _| json!(group.addresses)).post(),
    ]);
    attributes
});

/// Ranges, of which the bits beyond the prefix mean nothing.
const ADDRESSES: Kind = Kind::List(|value| {
    let range = value.as_str().and_then(|text| text.parse::<Cidr>().ok());
    range
        .map(|range| json!(range.network()))
        .ok_or_else(|| format!("'{}' is not a valid IP subnet", shown(value)))
});

fn is_shared(group: &AddressGroup, view: &View<'_>) -> bool {
    network::is_given(view.model, group.meta.id, "access_as_shared", &view.caller.project)
}

impl Resource for AddressGroups {
    type Object = AddressGroup;

    const NAME: &'static str = "address_group";
    const PLURAL: &'static str = "address_groups";
    const COLLECTION: &'static str = "address-groups";

    fn attributes() -> &'static [Attribute<AddressGroup>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("AddressGroupNotFound", format!("Address group {id} could not be found."))
    }

    fn is_visible(group: &AddressGroup, view: &View<'_>) -> bool {
        view.caller.owns(&group.meta.project) || is_shared(group, view)
    }

    /// Neutron does not look whether a group is shared before it is changed, and says that it is not there.
    fn refusal(group: &AddressGroup, view: &View<'_>, verb: &str) -> Error {
        if verb == "update" && !view.caller.owns(&group.meta.project) {
            return Error::no_such_resource();
        }
        Error::forbidden(&format!("{verb}_{}", Self::NAME))
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, AddressGroup>> {
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let meta = common::meta(context, input)?;
        let id = meta.id;
        let addresses = input.parsed_list::<Cidr>("addresses").unwrap_or_default();
        draft.put(AddressGroup { meta, addresses: addresses.into_iter().collect() });
        Ok(id)
    }

    fn update(
        draft: &mut Draft,
        context: &Context,
        old: &Arc<AddressGroup>,
        input: &Input,
    ) -> Result<(), Error> {
        let mut group = AddressGroup::clone(old);
        common::edit(&mut group.meta, context, input);
        draft.put(group);
        Ok(())
    }

    fn delete(draft: &mut Draft, _context: &Context, old: &Arc<AddressGroup>) -> Result<(), Error> {
        let id = old.meta.id;
        if draft.rules_to(id).next().is_some() {
            return Err(Error::conflict(
                "AddressGroupInUse",
                format!("Address group {id} is in use on one or more security group rules."),
            ));
        }
        super::remove_policies(draft, id);
        draft.remove::<AddressGroup>(id);
        Ok(())
    }
}

/// Adds addresses to a group, or takes them away: `{"addresses": […]}`.
pub(crate) fn change_addresses(
    draft: &mut Draft,
    context: &Context,
    id: Uuid,
    body: &Value,
    add: bool,
) -> Result<(), Error> {
    let body = body.get("address_group").unwrap_or(body);
    let given =
        body.get("addresses").ok_or_else(|| Error::bad_request("Missing required attribute 'addresses'"))?;
    let wrong = |reason: String| Error::invalid_attribute("addresses", reason);
    let given: Vec<Cidr> = list(given)
        .map_err(wrong)?
        .iter()
        .map(|value| {
            let range = value.as_str().and_then(range).map(|range| range.network());
            range.ok_or_else(|| wrong(format!("'{}' is not a valid IP subnet", shown(value))))
        })
        .collect::<Result<_, _>>()?;
    let Some(group) = draft.get::<AddressGroup>(id) else {
        return Err(AddressGroups::not_found(&id.to_string()));
    };
    let mut group = AddressGroup::clone(group);
    let wrong: Vec<&Cidr> = given.iter().filter(|range| group.addresses.contains(range) == add).collect();
    if !wrong.is_empty() {
        let list = wrong.iter().map(|range| format!("'{range}'")).collect::<Vec<_>>().join(", ");
        return Err(if add {
            Error::invalid(
                "AddressesAlreadyExist",
                format!("Addresses [{list}] already exist in the address group {id}."),
            )
        } else {
            Error::not_found(
                "AddressesNotFound",
                format!("Addresses [{list}] not found in the address group {id}."),
            )
        });
    }
    for range in given {
        if add {
            group.addresses.insert(range);
        } else {
            group.addresses.remove(&range);
        }
    }
    common::touch(&mut group.meta, context);
    draft.put(group);
    Ok(())
}

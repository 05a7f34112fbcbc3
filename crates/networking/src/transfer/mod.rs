//! Security groups as a file: `GET /v2.0/security-groups/export` and `PUT /v2.0/security-groups/import`.
//!
//! The file is YAML and speaks of one project. Groups are told by their names; where a name is not enough, since two
//! have it or there is none, by an id besides.

mod export;
mod import;
mod yaml;

pub(crate) use export::answer as export;
pub(crate) use import::answer as import;

use portcullis_ovn::{Model, Stored};
use uuid::Uuid;

use crate::attributes::Input;
use crate::error::Error;
use crate::kinds::{Kind, NAME};
use crate::query::pairs;
use crate::request::Request;
use crate::resources::{Context, common};

/// The key of the groups, and of the address groups.
const GROUPS: &str = "security_groups";
const ADDRESS_GROUPS: &str = "address_groups";

/// The project that a request is about: that of who asks, or another for administrators.
fn project(request: &Request, context: &Context) -> Result<String, Error> {
    let given = pairs(&request.query).into_iter().filter(|(key, _)| key == "project_id");
    let mut input = Input::default();
    for (key, value) in given {
        let project = Kind::Text(NAME).check(&value.into());
        input.0.insert(key, project.map_err(|reason| Error::invalid_attribute("project_id", reason))?);
    }
    common::project(context, &input)
}

/// Whether an object's name tells it from all others of its kind and project.
fn is_told<T: Stored>(model: &Model, object: &T) -> bool {
    let meta = object.meta();
    !meta.name.is_empty()
        // A name that could be an id would be taken for one.
        && Uuid::try_parse(&meta.name).is_err()
        && model.named::<T>(&meta.name).filter(|other| other.meta().project == meta.project).nth(1).is_none()
}

//! Has the objects as they should be.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::controller::SingleNode;
use super::fields::differing;
use super::limits::KEEPER;
use super::object::{MANAGER, Object};
use super::trouble::Trouble;
use super::{Changed, Report};
use crate::router::patch;

/// So often something is laid over what somebody writes at the same time.
const TRIES: usize = 5;

impl SingleNode {
    /// Has one object as it should be, by what is there.
    pub(super) async fn apply(
        &self,
        object: &Object,
        have: Option<&DynamicObject>,
        report: &mut Report,
    ) -> Result<(), Trouble> {
        let (api, place) = (self.api_of(object), object.place());
        let Some(have) = have else {
            if !self.settings.observe {
                self.make(&api, object).await?;
            }
            info!(object = place, "{}made", self.would());
            report.made.push(place);
            return Ok(());
        };
        let found = value(have);
        if let Some(field) = object.cannot_become(&found) {
            if !self.settings.observe {
                self.note_limits(object, &found).await?;
                self.delete(&api, &place, have).await?;
                self.wait_until_gone(&api, &place, have).await?;
                self.make(&api, object).await?;
            }
            warn!(
                object = place,
                field,
                "{}made anew, since Kubernetes does not let this field change",
                self.would()
            );
            report.made_anew.push(place);
            return Ok(());
        }
        self.settle_limits(&api, object, &found).await?;
        let made = self.as_made(&api, object).await;
        let Some((before, after)) = object.changed(&found, made.as_ref()) else { return Ok(()) };
        let fields = differing(&before, &after);
        let by = if self.settings.observe {
            BTreeSet::new()
        } else {
            self.put_right(&api, object, have, made.as_ref())
                .await
                .map_err(|error| Trouble::of(&place, &error))?
        };
        // From the same configuration it would be as it was.
        let is_edit = object.is_from_this(&found) || !by.is_empty();
        let by = is_edit.then(|| {
            if by.is_empty() { last_writer(have).into_iter().collect() } else { by.into_iter().collect() }
        });
        tell(&place, &fields, by.as_ref(), self.would());
        report.changed.push(Changed { object: place, fields, by });
        Ok(())
    }

    /// What Kubernetes would make of an object, if it were not there: it is asked to, and not to do it. Who only watches may not.
    async fn as_made(&self, api: &Api<DynamicObject>, object: &Object) -> Option<Value> {
        if self.settings.observe || !object.is_ours_alone() {
            return None;
        }
        let name = format!("{}-as-made", object.name());
        let mut like = object.value.clone();
        like["metadata"]["name"] = json!(name);
        let only_asked = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER) };
        let made = api.patch(&name, &only_asked, &Patch::Apply(&like)).await;
        let made = made.inspect_err(|error| {
            let object = object.place();
            warn!(object, %error, "fields that others added to it cannot be told from those of Kubernetes, and stay");
        });
        made.ok().as_ref().map(value)
    }

    /// Writes it over what is there, and says against whom.
    async fn put_right(
        &self,
        api: &Api<DynamicObject>,
        object: &Object,
        have: &DynamicObject,
        made: Option<&Value>,
    ) -> Result<BTreeSet<String>, kube::Error> {
        let mut against = BTreeSet::new();
        let mut now = match write(api, object, false).await {
            Ok(now) => Some(now),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                against.extend(causes.filter_map(|cause| named(&cause.message)).filter(|by| by != KEEPER));
                None
            }
            // Entries of a list that others added can be in the way, such as a port of the same name.
            Err(kube::Error::Api(status)) if status.code == 422 => None,
            Err(error) => return Err(error),
        };
        if now.is_none() {
            now = match write(api, object, true).await {
                Ok(now) => Some(now),
                Err(kube::Error::Api(status)) if status.code == 422 => {
                    self.lay_over(api, object, have, made).await?;
                    Some(write(api, object, true).await?)
                }
                Err(error) => return Err(error),
            };
        }
        // What others added to lists, and what keeps the router from running.
        if let Some(now) = now {
            self.lay_over(api, object, &now, made).await?;
        }
        Ok(against)
    }

    /// Has it exactly as it should be, also where somebody else has added something.
    async fn lay_over(
        &self,
        api: &Api<DynamicObject>,
        object: &Object,
        have: &DynamicObject,
        made: Option<&Value>,
    ) -> Result<(), kube::Error> {
        let by_us = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let mut newest = have.clone();
        for left in (0..TRIES).rev() {
            let Some((before, after)) = object.changed(&value(&newest), made) else { break };
            match api.patch(object.name(), &by_us, &Patch::Merge(patch(&before, &after))).await {
                // Kubernetes itself notes something on it meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 && left > 0 => {
                    newest = api.get(object.name()).await?;
                }
                done => return done.map(drop),
            }
        }
        Ok(())
    }
}

async fn write(api: &Api<DynamicObject>, object: &Object, force: bool) -> Result<DynamicObject, kube::Error> {
    write_as(api, MANAGER, &object.value, force).await
}

pub(super) async fn write_as(
    api: &Api<DynamicObject>,
    manager: &str,
    value: &Value,
    force: bool,
) -> Result<DynamicObject, kube::Error> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams { force, ..PatchParams::apply(manager) };
    api.patch(name, &params, &Patch::Apply(value)).await
}

/// An object that is there, as it is written.
pub(super) fn value(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value
}

/// Whom a conflict names: `conflict with "kubectl-edit" using v1`.
fn named(message: &str) -> Option<String> {
    message.split('"').nth(1).map(str::to_owned)
}

/// Who else wrote it last.
fn last_writer(have: &DynamicObject) -> Option<String> {
    let others = have.managed_fields().iter().filter(|fields| {
        fields.subresource.as_deref().unwrap_or_default().is_empty()
            && ![Some(MANAGER), Some(KEEPER)].contains(&fields.manager.as_deref())
    });
    others
        .max_by_key(|fields| fields.time.as_ref().map(|time| time.0))
        .and_then(|fields| fields.manager.clone())
}

fn tell(object: &str, fields: &[String], by: Option<&Vec<String>>, would: &str) {
    let fields = fields.join(", ");
    let Some(by) = by else {
        return info!(object, fields, "{would}changed, as the configuration says");
    };
    let by = if by.is_empty() { "nobody knows whom".to_owned() } else { by.join(", ") };
    warn!(object, fields, by, "{would}put back as the configuration says, since somebody changed it");
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn who_is_in_the_way_is_named() {
        assert_eq!(named(r#"conflict with "kubectl-edit" using v1"#).unwrap(), "kubectl-edit");
        assert_eq!(named(r#"conflict with "x" with subresource "scale" using apps/v1"#).unwrap(), "x");
        assert_eq!(named("conflict"), None);
    }
}

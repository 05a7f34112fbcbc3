//! Says how an `IngressController` stands: in its status, and by Events.

use kube::api::{Patch, PatchParams};
use portcullis_kube_api::ingress::{ConditionStatus, IngressController};
use serde_json::json;
use tracing::{info, warn};

use super::controller::{Again, Context};
use super::{Conditions, Look, status};
use crate::events::Weight;
use crate::router;

impl Context {
    /// Writes the status, if it is another than there.
    pub(super) async fn tell_status(&self, look: &Look<'_>, conditions: &Conditions) -> Result<(), Again> {
        let controller = look.controller;
        let status = status(look, conditions);
        if status == controller.status {
            return Ok(());
        }
        if self.settings.observe {
            info!(controller = controller.name(), ?status, "this would be its status");
            return Ok(());
        }
        // Refused if somebody wrote meanwhile: the list of conditions is written as a whole, and others' are in it.
        let version = controller.metadata.resource_version.as_ref();
        let patch = json!({
            "metadata": {"resourceVersion": version},
            "status": router::patch(&controller.status, &status),
        });
        let done =
            self.api().patch_status(controller.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        match done {
            Ok(now) => {
                let now = self.wrote(now);
                self.tell_admission(controller, &now).await;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            // It is told of soon, and looked at again then.
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Again(None)),
            Err(problem) => {
                warn!(controller = controller.name(), %problem, "its status cannot be written");
                let message = format!(
                    "Its status cannot be written, and may be old: {problem}. Routers and Services go on."
                );
                self.tell(controller, Weight::Warning, "StatusNotWritten", &message).await;
                Err(Again(None))
            }
        }
    }

    /// Tells when it is admitted, or not any more.
    async fn tell_admission(&self, before: &IngressController, now: &IngressController) {
        let admitted = |controller: &IngressController| {
            controller.status.conditions.iter().find(|condition| condition.type_ == "Admitted").cloned()
        };
        let (before, Some(now_admitted)) = (admitted(before), admitted(now)) else { return };
        if before.is_some_and(|before| before.status == now_admitted.status) {
            return;
        }
        if now_admitted.status == ConditionStatus::True {
            self.tell(now, Weight::Normal, "Admitted", "It is carried out.").await;
        } else {
            self.tell(now, Weight::Warning, "Rejected", &now_admitted.message).await;
        }
    }

    pub(super) async fn tell(
        &self,
        controller: &IngressController,
        weight: Weight,
        reason: &str,
        message: &str,
    ) {
        // Who only watches writes nowhere; the log has it. Who is told the same again and again hears it now and then.
        if !self.settings.observe && self.words.are_new(controller.name(), reason, message) {
            self.events.tell(controller, weight, reason, message).await;
        }
    }
}

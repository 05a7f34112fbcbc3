//! Where clients find the services.

use serde_json::{Value, json};

use super::directory::derived_id;

/// One service, at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) url: String,
    pub(super) region: String,
}

/// Clients may ask for any of these; they are the same.
const INTERFACES: [&str; 3] = ["admin", "internal", "public"];

impl Service {
    pub(super) fn id(&self) -> String {
        derived_id(&format!("service:{}", self.kind))
    }

    /// As it stands in a token.
    pub(super) fn in_catalog(&self) -> Value {
        let endpoints: Vec<Value> = INTERFACES
            .into_iter()
            .map(|interface| {
                json!({
                    "id": self.endpoint_id(interface), "interface": interface, "region": self.region,
                    "region_id": self.region, "url": self.url,
                })
            })
            .collect();
        json!({"id": self.id(), "type": self.kind, "name": self.name, "endpoints": endpoints})
    }

    /// As it stands in a token of v2.0.
    pub(super) fn in_old_catalog(&self) -> Value {
        let endpoint = json!({
            "id": self.endpoint_id("public"), "region": self.region,
            "adminURL": self.url, "internalURL": self.url, "publicURL": self.url,
        });
        json!({"type": self.kind, "name": self.name, "endpoints": [endpoint], "endpoints_links": []})
    }

    /// As a resource of its own.
    pub(super) fn shown(&self, base: &str) -> Value {
        let id = self.id();
        json!({
            "id": id, "type": self.kind, "name": self.name, "description": "", "enabled": true,
            "links": {"self": format!("{base}/v3/services/{id}")},
        })
    }

    /// Its endpoints, as resources of their own.
    pub(super) fn endpoints(&self, base: &str) -> impl Iterator<Item = Value> {
        INTERFACES.into_iter().map(move |interface| {
            let id = self.endpoint_id(interface);
            json!({
                "id": id, "interface": interface, "url": self.url, "enabled": true,
                "region": self.region, "region_id": self.region, "service_id": self.id(),
                "links": {"self": format!("{base}/v3/endpoints/{id}")},
            })
        })
    }

    fn endpoint_id(&self, interface: &str) -> String {
        derived_id(&format!("endpoint:{}/{}/{interface}", self.region, self.kind))
    }
}

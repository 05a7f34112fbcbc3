//! What manifests say.

use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use portcullis_kube_api::ingress::IngressController;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config;
use crate::exit::{Exit, Failure};

/// The objects of manifests that plans are about; others are left out.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) services: Vec<Service>,
    pub(super) nodes: Vec<Node>,
    pub(super) slices: Vec<EndpointSlice>,
    pub(super) controllers: Vec<IngressController>,
}

impl Given {
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut given = Given::default();
        for file in files {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            for document in documents(&text) {
                let value = config::read_manifest(file, &document)?;
                match value["kind"].as_str() {
                    Some("List") => {
                        let items = value["items"].as_array().cloned().unwrap_or_default();
                        items.into_iter().try_for_each(|object| given.take_in(file, object))?;
                    }
                    _ => given.take_in(file, value)?,
                }
            }
        }
        Ok(given)
    }

    fn take_in(&mut self, file: &Path, object: Value) -> Result<(), Failure> {
        match object["kind"].as_str() {
            Some("Service") => self.services.push(parsed(file, "a Service", object)?),
            Some("Node") => self.nodes.push(parsed(file, "a Node", object)?),
            Some("EndpointSlice") => self.slices.push(parsed(file, "an EndpointSlice", object)?),
            Some("IngressController") => {
                self.controllers.push(parsed(file, "an IngressController", object)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The `EndpointSlices` of a Service.
    pub(super) fn slices_of(&self, namespace: &str, name: &str) -> Vec<EndpointSlice> {
        let is_of = |slice: &&EndpointSlice| {
            slice.namespace().as_deref().unwrap_or("default") == namespace
                && slice.labels().get("kubernetes.io/service-name").is_some_and(|of| of == name)
        };
        self.slices.iter().filter(is_of).cloned().collect()
    }
}

fn parsed<T: DeserializeOwned>(file: &Path, what: &str, object: Value) -> Result<T, Failure> {
    serde_json::from_value(object).map_err(|error| {
        Failure::new(Exit::Usage, format!("{}: {what} cannot be read: {error}", file.display()))
    })
}

/// The documents of a file, each on the lines that it has there.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            documents.push("\n".repeat(number + 1));
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_lines() {
        let found = documents("---\na: 1\n---\n# nothing\n---\nb: 2\n");
        assert_eq!(found, ["\na: 1\n", "\n\n\n# nothing\n", "\n\n\n\n\nb: 2\n"].map(str::to_owned));
    }

    #[test]
    fn what_plans_are_about_is_found_and_the_rest_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("all.yaml");
        let text = "\
kind: List
items:
- {kind: Node, metadata: {name: n1}}
- {kind: ConfigMap, metadata: {name: other}}
- {kind: Service, metadata: {name: web, namespace: shop}}
---
{kind: EndpointSlice, addressType: IPv4, endpoints: [],
 metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}}
---
{kind: EndpointSlice, addressType: IPv4, endpoints: [],
 metadata: {name: web-2, labels: {kubernetes.io/service-name: web}}}
";
        std::fs::write(&file, text).unwrap();
        let given = Given::read(&[file]).unwrap();
        assert_eq!((given.services.len(), given.nodes.len(), given.slices.len()), (1, 1, 2));
        let names = |namespace| -> Vec<String> {
            given.slices_of(namespace, "web").iter().map(ResourceExt::name_any).collect()
        };
        assert_eq!((names("shop"), names("default")), (vec!["web-1".into()], vec!["web-2".into()]));
    }
}

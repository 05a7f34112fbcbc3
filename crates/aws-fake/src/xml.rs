//! Answers, as AWS writes them.

use std::fmt::Display;

use uuid::Uuid;

use crate::refusal::Refusal;
use crate::service::Service;

/// An element with text.
pub(crate) fn leaf(name: &str, text: impl Display) -> String {
    format!("<{name}>{}</{name}>", escaped(&text.to_string()))
}

/// The same, where there is one.
pub(crate) fn leaf_some(name: &str, text: Option<impl Display>) -> String {
    text.map(|text| leaf(name, text)).unwrap_or_default()
}

/// An element with elements.
pub(crate) fn node(name: &str, content: impl Display) -> String {
    format!("<{name}>{content}</{name}>")
}

/// A list as EC2 has it.
pub(crate) fn items(name: &str, entries: impl IntoIterator<Item = String>) -> String {
    list(name, "item", entries)
}

/// A list as the other services have it.
pub(crate) fn members(name: &str, entries: impl IntoIterator<Item = String>) -> String {
    list(name, "member", entries)
}

fn list(name: &str, each: &str, entries: impl IntoIterator<Item = String>) -> String {
    let entries: String = entries.into_iter().map(|entry| node(each, entry)).collect();
    if entries.is_empty() { format!("<{name}/>") } else { node(name, entries) }
}

/// Text in which nothing is taken for an element.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

const START: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A whole answer.
pub(crate) fn answer(service: Service, action: &str, content: &str, id: Uuid) -> String {
    let namespace = service.namespace();
    let content = match service {
        Service::Ec2 => leaf("requestId", id) + content,
        _ => node(&format!("{action}Result"), content) + &node("ResponseMetadata", leaf("RequestId", id)),
    };
    format!("{START}<{action}Response xmlns=\"{namespace}\">{content}</{action}Response>")
}

/// A whole refusal.
pub(crate) fn refusal(service: Service, refusal: &Refusal, id: Uuid) -> String {
    let told = leaf("Code", &refusal.code) + &leaf("Message", &refusal.message);
    if service == Service::Ec2 {
        let errors = node("Errors", node("Error", told)) + &leaf("RequestID", id);
        return format!("{START}{}", node("Response", errors));
    }
    let kind = leaf("Type", if refusal.status < 500 { "Sender" } else { "Receiver" });
    let content = node("Error", kind + &told) + &leaf("RequestId", id);
    format!("{START}<ErrorResponse xmlns=\"{}\">{content}</ErrorResponse>", service.namespace())
}

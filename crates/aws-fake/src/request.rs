//! The parameters of a call. Each is taken once; what nobody takes is refused, as AWS refuses what it does not know.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::refusal::Refusal;
use crate::service::Service;

/// The parameters of a call, or of one structure in it.
#[derive(Debug)]
pub(crate) struct Request {
    service: Service,
    /// What stands before the names in this structure.
    path: String,
    node: Node,
    dry_run: bool,
}

#[derive(Debug, Default)]
struct Node {
    value: Option<String>,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn insert(&mut self, name: &str, value: &str) {
        match name.split_once('.') {
            Some((first, rest)) => self.children.entry(first.to_owned()).or_default().insert(rest, value),
            None => self.children.entry(name.to_owned()).or_default().value = Some(value.to_owned()),
        }
    }

    /// The name of the first value in it.
    fn first(&self, path: &str) -> Option<String> {
        self.value
            .is_some()
            .then(|| path.to_owned())
            .or_else(|| self.children.iter().find_map(|(name, child)| child.first(&format!("{path}.{name}"))))
    }
}

impl Request {
    pub(crate) fn new(service: Service, parameters: &BTreeMap<String, String>) -> Result<Self, Refusal> {
        let mut node = Node::default();
        for (name, value) in parameters {
            node.insert(name, value);
        }
        let mut request = Request { service, path: String::new(), node, dry_run: false };
        if service == Service::Ec2 {
            request.dry_run = request.flag("DryRun")?.unwrap_or_default();
        }
        Ok(request)
    }

    fn name(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(crate) fn invalid(&self, message: impl Into<String>) -> Refusal {
        Refusal::invalid(self.service, message)
    }

    pub(crate) fn missing(&self, name: &str) -> Refusal {
        Refusal::missing(self.service, &self.name(name))
    }

    /// A text, if it is given.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(node) = self.node.children.remove(name) else { return Ok(None) };
        if node.children.is_empty() {
            return Ok(node.value);
        }
        let inner = node.first(&self.name(name)).unwrap_or_default();
        Err(Refusal::unknown_parameter(self.service, &inner))
    }

    /// A text that has to be given.
    pub(crate) fn needed(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| self.missing(name))
    }

    /// A number, if it is given.
    pub(crate) fn number(
        &mut self,
        name: &str,
        allowed: RangeInclusive<i32>,
    ) -> Result<Option<i32>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = (allowed.start(), allowed.end());
            self.invalid(format!(
                "Value ( {text} ) for parameter {} is invalid: expecting {least} to {most}",
                self.name(name)
            ))
        })
    }

    /// A port, if it is given.
    pub(crate) fn port(&mut self, name: &str) -> Result<Option<u16>, Refusal> {
        let number = self.number(name, 1..=65535)?;
        Ok(number.and_then(|number| u16::try_from(number).ok()))
    }

    /// Yes or no, if it is given.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.text(name)?.as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(self.invalid(format!("Value ({other}) for parameter {name} is invalid"))),
        }
    }

    /// One of some words, if it is given.
    pub(crate) fn choice(&mut self, name: &str, allowed: &[&str]) -> Result<Option<String>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if allowed.contains(&text.as_str()) {
            return Ok(Some(text));
        }
        Err(self.invalid(format!(
            "1 validation error detected: Value '{text}' at '{}' failed to satisfy constraint: Member must satisfy \
             enum value set: [{}]",
            self.name(name),
            allowed.join(", ")
        )))
    }

    /// The places of a list, in order.
    fn places(&mut self, name: &str) -> Result<Vec<(String, Node)>, Refusal> {
        let Some(mut node) = self.node.children.remove(name) else { return Ok(Vec::new()) };
        let mut path = self.name(name);
        let unknown = |path: &str| Refusal::unknown_parameter(self.service, path);
        if self.service != Service::Ec2 && node.value.as_deref() != Some("") {
            // Those who write an empty list write `name=`.
            let inner = node.children.remove("member");
            if let Some(path) = node.first(&path) {
                return Err(unknown(&path));
            }
            path += ".member";
            node = inner.unwrap_or_default();
        }
        if node.value.as_deref().is_some_and(|value| !value.is_empty()) {
            return Err(unknown(&path));
        }
        let mut places = Vec::new();
        for (place, node) in node.children {
            let path = format!("{path}.{place}");
            let number = place.parse::<u32>().ok().filter(|number| *number > 0 && !place.starts_with('0'));
            places.push((number.ok_or_else(|| unknown(&path))?, path, node));
        }
        places.sort_by_key(|(number, ..)| *number);
        // A list without a gap is what every client sends; one with a gap lost something.
        if places.iter().zip(1..).any(|((number, ..), expected)| *number != expected) {
            return Err(self.invalid(format!("The list {path} has a gap")));
        }
        Ok(places.into_iter().map(|(_, path, node)| (path, node)).collect())
    }

    /// A list of texts.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<String>, Refusal> {
        let mut texts = Vec::new();
        for (path, node) in self.places(name)? {
            match (node.value, node.children.is_empty()) {
                (Some(text), true) => texts.push(text),
                _ => return Err(Refusal::unknown_parameter(self.service, &path)),
            }
        }
        Ok(texts)
    }

    /// A list of structures; each has to be ended.
    pub(crate) fn structures(&mut self, name: &str) -> Result<Vec<Request>, Refusal> {
        let service = self.service;
        let places = self.places(name)?.into_iter();
        places
            .map(|(path, node)| match node.value {
                Some(_) => Err(Refusal::unknown_parameter(service, &path)),
                None => Ok(Request { service, path, node, dry_run: false }),
            })
            .collect()
    }

    /// A structure, if any of it is given.
    pub(crate) fn structure(&mut self, name: &str) -> Result<Option<Request>, Refusal> {
        let Some(node) = self.node.children.remove(name) else { return Ok(None) };
        let path = self.name(name);
        match node.value {
            Some(_) => Err(Refusal::unknown_parameter(self.service, &path)),
            None => Ok(Some(Request { service: self.service, path, node, dry_run: false })),
        }
    }

    /// Everything was taken. For a call that is only tried out, this is the end.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        if let Some(name) = self.node.children.iter().find_map(|(name, node)| node.first(&self.name(name))) {
            return Err(Refusal::unknown_parameter(self.service, &name));
        }
        if self.dry_run { Err(Refusal::dry_run()) } else { Ok(()) }
    }
}

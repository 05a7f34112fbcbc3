//! A request, taken apart.

use axum::http::{HeaderMap, Method, header};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::query::decoded;

/// See the module. It holds a token, so it is never printed.
pub(crate) struct Request {
    pub method: Method,
    /// The parts of the path, without escapes and without `.json`.
    pub path: Vec<String>,
    pub query: String,
    /// Where the server is, as the client sees it.
    pub origin: String,
    pub token: Option<String>,
    /// The revision that the object must have.
    pub revision: Option<u64>,
    pub body: Vec<u8>,
}

impl Request {
    /// Takes a request apart; the body comes later.
    pub(crate) fn new(method: Method, path: &str, query: &str, headers: &HeaderMap, secure: bool) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST.as_str()).unwrap_or("localhost");
        let scheme = text("x-forwarded-proto").unwrap_or(if secure { "https" } else { "http" });
        let path = path.strip_suffix(".json").unwrap_or(path);
        Request {
            method,
            path: path.split('/').filter(|part| !part.is_empty()).map(decoded).collect(),
            query: query.to_owned(),
            origin: format!("{scheme}://{host}"),
            token: text("x-auth-token").map(str::to_owned),
            revision: text("if-match").and_then(revision),
            body: Vec::new(),
        }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, Error> {
        if self.body.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        let body: Option<Value> = serde_json::from_slice(&self.body).ok();
        body.filter(Value::is_object).ok_or_else(|| Error::bad_request("Body contains invalid data"))
    }

    /// The attributes of one object: `{"network": {…}}`.
    pub(crate) fn one(&self, name: &str) -> Result<Map<String, Value>, Error> {
        let body = self.json()?;
        let Some(value) = body.get(name) else {
            return Err(Error::bad_request(format!("Unable to find '{name}' in request body")));
        };
        match value {
            Value::Object(attributes) => Ok(attributes.clone()),
            _ => Err(Error::bad_request(format!("Object '{name}' contains invalid data"))),
        }
    }

    /// The attributes of one object, or of several: `{"networks": [{…}, …]}`.
    pub(crate) fn several(&self, name: &str, plural: &str) -> Result<(Vec<Map<String, Value>>, bool), Error> {
        let body = self.json()?;
        if body.get(name).is_some() || body.get(plural).is_none() {
            return Ok((vec![self.one(name)?], false));
        }
        let items = body.get(plural).and_then(Value::as_array);
        let items = items
            .filter(|items| !items.is_empty())
            .ok_or_else(|| Error::bad_request("Resources required"))?;
        let attributes = items.iter().map(|item| match item {
            // Some clients say what it is once more.
            Value::Object(item) => match item.get(name) {
                Some(Value::Object(inner)) if item.len() == 1 => Ok(inner.clone()),
                _ => Ok(item.clone()),
            },
            _ => Err(Error::bad_request("Body contains invalid data")),
        });
        Ok((attributes.collect::<Result<_, _>>()?, true))
    }
}

/// `revision_number=7`, perhaps among others. What is something else is for somebody else.
fn revision(text: &str) -> Option<u64> {
    text.split(',').find_map(|part| part.trim().strip_prefix("revision_number=")?.trim().parse().ok())
}

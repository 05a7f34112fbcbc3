//! A request, taken apart.

use axum::http::{HeaderMap, Method, header};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::query::unescaped;

/// See the module. It holds a token, so it is never printed.
pub(crate) struct Request {
    pub method: Method,
    /// The parts of the path, without escapes and without `.json`.
    pub path: Vec<String>,
    pub query: String,
    /// Where the server is, as the client sees it.
    pub origin: String,
    pub token: Option<String>,
    /// What `If-Match` says.
    condition: String,
    pub body: Vec<u8>,
}

impl Request {
    /// Takes a request apart; the body comes later.
    pub(crate) fn new(method: Method, path: &str, query: &str, headers: &HeaderMap, secure: bool) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST.as_str()).unwrap_or("localhost");
        let scheme = text("x-forwarded-proto").unwrap_or(if secure { "https" } else { "http" });
        let mut path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // A tag is what it is.
        if let [.., before, last] = path.as_mut_slice()
            && *before != "tags"
        {
            *last = last.strip_suffix(".json").unwrap_or(last);
        }
        let condition = headers.get_all(header::IF_MATCH).into_iter().filter_map(|value| value.to_str().ok());
        Request {
            method,
            path: path.into_iter().map(unescaped).collect(),
            query: query.to_owned(),
            origin: format!("{scheme}://{host}"),
            token: text("x-auth-token").map(str::to_owned),
            condition: condition.collect::<Vec<_>>().join(","),
            body: Vec::new(),
        }
    }

    /// The revision that the object must have. What is about something else is for somebody else.
    pub(crate) fn revision(&self) -> Result<Option<u64>, Error> {
        let wrong = |why: &str| Error::invalid("BadRequest", format!("Bad if-match request: {why}."));
        let mut revision = None;
        for tag in self.condition.split(',') {
            let tag = tag.trim().trim_start_matches("W/").trim_matches('"');
            let Some(number) = tag.strip_prefix("revision_number=") else { continue };
            if revision.is_some() {
                return Err(wrong("Multiple revision_number etags are not supported"));
            }
            let number = number.trim().parse();
            let number = number
                .map_err(|_| wrong("Revision number etag must be in the format of revision_number=<int>"));
            revision = Some(number?);
        }
        Ok(revision)
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

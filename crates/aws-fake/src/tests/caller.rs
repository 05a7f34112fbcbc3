//! Someone who calls by plain HTTP, and signs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::SystemTime;

use crate::{Config, Credentials, clock, signature};

use super::{VERSION_EC2, VERSION_ELB};

#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) url: String,
    pub(super) region: String,
    pub(super) credentials: Credentials,
    pub(super) token: Option<String>,
    /// What the clock is off by, in seconds.
    pub(super) late: u64,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    #[track_caller]
    pub(super) fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.body);
        self
    }

    /// The code of a refusal; empty where there is none.
    pub(super) fn code(&self) -> String {
        self.texts("Code").into_iter().next().unwrap_or_default()
    }

    /// The text of the first element of that name.
    #[track_caller]
    pub(super) fn text(&self, name: &str) -> String {
        self.texts(name).into_iter().next().unwrap_or_else(|| panic!("no {name} in {}", self.body))
    }

    /// The texts of all elements of that name.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let (start, end) = (format!("<{name}>"), format!("</{name}>"));
        let parts = self.body.split(&start).skip(1);
        parts.filter_map(|part| part.split(&end).next()).map(str::to_owned).collect()
    }
}

impl Caller {
    pub(super) fn new(config: &Config) -> Self {
        Caller {
            url: String::new(),
            region: config.region.clone(),
            credentials: config.credentials.clone(),
            token: None,
            late: 0,
        }
    }

    pub(super) fn ec2(&self, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.call("ec2", VERSION_EC2, action, parameters).unwrap()
    }

    pub(super) fn elb(&self, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.call("elasticloadbalancing", VERSION_ELB, action, parameters).unwrap()
    }

    /// Nothing if the connection was closed without an answer.
    pub(super) fn call(
        &self,
        service: &str,
        version: &str,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Option<Answer> {
        let mut body = format!("Action={action}&Version={version}");
        for (name, value) in parameters {
            let value: Vec<String> = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            body += &["&", name, "=", &value.concat()].concat();
        }
        self.send(&body, &self.signed(service, &body))
    }

    /// The headers with which a body is signed.
    pub(super) fn signed(&self, service: &str, body: &str) -> Vec<(String, String)> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - self.late;
        let date: String = clock::extended(now).replace(['-', ':'], "").replace(".000", "");
        let region = if service == "iam" { "us-east-1" } else { &self.region };
        let scope = format!("{}/{region}/{service}/aws4_request", &date[..8]);
        let host = self.url.trim_start_matches("http://");
        let mut headers = vec![
            ("content-type".to_owned(), "application/x-www-form-urlencoded; charset=utf-8".to_owned()),
            ("host".to_owned(), host.to_owned()),
            ("x-amz-date".to_owned(), date.clone()),
        ];
        headers.extend(self.token.clone().map(|token| ("x-amz-security-token".to_owned(), token)));
        let lines = joined(&headers, ":", "\n");
        let names = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", signature::hashed(body.as_bytes()));
        let code = signature::signature(&self.credentials.secret, &date, &scope, &canonical);
        let key = &self.credentials.key;
        let value =
            format!("AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={code}");
        headers.push(("authorization".to_owned(), value));
        headers
    }

    pub(super) fn send(&self, body: &str, headers: &[(String, String)]) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        let headers = joined(headers, ": ", "\r\n");
        let length = body.len();
        let head =
            format!("POST / HTTP/1.1\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, body: body.to_owned() })
    }
}

fn joined(pairs: &[(String, String)], between: &str, after: &str) -> String {
    pairs.iter().map(|(name, value)| [name, between, value, after].concat()).collect()
}

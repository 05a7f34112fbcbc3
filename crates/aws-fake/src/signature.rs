//! Whether a request is signed as AWS wants it: Signature Version 4.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use aws_lc_rs::{digest, hmac};
use hyper::HeaderMap;

use crate::refusal::Refusal;
use crate::service::Service;
use crate::{Credentials, clock};

/// So far a clock may be off.
const SKEW: u64 = 5 * 60;

/// What a signature says, before it is checked.
struct Signature<'a> {
    key: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
    signed: Vec<&'a str>,
    code: &'a str,
}

/// The key that a request claims to be signed with.
pub(crate) fn claimed_key(headers: &HeaderMap) -> String {
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
    authorization.and_then(parse).map(|claimed| claimed.key.to_owned()).unwrap_or_default()
}

/// Checks a request. `secret` has the secret of a key, and the token that has to come with it.
pub(crate) fn check(
    service: Service,
    region: &str,
    target: &str,
    headers: &HeaderMap,
    body: &[u8],
    secret: impl Fn(&str) -> Option<(Credentials, Option<String>)>,
) -> Result<(), Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let authorization = header("authorization").ok_or_else(|| no_token(service))?;
    let claimed = parse(authorization).ok_or_else(|| incomplete(service, authorization))?;
    let Some((credentials, token)) = secret(claimed.key) else { return Err(unknown_key(service)) };
    if header("x-amz-security-token") != token.as_deref() {
        return Err(unknown_key(service));
    }
    let region = if service == Service::Iam { "us-east-1" } else { region };
    if claimed.region != region {
        return Err(mismatch(
            service,
            &format!("Credential should be scoped to a valid region, not '{}'.", claimed.region),
        ));
    }
    if claimed.service != service.word() {
        return Err(mismatch(
            service,
            &format!("Credential should be scoped to correct service: '{}'.", service.word()),
        ));
    }
    let date = header("x-amz-date").ok_or_else(|| incomplete(service, "x-amz-date is missing"))?;
    let when = clock::parse_basic(date).ok_or_else(|| incomplete(service, date))?;
    if !date.starts_with(claimed.date) || claimed.date.len() != 8 {
        return Err(mismatch(
            service,
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date",
        ));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    if now.abs_diff(when) > SKEW {
        return Err(expired(service, date));
    }
    let is_signed = |name: &str| claimed.signed.contains(&name);
    if !is_signed("host") || !is_signed("x-amz-date") || token.is_some() && !is_signed("x-amz-security-token")
    {
        return Err(mismatch(service, "'Host', 'X-Amz-Date' and the token must be signed."));
    }
    let mut lines = String::new();
    for name in &claimed.signed {
        let values: Vec<&str> =
            headers.get_all(*name).iter().filter_map(|value| value.to_str().ok()).collect();
        if values.is_empty() {
            return Err(mismatch(service, &format!("the signed header {name} is missing")));
        }
        let values: Vec<String> = values.iter().map(|value| squeezed(value)).collect();
        let _ = writeln!(lines, "{name}:{}", values.join(","));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let names = claimed.signed.join(";");
    let canonical = format!("POST\n{path}\n{query}\n{lines}\n{names}\n{}", hashed(body));
    let scope = format!("{}/{}/{}/aws4_request", claimed.date, claimed.region, claimed.service);
    let expected = signature(&credentials.secret, date, &scope, &canonical);
    if expected == claimed.code { Ok(()) } else { Err(mismatch(service, MISMATCH)) }
}

const MISMATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS \
                        Secret Access Key and signing method. Consult the service documentation for details.";

/// The signature of a canonical request.
pub(crate) fn signature(secret: &str, date: &str, scope: &str, canonical: &str) -> String {
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hashed(canonical.as_bytes()));
    let start = format!("AWS4{secret}").into_bytes();
    let key = scope.split('/').fold(start, |key, part| authenticated(&key, part));
    hex(&authenticated(&key, &text))
}

fn parse(authorization: &str) -> Option<Signature<'_>> {
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256")?.trim_start();
    let mut parts = rest.split(',').map(str::trim);
    let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
    let (credential, signed, code) = (part("Credential")?, part("SignedHeaders")?, part("Signature")?);
    let scope: Vec<&str> = credential.split('/').collect();
    let [key, date, region, service, "aws4_request"] = scope[..] else { return None };
    Some(Signature { key, date, region, service, signed: signed.split(';').collect(), code })
}

/// A value without the spaces that do not count.
fn squeezed(value: &str) -> String {
    value.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The digest of some bytes, as text.
pub(crate) fn hashed(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn authenticated(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// EC2 has one word for all that is wrong with credentials.
fn ec2_failure() -> Refusal {
    let message = "AWS was not able to validate the provided access credentials";
    Refusal::new("AuthFailure", message).with_status(401)
}

fn no_token(service: Service) -> Refusal {
    match service {
        Service::Ec2 => ec2_failure(),
        _ => Refusal::new("MissingAuthenticationToken", "Request is missing Authentication Token")
            .with_status(403),
    }
}

fn incomplete(service: Service, what: &str) -> Refusal {
    match service {
        Service::Ec2 => ec2_failure(),
        _ => Refusal::new("IncompleteSignature", format!("The request signature does not conform: {what}")),
    }
}

fn unknown_key(service: Service) -> Refusal {
    match service {
        Service::Ec2 => ec2_failure(),
        _ => Refusal::new("InvalidClientTokenId", "The security token included in the request is invalid.")
            .with_status(403),
    }
}

fn mismatch(service: Service, message: &str) -> Refusal {
    match service {
        Service::Ec2 => ec2_failure(),
        _ => Refusal::new("SignatureDoesNotMatch", message).with_status(403),
    }
}

fn expired(service: Service, date: &str) -> Refusal {
    match service {
        Service::Ec2 => Refusal::new("RequestExpired", "Request has expired."),
        _ => Refusal::new("SignatureDoesNotMatch", format!("Signature expired: {date}")).with_status(403),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get-vanilla` of AWS's own test suite for Signature Version 4.
    #[test]
    fn as_aws_signs() {
        let canonical = "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\nhost;x-amz-date\n\
                         e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hashed(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let scope = "20150830/us-east-1/service/aws4_request";
        assert_eq!(
            signature(secret, "20150830T123600Z", scope, canonical),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }
}

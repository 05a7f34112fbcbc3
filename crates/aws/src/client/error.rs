use thiserror::Error;

/// Why a call did not succeed, for who has to decide what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Too many calls; it is tried again by itself.
    Throttled,
    /// AWS did not answer, or not as it should. Whether the call took effect is not known.
    Unavailable,
    /// The credentials do not permit it, or there are none.
    Denied,
    /// What it is about is not there (yet, or any more).
    NotFound,
    /// It is there already.
    Exists,
    /// Something else needs it.
    InUse,
    /// A limit of the account or of the object.
    Limit,
    /// AWS cannot make sense of it, or does not do that.
    Invalid,
}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{action}: {message}{}", .code.as_deref().map(|code| format!(" ({code})")).unwrap_or_default())]
pub struct CallError {
    /// What was called.
    pub action: &'static str,
    /// What kind of trouble it is.
    pub cause: Cause,
    /// AWS's word for it.
    pub code: Option<String>,
    /// AWS's sentence about it, or ours.
    pub message: String,
    /// AWS's number of the request, which its support asks for.
    pub request_id: Option<String>,
}

impl CallError {
    pub(crate) fn unavailable(action: &'static str, message: impl Into<String>) -> Self {
        Self { action, cause: Cause::Unavailable, code: None, message: message.into(), request_id: None }
    }
}

/// What a word of AWS's means, with the status that came with it.
pub(crate) fn cause(code: &str, status: u16) -> Cause {
    match code {
        "Throttling"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "TooManyRequestsException"
        | "SlowDown"
        | "BandwidthLimitExceeded"
        | "EC2ThrottledException"
        | "ThrottledException"
        | "ProvisionedThroughputExceededException" => Cause::Throttled,
        "InternalError"
        | "InternalFailure"
        | "InternalServerError"
        | "ServiceUnavailable"
        | "Unavailable"
        | "RequestTimeout"
        | "RequestTimeoutException"
        | "ServerInternal" => Cause::Unavailable,
        "AccessDenied"
        | "AccessDeniedException"
        | "UnauthorizedOperation"
        | "AuthFailure"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "MissingAuthenticationToken"
        | "OptInRequired"
        | "UnrecognizedClientException"
        | "IncompleteSignature"
        | "Blocked" => Cause::Denied,
        "InvalidPermission.Duplicate" | "InvalidGroup.Duplicate" => Cause::Exists,
        // What somebody named is not there, rather than what was known of.
        "CertificateNotFound"
        | "SSLPolicyNotFound"
        | "ALPNPolicyNotFound"
        | "AllocationIdNotFound"
        | "SubnetNotFound"
        | "InvalidPrefixListID.NotFound"
        | "InvalidPrefixListId.NotFound" => Cause::Invalid,
        "DependencyViolation" | "InvalidGroup.InUse" | "ResourceInUse" => Cause::InUse,
        "RulesPerSecurityGroupLimitExceeded"
        | "SecurityGroupLimitExceeded"
        | "TagLimitExceeded"
        | "SecurityGroupsPerInterfaceLimitExceeded"
        | "SecurityGroupsPerInstanceLimitExceeded" => Cause::Limit,
        code if code.starts_with("Duplicate") => Cause::Exists,
        code if code.starts_with("TooMany") => Cause::Limit,
        code if code.ends_with("NotFound")
            || code.ends_with("NotFoundException")
            || code.ends_with(".NotFound") =>
        {
            Cause::NotFound
        }
        code if code.ends_with("LimitExceeded") => Cause::Limit,
        _ if status == 429 => Cause::Throttled,
        _ if status >= 500 => Cause::Unavailable,
        _ if status == 401 || status == 403 => Cause::Denied,
        _ => Cause::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_aws() {
        for (code, status, expected) in [
            ("Throttling", 400, Cause::Throttled),
            ("RequestLimitExceeded", 503, Cause::Throttled),
            ("InternalFailure", 500, Cause::Unavailable),
            ("", 502, Cause::Unavailable),
            ("", 429, Cause::Throttled),
            ("UnauthorizedOperation", 403, Cause::Denied),
            ("AccessDenied", 403, Cause::Denied),
            ("LoadBalancerNotFound", 400, Cause::NotFound),
            ("TargetGroupNotFound", 400, Cause::NotFound),
            ("InvalidGroup.NotFound", 400, Cause::NotFound),
            ("InvalidPermission.NotFound", 400, Cause::NotFound),
            ("InvalidSubnetID.NotFound", 400, Cause::NotFound),
            ("CertificateNotFound", 400, Cause::Invalid),
            ("AllocationIdNotFound", 400, Cause::Invalid),
            ("InvalidPermission.Duplicate", 400, Cause::Exists),
            ("InvalidGroup.Duplicate", 400, Cause::Exists),
            ("DuplicateLoadBalancerName", 400, Cause::Exists),
            ("DuplicateTargetGroupName", 400, Cause::Exists),
            ("DuplicateListener", 400, Cause::Exists),
            ("DependencyViolation", 400, Cause::InUse),
            ("ResourceInUse", 400, Cause::InUse),
            ("RulesPerSecurityGroupLimitExceeded", 400, Cause::Limit),
            ("TooManyLoadBalancers", 400, Cause::Limit),
            ("InvalidConfigurationRequest", 400, Cause::Invalid),
            ("OperationNotPermitted", 400, Cause::Invalid),
            ("ValidationError", 400, Cause::Invalid),
        ] {
            assert_eq!(cause(code, status), expected, "{code} {status}");
        }
    }

    #[test]
    fn errors_are_sentences() {
        let error = CallError {
            action: "CreateListener",
            cause: Cause::Invalid,
            code: Some("ValidationError".into()),
            message: "A listener needs a port".into(),
            request_id: None,
        };
        assert_eq!(error.to_string(), "CreateListener: A listener needs a port (ValidationError)");
        let error = CallError::unavailable("CreateListener", "no answer within 30 s");
        assert_eq!(error.to_string(), "CreateListener: no answer within 30 s");
    }
}

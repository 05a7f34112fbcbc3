use thiserror::Error;

/// Why a call did not succeed, for who has to decide what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Too many calls; it is tried again by itself.
    Throttled,
    /// AWS did not answer, or not as it should. Whether the call took effect is not known.
    Unavailable,
    /// The credentials do not permit it.
    Denied,
    /// There are no credentials, or AWS does not take them.
    Credentials,
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

    /// The same with what was to be changed, where AWS does not name it.
    pub(crate) fn about(mut self, object: &str) -> Self {
        if !object.is_empty() && !self.message.contains(object) {
            self.message = format!("{object}: {}", self.message);
        }
        self
    }

    /// What to do where credentials are the cause.
    pub(crate) fn remedy_for_credentials(&self) -> &'static str {
        if self.code.is_some() {
            "Renew the credentials that Portcullis runs with, where they come from: the role of its service account or of its machine, AWS_PROFILE or AWS_ACCESS_KEY_ID. Look at the clock of its machine, too."
        } else if is_refused(&self.message) {
            "Allow sts:AssumeRole on the role to whom Portcullis runs as (sts:AssumeRoleWithWebIdentity to its service account), and name that one in the trust policy of the role."
        } else {
            "Give Portcullis credentials: a role for its service account or its machine, AWS_PROFILE or AWS_ACCESS_KEY_ID."
        }
    }
}

/// Whether AWS refused to give credentials, by a text with its words in it: asking again would not help.
pub(crate) fn is_refused(text: &str) -> bool {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    // A word that is none of AWS's is no refusal.
    words.map(|word| cause(word, 500)).any(|cause| matches!(cause, Cause::Denied | Cause::Credentials))
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
        "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" | "OptInRequired" | "Blocked" => {
            Cause::Denied
        }
        "AuthFailure"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "MissingAuthenticationToken"
        | "UnrecognizedClientException"
        | "IncompleteSignature"
        | "InvalidIdentityToken"
        | "InvalidIdentityTokenException"
        | "IDPRejectedClaim"
        | "IdpRejectedClaimException" => Cause::Credentials,
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
            ("ExpiredToken", 403, Cause::Credentials),
            ("InvalidClientTokenId", 403, Cause::Credentials),
            ("SignatureDoesNotMatch", 403, Cause::Credentials),
            ("AuthFailure", 401, Cause::Credentials),
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
    fn refusals_are_told_from_outages() {
        for (text, expected) in [
            ("AssumeRole: Not authorized. (AccessDenied)", true),
            ("service error: unhandled error (AccessDenied): not authorized", true),
            ("service error: IdpRejectedClaimException: the token has expired", true),
            ("dispatch failure: io error: connection refused", false),
            ("AssumeRole: it broke (InternalError)", false),
            ("", false),
        ] {
            assert_eq!(is_refused(text), expected, "{text}");
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

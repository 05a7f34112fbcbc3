//! Why a call is refused, in AWS's words.

use crate::service::Service;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Refusal {
    /// One that is the caller's fault.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Refusal { code: code.to_owned(), status: 400, message: message.into() }
    }

    pub(crate) fn with_status(self, status: u16) -> Self {
        Refusal { status, ..self }
    }

    /// A value that makes no sense.
    pub(crate) fn invalid(service: Service, message: impl Into<String>) -> Self {
        let code = if service == Service::Ec2 { "InvalidParameterValue" } else { "ValidationError" };
        Refusal::new(code, message)
    }

    /// What has to be said, and was not.
    pub(crate) fn missing(service: Service, name: &str) -> Self {
        match service {
            Service::Ec2 => {
                Refusal::new("MissingParameter", format!("The request must contain the parameter {name}"))
            }
            _ => Refusal::new(
                "ValidationError",
                format!(
                    "1 validation error detected: Value null at '{name}' failed to satisfy constraint: \
                     Member must not be null"
                ),
            ),
        }
    }

    pub(crate) fn unknown_parameter(service: Service, name: &str) -> Self {
        match service {
            Service::Ec2 => {
                Refusal::new("UnknownParameter", format!("The parameter {name} is not recognized"))
            }
            _ => Refusal::new("ValidationError", format!("The parameter {name} is not recognized")),
        }
    }

    pub(crate) fn throttled(service: Service) -> Self {
        match service {
            Service::Ec2 => Refusal::new("RequestLimitExceeded", "Request limit exceeded.").with_status(503),
            _ => Refusal::new("Throttling", "Rate exceeded"),
        }
    }

    pub(crate) fn broken(service: Service) -> Self {
        let code = if service == Service::Ec2 { "InternalError" } else { "InternalFailure" };
        Refusal::new(code, "An internal error has occurred").with_status(500)
    }

    pub(crate) fn denied(service: Service, action: &str) -> Self {
        match service {
            Service::Ec2 => Refusal::new(
                "UnauthorizedOperation",
                format!("You are not authorized to perform this operation: ec2:{action}"),
            ),
            _ => Refusal::new(
                "AccessDenied",
                format!("You are not authorized to perform: {}:{action}", service.word()),
            ),
        }
        .with_status(403)
    }

    pub(crate) fn dry_run() -> Self {
        Refusal::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
            .with_status(412)
    }
}

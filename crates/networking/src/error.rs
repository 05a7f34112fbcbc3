use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use portcullis_ovn::{Rejected, StoreError};
use serde_json::json;
use uuid::Uuid;

/// Why a request was not done, as clients of the Networking API know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub status: StatusCode,
    /// The name that clients tell errors apart by.
    pub kind: &'static str,
    pub message: String,
}

impl Error {
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Error { status, kind, message: message.into() }
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "HTTPBadRequest", message)
    }

    /// The request makes sense, and cannot be.
    pub fn invalid(kind: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, kind, message)
    }

    /// An attribute has a value that it cannot have.
    pub fn invalid_attribute(attribute: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_request(format!("Invalid input for {attribute}. Reason: {reason}."))
    }

    /// What the operation needs, together, is not given.
    pub fn invalid_input(message: impl std::fmt::Display) -> Self {
        Self::invalid("InvalidInput", format!("Invalid input for operation: {message}."))
    }

    pub fn conflict(kind: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, kind, message)
    }

    pub fn not_found(kind: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, kind, message)
    }

    /// There is nothing at this address.
    pub fn no_such_resource() -> Self {
        Self::not_found("HTTPNotFound", "The resource could not be found.")
    }

    /// Who asks may not do it, though it may know that the object is there.
    pub fn forbidden(action: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "PolicyNotAuthorized",
            format!("rule:{action} is disallowed by policy"),
        )
    }

    pub fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "The request you have made requires authentication.",
        )
    }

    /// The resource is there, and nothing of the kind can be done to it.
    pub(crate) fn method_not_allowed<R: crate::resources::Resource>() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "HTTPMethodNotAllowed",
            format!("This cannot be done to {}.", R::PLURAL),
        )
    }

    pub fn over_quota(resources: &[&str]) -> Self {
        let names: Vec<String> = resources.iter().map(|name| format!("'{name}'")).collect();
        Self::conflict("OverQuota", format!("Quota exceeded for resources: [{}].", names.join(", ")))
    }

    pub fn group_not_found(id: Uuid) -> Self {
        Self::not_found("SecurityGroupNotFound", format!("Security group {id} does not exist"))
    }

    pub fn into_response(self) -> Response<Body> {
        // Who has no token was never answered by the API itself, but by what stands before it.
        let body = match self.status {
            StatusCode::UNAUTHORIZED => {
                json!({"error": {"code": 401, "title": self.kind, "message": self.message}})
            }
            _ => json!({"NeutronError": {"type": self.kind, "message": self.message, "detail": ""}}),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Keystone"));
        }
        response
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let (status, kind) = match &error {
            StoreError::Unavailable(_) | StoreError::InDoubt | StoreError::Unreadable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
            StoreError::Refused(_) => (StatusCode::CONFLICT, "Conflict"),
            StoreError::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "HTTPInternalServerError"),
            StoreError::ReadOnly => (StatusCode::FORBIDDEN, "PolicyNotAuthorized"),
        };
        Error::new(status, kind, error.to_string())
    }
}

impl From<Rejected<Error>> for Error {
    fn from(rejected: Rejected<Error>) -> Self {
        match rejected {
            Rejected::Decided(error) => error,
            Rejected::Store(error) => error.into(),
        }
    }
}

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use portcullis_ovn::{Rejected, StoreError};
use serde_json::json;

use crate::error::Error;
use crate::listen::Unread;

/// Why a request was not done, as clients of the Identity API know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Failure { status, message: message.into() }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Who asks is not known, for whatever reason: to tell which would help to guess.
    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "The request you have made requires authentication.")
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// Who asks may not do it.
    pub(super) fn not_allowed(action: &str) -> Self {
        Self::forbidden(format!("You are not authorized to perform the requested action: identity:{action}."))
    }

    /// There is no such thing, or who asks may not know of it.
    pub(super) fn not_found(kind: &str, id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Could not find {kind}: {id}."))
    }

    /// There is nothing at this address.
    pub(super) fn no_such_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "The resource could not be found.")
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    pub(super) fn into_response(self, address: &str) -> Response<Body> {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let error = json!({"code": self.status.as_u16(), "message": self.message, "title": title});
        let mut response = Response::new(Body::from(json!({ "error": error }).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::UNAUTHORIZED
            && let Ok(value) = HeaderValue::from_str(&format!("Keystone uri=\"{address}/v3\""))
        {
            headers.insert(header::WWW_AUTHENTICATE, value);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        let Error { status, message, .. } = unread.into();
        Failure::new(status, message)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::Unavailable(_) | StoreError::InDoubt | StoreError::Unreadable(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            StoreError::Refused(_) => StatusCode::CONFLICT,
            StoreError::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            StoreError::ReadOnly => StatusCode::FORBIDDEN,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<Rejected<Failure>> for Failure {
    fn from(rejected: Rejected<Failure>) -> Self {
        match rejected {
            Rejected::Decided(failure) => failure,
            Rejected::Store(error) => error.into(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                Error::new(failure.status, "ServiceUnavailable", failure.message)
            }
            _ => Error::unauthorized(),
        }
    }
}

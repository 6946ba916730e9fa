//! Replies and errors in SCIM's format.

use http::{
    HeaderValue, StatusCode,
    header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use platform_engine::error::{Code, Error};
use platform_http::{
    Reply,
    mount::{self, Refusal},
};
use serde::Serialize;
use serde_json::{Value, json};

const ERROR: &str = "urn:ietf:params:scim:api:messages:2.0:Error";
pub(super) const LIST: &str = "urn:ietf:params:scim:api:messages:2.0:ListResponse";

/// Maximum number of users on a page; our choice.
pub(super) const MAX_COUNT: usize = 200;

/// Error in SCIM's format (RFC 7644 section 3.12).
#[derive(Debug)]
pub(super) struct ScimError {
    status: StatusCode,
    pub(super) kind: &'static str,
    detail: String,
    allow: &'static str,
}

impl ScimError {
    pub(super) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into(), allow: "" }
    }

    pub(super) fn invalid(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, kind, detail)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "", "Resource not found")
    }

    /// Adds the value of the Allow header.
    pub(super) fn allowing(self, allow: &'static str) -> Self {
        Self { allow, ..self }
    }

    fn to_json(&self) -> Value {
        let (status, detail) = (self.status.as_str(), &self.detail);
        match self.kind {
            "" => json!({ "schemas": [ERROR], "status": status, "detail": detail }),
            kind => json!({ "schemas": [ERROR], "status": status, "scimType": kind, "detail": detail }),
        }
    }

    pub(super) fn into_reply(self) -> Reply {
        let mut reply = scim(self.status, &self.to_json());
        if self.status == StatusCode::UNAUTHORIZED {
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if !self.allow.is_empty() {
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static(self.allow));
        }
        reply
    }
}

impl From<Error> for ScimError {
    fn from(error: Error) -> Self {
        let kind = match error.code() {
            Code::InvalidArgument => "invalidValue",
            Code::AlreadyExists => "uniqueness",
            _ => "",
        };
        Self { kind, ..Refusal::from(error).into() }
    }
}

impl From<Refusal> for ScimError {
    fn from(refusal: Refusal) -> Self {
        let (status, message) = refusal.status_and_message();
        let refused = Self::new(status, "", message);
        refusal.log();
        refused
    }
}

/// Returns a reply with a SCIM body.
pub(super) fn scim(status: StatusCode, body: &impl Serialize) -> Reply {
    // JSON values and strings can always be written.
    let mut reply = mount::json(serde_json::to_string(body).unwrap_or_default());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/scim+json"));
    reply
}

#[cfg(test)]
mod tests {
    use super::{super::attributes, *};

    #[test]
    fn an_error_has_the_attributes_of_the_table() {
        attributes::tests::assert_has(&ScimError::invalid("invalidValue", "x").to_json(), attributes::ERROR);
    }
}

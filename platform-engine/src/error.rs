//! Errors in the form of AIP-193: a code, a message, and typed details that programs branch on.
//!
//! There is one error type for all layers above the store. It has canonical codes and no HTTP statuses; each transport
//! maps the codes in one place. An error's [`source`] is for logs and is never part of the message or details that a
//! client receives.
//!
//! [`source`]: std::error::Error::source

use std::{any::Any, error::Error as StdError, fmt};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    kind::Kind,
    store::{Cause, StoreError},
};

mod conditions;
mod denial;
mod idempotency;
mod violations;

pub use denial::Denial;
pub use violations::{FieldViolation, Violations};

/// The result of an operation of the platform.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an operation: a code, a message and details for the client, and a source for logs.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    reason: Option<&'static str>,
    message: String,
    domain: &'static str,
    details: Vec<Detail>,
    denial: Option<Denial>,
    /// The metadata of the ErrorInfo.
    metadata: Vec<(&'static str, String)>,
    source: Option<Cause>,
}

#[derive(Debug, thiserror::Error)]
#[error("data that the operation depends on has changed")]
struct Stale;

/// The canonical codes, with the numbers of `google.rpc.Code`. Exhaustive, because the list is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "their meaning is google.rpc.Code's, documented there and in docs/api.md, Errors")]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Returns the name that an ErrorInfo gives as the reason, such as `INVALID_ARGUMENT`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// A typed detail, in addition to the ErrorInfo that every error has.
///
/// Exhaustive, because each transport must encode every case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// `google.rpc.BadRequest`: every rule that a request breaks.
    BadRequest(Vec<FieldViolation>),
    /// `google.rpc.PreconditionFailure`: the preconditions that do not hold.
    PreconditionFailure {
        /// The type of all of them, a constant for programs, such as `RESOURCE_NOT_EMPTY`.
        kind: &'static str,
        /// The preconditions, for people.
        descriptions: Vec<String>,
    },
    /// `google.rpc.QuotaFailure`: the quota that is exceeded.
    QuotaFailure {
        /// The subject of the quota: `organization:` and its uid.
        subject: String,
        /// The quota, for people.
        description: String,
    },
    /// `google.rpc.ResourceInfo`: the resource that was not found or already exists.
    ResourceInfo {
        /// The domain of the kind, which may be another than the error's.
        domain: &'static str,
        /// The kind's name, such as `Group`; on the wire it follows the domain and a slash.
        kind: &'static str,
        /// Its uid, or the name in the request.
        name: String,
    },
    /// `google.rpc.RetryInfo`: when to retry.
    RetryInfo {
        /// The delay in milliseconds.
        millis: u64,
    },
}

impl Error {
    /// Returns an error of this code with this message.
    ///
    /// The client receives the message unchanged. Prefer the constructors below, which add details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        let (details, metadata) = (Vec::new(), Vec::new());
        let inner = Inner { code, reason: None, message, domain: "", details, denial: None, metadata, source: None };
        Self(Box::new(inner))
    }

    /// Returns INVALID_ARGUMENT for a request with these violations. The message has the first one, the BadRequest all.
    pub fn invalid(violations: Violations) -> Self {
        let all = violations.into_vec();
        Self::new(Code::InvalidArgument, invalid_message(&all)).with(Detail::BadRequest(all))
    }

    /// Returns INVALID_ARGUMENT for a request with one violation.
    pub fn invalid_field(field: impl Into<String>, description: impl Into<String>) -> Self {
        let mut violations = Violations::default();
        violations.add(field, description);
        Self::invalid(violations)
    }

    /// Returns NOT_FOUND for a resource. Only for callers who may know whether it exists.
    pub fn not_found(kind: &Kind, name: impl Into<String>) -> Self {
        let name = name.into();
        Self::new(Code::NotFound, format!("{} not found: {name}", kind.name)).of_resource(kind, name)
    }

    /// Renames the fields of the violations, in the message too.
    #[must_use]
    pub fn rename_fields(mut self, rename: impl Fn(&str) -> String) -> Self {
        let is_bad_request = |detail: &&mut Detail| matches!(detail, Detail::BadRequest(_));
        let Some(Detail::BadRequest(violations)) = self.0.details.iter_mut().find(is_bad_request) else { return self };
        violations.iter_mut().for_each(|violation| violation.field = rename(&violation.field));
        self.0.message = invalid_message(violations);
        self
    }

    /// Names the resource that the error is about: its uid, or the name in the request; empty when neither may be
    /// shown. Only for callers who may know it.
    #[must_use]
    pub fn of_resource(self, kind: &Kind, name: impl Into<String>) -> Self {
        self.with(Detail::ResourceInfo { domain: kind.domain.name, kind: kind.name, name: name.into() })
    }

    /// Returns ALREADY_EXISTS; add the resource with [`Error::of_resource`].
    pub fn already_exists(message: impl Into<String>) -> Self {
        Self::new(Code::AlreadyExists, message)
    }

    /// Returns FAILED_PRECONDITION with a PreconditionFailure. `kind` is the violation's type, such as
    /// `RESOURCE_NOT_EMPTY`.
    pub fn blocked(kind: &'static str, description: impl Into<String>) -> Self {
        let description = description.into();
        Self::blocked_by(kind, &description.clone(), vec![description])
    }

    /// Returns FAILED_PRECONDITION as [`Error::blocked`] does, with this description in the message and these violations.
    pub(crate) fn blocked_by(kind: &'static str, description: &str, descriptions: Vec<String>) -> Self {
        Self::new(Code::FailedPrecondition, format!("Precondition failed: {description}"))
            .with(Detail::PreconditionFailure { kind, descriptions })
    }

    /// Returns PERMISSION_DENIED. It is the same whether or not the resource exists.
    pub fn denied() -> Self {
        Self::new(Code::PermissionDenied, "Permission denied")
    }

    /// Returns UNAUTHENTICATED, for a caller without a proved identity.
    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(Code::Unauthenticated, message)
    }

    /// Returns INTERNAL, for a fault of the server. The client receives no part of `source`, which is for logs.
    pub fn internal(source: impl Into<Cause>) -> Self {
        Self::new(Code::Internal, "Internal error").because(source)
    }

    /// Returns INTERNAL for a panic, with the panic's message as the source.
    pub fn panicked(thrown: &(dyn Any + Send)) -> Self {
        let text = thrown.downcast_ref::<&str>().copied();
        let text = text.or_else(|| thrown.downcast_ref::<String>().map(String::as_str));
        Self::internal(format!("panicked: {}", text.unwrap_or("with no message")))
    }

    /// Returns UNAUTHENTICATED, for a request without a bearer token.
    pub fn missing_token() -> Self {
        Self::unauthenticated("A bearer token is required")
    }

    /// Returns UNAUTHENTICATED, for a token that was revoked.
    pub fn revoked_token() -> Self {
        Self::unauthenticated("The token was revoked")
    }

    /// Returns ABORTED, for an operation that kept conflicting with other changes. The client may retry after 100 ms.
    pub fn busy() -> Self {
        Self::new(Code::Aborted, "Too many changes at once; try again").with(Detail::RetryInfo { millis: 100 })
    }

    /// Returns RESOURCE_EXHAUSTED, for a full queue. The client may retry after a second.
    pub fn exhausted() -> Self {
        Self::new(Code::ResourceExhausted, "Too much is waiting; try again").with(Detail::RetryInfo { millis: 1000 })
    }

    /// Returns UNAVAILABLE with the reason `READ_ONLY`, for a write that was not made because the operator has switched
    /// writes off. Our choice: clients that repeat requests wait until the maintenance ends.
    pub fn read_only() -> Self {
        let error = Self::new(Code::Unavailable, "The server is read-only for maintenance; nothing was changed");
        Self(Box::new(Inner { reason: Some(READ_ONLY), ..*error.0 }))
    }

    /// Returns RESOURCE_EXHAUSTED with a QuotaFailure, for a create with which an organization would have more resources
    /// of a kind than its quota. It has no RetryInfo: only a delete or a greater quota helps.
    pub fn quota_exceeded(kind: &Kind, organization: &str, most: u64) -> Self {
        let description =
            format!("the organization {organization} can have at most {most} resources of kind {}", kind.name);
        Self::new(Code::ResourceExhausted, format!("Quota exceeded: {description}"))
            .with(Detail::QuotaFailure { subject: format!("organization:{organization}"), description })
    }

    /// Returns the private error that makes the platform retry an operation because its data has changed.
    pub fn stale() -> Self {
        Self::busy().because(Stale)
    }

    /// Returns whether this is [`Error::stale`].
    pub fn is_stale(&self) -> bool {
        self.0.source.as_ref().is_some_and(|source| source.is::<Stale>())
    }

    /// Returns whether the store did not answer, or did not confirm a write.
    pub(crate) fn is_of_unreachable_store(&self) -> bool {
        let source = self.0.source.as_ref().and_then(|source| source.downcast_ref::<StoreError>());
        matches!(source, Some(StoreError::Unavailable(_) | StoreError::Unknown(_)))
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, detail: Detail) -> Self {
        self.0.details.push(detail);
        self
    }

    /// Adds the cause, for logs.
    #[must_use]
    pub fn because(mut self, source: impl Into<Cause>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Sets the domain of the error (`iam`, `registry`, …), unless it is already set.
    #[must_use]
    pub fn of_domain(mut self, domain: &'static str) -> Self {
        if self.0.domain.is_empty() {
            self.0.domain = domain;
        }
        self
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the reason of the ErrorInfo: the name of the code, or a more specific one.
    pub fn reason(&self) -> &'static str {
        self.0.reason.unwrap_or(self.0.code.reason())
    }

    /// Returns whether this is [`Error::read_only`].
    pub fn is_read_only(&self) -> bool {
        self.0.reason == Some(READ_ONLY)
    }

    /// Returns the message for the client.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the details, without the ErrorInfo.
    pub fn details(&self) -> &[Detail] {
        &self.0.details
    }

    /// Returns the violations of an invalid request; empty for other errors.
    pub fn violations(&self) -> &[FieldViolation] {
        self.0
            .details
            .iter()
            .find_map(|detail| match detail {
                Detail::BadRequest(violations) => Some(violations.as_slice()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Returns the error as `google.rpc.Status` in JSON: `code`, `message` and `details`, the ErrorInfo first.
    /// `service_domain` is the installation's (`docs/api.md`, Errors).
    pub fn status(&self, service_domain: &str) -> Status {
        let inner = &*self.0;
        let domain = match inner.domain {
            "" => service_domain.to_owned(),
            domain => format!("{domain}.{service_domain}"),
        };
        let mut info =
            Map::from_iter([("reason".to_owned(), json!(self.reason())), ("domain".to_owned(), json!(domain))]);
        if !inner.metadata.is_empty() {
            let metadata = inner.metadata.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
            info.insert("metadata".to_owned(), Value::Object(metadata.collect()));
        }
        let info = typed("ErrorInfo", Value::Object(info));
        let details = std::iter::once(info).chain(inner.details.iter().map(|detail| detail.to_json(service_domain)));
        Status { code: inner.code as i32, message: inner.message.clone(), details: details.collect() }
    }
}

/// The reason of [`Error::read_only`].
const READ_ONLY: &str = "READ_ONLY";

fn invalid_message(violations: &[FieldViolation]) -> String {
    match violations.first() {
        Some(first) => format!("Invalid argument: {}: {}", first.field, first.description),
        None => "Invalid argument".to_owned(),
    }
}

/// An error in its wire format: `google.rpc.Status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The number of the code.
    pub code: i32,
    /// The message, for people.
    pub message: String,
    /// Objects with an `@type`, the ErrorInfo first.
    pub details: Vec<Value>,
}

impl Detail {
    fn to_json(&self, service_domain: &str) -> Value {
        match self {
            Self::BadRequest(violations) => typed("BadRequest", json!({ "fieldViolations": violations })),
            Self::PreconditionFailure { kind, descriptions } => {
                let violation = |description| json!({ "type": kind, "description": description });
                let violations: Vec<_> = descriptions.iter().map(violation).collect();
                typed("PreconditionFailure", json!({ "violations": violations }))
            }
            Self::QuotaFailure { subject, description } => {
                typed("QuotaFailure", json!({ "violations": [{ "subject": subject, "description": description }] }))
            }
            Self::ResourceInfo { domain, kind, name } => typed(
                "ResourceInfo",
                json!({ "resourceType": format!("{domain}.{service_domain}/{kind}"), "resourceName": name }),
            ),
            Self::RetryInfo { millis } => {
                typed("RetryInfo", json!({ "retryDelay": format!("{}.{:03}s", millis / 1000, millis % 1000) }))
            }
        }
    }
}

fn typed(name: &str, fields: Value) -> Value {
    let mut object = Map::new();
    object.insert("@type".to_owned(), format!("type.googleapis.com/google.rpc.{name}").into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.reason(), self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Maps errors of the store. A conflict becomes ABORTED here only if the code that committed does not handle it.
impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let (code, message) = match &error {
            StoreError::Conflict(_) => (Code::Aborted, "Too many changes at once; try again"),
            StoreError::Invalid(_) => (Code::InvalidArgument, "A value has characters that the store cannot hold"),
            StoreError::Full(_) => (Code::ResourceExhausted, "The server has no room to write"),
            StoreError::TooCostly(_) => (
                Code::DeadlineExceeded,
                "The list takes too long over all organizations; name an organization as its parent, or leave out the \
                 total, the skip, the filter or the order",
            ),
            StoreError::ReadOnly => return Self::read_only(),
            StoreError::Corrupt(_) => (Code::DataLoss, "Stored data is damaged; the operator must check the store"),
            StoreError::Unavailable(_) => (Code::Unavailable, "The store is not available"),
            StoreError::Unknown(_) => {
                (Code::Unavailable, "The store did not confirm the write; it may or may not have been applied")
            }
        };
        Self::new(code, message).because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kind::Resource, sample::Note};

    fn status(error: Error) -> Value {
        serde_json::to_value(error.of_domain("iam").status("platform.test")).unwrap()
    }

    #[test]
    fn an_invalid_request_names_every_field_and_rule() {
        let mut violations = Violations::default();
        violations.add("name", "is required");
        violations.add("claimMatch.issuer", "is required");
        assert_eq!(
            status(Error::invalid(violations)),
            json!({
                "code": 3,
                "message": "Invalid argument: name: is required",
                "details": [
                    { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_ARGUMENT", "domain": "iam.platform.test" },
                    { "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [
                        { "field": "name", "description": "is required" },
                        { "field": "claimMatch.issuer", "description": "is required" },
                    ] },
                ],
            })
        );
    }

    #[test]
    fn a_blocked_delete_names_the_precondition() {
        assert_eq!(
            status(Error::blocked("RESOURCE_NOT_EMPTY", "cannot delete group with child repos")),
            json!({
                "code": 9,
                "message": "Precondition failed: cannot delete group with child repos",
                "details": [
                    { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "FAILED_PRECONDITION", "domain": "iam.platform.test" },
                    { "@type": "type.googleapis.com/google.rpc.PreconditionFailure", "violations": [
                        { "type": "RESOURCE_NOT_EMPTY", "description": "cannot delete group with child repos" },
                    ] },
                ],
            })
        );
    }

    #[test]
    fn not_found_names_the_resource_by_type_and_name() {
        assert_eq!(
            status(Error::not_found(Note::KIND, "abc"))["details"][1],
            json!({ "@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceType": "notes.platform.test/Note", "resourceName": "abc" })
        );
    }

    #[test]
    fn the_source_of_an_error_is_not_sent_to_the_client() {
        let error = Error::internal("secret path");
        assert!(error.source().is_some());
        assert!(!status(error).to_string().contains("secret"));
    }
}

//! Error responses: the format of AIP-193, its details, and examples for each status.

use http::StatusCode;
use platform_engine::{
    error::{Code, Error, Violations},
    etag::Tag,
    kind::Kind,
    platform::Platform,
};
use serde_json::{Map, Value, json};

use super::{
    examples::{ORGANIZATION, UID},
    operations::words,
    schema::reference,
};
use crate::status;

/// Error response of operations, with a status and the errors that have it.
pub(crate) struct ErrorResponse {
    /// HTTP status.
    pub(crate) status: StatusCode,
    description: &'static str,
    /// Examples of errors about resources of a kind.
    examples: fn(&Kind) -> Vec<Error>,
}

/// All error responses, ordered by status.
pub(crate) const ERROR_RESPONSES: &[ErrorResponse] = &[
    ErrorResponse {
        status: StatusCode::BAD_REQUEST,
        description: "The request is invalid, or a precondition of the operation is not met.",
        examples: |kind| {
            let mut violations = Violations::default();
            violations.add("order_by", "unknown field");
            violations.add("page_size", "must not be negative");
            let why = format!("cannot delete {} with child resources", words(kind.name));
            vec![Error::invalid(violations), Error::blocked("RESOURCE_NOT_EMPTY", why)]
        },
    },
    ErrorResponse {
        status: StatusCode::UNAUTHORIZED,
        description: "The bearer token is missing or invalid.",
        examples: |_| vec![Error::missing_token()],
    },
    ErrorResponse {
        status: StatusCode::FORBIDDEN,
        description: "The caller does not have the required capability, whether or not the resource exists.",
        examples: |_| vec![Error::denied()],
    },
    ErrorResponse {
        status: StatusCode::NOT_FOUND,
        description: "The resource does not exist, and the caller is allowed to know.",
        examples: |kind| vec![Error::not_found(kind, UID)],
    },
    ErrorResponse {
        status: StatusCode::CONFLICT,
        description: "The resource already exists, or too many changes were made at once.",
        examples: |kind| {
            let which = kind.unique.first().map_or("A resource with this uid", |rule| rule.description);
            let exists = Error::already_exists(format!("{which} already exists"));
            vec![exists.of_resource(kind, UID), Error::busy()]
        },
    },
    ErrorResponse {
        status: StatusCode::GONE,
        description: "The resume token of a watch is too old: list again, and watch without a token.",
        examples: |_| vec![Error::new(Code::OutOfRange, "The changes since this token are no longer known")],
    },
    ErrorResponse {
        status: StatusCode::PRECONDITION_FAILED,
        description: "A precondition of the request does not hold, or this method does not check it. Nothing was changed.",
        examples: |_| vec![Error::etag_mismatch(Some(Tag::of_stored(31))), Error::unchecked_condition("If-Match")],
    },
    ErrorResponse {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        description: "The body exceeds the size limit of this server.",
        examples: |_| vec![Error::invalid_field("body", "is larger than 1048576 bytes")],
    },
    ErrorResponse {
        status: StatusCode::URI_TOO_LONG,
        description: "The path or the query exceeds the length limit of this server.",
        examples: |_| vec![Error::invalid_field("query", "is longer than 32768 bytes")],
    },
    ErrorResponse {
        status: StatusCode::TOO_MANY_REQUESTS,
        description: "A limit was exceeded.",
        examples: |kind| vec![Error::quota_exceeded(kind, ORGANIZATION, 100)],
    },
    ErrorResponse {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        description: "A server fault, or damaged data.",
        examples: |_| vec![Error::new(Code::Internal, "Internal error")],
    },
    ErrorResponse {
        status: StatusCode::NOT_IMPLEMENTED,
        description: "This server does not support the operation.",
        examples: |_| vec![Error::new(Code::Unimplemented, "This operation is not supported")],
    },
    ErrorResponse {
        status: StatusCode::SERVICE_UNAVAILABLE,
        description: "The server is temporarily unavailable.",
        examples: |_| vec![Error::new(Code::Unavailable, "The store is not available")],
    },
    ErrorResponse {
        status: StatusCode::GATEWAY_TIMEOUT,
        description: "The request took too long. Its changes may still have been made.",
        examples: |_| vec![Error::new(Code::DeadlineExceeded, "The request took too long")],
    },
];

impl ErrorResponse {
    /// Returns the name of the response among the components.
    fn name(&self) -> String {
        self.status.canonical_reason().unwrap_or_default().replace(' ', "")
    }

    /// Returns a reference to the response.
    pub(crate) fn reference(&self) -> Value {
        json!({ "$ref": format!("#/components/responses/{}", self.name()) })
    }

    fn response(&self, kind: Option<&Kind>, service_domain: &str) -> Value {
        let example = |kind: &Kind, error: Error| {
            let of_http = matches!(error.code(), Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange);
            debug_assert!(status::of(error.code()) == self.status || of_http || error.is_of_condition());
            let name = error.code().reason();
            let value = error.of_domain(kind.domain.name).status(service_domain);
            (name.to_owned(), json!({ "value": value }))
        };
        let of_kind = |kind| (self.examples)(kind).into_iter().map(move |error| example(kind, error));
        let examples: Map<_, _> = kind.into_iter().flat_map(of_kind).collect();
        json!({
            "description": self.description,
            "content": { "application/json": { "schema": reference("Status"), "examples": examples } },
        })
    }
}

/// Returns the kind that examples of errors are about: the first one with methods.
fn kind_of_examples(platform: &Platform) -> Option<&'static Kind> {
    platform.kinds().find(|kind| !kind.methods.is_empty())
}

/// Returns the response components, which operations reference.
pub(crate) fn components(platform: &Platform) -> Map<String, Value> {
    let (kind, service_domain) = (kind_of_examples(platform), &platform.settings().service_domain);
    ERROR_RESPONSES.iter().map(|response| (response.name(), response.response(kind, service_domain))).collect()
}

/// Returns the schemas of errors.
pub(crate) fn schemas(platform: &Platform) -> Map<String, Value> {
    let service_domain = &platform.settings().service_domain;
    let (domain, resource_type) = match kind_of_examples(platform) {
        Some(kind) => (format!("{}.{service_domain}", kind.domain.name), kind.resource_type(service_domain)),
        None => (service_domain.clone(), service_domain.clone()),
    };
    let mut schemas = Map::new();
    let (mut details, mut mapping) = (Vec::new(), Map::new());
    for (name, description, fields) in [
        (
            "ErrorInfo",
            "The reason of the error, for programs. It is the first detail of every error.",
            json!({
                "reason": {
                    "type": "string", "examples": ["INVALID_ARGUMENT"],
                    "description": "The name of the code, or a more specific reason, such as `ETAG_MISMATCH`.",
                },
                "domain": {
                    "type": "string", "examples": [domain],
                    "description": "The domain of the API, a dot and the installation's service domain; only the \
                                    service domain for an unknown path.",
                },
                "metadata": {
                    "type": "object", "additionalProperties": { "type": "string" },
                    "description": "Of ETAG_MISMATCH, the current `etag` of the resource. Of PERMISSION_DENIED, if the \
                                    caller may see the place: `capabilities`, the names of those that the caller lacks \
                                    at `place`; `roles`, the names of roles that have them; `bindings`, the caller's \
                                    own role bindings that count there, each as the role, `@` and the uid of its \
                                    group; `names`, the names of the groups in `place`, separated by slashes; \
                                    `narrowed`, which is `true` if only the token does not allow the request. Lists \
                                    are separated by commas. Of a delete with RESOURCE_NOT_EMPTY, the number of \
                                    resources that are in the way, by the plural of their kind.",
                },
            }),
        ),
        (
            "BadRequest",
            "All rules that the request violates.",
            json!({
                "fieldViolations":
                    items("The violated rules, in the order in which they were found.", &["field", "description"]),
            }),
        ),
        (
            "PreconditionFailure",
            "The preconditions that are not met.",
            json!({ "violations": items("The preconditions.", &["type", "description"]) }),
        ),
        (
            "QuotaFailure",
            "The quotas that are exceeded.",
            json!({ "violations": items("The quotas.", &["subject", "description"]) }),
        ),
        (
            "ResourceInfo",
            "The resource that does not exist, or already exists.",
            json!({
                "resourceType": {
                    "type": "string", "examples": [resource_type],
                    "description": "The domain of the kind, a slash and its name.",
                },
                "resourceName": {
                    "type": "string",
                    "description": "Its uid, or the requested name; empty if the caller is not allowed to know either.",
                },
            }),
        ),
        (
            "RetryInfo",
            "The delay after which to retry.",
            json!({ "retryDelay": {
                "type": "string", "pattern": "^[0-9]+\\.[0-9]{3}s$", "examples": ["0.100s"],
                "description": "The delay in seconds.",
            } }),
        ),
    ] {
        let mut properties = Map::new();
        let ty = format!("type.googleapis.com/google.rpc.{name}");
        properties.insert(
            "@type".to_owned(),
            json!({ "type": "string", "const": ty, "description": "The type of the detail." }),
        );
        properties.extend(fields.as_object().cloned().unwrap_or_default());
        let required: Vec<_> = properties.keys().filter(|name| *name != "metadata").cloned().collect();
        schemas.insert(
            name.to_owned(),
            json!({
                "type": "object", "description": description, "properties": properties, "required": required,
            }),
        );
        mapping.insert(ty, format!("#/components/schemas/{name}").into());
        details.push(reference(name));
    }
    // Two of the details have the same fields, so generators need the type.
    let detail = json!({ "oneOf": details, "discriminator": { "propertyName": "@type", "mapping": mapping } });
    let status = json!({
        "type": "object",
        "description": "The reason why a request was rejected (AIP-193). Branch on the code and on the types of the \
                        details.",
        "properties": {
            "code": { "type": "integer", "minimum": 1, "maximum": 16, "description": "A number of google.rpc.Code." },
            "message": { "type": "string", "description": "The error message, for people." },
            "details": {
                "type": "array", "minItems": 1, "items": detail,
                "description": "Typed details, of which the first is the ErrorInfo.",
            },
        },
        "required": ["code", "message", "details"],
    });
    schemas.insert("Status".to_owned(), status);
    schemas
}

fn items(description: &str, names: &[&str]) -> Value {
    let about = |name: &str| match name {
        "field" => "The path of the field in camelCase, with dots for nested fields.",
        "type" => "A constant for programs, such as `RESOURCE_NOT_EMPTY`.",
        _ => "The violated rule or precondition, for people.",
    };
    let property = |name: &&str| ((*name).to_owned(), json!({ "type": "string", "description": about(name) }));
    let properties: Map<_, _> = names.iter().map(property).collect();
    json!({
        "type": "array", "description": description,
        "items": {
            "type": "object", "properties": properties, "required": names,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_documented_status() {
        for code in [Code::InvalidArgument, Code::NotFound, Code::Aborted, Code::DataLoss, Code::DeadlineExceeded] {
            assert!(ERROR_RESPONSES.iter().any(|response| response.status == status::of(code)), "{code:?}");
        }
    }
}

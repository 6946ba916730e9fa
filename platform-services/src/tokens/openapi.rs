//! The token services in the OpenAPI document.

use platform_core::tokens::{Exchange, Grant, HeadlessSession, MAX_AUDIENCE, MAX_AUDIENCES, Refresh, Register};
use platform_engine::kind::{Field, Type};
use platform_http::openapi::{errors, parameters, reply_schema, request_schema};
use serde_json::{Map, Value, json};

use crate::openapi::{Operation, Parts, content, property, reference};

const STS: &str = "SecurityTokenService";
const AUTH: &str = "Auth";
const OAUTH: &str = "OAuth";

/// Formats of a request.
const FORMATS: &[&str] = &["application/json", "application/x-www-form-urlencoded"];

const IN_ANY_FORM: &str = "Parameters are sent in the query, as a form or as a JSON object, each at most once.";

/// An operation with its tag, the schema of its body and the schema of its reply.
type Row = (Operation, &'static str, Option<&'static str>, Option<&'static str>);

pub(super) const OPERATIONS: &[Row] = &[
    (
        Operation {
            method: "post",
            path: "/sts/exchange",
            id: "Exchange",
            summary: "Exchanges an upstream token for a token of this platform",
            description: IN_ANY_FORM,
        },
        STS,
        Some("ExchangeRequest"),
        Some("RawToken"),
    ),
    (
        Operation {
            method: "get",
            path: "/sts/exchange",
            id: "ExchangeByQuery",
            summary: "Exchanges an upstream token for a token of this platform",
            description: "The same as the POST, with its parameters in the query.",
        },
        STS,
        None,
        Some("RawToken"),
    ),
    (
        Operation {
            method: "post",
            path: "/sts/exchange_refresh_token",
            id: "ExchangeRefreshToken",
            summary: "Exchanges a refresh token, which can be used only once",
            description: IN_ANY_FORM,
        },
        STS,
        Some("ExchangeRefreshTokenRequest"),
        Some("TokenPair"),
    ),
    (
        Operation {
            method: "post",
            path: "/oauth/token",
            id: "OAuthToken",
            summary: "Issues tokens for a code, a refresh token or an upstream token (OAuth 2.0)",
            description: "The credential is a parameter. Parameters are sent as a form, with the names of OAuth 2.0 such \
                          as `grant_type`, or as a JSON object. Unknown ones are ignored.",
        },
        OAUTH,
        Some("OAuthTokenRequest"),
        Some("OAuthTokens"),
    ),
    (
        Operation {
            method: "get",
            path: "/sts/headless_sessions",
            id: "GetHeadlessSession",
            summary: "Returns the session of a headless sign-in that a person has confirmed, once",
            description: "NOT_FOUND until the person has confirmed the sign-in. It needs no token.",
        },
        AUTH,
        None,
        Some("HeadlessSession"),
    ),
    (
        Operation {
            method: "get",
            path: "/auth/v1/ok",
            id: "Validate",
            summary: "Returns the identity of a token and its current capabilities",
            description: "Accepts any token of this platform.",
        },
        AUTH,
        None,
        Some("WhoAmI"),
    ),
    (
        Operation {
            method: "post",
            path: "/auth/v1/register",
            id: "Register",
            summary: "Registers the person that an upstream token names, and redeems an invite",
            description: IN_ANY_FORM,
        },
        AUTH,
        Some("RegisterRequest"),
        Some("Registration"),
    ),
    (
        Operation {
            method: "delete",
            path: "/auth/v1/delete/{id}",
            id: "Delete",
            summary: "Deletes the calling person",
            description: "Persons can only delete themselves.",
        },
        AUTH,
        None,
        None,
    ),
];

/// Statuses of errors, the same for all operations.
const ERRORS: &[u16] = &[400, 401, 403, 404, 409, 413, 414, 429, 500, 501, 503, 504];

/// Those of the token endpoint of OAuth 2.0, which rejects a credential with 400.
const OAUTH_ERRORS: &[u16] = &[400, 413, 414, 429, 500, 501, 503, 504];

const TOKEN: Field = Field::string("token").required();
const EXPIRY: Field = Field::timestamp("expiry").required();

const RAW_ACCESS_TOKEN: Field = TOKEN.about("The access token.");
const RAW_EXPIRY: Field = EXPIRY.about("The time when the access token expires.");

const RAW_TOKEN: &[Field] = &[
    RAW_ACCESS_TOKEN,
    Field::string("refreshToken").about("The refresh token, for registered persons; absent for other identities."),
    RAW_EXPIRY,
];

/// The members of OAuth 2.0 in a reply, with their types and descriptions (RFC 6749 section 5.1, RFC 8693 section 2.2.1).
const OAUTH_MEMBERS: [(&str, &str, &str); 6] = [
    ("access_token", "string", "The access token, as `token`."),
    ("token_type", "string", "Always `Bearer`."),
    ("expires_in", "integer", "The time until the access token expires, in seconds."),
    ("refresh_token", "string", "The refresh token, for registered persons; absent for other identities."),
    ("issued_token_type", "string", "The type of the token, for an exchange."),
    ("scope", "string", "The groups that this request narrows the token to, separated by spaces; absent for none."),
];

const ISSUED_TOKEN: &[Field] = &[TOKEN.about("The token."), EXPIRY.about("The time when the token expires.")];

const REGISTRATION: &[Field] = &[
    Field::string("identity").required().about("The person's uid."),
    Field::string("group").about("The group of the redeemed invite; absent without an invite."),
];

const HEADLESS_SESSION: &[Field] = &[
    Field::new("ecdhPublicKey", Type::Bytes)
        .required()
        .about("The server's X25519 public key: the bytes of its base64url without padding."),
    Field::new("encryptedIdtoken", Type::Bytes)
        .required()
        .about("A nonce of 12 bytes, and the access token encrypted with AES-256-GCM under the shared secret."),
];

const WHO_AM_I: &[Field] = &[
    Field::string("issuer").required().about("The token's issuer."),
    Field::string("subject").required().about("The token's subject."),
    Field::strings("audience").required().about("The token's audiences."),
    EXPIRY.about("The time when the token expires."),
    Field::timestamp("issuedAt").about("The time when the token was issued."),
    Field::new("capabilities", Type::List(&Type::Message(GROUP_CAPABILITIES))).required().about(
        "The caller's current capabilities, per group. With very many groups, only the topmost ones that fit into 1 \
         MiB.",
    ),
    Field::string("email").about("The person's email address."),
    Field::message("profile", PROFILE).about("The claims of the token about the person."),
];

const GROUP_CAPABILITIES: &[Field] = &[
    Field::string("group").required().about("The group's uid."),
    Field::string("role").about("The name of the built-in role, if the capabilities are exactly those of one."),
    Field::strings("capabilities").about("The names of the capabilities, if they are not those of a built-in role."),
];

const PROFILE: &[Field] = &[
    Field::string("name").about("The full name."),
    Field::string("picture").about("The URL of a picture."),
    Field::string("givenName").about("The given name."),
    Field::string("familyName").about("The family name."),
];

/// Returns the part of the document.
pub(super) fn part() -> Value {
    let mut paths = Map::new();
    for (operation, tag, body, reply) in OPERATIONS {
        let mut responses = errors(if operation.id == "OAuthToken" { OAUTH_ERRORS } else { ERRORS });
        if operation.id == "OAuthToken" {
            let rejected = json!({
                "description": "The request is invalid, or the credential is not accepted (RFC 6749 section 5.2).",
                "content": content(&["application/json"], &reference("OAuthError")),
            });
            responses.insert("400".to_owned(), rejected);
        }
        let success = match reply {
            Some(schema) => Some(json!({
                "description": "Done.", "content": content(&["application/json"], &reference(schema)),
            })),
            None if operation.method == "delete" => Some(json!({
                "description": "The person is deleted. The body is `{}` when the Accept header lists \
                                `application/json`, and empty otherwise.",
                "content": content(&["application/json"], &json!({ "type": "object" })),
            })),
            None => None,
        };
        if let Some(success) = success {
            responses.shift_insert(0, "200".to_owned(), success);
        }
        let parameters = match operation.id {
            "GetHeadlessSession" => parameters(HeadlessSession::REQUEST),
            "ExchangeByQuery" => parameters(&documented(Exchange::FIELDS)),
            "Delete" => vec![json!({
                "name": "id", "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 },
                "description": "The uid of the calling person.",
            })],
            _ => Vec::new(),
        };
        let parts = Parts {
            tag,
            security: matches!(operation.id, "GetHeadlessSession" | "OAuthToken").then(|| json!([])),
            parameters,
            body: body.map(|schema| json!({ "content": content(FORMATS, &reference(schema)) })),
            responses,
        };
        operation.add_to(&mut paths, parts);
    }
    let issued = |description: &str| json!({ "$ref": "#/components/schemas/IssuedToken", "description": description });
    json!({
        "tags": [
            {
                "name": STS,
                "description": "Exchange of upstream tokens for tokens of this platform. The bearer token is the \
                                credential to exchange.",
            },
            { "name": OAUTH, "description": "The token endpoint of OAuth 2.0, for standard clients." },
            { "name": AUTH, "description": "Registration, inspection and deletion of persons." },
        ],
        "paths": paths,
        "components": { "securitySchemes": { "bearer": {
            "bearerFormat": "JWT",
            "description": "A token of this server's issuer, or of a trusted issuer.",
        } }, "schemas": {
            "ExchangeRequest": request_schema(&documented(Exchange::FIELDS)),
            "ExchangeRefreshTokenRequest": request_schema(&documented(Refresh::FIELDS)),
            "RegisterRequest": request_schema(Register::FIELDS),
            "OAuthTokenRequest": oauth_request(),
            "OAuthTokens": oauth_tokens(),
            "OAuthError": {
                "description": "The reason why a request was rejected, in the forms of OAuth 2.0 and of AIP-193.",
                "allOf": [reference("Status"), {
                    "type": "object",
                    "properties": {
                        "error": property("string", "A value of RFC 6749 section 5.2 or RFC 8693 section 2.2.2."),
                        "error_description": property("string", "The error message, for people."),
                    },
                    "required": ["error", "error_description"],
                }],
            },
            "RawToken": reply_schema(RAW_TOKEN),
            "IssuedToken": reply_schema(ISSUED_TOKEN),
            "TokenPair": {
                "type": "object",
                "properties": {
                    "token": issued("The new access token."),
                    "refreshToken":
                        issued("The next refresh token; the one in the request is no longer valid."),
                },
                "required": ["token", "refreshToken"],
            },
            "Registration": reply_schema(REGISTRATION),
            "WhoAmI": reply_schema(WHO_AM_I),
            "HeadlessSession": reply_schema(HEADLESS_SESSION),
        } },
    })
}

/// Returns the schema of a request to the token endpoint, which may have unknown parameters. It does not say so, which means
/// the same: ogen 1.24 fails on a form whose schema does.
fn oauth_request() -> Value {
    let mut schema = request_schema(Grant::FIELDS);
    if let Some(members) = schema.as_object_mut() {
        members.remove("additionalProperties");
    }
    schema
}

/// Returns the schema of a reply of the token endpoint: that of an exchange, with the members of OAuth 2.0. It lacks
/// `refreshToken`, because generators for TypeScript give this and `refresh_token` the same name.
fn oauth_tokens() -> Value {
    let mut schema = reply_schema(&[RAW_ACCESS_TOKEN, RAW_EXPIRY]);
    let members = OAUTH_MEMBERS.map(|(name, ty, about)| (name.to_owned(), property(ty, about)));
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(members);
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.extend(["access_token", "token_type", "expires_in"].map(Value::from));
    }
    schema
}

/// Returns fields with the limits of audiences, which the requests check by themselves.
fn documented(fields: &[Field]) -> Vec<Field> {
    let limited = |field: &Field| match field.name {
        "aud" => field.max_items(MAX_AUDIENCES).max_len(MAX_AUDIENCE),
        _ => *field,
    };
    fields.iter().map(limited).collect()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::tokens::Endpoint;

    #[test]
    fn every_operation_is_routed() {
        for (Operation { method, path, .. }, ..) in OPERATIONS {
            let method: Method = method.to_uppercase().parse().unwrap();
            assert!(Endpoint::find(path).is_some_and(|endpoint| endpoint.methods().contains(&method)), "{path}");
        }
    }
}

//! SCIM in the OpenAPI document.

use platform_core::uid::Uid;
use platform_http::openapi::errors;
use serde_json::{Map, Value, json};

use crate::openapi::{Operation, Parts, content, property, reference};

/// An operation with the schema of its body, and the status, the description and the schema of its reply.
type Row = (Operation, Option<&'static str>, (u16, &'static str, Option<&'static str>));

const USERS: &str = "/scim/v2/{provider}/Users";
const USER: &str = "/scim/v2/{provider}/Users/{id}";

const OPERATIONS: &[Row] = &[
    (operation("get", USERS, "ScimListUsers", "Lists users"), None, (200, "A page of users.", Some("ScimList"))),
    (
        operation("post", USERS, "ScimCreateUser", "Creates a user"),
        Some("ScimUser"),
        (201, "The user.", Some("ScimUser")),
    ),
    (operation("get", USER, "ScimGetUser", "Gets a user"), None, (200, "The user.", Some("ScimUser"))),
    (
        operation("put", USER, "ScimReplaceUser", "Replaces a user"),
        Some("ScimUser"),
        (200, "The user.", Some("ScimUser")),
    ),
    (
        operation("patch", USER, "ScimPatchUser", "Patches a user"),
        Some("ScimPatch"),
        (200, "The user.", Some("ScimUser")),
    ),
    (operation("delete", USER, "ScimDeleteUser", "Deletes a user"), None, (204, "The user is deleted.", None)),
    (
        operation(
            "get",
            "/scim/v2/{provider}/ServiceProviderConfig",
            "ScimGetServiceProviderConfig",
            "Gets the capabilities of this service",
        ),
        None,
        (200, "The configuration.", Some("")),
    ),
    (
        operation(
            "get",
            "/scim/v2/{provider}/ResourceTypes",
            "ScimListResourceTypes",
            "Lists the resource types, which are only users",
        ),
        None,
        (200, "The resource types.", Some("ScimList")),
    ),
    (
        operation(
            "get",
            "/scim/v2/{provider}/ResourceTypes/User",
            "ScimGetResourceType",
            "Gets the resource type of users",
        ),
        None,
        (200, "The resource type of users.", Some("")),
    ),
    (
        operation("get", "/scim/v2/{provider}/Schemas", "ScimListSchemas", "Lists the schemas of resources"),
        None,
        (200, "The schemas of resources.", Some("ScimList")),
    ),
    (
        operation(
            "get",
            "/scim/v2/{provider}/Schemas/urn:ietf:params:scim:schemas:core:2.0:User",
            "ScimGetSchema",
            "Gets the schema of users",
        ),
        None,
        (200, "The schema of users.", Some("")),
    ),
];

const fn operation(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation { method, path, id, summary, description: "" }
}

/// Errors in SCIM's format.
const ERRORS: &[(u16, &str)] = &[
    (400, "A value is invalid."),
    (401, "The SCIM token is missing or not valid for this path."),
    (403, "SCIM is not enabled for this identity provider."),
    (404, "The resource does not exist."),
    (409, "The user already exists, or too many changes were made at once."),
    (412, "The write has a precondition, which cannot be checked because users have no versions."),
    (413, "The body is larger than 256 KiB."),
    (429, "A limit was exceeded."),
    (500, "A server fault."),
    (503, "The server is temporarily unavailable."),
];

const FORMAT: &[&str] = &["application/scim+json"];

/// Returns the part of the document.
pub(super) fn part() -> Value {
    let mut paths = Map::new();
    for (operation, body, (status, description, schema)) in OPERATIONS {
        let mut responses = Map::new();
        let mut success = json!({ "description": description });
        if let (Some(schema), Some(success)) = (schema, success.as_object_mut()) {
            let schema = if schema.is_empty() { json!({ "type": "object" }) } else { reference(schema) };
            success.insert("content".to_owned(), content(FORMAT, &schema));
        }
        responses.insert(status.to_string(), success);
        let occurring = ERRORS.iter().filter(|(status, _)| *status != 412 || operation.method != "get");
        responses.extend(occurring.map(|(status, description)| {
            let content = content(FORMAT, &reference("ScimError"));
            (status.to_string(), json!({ "description": description, "content": content }))
        }));
        responses.extend(errors(&[414, 504]));
        paths.entry(operation.path).or_insert_with(|| json!({ "parameters": in_path(operation.path) }));
        let parts = Parts {
            tag: "Scim",
            security: Some(json!([{ "scim": [] }])),
            parameters: if operation.id == "ScimListUsers" { list_parameters() } else { Vec::new() },
            body: body.map(|schema| json!({ "content": content(FORMAT, &reference(schema)) })),
            responses,
        };
        operation.add_to(&mut paths, parts);
    }
    json!({
        "tags": [{
            "name": "Scim",
            "description":
                "SCIM 2.0 user provisioning (RFC 7643, RFC 7644), for the directory of an identity provider.",
        }],
        "paths": paths,
        "components": {
            "securitySchemes": { "scim": {
                "type": "http", "scheme": "bearer",
                "description": "The SCIM token of the identity provider, which is valid only for its SCIM paths.",
            } },
            "schemas": { "ScimUser": user(), "ScimList": list(), "ScimPatch": patch(), "ScimError": error() },
        },
    })
}

fn in_path(path: &str) -> Vec<Value> {
    let provider = json!({
        "name": "provider", "in": "path", "required": true,
        "description": "The identity provider's uid, with its slashes encoded as `%2F`.",
        "schema": { "type": "string", "pattern": Uid::PATTERN },
    });
    let id = json!({
        "name": "id", "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 },
        "description": "The user's uid.",
    });
    if path == USER { vec![provider, id] } else { vec![provider] }
}

fn list_parameters() -> Vec<Value> {
    let parameter = |name: &str, ty: &str, description: &str| {
        let schema = json!({ "type": ty });
        json!({ "name": name, "in": "query", "description": description, "schema": schema })
    };
    vec![
        parameter("filter", "string", "`userName eq \"x\"` or `externalId eq \"x\"`."),
        parameter("startIndex", "integer", "The index of the first user, starting at 1."),
        parameter("count", "integer", "The maximum number of users on the page, at most 200."),
    ]
}

fn text(description: &str) -> Value {
    property("string", description)
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

fn user() -> Value {
    let address = json!({ "type": "object", "properties": {
        "value": text("The address, or the value of the operation."),
        "type": text("The type of the address."),
        "primary": property("boolean", "Whether it is the primary address."),
    } });
    let name = json!({ "givenName": text("The given name."), "familyName": text("The family name.") });
    json!({
        "type": "object",
        "description": "Other attributes are ignored.",
        "properties": {
            "schemas": texts("The URNs of the schemas (RFC 7643)."),
            "id": { "type": "string", "readOnly": true, "description": "The user's uid." },
            "userName": text("The user name, unique in the directory and case-insensitive."),
            "externalId": text("The directory's own identifier."),
            "displayName": text("The display name."),
            "active": property("boolean", "Whether the user may sign in."),
            "name": { "type": "object", "properties": name, "description": "The parts of the name." },
            "emails": {
                "type": "array", "items": address,
                "description": "Email addresses, of which only the primary one is stored.",
            },
            "meta": {
                "type": "object", "readOnly": true, "description": "Type, times and location of the resource.",
            },
        },
        "required": ["userName"],
    })
}

fn list() -> Value {
    json!({
        "type": "object",
        "properties": {
            "schemas": texts("The URN of list responses."),
            "totalResults": property("integer", "The number of users that match."),
            "startIndex": property("integer", "The index of the first user on the page, starting at 1."),
            "itemsPerPage": property("integer", "The number of users on the page."),
            "Resources": { "type": "array", "items": { "type": "object" }, "description": "The users." },
        },
        "required": ["schemas", "totalResults", "Resources"],
    })
}

fn patch() -> Value {
    let operation = json!({
        "type": "object",
        "properties": {
            "op": {
                "type": "string", "enum": ["add", "replace", "remove"],
                "description": "The operation; case-insensitive.",
            },
            "path": text("The attribute to change. Without a path, the value is an object of attributes."),
            "value": { "description": "The address, or the value of the operation." },
        },
        "required": ["op"],
    });
    json!({
        "type": "object",
        "properties": {
            "schemas": texts("The URN of patch requests."),
            "Operations": {
                "type": "array", "items": operation, "minItems": 1, "maxItems": 100,
                "description": "The operations, applied in order and atomically.",
            },
        },
        "required": ["Operations"],
    })
}

fn error() -> Value {
    json!({
        "type": "object",
        "properties": {
            "schemas": texts("The URN of errors."),
            "status": text("The HTTP status."),
            "scimType": text("The type of error (RFC 7644, 3.12)."),
            "detail": text("The error message, for people."),
        },
        "required": ["schemas", "status", "detail"],
    })
}

#[cfg(test)]
mod tests {
    use super::super::{PREFIX, find};
    use super::*;

    #[test]
    fn every_operation_is_routed() {
        let uid = "a".repeat(40);
        for (operation, ..) in OPERATIONS {
            let path = operation.path.replace("{provider}", &uid).replace("{id}", "0123456789abcdef");
            assert!(path.strip_prefix(PREFIX).and_then(find).is_some(), "{path}");
        }
    }
}

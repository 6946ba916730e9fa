//! SCIM in the OpenAPI document.

use platform_engine::uid::Uid;
use platform_http::openapi::errors;
use serde_json::{Map, Value, json};

use super::attributes::{self, Attribute};
use crate::openapi::{Operation, Parts, content, reference};

/// Operation with the parts that differ from those of the others.
struct Row {
    operation: Operation,
    /// Schema of the request body; empty for an operation without one.
    body: &'static str,
    /// Status, description and schema of the reply. [`NO_BODY`] is a reply without a body, [`ANY`] is any object.
    reply: (u16, &'static str, &'static str),
    /// Statuses of errors in addition to those of [`EVERYWHERE`].
    errors: &'static [u16],
}

const NO_BODY: &str = "";
const ANY: &str = "object";

const USERS: &str = "/scim/v2/{provider}/Users";
const USER: &str = "/scim/v2/{provider}/Users/{id}";
const SEARCH: &str = "/scim/v2/{provider}/Users/.search";
const SEARCH_ALL: &str = "/scim/v2/{provider}/.search";

const OPERATIONS: &[Row] = &[
    Row::new("get", USERS, "ScimListUsers", "Lists users").replies(200, "A page of users.", "ScimList").fails(&[400]),
    Row::new("post", USERS, "ScimCreateUser", "Creates a user")
        .body("ScimUser")
        .replies(201, "The user.", "ScimUser")
        .fails(&[400, 409, 412, 413]),
    Row::new("get", USER, "ScimGetUser", "Gets a user").replies(200, "The user.", "ScimUser").fails(&[400, 404]),
    Row::new("put", USER, "ScimReplaceUser", "Replaces a user")
        .body("ScimUser")
        .replies(200, "The user.", "ScimUser")
        .fails(&[400, 404, 409, 412, 413]),
    Row::new("patch", USER, "ScimPatchUser", "Patches a user")
        .body("ScimPatch")
        .replies(200, "The user.", "ScimUser")
        .fails(&[400, 404, 409, 412, 413]),
    Row::new("delete", USER, "ScimDeleteUser", "Deletes a user")
        .replies(204, "The user is deleted.", NO_BODY)
        .fails(&[404, 409, 412]),
    Row::new("post", SEARCH, "ScimSearchUsers", "Lists users, with the parameters in the body")
        .body("ScimSearch")
        .replies(200, "A page of users.", "ScimList")
        .fails(&[400, 412, 413]),
    Row::new("post", SEARCH_ALL, "ScimSearchAll", "Lists resources, which are only users")
        .body("ScimSearch")
        .replies(200, "A page of users.", "ScimList")
        .fails(&[400, 412, 413]),
    Row::new(
        "get",
        "/scim/v2/{provider}/ServiceProviderConfig",
        "ScimGetServiceProviderConfig",
        "Gets the capabilities of this service",
    )
    .replies(200, "The configuration.", ANY),
    Row::new(
        "get",
        "/scim/v2/{provider}/ResourceTypes",
        "ScimListResourceTypes",
        "Lists the resource types, which are only users",
    )
    .replies(200, "The resource types.", "ScimList"),
    Row::new("get", "/scim/v2/{provider}/ResourceTypes/User", "ScimGetResourceType", "Gets the resource type of users")
        .replies(200, "The resource type of users.", ANY),
    Row::new("get", "/scim/v2/{provider}/Schemas", "ScimListSchemas", "Lists the schemas of resources").replies(
        200,
        "The schemas of resources.",
        "ScimList",
    ),
    Row::new(
        "get",
        "/scim/v2/{provider}/Schemas/urn:ietf:params:scim:schemas:core:2.0:User",
        "ScimGetSchema",
        "Gets the schema of users",
    )
    .replies(200, "The schema of users.", ANY),
];

impl Row {
    const fn new(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        let operation = Operation { method, path, id, summary, description: "" };
        Self { operation, body: NO_BODY, reply: (200, "", ANY), errors: &[] }
    }

    const fn body(mut self, schema: &'static str) -> Self {
        self.body = schema;
        self
    }

    const fn replies(mut self, status: u16, description: &'static str, schema: &'static str) -> Self {
        self.reply = (status, description, schema);
        self
    }

    const fn fails(mut self, errors: &'static [u16]) -> Self {
        self.errors = errors;
        self
    }

    fn responses(&self) -> Map<String, Value> {
        let (status, description, schema) = self.reply;
        let mut responses = Map::from_iter([(status.to_string(), response(description, schema))]);
        let occurring = ERRORS.iter().filter(|(status, _)| EVERYWHERE.contains(status) || self.errors.contains(status));
        responses
            .extend(occurring.map(|(status, description)| (status.to_string(), response(description, "ScimError"))));
        // 504 is sent by `Rest`, and not by this service, so it has the format of the other operations.
        responses.extend(errors(&[504]));
        responses
    }
}

/// Errors in SCIM's format.
const ERRORS: &[(u16, &str)] = &[
    (400, "A value is invalid."),
    (401, "The SCIM token is missing or not valid for this path."),
    (403, "SCIM is not enabled for this identity provider, or this path does not support filters."),
    (404, "The user does not exist."),
    (409, "The user already exists, or too many changes were made at once."),
    (412, "The write has a precondition, which cannot be checked because users have no versions."),
    (413, "The body is larger than 256 KiB."),
    (414, "The path or the query exceeds the length limit of this server."),
    (429, "A limit was exceeded."),
    (500, "A server fault."),
    (503, "The server is temporarily unavailable."),
];

/// Statuses of errors that every operation has.
const EVERYWHERE: &[u16] = &[401, 403, 414, 429, 500, 503];

/// Schemas with their attributes, and the descriptions of those that need one.
const SCHEMAS: &[(&str, &[Attribute], &str)] = &[
    ("ScimUser", attributes::USER, "Other attributes are ignored."),
    ("ScimList", attributes::LIST, ""),
    ("ScimPatch", attributes::PATCH, ""),
    ("ScimSearch", attributes::SEARCH, ""),
    ("ScimError", attributes::ERROR, ""),
];

/// Returns the part of the document.
pub(super) fn part() -> Value {
    let mut paths = Map::new();
    for row in OPERATIONS {
        let operation = row.operation;
        paths.entry(operation.path).or_insert_with(|| json!({ "parameters": in_path(operation.path) }));
        let query: &[Attribute] = match (operation.path, operation.method) {
            (USERS, "get") => attributes::LIST_QUERY,
            (USERS, _) | (USER, "get" | "put" | "patch") => attributes::USER_QUERY,
            _ => &[],
        };
        let parts = Parts {
            tag: "Scim",
            security: Some(json!([{ "scim": [] }])),
            parameters: query.iter().map(Attribute::parameter).collect(),
            body: (row.body != NO_BODY).then(|| json!({ "content": scim(row.body) })),
            responses: row.responses(),
        };
        operation.add_to(&mut paths, parts);
    }
    let schema = |(name, attributes, about): &(&str, &[Attribute], &str)| {
        let mut schema = attributes::schema(attributes);
        if let (Some(schema), false) = (schema.as_object_mut(), about.is_empty()) {
            schema.insert("description".to_owned(), (*about).into());
        }
        ((*name).to_owned(), schema)
    };
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
            "schemas": SCHEMAS.iter().map(schema).collect::<Map<_, _>>(),
        },
    })
}

fn response(description: &str, schema: &str) -> Value {
    match schema {
        NO_BODY => json!({ "description": description }),
        schema => json!({ "description": description, "content": scim(schema) }),
    }
}

fn scim(schema: &str) -> Value {
    let schema = if schema == ANY { json!({ "type": "object" }) } else { reference(schema) };
    content(&["application/scim+json"], &schema)
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

#[cfg(test)]
mod tests {
    use super::super::{PREFIX, find};
    use super::*;

    #[test]
    fn every_operation_is_routed() {
        let uid = "a".repeat(40);
        for Row { operation, .. } in OPERATIONS {
            let path = operation.path.replace("{provider}", &uid).replace("{id}", "0123456789abcdef");
            assert!(path.strip_prefix(PREFIX).and_then(find).is_some(), "{path}");
        }
    }

    #[test]
    fn only_operations_with_a_body_can_reject_it_and_only_writes_can_conflict() {
        for Row { operation, body, errors, .. } in OPERATIONS {
            assert_eq!(errors.contains(&413), *body != NO_BODY, "{}", operation.id);
            let is_read = operation.method == "get" || operation.path.ends_with(".search");
            assert_eq!(errors.contains(&409), !is_read, "{}", operation.id);
            assert_eq!(errors.contains(&412), operation.method != "get", "{}", operation.id);
            assert_eq!(errors.contains(&404), operation.path == USER, "{}", operation.id);
        }
    }
}

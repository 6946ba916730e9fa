//! Bulk import in the OpenAPI document.

use platform_engine::{error::Error, platform::Settings};
use platform_http::openapi::errors;
use serde_json::{Map, Value, json};

use crate::openapi::{Operation, Parts, reference};

const TAG: &str = "Import";

const UPSERT: Operation = Operation {
    method: "post",
    path: "/import/{plural}",
    id: "Import",
    summary: "Upserts resources, one per line",
    description: "Only for the operator, with a token that is not narrowed. Upserts each resource by its natural key, \
                  so retries are idempotent; unchanged resources are not written. Invalid lines are reported in \
                  `refused`, and the others are written.",
};

const REMOVE: Operation = Operation {
    method: "delete",
    path: "/import/{plural}",
    id: "RemoveImported",
    summary: "Deletes all resources of a kind directly under a parent",
    description: "Only for the operator, with a token that is not narrowed. The delete cascades to their children. \
                  For `blobs`, which has no parent here, deletes those that no resource has named for a day.",
};

const ERRORS: &[u16] = &[400, 401, 403, 404, 409, 414, 429, 500, 503, 504];

/// Examples of bodies, by the plural of their kind.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "advisories",
        "{\"advisoryId\":\"CGA-2222-2222-2222\",\"artifactName\":\"openssl\",\"artifactType\":\"apk\",\
         \"aliases\":[\"CVE-2026-0001\"]}\n",
    ),
    ("vulnerabilityMetadata", "{\"id\":\"CVE-2026-0001\",\"summary\":\"A summary\"}\n"),
    (
        "blobs",
        "{\"digest\":\"sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\",\
         \"content\":\"aGVsbG8=\"}\n",
    ),
    ("artifacts", "{\"ecosystem\":\"ECOSYSTEM_PYTHON\",\"name\":\"requests\"}\n"),
];

/// Returns the part of the document, for kinds with these plurals.
pub(super) fn part(plurals: &[&str]) -> Value {
    let mut paths = Map::new();
    let parts = |body: Option<Value>, success: Value| {
        let mut responses = errors(ERRORS);
        responses.shift_insert(0, "200".to_owned(), success);
        Parts { tag: TAG, security: None, parameters: parameters(plurals), body, responses }
    };
    UPSERT.add_to(&mut paths, parts(Some(body(plurals)), upserted()));
    REMOVE.add_to(&mut paths, parts(None, removed()));
    json!({
        "tags": [{ "name": TAG, "description": "Bulk import for the operator. An extension of the contract." }],
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn parameters(plurals: &[&str]) -> Vec<Value> {
    vec![
        json!({
            "name": "plural", "in": "path", "required": true,
            "description": "The kind: its plural, or `blobs`.",
            "schema": { "type": "string", "enum": plurals },
        }),
        json!({
            "name": "parent", "in": "query",
            "description": "The parent: a group for advisories, a vulnerability report for the raw one, a repo for \
                            images, charts, blobs and other reports. Omitted for kinds without a parent.",
            "schema": { "type": "string" },
        }),
    ]
}

fn body(plurals: &[&str]) -> Value {
    let examples = EXAMPLES.iter().filter(|(plural, _)| plurals.contains(plural));
    let examples: Map<_, _> = examples.map(|(plural, body)| ((*plural).to_owned(), json!({ "value": body }))).collect();
    json!({
        "description": "One resource per line. Each line has at most 16 MiB; the body may be of any length.",
        "content": { "application/x-ndjson": { "schema": { "type": "string" }, "examples": examples } },
    })
}

fn upserted() -> Value {
    let error = Error::invalid_field("nosuch", "unknown field").status(&Settings::default().service_domain);
    json!({
        "description": "One line per batch of at most 100 lines, sent once the batch is durable. The last line may be \
                        an error that ended the import.",
        "content": { "application/x-ndjson": {
            "schema": reference("ImportLine"),
            "example": {
                "through": 2, "created": 1, "updated": 0, "unchanged": 0,
                "refused": [{ "line": 2, "error": error }],
            },
        } },
    })
}

fn removed() -> Value {
    let description = "The number of deleted resources.";
    json!({
        "description": description,
        "content": { "application/json": {
            "schema": reference("Removed"), "example": { "removed": 42 },
        } },
    })
}

/// Returns the schemas of responses. Each message has a name of its own, by which generated clients call it.
fn schemas() -> Value {
    let error = |description: &str| json!({ "$ref": "#/components/schemas/Status", "description": description });
    let batch = json!({
        "type": "object",
        "description": "The result of a batch.",
        "properties": {
            "through": count("The number of the batch's last line."),
            "created": count("The number of created resources."),
            "updated": count("The number of updated resources."),
            "unchanged": count("The number of unchanged resources."),
            "refused": {
                "type": "array", "items": reference("RefusedLine"),
                "description": "The invalid lines, which were not written.",
            },
        },
        "required": ["through", "created", "updated", "unchanged", "refused"],
    });
    json!({
        "ImportLine": {
            "description": "A line of the response: the result of a batch, or the error that ended the import.",
            "oneOf": [reference("ImportBatch"), reference("ImportFailure")],
        },
        "ImportBatch": batch,
        "ImportFailure": {
            "type": "object",
            "description": "The end of an import that failed.",
            "properties": { "error": error("The error that ended the import.") },
            "required": ["error"],
        },
        "RefusedLine": {
            "type": "object",
            "description": "A line that was not written.",
            "properties": {
                "line": count("The number of the line, starting at 1."),
                "error": error("The error of the line."),
            },
            "required": ["line", "error"],
        },
        "Removed": {
            "type": "object",
            "description": "The result of a delete.",
            "properties": { "removed": count("The number of deleted resources.") },
            "required": ["removed"],
        },
    })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 0, "description": description })
}

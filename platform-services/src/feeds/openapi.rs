//! Feeds in the OpenAPI document.

use platform_feeds::Format;
use platform_http::openapi::errors;
use serde_json::{Map, Value, json};

use crate::openapi::{Operation, Parts};

const TAG: &str = "Feeds";

const GET: Operation = Operation {
    method: "get",
    path: "/feeds/{format}",
    id: "GetFeed",
    summary: "Gets the advisories of a group in a form that scanners read",
    description: "Requires `advisories.list` at the group. Has the advisories at and below it, of any number: the reply is \
                  sent while it is made. A request with the ETag of an earlier reply in If-None-Match costs little.",
};

const ERRORS: &[u16] = &[400, 401, 403, 404, 405, 414, 429, 500, 503, 504];

/// Returns the part of the document.
pub(super) fn part() -> Value {
    let mut paths = Map::new();
    let mut responses = errors(ERRORS);
    responses.shift_insert(
        0,
        "304".to_owned(),
        json!({ "description": "The feed still has the ETag in If-None-Match." }),
    );
    responses.shift_insert(0, "200".to_owned(), feed());
    GET.add_to(&mut paths, Parts { tag: TAG, security: None, parameters: parameters(), body: None, responses });
    json!({
        "tags": [{ "name": TAG, "description": "Advisories in the forms that scanners read. An extension of the contract." }],
        "paths": paths,
    })
}

fn parameters() -> Vec<Value> {
    vec![
        json!({
            "name": "format", "in": "path", "required": true,
            "description": "`osv`: a zip archive with an OSV record in each file. `secdb`: the security database of Alpine \
                            and Wolfi. `openvex`: an OpenVEX document.",
            "schema": { "type": "string", "enum": Format::ALL.map(Format::name) },
        }),
        json!({
            "name": "group", "in": "query", "required": true,
            "description": "The uid of the group.",
            "schema": { "type": "string" },
        }),
        json!({
            "name": "namespace", "in": "query",
            "description": "The distribution, such as `wolfi`, of packages whose advisories name none. The advisories of \
                            other distributions are then left out.",
            "schema": { "type": "string" },
        }),
        json!({ "$ref": "#/components/parameters/IfNoneMatch" }),
    ]
}

fn feed() -> Value {
    let text = |media_type: &str| {
        let schema = if media_type == Format::Osv.media_type() {
            json!({ "type": "string", "contentMediaType": media_type })
        } else {
            json!({ "type": "object" })
        };
        (media_type.to_owned(), json!({ "schema": schema }))
    };
    let content: Map<_, _> = Format::ALL.map(Format::media_type).map(text).into_iter().collect();
    let header = |description: &str| json!({ "description": description, "schema": { "type": "string" } });
    json!({
        "description": "The feed.",
        "headers": {
            "ETag": header("The entity tag of the feed, which changes with the advisories."),
            "Cache-Control": header("`private, no-cache`."),
        },
        "content": content,
    })
}

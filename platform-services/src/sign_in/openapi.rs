//! `/orgcheck` in the OpenAPI document. The pages at `/oauth` are for browsers and not part of it.

use platform_http::openapi::{errors, parameters};
use serde_json::{Map, Value, json};

use super::ORG_CHECK;
use crate::openapi::{Operation, Parts, content};

const TAG: &str = "SignIn";

/// Statuses of errors.
const ERRORS: &[u16] = &[400, 404, 414, 429, 500, 503, 504];

/// Returns the part of the document.
pub(super) fn part() -> Value {
    let mut paths = Map::new();
    let mut responses = errors(ERRORS);
    let answer = json!({ "type": "boolean", "description": "Whether there is such an organization." });
    let answer = json!({ "description": "Done.", "content": content(&["application/json"], &answer) });
    responses.shift_insert(0, "200".to_owned(), answer);
    let check = Operation {
        method: "get",
        path: "/orgcheck",
        id: "CheckOrganization",
        summary: "Returns whether there is a verified organization of a name",
        description: "Programs call it before a sign-in that names an organization. It needs no token.",
    };
    let (security, parameters) = (Some(json!([])), parameters(ORG_CHECK));
    check.add_to(&mut paths, Parts { tag: TAG, security, parameters, body: None, responses });
    json!({
        "tags": [{ "name": TAG, "description": "Browser sign-in, for programs that act for a person." }],
        "paths": paths,
    })
}

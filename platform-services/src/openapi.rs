//! The parts of the OpenAPI document that neither kinds nor mounts have.

use platform_http::openapi::Info;
use serde_json::{Map, Value, json};

/// Name of the API.
pub const NAME: &str = "Platform API v2";

/// Title and description of the API.
pub const INFO: Info<'_> = Info::new(NAME, env!("CARGO_PKG_VERSION"))
    .description(include_str!("openapi/description.md"))
    .license("Apache-2.0");

/// Returns the part for servers that publish their issuer, at `/.well-known/openid-configuration` and
/// `/.well-known/jwks.json`.
pub fn well_known() -> Value {
    let get = |id: &str, summary: &str, about: &str, properties: Value| {
        let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        let reply = json!({ "description": about, "content": { "application/json": { "schema": schema } } });
        json!({ "get": {
            "tags": ["Issuer"], "operationId": id, "summary": summary, "security": [], "responses": { "200": reply },
        } })
    };
    json!({
        "tags": [{ "name": "Issuer", "description": "Discovery of this server as a token issuer." }],
        "paths": {
            "/.well-known/openid-configuration": get(
                "GetOpenidConfiguration",
                "Gets the configuration of this server's issuer (OpenID Connect Discovery 1.0)",
                "The discovery document.",
                json!({
                    "issuer": { "type": "string", "description": "The issuer's URL." },
                    "jwks_uri": { "type": "string", "description": "The URL of the public keys." },
                }),
            ),
            "/.well-known/jwks.json": get(
                "GetJwks",
                "Gets the public keys that verify this server's tokens (RFC 7517)",
                "The public keys.",
                json!({ "keys": {
                    "type": "array", "items": { "type": "object" }, "description": "The public keys (RFC 7517).",
                } }),
            ),
        },
    })
}

/// Returns the part for servers with health checks at `/livez`, `/readyz` and `/startupz`.
pub fn health() -> Value {
    let get = |id: &str, summary: &str, unavailable: &str| {
        json!({ "get": {
            "tags": ["Health"], "operationId": id, "summary": summary, "security": [],
            "parameters": [{
                "name": "verbose", "in": "query", "allowEmptyValue": true,
                "description": "Whether the reply lists all checks with their states.",
                "schema": { "type": "boolean", "default": false },
            }],
            "responses": {
                "200": { "$ref": "#/components/responses/Healthy" },
                "503": {
                    "description": unavailable,
                    "content": { "application/json": { "schema": reference("Status") } },
                },
            },
        } })
    };
    let status = json!({ "type": "string", "const": "SERVING", "description": "Always `SERVING`." });
    let check = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "The name of the check." },
            "status": { "type": "string", "enum": ["SERVING", "NOT_SERVING"], "description": "Its state." },
            "reason": { "type": "string", "description": "The reason why it fails." },
        },
        "required": ["name", "status"],
    });
    let checks = json!({ "type": "array", "items": check, "description": "All checks, with `verbose`." });
    let properties = json!({ "status": status, "checks": checks });
    let schema = json!({ "type": "object", "properties": properties, "required": ["status"] });
    json!({
        "tags": [{
            "name": "Health",
            "description": "Health checks for load balancers and supervisors. They need no token.",
        }],
        "paths": {
            "/livez": get(
                "GetLiveness",
                "Reports whether the server is alive, or must be restarted",
                "The store cannot write until the server is restarted.",
            ),
            "/readyz": get(
                "GetReadiness",
                "Reports whether the server is ready to serve all requests",
                "The store is full or cannot write, or the server is stopping.",
            ),
            "/startupz": get(
                "GetStartup",
                "Reports whether the server has started",
                "The server opens or migrates its store.",
            ),
        },
        "components": { "responses": { "Healthy": {
            "description": "The check passed.", "content": { "application/json": { "schema": schema } },
        } } },
    })
}

/// Row of a table of operations. Empty texts are left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
}

/// Parts of an operation that a table does not have.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) tag: &'static str,
    /// The security requirement, if it is not a token of the API.
    pub(crate) security: Option<Value>,
    pub(crate) parameters: Vec<Value>,
    /// The body of the request.
    pub(crate) body: Option<Value>,
    pub(crate) responses: Map<String, Value>,
}

impl Operation {
    /// Adds the operation to the paths of a document.
    pub(crate) fn add_to(self, paths: &mut Map<String, Value>, parts: Parts) {
        let path = paths.entry(self.path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = path {
            methods.insert(self.method.to_owned(), self.to_json(parts));
        }
    }

    fn to_json(self, parts: Parts) -> Value {
        let Parts { tag, security, parameters, body, responses } = parts;
        let members = [
            ("tags", Some(json!([tag]))),
            ("operationId", Some(self.id.into())),
            ("summary", Some(self.summary.into())),
            ("description", Some(self.description).filter(|text| !text.is_empty()).map(Value::from)),
            ("security", security),
            ("parameters", Some(parameters).filter(|all| !all.is_empty()).map(Value::from)),
            ("requestBody", body),
            ("responses", Some(responses.into())),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Returns a reference to a schema of the document.
pub(crate) fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// Returns a body of a schema in these formats.
pub(crate) fn content(formats: &[&str], schema: &Value) -> Value {
    let one = |format: &&str| ((*format).to_owned(), json!({ "schema": schema }));
    formats.iter().map(one).collect::<Map<_, _>>().into()
}

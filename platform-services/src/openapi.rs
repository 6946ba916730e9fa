//! Operations of the OpenAPI document, from rows of tables.

use serde_json::{Map, Value, json};

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

/// Returns the schema of a property of a type.
pub(crate) fn property(ty: &str, description: &str) -> Value {
    json!({ "type": ty, "description": description })
}

//! The methods of the API that belong to no kind: tokens, sign-ins, SCIM and imports.

use http::Method;
use serde_json::Value;

/// A method of the API that belongs to no kind.
#[derive(Debug)]
pub(crate) struct Operation {
    method: Method,
    path: Vec<String>,
    /// Such as `SecurityTokenService.Exchange`.
    pub(crate) name: String,
}

impl Operation {
    /// Returns the operations of a part of the OpenAPI document.
    pub(crate) fn of(part: &Value) -> Vec<Self> {
        let paths = part.get("paths").and_then(Value::as_object).into_iter().flatten();
        let methods = paths.flat_map(|(path, item)| item.as_object().into_iter().flatten().map(move |one| (path, one)));
        methods
            .filter_map(|(path, (method, operation))| {
                let tag = operation.get("tags")?.get(0)?.as_str()?;
                let name = format!("{tag}.{}", operation.get("operationId")?.as_str()?);
                let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).ok()?;
                Some(Self { method, path: path.split('/').map(str::to_owned).collect(), name })
            })
            .collect()
    }

    /// Returns whether a request is for this operation.
    pub(crate) fn is_at(&self, method: &Method, path: &str) -> bool {
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_same = |(own, segment): (&String, &str)| own == segment || own.starts_with('{') && !segment.is_empty();
        self.method == *method
            && self.path.len() == path.split('/').count()
            && self.path.iter().zip(path.split('/')).all(is_same)
    }
}

//! Documents: resources in YAML, as `apply` reads and `get -o yaml` prints them.

use std::{
    fs,
    io::stdin,
    path::{Path, PathBuf},
};

use platform_engine::{kind::Kind, uid};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options};

use crate::{
    failure::{Failure, Result},
    value,
};

/// The most documents of one `apply`.
const MAX_DOCUMENTS: usize = 10_000;

/// The most nodes of a file, and the deepest nesting.
const MAX_NODES: usize = 1_000_000;
const MAX_DEPTH: usize = 32;

/// A resource as a file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// The kind, in any spelling.
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    /// The parent: a uid or a path of names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    #[serde(default)]
    pub(crate) fields: Map<String, Value>,
}

impl Document {
    /// Returns the document of a resource, with the fields that callers can set.
    pub(crate) fn of(kind: &Kind, resource: &Value) -> Self {
        let uid = resource.get("uid").and_then(Value::as_str).unwrap_or_default();
        let parent = if kind.parent.shares_uid() { Some(uid) } else { uid::parent(uid) };
        let uid = Some(uid).filter(|uid| !uid.is_empty() && !kind.parent.shares_uid());
        Self {
            kind: kind.name.to_owned(),
            uid: uid.map(str::to_owned),
            parent: parent.filter(|parent| !parent.is_empty()).map(str::to_owned),
            fields: value::settable(kind.fields, resource),
        }
    }
}

/// A document and its place, for errors.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) document: Document,
    /// The file, and the number of the document if it has several.
    pub(crate) place: String,
}

/// Reads the documents of files, of the YAML and JSON files in directories, and for `-` of standard input, in order.
///
/// # Errors
/// With the place of the text that is not a document.
pub(crate) fn read(paths: &[String]) -> Result<Vec<Placed>> {
    let mut all = Vec::new();
    for path in paths {
        let texts = match path.as_str() {
            "-" => vec![("standard input".to_owned(), value::read_text("standard input", stdin().lock())?)],
            path => files(Path::new(path))?
                .into_iter()
                .map(|path| {
                    let name = path.display().to_string();
                    let file = fs::File::open(&path).map_err(|error| Failure::file(&name, error))?;
                    let text = value::read_text(&name, file)?;
                    Ok((name, text))
                })
                .collect::<Result<_>>()?,
        };
        for (name, text) in texts {
            let documents: Vec<Document> = parse(&name, &text)?;
            let several = documents.len() > 1;
            all.extend(documents.into_iter().enumerate().map(|(index, document)| {
                let place = if several { format!("{name}, document {}", index + 1) } else { name.clone() };
                Placed { document, place }
            }));
            if all.len() > MAX_DOCUMENTS {
                return Err(Failure::usage(format!("more than {MAX_DOCUMENTS} documents")));
            }
        }
    }
    if all.is_empty() { Err(Failure::usage("there are no documents")) } else { Ok(all) }
}

/// Returns a file, or the YAML and JSON files of a directory in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error| Failure::file(path.display(), error);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if ["yaml", "yml", "json"].contains(&extension) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads all documents of a text. Limits are as those of imports: their reader is the same.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<Vec<T>> {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.strict_booleans = true;
    options.with_snippet = false;
    options.alias_limits.max_total_replayed_events = 50_000;
    let budget = options.budget.get_or_insert_default();
    budget.max_depth = MAX_DEPTH;
    budget.flow_nesting_limit = MAX_DEPTH;
    budget.max_nodes = MAX_NODES;
    budget.max_events = MAX_NODES * 2;
    budget.max_documents = MAX_DOCUMENTS + 1;
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let place = error.location().map(|at| format!(", line {} column {}", at.line(), at.column()));
        let rule = error.without_snippet().to_string();
        Failure::file(format!("{name}{}", place.unwrap_or_default()), rule.lines().next().unwrap_or_default())
    })
}

/// Returns a value as YAML that ends with a line break.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String> {
    let mut text = serde_saphyr::to_string(value)
        .map_err(|error| Failure::new(crate::failure::Exit::Failed, format!("cannot write YAML: {error}")))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use platform_core::resources::registry::Repo;
    use platform_engine::kind::Resource;
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_look_like_other_types_survive_a_round_trip() {
        let fields = json!({ "name": "1.20", "a": "no", "b": "true", "c": "0x10", "d": "~", "e": "line\nbreak\n", "f": "",
            "g": ["- x", "#"], "h": "  spaces  ", "i": 7, "j": true });
        let document = Document {
            kind: "Repo".to_owned(),
            uid: None,
            parent: Some("acme".to_owned()),
            fields: fields.as_object().unwrap().clone(),
        };
        let text = yaml(&document).unwrap();
        assert_eq!(parse::<Document>("x", &text).unwrap(), [document], "{text}");
    }

    #[test]
    fn a_file_has_any_number_of_documents_in_yaml_or_json() {
        let text =
            "kind: Repo\nparent: acme\nfields: {name: a}\n---\n{\"kind\": \"Repo\", \"fields\": {\"name\": \"b\"}}\n";
        let documents = parse::<Document>("x", text).unwrap();
        assert_eq!(documents.iter().map(|one| &one.fields["name"]).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn an_unknown_key_a_repeated_key_and_a_bomb_are_rejected() {
        let bomb: String = (1..30)
            .fold("a0: &a0 [x,x]\n".to_owned(), |text, n| format!("{text}a{n}: &a{n} [*a{},*a{}]\n", n - 1, n - 1));
        for text in ["kind: Repo\ncolour: red\n", "kind: Repo\nkind: Tag\n", "[1]", &bomb, &"[".repeat(100)] {
            assert!(parse::<Document>("x", text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_document_of_a_resource_has_what_callers_can_set() {
        let repo = json!({ "uid": "a/b", "name": "nginx", "createTime": "2026-01-02T03:04:05Z", "tier": "FREE" });
        let document = Document::of(Repo::KIND, &repo);
        assert_eq!((document.uid.as_deref(), document.parent.as_deref()), (Some("a/b"), Some("a")));
        assert!(document.fields.contains_key("name") && !document.fields.contains_key("createTime"));
    }
}

//! Names and paths of fields.

use serde_json::{Map, Value};

use crate::kind::Field;

/// Returns whether a path of a mask is this path or contains it.
pub(crate) fn covers(mask: &str, path: &str) -> bool {
    path.strip_prefix(mask).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
}

/// Returns whether a key is the field's name in camelCase or in snake_case.
pub(crate) fn is_named(key: &str, camel: &str) -> bool {
    let mut key = key.bytes();
    let same = camel.bytes().all(|expected| {
        let found = key.next();
        if expected.is_ascii_uppercase() && found == Some(b'_') {
            return key.next() == Some(expected.to_ascii_lowercase());
        }
        found == Some(expected)
    });
    same && key.next().is_none()
}

/// Returns the field that a key names, in camelCase or snake_case.
pub(crate) fn named<'a>(fields: &'a [Field], key: &str) -> Option<&'a Field> {
    fields.iter().find(|field| is_named(key, field.name))
}

/// Returns the value at a dotted path.
pub(crate) fn at<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = object.get(first)?;
    match rest {
        None => Some(value),
        Some(rest) => at(value.as_object()?, rest),
    }
}

/// Returns the path of a field in a message.
pub(crate) fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_matched_in_camel_case_and_snake_case_only() {
        for key in ["claimMatch", "claim_match"] {
            assert!(is_named(key, "claimMatch"), "{key}");
        }
        for key in
            ["claimmatch", "ClaimMatch", "claim_Match", "claim__match", "claimMatc", "claimMatchs", "_claimMatch", ""]
        {
            assert!(!is_named(key, "claimMatch"), "{key}");
        }
    }

    #[test]
    fn a_mask_covers_its_path_and_all_paths_within() {
        assert!(covers("claimMatch", "claimMatch.issuer") && covers("name", "name") && covers("bundles", "bundles[0]"));
        assert!(!covers("claim", "claimMatch") && !covers("claimMatch.issuer", "claimMatch"));
    }
}

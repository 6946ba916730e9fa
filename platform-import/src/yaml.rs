//! YAML, with bounds.
//!
//! serde-saphyr is the maintained reader of YAML for serde that parses straight into types, without a tree between,
//! and that counts while it parses: depth, nodes, anchors, and what aliases are expanded to. serde_yaml is given up,
//! and its forks have its C-derived parser and a fixed bound for aliases alone.

use serde::de::DeserializeOwned;
use serde_saphyr::{DuplicateKeyPolicy, Options};

use crate::Refusal;

/// The most nodes of a document. Our choice: real documents have some thousands.
const MAX_NODES: usize = 1_000_000;

/// The most events of the parser that aliases repeat.
const MAX_REPEATED: usize = 50_000;

/// How deep a document may nest; no format here goes below 12.
const MAX_DEPTH: usize = 32;

/// How often anchors may be repeated. No format here has a use for it.
const MAX_ALIASES: usize = 1_000;

/// Reads one document. Keys that are given twice are refused, those that the type does not have are ignored.
///
/// # Errors
/// What is wrong, and in which line and column.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_saphyr::from_slice_with_options(bytes, options()).map_err(|error| {
        let place = error.location().map(|at| format!("line {} column {}", at.line(), at.column()));
        let rule = error.without_snippet().to_string();
        Refusal::new(place.unwrap_or_default(), format!("is not the YAML that is expected: {}", one_line(&rule)))
    })
}

fn options() -> Options {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.with_snippet = false;
    options.alias_limits.max_total_replayed_events = MAX_REPEATED;
    let budget = options.budget.get_or_insert_default();
    budget.max_depth = MAX_DEPTH;
    budget.flow_nesting_limit = MAX_DEPTH;
    budget.max_nodes = MAX_NODES;
    budget.max_events = MAX_NODES * 2;
    budget.max_aliases = MAX_ALIASES;
    budget.max_anchors = MAX_ALIASES;
    budget.max_documents = 2;
    options
}

/// Returns the first line, and not more of it than a person reads.
fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Document {
        name: String,
        #[serde(default)]
        list: Vec<String>,
    }

    #[test]
    fn text_stays_as_it_is_written_whatever_it_looks_like() {
        for text in ["1.20", "2", "true", "0x10", "1e3", "2026-01-02", "~x", "'1.20'", "\"1.20\""] {
            let document: Document = read(format!("name: {text}").as_bytes()).unwrap();
            assert_eq!(document.name, text.trim_matches(['\'', '"']), "{text}");
        }
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_place() {
        for (text, place) in [
            ("", ""),
            ("name: a\nname: b", "line 2"),
            ("name: {a: b}", "line 1"),
            ("name: [", "line 1"),
            ("name: a\n---\nname: b", ""),
            ("- name", "line 1"),
            ("name: \"a", ""),
            ("name: *unknown", "line 1"),
            ("list: a\nname: b", "line 1"),
        ] {
            let refusal = read::<Document>(text.as_bytes()).unwrap_err();
            assert!(refusal.place.starts_with(place), "{text:?}: {refusal:?}");
            assert!(!refusal.to_string().contains('\n'), "{refusal}");
        }
        assert!(read::<Document>(b"name: \xff").is_err());
    }

    #[test]
    fn bombs_are_refused_at_once() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let repeated = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{repeated}]\n"));
        }
        let deep = [format!("name: {}", "[".repeat(100_000)), format!("name: {}", "{a: ".repeat(100_000))];
        let indented: String = (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        for bomb in deep.iter().chain([&bomb, &indented]) {
            assert!(read::<HashMap<String, Anything>>(bomb.as_bytes()).is_err());
        }
    }

    /// Reads whatever there is.
    #[derive(Debug)]
    struct Anything;

    impl<'de> serde::Deserialize<'de> for Anything {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde_json::Value::deserialize(deserializer).map(|_| Self)
        }
    }
}

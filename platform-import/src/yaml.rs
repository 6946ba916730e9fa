//! Reads YAML, with limits.
//!
//! serde-saphyr is a maintained YAML reader for serde that parses directly into types, without an intermediate tree,
//! and enforces limits while it parses: depth, nodes, anchors, and the expansion of aliases. serde_yaml is
//! unmaintained; its forks keep its C-derived parser and have only a fixed limit on aliases.

use serde::de::DeserializeOwned;
use serde_saphyr::{DuplicateKeyPolicy, Options};

use crate::Refusal;

/// The maximum number of nodes in a document. Our choice: real documents have some thousands.
const MAX_NODES: usize = 1_000_000;

/// The maximum number of parser events replayed by aliases.
const MAX_REPEATED: usize = 50_000;

/// The maximum nesting depth of a document. The formats here need at most 12.
const MAX_DEPTH: usize = 32;

/// The maximum number of anchors and of aliases. The formats here need none.
const MAX_ALIASES: usize = 1_000;

/// Reads one document. Rejects duplicate keys and ignores unknown ones.
///
/// # Errors
/// The problem, with its line and column.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_saphyr::from_slice_with_options(bytes, options()).map_err(|error| {
        let place = error.location().map(|at| format!("line {} column {}", at.line(), at.column()));
        let rule = error.without_snippet().to_string();
        Refusal::new(place.unwrap_or_default(), format!("must be YAML of the expected schema: {}", one_line(&rule)))
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

/// Returns the first line, shortened to a readable length.
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
    fn a_scalar_read_as_text_is_not_converted() {
        for text in ["1.20", "2", "true", "0x10", "1e3", "2026-01-02", "~x", "'1.20'", "\"1.20\""] {
            let document: Document = read(format!("name: {text}").as_bytes()).unwrap();
            assert_eq!(document.name, text.trim_matches(['\'', '"']), "{text}");
        }
    }

    #[test]
    fn an_invalid_document_is_rejected_with_its_place() {
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
    fn expansion_bombs_are_rejected() {
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

    /// Accepts any value.
    #[derive(Debug)]
    struct Anything;

    impl<'de> serde::Deserialize<'de> for Anything {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde_json::Value::deserialize(deserializer).map(|_| Self)
        }
    }
}

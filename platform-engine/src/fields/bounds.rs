//! The bounds of a field: bytes of a text, elements of a list, entries of a map.
//!
//! Each function returns whether the value is within the bounds, and adds a violation if it is not.

use std::collections::HashSet;

use serde_json::Value;

use crate::{error::Violations, kind::Field};

/// Checks the length of a text, and that it has only those control characters that its field allows.
pub(super) fn text(field: &Field, text: &str, path: &str, violations: &mut Violations) -> bool {
    let forbidden = |c: char| c.is_control() && !(field.multiline && matches!(c, '\n' | '\r' | '\t'));
    let rule = if text.len() > field.max_len {
        format!("must be at most {} bytes long", field.max_len)
    } else if text.contains(forbidden) {
        "must be text without control characters".to_owned()
    } else {
        return true;
    };
    violations.add(path, rule);
    false
}

/// Checks the length of bytes that were decoded from base64.
pub(super) fn bytes(field: &Field, bytes: &[u8], path: &str, violations: &mut Violations) -> bool {
    let within = bytes.len() <= field.max_len;
    if !within {
        violations.add(path, format!("must be at most {} bytes long", field.max_len));
    }
    within
}

/// Checks the key of a map.
pub(super) fn key(field: &Field, key: &str, path: &str, violations: &mut Violations) -> bool {
    let rule = if key.len() > field.max_len {
        format!("must have keys of at most {} bytes", field.max_len)
    } else if key.contains(char::is_control) {
        "must have keys without control characters".to_owned()
    } else {
        return true;
    };
    violations.add(path, rule);
    false
}

/// Checks the number of elements of a list or of entries of a map.
pub(super) fn count(field: &Field, count: usize, path: &str, violations: &mut Violations) -> bool {
    let within = count <= field.max_items;
    if !within {
        violations.add(path, format!("must have at most {} elements", field.max_items));
    }
    within
}

/// Checks that a list that is a set has no duplicates. The values are in canonical form.
pub(super) fn distinct(field: &Field, values: &[Value], path: &str, violations: &mut Violations) -> bool {
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate().take_while(|_| field.distinct) {
        if !seen.insert(value) {
            violations.add(format!("{path}[{index}]"), "is specified more than once");
            return false;
        }
    }
    true
}

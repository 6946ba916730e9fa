//! Field masks (AIP-161, AIP-134; `docs/api.md`, Updates).

use serde_json::{Map, Value};

use crate::{
    error::Violations,
    fields::path::{at, covers, named},
    kind::{Access, Field, Type},
};

/// The fields that an update sets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mask {
    /// `*`: all fields that callers may set. Fields that are not sent are cleared.
    All,
    /// These paths, in camelCase, dotted into messages.
    Paths(Vec<String>),
}

impl Mask {
    /// Parses a mask: comma-separated paths in camelCase or snake_case, or `*` alone.
    ///
    /// Output-only paths are dropped, so that clients can write a resource back as they have read it.
    ///
    /// # Errors
    /// A violation of `update_mask` for each path that the table does not have, and for `*` together with other paths.
    pub fn parse(text: &str, fields: &'static [Field]) -> Result<Self, Violations> {
        if text.trim() == "*" {
            return Ok(Self::All);
        }
        let mut violations = Violations::default();
        let mut paths = Vec::new();
        for path in text.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            match resolve(path, fields) {
                Some((path, true)) if !paths.contains(&path) => paths.push(path),
                Some(_) => {}
                None if path == "*" => violations.add("update_mask", "`*` must be the only path"),
                None => violations.add("update_mask", format!("unknown field `{path}`")),
            }
        }
        if violations.is_empty() { Ok(Self::Paths(paths)) } else { Err(violations) }
    }

    /// Returns the paths that the mask sets; for `*`, all fields.
    pub fn paths(&self, fields: &[Field]) -> Vec<String> {
        match self {
            Self::All => fields.iter().map(|field| field.name.to_owned()).collect(),
            Self::Paths(paths) => paths.clone(),
        }
    }

    /// Returns whether the mask sets this path, or a path that contains it or lies within it.
    pub fn touches(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Paths(paths) => paths.iter().any(|set| covers(set, path) || covers(path, set)),
        }
    }

    /// Returns `old` with the fields of the mask set to their values in `input`, both in canonical form.
    ///
    /// A field of the mask that `input` does not have is cleared. Setting one field of a oneof clears the others.
    /// Output-only fields keep their values, in nested messages too.
    ///
    /// # Errors
    /// A violation for each immutable field that the mask would change.
    pub fn apply(
        &self,
        fields: &'static [Field],
        old: &Map<String, Value>,
        input: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Violations> {
        let mut violations = Violations::default();
        let mut new = old.clone();
        match self {
            Self::All => replace(fields, &mut new, input, "", &mut violations),
            Self::Paths(paths) => {
                for path in paths {
                    set(fields, &mut new, path, at(input, path), path, &mut violations);
                }
            }
        }
        if violations.is_empty() { Ok(new) } else { Err(violations) }
    }
}

/// Returns a path in camelCase and whether callers may set it; `None` for an unknown field.
fn resolve(path: &str, fields: &'static [Field]) -> Option<(String, bool)> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let field = named(fields, first)?;
    let settable = field.access != Access::OutputOnly;
    match (rest, &field.ty) {
        (None, _) => Some((field.name.to_owned(), settable)),
        (Some(rest), Type::Message(inner)) => {
            let (rest, inner_settable) = resolve(rest, inner)?;
            Some((format!("{}.{rest}", field.name), settable && inner_settable))
        }
        _ => None,
    }
}

/// Sets all fields of an object to their values in `input`, and clears those that `input` does not have.
fn replace(
    fields: &'static [Field],
    object: &mut Map<String, Value>,
    input: &Map<String, Value>,
    prefix: &str,
    violations: &mut Violations,
) {
    for field in fields {
        let path = if prefix.is_empty() { field.name.to_owned() } else { format!("{prefix}.{}", field.name) };
        put(field, object, input.get(field.name), &path, violations);
    }
}

/// Sets the field at a dotted path within an object, or clears it if `value` is `None`. `whole_path` is the path from
/// the top of the resource, for violations.
fn set(
    fields: &'static [Field],
    object: &mut Map<String, Value>,
    path: &str,
    value: Option<&Value>,
    whole_path: &str,
    violations: &mut Violations,
) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(field) = fields.iter().find(|field| field.name == first) else { return };
    if let (Some(group), Some(_)) = (field.oneof, value) {
        clear_others(fields, object, field.name, group);
    }
    let (Some(rest), Type::Message(inner)) = (rest, &field.ty) else {
        return put(field, object, value, whole_path, violations);
    };
    // Clearing a field of a message that is not set must not set the message.
    if value.is_none() && !object.contains_key(first) {
        return;
    }
    let nested = object.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(nested) = nested {
        set(inner, nested, rest, value, whole_path, violations);
    }
}

/// Sets or clears a field, as its access allows.
fn put(
    field: &'static Field,
    object: &mut Map<String, Value>,
    value: Option<&Value>,
    path: &str,
    violations: &mut Violations,
) {
    match (field.access, value) {
        // An immutable field that is not sent keeps its value: it cannot be cleared.
        (Access::OutputOnly, _) | (Access::Immutable, None) => {}
        (Access::Immutable, Some(value)) => {
            if object.get(field.name) != Some(value) {
                violations.add(path, "cannot be changed");
            }
        }
        (Access::Mutable | Access::InputOnly, None) => {
            object.shift_remove(field.name);
        }
        (Access::Mutable | Access::InputOnly, Some(value)) => {
            // A message is replaced field by field, so that its output-only and immutable fields keep their values.
            let value = match (&field.ty, value, object.get(field.name)) {
                (Type::Message(inner), Value::Object(input), Some(Value::Object(old))) => {
                    let mut new = old.clone();
                    replace(inner, &mut new, input, path, violations);
                    Value::Object(new)
                }
                _ => value.clone(),
            };
            object.insert(field.name.to_owned(), value);
        }
    }
}

/// Clears the other fields of a oneof.
fn clear_others(fields: &'static [Field], object: &mut Map<String, Value>, name: &str, group: &str) {
    for other in fields.iter().filter(|other| other.oneof == Some(group) && other.name != name) {
        object.shift_remove(other.name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MATCH: &[Field] = &[
        Field::string("issuer").oneof("iss"),
        Field::string("issuerPattern").oneof("iss"),
        Field::string("subject"),
        Field::timestamp("expirationTime").output_only(),
    ];
    const FIELDS: &[Field] = &[
        Field::UID,
        Field::string("name"),
        Field::string("description"),
        Field::string("rule").immutable(),
        Field::message("claimMatch", MATCH).oneof("relationship"),
        Field::string("principal").oneof("relationship"),
        Field::message("status", &[Field::string("phase")]).output_only(),
    ];

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn applied(mask: &str, old: Value, input: Value) -> Value {
        let mask = Mask::parse(mask, FIELDS).unwrap();
        mask.apply(FIELDS, &object(old), &object(input)).unwrap().into()
    }

    #[test]
    fn paths_are_parsed_in_camel_case_and_snake_case_and_unknown_ones_are_violations() {
        let paths = |text| Mask::parse(text, FIELDS);
        assert_eq!(paths("*").unwrap(), Mask::All);
        assert_eq!(
            paths("name, claim_match.issuer_pattern,claimMatch.subject,name,uid").unwrap(),
            Mask::Paths(vec!["name".into(), "claimMatch.issuerPattern".into(), "claimMatch.subject".into()])
        );
        for none in ["", "uid", "status", "status.phase", "claimMatch.expirationTime"] {
            assert_eq!(paths(none).unwrap(), Mask::Paths(vec![]), "{none}");
        }
        for bad in
            ["nam", "name.x", "claimMatch.", "claimMatch.x", ".name", "*,name", "name,*", "claimMatch.*", "`name`"]
        {
            let violations = paths(bad).unwrap_err().into_vec();
            assert_eq!(violations[0].field, "update_mask", "{bad}");
        }
    }

    #[test]
    fn only_fields_of_the_mask_are_set_and_those_without_a_value_are_cleared() {
        let old = json!({ "uid": "u", "name": "a", "description": "d" });
        let input = json!({ "name": "b" });
        assert_eq!(applied("description", old.clone(), input.clone()), json!({ "uid": "u", "name": "a" }));
        assert_eq!(applied("name", old.clone(), input.clone()), json!({ "uid": "u", "name": "b", "description": "d" }));
        assert_eq!(applied("*", old.clone(), input), json!({ "uid": "u", "name": "b" }));
        assert_eq!(applied("", old.clone(), json!({ "name": "b" })), old);
    }

    #[test]
    fn a_nested_path_sets_one_field_and_keeps_its_siblings() {
        let old = json!({ "claimMatch": { "issuer": "i", "subject": "s", "expirationTime": "t" } });
        let input = json!({ "claimMatch": { "issuerPattern": "p" } });
        assert_eq!(
            applied("claimMatch.issuerPattern", old.clone(), input.clone()),
            json!({ "claimMatch": { "subject": "s", "expirationTime": "t", "issuerPattern": "p" } })
        );
        assert_eq!(
            applied("claimMatch", old.clone(), input),
            json!({ "claimMatch": { "expirationTime": "t", "issuerPattern": "p" } })
        );
        assert_eq!(applied("claimMatch.subject", json!({ "name": "a" }), json!({})), json!({ "name": "a" }));
    }

    #[test]
    fn setting_one_field_of_a_oneof_clears_the_others() {
        let old = json!({ "claimMatch": { "issuer": "i" } });
        assert_eq!(applied("principal", old.clone(), json!({ "principal": "p" })), json!({ "principal": "p" }));
        assert_eq!(
            applied("claimMatch.subject", json!({ "principal": "p" }), json!({ "claimMatch": { "subject": "s" } })),
            json!({ "claimMatch": { "subject": "s" } })
        );
        assert_eq!(applied("*", old, json!({ "principal": "p" })), json!({ "principal": "p" }));
    }

    #[test]
    fn an_immutable_field_can_be_sent_unchanged_but_not_changed() {
        let old = object(json!({ "rule": "a" }));
        let apply = |mask: &str, input: Value| Mask::parse(mask, FIELDS).unwrap().apply(FIELDS, &old, &object(input));
        for (mask, input) in [("rule", json!({ "rule": "a" })), ("rule", json!({})), ("*", json!({}))] {
            assert_eq!(apply(mask, input).unwrap(), old);
        }
        assert_eq!(apply("*", json!({ "rule": "b" })).unwrap_err().into_vec()[0].field, "rule");
    }
}

//! Field masks (AIP-161, AIP-134; `docs/api.md`, Updates).

use serde_json::{Map, Value};

use crate::{
    error::Violations,
    fields::path::{at, covers, named},
    kind::{Access, Field, Type},
};

/// Which fields an update sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mask {
    /// `*`: all that callers may set, so that what is not sent is cleared.
    All,
    /// These, in camelCase, dotted into messages.
    Paths(Vec<String>),
}

impl Mask {
    /// Reads a mask: comma-separated paths in camelCase or snake_case, or `*` alone.
    ///
    /// Output-only paths are dropped, so that what was read can be written back.
    ///
    /// # Errors
    /// A violation of `update_mask` for each path that the table does not have, and for `*` beside paths.
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

    /// Returns the paths that it sets.
    pub fn paths(&self, fields: &[Field]) -> Vec<String> {
        match self {
            Self::All => fields.iter().map(|field| field.name.to_owned()).collect(),
            Self::Paths(paths) => paths.clone(),
        }
    }

    /// Tells whether the mask sets this path, one above it or one below it.
    pub fn touches(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Paths(paths) => paths.iter().any(|set| covers(set, path) || covers(path, set)),
        }
    }

    /// Returns `old` with the mask's fields as they are in `input`, both in canonical form.
    ///
    /// What is in the mask and not in the input is cleared; setting one form of a oneof clears the others;
    /// output-only fields stay, in nested messages too.
    ///
    /// # Errors
    /// A violation for each immutable field that the mask sets to another value than it has.
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

/// Returns a path in camelCase and whether callers may set it, or `None` where there is no such field.
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
    if value.is_none() && !object.contains_key(first) {
        return;
    }
    let nested = object.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(nested) = nested {
        set(inner, nested, rest, value, whole_path, violations);
    }
}

fn put(
    field: &'static Field,
    object: &mut Map<String, Value>,
    value: Option<&Value>,
    path: &str,
    violations: &mut Violations,
) {
    match (field.access, value) {
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
    ];

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn applied(mask: &str, old: Value, input: Value) -> Value {
        let mask = Mask::parse(mask, FIELDS).unwrap();
        mask.apply(FIELDS, &object(old), &object(input)).unwrap().into()
    }

    #[test]
    fn paths_are_read_in_either_case_and_unknown_ones_are_refused() {
        let paths = |text| Mask::parse(text, FIELDS);
        assert_eq!(paths("*").unwrap(), Mask::All);
        assert_eq!(
            paths("name, claim_match.issuer_pattern,claimMatch.subject,name,uid").unwrap(),
            Mask::Paths(vec!["name".into(), "claimMatch.issuerPattern".into(), "claimMatch.subject".into()])
        );
        assert_eq!(paths("").unwrap(), Mask::Paths(vec![]));
        for bad in
            ["nam", "name.x", "claimMatch.", "claimMatch.x", ".name", "*,name", "name,*", "claimMatch.*", "`name`"]
        {
            let violations = paths(bad).unwrap_err().into_vec();
            assert_eq!(violations[0].field, "update_mask", "{bad}");
        }
    }

    #[test]
    fn only_what_the_mask_names_is_set_and_what_it_names_without_a_value_is_cleared() {
        let old = json!({ "uid": "u", "name": "a", "description": "d" });
        let input = json!({ "name": "b" });
        assert_eq!(applied("description", old.clone(), input.clone()), json!({ "uid": "u", "name": "a" }));
        assert_eq!(applied("name", old.clone(), input.clone()), json!({ "uid": "u", "name": "b", "description": "d" }));
        assert_eq!(applied("*", old.clone(), input), json!({ "uid": "u", "name": "b" }));
        assert_eq!(applied("", old.clone(), json!({ "name": "b" })), old);
    }

    #[test]
    fn nested_paths_set_one_field_and_keep_its_neighbours() {
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
    fn setting_one_form_of_a_oneof_clears_the_others() {
        let old = json!({ "claimMatch": { "issuer": "i" } });
        assert_eq!(applied("principal", old.clone(), json!({ "principal": "p" })), json!({ "principal": "p" }));
        assert_eq!(
            applied("claimMatch.subject", json!({ "principal": "p" }), json!({ "claimMatch": { "subject": "s" } })),
            json!({ "claimMatch": { "subject": "s" } })
        );
        assert_eq!(applied("*", old, json!({ "principal": "p" })), json!({ "principal": "p" }));
    }

    #[test]
    fn an_immutable_field_may_be_repeated_and_not_changed() {
        let old = object(json!({ "rule": "a" }));
        let apply = |mask: &str, input: Value| Mask::parse(mask, FIELDS).unwrap().apply(FIELDS, &old, &object(input));
        for (mask, input) in [("rule", json!({ "rule": "a" })), ("rule", json!({})), ("*", json!({}))] {
            assert_eq!(apply(mask, input).unwrap(), old);
        }
        assert_eq!(apply("*", json!({ "rule": "b" })).unwrap_err().into_vec()[0].field, "rule");
    }
}

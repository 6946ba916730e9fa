//! Reads a caller's JSON by a field table: names in camelCase and snake_case, every type of proto3 JSON, all violations
//! at once (`docs/api.md`, JSON).

use std::ops::Deref;

use base64::{Engine, alphabet, engine};
use serde_json::{Map, Value};

use super::{
    bounds,
    path::{join, named},
    pattern,
    prune::is_empty,
};
use crate::{
    access::Capabilities,
    aip::field_mask::Mask,
    duration::Duration,
    error::{Result, Violations},
    kind::{Access, Field, Type},
    timestamp::Timestamp,
};

/// The values that a caller sent, in canonical form, and the rules that they break.
///
/// The values can be taken out only with [`Input::checked`], which fails if there are violations.
#[derive(Debug, Default)]
pub struct Input {
    /// The fields that callers may set, by their camelCase names, without those that are empty or null or break a rule.
    values: Map<String, Value>,
    /// The paths that were sent, dotted into messages: the mask of an update without one.
    pub(crate) paths: Vec<String>,
    /// The rules that the values break.
    pub violations: Violations,
}

impl Input {
    /// Adds a violation for each required field that is not set, at the top and in each message that is set.
    pub fn require(&mut self, fields: &'static [Field]) {
        require(fields, &self.values, "", &mut self.violations);
    }

    /// Returns a value, even if other values break rules.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Returns the values if they break no rule.
    ///
    /// # Errors
    /// [`Error::invalid`](crate::error::Error::invalid) otherwise.
    pub fn checked(self) -> Result<Values> {
        self.violations.none_or(Values(self.values))
    }
}

/// The values of a request in canonical form, which have passed the rules of their fields. Returned by
/// [`Input::checked`].
#[derive(Debug, Clone, Default)]
pub struct Values(pub(super) Map<String, Value>);

impl Values {
    /// Adds the values of `old` for the fields of these names that have none.
    pub(crate) fn retain(&mut self, names: &[&str], old: &Value) {
        for name in names {
            if let (false, Some(value)) = (self.0.contains_key(*name), old.get(name)) {
                self.0.insert((*name).to_owned(), value.clone());
            }
        }
    }

    /// Returns the values as a plain object.
    pub(crate) fn into_inner(self) -> Map<String, Value> {
        self.0
    }
}

impl Deref for Values {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Finds the field that a key names, in camelCase or snake_case.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<&'static Field> + 'a;

/// Reads an object against a table. Fields outside `mask` are not read, except that unknown and repeated names are
/// refused. Fields of the type [`Type::Capability`] accept the `known` capabilities.
pub fn read(fields: &'static [Field], known: &Capabilities, object: Map<String, Value>, mask: Option<&Mask>) -> Input {
    read_with(&|key| named(fields, key), known, object, mask)
}

/// Reads an object against the fields that `lookup` knows.
pub(crate) fn read_with(
    lookup: &Lookup<'_>,
    known: &Capabilities,
    object: Map<String, Value>,
    mask: Option<&Mask>,
) -> Input {
    let mut input = Input::default();
    input.values = read_object(lookup, known, object, "", mask, &mut input.paths, &mut input.violations);
    input
}

/// Reads an object at a path within the resource, which is empty at the top, and returns the valid values.
fn read_object(
    lookup: &Lookup<'_>,
    known: &Capabilities,
    object: Map<String, Value>,
    prefix: &str,
    mask: Option<&Mask>,
    paths: &mut Vec<String>,
    violations: &mut Violations,
) -> Map<String, Value> {
    let mut values = Map::new();
    let mut sent: Vec<&'static Field> = Vec::new();
    for (key, value) in object {
        let Some(field) = lookup(&key) else {
            violations.add(join(prefix, &key), "unknown field");
            continue;
        };
        let path = join(prefix, field.name);
        if sent.iter().any(|other| other.name == field.name) {
            violations.add(path, "is specified more than once");
            continue;
        }
        // Output-only fields are ignored, so that clients can send a resource back as they have read it.
        sent.push(field);
        if field.access != Access::OutputOnly
            && let Some(value) = read_field(field, known, path, value, mask, paths, violations)
        {
            values.insert(field.name.to_owned(), value);
        }
    }
    // Only fields with a value count for oneofs: the others may be sent empty.
    sent.retain(|field| values.contains_key(field.name));
    exclude(&sent, prefix, violations);
    values
}

/// Adds a violation for each of these fields that follows another of its oneof.
fn exclude(set: &[&'static Field], prefix: &str, violations: &mut Violations) {
    for (index, field) in set.iter().enumerate() {
        let earlier = set.iter().take(index);
        if let Some(other) = earlier.rev().find(|other| field.oneof.is_some() && other.oneof == field.oneof) {
            violations.add(join(prefix, field.name), format!("cannot be set together with {}", other.name));
        }
    }
}

/// Adds a violation for each field that is set together with another of its oneof, at the top and in each message that
/// is set.
pub(super) fn exclusive(
    fields: &'static [Field],
    values: &Map<String, Value>,
    prefix: &str,
    violations: &mut Violations,
) {
    let set: Vec<_> = fields.iter().filter(|field| values.contains_key(field.name)).collect();
    exclude(&set, prefix, violations);
    for field in set {
        if let (Type::Message(inner), Some(Value::Object(nested))) = (field.ty, values.get(field.name)) {
            exclusive(inner, nested, &join(prefix, field.name), violations);
        }
    }
}

/// Reads a field, and returns its value unless it is empty, outside the mask, or breaks a rule.
fn read_field(
    field: &'static Field,
    known: &Capabilities,
    path: String,
    value: Value,
    mask: Option<&Mask>,
    paths: &mut Vec<String>,
    violations: &mut Violations,
) -> Option<Value> {
    let masked = mask.is_none_or(|mask| mask.touches(&path));
    if field.unread {
        return Some(value);
    }
    let value = match (&field.ty, value) {
        (Type::Message(inner), Value::Object(object)) => {
            let before = paths.len();
            let values = read_object(&|key| named(inner, key), known, object, &path, mask, paths, violations);
            if paths.len() == before {
                paths.push(path);
            }
            return masked.then(|| values.into());
        }
        (_, value) => value,
    };
    // A null has no value, but its path is part of the mask of an update without one, which then clears the field.
    paths.push(path.clone());
    if value.is_null() || !masked {
        return None;
    }
    let before = violations.count();
    let value = read_value(&field.ty, field, known, value, &path, violations)?;
    if violations.count() > before || is_empty(&field.ty, &value) {
        return None;
    }
    if !pattern::matches(field, &value, &path, violations) {
        return None;
    }
    if let Some(Err(rule)) = field.check.map(|check| check(&value)) {
        violations.add(path, rule);
        return None;
    }
    Some(value)
}

/// Returns a value in canonical form; `None` with a violation when it has another type or is not within the bounds of
/// its field.
fn read_value(
    ty: &'static Type,
    field: &'static Field,
    known: &Capabilities,
    value: Value,
    path: &str,
    violations: &mut Violations,
) -> Option<Value> {
    let mut wrong = |what: &str| {
        violations.add(path, format!("must be {what}"));
        None
    };
    match (ty, value) {
        (Type::String | Type::FieldMask, Value::String(text)) => {
            bounds::text(field, &text, path, violations).then(|| text.into())
        }
        (Type::String | Type::FieldMask, _) => wrong("a string"),
        (Type::Bool, value @ Value::Bool(_)) => Some(value),
        (Type::Bool, _) => wrong("true or false"),
        (Type::Int32, value) => match integer(&value).and_then(|number| i32::try_from(number).ok()) {
            Some(number) => Some(number.into()),
            None => wrong("a whole number of 32 bits"),
        },
        (Type::Int64, value) => match integer(&value) {
            Some(number) => Some(number.to_string().into()),
            None => wrong("a whole number of 64 bits"),
        },
        (Type::Bytes, Value::String(text)) => match decode(&text) {
            Some(bytes) => bounds::bytes(field, &bytes, path, violations)
                .then(|| engine::general_purpose::STANDARD.encode(bytes).into()),
            None => wrong("base64"),
        },
        (Type::Bytes, _) => wrong("base64"),
        (Type::Timestamp, value) => match value.as_str().map(Timestamp::parse) {
            Some(Ok(at)) => Some(at.to_string().into()),
            _ => wrong("an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z"),
        },
        (Type::Duration, value) => match value.as_str().map(Duration::parse) {
            Some(Ok(_)) => Some(value),
            _ => wrong("a duration in seconds, such as 3600s"),
        },
        (Type::Enum(names), Value::String(name)) if names.contains(&name.as_str()) => Some(name.into()),
        (Type::Enum(names), value) => {
            // proto3 JSON allows the number of an enum value in place of its name.
            let numbered = integer(&value).and_then(|number| names.get(usize::try_from(number).ok()?));
            match numbered.filter(|_| value.is_number()) {
                Some(name) => Some((*name).into()),
                None => wrong(&format!("one of {}", names.join(", "))),
            }
        }
        (Type::Capability, value) => {
            let by_id = value.as_str().and_then(|id| known.by_id(id));
            match by_id.or_else(|| known.by_number(value.as_i64()?)) {
                Some(capability) => Some(capability.id().into()),
                None => wrong("a capability, such as CAP_REPO_LIST"),
            }
        }
        (Type::Message(fields), Value::Object(object)) => {
            let values = read_object(&|key| named(fields, key), known, object, path, None, &mut Vec::new(), violations);
            require(fields, &values, path, violations);
            Some(values.into())
        }
        (Type::List(element), Value::Array(values)) => {
            if !bounds::count(field, values.len(), path, violations) {
                return None;
            }
            let read =
                |(index, value)| read_value(element, field, known, value, &format!("{path}[{index}]"), violations);
            let values: Vec<_> = values.into_iter().enumerate().filter_map(read).collect();
            bounds::distinct(field, &values, path, violations).then(|| values.into())
        }
        (Type::List(_), _) => wrong("an array"),
        (Type::Map(element), Value::Object(values)) => {
            if !bounds::count(field, values.len(), path, violations) {
                return None;
            }
            let read = |(key, value): (String, Value)| {
                bounds::key(field, &key, path, violations).then_some(())?;
                let value = read_value(element, field, known, value, &format!("{path}.{key}"), violations)?;
                Some((key, value))
            };
            Some(values.into_iter().filter_map(read).collect::<Map<_, _>>().into())
        }
        (Type::Message(_) | Type::Map(_), _) => wrong("an object"),
    }
}

/// Adds a violation for each required field that is not set, at the top and in each message that is set.
pub(super) fn require(
    fields: &'static [Field],
    values: &Map<String, Value>,
    prefix: &str,
    violations: &mut Violations,
) {
    for field in fields {
        let path = join(prefix, field.name);
        match values.get(field.name) {
            // A field with an invalid value is not among the values, but has a violation already.
            None if field.required && !violations.concern(&path) => {
                // The field's own rule, applied to the empty text, says more than that the field is required.
                let rule = field.check.map(|check| check(&Value::String(String::new())));
                let rule = rule.and_then(Result::err).unwrap_or_else(|| "is required".to_owned());
                violations.add(path, rule);
            }
            Some(Value::Object(inner)) => {
                if let Type::Message(fields) = field.ty {
                    require(fields, inner, &path, violations);
                }
            }
            _ => {}
        }
    }
}

/// Returns a whole number that is written as a number or, as proto3 JSON allows, as a string. `1.0` counts as whole.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            // Below 2^53, where every whole number has an exact floating-point value.
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
            Some(float as i64)
        }),
        Value::String(text) if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

/// Decodes standard or URL-safe base64, with or without padding.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let config = engine::GeneralPurposeConfig::new().with_decode_padding_mode(engine::DecodePaddingMode::Indifferent);
    let standard = engine::GeneralPurpose::new(&alphabet::STANDARD, config);
    let url_safe = engine::GeneralPurpose::new(&alphabet::URL_SAFE, config);
    standard.decode(text).or_else(|_| url_safe.decode(text)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample::{CREATE, LIST};

    const FIELDS: &[Field] = &[
        Field::UID,
        Field::string("name").required(),
        Field::string("readme").multiline(),
        Field::bool("verified"),
        Field::new("size", Type::Int32),
        Field::new("total", Type::Int64),
        Field::new("findings", Type::Bytes),
        Field::timestamp("since"),
        Field::new("ttl", Type::Duration),
        Field::enumeration("catalogTier", &["TIER_UNSPECIFIED", "TIER_BASE"]),
        Field::new("capabilities", Type::List(&Type::Capability)),
        Field::string_map("claims"),
        Field::message("claimMatch", &[Field::string("issuer").required(), Field::string("subject")])
            .oneof("relationship"),
        Field::string("servicePrincipal").oneof("relationship"),
    ];

    fn sent(object: Value) -> Input {
        let Value::Object(object) = object else { panic!("an object") };
        let known = Capabilities::new([LIST, CREATE]).unwrap();
        read(FIELDS, &known, object, None)
    }

    fn violations(object: Value) -> Vec<String> {
        let all = sent(object).violations.into_vec().into_iter();
        all.map(|violation| format!("{} {}", violation.field, violation.description)).collect()
    }

    #[test]
    fn every_form_of_proto3_json_is_read_into_the_canonical_one() {
        let input = sent(json!({
            "name": "a", "readme": "x\ny", "size": "7", "total": 9, "findings": "_-8", "since": "2026-01-02T03:04:05+01:00",
            "ttl": "1.5s", "catalog_tier": 1, "capabilities": [1_000_000, "CAP_NOTES_CREATE"], "claims": { "k": "v" },
            "claim_match": { "issuer": "i" }, "uid": 5, "verified": null,
        }));
        assert!(input.violations.is_empty());
        assert_eq!(
            Value::Object(input.values),
            json!({
                "name": "a", "readme": "x\ny", "size": 7, "total": "9", "findings": "/+8=", "since": "2026-01-02T02:04:05.000Z",
                "ttl": "1.5s", "catalogTier": "TIER_BASE", "capabilities": ["CAP_NOTES_LIST", "CAP_NOTES_CREATE"],
                "claims": { "k": "v" }, "claimMatch": { "issuer": "i" },
            })
        );
        assert!(input.paths.contains(&"claimMatch.issuer".to_owned()) && input.paths.contains(&"verified".to_owned()));
        assert!(!input.paths.contains(&"uid".to_owned()));
    }

    #[test]
    fn all_violations_are_reported_at_once() {
        assert_eq!(
            violations(json!({
                "nam": 1, "name": 1, "verified": "yes", "size": 2147483648_i64, "total": 1.5, "findings": "*", "since": "now",
                "ttl": "1h", "catalogTier": "BASE", "capabilities": ["repo.list"], "claims": { "k": 1 }, "claimMatch": [],
                "readme": "\u{0}",
            })),
            [
                "nam unknown field",
                "name must be a string",
                "verified must be true or false",
                "size must be a whole number of 32 bits",
                "total must be a whole number of 64 bits",
                "findings must be base64",
                "since must be an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z",
                "ttl must be a duration in seconds, such as 3600s",
                "catalogTier must be one of TIER_UNSPECIFIED, TIER_BASE",
                "capabilities[0] must be a capability, such as CAP_REPO_LIST",
                "claims.k must be a string",
                "claimMatch must be an object",
                "readme must be text without control characters",
            ]
        );
    }

    #[test]
    fn a_text_must_match_its_pattern_unless_it_is_empty_and_its_check_runs_afterwards() {
        const PLATE: &[Field] =
            &[Field::string("plate").max_len(5).pattern("^[A-Z]+$").check(|value| match value.as_str() {
                Some("RUDE") => Err("must not be rude".to_owned()),
                _ => Ok(()),
            })];
        let rules = |plate: &str| {
            let object = Map::from_iter([("plate".to_owned(), plate.into())]);
            let found = read(PLATE, &Capabilities::default(), object, None).violations.into_vec();
            found.into_iter().map(|violation| violation.description).collect::<Vec<_>>()
        };
        assert!(rules("ABC").is_empty() && rules("").is_empty());
        assert_eq!(rules("abc"), ["must match the pattern ^[A-Z]+$"]);
        assert_eq!(rules("abcdef"), ["must be at most 5 bytes long"]);
        assert_eq!(rules("RUDE"), ["must not be rude"]);
    }

    #[test]
    fn duplicate_names_and_two_members_of_a_oneof_are_violations() {
        assert_eq!(
            violations(json!({ "claimMatch": {}, "claim_match": {} })),
            ["claimMatch is specified more than once"]
        );
        assert_eq!(
            violations(json!({ "claimMatch": { "issuer": "i" }, "servicePrincipal": "x" })),
            ["servicePrincipal cannot be set together with claimMatch"]
        );
    }

    #[test]
    fn required_fields_are_required_in_nested_messages_that_are_set() {
        let mut found = Violations::default();
        let input = sent(json!({ "claimMatch": { "subject": "s" } }));
        require(FIELDS, &input.values, "", &mut found);
        let found: Vec<_> = found.into_vec().into_iter().map(|violation| violation.field).collect();
        assert_eq!(found, ["name", "claimMatch.issuer"]);
    }
}

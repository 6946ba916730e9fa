//! Read masks (AIP-157; `docs/api.md`, Read masks): the fields of the resources in a reply.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    error::{Error, Result, Violations},
    fields::path::named,
    kind::{Field, Type},
};

/// The name of the field in violations. That of an update is `update_mask`.
pub const NAME: &str = "read_mask";

/// The maximum length of a mask in bytes. Our choice.
pub const MAX_LEN: usize = 4 << 10;

/// The fields that a reply shows of each resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadMask(BTreeMap<&'static str, Shown>);

/// The part of a field that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    Whole,
    /// These fields of the message, or of each message of the list.
    Part(ReadMask),
}

/// Returns the JSON of a resource with the fields of a mask, or all of it without one.
///
/// # Errors
/// As [`ReadMask::apply`].
pub(crate) fn shown(mask: Option<&ReadMask>, body: Bytes) -> Result<Bytes> {
    match mask {
        Some(mask) => mask.apply(&body),
        None => Ok(body),
    }
}

impl ReadMask {
    /// Parses a mask: comma-separated paths in camelCase or snake_case, with dots into messages and into the messages of
    /// lists. An empty mask and `*` mean all fields, for which this returns `None`.
    ///
    /// # Errors
    /// A violation of `read_mask` for each path that the table does not have, for `*` together with other paths, and for a
    /// mask of more than [`MAX_LEN`] bytes.
    pub fn parse(text: &str, fields: &'static [Field]) -> Result<Option<Self>, Violations> {
        let mut violations = Violations::default();
        if text.len() > MAX_LEN {
            violations.add(NAME, format!("must have at most {MAX_LEN} bytes"));
            return Err(violations);
        }
        let text = text.trim();
        if matches!(text, "" | "*") {
            return Ok(None);
        }
        let mut mask = Self::default();
        for path in text.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            match mask.add(path, fields) {
                Some(()) => {}
                None if path == "*" => violations.add(NAME, "`*` must be the only path"),
                None => violations.add(NAME, format!("unknown field `{path}`")),
            }
        }
        if violations.is_empty() { Ok(Some(mask).filter(|mask| !mask.0.is_empty())) } else { Err(violations) }
    }

    /// Adds a path; `None` for an unknown field.
    fn add(&mut self, path: &str, fields: &'static [Field]) -> Option<()> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let field = named(fields, first)?;
        let Some(rest) = rest else {
            self.0.insert(field.name, Shown::Whole);
            return Some(());
        };
        let (Type::Message(inner) | Type::List(&Type::Message(inner))) = field.ty else { return None };
        match self.0.entry(field.name).or_insert_with(|| Shown::Part(Self::default())) {
            // The whole field includes the path, which must exist all the same.
            Shown::Whole => Self::default().add(rest, inner),
            Shown::Part(part) => part.add(rest, inner),
        }
    }

    /// Returns the JSON of a resource with the fields of the mask only. A field that is not set has no value to show.
    ///
    /// # Errors
    /// INTERNAL when the text is not a JSON object.
    pub fn apply(&self, body: &[u8]) -> Result<Bytes> {
        let mut body: Map<String, Value> = serde_json::from_slice(body).map_err(Error::internal)?;
        self.retain(&mut body);
        serde_json::to_vec(&body).map(Bytes::from).map_err(Error::internal)
    }

    /// Returns the JSON of a resource with the fields of the mask and the uid.
    ///
    /// # Errors
    /// As [`ReadMask::apply`].
    pub(crate) fn apply_with_uid(&self, body: &[u8]) -> Result<Bytes> {
        let mut mask = self.clone();
        mask.0.insert("uid", Shown::Whole);
        mask.apply(body)
    }

    fn retain(&self, object: &mut Map<String, Value>) {
        object.retain(|name, value| match self.0.get(name.as_str()) {
            None => false,
            Some(Shown::Whole) => true,
            Some(Shown::Part(part)) => {
                part.retain_in(value);
                true
            }
        });
    }

    /// Applies the mask to a message, or to each message of a list.
    fn retain_in(&self, value: &mut Value) {
        match value {
            Value::Object(object) => self.retain(object),
            Value::Array(items) => items.iter_mut().for_each(|item| self.retain_in(item)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EVENT: &[Field] = &[Field::string("author"), Field::message("fixed", &[Field::string("fixedVersion")])];
    const FIELDS: &[Field] = &[
        Field::UID,
        Field::string("name"),
        Field::message("claimMatch", &[Field::string("issuer"), Field::string("subject")]),
        Field::new("events", Type::List(&Type::Message(EVENT))),
        Field::new("labels", Type::Map(&Type::String)),
    ];

    fn masked(mask: &str) -> Value {
        let body = json!({
            "uid": "u",
            "name": "n",
            "claimMatch": { "issuer": "i", "subject": "s" },
            "events": [{ "author": "a", "fixed": { "fixedVersion": "1" } }, { "author": "b" }],
            "labels": { "a": "1" },
        });
        let body = serde_json::to_vec(&body).unwrap();
        let mask = ReadMask::parse(mask, FIELDS).unwrap().unwrap();
        serde_json::from_slice(&mask.apply(&body).unwrap()).unwrap()
    }

    #[test]
    fn a_mask_selects_fields_in_messages_and_in_the_messages_of_lists() {
        for (mask, expected) in [
            ("name", json!({ "name": "n" })),
            ("uid, name,", json!({ "uid": "u", "name": "n" })),
            ("claim_match.issuer", json!({ "claimMatch": { "issuer": "i" } })),
            ("claimMatch.issuer,claimMatch", json!({ "claimMatch": { "issuer": "i", "subject": "s" } })),
            ("claimMatch,claimMatch.issuer", json!({ "claimMatch": { "issuer": "i", "subject": "s" } })),
            ("events.author", json!({ "events": [{ "author": "a" }, { "author": "b" }] })),
            ("events.fixed.fixed_version", json!({ "events": [{ "fixed": { "fixedVersion": "1" } }, {}] })),
            ("labels", json!({ "labels": { "a": "1" } })),
        ] {
            assert_eq!(masked(mask), expected, "{mask}");
        }
    }

    #[test]
    fn an_empty_mask_and_a_star_mean_all_fields() {
        for all in ["", " ", "*", ",", " * "] {
            assert_eq!(ReadMask::parse(all, FIELDS).unwrap(), None, "{all:?}");
        }
    }

    #[test]
    fn unknown_paths_are_violations() {
        let long = "name,".repeat(1_000);
        for bad in ["nam", "name.x", "claimMatch.", ".name", "claimMatch,claimMatch.x", "*,name", "labels.a", &long] {
            let violations = ReadMask::parse(bad, FIELDS).unwrap_err().into_vec();
            assert_eq!(violations[0].field, NAME, "{bad}");
        }
    }
}

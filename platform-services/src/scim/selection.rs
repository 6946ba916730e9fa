//! The selection of attributes in replies: `attributes` and `excludedAttributes` (RFC 7644 section 3.9).

use scim_v2::filter::PatchPath;
use serde_json::{Map, Value};

use super::{
    attributes::{Attribute, USER, named},
    filter,
    reply::ScimError,
};

/// The attributes of users in a reply. Attributes that every reply has are always included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Selection {
    #[default]
    All,
    Only(Vec<Name>),
    Without(Vec<Name>),
}

/// An attribute, or a part of one.
type Name = (&'static str, Option<&'static str>);

impl Selection {
    /// Reads the values of `attributes` and `excludedAttributes`. An empty list is the same as none.
    ///
    /// # Errors
    /// `invalidValue` for both at once.
    pub(super) fn new<'n>(
        only: impl Iterator<Item = &'n str>,
        without: impl Iterator<Item = &'n str>,
    ) -> Result<Self, ScimError> {
        let given = |names: Vec<&'n str>| (!names.is_empty()).then_some(names);
        let trimmed = |name: &'n str| Some(name.trim()).filter(|name| !name.is_empty());
        match (given(only.filter_map(trimmed).collect()), given(without.filter_map(trimmed).collect())) {
            (None, None) => Ok(Self::All),
            (Some(only), None) => Ok(Self::Only(known(&only))),
            (None, Some(without)) => Ok(Self::Without(known(&without))),
            (Some(_), Some(_)) => {
                let rule = "attributes and excludedAttributes exclude each other: send one of them";
                Err(ScimError::invalid("invalidValue", rule))
            }
        }
    }

    /// Removes the attributes that are not selected from a user.
    pub(super) fn apply(&self, user: &mut Map<String, Value>) {
        if *self == Self::All {
            return;
        }
        user.retain(|name, value| {
            let Some(attribute) = named(USER, name) else { return false };
            attribute.always || self.keeps(attribute, None) || self.keep_parts(attribute, value)
        });
    }

    /// Removes the parts of an attribute that are not selected. Returns whether any are left.
    fn keep_parts(&self, attribute: &Attribute, value: &mut Value) -> bool {
        match value {
            Value::Object(parts) => {
                let keeps =
                    |part: &str| named(attribute.parts(), part).is_some_and(|part| self.keeps(attribute, Some(part)));
                parts.retain(|part, _| keeps(part));
                !parts.is_empty()
            }
            Value::Array(values) => {
                values.retain_mut(|value| self.keep_parts(attribute, value));
                !values.is_empty()
            }
            _ => false,
        }
    }

    fn keeps(&self, attribute: &Attribute, part: Option<&Attribute>) -> bool {
        let name = (attribute.name, part.map(|part| part.name));
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(&name),
            // Without a part, whether the attribute is kept whole.
            Self::Without(names) => {
                let whole = names.contains(&(attribute.name, None));
                match part {
                    None => !names.iter().any(|(of, _)| *of == attribute.name),
                    Some(_) => !whole && !names.contains(&name),
                }
            }
        }
    }
}

/// Returns the attributes of a user that these names refer to. Others are not returned anyway.
fn known(names: &[&str]) -> Vec<Name> {
    let mut known = Vec::new();
    for name in names {
        let Ok(PatchPath::Attr(path)) = name.parse() else { continue };
        let Ok((attribute, part)) = filter::find(USER, &path) else { continue };
        let name = (attribute.name, part.map(|part| part.name));
        // At most as many as the table has.
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(only: &str, without: &str) -> Value {
        let mut user = json!({
            "schemas": ["s"], "id": "1", "userName": "ada", "name": { "givenName": "Ada", "familyName": "L" },
            "emails": [{ "value": "a@example.com", "type": "work", "primary": true }], "active": true,
            "meta": { "resourceType": "User", "location": "l" },
        });
        Selection::new(only.split(','), without.split(',')).unwrap().apply(user.as_object_mut().unwrap());
        user
    }

    #[test]
    fn only_the_selected_attributes_and_those_of_every_reply_are_shown() {
        for (only, expected) in [
            ("userName", json!({ "schemas": ["s"], "id": "1", "userName": "ada" })),
            (" USERNAME , active", json!({ "schemas": ["s"], "id": "1", "userName": "ada", "active": true })),
            (
                "urn:ietf:params:scim:schemas:core:2.0:User:active",
                json!({ "schemas": ["s"], "id": "1", "active": true }),
            ),
            ("name.familyName", json!({ "schemas": ["s"], "id": "1", "name": { "familyName": "L" } })),
            (
                "name,name.familyName",
                json!({ "schemas": ["s"], "id": "1", "name": { "givenName": "Ada", "familyName": "L" } }),
            ),
            ("emails.value", json!({ "schemas": ["s"], "id": "1", "emails": [{ "value": "a@example.com" }] })),
            ("title,urn:x:active,(,emails[type pr]", json!({ "schemas": ["s"], "id": "1" })),
        ] {
            assert_eq!(shown(only, ""), expected, "{only}");
        }
        assert_eq!(shown("", "")["meta"]["location"], "l");
    }

    #[test]
    fn excluded_attributes_are_left_out_but_not_those_of_every_reply() {
        let without = "id,schemas,meta,emails.type,name.givenName,name.familyName,ACTIVE,title";
        let expected = json!({
            "schemas": ["s"], "id": "1", "userName": "ada", "emails": [{ "value": "a@example.com", "primary": true }],
        });
        assert_eq!(shown("", without), expected);
    }

    #[test]
    fn both_lists_at_once_are_rejected() {
        let refused = Selection::new(["a"].into_iter(), ["b"].into_iter()).unwrap_err();
        assert_eq!(refused.kind, "invalidValue");
        assert_eq!(Selection::new([" "].into_iter(), [""].into_iter()).unwrap(), Selection::All);
    }
}

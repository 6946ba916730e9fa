//! Paths of PATCH operations (RFC 7644 section 3.5.2), and the attributes of a user that they name.
//!
//! The parser is `scim_v2`, which limits nesting and the number of terms while it parses.

use scim_v2::filter::PatchPath;

use super::{
    attributes::{SCHEMA, USER, named},
    filter::{Condition, Misfit},
    reply::ScimError,
};

/// Maximum length of a path in bytes; our choice.
const MAX_PATH: usize = 512;

/// Target of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    /// The user itself.
    User,
    UserName,
    ExternalId,
    DisplayName,
    Name,
    GivenName,
    FamilyName,
    Active,
    /// All email addresses, or those that meet the condition.
    Emails(Option<Condition>),
    /// The `value` of these addresses.
    EmailValue(Option<Condition>),
    /// Read-only attribute.
    ReadOnly,
    /// Attribute that is not stored, of any schema.
    NotStored,
}

impl Target {
    /// Parses a path. Names of attributes and schemas are case-insensitive.
    ///
    /// # Errors
    /// `invalidPath` for a malformed path, and for one that treats a stored attribute as if it had parts or several
    /// values; `invalidFilter` for a filter with a value of another type.
    pub(super) fn parse(text: &str) -> Result<Self, ScimError> {
        let invalid = |why: &str| ScimError::invalid("invalidPath", format!("the path {why}"));
        if text.len() > MAX_PATH {
            return Err(invalid(&format!("must have at most {MAX_PATH} bytes")));
        }
        if text.eq_ignore_ascii_case(SCHEMA) {
            return Ok(Self::User);
        }
        let path: PatchPath = match text.parse() {
            Ok(path) => path,
            Err(_) if is_foreign(text) => return Ok(Self::NotStored),
            Err(_) => {
                return Err(invalid("must follow RFC 7644 section 3.5.2, such as emails[type eq \"work\"].value"));
            }
        };
        let (attribute, filter, part) = match path {
            PatchPath::Attr(attribute) => {
                let part = attribute.sub_attr.clone();
                (attribute, None, part)
            }
            PatchPath::Value(path) if path.attr.sub_attr.is_some() => {
                return Err(invalid("must not filter a part of an attribute"));
            }
            PatchPath::Value(path) => (path.attr, Some(path.filter), path.sub_attr),
        };
        if attribute.uri.is_some_and(|schema| !schema.eq_ignore_ascii_case(SCHEMA)) {
            return Ok(Self::NotStored);
        }
        let Some(attribute) = named(USER, &attribute.name) else { return Ok(Self::NotStored) };
        let filter = match filter.map(|filter| Condition::of_value(attribute, &filter)).transpose() {
            // Only addresses have a filter. One by an unknown part selects addresses that are not stored.
            Err(Misfit::NotStored(_)) if attribute.name == "emails" => return Ok(Self::NotStored),
            Err(Misfit::Rule(rule)) => return Err(Misfit::Rule(rule).into()),
            Ok(filter) if attribute.name == "emails" => filter,
            Ok(None) => None,
            _ => return Err(invalid("filters an attribute that has a single value; leave the filter out")),
        };
        if part.is_some() && attribute.parts().is_empty() {
            return Err(invalid("names a part of an attribute that has none"));
        }
        let part = match part.map(|part| named(attribute.parts(), &part)) {
            Some(None) => return Ok(Self::NotStored),
            Some(Some(part)) => Some(part.name),
            None => None,
        };
        Ok(match (attribute.name, part) {
            ("userName", _) => Self::UserName,
            ("externalId", _) => Self::ExternalId,
            ("displayName", _) => Self::DisplayName,
            ("active", _) => Self::Active,
            ("name", None) => Self::Name,
            ("name", Some("givenName")) => Self::GivenName,
            ("name", Some("familyName")) => Self::FamilyName,
            ("emails", None) => Self::Emails(filter),
            ("emails", Some("value")) => Self::EmailValue(filter),
            ("id" | "meta", _) => Self::ReadOnly,
            // Such as the type of an address, and `schemas`, which follow from the stored attributes.
            _ => Self::NotStored,
        })
    }
}

/// Returns whether a text that the parser does not accept is an attribute of another schema. The parser accepts neither
/// `$ref` nor schemas that are URIs but not URNs.
fn is_foreign(text: &str) -> bool {
    let is_core = text.get(..SCHEMA.len()).is_some_and(|schema| schema.eq_ignore_ascii_case(SCHEMA));
    let is_name = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"()[]".contains(&byte));
    is_name && !is_core && text.contains([':', '$'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_and_schemas_are_case_insensitive() {
        for (text, target) in [
            ("active", Target::Active),
            ("ACTIVE", Target::Active),
            ("urn:ietf:params:scim:schemas:core:2.0:User:active", Target::Active),
            ("URN:IETF:params:scim:schemas:core:2.0:user:Active", Target::Active),
            ("urn:ietf:params:scim:schemas:core:2.0:user", Target::User),
            ("urn:ietf:params:scim:schemas:core:2.0:User:name.familyName", Target::FamilyName),
            ("Name.GivenName", Target::GivenName),
            ("name", Target::Name),
            ("username", Target::UserName),
            ("externalId", Target::ExternalId),
            ("displayName", Target::DisplayName),
            ("emails", Target::Emails(None)),
            ("Emails.Value", Target::EmailValue(None)),
            ("id", Target::ReadOnly),
            ("meta.created", Target::ReadOnly),
        ] {
            assert_eq!(Target::parse(text).unwrap(), target, "{text}");
        }
    }

    #[test]
    fn attributes_that_are_not_stored_are_well_formed_paths() {
        for text in [
            "actve",
            "title",
            "department",
            "manager",
            "groups",
            "schemas",
            "emails.type",
            "emails[type eq \"other\"].primary",
            "emails[kind eq \"work\"].value",
            "emails[type eq \"work\"].name",
            "name.formatted",
            "name.first",
            "phoneNumbers[type eq \"work\"].value",
            "addresses[type eq \"work\"]",
            "roles[primary eq \"True\"].value",
            "manager.$ref",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager.$ref",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User",
            "urn:ietf:params:scim:schemas:extension:ExampleCorp:2.0:User:costCode",
            "urn:ietf:params:scim:schemas:extension:ExampleCorp:2.0:User",
            "urn:ietf:params:scim:schemas:core:2.0:Group:displayName",
            "urn:example:User:active",
            "https://example.com/schemas/user:active",
        ] {
            assert_eq!(Target::parse(text).unwrap(), Target::NotStored, "{text}");
        }
    }

    #[test]
    fn malformed_paths_are_rejected() {
        let deep = format!("emails[{}type eq \"work\"{}]", "(".repeat(100), ")".repeat(100));
        let long = format!("emails[type eq \"{}\"]", "x".repeat(600));
        let bracketed = "(".repeat(100_000);
        for text in [
            "active[value eq true]",
            "active.value",
            "name[givenName eq \"a\"].familyName",
            "id[value eq \"a\"]",
            "emails.value.x",
            "urn:ietf:params:scim:schemas:core:2.0:User:emails.value.x",
            "emails[].value",
            "emails[type eq work].value",
            "emails[type eq 'work'].value",
            "emails[type eq \"work\"",
            "emails.value[type eq \"work\"]",
            "phoneNumbers[type eq work].value",
            "urn:example:User:emails[type",
            "a b",
            "active,userName",
            "/active",
            ".",
            "",
            &deep,
            &long,
            &bracketed,
        ] {
            let refused = Target::parse(text).expect_err(text);
            assert_eq!(refused.kind, "invalidPath", "{text}");
        }
        for text in ["emails[primary gt true]", "emails[primary eq \"x\"].value", "emails[value eq 1]"] {
            assert_eq!(Target::parse(text).expect_err(text).kind, "invalidFilter", "{text}");
        }
    }
}

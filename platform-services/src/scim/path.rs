//! Paths of PATCH operations (RFC 7644 section 3.5.2), and the attributes of a user that they name.
//!
//! The parser is `scim_v2`, which limits nesting and the number of terms while it parses.

use platform_core::resources::iam::DirectoryUser;
use scim_v2::filter::{AttrExp, AttrPath, CompValue, CompareOp, PatchPath, ValFilter};

use super::{reply::ScimError, user::SCHEMA};

/// Maximum length of a path in bytes; our choice.
const MAX_PATH: usize = 512;

const ENTERPRISE: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";

/// Attributes of RFC 7643 section 4.1 that are not stored, in lower case.
const NOT_STORED: &[&str] = &[
    "addresses",
    "entitlements",
    "ims",
    "locale",
    "nickname",
    "password",
    "phonenumbers",
    "photos",
    "preferredlanguage",
    "profileurl",
    "roles",
    "timezone",
    "title",
    "usertype",
    "x509certificates",
];

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
    /// All email addresses, or those that match the filter.
    Emails(Option<ValFilter>),
    /// The `value` of these addresses.
    EmailValue(Option<ValFilter>),
    /// Read-only attribute.
    ReadOnly,
    /// Attribute that is not stored.
    NotStored,
}

impl Target {
    /// Parses a path. Names of attributes and schemas are case-insensitive.
    ///
    /// # Errors
    /// `invalidPath` for a malformed path, and for an unknown attribute.
    pub(super) fn parse(text: &str) -> Result<Self, ScimError> {
        let invalid = |why: &str| ScimError::invalid("invalidPath", format!("the path {why}"));
        if text.len() > MAX_PATH {
            return Err(invalid(&format!("must have at most {MAX_PATH} bytes")));
        }
        if text.eq_ignore_ascii_case(SCHEMA) {
            return Ok(Self::User);
        }
        if text.eq_ignore_ascii_case(ENTERPRISE) {
            return Ok(Self::NotStored);
        }
        let path: PatchPath = text.parse().map_err(|_| invalid("must follow RFC 7644 section 3.5.2"))?;
        let (attribute, filter, part) = match path {
            PatchPath::Attr(attribute) => {
                let part = attribute.sub_attr.clone();
                (attribute, None, part)
            }
            PatchPath::Value(path) if path.attr.sub_attr.is_some() => {
                return Err(invalid("must not filter a sub-attribute"));
            }
            PatchPath::Value(path) => (path.attr, Some(path.filter), path.sub_attr),
        };
        match &attribute.uri {
            Some(schema) if schema.eq_ignore_ascii_case(ENTERPRISE) => return Ok(Self::NotStored),
            Some(schema) if !schema.eq_ignore_ascii_case(SCHEMA) => return Err(invalid("names an unknown schema")),
            _ => {}
        }
        let (name, part) = (attribute.name.to_ascii_lowercase(), part.map(|part| part.to_ascii_lowercase()));
        let unknown = || Err(invalid("names an unknown attribute"));
        match (name.as_str(), part.as_deref(), filter) {
            ("emails", part, filter) => {
                if !filter.as_ref().is_none_or(uses_address_attributes) {
                    return unknown();
                }
                match part {
                    None => Ok(Self::Emails(filter)),
                    Some("value") => Ok(Self::EmailValue(filter)),
                    Some("type" | "primary" | "display") => Ok(Self::NotStored),
                    Some(_) => unknown(),
                }
            }
            (name, _, _) if NOT_STORED.contains(&name) => Ok(Self::NotStored),
            ("id" | "meta" | "schemas" | "groups", _, _) => Ok(Self::ReadOnly),
            (_, _, Some(_)) => Err(invalid("filters an attribute that has a single value")),
            ("username", None, None) => Ok(Self::UserName),
            ("externalid", None, None) => Ok(Self::ExternalId),
            ("displayname", None, None) => Ok(Self::DisplayName),
            ("active", None, None) => Ok(Self::Active),
            ("name", None, None) => Ok(Self::Name),
            ("name", Some("givenname"), None) => Ok(Self::GivenName),
            ("name", Some("familyname"), None) => Ok(Self::FamilyName),
            ("name", Some("formatted" | "middlename" | "honorificprefix" | "honorificsuffix"), None) => {
                Ok(Self::NotStored)
            }
            _ => unknown(),
        }
    }
}

/// Returns whether a filter uses only the attributes of an address.
fn uses_address_attributes(filter: &ValFilter) -> bool {
    match filter {
        ValFilter::Attr(AttrExp::Present(path) | AttrExp::Comparison(path, _, _)) => {
            let known = ["value", "type", "primary", "display"];
            path.uri.is_none()
                && path.sub_attr.is_none()
                && known.iter().any(|known| path.name.eq_ignore_ascii_case(known))
        }
        ValFilter::Not(inner) => uses_address_attributes(inner),
        ValFilter::And(all) | ValFilter::Or(all) => all.iter().all(uses_address_attributes),
    }
}

/// Returns whether the stored address matches a filter. Its type is `work`, and it is the primary address.
pub(super) fn is_selected(user: &DirectoryUser, filter: Option<&ValFilter>) -> bool {
    filter.is_none_or(|filter| matches(&user.email, filter))
}

fn matches(address: &str, filter: &ValFilter) -> bool {
    match filter {
        ValFilter::Attr(AttrExp::Present(path)) => attribute(address, path).is_some(),
        ValFilter::Attr(AttrExp::Comparison(path, operator, value)) => {
            compares(attribute(address, path), operator, value)
        }
        ValFilter::Not(inner) => !matches(address, inner),
        ValFilter::And(all) => all.iter().all(|one| matches(address, one)),
        ValFilter::Or(all) => all.iter().any(|one| matches(address, one)),
    }
}

/// Returns an attribute of an address as text; a boolean as in JSON.
fn attribute<'a>(address: &'a str, path: &AttrPath) -> Option<&'a str> {
    match path.name.to_ascii_lowercase().as_str() {
        "value" => Some(address),
        "type" => Some("work"),
        "primary" => Some("true"),
        _ => None,
    }
}

/// Compares case-insensitively, because these attributes are case-insensitive. Some directories send booleans as
/// strings.
fn compares(found: Option<&str>, operator: &CompareOp, value: &CompValue) -> bool {
    let wanted = match value {
        CompValue::Str(text) => Some(text.to_lowercase()),
        CompValue::True => Some("true".to_owned()),
        CompValue::False => Some("false".to_owned()),
        // None of these attributes is a number.
        CompValue::Number(_) => return *operator == CompareOp::Ne,
        _ => None,
    };
    let found = found.map(str::to_lowercase);
    match (operator, &found, &wanted) {
        (CompareOp::Eq, found, wanted) => found == wanted,
        (CompareOp::Ne, found, wanted) => found != wanted,
        (CompareOp::Co, Some(found), Some(wanted)) => found.contains(wanted.as_str()),
        (CompareOp::Sw, Some(found), Some(wanted)) => found.starts_with(wanted.as_str()),
        (CompareOp::Ew, Some(found), Some(wanted)) => found.ends_with(wanted.as_str()),
        (CompareOp::Gt, Some(found), Some(wanted)) => found > wanted,
        (CompareOp::Ge, Some(found), Some(wanted)) => found >= wanted,
        (CompareOp::Lt, Some(found), Some(wanted)) => found < wanted,
        (CompareOp::Le, Some(found), Some(wanted)) => found <= wanted,
        _ => false,
    }
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
            ("name.formatted", Target::NotStored),
            ("username", Target::UserName),
            ("externalId", Target::ExternalId),
            ("displayName", Target::DisplayName),
            ("emails", Target::Emails(None)),
            ("Emails.Value", Target::EmailValue(None)),
            ("emails.type", Target::NotStored),
            ("title", Target::NotStored),
            ("phoneNumbers[type eq \"work\"].value", Target::NotStored),
            ("urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager", Target::NotStored),
            ("urn:ietf:params:scim:schemas:extension:enterprise:2.0:User", Target::NotStored),
            ("id", Target::ReadOnly),
            ("meta.created", Target::ReadOnly),
        ] {
            assert_eq!(Target::parse(text).unwrap(), target, "{text}");
        }
    }

    #[test]
    fn malformed_paths_and_unknown_attributes_are_invalid_paths() {
        let deep = format!("emails[{}type eq \"work\"{}]", "(".repeat(100), ")".repeat(100));
        let long = format!("emails[type eq \"{}\"]", "x".repeat(600));
        let bracketed = "(".repeat(100_000);
        for text in [
            "actve",
            "active[value eq true]",
            "active.value",
            "name.first",
            "name[givenName eq \"a\"].familyName",
            "emails.value.x",
            "emails[].value",
            "emails[type eq work].value",
            "emails[kind eq \"work\"].value",
            "emails[type eq \"work\"",
            "emails[type eq \"work\"].name",
            "emails.value[type eq \"work\"]",
            "urn:example:User:active",
            "urn:ietf:params:scim:schemas:core:2.0:Group:displayName",
            "a b",
            "active,userName",
            "/active",
            ".",
            &deep,
            &long,
            &bracketed,
        ] {
            let refused = Target::parse(text).expect_err(text);
            assert_eq!(refused.kind, "invalidPath", "{text}");
        }
    }

    #[test]
    fn a_filter_matches_the_stored_address_or_not() {
        let user = DirectoryUser { email: "ada@example.com".to_owned(), ..DirectoryUser::default() };
        let selects = |filter: &str| match Target::parse(&format!("emails[{filter}]")) {
            Ok(Target::Emails(filter)) => is_selected(&user, filter.as_ref()),
            other => panic!("{filter}: {other:?}"),
        };
        for filter in [
            "type eq \"work\"",
            "TYPE EQ \"Work\"",
            "primary eq true",
            "primary eq \"True\"",
            "value eq \"ADA@example.com\"",
            "value co \"@\"",
            "value sw \"ada\" and type eq \"work\"",
            "value ew \".com\"",
            "type eq \"home\" or type eq \"work\"",
            "not (type eq \"home\")",
            "type pr",
            "display ne \"x\"",
            "value gt \"a\" and value lt \"b\"",
        ] {
            assert!(selects(filter), "{filter}");
        }
        for filter in [
            "type eq \"home\"",
            "type ne \"work\"",
            "primary eq false",
            "value eq \"b@example.com\"",
            "display pr",
            "display eq \"x\"",
            "not (type pr)",
            "type eq \"work\" and value eq \"b\"",
            "primary gt 1",
        ] {
            assert!(!selects(filter), "{filter}");
        }
    }
}

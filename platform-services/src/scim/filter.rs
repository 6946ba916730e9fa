//! Filters of users (RFC 7644 section 3.4.2.2), and those in the paths of a patch.
//!
//! The parser is `scim_v2`, which limits nesting while it parses. A [`Condition`] is a parsed filter that fits the
//! attributes of the table. It is evaluated on users as they are written, so that clients filter by the values that
//! they see.

use std::borrow::Cow;

use platform_core::resources::iam::DirectoryUsers;
use platform_engine::timestamp::Timestamp;
use scim_v2::filter::{AttrExp, AttrPath, CompValue, CompareOp, Filter, ValFilter};
use serde_json::Value;

use super::{
    attributes::{Attribute, MAX_FILTER, SCHEMA, Type, USER, boolean_of, named},
    reply::ScimError,
};

/// Maximum number of comparisons in a filter: a scan makes all of them for each user. Our choice.
const MAX_TERMS: usize = 100;

/// A filter whose attributes and values fit the attributes of a user, or of a value of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    /// The test of an attribute, or of a part of one.
    Test {
        attribute: &'static str,
        part: Option<&'static str>,
        test: Test,
    },
    /// One value of an attribute meets the condition.
    Value(&'static str, Box<Self>),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// The test of a value. An attribute passes if one of its values does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    Present,
    /// The wanted text is in lower case unless `exact`.
    Text {
        operator: CompareOp,
        wanted: String,
        exact: bool,
    },
    Time(CompareOp, Timestamp),
    Boolean(bool),
}

/// The reason why a filter does not fit.
#[derive(Debug)]
pub(super) enum Misfit {
    /// It names an attribute that users do not have.
    NotStored(String),
    /// It violates this rule.
    Rule(String),
}

impl From<Misfit> for ScimError {
    fn from(misfit: Misfit) -> Self {
        let detail = match misfit {
            Misfit::NotStored(name) => {
                format!("the filter names {name}; filter by an attribute of /Schemas, id or meta")
            }
            Misfit::Rule(rule) => rule,
        };
        Self::invalid("invalidFilter", detail)
    }
}

impl Condition {
    /// Parses the filter of a list.
    ///
    /// # Errors
    /// `invalidFilter`.
    pub(super) fn parse(text: &str) -> Result<Self, ScimError> {
        let invalid = |rule: String| ScimError::invalid("invalidFilter", rule);
        if text.len() > MAX_FILTER {
            return Err(invalid(format!("the filter must have at most {MAX_FILTER} bytes")));
        }
        let syntax =
            "the filter must follow RFC 7644 section 3.4.2.2, such as userName eq \"ada\", with strings in quotes";
        let filter: Filter = normalized(text).parse().map_err(|_| invalid(syntax.to_owned()))?;
        let condition = Self::of_user(&filter)?;
        if condition.terms() > MAX_TERMS {
            return Err(invalid(format!("the filter must have at most {MAX_TERMS} comparisons")));
        }
        Ok(condition)
    }

    fn of_user(filter: &Filter) -> Result<Self, Misfit> {
        Ok(match filter {
            Filter::Attr(expression) => Self::of_expression(USER, expression)?,
            Filter::ValuePath(path) => {
                let (attribute, part) = find(USER, &path.attr)?;
                if part.is_some() {
                    return Err(Misfit::Rule(format!("{} is a part: filter the attribute instead", path.attr)));
                }
                Self::Value(attribute.name, Box::new(Self::of_value(attribute, &path.filter)?))
            }
            Filter::Not(inner) => Self::Not(Box::new(Self::of_user(inner)?)),
            Filter::And(all) => Self::All(all.iter().map(Self::of_user).collect::<Result<_, _>>()?),
            Filter::Or(any) => Self::Any(any.iter().map(Self::of_user).collect::<Result<_, _>>()?),
        })
    }

    /// Returns the condition on a value of an attribute.
    ///
    /// # Errors
    /// The reason why the filter does not fit the attributes of such a value.
    pub(super) fn of_value(attribute: &'static Attribute, filter: &ValFilter) -> Result<Self, Misfit> {
        let of = |filter| Self::of_value(attribute, filter);
        Ok(match filter {
            ValFilter::Attr(expression) => Self::of_expression(attribute.parts(), expression)?,
            ValFilter::Not(inner) => Self::Not(Box::new(of(inner)?)),
            ValFilter::And(all) => Self::All(all.iter().map(of).collect::<Result<_, _>>()?),
            ValFilter::Or(any) => Self::Any(any.iter().map(of).collect::<Result<_, _>>()?),
        })
    }

    fn of_expression(table: &'static [Attribute], expression: &AttrExp) -> Result<Self, Misfit> {
        let (AttrExp::Present(path) | AttrExp::Comparison(path, ..)) = expression;
        let (attribute, part) = find(table, path)?;
        let of = |part: Option<&'static Attribute>, test| Self::Test {
            attribute: attribute.name,
            part: part.map(|part| part.name),
            test,
        };
        let not = |condition| Self::Not(Box::new(condition));
        match expression {
            AttrExp::Present(_) => Ok(of(part, Test::Present)),
            // Null is the same as no value (RFC 7643 section 2.5).
            AttrExp::Comparison(_, CompareOp::Eq, CompValue::Null) => Ok(not(of(part, Test::Present))),
            AttrExp::Comparison(_, CompareOp::Ne, CompValue::Null) => Ok(of(part, Test::Present)),
            AttrExp::Comparison(_, operator, value) => {
                // The value of a complex attribute is compared if no part is named (RFC 7643 section 2.4).
                let part = part.or_else(|| named(attribute.parts(), "value"));
                let compared = part.unwrap_or(attribute);
                // No attribute has several values, so an attribute differs from a value if it does not equal it.
                match operator {
                    CompareOp::Ne => Ok(not(of(part, Test::new(path, compared, &CompareOp::Eq, value)?))),
                    operator => Ok(of(part, Test::new(path, compared, operator, value)?)),
                }
            }
        }
    }

    /// Returns whether a user, or a value, meets the condition.
    pub(super) fn is_met_by(&self, object: &Value) -> bool {
        match self {
            Self::Test { attribute, part: None, test } => values(object, attribute).any(|value| test.passes(value)),
            Self::Test { attribute, part: Some(part), test } => {
                values(object, attribute).flat_map(|value| values(value, part)).any(|value| test.passes(value))
            }
            Self::Value(attribute, condition) => values(object, attribute).any(|value| condition.is_met_by(value)),
            Self::Not(condition) => !condition.is_met_by(object),
            Self::All(conditions) => conditions.iter().all(|one| one.is_met_by(object)),
            Self::Any(conditions) => conditions.iter().any(|one| one.is_met_by(object)),
        }
    }

    /// Returns how to find all users who can meet the condition without reading the others.
    pub(super) fn index(&self) -> Option<Index> {
        match self {
            Self::Test { attribute, part: None, test: Test::Text { operator: CompareOp::Eq, wanted, .. } } => {
                match *attribute {
                    "id" => Some(Index::Id(wanted.clone())),
                    "userName" => Some(Index::Users(DirectoryUsers::Named(wanted.clone()))),
                    "externalId" => Some(Index::Users(DirectoryUsers::External(wanted.clone()))),
                    _ => None,
                }
            }
            Self::All(conditions) => conditions.iter().find_map(Self::index),
            _ => None,
        }
    }

    /// Returns the cost of the condition for each user in bytes, as [`Pace`](platform_engine::offload::Pace) counts it:
    /// the JSON of a user, and as much again for a few comparisons.
    pub(super) fn cost(&self) -> usize {
        512 + 64 * self.terms()
    }

    fn terms(&self) -> usize {
        match self {
            Self::Test { .. } => 1,
            Self::Value(_, condition) | Self::Not(condition) => condition.terms(),
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().map(Self::terms).sum(),
        }
    }
}

/// The users who can meet a condition, at most one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Index {
    Id(String),
    Users(DirectoryUsers),
}

impl Test {
    fn new(path: &AttrPath, of: &Attribute, operator: &CompareOp, value: &CompValue) -> Result<Self, Misfit> {
        let rule = |rule: &str| Err(Misfit::Rule(format!("{path} {rule}")));
        let is_part_of_text = matches!(operator, CompareOp::Co | CompareOp::Sw | CompareOp::Ew);
        match (of.ty, value) {
            (Type::Boolean, value) => {
                let wanted = match value {
                    CompValue::True => Some(true),
                    CompValue::False => Some(false),
                    // Some directories send booleans as strings.
                    CompValue::Str(text) => boolean_of(text),
                    _ => None,
                };
                match wanted {
                    Some(wanted) if *operator == CompareOp::Eq => Ok(Self::Boolean(wanted)),
                    _ => rule("is a boolean: compare it by eq or ne with true or false"),
                }
            }
            (Type::Time, CompValue::Str(text)) => match Timestamp::parse(text) {
                Ok(wanted) if !is_part_of_text => Ok(Self::Time(operator.clone(), wanted)),
                _ => {
                    rule("is a time: compare it by eq, ne, gt, ge, lt or le with one such as \"2026-01-02T03:04:05Z\"")
                }
            },
            (Type::Complex(_), _) => rule("has parts: compare one of them, such as name.familyName"),
            (_, CompValue::Str(text)) => {
                let exact = of.case_exact;
                let wanted = if exact { text.clone() } else { text.to_lowercase() };
                Ok(Self::Text { operator: operator.clone(), wanted, exact })
            }
            _ => rule("must be compared with a string in quotes"),
        }
    }

    fn passes(&self, value: &Value) -> bool {
        match self {
            Self::Present => true,
            Self::Boolean(wanted) => value.as_bool() == Some(*wanted),
            Self::Time(operator, wanted) => {
                let found = value.as_str().and_then(|text| Timestamp::parse(text).ok());
                found.is_some_and(|found| compares(&found, operator, wanted))
            }
            Self::Text { operator, wanted, exact } => value.as_str().is_some_and(|found| {
                let found = if *exact { Cow::Borrowed(found) } else { found.to_lowercase().into() };
                match operator {
                    CompareOp::Co => found.contains(wanted.as_str()),
                    CompareOp::Sw => found.starts_with(wanted.as_str()),
                    CompareOp::Ew => found.ends_with(wanted.as_str()),
                    operator => compares(&*found, operator, wanted.as_str()),
                }
            }),
        }
    }
}

fn compares<T: Ord + ?Sized>(found: &T, operator: &CompareOp, wanted: &T) -> bool {
    match operator {
        CompareOp::Eq => found == wanted,
        CompareOp::Ne => found != wanted,
        CompareOp::Gt => found > wanted,
        CompareOp::Ge => found >= wanted,
        CompareOp::Lt => found < wanted,
        CompareOp::Le => found <= wanted,
        CompareOp::Co | CompareOp::Sw | CompareOp::Ew => false,
    }
}

/// Returns the values of an attribute of an object: those of a list, or the single one.
fn values<'v>(object: &'v Value, attribute: &str) -> impl Iterator<Item = &'v Value> {
    let value = object.get(attribute).filter(|value| !value.is_null());
    value.into_iter().flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice))
}

/// Finds the attribute of a table that a path names, and the part.
pub(super) fn find(
    table: &'static [Attribute],
    path: &AttrPath,
) -> Result<(&'static Attribute, Option<&'static Attribute>), Misfit> {
    let not_stored = || Misfit::NotStored(path.to_string());
    if path.uri.as_ref().is_some_and(|schema| !schema.eq_ignore_ascii_case(SCHEMA)) {
        return Err(not_stored());
    }
    let attribute = named(table, &path.name).ok_or_else(not_stored)?;
    let part = path.sub_attr.as_ref().map(|part| named(attribute.parts(), part).ok_or_else(not_stored)).transpose()?;
    Ok((attribute, part))
}

/// Moves a comparison after a bracket into it: `emails[type eq "work"].value eq "a"` becomes
/// `emails[(type eq "work") and value eq "a"]`. RFC 7644 has this form only in paths of a patch, but Entra sends it as
/// a filter, to find users by a mapped attribute. Also separates `not` from its bracket, as the parser requires.
fn normalized(text: &str) -> String {
    let mut changed = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(['"', '[', ']', '(']) {
        let (before, from) = rest.split_at(at);
        changed.push_str(before);
        let taken = if from.starts_with('"') {
            changed.push_str(string(from));
            string(from).len()
        } else if from.starts_with('(') {
            changed.push_str(" (");
            1
        } else if from.starts_with('[') {
            changed.push_str("[(");
            1
        } else {
            let compared = from.strip_prefix("].").map_or("", comparison);
            if compared.is_empty() {
                changed.push_str(")]");
                1
            } else {
                changed.extend([") and ", compared, "]"]);
                compared.len() + 2
            }
        };
        rest = from.get(taken..).unwrap_or_default();
    }
    changed.push_str(rest);
    changed
}

/// Returns the string literal at the start of a text, or all of it if the literal has no end.
fn string(text: &str) -> &str {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return text.get(..=at).unwrap_or(text),
            _ => {}
        }
    }
    text
}

/// Returns the comparison at the start of a text: a name, an operator and, except for `pr`, a value.
fn comparison(text: &str) -> &str {
    let mut rest = text;
    for _ in 0..3 {
        let start = rest.trim_start();
        let word = match start.find([' ', '(', ')', '[', ']']) {
            _ if start.starts_with('"') => string(start),
            end => start.get(..end.unwrap_or(start.len())).unwrap_or_default(),
        };
        rest = start.get(word.len()..).unwrap_or_default();
        if word.eq_ignore_ascii_case("pr") {
            break;
        }
    }
    text.get(..text.len() - rest.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use platform_core::resources::iam::DirectoryUser;

    use super::{super::user, *};

    fn ada() -> Value {
        let time = |text| Some(Timestamp::parse(text).unwrap());
        let user = DirectoryUser {
            uid: platform_engine::uid::Uid::opaque("a/b/0123456789abcdef"),
            user_name: "Ada@Example.com".to_owned(),
            external_id: "Ext7".to_owned(),
            given_name: "Ada".to_owned(),
            email: "ada@example.com".to_owned(),
            active: true,
            create_time: time("2026-01-02T03:04:05Z"),
            update_time: time("2026-02-02T03:04:05.5Z"),
            ..DirectoryUser::default()
        };
        user::to_json(&user, "https://api.test/scim/v2/a")
    }

    #[test]
    fn a_user_meets_a_filter_by_the_rules_of_the_rfc() {
        let ada = ada();
        for filter in [
            "userName eq \"ada@example.com\"",
            "USERNAME EQ \"ADA@EXAMPLE.COM\"",
            "urn:ietf:params:scim:schemas:core:2.0:User:userName sw \"ada\"",
            "userName ne \"b\"",
            "userName co \"@EX\" and userName ew \".com\"",
            "userName gt \"a\" and userName ge \"ada@example.com\" and userName lt \"b\" and userName le \"b\"",
            "userName ge \"ada@example.com\" and userName le \"ADA@example.com\"",
            "id eq \"0123456789abcdef\"",
            "externalId eq \"Ext7\"",
            "externalId ne \"ext7\"",
            "active eq true",
            "active eq \"True\"",
            "active ne false",
            "not (active eq false)",
            "not(active eq false)",
            "NOT ( active eq false ) AND ( userName  pr )",
            "emails[ type eq \"work\" ].value  EQ  \"ada@example.com\"",
            "emails[not(type eq \"home\")]",
            "emails pr",
            "emails eq \"ADA@example.com\"",
            "emails co \"example.com\"",
            "emails.value sw \"ada\"",
            "emails.type eq \"WORK\"",
            "emails[type eq \"work\"]",
            "emails[type eq \"home\" or value co \"@\"]",
            "emails[type eq \"work\" and not (value eq \"b\")]",
            "emails[type eq \"work\"].value eq \"ada@example.com\"",
            "emails[type eq \"home\" or primary eq true].value eq \"ada@example.com\"",
            "active eq true and emails[primary eq \"True\"].value pr",
            "(emails[type eq \"work\"].value eq \"ada@example.com\") or userName eq \"]\"",
            "userName eq \"[\" or emails[value ne \"].x \\\"[\"].type eq \"work\"",
            "name pr",
            "name.givenName eq \"ada\"",
            "name.familyName ne \"x\"",
            "name.familyName eq null",
            "displayName eq null and externalId ne null",
            "not (displayName pr)",
            "meta.created lt \"2026-01-02T04:04:06+01:00\"",
            "meta.created eq \"2026-01-02T04:04:05+01:00\"",
            "meta.lastModified gt \"2026-02-02T03:04:05Z\"",
            "meta.resourceType eq \"User\"",
            "meta.location ew \"/Users/0123456789abcdef\"",
            "schemas eq \"urn:ietf:params:scim:schemas:core:2.0:user\"",
            "active eq false and active eq false or userName pr",
            "active eq true and (displayName pr or userName pr)",
        ] {
            assert!(Condition::parse(filter).expect(filter).is_met_by(&ada), "{filter}");
        }
        for filter in [
            "userName eq \"ada\"",
            "userName gt \"ada@example.com\"",
            "userName lt \"ada@example.com\"",
            "externalId eq \"ext7\"",
            "externalId sw \"e\"",
            "id eq \"0123456789ABCDEF\"",
            "active eq false",
            "active ne true",
            "displayName pr",
            "displayName eq \"x\"",
            "displayName gt \"\"",
            "not (userName pr)",
            "emails[type eq \"home\"]",
            "emails[type eq \"home\"].value eq \"ada@example.com\"",
            "emails[type eq \"work\"].value eq \"b@example.com\"",
            "emails ne \"ada@example.com\"",
            "emails eq null",
            "name.familyName pr",
            "meta.created gt \"2026-01-02T03:04:05Z\"",
            "meta.resourceType eq \"user\"",
            "schemas ne \"urn:ietf:params:scim:schemas:core:2.0:User\"",
            "active eq true and (displayName pr or active eq false)",
        ] {
            assert!(!Condition::parse(filter).expect(filter).is_met_by(&ada), "{filter}");
        }
    }

    #[test]
    fn a_filter_that_is_malformed_or_does_not_fit_the_attributes_is_rejected() {
        let many = |terms: usize| vec!["userName pr"; terms].join(" or ");
        let long = format!("userName eq \"{}\"", "x".repeat(MAX_FILTER));
        let deep = format!("{}active eq true{}", "(".repeat(100), ")".repeat(100));
        for filter in [
            "",
            "userName",
            "userName eq",
            "userName eq ada",
            "userName eq 'ada'",
            "userName regex \"a\"",
            "userName eq \"a",
            "(active eq true",
            "emails[type eq \"work\"",
            "emails[type eq \"work\"].value",
            "emails[type eq \"work\"].value.x eq \"a\"",
            "emails[emails[type pr]]",
            "emails[].value eq \"a\"",
            "]",
            "].",
            "]. eq",
            "[",
            "\"",
            "emails[type eq \"ü\"].\u{fc} eq \"\u{fc}",
            "userName eq 1",
            "userName eq true",
            "userName gt null",
            "active gt true",
            "active eq \"yes\"",
            "active eq 1",
            "active co \"t\"",
            "name eq \"Ada\"",
            "meta pr and meta eq \"x\"",
            "meta.created eq \"yesterday\"",
            "meta.created sw \"2026\"",
            "meta.created sw \"2026-01-02T03:04:05Z\"",
            "emails.value[type eq \"work\"]",
            "userName[value eq \"a\"]",
            "name.givenName[value eq \"a\"]",
            "title eq \"x\"",
            "emails[kind eq \"work\"]",
            "userName.x eq \"a\"",
            "urn:x:userName eq \"a\"",
            &many(MAX_TERMS + 1),
            &long,
            &deep,
        ] {
            let refused = Condition::parse(filter).expect_err(filter);
            assert_eq!(refused.kind, "invalidFilter", "{filter}");
        }
        Condition::parse(&many(MAX_TERMS)).unwrap();
    }

    #[test]
    fn an_index_is_used_for_eq_and_for_a_conjunction_that_includes_one() {
        let named = || Some(Index::Users(DirectoryUsers::Named("ada".to_owned())));
        for (filter, index) in [
            ("userName eq \"Ada\"", named()),
            ("active eq true and userName eq \"Ada\" and emails pr", named()),
            ("(active eq true) and (userName eq \"Ada\")", named()),
            ("externalId eq \"7X\"", Some(Index::Users(DirectoryUsers::External("7X".to_owned())))),
            ("id eq \"7\"", Some(Index::Id("7".to_owned()))),
            ("userName eq \"Ada\" or active eq true", None),
            ("not (userName eq \"Ada\")", None),
            ("userName ne \"Ada\"", None),
            ("userName sw \"Ada\"", None),
            ("emails.value eq \"Ada\"", None),
        ] {
            assert_eq!(Condition::parse(filter).unwrap().index(), index, "{filter}");
        }
    }
}

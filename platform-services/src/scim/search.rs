//! Parameters of a list of users, in the query (RFC 7644 section 3.4.2) or in the body of a search (section 3.4.3), and
//! of every reply with users.

use platform_http::mount;
use serde_json::Value;

use super::{
    attributes::{self, named},
    filter::Condition,
    reply::{MAX_COUNT, ScimError},
    selection::Selection,
    user::attribute,
};

/// Default number of users on a page; our choice.
const DEFAULT_COUNT: usize = 100;

/// Parameters of a list. Those of an order are optional for a server, and ignored.
#[derive(Debug, PartialEq)]
pub(super) struct Search {
    pub(super) condition: Option<Condition>,
    /// Number of users to skip.
    pub(super) skip: u64,
    /// Maximum number of users on the page.
    pub(super) count: usize,
    pub(super) selection: Selection,
}

impl Search {
    /// Reads the parameters of a query string.
    ///
    /// # Errors
    /// `invalidFilter`, `invalidValue`.
    pub(super) fn of_query(query: &str) -> Result<Self, ScimError> {
        let (mut filter, mut start, mut count) = (None, None, None);
        for (name, value) in mount::pairs(query)? {
            match name.as_str() {
                "filter" => filter = Some(value),
                "startIndex" => start = Some(integer("startIndex", value.parse().ok())?),
                "count" => count = Some(integer("count", value.parse().ok())?),
                _ => {}
            }
        }
        Self::new(filter.as_deref(), start, count, selection(query)?)
    }

    /// Reads the attributes of a search.
    ///
    /// # Errors
    /// As [`Search::of_query`], and `invalidSyntax` for an unknown attribute, which could be a misspelled filter.
    pub(super) fn of_body(body: &Value) -> Result<Self, ScimError> {
        let mut keys = body.as_object().into_iter().flat_map(|body| body.keys());
        if let Some(unknown) = keys.find(|key| named(attributes::SEARCH, key).is_none()) {
            let rule = format!("{unknown} is not an attribute of a search; leave it out");
            return Err(ScimError::invalid("invalidSyntax", rule));
        }
        let given = |name| attribute(body, name).filter(|value| !value.is_null());
        let number = |name| given(name).map(|value| integer(name, value.as_i64())).transpose();
        let filter = given("filter")
            .map(|value| value.as_str().ok_or_else(|| ScimError::invalid("invalidFilter", "filter must be a string")));
        let names = |name| match given(name) {
            None => Ok(Vec::new()),
            Some(value) => strings(value)
                .ok_or_else(|| ScimError::invalid("invalidValue", format!("{name} must be a list of strings"))),
        };
        let selection = Selection::new(names("attributes")?.into_iter(), names("excludedAttributes")?.into_iter())?;
        Self::new(filter.transpose()?, number("startIndex")?, number("count")?, selection)
    }

    fn new(
        filter: Option<&str>,
        start: Option<i64>,
        count: Option<i64>,
        selection: Selection,
    ) -> Result<Self, ScimError> {
        let count = count.map_or(DEFAULT_COUNT, |count| usize::try_from(count.max(0)).unwrap_or(MAX_COUNT));
        Ok(Self {
            condition: filter.map(Condition::parse).transpose()?,
            skip: u64::try_from(start.unwrap_or(1).max(1) - 1).unwrap_or_default(),
            count: count.min(MAX_COUNT),
            selection,
        })
    }
}

fn integer(name: &str, value: Option<i64>) -> Result<i64, ScimError> {
    value.ok_or_else(|| ScimError::invalid("invalidValue", format!("{name} must be an integer")))
}

fn strings(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// Reads the selection of attributes from a query string, where names are separated by commas.
///
/// # Errors
/// As [`Selection::new`].
pub(super) fn selection(query: &str) -> Result<Selection, ScimError> {
    let pairs = mount::pairs(query)?;
    let names =
        |of: &'static str| pairs.iter().filter(move |(name, _)| name == of).flat_map(|(_, value)| value.split(','));
    Selection::new(names("attributes"), names("excludedAttributes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_parameters_of_the_table_are_read_and_others_are_ignored_in_a_query() {
        for parameter in attributes::LIST_QUERY.iter().skip(attributes::USER_QUERY.len()) {
            let refused = Search::of_query(&format!("{}=x", parameter.name)).unwrap_err();
            assert!(refused.kind.starts_with("invalid"), "{}", parameter.name);
        }
        for parameter in attributes::LIST_QUERY {
            let refused = Search::of_body(&json!({ parameter.name: { "a": 1 } })).unwrap_err();
            assert!(refused.kind.starts_with("invalid"), "{}", parameter.name);
            Search::of_body(&json!({ parameter.name: null })).unwrap();
        }
        let search = Search::of_query("sortBy=x&startIndex=3&count=500&attributes=title,active").unwrap();
        let only_active = Selection::new(["active"].into_iter(), [].into_iter()).unwrap();
        assert_eq!((search.skip, search.count, &search.selection), (2, MAX_COUNT, &only_active));
        let body = json!({
            "schemas": [], "SORTBY": "x", "startIndex": 3, "count": 500, "Attributes": ["title", "active"],
        });
        assert_eq!(Search::of_body(&body).unwrap(), search);
        assert_eq!(Search::of_body(&json!({ "filer": "active eq true" })).unwrap_err().kind, "invalidSyntax");
        let filtered = Search::of_query("filter=active%20eq%20true&startIndex=-1&count=-1").unwrap();
        assert_eq!((filtered.skip, filtered.count), (0, 0));
        let body = json!({ "filter": "active eq true", "startIndex": 0, "count": 0 });
        assert_eq!(Search::of_body(&body).unwrap(), filtered);
    }
}

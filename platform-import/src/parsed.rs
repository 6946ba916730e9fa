//! The result of reading a document: resources and refusals, each with its place.

use std::fmt;

/// The result of reading a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<R> {
    /// The valid resources, in the order of the document.
    pub resources: Vec<Placed<R>>,
    /// The rejected parts, with reasons.
    pub refused: Vec<Refusal>,
    /// The parts of valid resources that have no effect, with reasons.
    pub skipped: Vec<Refusal>,
    /// The number of resources whose source has withdrawn them. They are among the resources, without their contents.
    pub withdrawn: u64,
}

/// A resource and its place in the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<R> {
    /// A path such as `advisories[3]`; empty for the whole document.
    pub place: String,
    /// The resource. Its uid is not set yet.
    pub resource: R,
}

/// A rejected part of a document, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The path of a field, or a line and a column; empty for the whole document.
    pub place: String,
    /// The violated rule.
    pub rule: String,
}

impl Refusal {
    /// Creates a refusal of the part at a place.
    pub fn new(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { place: place.into(), rule: rule.into() }
    }

    /// Creates a refusal of a whole document.
    pub fn whole(rule: impl Into<String>) -> Self {
        Self::new("", rule)
    }

    /// Prefixes the place with an outer place, such as a file.
    #[must_use]
    pub(crate) fn within(self, place: &str) -> Self {
        Self { place: joined(place, &self.place), ..self }
    }
}

/// Writes one line, with control characters escaped, since places and values come from the input.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", Plain(&self.place))?;
        }
        write!(f, "{}", Plain(&self.rule))
    }
}

/// Text with control characters escaped, for terminals and logs.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// Joins two places with a colon; either may be empty.
pub(crate) fn joined(outer: &str, inner: &str) -> String {
    match (outer.is_empty(), inner.is_empty()) {
        (true, _) => inner.to_owned(),
        (_, true) => outer.to_owned(),
        _ => format!("{outer}: {inner}"),
    }
}

impl<R> Default for Parsed<R> {
    fn default() -> Self {
        Self { resources: Vec::new(), refused: Vec::new(), skipped: Vec::new(), withdrawn: 0 }
    }
}

impl<R> Parsed<R> {
    /// Returns the result of a document without any valid resource.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { refused: vec![refusal], ..Self::default() }
    }

    /// Returns the result of a document that is one resource.
    pub(crate) fn one(resource: R) -> Self {
        Self { resources: vec![Placed { place: String::new(), resource }], ..Self::default() }
    }
}

impl<R> From<Result<R, Refusal>> for Parsed<R> {
    fn from(read: Result<R, Refusal>) -> Self {
        match read {
            Ok(resource) => Self::one(resource),
            Err(refusal) => Self::refused(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_even_with_control_characters() {
        let refusal = Refusal::new("a\u{1b}[31m\n.yaml", "unknown type `\r`").within("x");
        assert_eq!(refusal.to_string(), r"x: a\u{1b}[31m\n.yaml: unknown type `\r`");
    }
}

//! What reading comes to: resources and refusals, each with its place.

use std::fmt;

/// What bytes of a format say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<R> {
    /// What can be written, in the order of the document.
    pub resources: Vec<Placed<R>>,
    /// What cannot, and why.
    pub refused: Vec<Refusal>,
}

/// A resource and where in its document it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<R> {
    /// Such as `advisories[3]`; empty for the whole document.
    pub place: String,
    /// The resource. Its uid is not set yet.
    pub resource: R,
}

/// Something that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where: a field's path, or a line and a column; empty for the whole document.
    pub place: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl Refusal {
    /// Returns a refusal of what is at a place.
    pub fn new(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { place: place.into(), rule: rule.into() }
    }

    /// Returns a refusal of the whole document.
    pub fn whole(rule: impl Into<String>) -> Self {
        Self::new("", rule)
    }

    /// Returns the same of a part: its place goes below another, such as a file.
    #[must_use]
    pub(crate) fn within(self, place: &str) -> Self {
        Self { place: joined(place, &self.place), ..self }
    }
}

/// One line: what documents and files call themselves is written without control characters.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", Plain(&self.place))?;
        }
        write!(f, "{}", Plain(&self.rule))
    }
}

/// Text for terminals and logs.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// Puts a place within another.
pub(crate) fn joined(outer: &str, inner: &str) -> String {
    match (outer.is_empty(), inner.is_empty()) {
        (true, _) => inner.to_owned(),
        (_, true) => outer.to_owned(),
        _ => format!("{outer}: {inner}"),
    }
}

impl<R> Default for Parsed<R> {
    fn default() -> Self {
        Self { resources: Vec::new(), refused: Vec::new() }
    }
}

impl<R> Parsed<R> {
    /// Returns a document of which nothing can be written.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { resources: Vec::new(), refused: vec![refusal] }
    }

    /// Returns a document that is one resource.
    pub(crate) fn one(resource: R) -> Self {
        Self { resources: vec![Placed { place: String::new(), resource }], refused: Vec::new() }
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
    fn a_refusal_is_one_line_whatever_names_hold() {
        let refusal = Refusal::new("a\u{1b}[31m\n.yaml", "unknown type `\r`").within("x");
        assert_eq!(refusal.to_string(), r"x: a\u{1b}[31m\n.yaml: unknown type `\r`");
    }
}

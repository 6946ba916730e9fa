//! Texts with wildcards.

use crate::store::pattern;

/// A text in which `*` stands for any text, as `=`, `!=` and `:` compare it with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(Vec<String>);

impl Text {
    /// Returns a text without wildcards.
    pub fn plain(text: impl Into<String>) -> Self {
        Self(vec![text.into()])
    }

    /// Returns the text that has these parts, and a wildcard between each two.
    pub fn of_parts(parts: Vec<String>) -> Self {
        if parts.is_empty() { Self::plain("") } else { Self(parts) }
    }

    /// Returns the parts between the wildcards, at least one.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// Returns the text, unless it has a wildcard.
    pub fn as_plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [text] => Some(text),
            _ => None,
        }
    }

    /// Returns whether this is `*` alone, which means that a field is set.
    pub fn is_any(&self) -> bool {
        matches!(self.0.as_slice(), [first, second] if first.is_empty() && second.is_empty())
    }

    /// Returns the text in lower case.
    #[must_use]
    pub fn to_lowercase(&self) -> Self {
        Self(self.0.iter().map(|part| part.to_lowercase()).collect())
    }

    /// Returns the text as it is written without quotes.
    pub fn joined(&self) -> String {
        self.0.join("*")
    }

    /// Returns whether a text is this one, for some texts in place of the wildcards. Takes time linear in the text for
    /// each part.
    pub fn matches(&self, text: &str) -> bool {
        pattern::matches(&self.0, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(pattern: &str) -> Text {
        Text::of_parts(pattern.split('*').map(str::to_owned).collect())
    }

    #[test]
    fn a_wildcard_stands_for_any_text_and_parts_do_not_overlap() {
        for (pattern, matching, others) in [
            ("nginx", &["nginx"][..], &["", "nginx ", "NGINX", "nginxx"][..]),
            ("", &[""], &["a"]),
            ("*", &["", "a"], &[]),
            ("ngi*", &["ngi", "nginx"], &["ng", "angi"]),
            ("*inx", &["inx", "nginx"], &["inxx", "nx"]),
            ("*gin*", &["gin", "nginx"], &["gn", "g in"]),
            ("a*a", &["aa", "aba"], &["a", "ab", "ba"]),
            ("a*b*a", &["aba", "abba"], &["aa", "ab"]),
            ("*a*b*", &["ab", "xaxbx"], &["ba"]),
            ("**", &["", "a"], &[]),
        ] {
            matching.iter().for_each(|one| assert!(text(pattern).matches(one), "{pattern} {one}"));
            others.iter().for_each(|one| assert!(!text(pattern).matches(one), "{pattern} {one}"));
        }
    }

    proptest! {
        #[test]
        fn a_text_matches_as_by_a_regular_expression(pattern in "[ab*]{0,8}", other in "[ab]{0,8}") {
            let expected = regex::Regex::new(&format!("^{}$", pattern.replace('*', ".*"))).unwrap();
            prop_assert_eq!(text(&pattern).matches(&other), expected.is_match(&other));
        }
    }
}

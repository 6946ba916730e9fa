//! The patterns of fields, compiled to the syntax of the `regex` crate.
//!
//! A pattern has the meaning of JSON Schema, which the OpenAPI document states to clients: that of ECMA-262 without
//! flags. Where the two syntaxes give the same text another meaning, the pattern is translated; where one has no
//! counterpart, it is rejected. Rejected: an engine of ECMA-262, because these backtrack, and the time of a match could
//! then be exponential in a text that a caller sends.

use std::{collections::HashMap, iter::Peekable, str::Chars, sync::LazyLock};

use parking_lot::RwLock;
use regex::Regex;
use serde_json::Value;

use crate::{error::Violations, kind::Field};

/// The compiled patterns of all tables of the process, or the rules that they break. Tables are constants, so their
/// number is bounded.
static COMPILED: LazyLock<RwLock<HashMap<&'static str, Result<Regex, String>>>> = LazyLock::new(RwLock::default);

/// Returns whether the texts of a value match the pattern of its field, and adds a violation for each that does not.
pub(super) fn matches(field: &Field, value: &Value, path: &str, violations: &mut Violations) -> bool {
    if field.pattern.is_empty() || field.pattern_is_documentation {
        return true;
    }
    let before = violations.count();
    match value {
        Value::String(text) if !is_match(field.pattern, text) => violations.add(path, rule(field)),
        Value::Array(values) => {
            let others = values.iter().enumerate().filter(|(_, value)| !is_match_of(field, value));
            others.for_each(|(index, _)| violations.add(format!("{path}[{index}]"), rule(field)));
        }
        Value::Object(values) => {
            let others = values.iter().filter(|(_, value)| !is_match_of(field, value));
            others.for_each(|(key, _)| violations.add(format!("{path}.{key}"), rule(field)));
        }
        _ => {}
    }
    violations.count() == before
}

fn rule(field: &Field) -> String {
    format!("must match the pattern {}", field.pattern)
}

fn is_match_of(field: &Field, value: &Value) -> bool {
    value.as_str().is_none_or(|text| is_match(field.pattern, text))
}

/// Returns whether a text matches a pattern. No text matches one that is not valid, which no platform is built with.
fn is_match(pattern: &'static str, text: &str) -> bool {
    with_compiled(pattern, |compiled| compiled.as_ref().is_ok_and(|regex| regex.is_match(text)))
}

/// Checks that a pattern is valid. A pattern that several fields have is compiled once.
///
/// # Errors
/// The rule that the pattern breaks, as a phrase.
pub(crate) fn check(pattern: &'static str) -> Result<(), String> {
    with_compiled(pattern, |compiled| compiled.as_ref().map(drop).map_err(Clone::clone))
}

fn with_compiled<T>(pattern: &'static str, read: impl FnOnce(&Result<Regex, String>) -> T) -> T {
    if let Some(compiled) = COMPILED.read().get(pattern) {
        return read(compiled);
    }
    read(COMPILED.write().entry(pattern).or_insert_with(|| compile(pattern)))
}

/// Compiles a pattern.
///
/// # Errors
/// The rule that the pattern breaks, as a phrase.
fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = Translation { rest: pattern.chars().peekable(), out: String::new() }.whole()?;
    Regex::new(&translated).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "must be a regular expression that compiles to at most 10 MiB".to_owned(),
        // The last line has the reason; those before show the pattern, which the reader knows.
        error => {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("must be a valid regular expression: {reason}")
        }
    })
}

/// A pattern that is being translated.
struct Translation<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

impl Translation<'_> {
    fn whole(mut self) -> Result<String, String> {
        while let Some(next) = self.rest.next() {
            match next {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                // ECMA-262 knows four line terminators.
                '.' => self.out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
                '(' => self.group()?,
                other => self.out.push(other),
            }
        }
        Ok(self.out)
    }

    /// Translates the start of a group, whose parenthesis was read.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_some() {
            if self.rest.next_if_eq(&':').is_none() {
                return Err("must have no groups with `(?` other than `(?:`".to_owned());
            }
            self.out.push_str("?:");
        }
        Ok(())
    }

    /// Translates a class, whose bracket was read.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        if self.rest.peek() == Some(&']') {
            return Err("must have no empty class `[]`: write `\\]` for a bracket".to_owned());
        }
        while let Some(next) = self.rest.next() {
            match next {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '\\' => self.escape(true)?,
                // Plain characters in ECMA-262, and syntax in the crate.
                '[' | '&' | '~' => self.out.extend(['\\', next]),
                '-' if self.rest.peek() == Some(&'-') => {
                    return Err("must have no `--` in a class: write `\\-` for a hyphen".to_owned());
                }
                other => self.out.push(other),
            }
        }
        Err("must end each class with `]`".to_owned())
    }

    /// Translates an escape, whose backslash was read.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(next) = self.rest.next() else { return Err("must not end with a backslash".to_owned()) };
        match (next, in_class) {
            // These are classes of ASCII in ECMA-262, and of Unicode in the crate.
            ('d', true) => self.out.push_str("0-9"),
            ('w', true) => self.out.push_str("A-Za-z0-9_"),
            ('d', false) => self.out.push_str("[0-9]"),
            ('w', false) => self.out.push_str("[A-Za-z0-9_]"),
            ('D', false) => self.out.push_str("[^0-9]"),
            ('W', false) => self.out.push_str("[^A-Za-z0-9_]"),
            ('b', false) => self.out.push_str(r"(?-u:\b)"),
            ('s' | 'S' | 'n' | 'r' | 't' | 'f' | 'v', _) => self.out.extend(['\\', next]),
            (punctuation, _) if punctuation.is_ascii_punctuation() => self.out.extend(['\\', punctuation]),
            (other, _) => return Err(format!("must not have the escape `\\{other}`")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_matches_as_in_json_schema() {
        for (pattern, matching, others) in [
            ("^[A-Z]{2}$", &["AB"][..], &["ab", "ABC", "A"][..]),
            // Not anchored.
            ("[0-9]", &["a1b"], &["ab", ""]),
            // ASCII, and not all digits and letters of Unicode.
            (r"^\d+$", &["42"], &["\u{664}\u{662}"]),
            (r"^[\d.]+$", &["4.2"], &["\u{664}"]),
            (r"^\w+$", &["a_1"], &["\u{e9}"]),
            (r"^\W$", &["\u{e9}", "-"], &["a"]),
            (r"\ba\b", &["a", "\u{e9}a"], &["ba"]),
            ("^.$", &["a", "\u{e9}"], &["\n", "\r", "\u{2028}"]),
            // The end is the end of the text, and not of a line.
            ("^a$", &["a"], &["a\n", "b\na"]),
            // Plain characters in a class.
            ("^[[a&&b~~]+$", &["[a&b~"], &["c"]),
            (r"^[a\-\]]+$", &["a-]"], &["b"]),
            ("^(?:ab|c)$", &["ab", "c"], &["abc"]),
            (r"^\/\.\$$", &["/.$"], &["/a$"]),
        ] {
            let compiled = compile(pattern).unwrap_or_else(|rule| panic!("{pattern}: {rule}"));
            matching.iter().for_each(|text| assert!(compiled.is_match(text), "{pattern} should match {text:?}"));
            others.iter().for_each(|text| assert!(!compiled.is_match(text), "{pattern} should not match {text:?}"));
        }
    }

    #[test]
    fn a_pattern_that_would_mean_something_else_to_clients_is_rejected_with_the_rule() {
        for (pattern, rule) in [
            ("[a-", "must end each class with `]`"),
            ("(a", "must be a valid regular expression: unclosed group"),
            ("a**b(", "must be a valid regular expression: unclosed group"),
            ("(?i)a", "must have no groups with `(?` other than `(?:`"),
            ("(?=a)", "must have no groups with `(?` other than `(?:`"),
            (r"(a)\1", r"must not have the escape `\1`"),
            (r"\Aa\z", r"must not have the escape `\A`"),
            ("[]a]", r"must have no empty class `[]`: write `\]` for a bracket"),
            ("[a--b]", r"must have no `--` in a class: write `\-` for a hyphen"),
            (r"a\", "must not end with a backslash"),
            ("(?:a{1000}){1000}", "must be a regular expression that compiles to at most 10 MiB"),
        ] {
            assert_eq!(compile(pattern).map(drop), Err(rule.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn each_text_of_a_list_or_map_that_does_not_match_is_a_violation() {
        let violations = |field: Field, value: Value| {
            let mut found = Violations::default();
            matches(&field, &value, "it", &mut found);
            found.into_vec().into_iter().map(|violation| violation.field).collect::<Vec<_>>()
        };
        assert_eq!(violations(Field::string("it").pattern("^a+$"), json!("b")), ["it"]);
        assert_eq!(violations(Field::strings("it").pattern("^a+$"), json!(["a", "b", "aa", ""])), ["it[1]", "it[3]"]);
        assert_eq!(violations(Field::string_map("it").pattern("^a+$"), json!({ "k": "a", "l": "b" })), ["it.l"]);
        assert!(violations(Field::string("it").documented_pattern("^a+$"), json!("b")).is_empty());
        // No platform is built with such a table, and no text matches.
        assert_eq!(violations(Field::string("it").pattern("("), json!("(")), ["it"]);
    }
}

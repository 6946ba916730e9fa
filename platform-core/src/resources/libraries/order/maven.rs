//! Maven's version order: digits and letters are separate parts, qualifiers have an order, a hyphen starts a deeper level,
//! and missing parts count as zero or as a release. As documented for `ComparableVersion`, except that an underscore
//! separates, as for Maven's resolver (`findings/maven-comparators-disagree.sh`).

/// The known qualifiers, in order; the empty one is a release.
const QUALIFIERS: [&str; 7] = ["alpha", "beta", "milestone", "rc", "snapshot", "", "sp"];

/// The kind of a release, which is a qualifier, and of the end of a version. Tokens are ordered by their kinds first.
const RELEASE: u8 = 5;
/// The kind of unknown qualifiers, which sort after the known ones by their text.
const OTHER: u8 = 7;
/// The kind of a deeper level, started by a hyphen or a qualifier before a number: sorts after qualifiers and before
/// numbers that follow a dot.
const LIST: u8 = 8;
/// The kind of a number.
const NUMBER: u8 = 9;

/// A part of a version.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Qualifier(String),
    List,
    /// The digits, without leading zeros.
    Number(String),
}

/// Returns the sort key of a version in Maven's order.
pub(super) fn key(version: &str) -> Vec<u8> {
    let mut key = Vec::new();
    for token in tokens(&version.to_lowercase()) {
        match token {
            Token::Qualifier(text) => match QUALIFIERS.iter().position(|known| *known == text) {
                Some(place) => key.push(u8::try_from(place).unwrap_or(OTHER)),
                None => {
                    key.push(OTHER);
                    key.extend(text.bytes());
                    key.push(0);
                }
            },
            Token::List => key.push(LIST),
            Token::Number(digits) => {
                key.push(NUMBER);
                // Without leading zeros, a number with more digits is greater.
                key.extend(u16::try_from(digits.len()).unwrap_or(u16::MAX).to_be_bytes());
                key.extend(digits.bytes());
            }
        }
    }
    key.push(RELEASE);
    key
}

/// Splits a version into tokens, without the insignificant ones at the end of each level.
fn tokens(version: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = version;
    while !rest.is_empty() {
        let digits = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = rest.find(|c: char| is_separator(c) || c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        let separator = after.chars().next().filter(|c| is_separator(*c));
        let before_digit = after.starts_with(|c: char| c.is_ascii_digit());
        // A token without text is a zero.
        tokens.push(if digits || part.is_empty() {
            Token::Number(part.trim_start_matches('0').to_owned())
        } else {
            Token::Qualifier(qualifier(part, before_digit).to_owned())
        });
        rest = separator.map_or(after, |separator| after.get(separator.len_utf8()..).unwrap_or_default());
        let starts_level = separator != Some('.') && !rest.is_empty();
        let is_qualifier_next = rest.starts_with(|c: char| !c.is_ascii_digit() && !is_separator(c));
        if starts_level || is_qualifier_next {
            trim(&mut tokens);
        }
        // A qualifier is the same after a dot and after a hyphen.
        if starts_level && !is_qualifier_next {
            tokens.push(Token::List);
        }
    }
    trim(&mut tokens);
    tokens
}

fn is_separator(c: char) -> bool {
    matches!(c, '.' | '-' | '_')
}

/// Removes zeros, releases and empty levels from the end.
fn trim(tokens: &mut Vec<Token>) {
    let is_insignificant = |token: &Token| match token {
        Token::Number(digits) => digits.is_empty(),
        Token::Qualifier(text) => text.is_empty(),
        Token::List => true,
    };
    while tokens.last().is_some_and(is_insignificant) {
        tokens.pop();
    }
}

/// Returns the canonical form of a qualifier. `a`, `b` and `m` are abbreviations only before a digit.
fn qualifier(text: &str, before_digit: bool) -> &str {
    match text {
        "a" if before_digit => "alpha",
        "b" if before_digit => "beta",
        "m" if before_digit => "milestone",
        "ga" | "final" | "release" => "",
        "cr" => "rc",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Ecosystem::EcosystemJava,
        tests::{assert_ascending, assert_equal},
    };

    #[test]
    fn qualifiers_are_ordered_and_unknown_ones_sort_after_a_release() {
        let ascending = [
            "1-alpha2snapshot",
            "1-alpha2",
            "1-alpha-123",
            "1-beta-2",
            "1-beta123",
            "1-m2",
            "1-m11",
            "1-rc",
            "1-cr2",
            "1-rc123",
            "1-snapshot",
            "1",
            "1-sp",
            "1-sp2",
            "1-sp123",
            "1-abc",
            "1-def",
            "1-pom-1",
            "1-1-snapshot",
            "1-1",
            "1-2",
            "1-123",
        ];
        assert_ascending(EcosystemJava, &ascending);
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        let ascending = [
            "2.0",
            "2.0.a",
            "2-1",
            "2.0.2",
            "2.0.123",
            "2.1.0",
            "2.1-a",
            "2.1b",
            "2.1-c",
            "2.1-1",
            "2.1.0.1",
            "2.2",
            "2.123",
            "11.a2",
            "11.b2",
            "11.m2",
            "11",
            "11.a",
            "11b",
            "11c",
            "11m",
            "99999999999999999999",
            "100000000000000000000",
        ];
        assert_ascending(EcosystemJava, &ascending);
        assert_ascending(EcosystemJava, &["3.12.0", "3.12.0.1", "3.18.0", "20030203.000550"]);
        assert_ascending(EcosystemJava, &["31.0-jre", "31.0.1-android", "31.0.1-jre", "32.0.0-android"]);
        assert_ascending(EcosystemJava, &["5.0.0.Alpha1", "5.0.0.CR2", "5.0.0.Final", "5.0.1.Final"]);
    }

    #[test]
    fn an_empty_part_is_a_zero() {
        for versions in [["1..1", "1.0.1"], ["1-.1", "1-0.1"], ["1.-1", "1-1"], ["1--1", "1-0-1"], ["1__1", "1-0-1"]] {
            assert_equal(EcosystemJava, &versions);
        }
        assert_ascending(EcosystemJava, &["1.jre.a", "1..1snapshot", "1.1"]);
    }

    #[test]
    fn insignificant_parts_are_ignored() {
        assert_equal(EcosystemJava, &["1", "1.0", "1.0.0", "1-0", "1.0-0", "1-ga", "1.ga", "1-final", "1.0.Final"]);
        assert_equal(EcosystemJava, &["1a1", "1-a1", "1-alpha-1"]);
        assert_equal(EcosystemJava, &["1X", "1x", "1-x"]);
        assert_equal(EcosystemJava, &["1-jre", "1-final-jre", "1.0.GA-jre", "1_release_jre"]);
    }
}

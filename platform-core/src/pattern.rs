//! Regular expressions for claims, written by tenants: RE2 syntax, matched against the whole value, and bounded in size
//! (`docs/api.md`, Claim patterns).
//!
//! The regex crate matches in linear time like RE2, but has a different syntax: classes such as `\d` are Unicode, a
//! brace that does not start a repetition is an error, brackets have set operators, and `\Q…\E` is not supported. This
//! module therefore parses a pattern as RE2 does and translates it to the syntax of the regex crate.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

use regex::{Regex, RegexBuilder};

/// The maximum length of a pattern in bytes.
pub const MAX_PATTERN: usize = 512;

/// The maximum memory of a compiled pattern in bytes.
const MAX_PROGRAM: usize = 64 * 1024;

/// The maximum number of characters, approximately, in the classes of a case-insensitive pattern. Compiling such a
/// pattern looks up the case variants of each character.
const MAX_FOLDED: u32 = 0x4_0000;

/// The number of characters that a Unicode class counts as: the largest have some 140,000.
const NAMED_CLASS: u32 = 0x2_0000;

/// The maximum nesting depth of groups.
const MAX_NESTING: u32 = 64;

/// The maximum count of a repetition such as `{3}`.
const MAX_REPEAT: u32 = 1000;

/// A compiled pattern. Matching takes time linear in the value.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The rule that the pattern violates, as a phrase.
    pub fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("must have at most {MAX_PATTERN} bytes"));
        }
        let rule = || "must be a regular expression in RE2 syntax, and not too large".to_owned();
        let translated = Translation::new(text).translate().ok_or_else(rule)?;
        RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
            .size_limit(MAX_PROGRAM)
            .dfa_size_limit(MAX_PROGRAM)
            .nest_limit(MAX_NESTING)
            .build()
            .map(Self)
            .map_err(|_| rule())
    }

    /// Returns whether the whole value matches.
    pub fn is_match(&self, value: &str) -> bool {
        self.0.is_match(value)
    }
}

/// The class of the last piece of a pattern, which determines whether a repetition may follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A piece that may be repeated.
    Atom,
    /// A repetition, which must not be repeated.
    Repetition,
    /// The start of the pattern, `(` or `|`: there is nothing to repeat.
    Start,
}

/// The class names that are allowed in brackets, as in `[[:alpha:]]`.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// A translation of a pattern from RE2 syntax to the syntax of the regex crate. Its methods return `None` when the
/// pattern is invalid.
struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// The number of open groups. It must not become negative: an unmatched `)` would close the group that
    /// [`Pattern::compile`] wraps around the pattern.
    groups: u32,
    /// The last literal character.
    last: u32,
    /// Whether any part of the pattern ignores case.
    folds: bool,
    /// The number of characters in all classes, approximately.
    in_classes: u32,
}

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0C\r\x20";

impl<'a> Translation<'a> {
    fn new(text: &'a str) -> Self {
        let rest = text.chars().peekable();
        Self { rest, out: String::new(), groups: 0, last: 0, folds: false, in_classes: 0 }
    }

    /// Translates the whole pattern.
    fn translate(mut self) -> Option<String> {
        let mut before = Piece::Start;
        while let Some(c) = self.rest.next() {
            before = match c {
                '\\' => self.escape(before)?,
                '[' => {
                    self.bracket()?;
                    Piece::Atom
                }
                '(' => {
                    self.group()?;
                    Piece::Start
                }
                '|' => {
                    self.out.push('|');
                    Piece::Start
                }
                '*' | '+' | '?' => self.repeat(before, &c.to_string())?,
                '{' => match self.repetition()? {
                    Some(braces) => self.repeat(before, &braces)?,
                    None => self.literal('{'),
                },
                ')' | '^' | '$' | '.' => {
                    if c == ')' {
                        self.groups = self.groups.checked_sub(1)?;
                    }
                    self.out.push(c);
                    Piece::Atom
                }
                c => self.literal(c),
            };
        }
        (self.groups == 0 && !(self.folds && self.in_classes > MAX_FOLDED)).then_some(self.out)
    }

    /// Writes a literal character, escaped as needed inside and outside of brackets.
    fn literal(&mut self, c: char) -> Piece {
        self.last = c.into();
        if c.is_alphanumeric() {
            self.out.push(c);
        } else {
            // Writing to a String does not fail.
            let _ = write!(self.out, "\\x{{{:X}}}", u32::from(c));
        }
        Piece::Atom
    }

    fn repeat(&mut self, before: Piece, operator: &str) -> Option<Piece> {
        if before != Piece::Atom {
            return None;
        }
        self.out.push_str(operator);
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        Some(Piece::Repetition)
    }

    /// Parses the rest of a repetition after `{` and returns it with its braces. Returns `Some(None)` if the brace is a
    /// literal character, and `None` if the repetition is invalid.
    fn repetition(&mut self) -> Option<Option<String>> {
        let mut ahead = self.rest.clone();
        let mut inner = String::new();
        while let Some(c) = ahead.next_if(|c| c.is_ascii_digit() || *c == ',') {
            inner.push(c);
        }
        let (least, most) = inner.split_once(',').unwrap_or((&inner, &inner));
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !number(least) || !(most.is_empty() || number(most)) || ahead.next() != Some('}') {
            return Some(None);
        }
        self.rest = ahead;
        let least: u32 = least.parse().ok()?;
        let most: u32 = if most.is_empty() { least } else { most.parse().ok()? };
        (least <= most && most <= MAX_REPEAT).then(|| Some(format!("{{{inner}}}")))
    }

    /// Parses an escape sequence outside of brackets, after the backslash.
    fn escape(&mut self, before: Piece) -> Option<Piece> {
        match self.rest.next()? {
            'Q' => {
                let mut piece = before;
                while let Some(c) = self.rest.next() {
                    if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                        break;
                    }
                    piece = self.literal(c);
                }
                Some(piece)
            }
            'b' => self.raw(r"(?-u:\b)"),
            'B' => self.raw(r"\B"),
            'A' => self.raw(r"\A"),
            'z' => self.raw(r"\z"),
            c => {
                if let Some((class, negated)) = class(c) {
                    let caret = if negated { "^" } else { "" };
                    return self.raw(&format!("[{caret}{class}]"));
                }
                self.escaped(c)
            }
        }
    }

    fn raw(&mut self, text: &str) -> Option<Piece> {
        self.out.push_str(text);
        Some(Piece::Atom)
    }

    /// Parses an escape sequence for a character or a Unicode class, inside or outside of brackets.
    fn escaped(&mut self, c: char) -> Option<Piece> {
        match c {
            'a' => Some(self.literal('\x07')),
            'f' => Some(self.literal('\x0C')),
            'n' => Some(self.literal('\n')),
            'r' => Some(self.literal('\r')),
            't' => Some(self.literal('\t')),
            'v' => Some(self.literal('\x0B')),
            'x' => {
                let digits: String = match self.rest.next()? {
                    '{' => self.until('}')?,
                    first => [first, self.rest.next()?].iter().collect(),
                };
                let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| hex)?;
                Some(self.literal(char::from_u32(code)?))
            }
            'p' | 'P' => {
                let name = match self.rest.next()? {
                    '{' => self.until('}')?,
                    letter => letter.to_string(),
                };
                // RE2 negates a Unicode class by a caret, too.
                let (letter, name) = match (c, name.strip_prefix('^')) {
                    ('p', Some(name)) => ('P', name),
                    ('P', Some(name)) => ('p', name),
                    (c, _) => (c, name.as_str()),
                };
                self.in_classes = self.in_classes.saturating_add(NAMED_CLASS);
                is_name(name).then(|| self.raw(&format!("\\{letter}{{{name}}}")))?
            }
            '0'..='7' => {
                let mut code = c.to_digit(8)?;
                let mut digits = 1;
                while digits < 3
                    && let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8))
                {
                    self.rest.next();
                    code = code * 8 + digit;
                    digits += 1;
                }
                // A single digit except 0 would be a backreference, which RE2 does not support.
                (digits > 1 || c == '0').then(|| self.literal(char::from_u32(code).unwrap_or_default()))
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(self.literal(c)),
            _ => None,
        }
    }

    /// Returns the text before the next `end`, and skips both.
    fn until(&mut self, end: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                c if c == end => return Some(text),
                c => text.push(c),
            }
        }
    }

    /// Parses the start of a group after `(`: flags and names as in RE2, and no others.
    fn group(&mut self) -> Option<()> {
        self.out.push('(');
        self.groups += 1;
        if self.rest.next_if_eq(&'?').is_none() {
            return Some(());
        }
        if self.rest.next_if_eq(&'P').is_some() {
            return (self.rest.peek() == Some(&'<')).then(|| self.name())?;
        }
        if self.rest.peek() == Some(&'<') {
            return self.name();
        }
        self.out.push('?');
        loop {
            match self.rest.next()? {
                c @ ('i' | 'm' | 's' | 'U' | '-') => {
                    self.folds |= c == 'i';
                    self.out.push(c);
                }
                c @ (':' | ')') => {
                    if c == ')' {
                        self.groups -= 1;
                    }
                    self.out.push(c);
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// Parses a group's name and drops it: nothing reads captures, so two groups may have the same name.
    fn name(&mut self) -> Option<()> {
        self.rest.next();
        is_name(&self.until('>')?).then_some(())
    }

    /// Parses a bracket expression after `[`.
    fn bracket(&mut self) -> Option<()> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let (mut first, mut before, mut start) = (true, Member::Whole, 0);
        loop {
            let member = match self.rest.next()? {
                ']' if !first => {
                    self.out.push(']');
                    return Some(());
                }
                '-' if before == Member::Char && self.rest.peek() != Some(&']') => {
                    self.out.push('-');
                    start = self.last;
                    before = Member::RangeStart;
                    continue;
                }
                '[' if self.rest.peek() == Some(&':') => self.posix_class()?,
                '\\' => {
                    let c = self.rest.next()?;
                    match class(c) {
                        Some((class, negated)) => {
                            let caret = if negated { "^" } else { "" };
                            let _ = write!(self.out, "[{caret}{class}]");
                            Member::Whole
                        }
                        None => {
                            self.escaped(c)?;
                            if matches!(c, 'p' | 'P') { Member::Whole } else { Member::Char }
                        }
                    }
                }
                c => {
                    self.literal(c);
                    Member::Char
                }
            };
            before = match (before, member) {
                (Member::RangeStart, Member::Char) => {
                    self.in_classes = self.in_classes.saturating_add(self.last.saturating_sub(start));
                    Member::Whole
                }
                // A range must end with a character.
                (Member::RangeStart, _) => return None,
                (_, member) => member,
            };
            first = false;
        }
    }

    /// Parses a class such as `[:alpha:]` inside of brackets, after its `[`. If there is no class, the bracket is a
    /// literal character.
    fn posix_class(&mut self) -> Option<Member> {
        let mut ahead = self.rest.clone();
        ahead.next();
        let name: String = std::iter::from_fn(|| ahead.next_if(|c| c.is_ascii_lowercase() || *c == '^')).collect();
        if ahead.next() != Some(':') || ahead.next() != Some(']') {
            self.literal('[');
            return Some(Member::Char);
        }
        if !POSIX.contains(&name.trim_start_matches('^')) {
            return None;
        }
        self.rest = ahead;
        let _ = write!(self.out, "[:{name}:]");
        Some(Member::Whole)
    }
}

/// The last member of a bracket expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// A character, which may start a range.
    Char,
    /// The start of a range, with its dash.
    RangeStart,
    /// A class or a range.
    Whole,
}

/// Returns whether a text can be the name of a group or of a Unicode class.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns the members of the ASCII class of an escape such as `\d`, in bracket syntax, and whether it is negated.
fn class(c: char) -> Option<(&'static str, bool)> {
    let class = match c.to_ascii_lowercase() {
        'd' => DIGIT,
        'w' => WORD,
        's' => SPACE,
        _ => return None,
    };
    Some((class, c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns with values that match as a whole and values that do not, according to RE2.
    const TABLE: &[(&str, &[&str], &[&str])] = &[
        ("", &[""], &["a"]),
        ("a", &["a"], &["", "aa", "ba", "a\n"]),
        ("^a$", &["a"], &["aa"]),
        ("a|bc", &["a", "bc"], &["abc", "ac"]),
        (
            "https://accounts.google.com",
            &["https://accounts.google.com"],
            &["https://accounts.google.com.evil", "xhttps://accounts.google.com"],
        ),
        ("repo:org/.*:ref:refs/heads/main", &["repo:org/a:ref:refs/heads/main"], &["repo:org/a:ref:refs/heads/main2"]),
        (r"^\d{4}$", &["2026"], &["٢٠٢٦", "202", "20266"]),
        (r"\w+", &["aZ_9"], &["é", "", "a b"]),
        (r"\W", &["é", " "], &["a"]),
        (r"\s", &[" ", "\t", "\n", "\u{c}"], &["\u{b}", "\u{a0}"]),
        (r"\S+", &["a\u{a0}b"], &["a b"]),
        (r"\D+", &["٢"], &["1"]),
        ("{C668DE74-1B38-4A21-A2A8-2D5C4D1D2B5C}:.+", &["{C668DE74-1B38-4A21-A2A8-2D5C4D1D2B5C}:x"], &["C668DE74:x"]),
        ("a{,5}", &["a{,5}"], &["a", "aaaaa"]),
        ("a{2}", &["aa"], &["a", "aaa", "a{2}"]),
        ("a{2,}", &["aa", "aaaa"], &["a"]),
        ("a{2,3}?", &["aa", "aaa"], &["a"]),
        ("a{", &["a{"], &["a"]),
        ("a{x}", &["a{x}"], &["a"]),
        ("}", &["}"], &[""]),
        (r"\Qa.b*\E+", &["a.b*", "a.b***"], &["aXb*"]),
        (r"\Qa.b", &["a.b"], &["axb"]),
        ("[a-c]", &["a", "c"], &["d", "-"]),
        ("[]a]", &["]", "a"], &["b"]),
        ("[^]a]", &["b"], &["]", "a"]),
        ("[a-]", &["a", "-"], &["b"]),
        ("[-a]", &["a", "-"], &["b"]),
        ("[a-c-e]", &["b", "-", "e"], &["d"]),
        ("[--a]", &["-", "A", "a"], &["b", "+"]),
        (r"\p{^Greek}", &["a"], &["α"]),
        ("[a&&b]", &["a", "&", "b"], &["c"]),
        ("[a~~b]", &["~"], &["c"]),
        ("[[a]", &["[", "a"], &["b"]),
        ("[[:alpha:]_]", &["a", "_"], &["é", "1"]),
        ("[[:^digit:]]", &["a"], &["1"]),
        (r"[\d.]+", &["1.2"], &["٢"]),
        (r"[\D]", &["a"], &["1"]),
        (r"[\]]", &["]"], &["\\"]),
        (r"[\x41-\x43]", &["B"], &["D"]),
        (r"\x{41}\x42", &["AB"], &["ab"]),
        (r"\101\0", &["A\0"], &["101"]),
        (r"\<a\>", &["<a>"], &["a"]),
        (r"a\.b\/c", &["a.b/c"], &["axb/c"]),
        (r"\pL+", &["é"], &["1"]),
        (r"\p{Greek}", &["α"], &["a"]),
        ("(?i)abc", &["ABC"], &["ABD"]),
        (r"(?i)\pL[a-z\x{100}-\x{10FF}]", &["éA"], &["1a"]),
        ("(?s).", &["\n"], &[""]),
        (".", &["a", "é"], &["\n", ""]),
        ("(?P<x>a)(?:b)(c)", &["abc"], &["ab"]),
        ("(?<x>a)", &["a"], &["b"]),
        ("a*?", &["", "aa"], &["b"]),
        (r"\ba\b", &["a"], &["b"]),
        ("a#b c", &["a#b c"], &["a"]),
        ("()", &[""], &["a"]),
        ("a||b", &["a", "", "b"], &["c"]),
    ];

    #[test]
    fn patterns_have_re2_semantics_and_match_whole_values() {
        for (pattern, matching, others) in TABLE {
            let compiled = Pattern::compile(pattern).unwrap_or_else(|rule| panic!("{pattern}: {rule}"));
            for value in *matching {
                assert!(compiled.is_match(value), "{pattern:?} should match {value:?}");
            }
            for value in *others {
                assert!(!compiled.is_match(value), "{pattern:?} should not match {value:?}");
            }
        }
    }

    #[test]
    fn patterns_that_re2_rejects_or_that_are_too_large_are_rejected() {
        let long = "a".repeat(513);
        for bad in [
            "(",
            ")",
            "a)(b",
            "(?i)a)(?:b",
            r"(?i)[\x00-\x{10FFFF}]",
            r"\pL(?i:\pL\pN)",
            "*",
            "a**",
            "a+*",
            "a{2}{3}",
            "a{1001}",
            "a{3,2}",
            "[",
            "[]",
            "[b-a]",
            "[a--b]",
            r"[a-\d]",
            "(?x)a",
            "(?u)a",
            "(?P=x)",
            "(?=a)",
            r"\1",
            r"\8",
            r"\Z",
            r"\i",
            "\\",
            r"\x{110000}",
            r"\xg",
            "(?P<>a)",
            "(?P<a-b>x)",
            "[[:nope:]]",
            r"\p{Nope}",
            "a++",
            "(a{1000}){1000}",
            r"\w{1000}\w{1000}\pL{900}",
            &long,
        ] {
            assert!(Pattern::compile(bad).is_err(), "{bad:?}");
        }
    }
}

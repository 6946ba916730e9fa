//! Patterns that tenants write, for claims: RE2's dialect, matched against the whole value, bounded
//! (`docs/api.md`, Claim patterns).
//!
//! The regex crate matches in linear time as RE2 does, but reads a dialect of its own: classes are Unicode's, a brace
//! that begins no repetition is an error, brackets have operators, and there is no `\Q…\E`. So a pattern is read here
//! as RE2 reads it and written again as the regex crate must have it.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

use regex::{Regex, RegexBuilder};

/// The most bytes of a pattern.
pub const MAX_PATTERN: usize = 512;

/// The most memory of a compiled pattern, in bytes.
const MAX_PROGRAM: usize = 64 * 1024;

/// The most characters, roughly, of the classes of a pattern that ignores case, since each is looked up.
const MAX_FOLDED: u32 = 0x4_0000;

/// How many characters a class of Unicode counts as: the largest have some 140,000.
const NAMED_CLASS: u32 = 0x2_0000;

/// How deep groups may nest.
const MAX_NESTING: u32 = 64;

/// The most repetitions that a brace may ask for.
const MAX_REPEAT: u32 = 1000;

/// A compiled pattern. Matching takes time linear in the value.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("must have at most {MAX_PATTERN} bytes"));
        }
        let rule = || "must be a regular expression in RE2's syntax, not too large".to_owned();
        let translated = Translation::new(text).whole().ok_or_else(rule)?;
        RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
            .size_limit(MAX_PROGRAM)
            .dfa_size_limit(MAX_PROGRAM)
            .nest_limit(MAX_NESTING)
            .build()
            .map(Self)
            .map_err(|_| rule())
    }

    /// Tells whether the whole value matches.
    pub fn is_match(&self, value: &str) -> bool {
        self.0.is_match(value)
    }
}

/// What a piece of a pattern allows to follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// Something that a repetition can follow.
    Atom,
    /// A repetition, which another one must not follow.
    Repetition,
    /// The beginning, `(` or `|`.
    Start,
}

/// The classes that brackets can name.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// The open groups: an unmatched parenthesis would close the group that the pattern is wrapped in.
    groups: u32,
    /// The last literal character.
    last: u32,
    /// Whether case is ignored anywhere.
    folds: bool,
    /// How many characters the classes have, roughly.
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

    fn whole(mut self) -> Option<String> {
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

    /// Writes a character so that it stands for itself, in brackets and out of them.
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

    /// Reads what follows a brace: a repetition with its braces, or nothing when the brace stands for itself; no
    /// pattern at all when it asks for too many.
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

    /// Reads what follows a backslash outside of brackets.
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

    /// Reads an escape that stands for a character or a Unicode class, in brackets and out of them.
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
                // RE2 negates by a caret too.
                let (letter, name) = match (c, name.strip_prefix('^')) {
                    ('p', Some(name)) => ('P', name),
                    ('P', Some(name)) => ('p', name),
                    (c, _) => (c, name.as_str()),
                };
                let sound = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                self.in_classes = self.in_classes.saturating_add(NAMED_CLASS);
                sound.then(|| self.raw(&format!("\\{letter}{{{name}}}")))?
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
                // One digit but zero would be a reference to a group, which RE2 has not.
                (digits > 1 || c == '0').then(|| self.literal(char::from_u32(code).unwrap_or_default()))
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(self.literal(c)),
            _ => None,
        }
    }

    fn until(&mut self, end: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                c if c == end => return Some(text),
                c => text.push(c),
            }
        }
    }

    /// Reads what follows an opening parenthesis: flags and names that RE2 has, and no others.
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

    /// Reads a group's name and drops it: nothing is asked of groups, and two may have the same.
    fn name(&mut self) -> Option<()> {
        self.rest.next();
        let name = self.until('>')?;
        let sound = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        sound.then_some(())
    }

    /// Reads what follows an opening bracket.
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
                // A range ends with a character.
                (Member::RangeStart, _) => return None,
                (_, member) => member,
            };
            first = false;
        }
    }

    /// Reads a class in brackets such as `[:alpha:]`, of which the first bracket has been read; where there is none
    /// the bracket stands for itself.
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

/// What was read last in brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// A character, which a range may begin with.
    Char,
    /// The beginning of a range, with its dash.
    RangeStart,
    /// A class or a range.
    Whole,
}

/// Returns the ASCII class of an escape, as it stands in brackets, and whether it is negated.
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

    /// Patterns, values that the whole of which they match, and values that they do not, as RE2 has it.
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
    fn patterns_are_read_as_re2_reads_them_and_match_whole_values() {
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
    fn what_re2_refuses_or_what_is_too_large_is_refused() {
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

//! The grammar of AIP-160, by recursive descent with bounded recursion.
//!
//! Differences from its EBNF, all our choice: an argument extends to the next white space, comma or parenthesis, so
//! that times, digests and addresses need no quotes; no function is known; and `and`, `or` and `not` in other letters
//! than capitals are errors in place of words to search for.

use super::{At, Comparator, Comparison, Expression, Invalid, Literal, MAX_DEPTH, MAX_LEN, MAX_TERMS, Text};

type Result<T> = std::result::Result<T, Invalid>;

/// Parses a filter; `None` if it is empty.
///
/// # Errors
/// The first rule of the grammar that it breaks, and that it exceeds [`MAX_LEN`], [`MAX_TERMS`] or [`MAX_DEPTH`].
pub fn parse(text: &str) -> Result<Option<Expression>> {
    if text.len() > MAX_LEN {
        return Err(Invalid::new(At(1), format!("must be at most {MAX_LEN} bytes long")));
    }
    let mut parser = Parser { text, rest: text, depth: 0, terms: 0, of_values: false };
    parser.skip_space();
    if parser.rest.is_empty() {
        return Ok(None);
    }
    let expression = parser.expression()?;
    match parser.rest.chars().next() {
        None => Ok(Some(expression)),
        Some(')') => Err(parser.invalid("has a `)` without a `(`")),
        Some(_) => Err(parser.invalid("must have white space here")),
    }
}

struct Parser<'t> {
    text: &'t str,
    rest: &'t str,
    depth: usize,
    terms: usize,
    /// Whether this is within the parentheses after a comparator.
    of_values: bool,
}

/// A value, before it is known whether it names a field.
struct Word {
    /// The names in the path of a field.
    path: Vec<String>,
    /// The text, in which `*` is a wildcard.
    text: Text,
    at: At,
}

impl<'t> Parser<'t> {
    /// `expression: sequence {AND sequence}`, `sequence: factor {factor}`, and the white space after it.
    fn expression(&mut self) -> Result<Expression> {
        let mut operands = Vec::new();
        loop {
            push(&mut operands, self.factor()?, |operand| match operand {
                Expression::And(inner) => Ok(inner),
                other => Err(other),
            });
            let is_separate = self.skip_space();
            match self.rest.chars().next() {
                None | Some(')' | ',') => break,
                Some(_) if !is_separate => return Err(self.invalid("must have white space here")),
                Some(_) => _ = self.take_keyword("AND"),
            }
        }
        Ok(one_or(operands, Expression::And))
    }

    /// `factor: term {OR term}`
    fn factor(&mut self) -> Result<Expression> {
        let mut operands = Vec::new();
        loop {
            push(&mut operands, self.term()?, |operand| match operand {
                Expression::Or(inner) => Ok(inner),
                other => Err(other),
            });
            let before = self.rest;
            self.skip_space();
            if !self.take_keyword("OR") {
                self.rest = before;
                return Ok(one_or(operands, Expression::Or));
            }
        }
    }

    /// `term: [NOT | -] simple`
    fn term(&mut self) -> Result<Expression> {
        // Among values, `-` is the sign of a number.
        let is_negative = match self.rest.strip_prefix('-').filter(|_| !self.of_values) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => self.take_keyword("NOT"),
        };
        if !is_negative {
            return self.simple();
        }
        self.enter()?;
        let negated = self.simple()?;
        self.depth -= 1;
        Ok(Expression::Not(Box::new(negated)))
    }

    /// `simple: restriction | composite`, `restriction: comparable [comparator arg]`
    fn simple(&mut self) -> Result<Expression> {
        if self.rest.starts_with('(') {
            return self.composite();
        }
        self.count_term()?;
        if self.of_values {
            return self.value();
        }
        let word = self.word()?;
        let before = self.rest;
        self.skip_space();
        let Some((symbol, comparator)) = Comparator::ALL.into_iter().find(|(symbol, _)| self.rest.starts_with(symbol))
        else {
            self.rest = before;
            return Ok(Expression::Literal(Literal { text: word.text, at: word.at }));
        };
        self.skip(symbol.len());
        self.skip_space();
        let argument = Box::new(self.argument(symbol)?);
        Ok(Expression::Comparison(Comparison { path: word.path, comparator, argument, at: word.at }))
    }

    /// `composite: ( expression )`
    fn composite(&mut self) -> Result<Expression> {
        let open = self.at();
        self.enter()?;
        self.skip(1);
        self.skip_space();
        let expression = self.expression()?;
        if !self.rest.starts_with(')') {
            return Err(Invalid::new(open, "has a `(` without a `)`"));
        }
        self.skip(1);
        self.depth -= 1;
        Ok(expression)
    }

    /// `arg: comparable | composite`: a value, or values that are combined by operators.
    fn argument(&mut self, symbol: &str) -> Result<Expression> {
        match self.rest.chars().next() {
            None | Some(')' | ',') => Err(self.invalid(format!("must have a value after `{symbol}`"))),
            Some('(') => {
                let before = std::mem::replace(&mut self.of_values, true);
                let values = self.composite()?;
                self.of_values = before;
                Ok(values)
            }
            Some(_) => self.value(),
        }
    }

    fn value(&mut self) -> Result<Expression> {
        let at = self.at();
        let text = match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => Text::of_parts(self.string(quote)?),
            _ => {
                let text = self.take_text(|rest| rest.starts_with(['=', '<', '>']) || rest.starts_with("!="))?;
                if self.of_values {
                    Self::not_an_operator(text, at)?;
                }
                Text::of_parts(text.split('*').map(str::to_owned).collect())
            }
        };
        Ok(Expression::Literal(Literal { text, at }))
    }

    /// `member: value {. field}`
    fn word(&mut self) -> Result<Word> {
        let (at, mut path, mut parts) = (self.at(), Vec::new(), vec![String::new()]);
        loop {
            let added = match self.rest.chars().next() {
                Some(quote @ ('"' | '\'')) => self.string(quote)?,
                _ => {
                    let text =
                        self.take_text(|rest| rest.starts_with(['.', '=', '<', '>', ':']) || rest.starts_with("!="))?;
                    if path.is_empty() {
                        Self::not_an_operator(text, at)?;
                    }
                    text.split('*').map(str::to_owned).collect()
                }
            };
            path.push(added.join("*"));
            let mut added = added.into_iter();
            if let (Some(last), Some(next)) = (parts.last_mut(), added.next()) {
                last.push_str(&next);
            }
            parts.extend(added);
            if !self.rest.starts_with('.') {
                return Ok(Word { path, text: Text::of_parts(parts), at });
            }
            self.skip(1);
            if let Some(last) = parts.last_mut() {
                last.push('.');
            }
        }
    }

    /// Rejects an operator where a value must be.
    fn not_an_operator(text: &str, at: At) -> Result<()> {
        match text {
            "AND" | "OR" | "NOT" => Err(Invalid::new(at, format!("must have a condition here, and not `{text}`"))),
            _ if ["and", "or", "not"].contains(&text.to_ascii_lowercase().as_str()) => {
                let capitals = text.to_ascii_uppercase();
                Err(Invalid::new(at, format!("must have `{capitals}` in capitals, or `\"{text}\"` to search for it")))
            }
            _ => Ok(()),
        }
    }

    /// Takes characters up to white space, a comma, a parenthesis, or where `is_end` says; at least one.
    fn take_text(&mut self, is_end: impl Fn(&str) -> bool) -> Result<&'t str> {
        let ends = |rest: &str| rest.starts_with([' ', '\t', '\r', '\n', ',', '(', ')', '"', '\'']) || is_end(rest);
        let suffix = |at: usize| self.rest.get(at..).unwrap_or_default();
        let end = self.rest.char_indices().find(|(at, _)| ends(suffix(*at))).map_or(self.rest.len(), |(at, _)| at);
        let (text, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        match rest.chars().next() {
            Some('(') if ["AND", "OR", "NOT"].contains(&text) => {
                Err(self.invalid(format!("must have white space after `{text}`")))
            }
            Some('(') if !text.is_empty() => Err(self.invalid(format!("must not call `{text}`: no function is known"))),
            next if text.is_empty() => Err(match next {
                Some(next) => self.invalid(format!("must have a name or a value here, and not `{next}`")),
                None => self.invalid("must not end here"),
            }),
            Some('"' | '\'') => Err(self.invalid("must have quotes around the whole value")),
            _ => {
                self.rest = rest;
                Ok(text)
            }
        }
    }

    /// Takes a quoted text, and returns its parts between wildcards.
    fn string(&mut self, quote: char) -> Result<Vec<String>> {
        let begin = self.at();
        let mut parts = vec![String::new()];
        self.skip(1);
        loop {
            let at = self.at();
            let mut add = |c: char| {
                if let Some(last) = parts.last_mut() {
                    last.push(c);
                }
            };
            match self.take() {
                None => return Err(Invalid::new(begin, "has no end of the quoted text")),
                Some(end) if end == quote => return Ok(parts),
                Some('*') => parts.push(String::new()),
                Some('\\') => match self.take() {
                    Some(plain @ ('\\' | '"' | '\'' | '*')) => add(plain),
                    Some('n') => add('\n'),
                    Some('r') => add('\r'),
                    Some('t') => add('\t'),
                    Some('u') => match self.unicode() {
                        Some(c) => add(c),
                        None => {
                            return Err(Invalid::new(at, "must have the four hex digits of a character after `\\u`"));
                        }
                    },
                    _ => {
                        let rule = "must have `\\`, a quote, `*`, `n`, `r`, `t` or `u` after a backslash";
                        return Err(Invalid::new(at, rule));
                    }
                },
                Some(c) => add(c),
            }
        }
    }

    /// Takes four hex digits.
    fn unicode(&mut self) -> Option<char> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let c = char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?)?;
        self.rest = rest;
        Some(c)
    }

    /// Takes a keyword and the white space after it.
    fn take_keyword(&mut self, keyword: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(keyword) else { return false };
        if !rest.is_empty() && !rest.starts_with([' ', '\t', '\r', '\n']) {
            return false;
        }
        self.rest = rest;
        self.skip_space();
        true
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.skip(c.len_utf8());
        Some(c)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Skips white space, and returns whether there was some.
    fn skip_space(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.rest.len() < before
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.invalid(format!("must not be nested more than {MAX_DEPTH} deep")));
        }
        Ok(())
    }

    fn count_term(&mut self) -> Result<()> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(self.invalid(format!("must have at most {MAX_TERMS} comparisons and words")));
        }
        Ok(())
    }

    fn at(&self) -> At {
        let before = self.text.len().saturating_sub(self.rest.len());
        At(self.text.get(..before).unwrap_or_default().chars().count() + 1)
    }

    fn invalid(&self, rule: impl Into<String>) -> Invalid {
        Invalid::new(self.at(), rule)
    }
}

/// Adds an operand, or in place of an operand with the same operator its own operands.
fn push(
    operands: &mut Vec<Expression>,
    operand: Expression,
    flatten: fn(Expression) -> std::result::Result<Vec<Expression>, Expression>,
) {
    match flatten(operand) {
        Ok(inner) => operands.extend(inner),
        Err(other) => operands.push(other),
    }
}

fn one_or(mut operands: Vec<Expression>, all: fn(Vec<Expression>) -> Expression) -> Expression {
    match (operands.len(), operands.pop()) {
        (1, Some(one)) => one,
        (_, last) => {
            operands.extend(last);
            all(operands)
        }
    }
}

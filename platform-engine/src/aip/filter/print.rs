//! The canonical form of a filter, to which page tokens are bound: two filters with the same form are the same.

use std::fmt::{self, Display, Write};

use super::{Comparison, Expression, Literal, Text};

impl Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `OR` binds tighter than `AND`, so that only the operands of `OR` need parentheses.
            Self::And(all) => joined(f, all, " AND ", |one| matches!(one, Self::And(_))),
            Self::Or(all) => joined(f, all, " OR ", |one| matches!(one, Self::And(_) | Self::Or(_))),
            Self::Not(inner) => write!(f, "NOT {}", Operand(inner, !inner.is_simple())),
            Self::Comparison(comparison) => comparison.fmt(f),
            Self::Literal(Literal { text, .. }) => text.fmt(f),
        }
    }
}

impl Expression {
    const fn is_simple(&self) -> bool {
        matches!(self, Self::Comparison(_) | Self::Literal(_))
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.path.iter().enumerate() {
            if at > 0 {
                f.write_char('.')?;
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_operator = ["and", "or", "not"].contains(&name.to_ascii_lowercase().as_str());
            if name.is_empty() || is_operator || !name.chars().all(is_plain) {
                Text::plain(name).fmt(f)?;
            } else {
                f.write_str(name)?;
            }
        }
        write!(f, " {} {}", self.comparator.symbol(), Operand(&self.argument, !self.argument.is_simple()))
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for (at, part) in self.parts().iter().enumerate() {
            if at > 0 {
                f.write_char('*')?;
            }
            for c in part.chars() {
                match c {
                    '\\' | '"' | '*' => write!(f, "\\{c}")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    c => f.write_char(c)?,
                }
            }
        }
        f.write_char('"')
    }
}

/// An operand, and whether it is in parentheses.
struct Operand<'e>(&'e Expression, bool);

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 { write!(f, "({})", self.0) } else { self.0.fmt(f) }
    }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    all: &[Expression],
    operator: &str,
    is_enclosed: fn(&Expression) -> bool,
) -> fmt::Result {
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            f.write_str(operator)?;
        }
        Operand(one, is_enclosed(one)).fmt(f)?;
    }
    Ok(())
}

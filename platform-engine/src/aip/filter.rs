//! Filters of lists (AIP-160; `docs/api.md`, Filters).
//!
//! A filter is parsed into an [`Expression`], which knows no table, and then compiled for a kind into a [`Filter`],
//! which has the types of its fields. [`Filter::passes`] evaluates it on a resource as the list shows it to the caller,
//! so that a filter finds out nothing that the list does not show. `plan.rs` says which part of it the indexes
//! of the store answer.
//!
//! Rejected: the crates that parse AIP-160. `aip-160` 0.2.0, the only one that is maintained, gives nodes no positions,
//! which errors need, and does not distinguish an escaped `*` from a wildcard.

mod compile;
mod evaluate;
mod parse;
mod plan;
mod print;
mod text;

pub use compile::Filter;
pub use parse::parse;
pub(crate) use plan::{Plan, Range, indexed};
pub use text::Text;

/// The maximum length of a filter in bytes. Our choice: that of a page token.
pub const MAX_LEN: usize = 8 << 10;

/// The maximum number of comparisons and words in a filter. Our choice.
pub const MAX_TERMS: usize = 100;

/// The maximum depth of nested parentheses and negations. Our choice.
pub const MAX_DEPTH: usize = 16;

/// A parsed filter.
///
/// No `And` is directly within an `And`, and no `Or` within an `Or`; both have at least two operands. A sequence, such
/// as `a b`, is an `And`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expression {
    /// All of these are true.
    And(Vec<Self>),
    /// One of these is true.
    Or(Vec<Self>),
    /// This is not true.
    Not(Box<Self>),
    /// A field is compared with an argument.
    Comparison(Comparison),
    /// A word or quoted text alone, which is searched for.
    Literal(Literal),
}

/// A comparison of a field with an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The path of the field: names of fields and keys of maps, at least one.
    pub path: Vec<String>,
    /// The comparator.
    pub comparator: Comparator,
    /// The values: a [`Literal`](Expression::Literal), or several that are combined by operators. It has no comparison.
    pub argument: Box<Expression>,
    /// Where it begins.
    pub at: At,
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    /// The text.
    pub text: Text,
    /// Where it begins.
    pub at: At,
}

/// A comparator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the names of the comparators")]
pub enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Has,
}

impl Comparator {
    /// The comparators as they are written. One that begins another comes after it.
    const ALL: [(&'static str, Self); 7] = [
        ("!=", Self::NotEqual),
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("=", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
        (":", Self::Has),
    ];

    /// Returns the comparator as it is written.
    pub fn symbol(self) -> &'static str {
        Self::ALL.iter().find(|(_, comparator)| *comparator == self).map_or("", |(symbol, _)| symbol)
    }
}

/// A position in a filter, in characters, of which the first is 1. All positions are equal, because two filters that
/// differ only in their spaces mean the same.
#[derive(Debug, Clone, Copy)]
pub struct At(pub usize);

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for At {}

/// The rule that a filter breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule} (at character {})", at.0)]
pub struct Invalid {
    /// The rule, as a phrase that follows the name of the parameter.
    pub rule: String,
    /// The position.
    pub at: At,
}

impl Invalid {
    fn new(at: At, rule: impl Into<String>) -> Self {
        Self { rule: rule.into(), at }
    }
}

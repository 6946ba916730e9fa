//! Patterns that tenants write, for claims: RE2's dialect, matched against the whole value, bounded
//! (`docs/api.md`, Claim patterns).

use regex::{Regex, RegexBuilder};

/// The most bytes of a pattern.
pub const MAX_PATTERN: usize = 512;

/// The most memory of a compiled pattern, in bytes.
const MAX_PROGRAM: usize = 64 * 1024;

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
        let whole = format!("^(?:{text})$");
        RegexBuilder::new(&whole)
            .size_limit(MAX_PROGRAM)
            .dfa_size_limit(MAX_PROGRAM)
            .nest_limit(32)
            .build()
            .map(Self)
            .map_err(|_| "must be a regular expression in RE2's syntax, not too large".to_owned())
    }

    /// Tells whether the whole value matches.
    pub fn is_match(&self, value: &str) -> bool {
        self.0.is_match(value)
    }
}

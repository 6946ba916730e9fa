//! All the rules that a request breaks, collected before it is refused (AIP-193, BadRequest).

use serde::Serialize;

use super::Error;

/// One rule that a request breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldViolation {
    /// The path of the field in the resource or request, in camelCase, dotted into messages.
    pub field: String,
    /// The rule, as a phrase that follows the field's name.
    pub description: String,
}

/// The rules that a request breaks, in the order in which they were found.
///
/// It keeps the first [`Violations::MAX`] and counts all. So add only violations that count: one that is removed later
/// may have displaced one that counts.
#[derive(Debug, Default)]
pub struct Violations {
    first: Vec<FieldViolation>,
    count: usize,
}

impl Violations {
    /// The most that one answer carries; a request may break far more. Our choice: 100.
    pub const MAX: usize = 100;

    /// Adds one.
    pub fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.count += 1;
        if self.first.len() < Self::MAX {
            self.first.push(FieldViolation { field: field.into(), description: description.into() });
        }
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many there are, those beyond the first [`Violations::MAX`] included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds all of another, after what is here.
    pub fn append(&mut self, other: Self) {
        let kept = other.first.len();
        other.first.into_iter().for_each(|violation| self.add(violation.field, violation.description));
        self.count += other.count.saturating_sub(kept);
    }

    /// Tells whether there is one for this field or one within it.
    pub fn concern(&self, field: &str) -> bool {
        self.first.iter().any(|violation| {
            violation.field.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Returns the first [`Violations::MAX`].
    pub fn into_vec(self) -> Vec<FieldViolation> {
        self.first
    }

    /// Returns `value` when there are none.
    ///
    /// # Errors
    /// [`Error::invalid`] with all of them otherwise.
    pub fn none_or<T>(self, value: T) -> Result<T, Error> {
        if self.is_empty() { Ok(value) } else { Err(Error::invalid(self)) }
    }
}

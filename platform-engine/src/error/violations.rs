//! The rules that a request breaks, all collected before it is rejected (AIP-193, BadRequest).

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
/// Stores the first [`Violations::MAX`] and counts all. Do not add a violation in order to remove it later: it may have
/// displaced one that stays.
#[derive(Debug, Default)]
pub struct Violations {
    first: Vec<FieldViolation>,
    count: usize,
}

impl Violations {
    /// The maximum number of violations in an error. Our choice: 100.
    pub const MAX: usize = 100;

    /// Adds a violation.
    pub fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.count += 1;
        if self.first.len() < Self::MAX {
            self.first.push(FieldViolation { field: field.into(), description: description.into() });
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of violations, including those after the first [`Violations::MAX`].
    pub fn count(&self) -> usize {
        self.count
    }

    /// Appends the violations of another.
    pub fn append(&mut self, other: Self) {
        // `add` counts those that the other has stored; the rest are only counted.
        let kept = other.first.len();
        other.first.into_iter().for_each(|violation| self.add(violation.field, violation.description));
        self.count += other.count.saturating_sub(kept);
    }

    /// Returns whether a stored violation is for this field or for a field or element within it.
    pub fn concern(&self, field: &str) -> bool {
        self.first.iter().any(|violation| {
            violation.field.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Returns the first [`Violations::MAX`] violations.
    pub fn into_vec(self) -> Vec<FieldViolation> {
        self.first
    }

    /// Returns `value` if it is empty.
    ///
    /// # Errors
    /// [`Error::invalid`] with the violations otherwise.
    pub fn none_or<T>(self, value: T) -> Result<T, Error> {
        if self.is_empty() { Ok(value) } else { Err(Error::invalid(self)) }
    }
}

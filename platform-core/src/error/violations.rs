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
#[derive(Debug, Default)]
pub struct Violations(Vec<FieldViolation>);

impl Violations {
    /// The most that one answer carries; a request may break far more. Our choice: 100.
    pub const MAX: usize = 100;

    /// Adds one, unless there are [`Violations::MAX`] already.
    pub fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        if self.0.len() < Self::MAX {
            self.0.push(FieldViolation { field: field.into(), description: description.into() });
        }
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells whether there is one for this field or one within it.
    pub fn concern(&self, field: &str) -> bool {
        self.0.iter().any(|violation| {
            violation.field.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Returns them.
    pub fn into_vec(self) -> Vec<FieldViolation> {
        self.0
    }

    /// Returns `value` when there are none.
    ///
    /// # Errors
    /// [`Error::invalid`] with all of them otherwise.
    pub fn none_or<T>(self, value: T) -> Result<T, Error> {
        if self.is_empty() { Ok(value) } else { Err(Error::invalid(self)) }
    }
}

//! The findings of consistency checks.

use std::fmt;

use super::StoreError;

/// An inconsistency that the check of a store found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// A description of the inconsistency.
    pub what: String,
    /// The recommended remedy.
    pub advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// The maximum number of findings that are collected; further ones are usually of the same kind.
const MAX_FINDINGS: usize = 100;

/// The findings of a check in progress.
#[derive(Debug)]
pub struct Findings {
    found: Vec<Finding>,
    advice: &'static str,
}

impl Findings {
    /// Returns an empty collection, whose findings will have this advice.
    pub const fn new(advice: &'static str) -> Self {
        Self { found: Vec::new(), advice }
    }

    /// Adds a finding, unless there are too many already.
    pub fn add(&mut self, what: impl Into<String>) {
        if self.found.len() < MAX_FINDINGS {
            self.found.push(Finding { what: what.into(), advice: self.advice });
        }
    }

    /// Adds a finding if the condition does not hold.
    pub fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.add(what());
        }
    }

    /// Converts [`StoreError::Corrupt`] to a finding and `None`.
    ///
    /// # Errors
    /// Any other error of the result.
    pub fn catch<T>(&mut self, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Corrupt(cause)) => {
                self.add(cause.to_string());
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Returns the findings, in the order in which they were added.
    pub fn into_vec(self) -> Vec<Finding> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_becomes_findings_and_other_errors_are_returned() {
        let mut findings = Findings::new("restore a backup");
        findings.expect(true, || "unused".to_owned());
        findings.expect(false, || "a count is wrong".to_owned());
        assert_eq!(findings.catch(Ok(1)).unwrap(), Some(1));
        assert_eq!(findings.catch::<u8>(Err(StoreError::Corrupt("a row is damaged".into()))).unwrap(), None);
        assert!(findings.catch::<u8>(Err(StoreError::Unavailable("closed".into()))).is_err());
        let texts: Vec<_> = findings.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a count is wrong; restore a backup", "a row is damaged; restore a backup"]);
    }

    #[test]
    fn the_number_of_findings_is_bounded() {
        let mut findings = Findings::new("");
        (0..2 * MAX_FINDINGS).for_each(|number| findings.add(number.to_string()));
        assert_eq!(findings.into_vec().len(), MAX_FINDINGS);
    }
}

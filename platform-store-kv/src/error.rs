//! Errors of stored data, and of stores that cannot answer.

use platform_engine::store::StoreError;

/// Returns the error of stored data that differs from the data that was written.
pub fn corrupt(problem: impl Into<String>) -> StoreError {
    StoreError::Corrupt(format!("{}; run a check, and restore a backup", problem.into()).into())
}

/// Returns the error of a store that cannot answer.
pub fn unavailable(problem: impl Into<String>) -> StoreError {
    StoreError::Unavailable(problem.into().into())
}

//! The state that the parts of a store share: the database, the layout of records, and whether commits succeed.

use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;
use platform_engine::store::{Conflict, StoreError};
use uuid::Uuid;

use crate::{
    connection::Database,
    error::{Failure, unavailable},
    schema::Slots,
};

/// Whether commits are expected to succeed, by the last one of any lane.
#[derive(Debug, Default)]
pub(crate) struct Health(AtomicU8);

impl Health {
    /// Takes note of a batch. Only failures that the next commit will have too count.
    pub(crate) fn set(&self, outcome: Result<&[Result<i64, Conflict>], &Failure>) {
        let state = match outcome {
            Ok(outcomes) if outcomes.iter().any(Result::is_ok) => 0,
            Err(Failure::Other(StoreError::Full(_))) => 1,
            // The coordinator works, and other nodes may.
            Err(Failure::Node(_)) => 0,
            Err(Failure::Lost(_) | Failure::Late(_) | Failure::Other(StoreError::Unknown(_))) => 2,
            _ => return,
        };
        self.0.store(state, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(StoreError::Full("the database's disk is full".into())),
            _ => Err(unavailable("the last commit failed")),
        }
    }
}

/// The state that the lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) slots: ArcSwap<Slots>,
    /// Distinguishes the advisory locks of the installations of one database.
    pub(crate) salt: u64,
    pub(crate) health: Health,
}

/// Returns a random identifier.
pub(crate) fn random() -> Result<Uuid, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| unavailable(error.to_string()))?;
    Ok(Uuid::from_bytes(bytes))
}

//! A store that records how long its calls take.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use async_trait::async_trait;
use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};

use crate::otlp::store_span;

const SECONDS: &str = "platform_store_seconds";
const ERRORS: &str = "platform_store_errors_total";

pub(super) fn describe() {
    describe_histogram!(SECONDS, Unit::Seconds, "Duration of a call of the store: get, list or commit");
    describe_counter!(ERRORS, "Failed calls of the store; conflicts are repeated and are not faults");
}

/// A store that records the durations and errors of the calls of another one.
#[derive(Debug)]
pub(crate) struct Timed {
    store: Arc<dyn Store>,
    get: Operation,
    list: Operation,
    commit: Operation,
}

#[derive(Debug)]
struct Operation {
    name: &'static str,
    seconds: Histogram,
    errors: [OnceLock<Counter>; 6],
}

impl Operation {
    fn new(name: &'static str) -> Self {
        Self { name, seconds: histogram!(SECONDS, "operation" => name), errors: Default::default() }
    }

    fn record<T>(&self, started: Instant, done: Result<T, StoreError>) -> Result<T, StoreError> {
        self.seconds.record(started.elapsed());
        if let Err(error) = &done {
            let (index, kind) = match error {
                StoreError::Conflict(_) => (0, "conflict"),
                StoreError::Full(_) => (1, "full"),
                StoreError::Unavailable(_) => (2, "unavailable"),
                StoreError::Unknown(_) => (3, "unknown"),
                StoreError::TooCostly(_) => (4, "too_costly"),
                _ => (5, "corrupt"),
            };
            if let Some(errors) = self.errors.get(index) {
                let register = || counter!(ERRORS, "operation" => self.name, "error" => kind);
                errors.get_or_init(register).increment(1);
            }
        }
        done
    }
}

impl Timed {
    /// Returns this store with metrics, for the recorder that is installed now.
    pub(crate) fn around(store: Arc<dyn Store>) -> Arc<dyn Store> {
        let [get, list, commit] = ["get", "list", "commit"].map(Operation::new);
        Arc::new(Self { store, get, list, commit })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Timed {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        let _span = store_span("get");
        let started = Instant::now();
        self.get.record(started, self.store.get(keys, epochs).await)
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let _span = store_span("list");
        let started = Instant::now();
        self.list.record(started, self.store.list(query).await)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let _span = store_span("commit");
        let started = Instant::now();
        self.commit.record(started, self.store.commit(commit).await)
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

//! The methods of the API that a test suite has called.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde::Serialize;

/// The calls of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Calls {
    /// The number of calls over REST.
    pub rest: u64,
    /// The number of calls over gRPC and gRPC-Web.
    pub grpc: u64,
    /// The number of those calls whose reply was an error, injected ones included.
    pub errors: u64,
}

/// The coverage of the API by the calls to all tenants since the start or the last clearing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Coverage {
    /// The number of methods of the API.
    pub total: usize,
    /// The number of methods that were called.
    pub called: usize,
    /// The called methods, such as `ReposService.ListRepos`.
    pub methods: BTreeMap<String, Calls>,
    /// The other methods.
    pub missing: Vec<String>,
}

/// Counts calls.
#[derive(Debug, Default)]
pub(crate) struct Counter(Mutex<BTreeMap<String, Calls>>);

impl Counter {
    pub(crate) fn add(&self, method: &str, is_grpc: bool, is_error: bool) {
        let mut methods = self.0.lock();
        // The methods are those of the API, so their number is bounded.
        let calls = match methods.get_mut(method) {
            Some(calls) => calls,
            None => methods.entry(method.to_owned()).or_default(),
        };
        *(if is_grpc { &mut calls.grpc } else { &mut calls.rest }) += 1;
        calls.errors += u64::from(is_error);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Compares the calls with all methods of the API.
    pub(crate) fn report(&self, all: &BTreeSet<String>) -> Coverage {
        let methods = self.0.lock().clone();
        let missing: Vec<_> = all.iter().filter(|method| !methods.contains_key(*method)).cloned().collect();
        Coverage { total: all.len(), called: all.len() - missing.len(), methods, missing }
    }
}

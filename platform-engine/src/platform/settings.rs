//! The settings of an installation, and data of the embedder.

use std::{
    any::{Any, TypeId},
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use crate::uid::Uid;

/// The settings of an installation.
///
/// Fields will be added: write a value as `Settings { …, ..Settings::default() }`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The suffix of error domains and resource types, such as `example.com`.
    pub service_domain: String,
    /// The base URL of the server for clients, and of URLs in replies and events.
    pub public_url: String,
    /// The identities that are the installation's operators (`docs/api.md`, The operator).
    pub operators: HashSet<Uid>,
    /// The prefix of event types, which a period separates from the name in the kind's table.
    pub event_type_prefix: String,
    /// The capacity of the cache of grants in bytes, approximately.
    pub cached_grants_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_domain: "platform.local".to_owned(),
            public_url: String::new(),
            operators: HashSet::new(),
            event_type_prefix: "dev.chainguard.api".to_owned(),
            cached_grants_bytes: 64 << 20,
        }
    }
}

/// Values of the embedder, at most one of each type.
#[derive(Clone, Default)]
pub(super) struct Data(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Data {
    pub(super) fn insert<T: Any + Send + Sync>(&mut self, data: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(data));
    }

    pub(super) fn get<T: Any>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|data| data.downcast_ref())
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Data").field(&self.0.len()).finish()
    }
}

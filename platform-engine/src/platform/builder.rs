//! The builder of a platform.

use std::{any::Any, sync::Arc};

use arc_swap::ArcSwap;

use super::{Platform, Settings, grants_cache::GrantsCache, settings::Data};
use crate::{
    access::{Authority, FixedGrants},
    aip::page_token::PageKeys,
    clock::Clock,
    entropy::Entropy,
    event::{EventLog, Publisher},
    kind::{Registered, Resource},
    offload::{Inline, Offload},
    seal::SealKeys,
    store::Store,
};

/// Builds a [`Platform`].
#[derive(Debug)]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    authority: Arc<dyn Authority>,
    event_log: Option<Arc<dyn EventLog>>,
    kinds: Vec<Registered>,
    page_keys: Option<PageKeys>,
    seal_keys: Option<SealKeys>,
    offload: Arc<dyn Offload>,
    settings: Settings,
    data: Data,
}

impl Builder {
    fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            store,
            clock,
            entropy,
            authority: Arc::new(FixedGrants::new()),
            event_log: None,
            kinds: Vec::new(),
            page_keys: None,
            seal_keys: None,
            offload: Arc::new(Inline),
            settings: Settings::default(),
            data: Data::default(),
        }
    }

    /// Adds a kind.
    #[must_use]
    pub fn kind<R: Resource>(self) -> Self {
        self.kinds(&[Registered::of::<R>()])
    }

    /// Adds kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Registered]) -> Self {
        self.kinds.extend_from_slice(kinds);
        self
    }

    /// Sets the authority that resolves the grants of callers. By default only operators have access.
    #[must_use]
    pub fn authority(mut self, authority: impl Authority) -> Self {
        self.authority = Arc::new(authority);
        self
    }

    /// Sets the event log, which stores subscriptions and the events that wait for delivery. By default events reach
    /// only the streams of this process.
    #[must_use]
    pub fn event_log(mut self, log: impl EventLog) -> Self {
        self.event_log = Some(Arc::new(log));
        self
    }

    /// Adds a value that hooks and actions of kinds read with [`Platform::data`]. It replaces an earlier value of the
    /// same type.
    #[must_use]
    pub fn data<T: Any + Send + Sync>(mut self, data: T) -> Self {
        self.data.insert(data);
        self
    }

    /// Sets the keys of page tokens. By default the key is random, and page tokens become invalid when the process
    /// ends.
    #[must_use]
    pub fn page_keys(mut self, keys: PageKeys) -> Self {
        self.page_keys = Some(keys);
        self
    }

    /// Sets the keys that seal secrets in the store. By default the key is random, and secrets can no longer be opened
    /// when the process ends.
    #[must_use]
    pub fn seal_keys(mut self, keys: SealKeys) -> Self {
        self.seal_keys = Some(keys);
        self
    }

    /// Sets the executor of CPU-bound work. By default it runs in the calling thread.
    #[must_use]
    pub fn offload(mut self, offload: impl Offload) -> Self {
        self.offload = Arc::new(offload);
        self
    }

    /// Sets the settings of the installation.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Returns the platform.
    pub fn build(self) -> Platform {
        let draw = || {
            let mut key = [0; 32];
            self.entropy.fill(&mut key);
            [(1, key)]
        };
        let page_keys = self.page_keys.unwrap_or_else(|| PageKeys::new(draw()));
        let seal_keys = self.seal_keys.unwrap_or_else(|| SealKeys::new(draw()));
        Platform {
            grants: GrantsCache::new(self.settings.cached_grants_bytes),
            store: self.store,
            clock: self.clock,
            entropy: self.entropy,
            kinds: self.kinds,
            events: Publisher::default(),
            authority: self.authority,
            event_log: self.event_log,
            data: self.data,
            page_keys: ArcSwap::from_pointee(page_keys),
            seal_keys: ArcSwap::from_pointee(seal_keys),
            offload: self.offload,
            settings: self.settings,
        }
    }
}

impl Platform {
    /// Returns a builder of a platform over a store, with a clock and a source of randomness.
    pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
        Builder::new(store, Arc::new(clock), Arc::new(entropy))
    }
}

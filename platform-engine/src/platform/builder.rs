//! The builder of a platform.

use std::{any::Any, borrow::Cow, sync::Arc};

use arc_swap::ArcSwap;
use zeroize::Zeroizing;

use super::{
    Platform, Settings,
    check::{Invalid, check},
    grants_cache::GrantsCache,
    quota_cache::QuotaCache,
    settings::Data,
};
use crate::{
    access::{Authority, Capabilities, Capability, FixedGrants},
    aip::page_token::PageKeys,
    blob::{BlobStore, MemoryBlobs},
    clock::Clock,
    entropy::Entropy,
    event::{EventLog, Publisher, Wake},
    kind::{Authorization, Registered, Resource},
    offload::{Inline, Offload},
    quota::QuotaSource,
    seal::SealKeys,
    store::Store,
    watch::hub::Hub,
    write::Dependents,
};

/// Builds a [`Platform`].
#[derive(Debug)]
pub struct Builder {
    store: Arc<dyn Store>,
    blobs: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    authority: Arc<dyn Authority>,
    event_log: Option<Arc<dyn EventLog>>,
    wake: Option<Arc<dyn Wake>>,
    quotas: Option<Arc<dyn QuotaSource>>,
    kinds: Vec<Registered>,
    capabilities: Vec<Capability>,
    descriptors: Vec<Cow<'static, [u8]>>,
    roles: Option<Vec<&'static str>>,
    page_keys: Option<PageKeys>,
    seal_keys: Option<SealKeys>,
    ephemeral_keys: bool,
    offload: Arc<dyn Offload>,
    settings: Settings,
    data: Data,
}

impl Builder {
    fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            store,
            blobs: Arc::new(MemoryBlobs::default()),
            clock,
            entropy,
            authority: Arc::new(FixedGrants::new()),
            event_log: None,
            wake: None,
            quotas: None,
            kinds: Vec::new(),
            capabilities: Vec::new(),
            descriptors: Vec::new(),
            roles: None,
            page_keys: None,
            seal_keys: None,
            ephemeral_keys: false,
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

    /// Adds capabilities that roles may contain, in addition to those that the methods and actions of the kinds
    /// require.
    #[must_use]
    pub fn capabilities(mut self, capabilities: impl IntoIterator<Item = Capability>) -> Self {
        self.capabilities.extend(capabilities);
        self
    }

    /// Sets the names of the built-in roles that the [authority](Builder::authority) knows: no capability can be
    /// [in](Capability::in_roles) another. Without them, these names are not checked.
    #[must_use]
    pub fn roles(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.roles = Some(names.into_iter().collect());
        self
    }

    /// Adds the protobuf descriptors of kinds: an encoded `google.protobuf.FileDescriptorSet` with its imports. gRPC
    /// serves the kinds whose services are described.
    #[must_use]
    pub fn descriptors(mut self, set: impl Into<Cow<'static, [u8]>>) -> Self {
        self.descriptors.push(set.into());
        self
    }

    /// Sets the authority, which resolves the grants of callers. By default, only operators may do anything.
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

    /// Sets how other processes over the same store are notified of events to deliver. By default, no other process uses
    /// the store.
    #[must_use]
    pub fn wake(mut self, wake: Arc<dyn Wake>) -> Self {
        self.wake = Some(wake);
        self
    }

    /// Sets the source of quotas. By default, organizations have no quotas.
    #[must_use]
    pub fn quotas(mut self, quotas: impl QuotaSource) -> Self {
        self.quotas = Some(Arc::new(quotas));
        self
    }

    /// Adds a value that hooks and actions of kinds read with [`Platform::data`]. It replaces an earlier value of the
    /// same type.
    #[must_use]
    pub fn data<T: Any + Send + Sync>(mut self, data: T) -> Self {
        self.data.insert(data);
        self
    }

    /// Sets the keys of page tokens. Without them the platform draws random ones, and page tokens end with the process.
    #[must_use]
    pub fn page_keys(mut self, keys: PageKeys) -> Self {
        self.page_keys = Some(keys);
        self
    }

    /// Sets the keys that seal secrets in the store, such as the client secrets of identity providers.
    #[must_use]
    pub fn seal_keys(mut self, keys: SealKeys) -> Self {
        self.seal_keys = Some(keys);
        self
    }

    /// Seals secrets with random keys that end with the process. Secrets in a store that outlives the process can then
    /// no longer be opened, so this is for tests and for stores in memory.
    #[must_use]
    pub fn ephemeral_keys(mut self) -> Self {
        self.ephemeral_keys = true;
        self
    }

    /// Sets the storage of blobs. By default, they are in memory, and lost when the process ends.
    ///
    /// A platform over a store that outlives the process needs blobs that do so too, because resources name them.
    #[must_use]
    pub fn blobs(mut self, blobs: Arc<dyn BlobStore>) -> Self {
        self.blobs = blobs;
        self
    }

    /// Sets the executor of CPU-bound work. By default, the calling thread runs it.
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
    ///
    /// # Errors
    /// [`BuildError`] when the table of a kind breaks a rule, when two capabilities have the same number, identifier,
    /// name or bit, when a capability is in an unknown role, when the descriptors are not a
    /// `google.protobuf.FileDescriptorSet`, and when there are no keys that seal secrets.
    pub fn build(self) -> Result<Platform, BuildError> {
        let invalid = check(&self.kinds);
        if !invalid.is_empty() {
            return Err(BuildError::Kinds(invalid));
        }
        let required = self.kinds.iter().flat_map(|registered| {
            let methods = registered.kind.methods.iter().map(|method| method.capabilities);
            methods.chain(registered.actions.iter().map(|action| match action.authorization {
                Authorization::At(_, required)
                | Authorization::Anywhere(required)
                | Authorization::FiltersResult(required) => required,
                Authorization::Public | Authorization::Authenticated | Authorization::As(..) => &[],
            }))
        });
        let capabilities = Capabilities::new(self.capabilities.into_iter().chain(required.flatten().copied()))
            .map_err(|(one, other)| BuildError::Capabilities(one, other))?;
        if let Some(known) = self.roles {
            let of = |capability: &Capability| capability.roles().iter().map(|role| (*capability, *role)).collect();
            let in_roles = capabilities.own().iter().flat_map(|capability| -> Vec<_> { of(capability) });
            let unknown: Vec<_> = in_roles.filter(|(_, role)| !known.contains(role)).collect();
            if !unknown.is_empty() {
                return Err(BuildError::Roles { unknown, known });
            }
        }
        if let Some(index) = self.descriptors.iter().position(|set| !is_descriptor_set(set)) {
            return Err(BuildError::Descriptors(index));
        }
        if self.seal_keys.is_none() && !self.ephemeral_keys {
            return Err(BuildError::NoSealKeys);
        }
        let draw = || {
            let mut key = Zeroizing::new([0; 32]);
            self.entropy.fill(&mut *key);
            [(1, key)]
        };
        let page_keys = self.page_keys.unwrap_or_else(|| PageKeys::new(draw()));
        let seal_keys = self.seal_keys.unwrap_or_else(|| SealKeys::new(draw()));
        Ok(Platform {
            grants: GrantsCache::new(self.settings.cached_grants_bytes),
            quotas: QuotaCache::new(self.quotas, self.kinds.iter().map(|registered| registered.kind)),
            hub: Hub::new(self.kinds.iter().map(|registered| registered.kind)),
            dependents: Dependents::new(self.kinds.iter().map(|registered| registered.kind)),
            store: self.store,
            blobs: self.blobs,
            clock: self.clock,
            entropy: self.entropy,
            kinds: self.kinds,
            capabilities: Arc::new(capabilities),
            descriptors: self.descriptors,
            events: Publisher::new(self.wake),
            authority: self.authority,
            event_log: self.event_log,
            data: self.data,
            page_keys: ArcSwap::from_pointee(page_keys),
            seal_keys: ArcSwap::from_pointee(seal_keys),
            offload: self.offload,
            settings: self.settings,
        })
    }
}

/// The reason why a [`Platform`] cannot be built.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Tables of kinds break these rules.
    #[error("invalid tables of kinds: {}", list(.0))]
    Kinds(Vec<Invalid>),
    /// Two capabilities have the same number, identifier, name or bit.
    #[error(
        "the capabilities {} (number {}, {}) and {} (number {}, {}) clash: each number, identifier and name must be unique",
        .0.name(), .0.number(), .0.id(), .1.name(), .1.number(), .1.id()
    )]
    Capabilities(Capability, Capability),
    /// Capabilities are in roles that are not built in.
    #[error("capabilities are in unknown roles: {}; the built-in roles are {}", in_roles(.unknown), .known.join(", "))]
    Roles {
        /// The capabilities, each with an unknown role.
        unknown: Vec<(Capability, &'static str)>,
        /// The names of the built-in roles.
        known: Vec<&'static str>,
    },
    /// The set of descriptors with this index, in the order of the calls of [`Builder::descriptors`], cannot be read.
    #[error(
        "the {}. set of descriptors is not an encoded `google.protobuf.FileDescriptorSet`: write it again, with \
         `platform_grpc::proto::update` for example", .0 + 1
    )]
    Descriptors(usize),
    /// Neither [`Builder::seal_keys`] nor [`Builder::ephemeral_keys`] was called.
    #[error(
        "no keys to seal secrets with: call `seal_keys`, or `ephemeral_keys` if secrets need not outlive the process"
    )]
    NoSealKeys,
}

fn list(invalid: &[Invalid]) -> String {
    invalid.iter().map(Invalid::to_string).collect::<Vec<_>>().join("; ")
}

fn in_roles(unknown: &[(Capability, &str)]) -> String {
    let each = unknown.iter().map(|(capability, role)| format!("{} in `{role}`", capability.name()));
    each.collect::<Vec<_>>().join(", ")
}

/// Returns whether these bytes have the form of a `google.protobuf.FileDescriptorSet`: at least one file, each the field 1
/// with its length. gRPC decodes the files themselves; an embedder without it does not need a library for protobuf.
fn is_descriptor_set(mut set: &[u8]) -> bool {
    /// The field 1 with a length.
    const FILE: u8 = 0x0a;
    let mut files = 0_usize;
    while let Some((FILE, rest)) = set.split_first().map(|(tag, rest)| (*tag, rest)) {
        // Seven bits of each byte, the lowest first; the last byte has the highest bit clear.
        let Some(last) = rest.iter().take(5).position(|byte| byte & 0x80 == 0) else { return false };
        let Some((digits, rest)) = rest.split_at_checked(last + 1) else { return false };
        let length = digits.iter().rev().fold(0_usize, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let Some(rest) = rest.get(length..) else { return false };
        (set, files) = (rest, files + 1);
    }
    set.is_empty() && files > 0
}

impl Platform {
    /// Returns a builder of a platform over a store, with a clock and a source of randomness.
    pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
        Builder::new(store, Arc::new(clock), Arc::new(entropy))
    }
}

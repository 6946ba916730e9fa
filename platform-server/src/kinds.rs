//! The kinds that a server has.

use platform_engine::{idempotency, kind::Registered, platform::Builder, shape};
use platform_http::openapi::Info;
use platform_services::openapi::INFO;

/// The kinds of a server: those of Platform API v2 with version 1 of the API, and kinds of your own.
///
/// They have REST, gRPC, the console, the OpenAPI document, events, audit, backups, `check`, and `export` and `import
/// store`.
///
/// ```
/// use platform_server::Kinds;
/// # use platform_engine::kind::Registered;
/// # const OWN: &[Registered] = &[];
/// # const DESCRIPTORS: &[u8] = &[];
/// # const INFO: platform_http::openapi::Info<'_> = platform_http::openapi::Info::new("Desk API", "1.0.0");
///
/// // const OWN: &[Registered] = &[Registered::of::<Ticket>()];
/// let kinds = Kinds::with(OWN).descriptors(DESCRIPTORS).info(INFO);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Kinds {
    own: &'static [Registered],
    descriptors: Option<&'static [u8]>,
    info: Info<'static>,
}

impl Default for Kinds {
    /// Returns the kinds of Platform API v2 alone.
    fn default() -> Self {
        Self::with(&[])
    }
}

impl Kinds {
    /// Returns the kinds of Platform API v2, and these.
    pub const fn with(own: &'static [Registered]) -> Self {
        Self { own, descriptors: None, info: INFO }
    }

    /// Sets the protobuf descriptors of your kinds, as [`Builder::descriptors`] takes them. gRPC serves no kinds without.
    #[must_use]
    pub const fn descriptors(mut self, set: &'static [u8]) -> Self {
        self.descriptors = Some(set);
        self
    }

    /// Sets the title, version and description of the service; by default those of Platform API v2. They are in the
    /// OpenAPI document, and the title is in the console.
    #[must_use]
    pub const fn info(mut self, info: Info<'static>) -> Self {
        self.info = info;
        self
    }

    /// Adds your kinds to a platform that has the others.
    pub(crate) fn add_to(self, platform: Builder) -> Builder {
        let platform = platform.kinds(self.own);
        self.descriptors.into_iter().fold(platform, Builder::descriptors)
    }

    /// Returns your kinds.
    pub(crate) const fn own(self) -> &'static [Registered] {
        self.own
    }

    /// Returns the kinds whose records a store has, with the [shapes](shape) of your kinds and the replies that are kept
    /// for [idempotency keys](idempotency). The services of version 1 have none.
    pub(crate) fn stored(self) -> impl Iterator<Item = &'static Registered> {
        const INTERNAL: &[Registered] = &[shape::RECORDS, idempotency::record::RECORDS];
        platform_core::resources::KINDS.iter().chain(platform_v1::resources::KINDS).chain(self.own).chain(INTERNAL)
    }

    /// Returns [`Kinds::stored`] in the order in which a file has them: by name.
    pub(crate) fn by_name(self) -> Vec<&'static Registered> {
        let mut kinds: Vec<_> = self.stored().collect();
        kinds.sort_by_key(|registered| registered.kind.name);
        kinds
    }

    pub(crate) const fn service(self) -> Info<'static> {
        self.info
    }
}

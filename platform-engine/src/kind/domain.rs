//! Domains: parts of the API with paths, protobuf packages and errors of their own.

/// A part of the API with a path prefix, a protobuf package and an error domain of its own, such as `registry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Domain {
    /// The first segment of paths, and the first label of the domain of errors.
    pub name: &'static str,
    /// The protobuf package without the version, such as `chainguard.platform.registry`.
    pub package: &'static str,
    /// The equivalent versions: the second segment of paths and the end of the protobuf package. Documents and error
    /// texts use the first, and events that of the call.
    pub versions: &'static [&'static str],
    /// Whether the protobuf package has no version: version 1 of an API that had no other when it was published.
    pub unversioned: bool,
    /// The prefix of the types of events; `None` for the installation's
    /// [`event_type_prefix`](crate::platform::Settings::event_type_prefix).
    pub event_prefix: Option<&'static str>,
    /// Services of the published API that this implementation leaves out.
    pub left_out: &'static [LeftOut],
}

/// Services of a published API that an implementation leaves out. Calls of them fail with UNIMPLEMENTED and the reason,
/// so that a caller does not search for a wrong path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// The start of their REST paths, such as `/registry/v2beta1/overlays`.
    pub rest: &'static str,
    /// The start of their gRPC paths, such as `/chainguard.platform.registry.v2beta1.Overlays`.
    pub grpc: &'static str,
    /// The reason.
    pub reason: &'static str,
}

impl Domain {
    /// Returns a domain in version `v1`: the path prefix, and the protobuf package without the version.
    pub const fn new(name: &'static str, package: &'static str) -> Self {
        Self { name, package, versions: &["v1"], unversioned: false, event_prefix: None, left_out: &[] }
    }

    /// Sets the versions, of which there must be at least one.
    #[must_use]
    pub const fn versions(mut self, versions: &'static [&'static str]) -> Self {
        self.versions = versions;
        self
    }

    /// Leaves the version out of the protobuf package.
    #[must_use]
    pub const fn unversioned_package(mut self) -> Self {
        self.unversioned = true;
        self
    }

    /// Sets the prefix of the types of events, such as `com.example.api`.
    #[must_use]
    pub const fn event_prefix(mut self, prefix: &'static str) -> Self {
        self.event_prefix = Some(prefix);
        self
    }

    /// Sets the services that are left out.
    #[must_use]
    pub const fn leaving_out(mut self, services: &'static [LeftOut]) -> Self {
        self.left_out = services;
        self
    }

    /// Returns why the service of a REST or gRPC path is left out; `None` for all other paths.
    pub fn why_left_out(&self, path: &str) -> Option<&'static str> {
        let covers = |service: &&LeftOut| path.starts_with(service.rest) || path.starts_with(service.grpc);
        self.left_out.iter().find(covers).map(|service| service.reason)
    }

    /// Returns the first version.
    pub const fn version(&self) -> &'static str {
        match self.versions {
            [first, ..] => first,
            [] => "v1",
        }
    }

    /// Returns the protobuf package with the version, such as `chainguard.platform.registry.v2`.
    pub fn versioned_package(&self) -> String {
        if self.unversioned { self.package.to_owned() } else { format!("{}.{}", self.package, self.version()) }
    }

    /// Returns the version that has this protobuf package; `None` for a package of another domain.
    pub fn version_of_package(&self, package: &str) -> Option<&'static str> {
        if self.unversioned {
            return (package == self.package).then(|| self.version());
        }
        self.find_version(package.strip_prefix(self.package)?.strip_prefix('.')?)
    }

    /// Returns the version of this name, if the domain has it.
    pub fn find_version(&self, version: &str) -> Option<&'static str> {
        self.versions.iter().copied().find(|known| *known == version)
    }

    /// Returns the domain with this version as the first; `None` if it has no such version.
    pub(crate) fn in_version(mut self, version: &str) -> Option<Self> {
        let at = self.versions.iter().position(|known| *known == version)?;
        self.versions = self.versions.get(at..)?;
        Some(self)
    }
}

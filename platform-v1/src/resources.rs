//! The kinds that only version 1 shows, each in its own file. Their records are in the domains of `platform-core`.
//!
//! Version 2 has no method for them. Most are written by imports. A kind that a kind of `platform-core` reads or writes
//! is not here but there, even if only version 1 shows it:
//! [`RegistrySettings`](platform_core::resources::registry::RegistrySettings) and
//! [`TagMove`](platform_core::resources::registry::TagMove).

use platform_engine::kind::Registered;

pub mod build_report;
pub mod chart;
pub mod deployment;
pub mod entitlement;
pub mod package_versions;
pub mod raw_vulnerability_report;
pub mod sync_status;
pub mod vulnerability_report;

pub use build_report::BuildReport;
pub use chart::Chart;
pub use deployment::Deployment;
pub use entitlement::Entitlement;
pub use package_versions::PackageVersions;
pub use raw_vulnerability_report::RawVulnerabilityReport;
pub use sync_status::SyncStatus;
pub use vulnerability_report::VulnerabilityReport;

/// All kinds of this crate.
pub const KINDS: &[Registered] = &[
    Registered::of::<Deployment>(),
    Registered::of::<SyncStatus>(),
    Registered::of::<Chart>(),
    Registered::of::<PackageVersions>(),
    Registered::of::<VulnerabilityReport>(),
    Registered::of::<RawVulnerabilityReport>(),
    Registered::of::<BuildReport>(),
    Registered::of::<Entitlement>(),
];

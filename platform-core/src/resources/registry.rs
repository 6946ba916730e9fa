//! Container repos, their readmes, tags, images and charts, and reports about the images.

pub mod build_report;
pub mod chart;
pub mod deployment;
mod digest;
pub(crate) mod end_of_life;
pub mod findings;
pub mod image;
pub mod package_versions;
pub mod raw_vulnerability_report;
pub mod registry_settings;
pub mod repo;
pub mod repo_follower;
pub mod repo_readme;
pub mod sbom;
pub mod sync_status;
pub mod tag;
pub mod tag_move;
pub mod vulnerability_report;

pub use build_report::BuildReport;
pub use chart::Chart;
pub use deployment::Deployment;
pub use digest::{Digest, InvalidDigest};
pub use findings::Findings;
pub use image::Image;
pub use package_versions::PackageVersions;
pub use raw_vulnerability_report::RawVulnerabilityReport;
pub use registry_settings::RegistrySettings;
pub use repo::Repo;
pub use repo_follower::RepoFollower;
pub use repo_readme::RepoReadme;
pub use sbom::Sbom;
pub use sync_status::SyncStatus;
pub use tag::Tag;
pub use tag_move::TagMove;
pub use vulnerability_report::VulnerabilityReport;

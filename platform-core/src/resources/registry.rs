//! Container repos, their readmes, tags and images, and what is known of the images.

pub mod build_report;
mod digest;
pub(crate) mod end_of_life;
pub mod findings;
pub mod image;
pub mod package_versions;
pub mod raw_vulnerability_report;
pub mod repo;
pub mod repo_follower;
pub mod repo_readme;
pub mod tag;
pub mod vulnerability_report;

pub use build_report::BuildReport;
pub use digest::{Digest, InvalidDigest};
pub use findings::Findings;
pub use image::Image;
pub use package_versions::PackageVersions;
pub use raw_vulnerability_report::RawVulnerabilityReport;
pub use repo::Repo;
pub use repo_follower::RepoFollower;
pub use repo_readme::RepoReadme;
pub use tag::Tag;
pub use vulnerability_report::VulnerabilityReport;

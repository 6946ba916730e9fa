//! Container repos, their readmes, tags, images and charts.

pub mod chart;
pub mod deployment;
mod digest;
pub mod image;
pub mod registry_settings;
pub mod repo;
pub mod repo_follower;
pub mod repo_readme;
pub mod sbom;
pub mod sync_status;
pub mod tag;
pub mod tag_move;

pub use chart::Chart;
pub use deployment::Deployment;
pub use digest::{Digest, InvalidDigest};
pub use image::Image;
pub use registry_settings::RegistrySettings;
pub use repo::Repo;
pub use repo_follower::RepoFollower;
pub use repo_readme::RepoReadme;
pub use sbom::Sbom;
pub use sync_status::SyncStatus;
pub use tag::Tag;
pub use tag_move::TagMove;

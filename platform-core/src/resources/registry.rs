//! Container repos, their readmes, tags, images and charts.

pub mod chart;
mod digest;
pub mod image;
pub mod repo;
pub mod repo_follower;
pub mod repo_readme;
pub mod sbom;
pub mod tag;

pub use chart::Chart;
pub use digest::{Digest, InvalidDigest};
pub use image::Image;
pub use repo::Repo;
pub use repo_follower::RepoFollower;
pub use repo_readme::RepoReadme;
pub use sbom::Sbom;
pub use tag::Tag;

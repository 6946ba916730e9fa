//! Container repos, their readmes, tags and images. Charts, reports and other data about images that only version 1 shows
//! are in the crate `platform-v1`.

mod digest;
pub mod image;
pub mod registry_settings;
pub mod repo;
pub mod repo_follower;
pub mod repo_readme;
pub mod tag;
pub mod tag_move;

pub use digest::{Digest, InvalidDigest};
pub use image::Image;
pub use registry_settings::RegistrySettings;
pub use repo::Repo;
pub use repo_follower::RepoFollower;
pub use repo_readme::RepoReadme;
pub use tag::Tag;
pub use tag_move::TagMove;

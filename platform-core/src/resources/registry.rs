//! Container repos, their readmes and tags.

pub mod repo;
pub mod repo_readme;
pub mod tag;

pub use repo::Repo;
pub use repo_readme::RepoReadme;
pub use tag::Tag;

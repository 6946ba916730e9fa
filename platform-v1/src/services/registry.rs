//! Repos, their tags and images, and data about them.

use platform_engine::kind::{Action, Field, Kind, Registered};

use super::REGISTRY;

mod charts;
mod images;
mod sbom;

mod deployments;
mod repos;
mod settings;
mod sync_statuses;
mod tags;

pub mod apko;
mod build_reports;
mod eol_tags;
mod package_versions;
mod reports;
pub mod vulnerabilities;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("RegistryV1", "registry", "Registry", REGISTRY),
    &[
        repos::CREATE,
        repos::UPDATE,
        repos::LIST,
        repos::COUNT_BY_SOURCE,
        repos::DELETE,
        tags::CREATE,
        tags::UPDATE,
        tags::DELETE,
        tags::LIST,
        tags::SUMMARY,
        tags::HISTORY,
        tags::UPDATE_STATUS,
        sync_statuses::GET,
        sync_statuses::LIST,
        deployments::CREATE,
        deployments::UPDATE,
        deployments::GET,
        settings::GET,
        settings::UPDATE,
        // Images and their bills of materials.
        images::GET_SBOM,
        images::GET_RAW_SBOM,
        images::GET_IMAGE_CONFIG,
        Action::action_as::<images::Archs>("GetArchs", "repos/{repoId=**}/digests/{digest=*}/architectures"),
        Action::action_as::<images::Size>("GetSize", "repos/{repoId=**}/digests/{digest=*}/size"),
        images::LIST_MANIFEST_METADATA,
        images::GET_MANIFEST_DIGEST_COUNT,
        // Charts.
        charts::GET_HELM,
        charts::GET_CHART,
        charts::LIST_CHARTS_BY_IMAGE_REPO,
        // Data about tags and images.
        eol_tags::LIST,
        reports::GET,
        package_versions::GET,
        build_reports::LIST,
        build_reports::STATUS,
    ],
);

const REPO_ID: Field = Field::string("repoId").about("The uid of the repo.").required();

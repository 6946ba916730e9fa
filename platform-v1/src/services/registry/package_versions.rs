//! Versions of packages.

use platform_core::capabilities::cap;
use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, Field, Resource, Type},
    timestamp::Timestamp,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::resources::{
    PackageVersions,
    package_versions::{PackageVersion, VersionSource},
};

pub(super) const GET: Action =
    Action::get("GetPackageVersionMetadata", "versions/{package=**}", |cx, request| Box::pin(get(cx, request)))
        .request(&[Field::string("package").about("The name of the package, such as `python`.").required()])
        .response(&[
            Field::new("eolVersions", Type::List(&Type::Message(VERSION)))
                .about("The versions at the end of their lives, in the order of the source."),
            Field::string("lastUpdatedTimestamp").about("When the versions were last updated."),
            Field::string("latestVersion").about("The latest version."),
            Field::new("versions", Type::List(&Type::Message(VERSION)))
                .about("The other versions, in the order of the source."),
            Field::new("gracePeriodMonths", Type::Int32)
                .about("For how many months a tag can be kept after the end of its version's life."),
        ])
        .authorization(Authorization::Anywhere(&[cap("version.list")]));

/// The fields of a version.
pub(super) const VERSION: &[Field] = &[
    Field::string("eolDate").about("The first day after the end of its life, such as `2028-10-31`."),
    Field::bool("exists").about("Whether there is a package of it."),
    Field::bool("fips").about("Whether there is a FIPS variant of it."),
    Field::string("legacyLts").about("The former text form of `lts`."),
    Field::bool("lts").about("Whether it has long-term support."),
    Field::string("releaseDate").about("The day of its release, such as `2023-10-02`."),
    Field::string("version").about("The version, such as `3.12`."),
    Field::bool("eolBroken").about("Whether it cannot be built any longer."),
    Field::string("latestVersion").about("Its latest release, such as `3.12.4`."),
    Field::message(
        "versionSource",
        &[
            Field::string("ref").about("The reference, such as a tag."),
            Field::string("sha").about("The hash of the commit."),
        ],
    )
    .about("The source of its package."),
];

/// A version with all fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownVersion<'v> {
    eol_date: &'v str,
    exists: bool,
    fips: bool,
    legacy_lts: &'v str,
    lts: bool,
    release_date: &'v str,
    version: &'v str,
    eol_broken: bool,
    latest_version: &'v str,
    version_source: Option<&'v VersionSource>,
}

impl<'v> From<&'v PackageVersion> for ShownVersion<'v> {
    fn from(version: &'v PackageVersion) -> Self {
        Self {
            eol_date: &version.eol_date,
            exists: version.exists,
            fips: version.fips,
            legacy_lts: &version.legacy_lts,
            lts: version.lts,
            release_date: &version.release_date,
            version: &version.version,
            eol_broken: version.eol_broken,
            latest_version: &version.latest_version,
            version_source: version.source.as_ref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'v> {
    eol_versions: Vec<ShownVersion<'v>>,
    last_updated_timestamp: Option<Timestamp>,
    latest_version: &'v str,
    versions: Vec<ShownVersion<'v>>,
    grace_period_months: i32,
}

async fn get(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let package = request.get("package").and_then(Value::as_str).unwrap_or_default();
    let found = cx.read::<PackageVersions>(&PackageVersions::uid_of(package)).await?;
    let found = found.ok_or_else(|| Error::not_found(PackageVersions::KIND, package))?;
    let now = cx.now();
    let (ended, others): (Vec<_>, Vec<_>) = found.versions.iter().partition(|version| version.has_ended(now));
    let metadata = Metadata {
        eol_versions: ended.into_iter().map(ShownVersion::from).collect(),
        last_updated_timestamp: found.update_time,
        latest_version: &found.latest_version,
        versions: others.into_iter().map(ShownVersion::from).collect(),
        grace_period_months: found.grace_period_months,
    };
    serde_json::to_value(metadata).map_err(Error::internal)
}

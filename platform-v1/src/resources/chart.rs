//! Helm charts in OCI form (`docs/api.md`, Charts).

use std::collections::BTreeMap;

use platform_core::{
    capabilities::cap,
    resources::{
        domain, field,
        registry::{Digest, Repo},
    },
};
use platform_engine::{
    access::Capability,
    context::Context,
    error::{Error, Result, Violations},
    kind::{DerivedKey, Field, Imported, Kind, Parent, Resource, Type, derived_uid},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantNames;

use crate::sbom::nullable;

/// A Helm chart of a repo. Our own kind: the contract has methods that read charts, but none that write them.
///
/// Written by [`Platform::put`](platform_engine::platform::Platform::put) with the repo as parent, one per digest. Its texts are
/// [blobs](platform_engine::blob).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Chart {
    /// The uid of the repo and a segment that is derived from the digest when the chart is written.
    pub uid: Uid,
    /// The digest of the manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: Digest,
    /// The blob with the manifest.
    pub manifest: Digest,
    /// The blob with the configuration, which is [`Metadata`] in JSON.
    pub config: Digest,
    /// The blob with the archive.
    pub content: Digest,
    /// The blob with `Chart.yaml`.
    pub raw: Digest,
    /// The blob with `values.yaml`; empty if the chart has none.
    pub values: Digest,
    /// The blob with `CHANGELOG.md`; empty if the chart has none.
    pub changelog: Digest,
    /// The images that the chart declares, in its order.
    pub images: Vec<ChartImage>,
    /// When it was first written.
    pub create_time: Option<Timestamp>,
    /// When it was last written with a change.
    pub update_time: Option<Timestamp>,
}

/// An image that a chart declares.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChartImage {
    /// The name within the chart; may be empty.
    pub name: String,
    /// The reference, such as `registry.example.com/acme/nginx:1.27`.
    pub image: String,
    /// Whether the chart needs it.
    pub requirement: Requirement,
}

/// Whether a chart needs an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Requirement {
    /// Not specified.
    #[default]
    RequirementUnspecified,
    /// Always.
    RequirementRequired,
    /// With some values only.
    RequirementOptional,
}

/// The metadata of a chart: the fields of `Chart.yaml`, which the configuration of the OCI form has as JSON. Unknown
/// fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name of the chart.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The version of the chart.
    #[serde(deserialize_with = "nullable")]
    pub version: String,
    /// The version of the application.
    #[serde(deserialize_with = "nullable")]
    pub app_version: String,
    /// A description.
    #[serde(deserialize_with = "nullable")]
    pub description: String,
    /// The charts that it depends on.
    #[serde(deserialize_with = "nullable")]
    pub dependencies: Vec<Dependency>,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
}

/// A chart that another depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dependency {
    /// The name of the chart.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The range of versions.
    #[serde(deserialize_with = "nullable")]
    pub version: String,
    /// The repository of the chart.
    #[serde(deserialize_with = "nullable")]
    pub repository: String,
}

impl Resource for Chart {
    const KIND: &'static Kind = &Kind::new("Chart", "charts", "ChartsService", domain::REGISTRY)
        .parent(Parent::Of(Repo::KIND))
        .fields(&[
            Field::UID,
            field::digest("digest").about("The digest of the chart's manifest.").required(),
            field::digest("manifest").about("The blob with the manifest.").blob(),
            field::digest("config").about("The blob with the metadata of the chart in JSON.").required().blob(),
            field::digest("content").about("The blob with the archive.").blob(),
            field::digest("raw").about("The blob with `Chart.yaml`.").required().blob(),
            field::digest("values").about("The blob with `values.yaml`.").blob(),
            field::digest("changelog").about("The blob with `CHANGELOG.md`.").blob(),
            Field::new(
                "images",
                Type::List(&Type::Message(&[
                    Field::string("name").about("The name within the chart."),
                    Field::string("image").about("The reference of the image.").required(),
                    Field::enumeration("requirement", Requirement::VARIANTS).about("Whether the chart needs it."),
                ])),
            )
            .about("The images that the chart declares.")
            .max_items(MAX_IMAGES),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .keys(&[DerivedKey::new(IMAGE_NAME, image_names)])
        .cascade();

    fn example() -> Self {
        let digest = |digit: &str| Digest::opaque(format!("sha256:{}", digit.repeat(64)));
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210"),
            digest: digest("1"),
            manifest: digest("1"),
            config: digest("2"),
            content: digest("3"),
            raw: digest("4"),
            values: digest("5"),
            changelog: digest("6"),
            images: vec![ChartImage {
                name: "server".to_owned(),
                image: "registry.example.com/acme/nginx:1.27".to_owned(),
                requirement: Requirement::RequirementRequired,
            }],
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

impl Imported for Chart {
    const WRITE: &'static [Capability] = &[cap("manifest.create"), cap("manifest.update")];

    fn uid_in(&self, repo: &str) -> Uid {
        Self::uid_of(repo, &self.digest)
    }

    fn complete(&mut self, uid: Uid, _: &mut Violations) {
        self.uid = uid;
    }
}

/// The maximum number of images of a chart. Our choice.
const MAX_IMAGES: usize = 1000;

/// The key of charts by the names of their images, without registry, organization, tag and digest.
pub(crate) const IMAGE_NAME: &str = "imageName";

impl Chart {
    /// Returns the uid of a repo's chart with this digest.
    pub fn uid_of(repo: &str, digest: &str) -> Uid {
        derived_uid(repo, &[digest])
    }

    /// Returns the chart of a repo with this digest.
    ///
    /// # Errors
    /// NOT_FOUND for the repo, then for the chart.
    pub(crate) async fn find(cx: &Context<'_>, repo: &Uid, digest: &str) -> Result<Self> {
        match cx.read::<Self>(&Self::uid_of(repo, digest)).await?.filter(|chart| *chart.digest == *digest) {
            Some(chart) => Ok(chart),
            None if cx.read::<Repo>(repo).await?.is_none() => Err(Error::not_found(Repo::KIND, repo.as_str())),
            None => Err(Error::not_found(Self::KIND, digest)),
        }
    }
}

impl Metadata {
    /// Parses the configuration of a chart in OCI form.
    ///
    /// # Errors
    /// When it is not a JSON object of this form.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }
}

fn image_names(body: &Value) -> Vec<KeyValue> {
    let images = body.get("images").and_then(Value::as_array).into_iter().flatten();
    let images = images.filter_map(|image| image.get("image")?.as_str());
    images.filter_map(|image| repository(image).pop()).map(KeyValue::text).collect()
}

/// Returns the segments of the path of an image reference, without registry, tag and digest.
pub(crate) fn repository(image: &str) -> Vec<&str> {
    let (image, _) = image.split_once('@').unwrap_or((image, ""));
    let image = match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    };
    let mut segments: Vec<_> = image.split('/').collect();
    let is_host = |first: &&str| first.contains(['.', ':']) || *first == "localhost";
    if segments.len() > 1 && segments.first().is_some_and(is_host) {
        segments.remove(0);
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_registry_a_path_a_tag_and_a_digest() {
        for (image, path) in [
            ("nginx", "nginx"),
            ("nginx:1.27", "nginx"),
            ("acme/nginx@sha256:0", "acme/nginx"),
            ("registry.example.com/acme/nginx:1.27@sha256:0", "acme/nginx"),
            ("localhost:5000/nginx", "nginx"),
            ("localhost/a/b/c:1", "a/b/c"),
            ("a.b", "a.b"),
            ("", ""),
        ] {
            assert_eq!(repository(image).join("/"), path, "{image}");
        }
    }
}

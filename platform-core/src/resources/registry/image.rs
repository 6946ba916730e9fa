//! Images: metadata of the images that tags refer to (`docs/api.md`, Images).

use std::collections::HashSet;

use platform_engine::{
    access::Capability,
    context::Context,
    error::{Error, Result, Violations},
    kind::{Action, Authorization, Field, Imported, Kind, Parent, Resource, Type, derived_uid},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::super::domain;
use crate::capabilities::cap;

use super::{super::field, Digest, Repo};

/// An image of a repo, for one or several architectures. Our own kind: the contract has methods that read images, but
/// none that write them.
///
/// Written by [`Platform::put`](platform_engine::platform::Platform::put) with the repo as parent, one per digest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// The uid of the repo and a segment that is derived from the digest when the image is written.
    pub uid: Uid,
    /// The digest of the index or manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: Digest,
    /// Whether the digest is that of an index of images for several architectures, and not of a single image's
    /// manifest.
    pub index: bool,
    /// The image for each architecture; exactly one if this is not an index.
    pub platforms: Vec<ImagePlatform>,
    /// The blobs that were kept of it, in the order in which they are preferred.
    pub blobs: Vec<ImageBlob>,
    /// When it was first written.
    pub create_time: Option<Timestamp>,
    /// When it was last written with a change.
    pub update_time: Option<Timestamp>,
}

/// An image for one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePlatform {
    /// The OCI name of the architecture, such as `amd64` or `arm64`.
    pub architecture: String,
    /// The digest of the manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: Digest,
    /// The size of its layers and its config in bytes.
    #[serde(with = "platform_engine::json::int64")]
    pub size: i64,
    /// The installed packages, from the bill of materials; empty if there is none.
    pub packages: Vec<ImagePackage>,
}

/// A package that is installed in an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePackage {
    /// The package's name.
    pub name: String,
    /// The package's version, such as `3.1.0-r0`.
    pub version: String,
    /// The package whose build made it; empty if that is the package itself or unknown.
    pub origin: String,
}

const PLATFORM: &[Field] = &[
    Field::string("architecture").about("The architecture, such as `amd64`.").required(),
    field::digest("digest").about("The digest of the image for the architecture."),
    Field::new("size", Type::Int64).about("The size of its layers and its config in bytes."),
    Field::new(
        "packages",
        Type::List(&Type::Message(&[
            Field::string("name").about("The package's name.").required(),
            Field::string("version").about("The package's version."),
            Field::string("origin").about("The package whose build made it."),
        ])),
    )
    .about("The packages in the image.")
    .max_items(10_000),
];

/// A [blob](platform_engine::blob) of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageBlob {
    /// The digest of the blob.
    pub digest: Digest,
    /// The content of the blob.
    pub content: BlobContent,
    /// The digest of the manifest of the image that it is about: that of a platform, or of the index itself.
    pub image: Digest,
    /// The digest of the manifest that refers to it, which may be another than that of the image.
    pub manifest: Digest,
}

/// The content of a blob of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum BlobContent {
    /// Not specified.
    #[default]
    ContentUnspecified,
    /// The manifest or the index.
    ContentManifest,
    /// The configuration.
    ContentConfig,
    /// A bill of materials in SPDX 2, or an in-toto statement with one.
    ContentSbom,
    /// Another in-toto statement, or a manifest that refers to the image.
    ContentAttestation,
}

const BLOB: &[Field] = &[
    field::digest("digest").about("The digest of the blob.").required().blob(),
    Field::enumeration("content", BlobContent::VARIANTS).about("What the blob contains.").required(),
    field::digest("image").about("The digest of the manifest of the image that it is about.").required(),
    field::digest("manifest").about("The digest of the manifest that refers to it."),
];

/// The maximum number of blobs of an image. Our choice: more than an index of all architectures has.
const MAX_BLOBS: usize = 1000;

impl Resource for Image {
    const KIND: &'static Kind = &Kind::new("Image", "images", "ImagesService", domain::REGISTRY)
        .parent(Parent::Of(Repo::KIND))
        .fields(&[
            Field::UID,
            field::digest("digest").about("The digest of the image.").required(),
            Field::bool("index").about("Whether the digest is that of an index of images."),
            Field::new("platforms", Type::List(&Type::Message(PLATFORM)))
                .about("The images of the index, or the image itself."),
            Field::new("blobs", Type::List(&Type::Message(BLOB)))
                .about("The blobs that were kept of it: manifests, configurations and bills of materials.")
                .max_items(MAX_BLOBS),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    const ACTIONS: &'static [Action] = &[
        Action::get("GetArchitectures", "repos/{repoUid=**}/digests/{digest}/architectures", |cx, request| {
            Box::pin(architectures(cx, request))
        })
        .request(&[REPO, DIGEST])
        .response(&[Field::strings("architectures").about("The architectures of the index.")])
        .authorization(Authorization::At("repoUid", READ)),
        Action::get("GetSize", "repos/{repoUid=**}/digests/{digest}/size", |cx, request| Box::pin(size(cx, request)))
            .request(&[REPO, DIGEST, Field::string("architecture").about("The architecture; `amd64` by default.")])
            .response(&[
                Field::new("size", Type::Int64).about("The size of the layers and the config in bytes."),
                Field::string("architecture").about("The architecture."),
            ])
            .authorization(Authorization::At("repoUid", READ)),
    ];

    fn example() -> Self {
        let digest = Digest::opaque(format!("sha256:{}", "0123456789abcdef".repeat(4)));
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210"),
            digest: digest.clone(),
            index: true,
            blobs: vec![ImageBlob {
                digest: digest.clone(),
                content: BlobContent::ContentConfig,
                image: digest.clone(),
                manifest: digest.clone(),
            }],
            platforms: vec![ImagePlatform {
                architecture: "amd64".to_owned(),
                digest,
                size: 10_485_760,
                packages: vec![ImagePackage {
                    name: "libcrypto3".to_owned(),
                    version: "3.1.0-r0".to_owned(),
                    origin: "openssl".to_owned(),
                }],
            }],
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

impl Image {
    /// Returns the uid of a repo's image with this digest.
    pub fn uid_of(repo: &str, digest: &str) -> Uid {
        derived_uid(repo, &[digest])
    }
}

impl Imported for Image {
    const WRITE: &'static [Capability] = &[cap("manifest.create"), cap("manifest.update")];

    fn uid_in(&self, repo: &str) -> Uid {
        Self::uid_of(repo, &self.digest)
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        if self.platforms.is_empty() || (!self.index && self.platforms.len() > 1) {
            violations.add("platforms", "must have exactly one entry, or at least one for an index");
        }
        for (at, platform) in self.platforms.iter_mut().enumerate() {
            if platform.size < 0 {
                violations.add(format!("platforms[{at}].size"), "must not be negative");
            }
            platform.packages.sort();
            platform.packages.dedup();
        }
    }
}

pub(crate) const READ: &[Capability] = &[cap("repo.list"), cap("manifest.metadata.list")];

pub(crate) const REPO: Field = Field::string("repoUid").about("The repo that has the image.").required().uid_of("Repo");

pub(crate) const DIGEST: Field =
    field::digest("digest").about("The digest of the image: `sha256:` and 64 hexadecimal digits.").required();

/// The architecture of a request without one.
const DEFAULT_ARCHITECTURE: &str = "amd64";

/// Returns the architectures of an index, in its order.
async fn architectures(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let image = named(cx, &request).await?;
    if !image.index {
        return Err(Error::invalid_field("digest", "must be the digest of an index"));
    }
    let mut names: Vec<_> = image.platforms.into_iter().map(|platform| platform.architecture).collect();
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(json!({ "architectures": names }))
}

/// Returns the size of an image for one architecture.
async fn size(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let image = named(cx, &request).await?;
    let platform = image.platform(request.get("architecture").and_then(Value::as_str).unwrap_or_default())?;
    Ok(json!({ "size": platform.size.to_string(), "architecture": platform.architecture }))
}

/// Returns the image that a request names.
async fn named(cx: &Context<'_>, request: &Map<String, Value>) -> Result<Image> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    Image::find(cx, &Uid::opaque(text("repoUid")), text("digest")).await
}

impl Image {
    /// Returns the image of a repo with this digest.
    ///
    /// # Errors
    /// NOT_FOUND for the repo, then for the image.
    pub async fn find(cx: &Context<'_>, repo: &Uid, digest: &str) -> Result<Self> {
        match cx.read::<Self>(&Self::uid_of(repo, digest)).await?.filter(|image| *image.digest == *digest) {
            Some(image) => Ok(image),
            None if cx.read::<Repo>(repo).await?.is_none() => Err(Error::not_found(Repo::KIND, repo.as_str())),
            None => Err(Error::not_found(Self::KIND, digest)),
        }
    }

    /// Returns the image for an architecture, by default `amd64`.
    ///
    /// # Errors
    /// NOT_FOUND when there is none.
    pub fn platform(&self, architecture: &str) -> Result<&ImagePlatform> {
        let wanted = if architecture.is_empty() { DEFAULT_ARCHITECTURE } else { architecture };
        let found = self.platforms.iter().find(|platform| platform.architecture == wanted);
        found.ok_or_else(|| Error::not_found(Self::KIND, format!("{}/{wanted}", self.digest)))
    }

    /// Returns the blobs of a platform with this content, the preferred one first.
    pub fn blobs_of<'b>(
        &'b self,
        platform: &'b ImagePlatform,
        content: BlobContent,
    ) -> impl Iterator<Item = &'b ImageBlob> {
        self.blobs.iter().filter(move |blob| blob.content == content && blob.image == platform.digest)
    }
}

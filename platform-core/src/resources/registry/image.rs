//! Images: metadata of the images that tags refer to (`docs/api.md`, Images).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::domain;
use crate::{
    access::{Capability, cap},
    context::Context,
    error::{Error, Result, Violations},
    kind::{Action, Authorization, Field, Imported, Kind, Parent, Resource, Type, derived_uid},
    timestamp::Timestamp,
    uid::Uid,
};

use super::{super::field, Digest, Repo};

/// An image of a repo, for one or several architectures. Our own kind: the contract has methods that read images, but
/// none that write them.
///
/// Written by [`Platform::put`](crate::platform::Platform::put) with the repo as parent, one per digest.
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
    #[serde(with = "crate::json::int64")]
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

impl Resource for Image {
    const KIND: &'static Kind = &Kind::new("Image", "images", "ImagesService", domain::REGISTRY)
        .parent(Parent::Of(Repo::KIND))
        .fields(&[
            Field::UID,
            field::digest("digest").about("The digest of the image.").required(),
            Field::bool("index").about("Whether the digest is that of an index of images."),
            Field::new("platforms", Type::List(&Type::Message(PLATFORM)))
                .about("The images of the index, or the image itself."),
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

const READ: &[Capability] = &[cap("repo.list"), cap("manifest.metadata.list")];

const REPO: Field = Field::string("repoUid").about("The repo that has the image.").required();

const DIGEST: Field =
    field::digest("digest").about("The digest of the image: `sha256:` and 64 hexadecimal digits.").required();

/// The architecture of a request without one.
const DEFAULT_ARCHITECTURE: &str = "amd64";

/// Returns the architectures of an index, in its order.
async fn architectures(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let image = find(cx, &request).await?;
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
    let image = find(cx, &request).await?;
    let wanted = request.get("architecture").and_then(Value::as_str).unwrap_or(DEFAULT_ARCHITECTURE);
    let platform = image.platforms.iter().find(|platform| platform.architecture == wanted);
    let platform = platform.ok_or_else(|| Error::not_found(Image::KIND, format!("{}/{wanted}", image.digest)))?;
    Ok(json!({ "size": platform.size.to_string(), "architecture": wanted }))
}

/// Returns the image that a request names.
///
/// # Errors
/// NOT_FOUND for the repo, then for the image.
async fn find(cx: &Context<'_>, request: &Map<String, Value>) -> Result<Image> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let (repo, digest) = (Uid::opaque(text("repoUid")), text("digest"));
    let image = cx.read::<Image>(&Image::uid_of(&repo, digest)).await?.filter(|image| *image.digest == *digest);
    match image {
        Some(image) => Ok(image),
        None if cx.read::<Repo>(&repo).await?.is_none() => Err(Error::not_found(Repo::KIND, repo.as_str())),
        None => Err(Error::not_found(Image::KIND, digest)),
    }
}

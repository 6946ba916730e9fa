//! Images: configuration, architectures, sizes, bills of materials, and metadata of their packages.

use platform_core::{
    capabilities::cap,
    resources::{
        iam::Group,
        registry::{
            Digest, Image, Repo,
            image::{BlobContent, ImageBlob, ImagePlatform},
        },
    },
};
use platform_engine::{
    access::Capability,
    context::Context,
    conversion::ActionConversion,
    error::{Code, Error, Result},
    kind::{Action, Authorization, Domain, Field, Kind, ListPage, Resource, Type},
    store::{KeyValue, Position, Query, Scope},
    uid::Uid,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    super::REGISTRY,
    REPO_ID,
    sbom::{self, PKG_METADATA, SBOM},
};
use crate::{resources::Chart, sbom::Sbom};

/// A digest in a request.
pub(super) const DIGEST: Field = Field::string("digest")
    .about("The digest of the image: `sha256:` and 64 hexadecimal digits.")
    .documented_pattern(Digest::PATTERN)
    .check(|value| Digest::parse(value.as_str().unwrap_or_default()).map(drop).map_err(|rule| rule.to_string()))
    .required();

const ARCH: Field = Field::string("arch").about("The architecture; `amd64` by default.");

const READ: &[Capability] = &[cap("repo.list"), cap("manifest.metadata.list")];

pub(super) const GET_SBOM: Action =
    Action::get("GetSbom", "repos/{repoId=**}/digests/{digest=*}/sbom", |cx, request| Box::pin(get_sbom(cx, request)))
        .request(&[REPO_ID, DIGEST, ARCH])
        .response(SBOM)
        .authorization(Authorization::At(
            "repoId",
            &[cap("repo.list"), cap("sboms.list"), cap("manifest.metadata.list")],
        ));

pub(super) const GET_RAW_SBOM: Action =
    Action::get("GetRawSbom", "repos/{repoId=**}/digest/{digest=*}/rawsbom", |cx, request| {
        Box::pin(get_raw_sbom(cx, request))
    })
    .request(&[
        REPO_ID,
        DIGEST,
        Field::string("reference").about(
            "The digest of the bill of materials, or of the manifest that refers to it; by default that of the image's \
             own manifest, or else the first.",
        ),
        ARCH,
    ])
    .response(&[Field::string("rawSbom").about("The SPDX document as it was imported.")])
    .authorization(Authorization::At("repoId", &[cap("repo.list"), cap("sboms.list")]));

pub(super) const GET_IMAGE_CONFIG: Action =
    Action::get("GetImageConfig", "repos/{repoId=**}/digests/{digest=*}/imageconfig", |cx, request| {
        Box::pin(get_image_config(cx, request))
    })
    .request(&[
        REPO_ID,
        DIGEST,
        ARCH,
        Field::bool("registry").about("Not used: the reply is always the configuration that was imported."),
    ])
    .response(&[
        Field::string("user").about("The user that the process runs as."),
        Field::new("exposedPorts", Type::Map(&Type::Message(&[]))).about("The ports that it listens on."),
        Field::strings("env").about("The environment variables, as `NAME=value`."),
        Field::strings("entrypoint").about("The command."),
        Field::strings("cmd").about("The default arguments of the command, or the command."),
        Field::new("volumes", Type::Map(&Type::Message(&[]))).about("The directories that are volumes."),
        Field::string("workingDir").about("The working directory."),
        Field::string_map("labels").about("The labels."),
        Field::string("stopSignal").about("The signal that stops the process."),
    ])
    .authorization(Authorization::At("repoId", READ));

pub(super) const LIST_MANIFEST_METADATA: Action = Action::get_pages(
    "ListManifestMetadata",
    "repos/{repoId=**}/manifestmetdata",
    |cx, request, page_token| Box::pin(list_manifest_metadata(cx, request, page_token)),
)
.request(&[
    REPO_ID,
    Field::new(
        "items",
        Type::List(&Type::Message(&[
            Field::string("imageDigest").about("The digest of an image's manifest.").oneof("filter"),
            Field::message(
                "indexFilter",
                &[
                    Field::string("digest").about("The digest of an index."),
                    Field::string("arch").about("The architecture; `amd64` by default."),
                ],
            )
            .about("The image of an index for an architecture.")
            .oneof("filter"),
        ])),
    )
    .about(
        "Only these images, at most 100; by default all images of the repo. A query string writes each as the digest \
             of a manifest, or as that of an index, `/` and an architecture.",
    )
    .in_query(in_query),
])
.response(&[Field::new(
    "items",
    Type::List(&Type::Message(&[
        Field::string("digest").about("The digest of the image's manifest."),
        Field::new("pkgMetadata", Type::List(&Type::Message(PKG_METADATA)))
            .about("The packages that the bill of materials lists with a package URL."),
    ])),
)
.about("The images, in the order of the request.")])
.authorization(Authorization::At("repoId", &[cap("manifest.metadata.list")]));

pub(super) const GET_MANIFEST_DIGEST_COUNT: Action =
    Action::get("GetManifestDigestCount", "digestcount/{parentId=**}", |cx, request| Box::pin(count(cx, request)))
        .request(&[Field::string("parentId").about("The uid of a group or repo.").required()])
        .response(&[Field::new("count", Type::Int64)
            .about("The number of digests of images, indexes and charts of all repos at and below it.")])
        .authorization(Authorization::At("parentId", &[cap("manifest.metadata.list")]));

pub(super) struct Archs;

impl ActionConversion for Archs {
    type Resource = Image;
    const ACTION: &'static str = "GetArchitectures";
    const DOMAIN: Domain = REGISTRY;
    const MESSAGE: &'static str = "Archs";
    const REQUEST: &'static [Field] = &[REPO_ID.of("repoUid"), DIGEST.unread()];
    const RESPONSE: &'static [Field] =
        &[Field::strings("archs").of("architectures").about("The architectures of the index.")];
}

pub(super) struct Size;

impl ActionConversion for Size {
    type Resource = Image;
    const ACTION: &'static str = "GetSize";
    const DOMAIN: Domain = REGISTRY;
    const MESSAGE: &'static str = "Size";
    const REQUEST: &'static [Field] = &[REPO_ID.of("repoUid"), DIGEST.unread(), ARCH.of("architecture")];
    const RESPONSE: &'static [Field] = &[
        Field::new("size", Type::Int64).about("The size of the layers and the config in bytes."),
        Field::string("arch").of("architecture").about("The architecture."),
    ];
}

pub(super) fn text<'r>(request: &'r Map<String, Value>, name: &str) -> &'r str {
    request.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the repo and the image that a request names.
async fn named(cx: &Context<'_>, request: &Map<String, Value>) -> Result<(Uid, Image)> {
    let repo = Uid::opaque(text(request, "repoId"));
    let image = Image::find(cx, &repo, text(request, "digest")).await?;
    Ok((repo, image))
}

fn not_imported(what: &str, platform: &ImagePlatform) -> Error {
    let message = format!("No {what} of the image {} was imported", platform.digest);
    Error::new(Code::NotFound, message).of_resource(Image::KIND, platform.digest.to_string())
}

/// Returns FAILED_PRECONDITION for a blob whose content does not have the form that its image says. Imports of blobs
/// accept any content.
pub(super) fn malformed(digest: &str, source: impl Into<platform_engine::store::Cause>) -> Error {
    Error::blocked("MALFORMED_BLOB", format!("The imported blob {digest} is malformed or too long")).because(source)
}

/// Returns a bill of materials of a platform: the one with this reference, or else the preferred one.
fn sbom_of<'i>(image: &'i Image, platform: &'i ImagePlatform, reference: &str) -> Result<&'i ImageBlob> {
    let is_it = |blob: &&ImageBlob| reference.is_empty() || [&*blob.digest, &*blob.manifest].contains(&reference);
    let found = image.blobs_of(platform, BlobContent::ContentSbom).find(is_it);
    found.ok_or_else(|| not_imported("such bill of materials", platform))
}

async fn get_sbom(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let (repo, image) = named(cx, &request).await?;
    let platform = image.platform(text(&request, "arch"))?;
    let blob = sbom_of(&image, platform, "")?;
    let (id, digest, seen) = (blob.digest.clone(), platform.digest.clone(), image.update_time);
    cx.read_blob(&repo, &blob.digest, move |content| {
        let raw = Sbom::document(content).map_err(|error| malformed(&id, error))?;
        let sbom = Sbom::parse(content).map_err(|error| malformed(&id, error))?;
        sbom::shown(&sbom, &raw, &id, &digest, seen)
    })
    .await
}

async fn get_raw_sbom(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let (repo, image) = named(cx, &request).await?;
    let platform = image.platform(text(&request, "arch"))?;
    let blob = sbom_of(&image, platform, text(&request, "reference"))?;
    let id = blob.digest.clone();
    let read = move |content: &[u8]| {
        let raw = Sbom::document(content).map_err(|error| malformed(&id, error))?;
        String::from_utf8(raw.into_owned()).map_err(|error| malformed(&id, error))
    };
    Ok(json!({ "rawSbom": cx.read_blob(&repo, &blob.digest, read).await? }))
}

/// The part of an image's configuration that is shown, by the names of the OCI specification.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ImageConfig {
    user: Option<String>,
    exposed_ports: Option<Map<String, Value>>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    volumes: Option<Map<String, Value>>,
    working_dir: Option<String>,
    labels: Option<Map<String, Value>>,
    stop_signal: Option<String>,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    config: Option<ImageConfig>,
}

async fn get_image_config(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let (repo, image) = named(cx, &request).await?;
    let platform = image.platform(text(&request, "arch"))?;
    let blob = image.blobs_of(platform, BlobContent::ContentConfig).next();
    let blob = blob.ok_or_else(|| not_imported("configuration", platform))?;
    let id = blob.digest.clone();
    let read = move |content: &[u8]| {
        let configuration: Configuration = serde_json::from_slice(content).map_err(|error| malformed(&id, error))?;
        Ok(configuration.config.unwrap_or_default())
    };
    let config = cx.read_blob(&repo, &blob.digest, read).await?;
    let names = |names: Option<Map<String, Value>>| {
        names.unwrap_or_default().into_iter().map(|(name, _)| (name, json!({}))).collect::<Map<_, _>>()
    };
    let labels = config.labels.unwrap_or_default().into_iter().filter(|(_, value)| value.is_string());
    Ok(json!({
        "user": config.user.unwrap_or_default(),
        "exposedPorts": names(config.exposed_ports),
        "env": config.env.unwrap_or_default(),
        "entrypoint": config.entrypoint.unwrap_or_default(),
        "cmd": config.cmd.unwrap_or_default(),
        "volumes": names(config.volumes),
        "workingDir": config.working_dir.unwrap_or_default(),
        "labels": labels.collect::<Map<_, _>>(),
        "stopSignal": config.stop_signal.unwrap_or_default(),
    }))
}

/// Parses an image in a query string: `sha256:…` or `sha256:…/arm64`.
fn in_query(text: &str) -> Value {
    match text.split_once('/') {
        Some((digest, arch)) => json!({ "indexFilter": { "digest": digest, "arch": arch } }),
        None => json!({ "imageDigest": text }),
    }
}

/// The number of images on a page of metadata. Our choice: each may have a bill of materials of megabytes.
const PAGE: usize = 10;

/// Returns the metadata of some images. Images that do not exist are left out.
async fn list_manifest_metadata(cx: &Context<'_>, request: Map<String, Value>, page_token: &str) -> Result<ListPage> {
    let repo = Uid::opaque(text(&request, "repoId"));
    let filters = request.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (images, next) = match filters {
        [] => images_after(cx, &repo, page_token).await?,
        filters => {
            let skipped: usize = page_token.parse().unwrap_or_default();
            let mut images = Vec::new();
            for filter in filters.iter().skip(skipped).take(PAGE) {
                images.extend(selected(cx, &repo, filter).await?);
            }
            let next = skipped.saturating_add(PAGE);
            (images, (next < filters.len()).then(|| next.to_string()))
        }
    };
    let mut items = Vec::new();
    for (image, platform) in images {
        let metadata = match sbom_of(&image, &platform, "") {
            Ok(blob) => {
                // An image whose bill of materials is malformed must not hide the others.
                let read = |content: &[u8]| {
                    Ok(Sbom::parse(content).map_or_else(|_| Vec::new(), |one| sbom::pkg_metadata(&one)))
                };
                cx.read_blob(&repo, &blob.digest, read).await?
            }
            Err(_) => Vec::new(),
        };
        let item = json!({ "digest": platform.digest, "pkgMetadata": metadata });
        items.push(serde_json::to_vec(&item).map_err(Error::internal)?.into());
    }
    Ok(ListPage { items, next_page_token: next })
}

/// Returns the image that an element of a filter selects.
async fn selected(cx: &Context<'_>, repo: &Uid, filter: &Value) -> Result<Option<(Image, ImagePlatform)>> {
    let text = |pointer: &str| filter.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (is_index, digest) = match text("/imageDigest") {
        "" => (true, text("/indexFilter/digest")),
        digest => (false, digest),
    };
    let image = match Image::find(cx, repo, digest).await {
        Ok(image) if image.index == is_index => image,
        Ok(_) => return Ok(None),
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let platform = if is_index {
        image.platform(text("/indexFilter/arch")).ok().cloned()
    } else {
        image.platforms.first().cloned()
    };
    Ok(platform.map(|platform| (image, platform)))
}

/// Returns the images of a repo after a uid, without indexes, and the uid after which the next page begins.
async fn images_after(
    cx: &Context<'_>,
    repo: &Uid,
    uid: &str,
) -> Result<(Vec<(Image, ImagePlatform)>, Option<String>)> {
    let after = (!uid.is_empty()).then(|| Position { value: KeyValue::default(), uid: Uid::opaque(uid) });
    let scope = Scope::Children(repo.clone());
    let page = cx.page(Query { after, limit: PAGE, ..Query::new(Image::KIND.name, scope) }).await?;
    let (mut images, mut pace) = (Vec::new(), cx.pace());
    for item in &page.items {
        pace.step(item.body.len()).await;
        let image: Image = serde_json::from_slice(&item.body).map_err(Error::internal)?;
        if let Some(platform) = image.platforms.first().filter(|_| !image.index).cloned() {
            images.push((image, platform));
        }
    }
    Ok((images, page.next.map(|next| next.uid.to_string())))
}

async fn count(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let parent = Uid::opaque(text(&request, "parentId"));
    let exists = |kind: &'static Kind| cx.record(kind, &parent);
    if exists(Group::KIND).await?.is_none() && exists(Repo::KIND).await?.is_none() {
        return Err(Error::not_found(Group::KIND, parent.as_str()));
    }
    let mut count = 0;
    for kind in [Image::KIND, Chart::KIND] {
        let scope = Scope::Subtree(parent.clone());
        let page = cx.page(Query { limit: 1, count: true, ..Query::new(kind.name, scope) }).await?;
        count += page.total.unwrap_or_default();
    }
    Ok(json!({ "count": count.to_string() }))
}

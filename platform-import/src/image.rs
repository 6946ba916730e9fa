//! Reads OCI image layouts: images, their platforms, sizes and installed packages, Helm charts, and tags.
//!
//! Every reachable index and image manifest becomes an image, since a tag may name any of them. All blobs that are read
//! are checked against the digest and the size in their descriptor. So are layers, which are not unpacked. Software
//! bills of materials (SBOMs) are found where builders put them: as a layer of the image's own manifest, in a manifest
//! whose subject is the image, or in an attestation that refers to it.
//!
//! Manifests, configurations, bills of materials, attestations and charts are kept as blobs; layers are not.

use std::collections::{HashMap, HashSet};

use platform_core::resources::registry::{
    Digest, Tag,
    image::{BlobContent, Image, ImageBlob, ImagePackage, ImagePlatform},
};
use platform_engine::blob::MAX_LEN;
use platform_v1::resources::Chart;
use serde_json::value::RawValue;

use crate::{Placed, Refusal};

mod blobs;
mod chart;
mod manifest;
mod spdx;

pub use blobs::{Blobs, Directory};
pub use manifest::{Annotations, BlobDigest, Descriptor, Manifest, index, manifest};
pub use spdx::sbom;

/// The maximum nesting depth of indexes. Our choice.
const MAX_DEPTH: usize = 8;

/// The maximum number of manifests and indexes in a layout. Our choice.
const MAX_MANIFESTS: usize = 10_000;

/// The annotation of a descriptor in `index.json` that has the tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The contents of a layout. Places are digests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Contents {
    /// The images and indexes, children before parents.
    pub images: Vec<Placed<Image>>,
    /// The charts.
    pub charts: Vec<Placed<Chart>>,
    /// The tags that `index.json` names. Only the name and the digest are set.
    pub tags: Vec<Placed<Tag>>,
    /// The digests of the images and charts in `index.json`.
    pub top: Vec<String>,
    /// The rejected parts, with reasons.
    pub refused: Vec<Refusal>,
    /// The valid parts that are not read, with reasons.
    pub skipped: Vec<Refusal>,
}

/// Reads the contents of a layout, and passes each blob that they name to `keep`. Files larger than `largest` bytes are
/// not read into memory.
///
/// Refusals are named by digest. An index is rejected when any image in it is; an SBOM is rejected by itself. A blob
/// may be passed several times, and also if the image that names it is rejected later.
pub fn layout(blobs: &dyn Blobs, largest: u64, keep: &mut dyn FnMut(Vec<u8>)) -> Contents {
    let (nodes, order) = (HashMap::new(), Vec::new());
    let mut layout = Layout { blobs, largest, keep, nodes, order, about: HashMap::new(), found: Contents::default() };
    match layout.read() {
        Ok(top) => {
            layout.find_sboms();
            layout.tags(&top);
        }
        Err(refusal) => layout.found.refused.push(refusal),
    }
    layout.contents()
}

/// The architecture of an image whose configuration names none, as in the platforms of attestations. Our choice: the
/// OCI specification requires one, but tools write it empty for images without files of their own.
const UNKNOWN: &str = "unknown";

/// Reads the architecture from an image's configuration, such as `amd64` or `arm/v7`; `unknown` if it names none.
///
/// Everything else in the configuration is ignored, because published images have configurations that are not valid
/// by the OCI specification.
///
/// # Errors
/// The problem with the configuration.
pub fn architecture(config: &[u8]) -> Result<String, Refusal> {
    let invalid = |error: &serde_json::Error| manifest::invalid("image configuration", error);
    // As a map, because a struct could also be read from an array.
    let config: HashMap<String, &RawValue> = serde_json::from_slice(config).map_err(|error| invalid(&error))?;
    let text = |name: &str| -> Result<Option<String>, Refusal> {
        let text = config.get(name).map(|value| serde_json::from_str(value.get())).transpose();
        let text = text.map_err(|error| invalid(&error).within(name))?;
        Ok(text.flatten().filter(|text: &String| !text.is_empty()))
    };
    let (architecture, variant) = (text("architecture")?, text("variant")?);
    Ok(match (architecture, variant) {
        (Some(architecture), Some(variant)) if architecture == "arm" => format!("{architecture}/{variant}"),
        (architecture, _) => architecture.unwrap_or_else(|| UNKNOWN.to_owned()),
    })
}

/// The content of a digest.
enum Node {
    Index(Vec<String>),
    Image {
        platform: ImagePlatform,
        config: String,
        layers: Vec<Descriptor>,
    },
    Chart(Box<Chart>),
    /// A manifest about an image, such as an SBOM, with the image's digest.
    Referrer {
        subject: String,
        manifest: Box<Descriptor>,
        layers: Vec<Descriptor>,
        said: spdx::Layers,
    },
    /// Neither an image nor about one.
    Other,
    Refused,
}

struct Layout<'a> {
    blobs: &'a dyn Blobs,
    largest: u64,
    keep: &'a mut dyn FnMut(Vec<u8>),
    nodes: HashMap<String, Node>,
    /// The digests in post-order: children before parents.
    order: Vec<String>,
    /// The bills of materials and attestations of images, by the digests of their manifests.
    about: HashMap<String, Vec<ImageBlob>>,
    found: Contents,
}

impl Layout<'_> {
    /// Reads everything, and returns the descriptors of `index.json`.
    fn read(&mut self) -> Result<Vec<Descriptor>, Refusal> {
        let marker = self.blobs.file("oci-layout", self.largest).map_err(|refusal| refusal.within("oci-layout"))?;
        let marker = manifest::read::<manifest::Marker>("image layout marker", &marker);
        let version = marker.map_err(|refusal| refusal.within("oci-layout"))?.image_layout_version;
        if !version.starts_with("1.") {
            let rule = format!("must be 1.x, not `{}`", version.chars().take(60).collect::<String>());
            return Err(Refusal::new("imageLayoutVersion", rule).within("oci-layout"));
        }
        let top = self.blobs.file("index.json", self.largest).and_then(|bytes| index(&bytes));
        let top = top.map_err(|refusal| refusal.within("index.json"))?;
        for descriptor in &top {
            self.visit(descriptor, 0);
        }
        Ok(top)
    }

    /// Reads the content of a descriptor and everything that it refers to, each digest once. Returns whether it could
    /// be read.
    fn visit(&mut self, descriptor: &Descriptor, depth: usize) -> bool {
        let digest = descriptor.digest.to_string();
        if let Some(node) = self.nodes.get(&digest) {
            return !matches!(node, Node::Refused);
        }
        let node = self.node(descriptor, depth).unwrap_or_else(|refusal| {
            self.found.refused.push(refusal.within(&digest));
            Node::Refused
        });
        let is_valid = !matches!(node, Node::Refused);
        self.nodes.insert(digest.clone(), node);
        self.order.push(digest);
        is_valid
    }

    fn node(&mut self, descriptor: &Descriptor, depth: usize) -> Result<Node, Refusal> {
        if depth > MAX_DEPTH {
            return Err(Refusal::whole(format!("is nested in more than {MAX_DEPTH} indexes")));
        }
        if self.nodes.len() >= MAX_MANIFESTS {
            return Err(Refusal::whole(format!("exceeds the maximum of {MAX_MANIFESTS} manifests in a layout")));
        }
        match descriptor.media_type.as_str() {
            "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json" => {
                self.index_node(descriptor, depth)
            }
            "application/vnd.oci.image.manifest.v1+json" | "application/vnd.docker.distribution.manifest.v2+json" => {
                self.manifest_node(descriptor)
            }
            _ => Ok(Node::Other),
        }
    }

    fn index_node(&mut self, descriptor: &Descriptor, depth: usize) -> Result<Node, Refusal> {
        let bytes = blobs::read(self.blobs, descriptor, self.largest)?;
        let children = index(&bytes)?;
        let mut refused = None;
        for child in &children {
            if !self.visit(child, depth + 1) {
                refused = Some(child.digest.to_string());
            }
        }
        match refused {
            Some(digest) => Err(Refusal::whole(format!("contains {digest}, which was rejected"))),
            None => {
                self.keep(bytes)?;
                Ok(Node::Index(children.iter().map(|child| child.digest.to_string()).collect()))
            }
        }
    }

    /// Passes a blob on.
    fn keep(&mut self, bytes: Vec<u8>) -> Result<(), Refusal> {
        if bytes.len() > MAX_LEN {
            return Err(Refusal::whole(format!("is larger than {MAX_LEN} bytes, and cannot be kept")));
        }
        (self.keep)(bytes);
        Ok(())
    }

    fn manifest_node(&mut self, descriptor: &Descriptor) -> Result<Node, Refusal> {
        let bytes = blobs::read(self.blobs, descriptor, self.largest)?;
        let manifest = manifest(&bytes)?;
        let layers = manifest.layers.clone();
        if let Some(subject) = subject(descriptor, &manifest) {
            let said = spdx::Layers::of(&manifest);
            return Ok(Node::Referrer { subject, manifest: Box::new(descriptor.clone()), layers, said });
        }
        if chart::is_chart(&manifest) {
            return self.chart_node(descriptor, &manifest, bytes);
        }
        if !is_image(&manifest) {
            return Ok(Node::Other);
        }
        let config = blobs::read(self.blobs, &manifest.config, self.largest);
        let config = config.map_err(|refusal| refusal.within("config"))?;
        let architecture = architecture(&config).map_err(|refusal| refusal.within("config"))?;
        let mut size = manifest.config.size;
        for (index, layer) in layers.iter().enumerate() {
            let verify = if is_foreign(layer) { blobs::verify_if_present } else { blobs::verify };
            verify(self.blobs, layer).map_err(|refusal| refusal.within(&format!("layers[{index}]")))?;
            size = size.saturating_add(layer.size);
        }
        let size = i64::try_from(size).map_err(|_| Refusal::whole("must be less than 2^63 bytes in total"))?;
        let digest = Digest::opaque(descriptor.digest.to_string());
        self.keep(bytes)?;
        self.keep(config).map_err(|refusal| refusal.within("config"))?;
        Ok(Node::Image {
            platform: ImagePlatform { architecture, digest, size, packages: Vec::new() },
            config: manifest.config.digest.to_string(),
            layers,
        })
    }

    fn chart_node(&mut self, descriptor: &Descriptor, manifest: &Manifest, bytes: Vec<u8>) -> Result<Node, Refusal> {
        let digest = descriptor.digest.to_string();
        let read = chart::read(self.blobs, manifest, self.largest)?;
        let refused = read.refused.into_iter().map(|refusal| refusal.within(&digest));
        self.found.refused.extend(refused);
        let digest = Digest::opaque(digest);
        let chart = Chart { manifest: digest.clone(), digest, ..read.chart };
        self.keep(bytes)?;
        for (name, bytes) in read.blobs {
            self.keep(bytes).map_err(|refusal| refusal.within(name))?;
        }
        Ok(Node::Chart(Box::new(chart)))
    }

    /// Reads the SBOMs and attestations of all images, those in the images' own manifests first, and adds the packages
    /// to the images.
    fn find_sboms(&mut self) {
        let (mut own, mut referring) = (Vec::new(), Vec::new());
        for digest in &self.order {
            match self.nodes.get(digest) {
                Some(Node::Image { layers, .. }) => {
                    own.push((digest.clone(), None, layers.clone(), spdx::Layers::Unknown));
                }
                Some(Node::Referrer { subject, manifest, layers, said }) if self.is_image(subject) => {
                    let referrer = Some(Descriptor::clone(manifest));
                    referring.push((subject.clone(), referrer, layers.clone(), *said));
                }
                _ => {}
            }
        }
        let mut found: HashMap<String, Vec<ImagePackage>> = HashMap::new();
        for (image, referrer, layers, said) in own.into_iter().chain(referring) {
            let of = referrer.as_ref().map_or_else(|| image.clone(), |referrer| referrer.digest.to_string());
            let mut has_kept = false;
            for (index, layer) in layers.iter().enumerate() {
                let sbom = said.sbom(layer);
                if sbom == Some(spdx::Format::Other) {
                    let rule =
                        "is a bill of materials in another format than SPDX 2 in JSON, whose packages are not read";
                    let skipped = Refusal::new(format!("layers[{index}]"), rule);
                    self.found.skipped.push(skipped.within(&of));
                }
                let content = match sbom {
                    Some(spdx::Format::Spdx) => BlobContent::ContentSbom,
                    _ if referrer.is_some() && spdx::is_statement(layer) => BlobContent::ContentAttestation,
                    _ => continue,
                };
                match self.about(&image, &of, layer, content) {
                    Ok(packages) => {
                        found.entry(image.clone()).or_default().extend(packages);
                        has_kept = true;
                    }
                    Err(refusal) => {
                        self.found.refused.push(refusal.within(&format!("layers[{index}]")).within(&of));
                    }
                }
            }
            if let Some(referrer) = referrer.filter(|_| has_kept)
                && let Err(refusal) = self.about(&image, &of, &referrer, BlobContent::ContentAttestation)
            {
                self.found.refused.push(refusal.within(&of));
            }
        }
        for (digest, mut packages) in found {
            if let Some(Node::Image { platform, .. }) = self.nodes.get_mut(&digest) {
                packages.sort();
                packages.dedup();
                platform.packages = packages;
            }
        }
    }

    fn is_image(&self, digest: &str) -> bool {
        matches!(self.nodes.get(digest), Some(Node::Image { .. }))
    }

    /// Keeps a blob about an image, and returns the packages that it lists.
    fn about(
        &mut self,
        image: &str,
        manifest: &str,
        blob: &Descriptor,
        content: BlobContent,
    ) -> Result<Vec<ImagePackage>, Refusal> {
        let bytes = blobs::read(self.blobs, blob, self.largest)?;
        let packages = if content == BlobContent::ContentSbom { sbom(&bytes)? } else { Vec::new() };
        let digest = |text: &str| Digest::opaque(text);
        match self.keep(bytes) {
            Ok(()) => {
                let digest_of_blob = Digest::opaque(blob.digest.to_string());
                let blob =
                    ImageBlob { digest: digest_of_blob, content, image: digest(image), manifest: digest(manifest) };
                let known = self.about.entry(image.to_owned()).or_default();
                if !known.contains(&blob) {
                    known.push(blob);
                }
            }
            // Its packages are still known.
            Err(refusal) => self.found.refused.push(refusal.within(manifest)),
        }
        Ok(packages)
    }

    /// Adds the tags that the descriptors of `index.json` name, and the digests of their images and charts.
    fn tags(&mut self, top: &[Descriptor]) {
        let mut names = HashSet::new();
        for (at, descriptor) in top.iter().enumerate() {
            let digest = descriptor.digest.to_string();
            let is_content = match self.nodes.get(&digest) {
                Some(Node::Image { .. } | Node::Chart(_)) => true,
                Some(Node::Index(_)) => !self.platforms_of(&digest).is_empty(),
                Some(Node::Referrer { .. } | Node::Other) => false,
                Some(Node::Refused) | None => continue,
            };
            if is_content && !self.found.top.contains(&digest) {
                self.found.top.push(digest.clone());
            }
            let Some(name) = descriptor.annotations.get(REF_NAME) else { continue };
            let place = format!("index.json: manifests[{at}].annotations.{REF_NAME}");
            let Some(name) = tag_of(name) else { continue };
            if names.insert(name) {
                let tag = Tag { name: name.to_owned(), digest: Digest::opaque(digest), ..Tag::default() };
                self.found.tags.push(Placed { place, resource: tag });
            } else {
                self.found.refused.push(Refusal::new(place, "names a tag that an earlier manifest has"));
            }
        }
    }

    fn contents(mut self) -> Contents {
        for digest in &self.order {
            let (is_index, platforms) = match self.nodes.get(digest) {
                Some(Node::Index(_)) => (true, self.platforms_of(digest)),
                Some(Node::Image { platform, config, .. }) => (false, vec![(platform.clone(), config.clone())]),
                Some(Node::Chart(chart)) => {
                    self.found.charts.push(Placed { place: digest.clone(), resource: (**chart).clone() });
                    continue;
                }
                _ => continue,
            };
            // An index that contains only signatures or charts is not an image.
            if platforms.is_empty() {
                continue;
            }
            let own = Digest::opaque(digest.as_str());
            let blob = |digest: Digest, content, image: &Digest| ImageBlob {
                digest,
                content,
                image: image.clone(),
                manifest: image.clone(),
            };
            let mut kept = vec![blob(own.clone(), BlobContent::ContentManifest, &own)];
            for (platform, config) in &platforms {
                kept.push(blob(Digest::opaque(config.as_str()), BlobContent::ContentConfig, &platform.digest));
                kept.extend(self.about.get(&*platform.digest).into_iter().flatten().cloned());
            }
            let platforms = platforms.into_iter().map(|(platform, _)| platform).collect();
            let image = Image { digest: own, index: is_index, platforms, blobs: kept, ..Image::default() };
            self.found.images.push(Placed { place: digest.clone(), resource: image });
        }
        self.found
    }

    /// Returns the images of an index with the digests of their configurations.
    fn platforms_of(&self, digest: &str) -> Vec<(ImagePlatform, String)> {
        let mut platforms = Vec::new();
        self.platforms(digest, &mut HashSet::new(), &mut platforms);
        platforms
    }

    /// Adds the images of an index, including those of nested indexes, each once and in order.
    fn platforms<'s>(
        &'s self,
        digest: &'s str,
        seen: &mut HashSet<&'s str>,
        platforms: &mut Vec<(ImagePlatform, String)>,
    ) {
        if !seen.insert(digest) {
            return;
        }
        match self.nodes.get(digest) {
            Some(Node::Image { platform, config, .. }) => platforms.push((platform.clone(), config.clone())),
            Some(Node::Index(children)) => {
                children.iter().for_each(|child| self.platforms(child, seen, platforms));
            }
            _ => {}
        }
    }
}

/// Returns the digest of the image that a manifest is about, if any.
fn subject(descriptor: &Descriptor, manifest: &Manifest) -> Option<String> {
    let named = || {
        // Signing tools put the image's digest into the tag of the signature.
        let hex = tag_of(descriptor.annotations.get(REF_NAME)?)?.strip_prefix("sha256-")?.split_once('.')?.0;
        Some(format!("sha256:{hex}"))
    };
    let subject = manifest.subject.as_ref().map(|subject| subject.digest.to_string());
    subject.or_else(|| descriptor.annotations.get("vnd.docker.reference.digest").cloned()).or_else(named)
}

/// Returns the tag in the name of a manifest, which is a tag or a reference as registries have it: a host that may have
/// a port, a repo, a tag and a digest. `None` if the reference has no tag.
fn tag_of(name: &str) -> Option<&str> {
    let (rest, has_digest) = name.split_once('@').map_or((name, false), |(rest, _)| (rest, true));
    let last = rest.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => Some(tag).filter(|_| !BlobDigest::is_registered(rest)),
        // A name without a slash is a tag by itself, but not before a digest.
        None => Some(rest).filter(|_| !has_digest && last.len() == rest.len()),
    }
}

/// Returns whether a layer must not be distributed, so that layouts and registries need not have it: the base of a
/// Windows image. Its descriptor has its size and where to find it.
fn is_foreign(layer: &Descriptor) -> bool {
    let kinds = ["application/vnd.oci.image.layer.nondistributable.", "application/vnd.docker.image.rootfs.foreign."];
    kinds.iter().any(|start| layer.media_type.starts_with(start))
}

/// Returns whether a manifest is of a runnable image, and not of another artifact in a registry.
fn is_image(manifest: &Manifest) -> bool {
    let kinds = ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
    kinds.contains(&manifest.config.media_type.as_str()) && manifest.artifact_type.is_none()
}

//! Reads OCI image layouts: images, their platforms, sizes, and installed packages.
//!
//! Every reachable index and image manifest becomes an image, since a tag may name any of them. All blobs that are read
//! are checked against the digest and the size in their descriptor. So are layers, which are not unpacked. Software
//! bills of materials (SBOMs) are found where builders put them: as a layer of the image's own manifest, in a manifest
//! whose subject is the image, or in an attestation that refers to it.

use std::collections::{HashMap, HashSet};

use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, OciLayout};
use platform_core::resources::registry::{
    Digest,
    image::{Image, ImagePackage, ImagePlatform},
};

use crate::{Parsed, Placed, Refusal, osv::without_place};

mod blobs;
mod spdx;

pub use blobs::{Blobs, Directory};
pub use spdx::sbom;

/// The maximum nesting depth of indexes. Our choice.
const MAX_DEPTH: usize = 8;

/// The maximum number of manifests and indexes in a layout. Our choice.
const MAX_MANIFESTS: usize = 10_000;

/// Reads the images of a layout. Files larger than `largest` bytes are not read into memory.
///
/// Refusals are named by digest. An index is rejected when any image in it is; an SBOM is rejected by itself.
pub fn layout(blobs: &dyn Blobs, largest: u64) -> Parsed<Image> {
    let mut layout = Layout { blobs, largest, nodes: HashMap::new(), order: Vec::new(), parsed: Parsed::default() };
    if let Err(refusal) = layout.read() {
        layout.parsed.refused.push(refusal);
    }
    layout.find_sboms();
    layout.images()
}

/// Reads the descriptors of an index's manifests.
///
/// # Errors
/// The problem with the index.
pub fn index(bytes: &[u8]) -> Result<Vec<Descriptor>, Refusal> {
    let index = ImageIndex::from_reader(bytes).map_err(|error| invalid("image index", &error))?;
    match index.schema_version() {
        2 => Ok(index.manifests().clone()),
        other => Err(Refusal::new("schemaVersion", format!("must be 2, not {other}"))),
    }
}

/// Reads a manifest.
///
/// # Errors
/// The problem with the manifest.
pub fn manifest(bytes: &[u8]) -> Result<ImageManifest, Refusal> {
    let manifest = ImageManifest::from_reader(bytes).map_err(|error| invalid("image manifest", &error))?;
    match manifest.schema_version() {
        2 => Ok(manifest),
        other => Err(Refusal::new("schemaVersion", format!("must be 2, not {other}"))),
    }
}

/// Reads the architecture from an image's configuration, such as `amd64` or `arm/v7`.
///
/// # Errors
/// The problem with the configuration.
pub fn architecture(config: &[u8]) -> Result<String, Refusal> {
    let config = ImageConfiguration::from_reader(config).map_err(|error| invalid("image configuration", &error))?;
    let architecture = config.architecture().to_string();
    Ok(match config.variant() {
        Some(variant) if architecture == "arm" && !variant.is_empty() => format!("{architecture}/{variant}"),
        _ => architecture,
    })
}

fn invalid(what: &str, error: &oci_spec::OciSpecError) -> Refusal {
    let rule = match error {
        oci_spec::OciSpecError::SerDe(error) => without_place(error),
        other => other.to_string(),
    };
    Refusal::whole(format!("must be a valid {what}: {rule}"))
}

/// The content of a digest.
enum Node {
    Index(Vec<String>),
    Image {
        platform: ImagePlatform,
        layers: Vec<Descriptor>,
    },
    /// A manifest about an image, such as an SBOM, with the image's digest.
    Referrer {
        subject: String,
        layers: Vec<Descriptor>,
    },
    /// Neither an image nor about one.
    Other,
    Refused,
}

struct Layout<'a> {
    blobs: &'a dyn Blobs,
    largest: u64,
    nodes: HashMap<String, Node>,
    /// The digests in post-order: children before parents.
    order: Vec<String>,
    parsed: Parsed<Image>,
}

impl Layout<'_> {
    fn read(&mut self) -> Result<(), Refusal> {
        let marker = self.blobs.file("oci-layout", self.largest).map_err(|refusal| refusal.within("oci-layout"))?;
        let marker = OciLayout::from_reader(marker.as_slice());
        let marker = marker.map_err(|error| invalid("image layout marker", &error).within("oci-layout"))?;
        let version = marker.image_layout_version();
        if !version.starts_with("1.") {
            let rule = format!("must be 1.x, not `{}`", version.chars().take(60).collect::<String>());
            return Err(Refusal::new("imageLayoutVersion", rule).within("oci-layout"));
        }
        let top = self.blobs.file("index.json", self.largest).and_then(|bytes| index(&bytes));
        for descriptor in top.map_err(|refusal| refusal.within("index.json"))? {
            self.visit(&descriptor, 0);
        }
        Ok(())
    }

    /// Reads the content of a descriptor and everything that it refers to, each digest once. Returns whether it could
    /// be read.
    fn visit(&mut self, descriptor: &Descriptor, depth: usize) -> bool {
        let digest = descriptor.digest().to_string();
        if let Some(node) = self.nodes.get(&digest) {
            return !matches!(node, Node::Refused);
        }
        let node = self.node(descriptor, depth).unwrap_or_else(|refusal| {
            self.parsed.refused.push(refusal.within(&digest));
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
        match descriptor.media_type() {
            MediaType::ImageIndex => self.index_node(descriptor, depth),
            MediaType::ImageManifest => self.manifest_node(descriptor),
            MediaType::Other(name) if name == "application/vnd.docker.distribution.manifest.list.v2+json" => {
                self.index_node(descriptor, depth)
            }
            MediaType::Other(name) if name == "application/vnd.docker.distribution.manifest.v2+json" => {
                self.manifest_node(descriptor)
            }
            _ => Ok(Node::Other),
        }
    }

    fn index_node(&mut self, descriptor: &Descriptor, depth: usize) -> Result<Node, Refusal> {
        let children = index(&blobs::read(self.blobs, descriptor, self.largest)?)?;
        let mut refused = None;
        for child in &children {
            if !self.visit(child, depth + 1) {
                refused = Some(child.digest().to_string());
            }
        }
        match refused {
            Some(digest) => Err(Refusal::whole(format!("contains {digest}, which was rejected"))),
            None => Ok(Node::Index(children.iter().map(|child| child.digest().to_string()).collect())),
        }
    }

    fn manifest_node(&self, descriptor: &Descriptor) -> Result<Node, Refusal> {
        let manifest = manifest(&blobs::read(self.blobs, descriptor, self.largest)?)?;
        let layers = manifest.layers().clone();
        if let Some(subject) = subject(descriptor, &manifest) {
            return Ok(Node::Referrer { subject, layers });
        }
        if !is_image(&manifest) {
            return Ok(Node::Other);
        }
        let config = blobs::read(self.blobs, manifest.config(), self.largest);
        let config = config.map_err(|refusal| refusal.within("config"))?;
        let architecture = architecture(&config).map_err(|refusal| refusal.within("config"))?;
        let mut size = manifest.config().size();
        for (index, layer) in layers.iter().enumerate() {
            blobs::verify(self.blobs, layer).map_err(|refusal| refusal.within(&format!("layers[{index}]")))?;
            size = size.saturating_add(layer.size());
        }
        let size = i64::try_from(size).map_err(|_| Refusal::whole("must be less than 2^63 bytes in total"))?;
        let digest = Digest::opaque(descriptor.digest().to_string());
        Ok(Node::Image { platform: ImagePlatform { architecture, digest, size, packages: Vec::new() }, layers })
    }

    /// Reads the SBOMs of all images and adds the packages to the images.
    fn find_sboms(&mut self) {
        let mut found: HashMap<String, Vec<ImagePackage>> = HashMap::new();
        for digest in &self.order {
            let (image, layers) = match self.nodes.get(digest) {
                Some(Node::Image { layers, .. }) => (digest, layers),
                Some(Node::Referrer { subject, layers }) => (subject, layers),
                _ => continue,
            };
            for (index, layer) in layers.iter().enumerate().filter(|(_, layer)| spdx::is_sbom(layer)) {
                let read = blobs::read(self.blobs, layer, self.largest).and_then(|bytes| sbom(&bytes));
                match read {
                    Ok(packages) => found.entry(image.clone()).or_default().extend(packages),
                    Err(refusal) => {
                        self.parsed.refused.push(refusal.within(&format!("layers[{index}]")).within(digest));
                    }
                }
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

    fn images(mut self) -> Parsed<Image> {
        for digest in &self.order {
            let (is_index, platforms) = match self.nodes.get(digest) {
                Some(Node::Index(_)) => {
                    let mut platforms = Vec::new();
                    self.platforms(digest, &mut HashSet::new(), &mut platforms);
                    (true, platforms)
                }
                Some(Node::Image { platform, .. }) => (false, vec![platform.clone()]),
                _ => continue,
            };
            // An index that contains only signatures or charts is not an image.
            if !platforms.is_empty() {
                let image =
                    Image { digest: Digest::opaque(digest.as_str()), index: is_index, platforms, ..Image::default() };
                self.parsed.resources.push(Placed { place: digest.clone(), resource: image });
            }
        }
        self.parsed
    }

    /// Adds the images of an index, including those of nested indexes, each once and in order.
    fn platforms<'s>(&'s self, digest: &'s str, seen: &mut HashSet<&'s str>, platforms: &mut Vec<ImagePlatform>) {
        if !seen.insert(digest) {
            return;
        }
        match self.nodes.get(digest) {
            Some(Node::Image { platform, .. }) => platforms.push(platform.clone()),
            Some(Node::Index(children)) => {
                children.iter().for_each(|child| self.platforms(child, seen, platforms));
            }
            _ => {}
        }
    }
}

/// Returns the digest of the image that a manifest is about, if any.
fn subject(descriptor: &Descriptor, manifest: &ImageManifest) -> Option<String> {
    let annotation = |name: &str| descriptor.annotations().as_ref()?.get(name);
    let named = || {
        // Signing tools put the image's digest into the tag of the signature.
        let name = annotation("org.opencontainers.image.ref.name")?;
        let name = name.rsplit(':').next()?;
        let hex = name.strip_prefix("sha256-")?.split_once('.')?.0;
        Some(format!("sha256:{hex}"))
    };
    let subject = manifest.subject().as_ref().map(|subject| subject.digest().to_string());
    subject.or_else(|| annotation("vnd.docker.reference.digest").cloned()).or_else(named)
}

/// Returns whether a manifest is of a runnable image, and not of another artifact in a registry.
fn is_image(manifest: &ImageManifest) -> bool {
    let config = match manifest.config().media_type() {
        MediaType::ImageConfig => true,
        MediaType::Other(name) => name == "application/vnd.docker.container.image.v1+json",
        _ => false,
    };
    config && manifest.artifact_type().is_none()
}

//! Reads the packages of software bills of materials (SBOMs): SPDX 2 in JSON, either plain or as the predicate of an
//! in-toto statement, which may be in a DSSE envelope or a Sigstore bundle.

use packageurl::PackageUrl;
use platform_core::resources::registry::image::ImagePackage;
use platform_v1::sbom::{Package, Sbom};

use super::manifest::{Annotations, Descriptor, Manifest};
use crate::{Refusal, osv::without_place};

/// Types of package URLs that are not packages in an image: the image itself, and the sources of its packages.
const NOT_INSTALLED: &[&str] = &["oci", "docker", "github"];

/// Types of package URLs whose namespace is a distribution and not part of the name.
const DISTRIBUTIONS: &[&str] = &["apk", "alpm", "deb", "rpm"];

/// Returns the installed packages that an SBOM lists, sorted: those with a package URL.
///
/// # Errors
/// When the document is not SPDX 2 in JSON.
pub fn sbom(bytes: &[u8]) -> Result<Vec<ImagePackage>, Refusal> {
    let document = Sbom::parse(bytes).map_err(|error| {
        Refusal::new(
            format!("line {} column {}", error.line(), error.column()),
            format!("must be an SPDX 2 document in JSON: {}", without_place(&error)),
        )
    })?;
    if !document.spdx_version.starts_with("SPDX-2.") {
        return Err(Refusal::new("spdxVersion", "must be SPDX-2.x"));
    }
    let mut packages: Vec<_> = document.packages.iter().filter_map(installed).collect();
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// The format of a bill of materials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// SPDX 2 in JSON, which [`sbom`] reads.
    Spdx,
    /// A format that is not read.
    Other,
}

/// The media types of bills of materials that tools give layers and artifacts.
const TYPES: &[(&str, Format)] = &[
    ("application/spdx+json", Format::Spdx),
    ("text/spdx+json", Format::Spdx),
    ("application/spdx+xml", Format::Other),
    ("text/spdx", Format::Other),
    ("text/spdx+xml", Format::Other),
    ("application/vnd.cyclonedx", Format::Other),
    ("application/vnd.cyclonedx+json", Format::Other),
    ("application/vnd.cyclonedx+xml", Format::Other),
    ("application/vnd.syft+json", Format::Other),
];

/// The beginnings of the types of predicates that are bills of materials.
const PREDICATES: &[(&str, Format)] =
    &[("https://spdx.dev/Document", Format::Spdx), ("https://cyclonedx.org/bom", Format::Other)];

/// Annotations with the type of the predicate of a statement: of BuildKit, of cosign, and of Sigstore bundles.
const PREDICATE_TYPES: &[&str] = &["in-toto.io/predicate-type", "predicateType", "dev.sigstore.bundle.predicateType"];

/// Returns whether a layer is an in-toto statement according to its descriptor.
pub(super) fn is_statement(layer: &Descriptor) -> bool {
    let kind = layer.media_type.as_str();
    let known = ["application/vnd.in-toto+json", "application/vnd.dsse.envelope.v1+json"];
    known.contains(&kind) || kind.starts_with("application/vnd.dev.sigstore.bundle.")
}

/// The layers of a manifest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layers {
    /// They are bills of materials: tools write the type of a document there, and give its layer that of any file.
    Sboms(Format),
    /// Their statements have bills of materials.
    StatementsOfSboms(Format),
    Unknown,
}

impl Layers {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let artifact = manifest.artifact_type.as_deref().and_then(of_type);
        if let Some(format) = artifact.or_else(|| of_type(&manifest.config.media_type)) {
            Self::Sboms(format)
        } else if let Some(format) = of_predicate(&manifest.annotations) {
            Self::StatementsOfSboms(format)
        } else {
            Self::Unknown
        }
    }

    /// Returns the format of a layer that is a bill of materials, or a statement with one, according to its descriptor
    /// and the manifest.
    pub(super) fn sbom(self, layer: &Descriptor) -> Option<Format> {
        let said = match (self, is_statement(layer)) {
            (Self::Sboms(format), false) | (Self::StatementsOfSboms(format), true) => Some(format),
            (_, true) => of_predicate(&layer.annotations),
            (_, false) => None,
        };
        of_type(&layer.media_type).or(said)
    }
}

fn of_type(kind: &str) -> Option<Format> {
    TYPES.iter().find(|(known, _)| *known == kind).map(|(_, format)| *format)
}

/// Returns the format of the predicate that annotations name.
fn of_predicate(annotations: &Annotations) -> Option<Format> {
    let kinds = PREDICATE_TYPES.iter().filter_map(|name| annotations.get(name));
    kinds
        .flat_map(|kind| PREDICATES.iter().filter(|(known, _)| kind.starts_with(known)))
        .map(|(_, format)| *format)
        .next()
}

fn installed(package: &Package) -> Option<ImagePackage> {
    let url: PackageUrl<'_> = package.purl().parse().ok()?;
    if NOT_INSTALLED.contains(&url.ty()) {
        return None;
    }
    let name = match url.namespace().filter(|_| !DISTRIBUTIONS.contains(&url.ty())) {
        Some(namespace) => format!("{namespace}/{}", url.name()),
        None => url.name().to_owned(),
    };
    let version = url.version().filter(|version| !version.is_empty()).unwrap_or(&package.version_info).to_owned();
    let origin = url.qualifiers().get("origin").map(|origin| origin.to_string()).unwrap_or_default();
    Some(ImagePackage { name, version, origin })
}

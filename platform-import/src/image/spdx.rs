//! Reads the packages of software bills of materials (SBOMs): SPDX 2 in JSON, either plain or as the predicate of an
//! in-toto statement, which may be in a DSSE envelope or a Sigstore bundle.

use std::collections::HashMap;

use oci_spec::image::{Descriptor, ImageManifest, MediaType};
use packageurl::PackageUrl;
use platform_core::resources::registry::image::ImagePackage;
use platform_v1::sbom::{Package, Sbom};

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

/// Types of SPDX documents in JSON.
const SPDX: &[&str] = &["application/spdx+json", "text/spdx+json"];

/// Annotations with the type of the predicate of a statement: of BuildKit, of cosign, and of Sigstore bundles.
const PREDICATE_TYPES: &[&str] = &["in-toto.io/predicate-type", "predicateType", "dev.sigstore.bundle.predicateType"];

/// Returns whether a layer is an in-toto statement according to its descriptor.
pub(super) fn is_statement(layer: &Descriptor) -> bool {
    let kind = layer.media_type().to_string();
    let known = ["application/vnd.in-toto+json", "application/vnd.dsse.envelope.v1+json"];
    known.contains(&kind.as_str()) || kind.starts_with("application/vnd.dev.sigstore.bundle.")
}

/// What a manifest says of its layers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layers {
    /// They are SPDX documents: tools write the type of a document there, and give its layer that of any file.
    Sboms,
    /// Their statements have SPDX documents.
    StatementsOfSboms,
    Unknown,
}

impl Layers {
    pub(super) fn of(manifest: &ImageManifest) -> Self {
        let is_spdx = |kind: &MediaType| SPDX.contains(&&*kind.to_string());
        if manifest.artifact_type().as_ref().is_some_and(is_spdx) || is_spdx(manifest.config().media_type()) {
            Self::Sboms
        } else if manifest.annotations().as_ref().is_some_and(names_spdx) {
            Self::StatementsOfSboms
        } else {
            Self::Unknown
        }
    }

    /// Returns whether a layer is an SPDX document, or a statement with one, according to its descriptor and the manifest.
    pub(super) fn have_sbom(self, layer: &Descriptor) -> bool {
        let names_spdx = || layer.annotations().as_ref().is_some_and(names_spdx);
        let is_sbom = match (self, is_statement(layer)) {
            (Self::Sboms, false) | (Self::StatementsOfSboms, true) => true,
            (_, is_statement) => is_statement && names_spdx(),
        };
        is_sbom || SPDX.contains(&&*layer.media_type().to_string())
    }
}

fn names_spdx(annotations: &HashMap<String, String>) -> bool {
    let kinds = PREDICATE_TYPES.iter().filter_map(|name| annotations.get(*name));
    kinds.into_iter().any(|kind| kind.starts_with("https://spdx.dev/Document"))
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

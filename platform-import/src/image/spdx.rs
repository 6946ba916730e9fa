//! Reads the packages of software bills of materials (SBOMs): SPDX 2 in JSON, either plain or as the predicate of an
//! in-toto statement.

use oci_spec::image::Descriptor;
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

/// Returns whether a layer is an in-toto statement according to its descriptor.
pub(super) fn is_statement(layer: &Descriptor) -> bool {
    layer.media_type().to_string() == "application/vnd.in-toto+json"
}

/// Returns whether a layer is an SPDX document according to its descriptor.
pub(super) fn is_sbom(layer: &Descriptor) -> bool {
    let kind = layer.media_type().to_string();
    let predicate = layer.annotations().as_ref().and_then(|annotations| annotations.get("in-toto.io/predicate-type"));
    match kind.as_str() {
        "application/spdx+json" | "text/spdx+json" => true,
        "application/vnd.in-toto+json" => predicate.is_some_and(|kind| kind.starts_with("https://spdx.dev/Document")),
        _ => false,
    }
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

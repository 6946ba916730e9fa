//! Reads software bills of materials (SBOMs): SPDX 2 in JSON, either plain or as the predicate of an in-toto statement.

use oci_spec::image::Descriptor;
use packageurl::PackageUrl;
use platform_core::resources::registry::image::ImagePackage;
use serde::Deserialize;

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
    let read = |error: serde_json::Error| {
        Refusal::new(
            format!("line {} column {}", error.line(), error.column()),
            format!("must be an SPDX 2 document in JSON: {}", without_place(&error)),
        )
    };
    let statement: Statement = serde_json::from_slice(bytes).map_err(read)?;
    let document = match statement.predicate {
        Some(predicate) => predicate,
        None => serde_json::from_slice(bytes).map_err(read)?,
    };
    if !document.version.starts_with("SPDX-2.") {
        return Err(Refusal::new("spdxVersion", "must be SPDX-2.x"));
    }
    let mut packages: Vec<_> = document.packages.iter().filter_map(Package::installed).collect();
    packages.sort();
    packages.dedup();
    Ok(packages)
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

/// An in-toto statement. Any other document has no predicate.
#[derive(Deserialize)]
struct Statement {
    predicate: Option<Document>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "spdxVersion")]
    version: String,
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    version_info: Option<String>,
    #[serde(default)]
    external_refs: Vec<ExternalRef>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExternalRef {
    reference_type: String,
    reference_locator: String,
}

impl Package {
    fn installed(&self) -> Option<ImagePackage> {
        let reference = self.external_refs.iter().find(|reference| reference.reference_type == "purl")?;
        let url: PackageUrl<'_> = reference.reference_locator.parse().ok()?;
        if NOT_INSTALLED.contains(&url.ty()) {
            return None;
        }
        let name = match url.namespace().filter(|_| !DISTRIBUTIONS.contains(&url.ty())) {
            Some(namespace) => format!("{namespace}/{}", url.name()),
            None => url.name().to_owned(),
        };
        let version = url.version().or(self.version_info.as_deref()).unwrap_or_default().to_owned();
        let origin = url.qualifiers().get("origin").map(|origin| origin.to_string()).unwrap_or_default();
        Some(ImagePackage { name, version, origin })
    }
}

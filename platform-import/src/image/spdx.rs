//! Bills of materials: SPDX 2 in JSON, by itself or as the predicate of an in-toto statement.

use oci_spec::image::Descriptor;
use packageurl::PackageUrl;
use platform_core::resources::registry::image::ImagePackage;
use serde::Deserialize;

use crate::{Refusal, osv::without_place};

/// Package URLs of what is no package of an image: the image itself, and what its packages were built from.
const NOT_INSTALLED: &[&str] = &["oci", "docker", "github"];

/// Package URLs whose namespace is a distribution and no part of the name.
const OF_DISTRIBUTIONS: &[&str] = &["apk", "alpm", "deb", "rpm"];

/// Returns the packages that a bill of materials says are installed: those that have a package URL, sorted.
///
/// # Errors
/// When it is no SPDX 2 document in JSON.
pub fn sbom(bytes: &[u8]) -> Result<Vec<ImagePackage>, Refusal> {
    let read = |error: serde_json::Error| {
        Refusal::new(
            format!("line {} column {}", error.line(), error.column()),
            format!("is not the bill of materials that is expected: {}", without_place(&error)),
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

/// Tells whether a layer is a bill of materials in SPDX by what its descriptor says.
pub(super) fn may_be(layer: &Descriptor) -> bool {
    let kind = layer.media_type().to_string();
    let predicate = layer.annotations().as_ref().and_then(|annotations| annotations.get("in-toto.io/predicate-type"));
    match kind.as_str() {
        "application/spdx+json" | "text/spdx+json" => true,
        "application/vnd.in-toto+json" => predicate.is_some_and(|kind| kind.starts_with("https://spdx.dev/Document")),
        _ => false,
    }
}

/// An in-toto statement; of anything else it has nothing.
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
        let name = match url.namespace().filter(|_| !OF_DISTRIBUTIONS.contains(&url.ty())) {
            Some(namespace) => format!("{namespace}/{}", url.name()),
            None => url.name().to_owned(),
        };
        let version = url.version().or(self.version_info.as_deref()).unwrap_or_default().to_owned();
        let origin = url.qualifiers().get("origin").map(|origin| origin.to_string()).unwrap_or_default();
        Some(ImagePackage { name, version, origin })
    }
}

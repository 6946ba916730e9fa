//! The messages that show bills of materials.

use base64::{Engine, engine::general_purpose::STANDARD};
use packageurl::PackageUrl;
use platform_engine::{
    error::Result,
    kind::{Field, Type},
    timestamp::Timestamp,
};
use serde_json::{Value, json};

use crate::sbom::{Sbom, time};

/// The values of `source`; an imported document is INGESTED.
const SOURCE: &[&str] = &["UNKNOWN", "INGESTED", "GENERATED"];

/// The types of edges.
const EDGE: &[&str] = &["UNKNOWN", "DESCRIBES", "CONTAINS", "DEPENDS_ON", "GENERATED_FROM"];

/// The relationships whose edge has the other direction, with the type of the edge.
const REVERSED: &[(&str, &str)] = &[
    ("DESCRIBED_BY", "DESCRIBES"),
    ("CONTAINED_BY", "CONTAINS"),
    ("DEPENDENCY_OF", "DEPENDS_ON"),
    ("GENERATES", "GENERATED_FROM"),
];

pub(super) const SBOM: &[Field] = &[
    Field::string("id").about("The digest of the bill of materials."),
    Field::new("rawSbom", Type::Bytes).about("The SPDX document as it was imported."),
    Field::message(
        "graph",
        &[
            Field::new(
                "nodes",
                Type::List(&Type::Message(&[
                    Field::message("package", PACKAGE).about("A package.").oneof("typed_node"),
                    Field::message("file", FILE).about("A file.").oneof("typed_node"),
                ])),
            )
            .about("The packages and files of the document, in its order."),
            Field::new(
                "edges",
                Type::List(&Type::Message(&[
                    Field::string("subjectId").about("The identifier of the first element."),
                    Field::string("predicateId").about("The identifier of the second element."),
                    Field::enumeration("type", EDGE).about(
                        "The relation of the first element to the second; UNKNOWN for relationships of other types.",
                    ),
                ])),
            )
            .about("The relationships of the document."),
        ],
    )
    .about("The elements of the document and their relationships."),
    Field::timestamp("lastSeen").about("When the image was last imported with a change."),
    Field::string("tool").about("The tools that created the document, separated by commas."),
    Field::string("format").about("The version of SPDX, such as `SPDX-2.3`."),
    Field::timestamp("generatedAt").about("When the document was created."),
    Field::string("authors").about("The organizations and persons that created the document, separated by commas."),
    Field::enumeration("source", SOURCE).about("The origin of the document; INGESTED, because it was imported."),
    Field::string("name").about("The name of the document."),
    Field::string("description").about("The comment of the document."),
    Field::string("digest").about("The digest of the image's manifest."),
];

const PACKAGE: &[Field] = &[
    Field::string("id").about("The identifier in the document."),
    Field::string("name").about("The name."),
    Field::string("version").about("The version."),
    Field::string("license").about("The license: the concluded one, or else the declared one."),
    Field::string("description").about("A description."),
    Field::string("purl").about("The package URL."),
];

const FILE: &[Field] = &[
    Field::string("id").about("The identifier in the document."),
    Field::string("name").about("The path."),
    Field::strings("types").about("The types, such as `BINARY`."),
];

pub(super) const PKG_METADATA: &[Field] = &[
    Field::string("purl").about("The package URL."),
    Field::string("originPurl")
        .about("The URL of the package that it was built from, by the qualifier `origin`; empty without one."),
    Field::timestamp("eolDate").about("The end of its support: `validUntilDate` of the document."),
    Field::timestamp("buildTimestamp").about("When it was built: `builtDate` of the document."),
    Field::string("license").about("The license: the concluded one, or else the declared one."),
];

/// Returns a bill of materials as the message shows it.
pub(super) fn shown(sbom: &Sbom, raw: &[u8], id: &str, digest: &str, seen: Option<Timestamp>) -> Result<Value> {
    let packages = sbom.packages.iter().map(|package| {
        json!({ "package": {
            "id": package.id, "name": package.name, "version": package.version_info, "license": package.license(),
            "description": package.description, "purl": package.purl(),
        } })
    });
    let files = sbom
        .files
        .iter()
        .map(|file| json!({ "file": { "id": file.id, "name": file.file_name, "types": file.file_types } }));
    let authors = sbom.creators("Organization").chain(sbom.creators("Person"));
    Ok(json!({
        "id": id,
        "rawSbom": STANDARD.encode(raw),
        "graph": { "nodes": packages.chain(files).collect::<Vec<_>>(), "edges": edges(sbom) },
        "lastSeen": seen,
        "tool": sbom.creators("Tool").collect::<Vec<_>>().join(", "),
        "format": sbom.spdx_version,
        "generatedAt": time(&sbom.creation_info.created),
        "authors": authors.collect::<Vec<_>>().join(", "),
        "source": "INGESTED",
        "name": sbom.name,
        "description": sbom.comment,
        "digest": digest,
    }))
}

fn edges(sbom: &Sbom) -> Vec<Value> {
    let edge = |subject: &str, predicate: &str, ty: &str| json!({ "subjectId": subject, "predicateId": predicate, "type": ty });
    let described = sbom.document_describes.iter().map(|id| edge(&sbom.id, id, "DESCRIBES"));
    let contained = sbom
        .packages
        .iter()
        .flat_map(|package| package.has_files.iter().map(move |file| edge(&package.id, file, "CONTAINS")));
    let related = sbom.relationships.iter().map(|one| {
        let (first, second) = (&one.spdx_element_id, &one.related_spdx_element);
        match REVERSED.iter().find(|(ty, _)| *ty == one.relationship_type) {
            Some((_, ty)) => edge(second, first, ty),
            None => {
                let ty = EDGE.iter().find(|ty| **ty == one.relationship_type);
                edge(first, second, ty.or(EDGE.first()).copied().unwrap_or_default())
            }
        }
    });
    described.chain(contained).chain(related).collect()
}

/// Returns the packages with a package URL.
pub(super) fn pkg_metadata(sbom: &Sbom) -> Vec<Value> {
    let packages = sbom.packages.iter().filter(|package| !package.purl().is_empty());
    packages
        .map(|package| {
            json!({
                "purl": package.purl(),
                "originPurl": origin(package.purl()).unwrap_or_default(),
                "eolDate": time(&package.valid_until_date),
                "buildTimestamp": time(&package.built_date),
                "license": package.license(),
            })
        })
        .collect()
}

/// Returns the URL of the package that the qualifier `origin` names, with the type, namespace, version and the other
/// qualifiers of this one.
fn origin(purl: &str) -> Option<String> {
    let purl: PackageUrl<'_> = purl.parse().ok()?;
    let name = purl.qualifiers().get("origin")?;
    let mut origin = PackageUrl::new(purl.ty(), name.as_ref()).ok()?;
    if let Some(namespace) = purl.namespace() {
        origin.with_namespace(namespace).ok()?;
    }
    if let Some(version) = purl.version() {
        origin.with_version(version).ok()?;
    }
    for (key, value) in purl.qualifiers().iter().filter(|(key, _)| *key != "origin") {
        origin.add_qualifier(key.as_ref(), value.as_ref()).ok()?;
    }
    Some(origin.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_the_name_in_the_qualifier() {
        let purl = "pkg:apk/wolfi/libcrypto3@3.1.0-r0?arch=x86_64&distro=wolfi&origin=openssl";
        assert_eq!(origin(purl).unwrap(), "pkg:apk/wolfi/openssl@3.1.0-r0?arch=x86_64&distro=wolfi");
        assert_eq!(origin("pkg:apk/wolfi/zlib@1.3-r0"), None);
        assert_eq!(origin("not a purl?origin=x"), None);
    }
}

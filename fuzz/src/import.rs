//! Targets that parse public data and import it into a memory store.

use std::{
    collections::HashMap,
    io::{self, Cursor, Read},
};

use platform_engine::{kind::Imported, timestamp::Timestamp};
use platform_import::{
    Parsed, Refusal,
    image::{self, Blobs},
};
use sha2::{Digest, Sha256};

use super::server::{self, Parent};

/// The time of the imports, in the middle of the times that records have.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Maximum size of a document, in bytes.
const MAX_DOCUMENT: u64 = 1 << 20;

/// Imports an advisory document.
pub fn advisories(data: &[u8]) {
    write(Parent::Organization, platform_import::advisories::document(data, "wolfi"));
}

/// Imports an OSV record in JSON.
pub fn osv_json(data: &[u8]) {
    write(Parent::None, platform_import::osv::json(data, NOW));
}

/// Imports an OSV record in YAML.
pub fn osv_yaml(data: &[u8]) {
    write(Parent::None, platform_import::osv::yaml(data, NOW));
}

/// Imports artifacts from NDJSON.
pub fn artifacts(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        match platform_import::artifacts::line(line) {
            Ok((artifact, versions)) => {
                put(Parent::None, vec![artifact]);
                put(Parent::None, versions);
            }
            Err(refusals) => {
                assert!(!refusals.is_empty(), "a rejected line has a reason");
                refusals.iter().for_each(check_refusal);
            }
        }
    }
}

/// Parses the input as each type of document in an OCI layout.
pub fn oci_documents(data: &[u8]) {
    let refusals = [image::index(data).err(), image::manifest(data).err(), image::architecture(data).err()];
    refusals.iter().flatten().for_each(check_refusal);
}

/// Parses an SPDX bill of materials.
pub fn spdx(data: &[u8]) {
    image::sbom(data).err().iter().for_each(check_refusal);
}

/// Imports an OCI layout. The input consists of blobs separated by lines of four dashes; the first is `index.json`.
/// `@3` in a blob is replaced by digest and size of the fourth blob, if that comes later, so that descriptors match
/// their blobs.
pub fn oci_layout(data: &[u8]) {
    let mut layout = Layout(HashMap::new());
    let mut descriptors: Vec<(usize, String)> = Vec::new();
    let blobs: Vec<_> = String::from_utf8_lossy(data).split("----\n").map(str::to_owned).collect();
    let mut first = String::new();
    // In reverse order, so that a blob is complete before the blobs that refer to it. Replaces higher numbers first,
    // since `@1` is a prefix of `@12`.
    for (number, mut blob) in blobs.into_iter().enumerate().take(100).collect::<Vec<_>>().into_iter().rev() {
        for (number, descriptor) in descriptors.iter().filter(|_| blob.len() < 1 << 16).collect::<Vec<_>>() {
            blob = blob.replace(&format!("@{number}"), descriptor);
        }
        let digest = hex::encode(Sha256::digest(&blob));
        descriptors.push((number, format!(r#""digest":"sha256:{digest}","size":{}"#, blob.len())));
        descriptors.sort_by(|(a, _), (b, _)| b.cmp(a));
        layout.0.insert(format!("blobs/sha256/{digest}"), blob.clone().into_bytes());
        first = blob;
    }
    layout.0.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    layout.0.insert("index.json".to_owned(), first.into_bytes());
    let mut blobs = Vec::new();
    let contents = image::layout(&layout, MAX_DOCUMENT, &mut |blob| blobs.push(blob));
    contents.refused.iter().for_each(check_refusal);
    server::put_blobs(blobs);
    put(Parent::Repo, contents.images.into_iter().map(|placed| placed.resource).collect());
    put(Parent::Repo, contents.charts.into_iter().map(|placed| placed.resource).collect());
}

/// Files by path.
#[derive(Debug)]
struct Layout(HashMap<String, Vec<u8>>);

impl Blobs for Layout {
    fn open(&self, path: &str) -> io::Result<(Box<dyn Read>, u64)> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok((Box::new(Cursor::new(bytes.clone())), bytes.len() as u64))
    }
}

/// Writes the parsed resources, and checks the refusals.
fn write<R: Imported>(parent: Parent, parsed: Parsed<R>) {
    parsed.refused.iter().for_each(check_refusal);
    put(parent, parsed.resources.into_iter().map(|placed| placed.resource).collect());
}

/// Writes resources twice: the second time, each is unchanged or rejected again.
fn put<R: Imported>(parent: Parent, resources: Vec<R>) {
    let (first, second) = server::put_twice(parent, resources);
    assert_eq!(second.created, 0, "the second write created a resource again");
    assert_eq!(first.refused.len(), second.refused.len());
}

/// Checks that a refusal is one line of text.
fn check_refusal(refusal: &Refusal) {
    let text = refusal.to_string();
    assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
}

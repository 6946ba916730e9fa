//! Targets that read public data and write what it says, on a memory store.

use std::{
    collections::HashMap,
    io::{self, Cursor, Read},
};

use platform_core::{kind::Imported, resources::registry::Image};
use platform_import::{
    Parsed, Refusal,
    image::{self, Blobs},
};
use sha2::{Digest, Sha256};

use super::served::{self, Below};

/// The most bytes of a document here.
const LARGEST: u64 = 1 << 20;

/// An advisory document.
pub fn advisories(data: &[u8]) {
    written(Below::Organisation, platform_import::advisories::document(data, "wolfi"));
}

/// An OSV record in JSON.
pub fn osv_json(data: &[u8]) {
    written(Below::Nothing, platform_import::osv::json(data));
}

/// An OSV record in YAML.
pub fn osv_yaml(data: &[u8]) {
    written(Below::Nothing, platform_import::osv::yaml(data));
}

/// Lines of artifacts.
pub fn artifacts(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        match platform_import::artifacts::line(line) {
            Ok((artifact, versions)) => {
                put(Below::Nothing, vec![artifact]);
                put(Below::Nothing, versions);
            }
            Err(refused) => {
                assert!(!refused.is_empty(), "a line is refused for a reason");
                refused.iter().for_each(told);
            }
        }
    }
}

/// The documents of a layout, each by itself.
pub fn oci_documents(data: &[u8]) {
    let refused = [image::index(data).err(), image::manifest(data).err(), image::architecture(data).err()];
    refused.iter().flatten().for_each(told);
}

/// A bill of materials.
pub fn spdx(data: &[u8]) {
    image::sbom(data).err().iter().for_each(told);
}

/// A layout: blobs, each behind a line of four dashes, of which the first is `index.json`. `@3` in one stands for digest
/// and size of the fourth, if that comes later, so that what is put together is held to be what its descriptors say.
pub fn oci_layout(data: &[u8]) {
    let mut layout = Layout(HashMap::new());
    let mut descriptors: Vec<(usize, String)> = Vec::new();
    let blobs: Vec<_> = String::from_utf8_lossy(data).split("----\n").map(str::to_owned).collect();
    let mut first = String::new();
    // From the last, so that a blob is done before what refers to it. Later numbers first: `@12` is not `@1`.
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
    written::<Image>(Below::Repo, image::layout(&layout, LARGEST));
}

/// Files by their paths.
#[derive(Debug)]
struct Layout(HashMap<String, Vec<u8>>);

impl Blobs for Layout {
    fn open(&self, path: &str) -> io::Result<(Box<dyn Read>, u64)> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok((Box::new(Cursor::new(bytes.clone())), bytes.len() as u64))
    }
}

/// Writes what was read, and says what was refused.
fn written<R: Imported>(below: Below, parsed: Parsed<R>) {
    parsed.refused.iter().for_each(told);
    put(below, parsed.resources.into_iter().map(|placed| placed.resource).collect());
}

/// What is written or refused is, a second time, there already or refused again.
fn put<R: Imported>(below: Below, resources: Vec<R>) {
    let (first, second) = served::put_twice(below, resources);
    assert_eq!(second.created, 0, "what was put is not found again");
    assert_eq!(first.refused.len(), second.refused.len());
}

/// A refusal is a line of text.
fn told(refusal: &Refusal) {
    let text = refusal.to_string();
    assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
}

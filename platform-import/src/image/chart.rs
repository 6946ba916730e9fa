//! Reads Helm charts in OCI form: a configuration with the metadata in JSON, and an archive.

use std::collections::HashMap;

use flate2::read::MultiGzDecoder;
use platform_core::resources::registry::Digest;
use platform_v1::resources::{
    Chart,
    chart::{ChartImage, Metadata, Requirement},
};
use serde::Deserialize;

use super::{
    blobs::{self, Blobs},
    manifest::{Descriptor, Manifest},
};
use crate::{
    Refusal,
    osv::without_place,
    source::{Bounded, Flow, Found, Limits, archive, unreadable},
    yaml,
};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The files of a chart that are kept, directly in its directory.
const CHART: &str = "Chart.yaml";
const VALUES: &str = "values.yaml";
const CHANGELOG: &str = "CHANGELOG.md";

/// The annotation that declares images: a YAML list of `name`, `image` and, our extension, `optional`.
const IMAGES: &str = "artifacthub.io/images";

/// The limits of Helm: 5 MiB for a file, 100 MiB for all. The number of files is our choice.
const LIMITS: Limits = Limits { document: 5 << 20, archive: 100 << 20, entries: 10_000 };

/// A chart with its blobs.
pub(super) struct Read {
    /// Everything but the digest of the manifest.
    pub(super) chart: Chart,
    /// The blobs other than the manifest, with their places.
    pub(super) blobs: Vec<(&'static str, Vec<u8>)>,
    /// Rejected parts, without which the chart is valid.
    pub(super) refused: Vec<Refusal>,
}

/// Returns whether a manifest is of a chart.
pub(super) fn is_chart(manifest: &Manifest) -> bool {
    manifest.config.media_type == CONFIG
}

/// Reads the chart of a manifest.
pub(super) fn read(blobs: &dyn Blobs, manifest: &Manifest, largest: u64) -> Result<Read, Refusal> {
    let at_config = |refusal: Refusal| refusal.within("config");
    let config = blobs::read(blobs, &manifest.config, largest).map_err(at_config)?;
    let metadata = Metadata::parse(&config).map_err(|error| {
        at_config(Refusal::whole(format!("must be the metadata of a chart in JSON: {}", without_place(&error))))
    })?;
    let is_content = |layer: &&Descriptor| layer.media_type == CONTENT;
    let content = manifest.layers.iter().find(is_content);
    let content = content.ok_or_else(|| Refusal::new("layers", format!("must have one of type {CONTENT}")))?;
    let at_content = |refusal: Refusal| refusal.within("content");
    let archive = blobs::read(blobs, content, largest).map_err(at_content)?;
    let mut files = files(&archive).map_err(at_content)?;
    let raw = files.remove(CHART).ok_or_else(|| at_content(Refusal::whole(format!("must have a file {CHART}"))))?;
    let (images, refused) = match images(&metadata) {
        Ok(images) => (images, Vec::new()),
        Err(refusal) => (Vec::new(), vec![refusal.within(&format!("config: annotations.{IMAGES}"))]),
    };
    let mut chart = Chart {
        config: Digest::opaque(manifest.config.digest.to_string()),
        content: Digest::opaque(content.digest.to_string()),
        raw: blobs::digest_of(&raw),
        images,
        ..Chart::default()
    };
    let mut kept = vec![("config", config), ("content", archive), (CHART, raw)];
    for (name, field) in [(VALUES, &mut chart.values), (CHANGELOG, &mut chart.changelog)] {
        if let Some(file) = files.remove(name).filter(|file| !file.is_empty()) {
            *field = blobs::digest_of(&file);
            kept.push((name, file));
        }
    }
    Ok(Read { chart, blobs: kept, refused })
}

/// Returns the name of a file directly in the directory of the chart that is kept.
fn kept(path: &str) -> Option<&'static str> {
    let (directory, name) = path.split_once('/')?;
    let is_kept = !directory.is_empty() && directory != ".";
    [CHART, VALUES, CHANGELOG].into_iter().find(|kept| is_kept && *kept == name)
}

/// Reads the files of an archive that are kept. Everything else in it is read, too, and must be within the limits.
fn files(archive: &[u8]) -> Result<HashMap<&'static str, Vec<u8>>, Refusal> {
    let (mut files, mut refused) = (HashMap::new(), None);
    let stream = Bounded::new(MultiGzDecoder::new(archive), LIMITS.archive);
    let visited = archive::entries(stream, "", &LIMITS, |name| kept(name).is_some(), &mut |found| {
        let rule = match found {
            Found::Ignored => return Flow::Continue(()),
            Found::Refused(refusal) => refusal,
            Found::Document { place, bytes } => {
                let path = place.trim_start_matches(": ");
                match (kept(path), std::str::from_utf8(bytes)) {
                    (_, Err(_)) => Refusal::new(path, "must be UTF-8"),
                    (Some(name), Ok(_)) if !files.contains_key(name) => {
                        files.insert(name, bytes.to_vec());
                        return Flow::Continue(());
                    }
                    _ => Refusal::new(path, "is in the archive twice"),
                }
            }
        };
        refused = Some(rule);
        Flow::Break(())
    });
    match (visited, refused) {
        (_, Some(refusal)) => Err(Refusal::new(refusal.place.trim_start_matches(": "), refusal.rule)),
        (Err(error), None) => Err(Refusal::whole(unreadable(&error))),
        (Ok(_), None) => Ok(files),
    }
}

#[derive(Deserialize)]
struct Annotated {
    #[serde(default)]
    name: String,
    image: String,
    #[serde(default)]
    optional: bool,
}

/// Returns the images that the annotation declares.
fn images(metadata: &Metadata) -> Result<Vec<ChartImage>, Refusal> {
    let Some(text) = metadata.annotations.get(IMAGES) else { return Ok(Vec::new()) };
    let images: Vec<Annotated> = yaml::read(text.as_bytes())?;
    let requirement =
        |optional| if optional { Requirement::RequirementOptional } else { Requirement::RequirementRequired };
    let image =
        |one: Annotated| ChartImage { name: one.name, image: one.image, requirement: requirement(one.optional) };
    Ok(images.into_iter().map(image).collect())
}

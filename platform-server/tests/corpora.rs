//! Replays the corpora of the fuzz targets as regression tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]
#![allow(unreachable_pub, reason = "the targets are a separate crate when fuzzing")]

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::{fs, path::Path};

#[test]
fn every_target_passes_its_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpora");
    let mut folders: Vec<_> =
        fs::read_dir(&corpora).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    assert_eq!(folders, targets::TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, target) in targets::TARGETS {
        let files: Vec<_> = fs::read_dir(corpora.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 5, "the corpus of {name} is too small");
        files.iter().for_each(|file| target(&fs::read(file).unwrap()));
    }
}

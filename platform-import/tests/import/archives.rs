//! Tests of archives, valid and hostile.

use std::{fs, io::Write, path::PathBuf};

use platform_import::source::Limits;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::support::{Counts, World, document};

fn header(name: &str, kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(0o644);
    let bytes = name.as_bytes();
    header.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    header.set_cksum();
    header
}

/// Builds an archive with these entries.
fn tar(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, text) in entries {
        builder.append(&header(name, *kind, text.len()), text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn file(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

#[test]
fn an_archive_is_read_the_same_plain_and_compressed() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let long = format!("{}/c.yaml", "long".repeat(60));
    let mut builder = Builder::new(Vec::new());
    for (name, package) in [("./a.yaml", "a"), (&long, "c")] {
        let text = document(package, &["CGA-1"]);
        let mut head = Header::new_gnu();
        head.set_size(text.len() as u64);
        builder.append_data(&mut head, name, text.as_bytes()).unwrap();
    }
    let plain = builder.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    for (name, bytes, counts) in [
        ("a.tar", plain.clone(), (2, 0, 0)),
        ("a.tar.zst", zstd(&plain), (0, 0, 2)),
        ("a.TGZ", gzip.finish().unwrap(), (0, 0, 2)),
    ] {
        let done = world.import(world.advisories(), &[&file(&dir, name, &bytes)]).unwrap();
        assert_eq!((done.counts("advisories"), done.refused), (counts, 0), "{name}: {:?}", world.refused);
    }
}

#[test]
fn names_outside_the_archive_are_rejected_links_are_ignored_and_the_rest_is_read() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let text = document("a", &["CGA-1"]);
    let bytes = tar(&[
        ("../a.yaml", EntryType::Regular, &text),
        ("/etc/a.yaml", EntryType::Regular, &text),
        ("x/..\\a.yaml", EntryType::Regular, &text),
        ("link.yaml", EntryType::Symlink, ""),
        ("hard.yaml", EntryType::Link, ""),
        ("fifo.yaml", EntryType::Fifo, ""),
        ("folder", EntryType::Directory, ""),
        ("good.yaml", EntryType::Regular, &text),
        ("README", EntryType::Regular, "words"),
    ]);
    let done = world.import(world.advisories(), &[&file(&dir, "a.tar", &bytes)]).unwrap();
    assert_eq!((done.counts("advisories"), done.ignored, done.refused), ((1, 0, 0), 4, 3));
    assert!(world.refused.iter().all(|expected| expected.ends_with("has a name that points outside the archive")));
}

#[test]
fn decompression_bombs_are_rejected_before_they_use_memory() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    world.limits = Limits { document: 10_000, archive: 100_000, entries: 20 };
    let zeros = "0".repeat(90_000);
    let text = document("a", &["CGA-1"]);
    let entry = [("large.yaml", EntryType::Regular, zeros.as_str()), ("good.yaml", EntryType::Regular, &text)];
    let done = world.import(world.advisories(), &[&file(&dir, "entry.tar.zst", &zstd(&tar(&entry)))]).unwrap();
    assert_eq!((done.counts("advisories"), world.refused.len()), ((1, 0, 0), 1));
    assert!(world.refused[0].ends_with("large.yaml: is larger than 10000 bytes"), "{:?}", world.refused);

    let ignored: Vec<_> = (0..3).map(|_| ("zeros", EntryType::Regular, zeros.as_str())).collect();
    let many: Vec<_> = (0..21).map(|_| ("a", EntryType::Regular, "")).collect();
    let name = [("././@LongLink", EntryType::GNULongName, zeros.as_str())];
    for (entries, expected) in [
        (&ignored[..], "unpacks to more than 100000 bytes"),
        (&many, "has more than 20 entries"),
        (&name, "has a name or attributes of more than 65536 bytes"),
    ] {
        world.import(world.advisories(), &[&file(&dir, "bomb.tar.zst", &zstd(&tar(entries)))]).unwrap();
        assert!(world.refused.len() == 1 && world.refused[0].ends_with(expected), "{expected}: {:?}", world.refused);
    }
}

#[test]
fn a_damaged_archive_is_rejected_from_the_damage_on() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (first, second) = (document("a", &["CGA-1"]), document("b", &["CGA-1"]));
    let whole = tar(&[("a.yaml", EntryType::Regular, &first), ("b.yaml", EntryType::Regular, &second)]);
    let packed = zstd(&whole);
    for (name, bytes) in [
        ("cut.tar", &whole[..1100 + 512]),
        ("cut.tar.zst", &packed[..packed.len() - 9]),
        ("none.tar", b"no archive at all"),
        ("none.tar.zst", b"no archive at all"),
    ] {
        let done = world.import(world.advisories(), &[&file(&dir, name, bytes)]).unwrap();
        assert_eq!(done.refused, 1, "{name}: {:?}", world.refused);
    }
}

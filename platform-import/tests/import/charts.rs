//! Tests of the charts, tags and blobs of image layouts, which the tests build themselves.

use std::fs;

use flate2::{Compression, write::GzEncoder};
use platform_core::resources::registry::{
    Image, Tag,
    image::{BlobContent, ImageBlob},
};
use platform_engine::blob::BlobId;
use platform_import::{
    Dataset,
    image::{Directory, layout as image_layout},
};
use platform_v1::resources::{Chart, chart::Requirement};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::{
    images::{Layout, MANIFEST, digest, sbom, with},
    support::{Counts, World},
};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const IMAGES: &str = "- name: web\n  image: registry.example.com/acme/nginx:1\n- image: redis\n  optional: true\n";

/// Returns an archive with these files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Writes a chart and returns its descriptor.
fn chart(layout: &Layout, config: &Value, archive: &[u8]) -> Value {
    let (config, content) = (layout.json(CONFIG, config), layout.blob(CONTENT, archive));
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [content] });
    layout.json(MANIFEST, &manifest)
}

fn metadata() -> Value {
    json!({ "name": "web", "version": "1.2.0", "annotations": { "artifacthub.io/images": IMAGES } })
}

fn named(descriptor: &Value, name: &str) -> Value {
    with(descriptor.clone(), "annotations", json!({ "org.opencontainers.image.ref.name": name }))
}

/// Returns the refusals of a layout with one chart, whose archive has these bytes.
fn refusals(config: &Value, archive: &[u8]) -> (usize, Vec<String>) {
    let layout = Layout::new();
    let chart = chart(&layout, config, archive);
    layout.top(std::slice::from_ref(&chart));
    let contents = layout.contents();
    let prefix = format!("{}: ", digest(&chart));
    let refused = contents.refused.iter().map(|refusal| refusal.to_string().replacen(&prefix, "", 1));
    (contents.charts.len(), refused.collect())
}

#[test]
fn a_chart_is_read_with_its_files_and_images() {
    let layout = Layout::new();
    let archive = archive(&[
        ("web/Chart.yaml", b"name: web\n"),
        ("web/values.yaml", b"replicas: 1\n"),
        ("web/CHANGELOG.md", b"# 1.2.0\n"),
        ("web/templates/web.yaml", b"{{ x }}"),
        ("web/charts/redis/Chart.yaml", b"name: redis\n"),
    ]);
    let chart = chart(&layout, &metadata(), &archive);
    layout.top(&[named(&chart, "1.2.0")]);
    let mut kept = Vec::new();
    let contents = image_layout(&Directory(layout.path().to_owned()), 1 << 20, &mut |blob| {
        kept.push(blob);
    });
    assert_eq!((contents.refused.len(), contents.images.len()), (0, 0), "{:?}", contents.refused);
    let [read] = contents.charts.as_slice() else { panic!("{contents:?}") };
    let read: &Chart = &read.resource;
    let content = |digest: &str| {
        let is_it = |blob: &&Vec<u8>| BlobId::named("", digest) == Some(BlobId::of("", blob));
        String::from_utf8_lossy(kept.iter().find(is_it).unwrap()).into_owned()
    };
    assert_eq!(*read.digest, digest(&chart));
    assert_eq!(content(&read.raw), "name: web\n");
    assert_eq!(content(&read.values), "replicas: 1\n");
    assert_eq!(content(&read.changelog), "# 1.2.0\n");
    assert_eq!(content(&read.config), metadata().to_string());
    assert!(content(&read.manifest).contains(CONFIG) && kept.contains(&archive));
    let images: Vec<_> =
        read.images.iter().map(|one| (one.name.as_str(), one.image.as_str(), one.requirement)).collect();
    assert_eq!(
        images,
        [
            ("web", "registry.example.com/acme/nginx:1", Requirement::RequirementRequired),
            ("", "redis", Requirement::RequirementOptional)
        ]
    );
}

#[test]
fn a_hostile_chart_is_rejected_with_its_place() {
    let fine: (&str, &[u8]) = ("web/Chart.yaml", b"name: web\n");
    let reject = |files: &[(&str, &[u8])], rule: &str| {
        let (charts, refused) = refusals(&metadata(), &archive(files));
        assert_eq!((charts, refused.len()), (0, 1), "{refused:?}");
        assert!(refused[0].starts_with("content: ") && refused[0].contains(rule), "{refused:?}");
    };
    reject(&[], "must have a file Chart.yaml");
    reject(&[("Chart.yaml", b"x")], "must have a file Chart.yaml");
    reject(&[fine, ("web/../../etc/passwd", b"x")], "web/../../etc/passwd: has a name that points outside the archive");
    reject(&[fine, ("/etc/passwd", b"x")], "/etc/passwd: has a name that points outside the archive");
    reject(&[fine, ("other/Chart.yaml", b"x")], "other/Chart.yaml: is in the archive twice");
    reject(&[fine, ("web/values.yaml", b"\xff")], "web/values.yaml: must be UTF-8");
    reject(&[fine, ("web/values.yaml", &vec![b' '; (5 << 20) + 1])], "web/values.yaml: is larger than 5242880 bytes");
    let (charts, refused) = refusals(&metadata(), b"not an archive");
    assert_eq!(charts, 0);
    assert!(refused[0].starts_with("content: cannot be read"), "{refused:?}");
    let whole = archive(&[fine, ("web/a", &[7; 10_000])]);
    let (charts, refused) = refusals(&metadata(), &whole[..whole.len() / 2]);
    assert_eq!((charts, refused.len()), (0, 1), "{refused:?}");
}

#[test]
fn an_archive_that_unpacks_to_too_much_is_rejected() {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let mut header = Header::new_ustar();
    header.set_path("web/large").unwrap();
    header.set_size(200 << 20);
    header.set_cksum();
    tar.append(&header, std::io::Read::take(std::io::repeat(0), 200 << 20)).unwrap();
    let bomb = tar.into_inner().unwrap().finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let (charts, refused) = refusals(&metadata(), &bomb);
    assert_eq!(charts, 0);
    assert!(refused[0].contains("unpacks to more than 104857600 bytes"), "{refused:?}");
}

#[test]
fn invalid_metadata_is_rejected_and_an_invalid_annotation_by_itself() {
    let good = archive(&[("web/Chart.yaml", b"name: web\n")]);
    let (charts, refused) = refusals(&json!({ "name": 3 }), &good);
    assert_eq!(charts, 0);
    assert!(refused[0].starts_with("config: must be the metadata of a chart in JSON: "), "{refused:?}");
    let (charts, refused) = refusals(&json!({ "annotations": { "artifacthub.io/images": "- {}" } }), &good);
    assert_eq!(charts, 1);
    assert!(refused[0].starts_with("config: annotations.artifacthub.io/images: line 1"), "{refused:?}");
    let layout = Layout::new();
    let config = layout.json(CONFIG, &metadata());
    let empty = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [] });
    layout.top(&[layout.json(MANIFEST, &empty)]);
    assert!(layout.contents().refused[0].to_string().contains("layers: must have one of type "));
}

#[test]
fn blobs_of_an_image_are_its_manifest_its_configuration_and_its_sboms() {
    let layout = Layout::new();
    let own = layout.json("application/spdx+json", &sbom("own"));
    let image = layout.image("amd64", b"one", std::slice::from_ref(&own));
    let attached = layout.json("text/spdx+json", &sbom("attached"));
    let other = layout.json("application/vnd.in-toto+json", &json!({ "predicateType": "https://slsa.dev/provenance" }));
    let empty = layout.blob("application/vnd.oci.empty.v1+json", b"{}");
    let artifact = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/spdx+json",
        "config": empty, "layers": [attached, other], "subject": image });
    let artifact = layout.json(MANIFEST, &artifact);
    let index = layout.index(std::slice::from_ref(&image));
    layout.top(&[artifact.clone(), index.clone()]);
    let mut kept = Vec::new();
    let contents = layout_of(&layout, &mut kept);
    let [single, multi] = contents.as_slice() else { panic!("{contents:?}") };
    let blobs = |image: &Image| {
        image.blobs.iter().map(|ImageBlob { digest, content, .. }| (*content, digest.to_string())).collect::<Vec<_>>()
    };
    let config: Value =
        serde_json::from_slice(&fs::read(layout.path().join("blobs/sha256").join(&digest(&image)[7..])).unwrap())
            .unwrap();
    let about = [
        (BlobContent::ContentConfig, digest(&config["config"])),
        (BlobContent::ContentSbom, digest(&own)),
        (BlobContent::ContentSbom, digest(&attached)),
        (BlobContent::ContentAttestation, digest(&other)),
        (BlobContent::ContentAttestation, digest(&artifact)),
    ];
    let expected = |manifest: &Value| [&[(BlobContent::ContentManifest, digest(manifest))], &about[..]].concat();
    assert_eq!(blobs(single), expected(&image));
    assert_eq!(blobs(multi), expected(&index));
    assert_eq!(*single.blobs[3].manifest, digest(&artifact));
    for (_, digest) in expected(&image) {
        assert!(kept.iter().any(|blob| BlobId::named("", &digest) == Some(BlobId::of("", blob))), "{digest}");
    }
}

fn layout_of(of: &Layout, kept: &mut Vec<Vec<u8>>) -> Vec<Image> {
    let contents = image_layout(&Directory(of.path().to_owned()), 1 << 20, &mut |blob| kept.push(blob));
    assert!(contents.refused.is_empty(), "{:?}", contents.refused);
    contents.images.into_iter().map(|placed| placed.resource).collect()
}

#[test]
fn an_index_that_contains_itself_does_not_end_the_import() {
    // The digests of a cycle cannot match, so the index with the wrong digest is rejected.
    let layout = Layout::new();
    let good = layout.image("amd64", b"one", &[]);
    let inner = layout.index(std::slice::from_ref(&good));
    let hex = digest(&inner)[7..].to_owned();
    let cyclic = json!({ "schemaVersion": 2, "manifests": [with(inner.clone(), "size", json!(1))] }).to_string();
    fs::write(layout.path().join("blobs/sha256").join(&hex), &cyclic).unwrap();
    layout.top(&[with(inner, "size", json!(cyclic.len())), good]);
    let contents = layout.contents();
    assert_eq!((contents.images.len(), contents.refused.len()), (1, 1), "{:?}", contents.refused);
    assert!(contents.refused[0].to_string().ends_with("does not match its digest"), "{:?}", contents.refused);
}

#[test]
fn a_layout_is_imported_with_blobs_and_tags_and_a_second_import_changes_nothing() {
    let (mut world, layout) = (World::new(), Layout::new());
    let image = layout.image("amd64", b"one", &[layout.json("application/spdx+json", &sbom("zlib"))]);
    let chart = chart(&layout, &metadata(), &archive(&[("web/Chart.yaml", b"name: web\n")]));
    layout.top(&[
        named(&image, "registry.example.com/acme/nginx:1.27"),
        named(&chart, "chart-1"),
        named(&image, "a b"),
    ]);
    let repo = world.repo();
    let dataset = Dataset::Images { repo: repo.clone(), tags: Vec::new() };
    for (written, blobs) in [((1, 0, 0), (7, 0, 0)), ((0, 0, 1), (0, 0, 7))] {
        let done = world.import(dataset.clone(), &[layout.path()]).unwrap();
        assert_eq!((done.counts("images"), done.counts("charts")), (written, written));
        assert_eq!((done.counts("blobs"), done.refused), (blobs, 1), "{:?}", world.refused);
        assert!(world.refused[0].contains("index.json: manifests[2].annotations."), "{:?}", world.refused);
        assert!(world.refused[0].contains("name: tag must match"), "{:?}", world.refused);
    }
    let mut tags: Vec<_> = world.list::<Tag>(&[]).into_iter().map(|tag| (tag.name, tag.digest.to_string())).collect();
    tags.sort();
    assert_eq!(tags, [("1.27".to_owned(), digest(&image)), ("chart-1".to_owned(), digest(&chart))]);
}

#[test]
fn a_given_tag_replaces_the_names_of_the_layout_and_needs_one_image() {
    let (mut world, layout) = (World::new(), Layout::new());
    let one = layout.image("amd64", b"one", &[]);
    layout.top(&[named(&one, "named")]);
    let dataset = Dataset::Images { repo: world.repo(), tags: vec!["a".to_owned(), "b".to_owned()] };
    assert_eq!(world.import(dataset.clone(), &[layout.path()]).unwrap().refused, 0);
    let mut names: Vec<_> = world.list::<Tag>(&[]).into_iter().map(|tag| tag.name).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    layout.top(&[one, layout.image("amd64", b"two", &[])]);
    let done = world.import(dataset, &[layout.path()]).unwrap();
    assert_eq!((done.counts("images"), done.refused), ((1, 0, 1), 1));
    assert!(world.refused[0].ends_with("must have one image or chart in index.json to be tagged, but has 2"));
}

#[test]
fn a_tag_that_is_named_twice_is_taken_from_the_first_manifest() {
    let layout = Layout::new();
    let (one, two) = (layout.image("amd64", b"one", &[]), layout.image("amd64", b"two", &[]));
    layout.top(&[named(&one, "latest"), named(&two, "x:latest")]);
    let contents = layout.contents();
    assert_eq!(contents.tags.len(), 1);
    assert_eq!(*contents.tags[0].resource.digest, digest(&one));
    assert!(contents.refused[0].to_string().ends_with("names a tag that an earlier manifest has"));
}

#[test]
fn an_sbom_that_is_too_long_to_be_kept_is_reported_and_its_packages_are_known() {
    let layout = Layout::new();
    let mut long = sbom("zlib");
    long["comment"] = json!(" ".repeat(platform_engine::blob::MAX_LEN));
    let image = layout.image("amd64", b"one", &[layout.json("application/spdx+json", &long)]);
    layout.top(&[image]);
    let contents = image_layout(&Directory(layout.path().to_owned()), 16 << 20, &mut |_| {});
    let image = &contents.images[0].resource;
    assert_eq!((image.platforms[0].packages.len(), image.blobs.len()), (1, 2));
    assert!(contents.refused[0].to_string().ends_with("is larger than 12000000 bytes, and cannot be kept"));
}

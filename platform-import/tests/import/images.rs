//! Tests of image layouts, which the tests build themselves.

use std::{fs, path::Path};

use base64::prelude::{BASE64_STANDARD, Engine};
use platform_core::resources::registry::{
    self, Image, Tag,
    image::{BlobContent, ImagePlatform},
};
use platform_engine::{kind::Imported, uid::Uid};
use platform_import::{
    Dataset,
    image::{Contents, Directory, layout},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::support::{Counts, World};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub(super) struct Layout(TempDir);

impl Layout {
    pub(super) fn new() -> Self {
        let layout = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(layout.path().join("blobs/sha256")).unwrap();
        fs::write(layout.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        layout.top(&[]);
        layout
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the index of the layout.
    pub(super) fn top(&self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        fs::write(self.path().join("index.json"), index.to_string()).unwrap();
    }

    /// Writes a blob and returns its descriptor.
    pub(super) fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let hex = hex(bytes);
        fs::write(self.path().join("blobs/sha256").join(&hex), bytes).unwrap();
        json!({ "mediaType": kind, "digest": format!("sha256:{hex}"), "size": bytes.len() })
    }

    pub(super) fn json(&self, kind: &str, value: &Value) -> Value {
        self.blob(kind, value.to_string().as_bytes())
    }

    pub(super) fn index(&self, manifests: &[Value]) -> Value {
        self.json(INDEX, &json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests }))
    }

    /// Writes an image with a layer of these bytes and additional layers; returns its descriptor.
    pub(super) fn image(&self, architecture: &str, layer: &[u8], more: &[Value]) -> Value {
        let config =
            json!({ "architecture": architecture, "os": "linux", "rootfs": { "type": "layers", "diff_ids": [] } });
        let mut layers = vec![self.blob(LAYER, layer)];
        layers.extend_from_slice(more);
        self.image_of(&config, &layers)
    }

    /// Writes an image with this configuration and these layers; returns its descriptor.
    pub(super) fn image_of(&self, config: &Value, layers: &[Value]) -> Value {
        let config = self.json(CONFIG, config);
        self.json(MANIFEST, &json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers }))
    }

    pub(super) fn contents(&self) -> Contents {
        layout(&Directory(self.path().to_owned()), 1 << 20, &mut |_| {})
    }

    fn read(&self) -> (Vec<Image>, Vec<String>) {
        let read = self.contents();
        let images = read.images.into_iter().map(|placed| placed.resource).collect();
        (images, read.refused.iter().map(ToString::to_string).collect())
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn digest(descriptor: &Value) -> String {
    descriptor["digest"].as_str().unwrap().to_owned()
}

pub(super) fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

pub(super) fn sbom(package: &str) -> Value {
    json!({ "spdxVersion": "SPDX-2.3", "packages": [{
        "externalRefs": [{ "referenceType": "purl", "referenceLocator": format!("pkg:apk/wolfi/{package}@1.0-r0") }],
    }] })
}

fn packages(platform: &ImagePlatform) -> Vec<&str> {
    platform.packages.iter().map(|package| package.name.as_str()).collect()
}

#[test]
fn every_index_and_manifest_becomes_an_image_with_architectures_and_sizes() {
    let layout = Layout::new();
    let (amd64, arm64) = (layout.image("amd64", b"one", &[]), layout.image("arm64", b"three", &[]));
    let inner = layout.index(std::slice::from_ref(&arm64));
    let outer = layout.index(&[amd64.clone(), inner.clone()]);
    layout.top(std::slice::from_ref(&outer));
    let (images, refused) = layout.read();
    assert_eq!(refused, [""; 0]);
    let said: Vec<_> = images
        .iter()
        .map(|image| {
            let platforms: Vec<_> = image.platforms.iter().map(|one| one.architecture.as_str()).collect();
            (image.digest.to_string(), image.index, platforms.join(","))
        })
        .collect();
    assert_eq!(
        said,
        [
            (digest(&amd64), false, "amd64".to_owned()),
            (digest(&arm64), false, "arm64".to_owned()),
            (digest(&inner), true, "arm64".to_owned()),
            (digest(&outer), true, "amd64,arm64".to_owned()),
        ]
    );
    let config = r#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
    assert_eq!(images[0].platforms[0].size, (config.len() + 3) as i64);
}

#[test]
fn sboms_are_found_as_a_layer_as_an_artifact_and_as_an_attestation() {
    let layout = Layout::new();
    let own = layout.json("application/spdx+json", &sbom("own"));
    let image = layout.image("amd64", b"one", &[own]);
    let empty = layout.blob("application/vnd.oci.empty.v1+json", b"{}");
    let attached = layout.json("text/spdx+json", &sbom("attached"));
    let artifact = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/spdx+json",
        "config": empty, "layers": [attached], "subject": image });
    let statement = json!({ "predicateType": "https://spdx.dev/Document", "predicate": sbom("attested") });
    let statement = with(
        layout.json("application/vnd.in-toto+json", &statement),
        "annotations",
        json!({ "in-toto.io/predicate-type": "https://spdx.dev/Document" }),
    );
    let attestation = layout.image("unknown", b"", &[statement]);
    let annotations =
        json!({ "vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest(&image) });
    let index = layout.index(&[image.clone(), with(attestation, "annotations", annotations)]);
    layout.top(&[index, layout.json(MANIFEST, &artifact)]);
    let (images, refused) = layout.read();
    assert_eq!((refused, images.len()), (vec![], 2), "a manifest about an image is not an image");
    for image in &images {
        assert_eq!(packages(&image.platforms[0]), ["attached", "attested", "own"]);
    }
}

/// As cosign, oras and Sigstore's bundles write them.
#[test]
fn sboms_are_found_in_envelopes_and_behind_the_type_of_their_manifest() {
    let layout = Layout::new();
    let image = layout.image("amd64", b"one", &[]);
    let empty = layout.blob("application/vnd.oci.empty.v1+json", b"{}");
    let spdx = "https://spdx.dev/Document";
    let envelope = |package: &str| {
        let statement = json!({ "predicateType": spdx, "predicate": sbom(package) });
        json!({ "payloadType": "application/vnd.in-toto+json", "payload": BASE64_STANDARD.encode(statement.to_string()) })
    };
    let layer = layout.json("application/vnd.dsse.envelope.v1+json", &envelope("enveloped"));
    let other = layout.json("application/vnd.dsse.envelope.v1+json", &json!({ "payload": "e30=" }));
    let layers = [
        with(layer, "annotations", json!({ "predicateType": spdx })),
        with(other, "annotations", json!({ "predicateType": "https://slsa.dev/provenance/v1" })),
    ];
    let tag = format!("{}.att", digest(&image).replace(':', "-"));
    let attestations = layout.image_of(&json!({ "architecture": "", "os": "" }), &layers);
    let attestations = with(attestations, "annotations", json!({ "org.opencontainers.image.ref.name": tag }));
    let artifact = |more: Value, layer: Value| {
        let mut manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": empty, "layers": [layer],
            "subject": image });
        manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        layout.json(MANIFEST, &manifest)
    };
    let attached = artifact(json!({ "artifactType": "application/spdx+json" }), layout.json(LAYER, &sbom("attached")));
    let bundle = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let layer = layout.json(bundle, &json!({ "mediaType": bundle, "dsseEnvelope": envelope("bundled") }));
    let annotations = json!({ "dev.sigstore.bundle.predicateType": spdx });
    let bundled = artifact(json!({ "artifactType": bundle, "annotations": annotations }), layer);
    layout.top(&[image, attestations, attached, bundled]);
    let (images, refused) = layout.read();
    assert_eq!((refused, images.len()), (vec![], 1));
    assert_eq!(packages(&images[0].platforms[0]), ["attached", "bundled", "enveloped"]);
    let of = |content| images[0].blobs.iter().filter(|blob| blob.content == content).count();
    assert_eq!((of(BlobContent::ContentSbom), of(BlobContent::ContentAttestation)), (3, 4));
}

/// As cosign, Trivy and BuildKit attach them.
#[test]
fn sboms_in_other_formats_are_skipped_with_the_reason_and_their_statements_kept() {
    let layout = Layout::new();
    let empty = layout.blob("application/vnd.oci.empty.v1+json", b"{}");
    let bom = |name: &str| json!({ "bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": { "component": name } });
    let own = layout.json("application/vnd.cyclonedx+json", &bom("own"));
    let image = layout.image("amd64", b"one", &[own]);
    let attached = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.cyclonedx+json",
        "config": empty, "layers": [layout.json(LAYER, &bom("attached"))], "subject": image });
    let statement = json!({ "predicateType": "https://cyclonedx.org/bom/v1.6", "predicate": bom("attested") });
    let statement = with(
        layout.json("application/vnd.in-toto+json", &statement),
        "annotations",
        json!({ "in-toto.io/predicate-type": "https://cyclonedx.org/bom/v1.6" }),
    );
    let attested = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": empty, "layers": [statement],
        "subject": image });
    let (attached, attested) = (layout.json(MANIFEST, &attached), layout.json(MANIFEST, &attested));
    layout.top(&[image.clone(), attached.clone(), attested.clone()]);
    let contents = layout.contents();
    assert_eq!((contents.refused, contents.images.len()), (vec![], 1));
    let mut expected: Vec<_> = [(&image, 1), (&attached, 0), (&attested, 0)]
        .map(|(manifest, index)| {
            let rule = "is a bill of materials in another format than SPDX 2 in JSON, whose packages are not read";
            format!("{}: layers[{index}]: {rule}", digest(manifest))
        })
        .into();
    let mut skipped: Vec<_> = contents.skipped.iter().map(ToString::to_string).collect();
    expected.sort();
    skipped.sort();
    assert_eq!(skipped, expected);
    let kept = &contents.images[0].resource.blobs;
    assert!(kept.iter().all(|blob| blob.content != BlobContent::ContentSbom), "{kept:?}");
    assert_eq!(kept.iter().filter(|blob| blob.content == BlobContent::ContentAttestation).count(), 2);
}

#[test]
fn a_blob_that_does_not_match_its_descriptor_is_rejected_and_other_images_are_read() {
    let layout = Layout::new();
    let good = layout.image("amd64", b"good", &[]);
    for (name, expected, damage) in [
        ("content", "does not match its digest", (|path, _| fs::write(path, "changed").unwrap()) as fn(&Path, &Path)),
        ("size", "has 9 bytes, but its descriptor says 7", |path, _| fs::write(path, "nine byte").unwrap()),
        ("missing", "is missing", |path, _| fs::remove_file(path).unwrap()),
        ("link", "is a symbolic link", |path, elsewhere| {
            fs::rename(path, elsewhere).unwrap();
            std::os::unix::fs::symlink(elsewhere, path).unwrap();
        }),
    ] {
        let layer = format!("{name:7}").into_bytes();
        let layer = &layer[..7];
        let bad = layout.image("arm64", layer, &[]);
        let index = layout.index(&[good.clone(), bad.clone()]);
        layout.top(std::slice::from_ref(&index));
        let outside = tempfile::tempdir().unwrap();
        damage(&layout.path().join("blobs/sha256").join(hex(layer)), &outside.path().join("blob"));
        let (images, refused) = layout.read();
        assert_eq!(images.iter().map(|image| image.digest.to_string()).collect::<Vec<_>>(), [digest(&good)], "{name}");
        assert_eq!(refused[0], format!("{}: layers[0]: {expected}", digest(&bad)));
        assert_eq!(refused[1], format!("{}: contains {}, which was rejected", digest(&index), digest(&bad)));
    }
}

#[test]
fn an_invalid_layout_is_rejected() {
    let damaged = |name: &str, text: &str| {
        let layout = Layout::new();
        fs::write(layout.path().join(name), text).unwrap();
        layout.read().1.join("\n")
    };
    assert!(damaged("oci-layout", r#"{"imageLayoutVersion":"2.0.0"}"#).contains("must be 1.x, not `2.0.0`"));
    assert!(damaged("oci-layout", "{}").starts_with("oci-layout: must be a valid image layout marker"));
    assert!(damaged("index.json", "[]").starts_with("index.json: must be a valid image index"));
    assert!(
        damaged("index.json", r#"{"schemaVersion":1,"manifests":[]}"#)
            .starts_with("index.json: schemaVersion: must be 2")
    );
    let missing = Directory("/nonexistent".into());
    assert_eq!(layout(&missing, 1, &mut |_| {}).refused[0].to_string(), "oci-layout: is missing");
    let escaping = json!({ "mediaType": MANIFEST, "digest": "sha256:../../../../etc/passwd", "size": 1 });
    assert!(!damaged("index.json", &json!({ "schemaVersion": 2, "manifests": [escaping] }).to_string()).is_empty());
    let other = json!({ "mediaType": MANIFEST, "digest": format!("sha512:{}", "0".repeat(128)), "size": 1 });
    let expected = damaged("index.json", &json!({ "schemaVersion": 2, "manifests": [other] }).to_string());
    assert!(expected.contains("only sha256 is supported"), "{expected}");
}

#[test]
fn a_layout_is_imported_into_its_repo_and_a_second_import_changes_nothing() {
    let (mut world, layout) = (World::new(), Layout::new());
    let sbom = layout.json("application/spdx+json", &sbom("zlib"));
    let image = layout.image("amd64", b"one", &[sbom]);
    layout.top(std::slice::from_ref(&image));
    let dataset = Dataset::Images { repo: world.repo(), tags: Vec::new() };
    for counts in [(1, 0, 0), (0, 0, 1)] {
        let done = world.import(dataset.clone(), &[layout.path()]).unwrap();
        assert_eq!((done.counts("images"), done.refused), (counts, 0));
    }
    let Dataset::Images { repo, .. } = dataset else { unreachable!() };
    let uid = Image { digest: registry::Digest::opaque(digest(&image)), ..Image::default() }
        .uid_in(&Uid::parse(&repo).unwrap());
    assert!(uid.is_below(&repo));
    let missing = Dataset::Images { repo: format!("{}/{}", super::support::ORG, "0".repeat(16)), tags: Vec::new() };
    assert!(world.import(missing, &[layout.path()]).unwrap_err().contains("NOT_FOUND"));
}

#[test]
fn only_the_architecture_and_the_variant_of_a_configuration_are_read() {
    for (config, architecture) in [
        (json!({ "architecture": "amd64", "os": "linux", "rootfs": {} }), "amd64"),
        (json!({ "architecture": "arm64", "os": "linux", "variant": "v8", "rootfs": { "type": "layers" } }), "arm64"),
        (json!({ "architecture": "arm", "variant": "v7", "rootfs": { "diff_ids": null } }), "arm/v7"),
        (json!({ "architecture": "arm", "variant": null, "config": { "ExposedPorts": { "53/udp": null } } }), "arm"),
        (json!({ "architecture": "mips64", "history": 1, "created": "yesterday", "os": [] }), "mips64"),
        (json!({ "architecture": "", "os": "" }), "unknown"),
        (json!({ "architecture": null }), "unknown"),
        (json!({}), "unknown"),
    ] {
        let layout = Layout::new();
        layout.top(&[layout.image_of(&config, &[])]);
        let (images, refused) = layout.read();
        assert_eq!((refused, images[0].platforms[0].architecture.as_str()), (vec![], architecture), "{config}");
    }
    for (config, expected) in [
        (json!(["amd64"]), "config: must be a valid image configuration: "),
        (json!("amd64"), "config: must be a valid image configuration: "),
        (json!({ "architecture": 64 }), "config: architecture: must be a valid image configuration: "),
        (json!({ "architecture": "arm", "variant": [] }), "config: variant: must be a valid image configuration: "),
    ] {
        let layout = Layout::new();
        layout.top(&[layout.image_of(&config, &[])]);
        let (images, refused) = layout.read();
        assert!(images.is_empty() && refused[0].contains(expected), "{config}: {refused:?}");
    }
}

#[test]
fn a_layer_that_must_not_be_distributed_may_be_absent() {
    for (kind, may_be_absent) in [
        ("application/vnd.oci.image.layer.nondistributable.v1.tar", true),
        ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", true),
        ("application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", true),
        ("application/vnd.docker.image.rootfs.foreign.diff.tar", true),
        ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", true),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", false),
        (LAYER, false),
    ] {
        let layout = Layout::new();
        let config = json!({ "architecture": "amd64", "os": "windows" });
        let layer = layout.blob(kind, b"base");
        let path = layout.path().join("blobs/sha256").join(hex(b"base"));
        layout.top(&[layout.image_of(&config, std::slice::from_ref(&layer))]);
        let size = (config.to_string().len() + 4) as i64;
        assert_eq!(layout.read().0[0].platforms[0].size, size, "{kind}");
        fs::write(&path, "bass").unwrap();
        assert!(layout.read().1[0].ends_with("layers[0]: does not match its digest"), "{kind}");
        fs::remove_file(&path).unwrap();
        let (images, refused) = layout.read();
        if may_be_absent {
            assert_eq!((refused, images[0].platforms[0].size), (vec![], size), "{kind}");
        } else {
            assert!(refused[0].ends_with("layers[0]: is missing"), "{kind}: {refused:?}");
        }
        let malformed = with(layer, "digest", json!("sha256:../../../etc/passwd"));
        layout.top(&[layout.image_of(&config, &[malformed])]);
        assert!(layout.read().0.is_empty(), "{kind}");
    }
}

#[test]
fn a_name_that_is_a_reference_gives_its_tag_and_never_its_digest() {
    let digest_of_other = format!("sha256:{}", "ab".repeat(32));
    let long = format!("sha512:{}", "ab".repeat(64));
    for (name, tag) in [
        ("latest", Some("latest")),
        ("app:1.2", Some("1.2")),
        ("localhost:5000/team/app:1.2", Some("1.2")),
        ("localhost:5000/team/app", None),
        ("docker.io/library/nginx", None),
        (&format!("registry.example.com/team/app@{digest_of_other}"), None),
        (&format!("localhost:5000/team/app@{digest_of_other}"), None),
        (&format!("app:1.2@{digest_of_other}"), Some("1.2")),
        (&format!("localhost:5000/app:1.2@{long}"), Some("1.2")),
        (&format!("app@{digest_of_other}"), None),
        (&digest_of_other, None),
        (&long, None),
        (&format!("@{digest_of_other}"), None),
        // Not a valid tag, which the repo reports.
        ("a b", Some("a b")),
        ("app:", Some("")),
        ("", Some("")),
    ] {
        let layout = Layout::new();
        let annotations = json!({ "org.opencontainers.image.ref.name": name });
        layout.top(&[with(layout.image("amd64", b"one", &[]), "annotations", annotations)]);
        let contents = layout.contents();
        let tags: Vec<_> = contents.tags.iter().map(|placed| placed.resource.name.as_str()).collect();
        assert_eq!((tags, contents.refused), (Vec::from_iter(tag), vec![]), "{name}");
        assert_eq!(contents.images.len(), 1, "{name}");
    }
}

#[test]
fn a_rejected_image_moves_no_tag() {
    let (mut world, layout) = (World::new(), Layout::new());
    let named = |descriptor: &Value, name: &str| {
        with(descriptor.clone(), "annotations", json!({ "org.opencontainers.image.ref.name": name }))
    };
    let good = layout.image("amd64", b"good", &[]);
    layout.top(&[named(&good, "latest")]);
    let dataset = Dataset::Images { repo: world.repo(), tags: Vec::new() };
    assert_eq!(world.import(dataset.clone(), &[layout.path()]).unwrap().refused, 0);

    let long = layout.image(&"x".repeat(1100), b"long", &[]);
    let many: Vec<_> = (0..101).map(|number| layout.image("amd64", format!("{number}").as_bytes(), &[])).collect();
    let many = layout.index(&many);
    let Dataset::Images { repo, .. } = &dataset else { unreachable!() };
    for (descriptor, rule) in
        [(&long, "platforms[0].architecture: "), (&many, "platforms: must have at most 100 elements")]
    {
        for tags in [vec![], vec!["latest".to_owned(), "other".to_owned()]] {
            layout.top(&[named(descriptor, "latest")]);
            let dataset = Dataset::Images { repo: repo.clone(), tags };
            let done = world.import(dataset, &[layout.path()]).unwrap();
            assert_eq!(done.counts("tags"), (0, 0, 0), "{:?}", world.refused);
            let refused = world.refused.join("\n");
            assert!(refused.contains(rule), "{refused}");
            assert!(refused.contains(&format!("names {}, which was rejected", digest(descriptor))), "{refused}");
            let tags = world.list::<Tag>(&[]).into_iter().map(|tag| (tag.name, tag.digest.to_string()));
            assert_eq!(tags.collect::<Vec<_>>(), [("latest".to_owned(), digest(&good))]);
        }
    }
}

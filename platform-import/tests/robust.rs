//! Property tests: no format panics on any input.

use platform_engine::timestamp::Timestamp;
use proptest::prelude::*;

const SEEDS: &[&str] = &[
    "schema-version: 2.0.2\npackage: {name: a}\nadvisories:\n  - id: b\n    aliases: &x [c]\n    events:\n      \
     - {timestamp: 2026-01-01T00:00:00Z, type: detection, data: {type: scan/v1, data: {componentName: d}}}\n  \
     - {id: c, aliases: *x}\n",
    r#"{"id":"a","published":"2026-01-02T03:04:05Z","withdrawn":"2026-01-02T03:04:05Z","aliases":["b"],"upstream":["c"],"severity":[{"type":"CVSS_V3","score":"c"}]}"#,
    r#"{"ecosystem":"python","name":"a","versions":[{"version":"1!2.0.post1","sizeBytes":"3","createTime":"2026-01-01T00:00:00Z"}]}"#,
    r#"{"ecosystem":"java","name":"a","versions":[{"version":"1.0-alpha-1"},{"version":"1.0.Final"}]}"#,
    r#"{"spdxVersion":"SPDX-2.3","packages":[{"externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:apk/w/a@1?origin=b"}]}]}"#,
    r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:0","size":1}]}"#,
    r#"{"schemaVersion":2,"config":{"mediaType":"a/b","digest":"sha256:0","size":1},"layers":[]}"#,
    r#"{"architecture":"arm","variant":"v7","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#,
];

/// Reads the bytes in every format.
fn read(bytes: &[u8]) {
    let _ = platform_import::advisories::document(bytes, "");
    let _ = platform_import::osv::json(bytes, Timestamp::EPOCH);
    let _ = platform_import::osv::yaml(bytes, Timestamp::EPOCH);
    let _ = platform_import::artifacts::line(bytes);
    let _ = platform_import::image::index(bytes);
    let _ = platform_import::image::manifest(bytes);
    let _ = platform_import::image::architecture(bytes);
    let _ = platform_import::image::sbom(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&bytes);
    }

    #[test]
    fn no_text_of_the_formats_own_characters_causes_a_panic(text in "[ \n\\-:{}\\[\\],&*'\"a-c0-9|>#!~.]{0,120}") {
        read(text.as_bytes());
    }

    #[test]
    fn no_changed_removed_or_inserted_bytes_cause_a_panic(
        seed in 0..SEEDS.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<u8>()), 1..12),
    ) {
        let mut bytes = SEEDS.get(seed).copied().unwrap_or_default().as_bytes().to_vec();
        for (at, how, byte) in changes {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match how {
                0 if at < bytes.len() => { bytes.remove(at); }
                1 => bytes.insert(at, byte),
                _ => if let Some(old) = bytes.get_mut(at) { *old = byte; }
            }
        }
        read(&bytes);
    }
}

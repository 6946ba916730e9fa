//! Tests of each format: valid documents and rejected ones.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on fails")]

use platform_core::resources::{
    advisory::{VulnerabilityMetadata, vulnerability_metadata::ReferenceType},
    libraries::Ecosystem,
    vulnerabilities::{
        Advisory,
        advisory::event::{EventType, FalsePositiveType, ReviewState},
        severity::SeverityType,
    },
};
use platform_engine::timestamp::Timestamp;
use platform_import::{Parsed, advisories, artifacts, image, osv};
use serde_json::{Value, json};

const EVERYTHING: &str = "
schema-version: 2.0.2
package:
  name: openssl
advisories:
  - id: CGA-2222-3333-4444
    aliases: [CVE-2022-4203, GHSA-w67w-mw4j-8qrv]
    events:
      - timestamp: 2026-02-01T00:00:00Z
        type: fixed
        data: {fixed-version: 1.10}
      - timestamp: 2026-01-01T00:00:00Z
        type: detection
        data:
          type: scan/v1
          data:
            subpackageName: libcrypto3
            componentID: 0123456789abcdef
            componentName: libcrypto
            componentVersion: 3.0
            componentType: apk
            componentLocation: /usr/lib/libcrypto.so.3
            scanner: grype
  - id: CGA-2222-3333-5555
    events:
      - {timestamp: 2026-01-01T00:00:00Z, type: detection, data: {type: manual}}
      - timestamp: 2026-01-02T00:00:00Z
        type: detection
        data: {type: nvdapi, data: {cpeSearched: 'cpe:2.3:a', cpeFound: 'cpe:2.3:b'}}
      - timestamp: 2026-01-03T00:00:00Z
        type: false-positive-determination
        data: {type: vulnerable-code-not-in-execution-path, note: \"never\\ncalled\"}
      - {timestamp: 2026-01-04T00:00:00Z, type: true-positive-determination, data: {note: sure}}
      - {timestamp: 2026-01-05T00:00:00Z, type: analysis-not-planned, data: {note: a}}
      - {timestamp: 2026-01-06T00:00:00Z, type: fix-not-planned, data: {note: b}}
      - {timestamp: 2026-01-07T00:00:00Z, type: pending-upstream-fix, data: {note: c}}
      - {timestamp: 2026-01-08T00:00:00Z, type: true-positive-determination}
  - id: CGA-2222-3333-6666
";

fn read(document: &str) -> Vec<Advisory> {
    let Parsed { resources, refused, .. } = advisories::document(document.as_bytes(), "wolfi");
    assert_eq!(refused, []);
    resources.into_iter().map(|placed| placed.resource).collect()
}

fn at(text: &str) -> Option<Timestamp> {
    Some(Timestamp::parse(text).unwrap())
}

#[test]
fn a_document_is_read_completely() {
    let [first, second, third] = &read(EVERYTHING)[..] else { panic!() };
    assert_eq!((first.artifact_name.as_str(), first.package_namespace.as_str()), ("openssl", "wolfi"));
    assert_eq!((first.create_time, first.update_time), (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z")));
    assert_eq!(first.aliases, ["CVE-2022-4203", "GHSA-w67w-mw4j-8qrv"]);
    let types: Vec<_> = first.events.iter().filter_map(|event| event.event_type()).collect();
    assert_eq!(types, [EventType::Detection, EventType::Fixed], "oldest first");
    assert_eq!(first.events[1].fixed.as_ref().unwrap().fixed_version, "1.10");
    let scan = first.events[0].detection.as_ref().unwrap().scanv1.as_ref().unwrap();
    assert_eq!((scan.component_id.as_str(), scan.component_version.as_str()), ("0123456789abcdef", "3.0"));
    assert_eq!((scan.subpackage.as_str(), scan.scanner.as_str()), ("libcrypto3", "grype"));
    assert_eq!(
        [&first.component_name, &first.component_type, &first.component_location],
        ["libcrypto", "apk", "/usr/lib/libcrypto.so.3"]
    );

    assert!(second.events.iter().all(|event| event.review_state == ReviewState::ReviewStateApproved));
    let manual = second.events[0].detection.as_ref().unwrap();
    assert!(manual.manual.is_some() && manual.nvdapi.is_none() && manual.scanv1.is_none());
    assert_eq!(second.events[1].detection.as_ref().unwrap().nvdapi.as_ref().unwrap().cpe_found, "cpe:2.3:b");
    let never = second.events[2].false_positive_determination.as_ref().unwrap();
    assert_eq!(
        (never.reason, never.note.as_str()),
        (FalsePositiveType::TypeVulnerableCodeNotInExecutionPath, "never\ncalled")
    );
    assert_eq!(second.events[6].pending_upstream_fix.as_ref().unwrap().note, "c");
    assert_eq!(second.events[7].true_positive_determination.as_ref().unwrap().note, "");
    assert_eq!(second.component_name, "");

    assert!(third.events.is_empty() && third.aliases.is_empty() && third.create_time.is_none());
}

#[test]
fn an_advisory_has_a_component_only_when_all_scans_agree_on_it() {
    let scan = |name: &str, location: &str| {
        format!(
            "      - {{timestamp: 2026-01-01T00:00:00Z, type: detection, data: {{type: scan/v1, data: \
             {{componentName: {name}, componentLocation: {location}}}}}}}\n"
        )
    };
    let document = |events: String| {
        format!("schema-version: '2'\npackage: {{name: a}}\nadvisories:\n  - id: b\n    events:\n{events}")
    };
    let advisory = &read(&document(scan("x", "/a") + &scan("x", "/b")))[0];
    assert_eq!((advisory.component_name.as_str(), advisory.component_location.as_str()), ("x", ""));
    // A value that is too long to filter lists by remains in the events only.
    let long = format!("/{}", "a".repeat(1024));
    let advisory = &read(&document(scan("x", &long)))[0];
    assert_eq!((advisory.component_name.as_str(), advisory.component_location.as_str()), ("x", ""));
    assert_eq!(advisory.events[0].detection.as_ref().unwrap().scanv1.as_ref().unwrap().component_location, long);
}

#[test]
fn an_invalid_advisory_is_rejected_with_its_place_and_the_rest_is_read() {
    for (entry, refused) in [
        ("{id: ''}", "advisories[0].id: is required"),
        ("{id: good}", "advisories[1].id: is specified more than once"),
        (
            "{id: a, events: [{type: fixed, data: {fixed-version: 1}}]}",
            "advisories[0].events[0].timestamp: is required",
        ),
        (
            "{id: a, events: [{timestamp: today, type: detection, data: {type: manual}}]}",
            "advisories[0].events[0].timestamp: must be an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z",
        ),
        ("{id: a, events: [{timestamp: 2026-01-01T00:00:00Z}]}", "advisories[0].events[0].type: is required"),
        (
            "{id: a, events: [{timestamp: 2026-01-01T00:00:00Z, type: solved}]}",
            "advisories[0].events[0].type: unknown event type `solved`",
        ),
        (
            "{id: a, events: [{timestamp: 2026-01-01T00:00:00Z, type: fixed}]}",
            "advisories[0].events[0].data.fixed-version: is required",
        ),
        (
            "{id: a, events: [{timestamp: 2026-01-01T00:00:00Z, type: detection, data: {type: guess}}]}",
            "advisories[0].events[0].data.type: unknown detection type `guess`",
        ),
        (
            "{id: a, events: [{timestamp: 2026-01-01T00:00:00Z, type: false-positive-determination, data: {type: why}}]}",
            "advisories[0].events[0].data.type: unknown reason `why`",
        ),
    ] {
        let document =
            format!("schema-version: 2.1\npackage: {{name: a}}\nadvisories:\n  - {entry}\n  - {{id: good}}\n");
        let read = advisories::document(document.as_bytes(), "");
        let said: Vec<_> = read.refused.iter().map(ToString::to_string).collect();
        assert_eq!((said, read.resources.len()), (vec![refused.to_owned()], 1), "{entry}");
    }
}

#[test]
fn a_document_that_does_not_match_the_schema_is_rejected_as_a_whole() {
    for (document, refused) in [
        ("", "must be YAML"),
        ("schema-version: 1.2\npackage: {name: a}", "schema-version: must be 2 or 2.x, not `1.2`"),
        ("schema-version: 20\npackage: {name: a}", "schema-version: must be 2 or 2.x, not `20`"),
        ("package: {name: a}", "schema-version"),
        ("schema-version: 2", "package"),
        ("schema-version: 2\npackage: {name: ''}", "package.name: is required"),
        ("schema-version: 2\npackage: {name: a}\nadvisories: {id: a}", "line 3"),
        ("schema-version: 2\npackage: {name: a}\nadvisories: [{id: a, id: b}]", "duplicate"),
        ("schema-version: 2\npackage: {name: a}\nadvisories: [{id: [a]}]", "line 3"),
    ] {
        let read = advisories::document(document.as_bytes(), "");
        let [refusal] = &read.refused[..] else { panic!("{document}: {read:?}") };
        assert!(refusal.to_string().contains(refused) && read.resources.is_empty(), "{document}: {refusal}");
    }
    assert!(advisories::document(b"schema-version: 2\npackage: {name: a}\nadvisories:\n", "").refused.is_empty());
}

#[test]
fn a_record_is_read_the_same_from_json_and_yaml() {
    let json = r#"{"schema_version": "1.7.0", "id": "GO-2026-0001", "modified": "0001-01-01T00:00:00Z",
        "published": "2026-01-02T03:04:05.678901Z", "aliases": ["CVE-2026-1"], "summary": "s", "details": "d\nd",
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N"}, {"type": "Ubuntu", "score": "low"}],
        "references": [{"type": "WEB", "url": "https://example.com/a"}, {"type": "NEW", "url": "https://example.com/b"}],
        "affected": [{"package": {"name": "x"}, "severity": [{"type": "CVSS_V2", "score": "AV:N"}]}],
        "database_specific": {"anything": [1, 2.5, null]}}"#;
    let yaml = "
id: GO-2026-0001
published: 2026-01-02T03:04:05.678901Z
aliases: [CVE-2026-1]
summary: s
details: |-
  d
  d
severity:
- {type: CVSS_V3, score: CVSS:3.1/AV:N}
- {type: Ubuntu, score: low}
references:
- {type: WEB, url: 'https://example.com/a'}
- {type: NEW, url: 'https://example.com/b'}
";
    let read = osv::json(json.as_bytes(), Timestamp::EPOCH);
    assert_eq!(read, osv::yaml(yaml.as_bytes(), Timestamp::EPOCH));
    let record = &read.resources[0].resource;
    assert_eq!((record.create_time, record.update_time), (at("2026-01-02T03:04:05.678Z"), None));
    assert_eq!((record.details.as_str(), record.aliases.as_slice()), ("d\nd", &["CVE-2026-1".to_owned()][..]));
    let scales: Vec<_> = record.severities.iter().map(|severity| severity.scale).collect();
    assert_eq!(scales, [SeverityType::TypeCvssV3, SeverityType::TypeUnspecified]);
    let references: Vec<_> = record.references.iter().map(|reference| reference.kind).collect();
    assert_eq!(references, [ReferenceType::TypeWeb, ReferenceType::TypeUnspecified]);
}

#[test]
fn severities_of_affected_packages_are_used_when_the_record_has_none() {
    let score = r#"{"type": "CVSS_V4", "score": "CVSS:4.0/AV:N"}"#;
    let json = format!(r#"{{"id": "a", "affected": [{{"severity": [{score}]}}, {{}}, {{"severity": [{score}]}}]}}"#);
    let read = osv::json(json.as_bytes(), Timestamp::EPOCH);
    assert_eq!(read.resources[0].resource.severities.len(), 1);
}

#[test]
fn a_severity_that_gives_no_rating_is_named_and_kept() {
    let full = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H";
    for (scale, score, is_rated) in [
        ("CVSS_V3", full, true),
        ("CVSS_V3", &format!("{full}/"), true),
        ("CVSS_V2", "(AV:N/AC:L/Au:N/C:C/I:C/A:C)", true),
        // The words of distributions are no vectors, and nobody expects a rating of them.
        ("Ubuntu", "low", true),
        ("CVSS_V3", "9.8", false),
        ("CVSS_V3", "", false),
        ("CVSS_V4", full.strip_suffix("/A:H").unwrap(), false),
    ] {
        let json = format!(r#"{{"id": "a", "severity": [{{"type": "{scale}", "score": "{score}"}}]}}"#);
        let read = osv::json(json.as_bytes(), Timestamp::EPOCH);
        assert_eq!(read.resources[0].resource.severities[0].score, score);
        let skipped: Vec<_> = read.skipped.iter().map(ToString::to_string).collect();
        let expected = format!("severity: `{score}` is not a vector of CVSS and gives no rating");
        assert_eq!(skipped, if is_rated { vec![] } else { vec![expected] }, "{score}");
    }
}

#[test]
fn of_a_withdrawn_record_only_the_id_and_the_times_are_read() {
    let now = Timestamp::parse("2026-01-02T00:00:00Z").unwrap();
    let record = |withdrawn: &str| {
        let json = format!(
            r#"{{"id": "PYSEC-1", "published": "2023-01-01T00:00:00Z", "withdrawn": {withdrawn}, "aliases": ["CVE-1"],
                "summary": "s", "details": "d", "references": [{{"type": "WEB", "url": "https://example.com"}}],
                "upstream": ["CVE-2"], "severity": [{{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N"}}]}}"#
        );
        let read = osv::json(json.as_bytes(), now);
        assert_eq!(read, osv::yaml(json.as_bytes(), now));
        read
    };
    for withdrawn in ["2025-12-31T00:00:00Z", "2026-01-02T00:00:00Z"] {
        let read = record(&format!("\"{withdrawn}\""));
        let expected = VulnerabilityMetadata {
            id: "PYSEC-1".to_owned(),
            summary: format!("Withdrawn at {}", Timestamp::parse(withdrawn).unwrap()),
            create_time: at("2023-01-01T00:00:00Z"),
            ..VulnerabilityMetadata::default()
        };
        assert_eq!((read.withdrawn, read.refused, &read.resources[0].resource), (1, vec![], &expected), "{withdrawn}");
    }
    for not_withdrawn in ["\"2026-01-02T00:00:01Z\"", "\"0001-01-01T00:00:00Z\"", "null"] {
        let read = record(not_withdrawn);
        assert_eq!((read.withdrawn, read.resources[0].resource.severities.len()), (0, 1), "{not_withdrawn}");
    }
    assert_eq!(record("\"yesterday\"").refused[0].place, "withdrawn");
}

#[test]
fn upstream_ids_are_names_of_a_record_of_one_vulnerability() {
    let aliases =
        |record: Value| osv::json(record.to_string().as_bytes(), Timestamp::EPOCH).resources.remove(0).resource;
    let record =
        json!({ "id": "UBUNTU-CVE-1", "aliases": ["A-1"], "upstream": ["CVE-1", "A-1", "UBUNTU-CVE-1", "CVE-1"] });
    assert_eq!(aliases(record).aliases, ["A-1", "CVE-1"]);
    let record = json!({ "id": "CGA-1", "upstream": ["GHSA-1-2", "CVE-1-2", "GO-1"] });
    assert_eq!(aliases(record).aliases, ["CVE-1-2", "GHSA-1-2", "GO-1"]);
    let many = json!({ "id": "USN-1", "aliases": ["A-1"], "upstream": ["CVE-1", "CVE-2", "GHSA-1"] });
    assert_eq!(aliases(many).aliases, ["A-1"]);
    let upstream: Vec<_> = (0..200).map(|number| format!("D{number}-1")).collect();
    let most = aliases(json!({ "id": "a", "aliases": ["A-1"], "upstream": upstream })).aliases;
    assert_eq!((most.len(), most[0].as_str()), (100, "A-1"));
    assert_eq!(aliases(json!({ "id": "a", "upstream": null })).aliases, [""; 0]);
}

#[test]
fn invalid_records_are_rejected_with_all_violated_rules() {
    let now = Timestamp::EPOCH;
    for (record, refused) in [
        ("{}", "id: is required"),
        (r#"{"id": "a", "published": "x", "modified": "y"}"#, "published: must be an RFC 3339 timestamp"),
        (r#"{"id": "a", "id": "b"}"#, "line 1 column"),
        (r#"{"id": 1}"#, "line 1 column"),
        (r#"{"id": "a", "aliases": "b"}"#, "line 1 column"),
        (r#"{"id": "a"} {}"#, "line 1 column"),
        ("[", "line 1 column"),
        ("", "must be an OSV record"),
    ] {
        let read = osv::json(record.as_bytes(), Timestamp::EPOCH);
        assert!(read.resources.is_empty(), "{record}");
        assert!(read.refused[0].to_string().contains(refused), "{record}: {:?}", read.refused);
    }
    assert_eq!(osv::json(br#"{"published": "x", "modified": "y", "withdrawn": "z"}"#, now).refused.len(), 4);
    let deep = [b"{\"id\":\"a\",\"x\":", "[".repeat(100_000).as_bytes()].concat();
    assert!(!osv::json(&deep, now).refused.is_empty());
}

#[test]
fn the_newest_version_of_an_artifact_is_found_by_the_order_of_its_ecosystem() {
    let line = br#"{"ecosystem": "python", "name": "requests", "description": "old", "cudaVersions": ["12.8"], "remediated": true,
        "versions": [
            {"version": "2.9.0", "createTime": "2015-01-01T00:00:00Z"},
            {"version": "2.10.0", "createTime": "2016-01-01T00:00:00Z", "description": "new", "sizeBytes": "64738"},
            {"version": "2.10.0rc1", "sizeBytes": 7}]}"#;
    let (artifact, versions) = artifacts::line(line).unwrap();
    assert_eq!((artifact.ecosystem, artifact.latest_version.as_str()), (Ecosystem::EcosystemPython, "2.10.0"));
    assert_eq!((artifact.version_count, artifact.description.as_str()), (3, "new"));
    assert_eq!((artifact.create_time, artifact.update_time), (at("2015-01-01T00:00:00Z"), at("2016-01-01T00:00:00Z")));
    assert!(artifact.remediated && artifact.cuda_versions == ["12.8"]);
    let sizes: Vec<_> = versions.iter().map(|version| version.size_bytes).collect();
    assert_eq!((sizes, versions[0].artifact.as_str()), (vec![0, 64738, 7], "python:requests"));

    let java = br#"{"ecosystem": "ECOSYSTEM_JAVA", "name": "org.acme:lib", "versions": [{"version": "1.0"}, {"version": "1.0-SNAPSHOT"}]}"#;
    let (artifact, versions) = artifacts::line(java).unwrap();
    assert_eq!((artifact.latest_version.as_str(), versions[1].artifact.as_str()), ("1.0", "java:org.acme:lib"));
    assert_eq!(artifacts::line(br#"{"ecosystem": "java", "name": "a"}"#).unwrap().0.version_count, 0);
}

#[test]
fn invalid_lines_are_rejected_with_all_violated_rules() {
    for (line, refused) in [
        (r#"{"ecosystem": "rust", "name": ""}"#, "ecosystem: must be java or python|name: is required"),
        (r#"{"ecosystem": "java", "name": "a", "colour": 1}"#, "colour"),
        (r#"{"ecosystem": "java", "name": "a", "versions": [{"version": ""}]}"#, "versions[0].version: is required"),
        (
            r#"{"ecosystem": "java", "name": "a", "versions": [{"version": "1"}, {"version": "1"}]}"#,
            "versions[1].version: is specified more than once",
        ),
        (
            r#"{"ecosystem": "java", "name": "a", "versions": [{"version": "1", "sizeBytes": -1}]}"#,
            "versions[0].sizeBytes: must not be negative",
        ),
        (r#"{"ecosystem": "java", "name": "a", "versions": [{"version": "1", "sizeBytes": 1.5}]}"#, "column"),
        (
            r#"{"ecosystem": "java", "name": "a", "versions": [{"version": "1", "createTime": "x"}]}"#,
            "versions[0].createTime",
        ),
        ("nothing", "column"),
    ] {
        let said: Vec<_> = artifacts::line(line.as_bytes()).unwrap_err().iter().map(ToString::to_string).collect();
        assert!(said.join("|").contains(refused), "{line}: {said:?}");
    }
}

#[test]
fn an_sbom_lists_the_installed_packages_and_their_origins() {
    let package = |url: &str| {
        format!(
            r#"{{"name": "n", "versionInfo": "9", "externalRefs": [{{"referenceType": "purl", "referenceLocator": "{url}"}}]}}"#
        )
    };
    let packages = [
        package("pkg:apk/wolfi/libcrypto3@3.1.0-r0?arch=x86_64&origin=openssl"),
        package("pkg:apk/wolfi/zlib"),
        package("pkg:apk/wolfi/empty@"),
        package("pkg:apk/wolfi/empty-too@?arch=x86_64"),
        package("pkg:golang/golang.org/x/crypto@v0.39.0"),
        package("pkg:oci/image@sha256:00"),
        package("not a purl"),
        r#"{"name": "layer"}"#.to_owned(),
    ];
    let document = format!(r#"{{"spdxVersion": "SPDX-2.3", "packages": [{}]}}"#, packages.join(","));
    let statement = format!(r#"{{"predicateType": "https://spdx.dev/Document", "predicate": {document}}}"#);
    for bytes in [document, statement] {
        let found = image::sbom(bytes.as_bytes()).unwrap();
        let found: Vec<_> = found.iter().map(|one| format!("{} {} {}", one.name, one.version, one.origin)).collect();
        let expected =
            ["empty 9 ", "empty-too 9 ", "golang.org/x/crypto v0.39.0 ", "libcrypto3 3.1.0-r0 openssl", "zlib 9 "];
        assert_eq!(found, expected);
    }
    for (bytes, refused) in [
        ("{}", "spdxVersion"),
        (r#"{"spdxVersion": "SPDX-3.0"}"#, "spdxVersion: must be SPDX-2.x"),
        ("[]", "must be an SPDX 2 document"),
    ] {
        let refusal = image::sbom(bytes.as_bytes()).unwrap_err().to_string();
        assert!(refusal.contains(refused), "{bytes}: {refusal}");
    }
}

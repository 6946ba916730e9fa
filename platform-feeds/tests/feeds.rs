//! Feeds of advisories that our own importer has read, read again by the rules of each format.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "that is how tests fail")]

use std::{collections::BTreeMap, io::Read};

use flate2::read::DeflateDecoder;
use platform_core::resources::vulnerabilities::Advisory;
use platform_engine::timestamp::Timestamp;
use platform_feeds::{Document, Feed, Format, LeftOut, Options, Summary};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);

const DOCUMENT: &str = "
schema-version: 2.0.2
package: {name: openssl}
advisories:
  - id: CGA-2222-2222-2222
    aliases: [GHSA-aaaa-aaaa-aaaa, CVE-2026-0001]
    events:
      - {timestamp: 2026-01-01T00:00:00Z, type: fixed, data: {fixed-version: 3.1.0-r0}}
      - {timestamp: 2026-01-03T00:00:00Z, type: fixed, data: {fixed-version: 3.0.9-r0}}
      - {timestamp: 2026-01-02T00:00:00Z, type: fixed, data: {fixed-version: 3.2.0-r0}}
  - id: CGA-3333-3333-3333
    aliases: [CVE-2026-0002]
    events:
      - {timestamp: 2026-01-01T00:00:00Z, type: fixed, data: {fixed-version: 3.1.0-r0}}
      - timestamp: 2026-01-02T00:00:00Z
        type: false-positive-determination
        data: {type: vulnerable-code-not-in-execution-path, note: Not built.}
  - id: CGA-4444-4444-4444
    aliases: [CVE-2026-0003]
    events:
      - {timestamp: 2026-01-01T00:00:00Z, type: fixed, data: {fixed-version: 3.1.0-r0}}
      - {timestamp: 2026-01-02T00:00:00Z, type: pending-upstream-fix, data: {note: Reported.}}
  - id: CGA-5555-5555-5555
    aliases: [CVE-2026-0004]
    events: [{timestamp: 2026-01-01T00:00:00Z, type: detection, data: {type: manual}}]
  - id: CGA-6666-6666-6666
    events: [{timestamp: 2026-01-01T00:00:00Z, type: fixed, data: {fixed-version: \"0\"}}]
  - id: CGA-7777-7777-7777
    aliases: [CVE-2026-0006, CVE-2026-0007]
    events: [{timestamp: 2026-01-01T00:00:00Z, type: fix-not-planned, data: {}}]
  - id: CGA-8888-8888-8888
    aliases: [CVE-2026-0008]
    events:
      - timestamp: 2026-01-02T00:00:00Z
        type: false-positive-determination
        data: {type: vulnerability-record-analysis-contested}
";

fn advisories(document: &str) -> Vec<Advisory> {
    let read = platform_import::advisories::document(document.as_bytes(), "wolfi");
    assert_eq!(read.refused, []);
    read.resources.into_iter().map(|placed| placed.resource).collect()
}

fn options(format: Format) -> Options {
    let document = Document { id: "https://a.test/feeds/openvex".into(), author: "a.test".into(), version: 7 };
    Options { format, namespace: String::new(), document, now: NOW }
}

fn written(options: Options, advisories: &[Advisory]) -> (Vec<u8>, Summary) {
    let mut feed = Feed::new(options);
    advisories.iter().for_each(|advisory| feed.add(advisory).unwrap());
    let mut out = Vec::new();
    let summary = feed.write(&mut out).unwrap();
    (out, summary)
}

/// Returns the files of a zip archive by its local headers. Public libraries read its directory in tests/clients/feeds.py.
fn unzipped(mut archive: &[u8]) -> BTreeMap<String, Value> {
    let mut files = BTreeMap::new();
    while archive.starts_with(b"PK\x03\x04") {
        let number = |at: usize| usize::from(archive[at]) | usize::from(archive[at + 1]) << 8;
        let (compressed, name) = (number(18) | number(20) << 16, number(26));
        let name = String::from_utf8(archive[30..30 + name].to_vec()).unwrap();
        archive = &archive[30 + name.len()..];
        let mut text = Vec::new();
        DeflateDecoder::new(&archive[..compressed]).read_to_end(&mut text).unwrap();
        assert!(files.insert(name, serde_json::from_slice(&text).unwrap()).is_none());
        archive = &archive[compressed..];
    }
    files
}

#[test]
fn a_secdb_has_the_last_fix_or_the_denial_of_each_id() {
    let (database, summary) = written(options(Format::Secdb), &advisories(DOCUMENT));
    let database: Value = serde_json::from_slice(&database).unwrap();
    assert_eq!(
        database,
        json!({ "packages": [{ "pkg": { "name": "openssl", "secfixes": {
            "0": ["CGA-6666-6666-6666", "CVE-2026-0002", "CVE-2026-0008"],
            "3.0.9-r0": ["CVE-2026-0001"],
        } } }] }),
    );
    assert_eq!((summary.advisories, summary.written), (7, 4));
    assert_eq!(summary.left_out, BTreeMap::from([(LeftOut::Open, 4)]));
}

#[test]
fn an_osv_archive_has_a_record_for_each_cve_of_an_advisory() {
    let (archive, summary) = written(options(Format::Osv), &advisories(DOCUMENT));
    let files = unzipped(&archive);
    assert_eq!((summary.written, files.len(), summary.left_out.len()), (8, 8, 0));
    assert_eq!(
        files["CGA-2222-2222-2222.json"],
        json!({
            "schema_version": "1.7.5",
            "id": "CGA-2222-2222-2222",
            "published": "2026-01-01T00:00:00.000Z",
            "modified": "2026-01-03T00:00:00.000Z",
            "aliases": ["CVE-2026-0001", "GHSA-aaaa-aaaa-aaaa"],
            "affected": [{
                "package": { "ecosystem": "Wolfi", "name": "openssl", "purl": "pkg:apk/wolfi/openssl" },
                "ranges": [{ "type": "ECOSYSTEM", "events": [{ "introduced": "0" }, { "fixed": "3.0.9-r0" }] }],
            }],
        }),
    );
    let events = |id: &str| &files[&format!("{id}.json")]["affected"][0]["ranges"][0]["events"];
    assert_eq!(*events("CGA-3333-3333-3333"), json!([{ "introduced": "0" }, { "fixed": "0" }]));
    assert_eq!(*events("CGA-4444-4444-4444"), json!([{ "introduced": "0" }]));
    for (id, cve) in [(6, "CVE-2026-0006"), (7, "CVE-2026-0007")] {
        let record = &files[&format!("CGA-7777-7777-7777-CVE-2026-000{id}.json")];
        assert_eq!(record["aliases"], json!(["CGA-7777-7777-7777", cve]));
    }
}

#[test]
fn an_openvex_document_has_a_statement_with_what_its_status_requires() {
    let (document, summary) = written(options(Format::OpenVex), &advisories(DOCUMENT));
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(summary.written, 8);
    let head = ["@context", "@id", "author", "timestamp", "version"].map(|name| document[name].clone());
    let id = "https://a.test/feeds/openvex";
    assert_eq!(json!(head), json!(["https://openvex.dev/ns/v0.2.0", id, "a.test", "2026-01-03T00:00:00.000Z", 7]));
    let (purl, contested) = ("pkg:apk/wolfi/openssl", "The record of the vulnerability is contested.");
    let statements: Vec<_> = document["statements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|statement| {
            let mut shown = statement.clone();
            let product = shown["products"][0]["@id"].take();
            for name in ["vulnerability", "timestamp", "products"] {
                shown.as_object_mut().unwrap().remove(name);
            }
            (statement["vulnerability"]["name"].as_str().unwrap(), product, shown)
        })
        .collect();
    let code = "vulnerable_code_not_in_execute_path";
    for ((name, product, shown), (expected, version, status)) in statements.into_iter().zip([
        ("CGA-6666-6666-6666", "@0", json!({ "status": "fixed" })),
        ("CVE-2026-0001", "@3.0.9-r0", json!({ "status": "fixed" })),
        (
            "CVE-2026-0002",
            "",
            json!({ "status": "not_affected", "justification": code, "impact_statement": "Not built." }),
        ),
        ("CVE-2026-0003", "", json!({ "status": "affected", "action_statement": "Reported." })),
        ("CVE-2026-0004", "", json!({ "status": "under_investigation" })),
        ("CVE-2026-0006", "", json!({ "status": "affected", "action_statement": "No fix is planned." })),
        ("CVE-2026-0007", "", json!({ "status": "affected", "action_statement": "No fix is planned." })),
        ("CVE-2026-0008", "", json!({ "status": "not_affected", "impact_statement": contested })),
    ]) {
        assert_eq!((name, product, shown), (expected, json!(format!("{purl}{version}")), status));
    }
}

#[test]
fn only_reviewed_advisories_of_packages_of_the_distribution_that_are_not_withdrawn_are_written() {
    let [fixed, ..] = &advisories(DOCUMENT)[..] else { unreachable!() };
    let changed = |change: fn(&mut Advisory)| {
        let mut advisory = fixed.clone();
        change(&mut advisory);
        advisory
    };
    let cases = [
        (LeftOut::NotAPackage, [true; 3], changed(|advisory| advisory.artifact_type = "image".into())),
        (LeftOut::Unreviewed, [true; 3], changed(|advisory| advisory.events.clear())),
        (
            LeftOut::Unreviewed,
            [true; 3],
            changed(|advisory| advisory.events.iter_mut().for_each(|event| event.review_state = Default::default())),
        ),
        (LeftOut::OtherDistribution, [true; 3], changed(|advisory| advisory.package_namespace = "alpine".into())),
        (LeftOut::Withdrawn, [false, true, true], changed(|advisory| advisory.delete_time = Some(NOW))),
        (LeftOut::Withdrawn, [true; 3], changed(|advisory| advisory.delete_time = Some(NOW.plus_millis(1)))),
        (
            LeftOut::DeniedForArchitecture,
            [true, true, false],
            Advisory { artifact_architecture: "aarch64".into(), ..advisories(DOCUMENT)[1].clone() },
        ),
    ];
    for (reason, left_out, advisory) in cases {
        for (format, left_out) in Format::ALL.into_iter().zip(left_out) {
            let options = Options { namespace: "wolfi".into(), ..options(format) };
            let (_, summary) = written(options, std::slice::from_ref(&advisory));
            let expected = if left_out { BTreeMap::from([(reason, 1)]) } else { BTreeMap::new() };
            assert_eq!((summary.left_out, summary.written), (expected, u64::from(!left_out)), "{format} {reason:?}");
        }
    }
    let unknown = changed(|advisory| advisory.package_namespace.clear());
    let (_, summary) = written(options(Format::Osv), std::slice::from_ref(&unknown));
    assert_eq!(summary.left_out, BTreeMap::from([(LeftOut::UnknownDistribution, 1)]));
    let (archive, _) = written(Options { namespace: "chainguard".into(), ..options(Format::Osv) }, &[unknown]);
    assert_eq!(unzipped(&archive)["CGA-2222-2222-2222.json"]["affected"][0]["package"]["ecosystem"], "Chainguard");
}

#[test]
fn a_record_about_several_packages_has_all_that_are_not_withdrawn() {
    let [fixed, ..] = &advisories(DOCUMENT)[..] else { unreachable!() };
    let of = |name: &str, withdrawn: Option<Timestamp>| Advisory {
        advisory_id: "../a/CVE-1".into(),
        artifact_name: name.into(),
        delete_time: withdrawn,
        ..fixed.clone()
    };
    let name = "..%2Fa%2FCVE-1.json";
    for (withdrawn, affected) in [([None, None], &["a", "b"][..]), ([Some(NOW), None], &["b"])] {
        let (archive, _) = written(options(Format::Osv), &[of("a", withdrawn[0]), of("b", withdrawn[1])]);
        let record = &unzipped(&archive)[name];
        let packages: Vec<_> =
            record["affected"].as_array().unwrap().iter().map(|affected| &affected["package"]["name"]).collect();
        assert_eq!((json!(packages), &record["id"]), (json!(affected), &json!("x_../a/CVE-1")));
        assert!(record.get("withdrawn").is_none());
    }
    let (archive, _) = written(options(Format::Osv), &[of("a", Some(NOW)), of("b", Some(NOW))]);
    let record = &unzipped(&archive)[name];
    assert_eq!((record["affected"].as_array().unwrap().len(), &record["withdrawn"]), (2, &json!(NOW)));
}

#[test]
fn the_later_of_two_advisories_about_a_vulnerability_of_a_package_counts() {
    let mut two = advisories(DOCUMENT);
    two.truncate(1);
    let mut later = two[0].clone();
    later.advisory_id = "CGA-9999-9999-9999".into();
    later.events.truncate(1);
    for (at, expected) in [("2026-01-02T12:00:00Z", "3.0.9-r0"), ("2026-01-03T12:00:00Z", "3.1.0-r0")] {
        later.events[0].create_time = Some(Timestamp::parse(at).unwrap());
        let (database, _) = written(options(Format::Secdb), &[later.clone(), two[0].clone()]);
        let database: Value = serde_json::from_slice(&database).unwrap();
        assert_eq!(database["packages"][0]["pkg"]["secfixes"], json!({ expected: ["CVE-2026-0001"] }));
        let (document, summary) = written(options(Format::OpenVex), &[later.clone(), two[0].clone()]);
        assert!(String::from_utf8(document).unwrap().contains(expected) && summary.written == 1);
    }
}

/// The knowledge of a reader: the version that fixes a vulnerability of a package, `0` for a denial and nothing for an open one.
type Known = BTreeMap<(String, String), Option<String>>;

fn of_osv(archive: &[u8]) -> Known {
    let mut known = Known::new();
    for record in unzipped(archive).into_values() {
        // The importer of vulnerabilities reads the same records.
        let imported = platform_import::osv::json(record.to_string().as_bytes(), NOW);
        let imported = &imported.resources[0].resource;
        let cve = imported.aliases.iter().find(|alias| alias.starts_with("CVE-")).unwrap_or(&imported.id).clone();
        for affected in record["affected"].as_array().unwrap() {
            let fixed = affected["ranges"][0]["events"][1]["fixed"].as_str().map(str::to_owned);
            known.insert((affected["package"]["name"].as_str().unwrap().to_owned(), cve.clone()), fixed);
        }
    }
    known
}

fn of_secdb(database: &[u8]) -> Known {
    let database: Value = serde_json::from_slice(database).unwrap();
    let mut known = Known::new();
    for package in database["packages"].as_array().unwrap() {
        let name = package["pkg"]["name"].as_str().unwrap();
        for (version, ids) in package["pkg"]["secfixes"].as_object().unwrap() {
            for id in ids.as_array().unwrap() {
                let key = (name.to_owned(), id.as_str().unwrap().to_owned());
                assert_eq!(known.insert(key, Some(version.clone())), None);
            }
        }
    }
    known
}

fn of_openvex(document: &[u8]) -> Known {
    let document: Value = serde_json::from_slice(document).unwrap();
    let mut known = Known::new();
    for statement in document["statements"].as_array().unwrap() {
        let purl = statement["products"][0]["@id"].as_str().unwrap().trim_start_matches("pkg:apk/wolfi/");
        let (name, version) = purl.split_once('@').map_or((purl, None), |(name, version)| (name, Some(version)));
        let version = if statement["status"] == "not_affected" { Some("0") } else { version };
        let key = (name.to_owned(), statement["vulnerability"]["name"].as_str().unwrap().to_owned());
        assert_eq!(known.insert(key, version.map(str::to_owned)), None);
    }
    known
}

/// An event of a document, and the state after it.
fn event() -> impl Strategy<Value = (String, Option<String>)> {
    prop_oneof![
        "[0-9]\\.[0-9]{1,2}-r[0-9]"
            .prop_map(|version| (format!("type: fixed, data: {{fixed-version: {version}}}"), Some(version))),
        Just(("type: fixed, data: {fixed-version: \"0\"}".to_owned(), Some("0".to_owned()))),
        Just((
            "type: false-positive-determination, data: {type: inline-mitigations-exist}".to_owned(),
            Some("0".to_owned()),
        )),
        prop::sample::select(vec![
            "type: detection, data: {type: manual}",
            "type: true-positive-determination",
            "type: pending-upstream-fix",
            "type: fix-not-planned, data: {note: no}",
            "type: analysis-not-planned",
        ])
        .prop_map(|text| (text.to_owned(), None)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_format_keeps_package_id_and_state(
        packages in prop::collection::btree_map("[a-c]", prop::collection::vec(prop::collection::vec(event(), 1..5), 0..5), 0..4),
    ) {
        let (mut all, mut expected) = (Vec::new(), Known::new());
        for (name, of_package) in &packages {
            let mut document = format!("schema-version: 2.0.2\npackage: {{name: {name}}}\nadvisories:\n");
            for (index, events) in of_package.iter().enumerate() {
                let cve = format!("CVE-2026-{index:04}");
                document += &format!("  - id: CGA-{name}-{index}\n    aliases: [{cve}]\n    events:\n");
                // A document may have its events in any order.
                for (day, (text, _)) in events.iter().enumerate().rev() {
                    document += &format!("      - {{timestamp: 2026-01-0{}T00:00:00Z, {text}}}\n", day + 1);
                }
                expected.insert((name.clone(), cve), events.last().unwrap().1.clone());
            }
            all.extend(advisories(&document));
        }
        let read = |format, read: fn(&[u8]) -> Known| read(&written(options(format), &all).0);
        prop_assert_eq!(read(Format::Osv, of_osv), expected.clone());
        let mut openvex = expected.clone();
        prop_assert_eq!(read(Format::OpenVex, of_openvex), openvex.clone());
        // A secdb has nothing that is open.
        openvex.retain(|_, version| version.is_some());
        prop_assert_eq!(read(Format::Secdb, of_secdb), openvex);
    }
}

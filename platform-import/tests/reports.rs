//! Tests of the formats of package versions, scanners' reports and build reports, with samples of our own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on fails")]

use platform_core::resources::{registry::Digest, vulnerabilities::Level};
use platform_engine::timestamp::Timestamp;
use platform_import::{
    Parsed, builds,
    scans::{self, Scan},
    versions::{self, Defaults},
};
use platform_v1::resources::{
    PackageVersions,
    build_report::BuildResult,
    package_versions::VersionSource,
    vulnerability_report::{Fix, FixState, ScannerName, Score},
};
use serde_json::{Value, json};

fn at(text: &str) -> Option<Timestamp> {
    Some(Timestamp::parse(text).unwrap())
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn refusals<R>(parsed: &Parsed<R>) -> Vec<String> {
    parsed.refused.iter().map(ToString::to_string).collect()
}

fn versions_of(document: &Value) -> Parsed<PackageVersions> {
    let defaults = Defaults { package: "python".to_owned(), grace_period_months: 6 };
    versions::document(document.to_string().as_bytes(), &defaults)
}

fn one_package(document: &Value) -> PackageVersions {
    let parsed = versions_of(document);
    assert_eq!(refusals(&parsed), [""; 0]);
    parsed.resources.into_iter().next().unwrap().resource
}

#[test]
fn our_own_format_of_versions_is_read_completely() {
    let read = one_package(&json!({
        "package": "python", "latestVersion": "3.13.1", "gracePeriodMonths": 3, "lastUpdated": "2026-01-02T03:04:05Z",
        "versions": [
            {
                "version": "3.12", "releaseDate": "2023-10-02", "eolDate": "2028-10-31", "exists": true, "fips": true,
                "lts": true, "legacyLts": "yes", "eolBroken": true, "latestVersion": "3.12.4",
                "versionSource": { "ref": "v3.12.4", "sha": "abc" },
            },
            { "version": "2.7", "eol": true },
        ],
    }));
    assert_eq!(
        (read.package.as_str(), read.latest_version.as_str(), read.grace_period_months),
        ("python", "3.13.1", 3)
    );
    assert_eq!(read.update_time, at("2026-01-02T03:04:05Z"));
    let [first, second] = &read.versions[..] else { panic!() };
    assert_eq!((first.version.as_str(), first.eol_date.as_str(), first.eol), ("3.12", "2028-10-31", false));
    assert!(first.exists && first.fips && first.lts && first.eol_broken);
    assert_eq!(first.source, Some(VersionSource { reference: "v3.12.4".to_owned(), sha: "abc".to_owned() }));
    assert!(second.eol && second.source.is_none());
    let two = versions_of(&json!([{ "package": "a" }, { "package": "b" }]));
    assert_eq!(two.resources.iter().map(|one| one.place.as_str()).collect::<Vec<_>>(), ["[0]", "[1]"]);
}

#[test]
fn both_forms_of_endoflife_date_are_read() {
    let cycles = one_package(&json!([
        { "cycle": "3.12", "releaseDate": "2023-10-02", "eol": "2028-10-31", "latest": "3.12.4", "lts": false, "x": 1 },
        { "cycle": "3.8", "releaseDate": "2019-10-14", "eol": true, "latest": "3.8.20", "lts": "2020-01-01" },
        { "cycle": 21, "eol": false },
    ]));
    assert_eq!((cycles.package.as_str(), cycles.latest_version.as_str()), ("python", "3.12.4"));
    assert_eq!(cycles.grace_period_months, 6);
    let shown: Vec<_> = cycles
        .versions
        .iter()
        .map(|one| (one.version.as_str(), one.eol_date.as_str(), one.eol, one.lts, one.legacy_lts.as_str()))
        .collect();
    assert_eq!(
        shown,
        [("3.12", "2028-10-31", false, false, ""), ("3.8", "", true, true, "2020-01-01"), ("21", "", false, false, "")]
    );
    let newer = json!({
        "schema_version": "1.2.0", "last_modified": "2026-01-02T00:00:00+00:00",
        "result": { "name": "node", "releases": [
            { "name": "22", "releaseDate": "2024-04-24", "isEol": false, "eolFrom": "2027-04-30", "isLts": true,
              "latest": { "name": "22.1.0", "date": "2024-05-02" } },
            { "name": "0.8", "isEol": true, "eolFrom": null, "isLts": false, "latest": null },
        ] },
    });
    let newer = one_package(&newer);
    assert_eq!((newer.package.as_str(), newer.latest_version.as_str()), ("node", "22.1.0"));
    assert_eq!(newer.update_time, at("2026-01-02T00:00:00Z"));
    let shown: Vec<_> = newer.versions.iter().map(|one| (one.eol_date.as_str(), one.eol, one.lts)).collect();
    assert_eq!(shown, [("2027-04-30", false, true), ("", true, false)]);
    let several = versions_of(&json!({ "result": [{ "name": "a" }, { "name": "b", "releases": [{ "name": "1" }] }] }));
    assert_eq!((several.resources.len(), several.resources[1].place.as_str()), (2, "result[1]"));
}

#[test]
fn malformed_versions_are_rejected_with_their_places() {
    for (document, expected) in [
        (json!({ "package": "" }), "package: is required"),
        (json!({ "package": "a", "versions": [{ "version": "" }] }), "versions[0].version: is required"),
        (
            json!({ "package": "a", "versions": [{ "version": "1", "eolDate": "2026-02-30" }] }),
            "versions[0].eolDate: must be a day such as 2026-01-02",
        ),
        (
            json!({ "package": "a", "lastUpdated": "today" }),
            "lastUpdated: must be an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z",
        ),
        (json!([{ "cycle": "", "eol": false }]), "[0].cycle: is required"),
        (json!([{ "cycle": "1", "eol": "soon" }]), "[0].eol: must be a day such as 2026-01-02"),
        (
            json!({ "result": { "name": "a", "releases": [{ "name": "1", "releaseDate": "2026" }] } }),
            "result: releases[0].releaseDate: must be a day such as 2026-01-02",
        ),
        (json!({ "result": [{ "name": "" }] }), "result[0]: package: is required"),
    ] {
        let parsed = versions_of(&document);
        assert!(parsed.resources.is_empty());
        assert_eq!(refusals(&parsed), [expected], "{document}");
    }
    for document in [json!(1), json!({}), json!({ "package": "a", "color": "red" }), json!([1]), json!({ "result": 1 })]
    {
        let parsed = versions_of(&document);
        assert!(parsed.resources.is_empty());
        assert!(parsed.refused[0].rule.starts_with("must be versions of a package in JSON"), "{document}");
    }
    let defaults = Defaults { package: String::new(), grace_period_months: 0 };
    assert_eq!(
        refusals(&versions::document(b"{\n}}", &defaults)),
        ["line 2 column 2: must be JSON: trailing characters"]
    );
    assert_eq!(refusals(&versions::document(b"[{\"cycle\":\"1\"}]", &defaults)), ["package: is required"]);
}

fn grype() -> Value {
    let found = |id: &str, severity: &str, name: &str, fix: Value| {
        json!({
            "vulnerability": {
                "id": id, "dataSource": format!("https://example.com/{id}"), "severity": severity,
                "urls": ["https://example.com/more"], "description": "Bad\r\nthing",
                "cvss": [{ "version": "3.1", "vector": "CVSS:3.1/…", "metrics": { "baseScore": 7.5 } }], "fix": fix,
            },
            "relatedVulnerabilities": [{ "id": "CVE-9", "severity": "High", "cvss": [{ "version": "2.0", "metrics": {} }] }],
            "artifact": {
                "name": name, "version": "1.0-r0", "type": "apk", "purl": format!("pkg:apk/wolfi/{name}@1.0-r0"),
                "locations": [{ "path": "/lib/apk/db/installed" }],
            },
        })
    };
    let fix = json!({ "versions": ["1.1-r0"], "state": "fixed" });
    json!({
        "matches": [
            found("GHSA-1", "High", "a", fix.clone()), found("GHSA-1", "Critical", "b", fix),
            found("CVE-2", "Negligible", "b", json!({ "versions": [], "state": "wont-fix" })),
        ],
        "source": { "type": "image", "target": {
            "userInput": "nginx", "manifestDigest": digest('b'), "repoDigests": [format!("example.com/nginx@{}", digest('a'))],
        } },
        "descriptor": {
            "name": "grype", "version": "0.104.0", "timestamp": "2026-01-02T03:04:05.123456Z",
            "db": { "status": { "built": "2026-01-01T00:00:00Z" } },
        },
    })
}

fn trivy() -> Value {
    json!({
        "SchemaVersion": 2, "CreatedAt": "2026-01-02T03:04:05+01:00", "ArtifactName": "nginx", "ArtifactType": "container_image",
        "Trivy": { "Version": "0.68.0" },
        "Metadata": { "ImageID": digest('c'), "RepoDigests": [format!("nginx@{}", digest('a'))] },
        "Results": [
            { "Target": "nginx (wolfi)", "Class": "os-pkgs" },
            { "Target": "app", "Vulnerabilities": [
                {
                    "VulnerabilityID": "CVE-1", "VendorIDs": ["DSA-1"], "PkgName": "zlib", "InstalledVersion": "1.0",
                    "FixedVersion": "1.1, 2.0", "Status": "fixed", "PkgPath": "app/zlib",
                    "PkgIdentifier": { "PURL": "pkg:apk/wolfi/zlib@1.0" }, "PrimaryURL": "https://example.com/CVE-1",
                    "Title": "A title", "Description": "Long", "Severity": "CRITICAL",
                    "CVSS": { "nvd": { "V3Score": 9.8, "V3Vector": "CVSS:3.1/…", "V2Score": 11.0, "V40Score": 9.3 } },
                    "References": ["https://example.com/CVE-1", "https://example.com/r"],
                },
                { "VulnerabilityID": "CVE-2", "PkgName": "libc++", "InstalledVersion": "1+2", "Status": "end_of_life", "Severity": "LOW" },
            ] },
        ],
    })
}

fn scan(document: &Value) -> Scan {
    let parsed = scans::document(document.to_string().as_bytes(), None);
    assert_eq!(refusals(&parsed), [""; 0]);
    parsed.resources.into_iter().next().unwrap().resource
}

#[test]
fn a_report_of_grype_is_read_with_one_vulnerability_for_each_id_and_fix() {
    let Scan { report, raw } = scan(&grype());
    assert_eq!(*report.digest, *digest('a'), "the repo digest, as tags refer to it");
    assert_eq!((report.scanner.name, report.scanner.version.as_str()), (ScannerName::ScannerGrype, "0.104.0"));
    assert_eq!(report.scanner.db_build_time, at("2026-01-01T00:00:00Z"));
    assert_eq!(report.create_time, at("2026-01-02T03:04:05.123Z"));
    let [first, second] = &report.vulnerabilities[..] else { panic!("{report:?}") };
    assert_eq!((first.id.as_str(), first.severity), ("GHSA-1", Level::LevelCritical), "the highest");
    assert_eq!(first.purls, ["pkg:apk/wolfi/a@1.0-r0", "pkg:apk/wolfi/b@1.0-r0"]);
    assert_eq!((first.aliases.as_slice(), first.description.as_str()), (&["CVE-9".to_owned()][..], "Bad \nthing"));
    assert_eq!(first.related_urls, ["https://example.com/GHSA-1", "https://example.com/more"]);
    assert_eq!(first.cvss, [Score { score: "7.5".to_owned(), version: "3.1".to_owned() }]);
    assert_eq!(first.fix, Fix { versions: vec!["1.1-r0".to_owned()], state: FixState::StateFixed });
    assert_eq!(first.locations, ["/lib/apk/db/installed"]);
    assert_eq!((second.severity, second.fix.state), (Level::LevelNegligible, FixState::StateWontFix));
    assert_eq!(raw.unwrap().text().unwrap(), grype().to_string());
}

#[test]
fn a_report_of_grype_without_a_repo_digest_has_that_of_the_manifest() {
    let mut document = grype();
    document["source"]["target"]["repoDigests"] = json!([]);
    assert_eq!(*scan(&document).report.digest, *digest('b'));
    document["descriptor"]["db"] = json!({ "built": "2025-01-01T00:00:00Z" });
    document["matches"] = Value::Null;
    let report = scan(&document).report;
    assert_eq!((report.scanner.db_build_time, report.vulnerabilities.len()), (at("2025-01-01T00:00:00Z"), 0));
}

#[test]
fn a_report_of_trivy_is_read() {
    let Scan { report, raw } = scan(&trivy());
    assert_eq!((&*report.digest, report.create_time), (&*digest('a'), at("2026-01-02T02:04:05Z")));
    assert_eq!((report.scanner.name, report.scanner.version.as_str()), (ScannerName::ScannerTrivy, "0.68.0"));
    let [first, second] = &report.vulnerabilities[..] else { panic!("{report:?}") };
    assert_eq!((first.description.as_str(), first.severity), ("A title", Level::LevelCritical));
    assert_eq!(first.fix, Fix { versions: vec!["1.1".to_owned(), "2.0".to_owned()], state: FixState::StateFixed });
    let scores: Vec<_> = first.cvss.iter().map(|one| (one.score.as_str(), one.version.as_str())).collect();
    assert_eq!(scores, [("9.8", "3.1"), ("9.3", "4.0")], "a score above 10 is left out");
    assert_eq!(first.related_urls, ["https://example.com/CVE-1", "https://example.com/r"]);
    assert_eq!(
        (first.aliases.as_slice(), first.locations.as_slice()),
        (&["DSA-1".to_owned()][..], &["app/zlib".to_owned()][..])
    );
    assert_eq!(second.purls, ["pkg:generic/libc%2B%2B@1%2B2"], "made from the name and the version");
    assert_eq!(second.fix.state, FixState::StateWontFix);
    assert!(raw.is_some());
    let mut empty = trivy();
    empty["Results"] = Value::Null;
    assert!(scan(&empty).report.vulnerabilities.is_empty());
}

#[test]
fn a_given_digest_replaces_the_one_in_a_report() {
    let given = Digest::parse(&digest('d')).unwrap();
    for mut document in [grype(), trivy()] {
        let parsed = scans::document(document.to_string().as_bytes(), Some(&given));
        assert_eq!(parsed.resources[0].resource.report.digest, given);
        document["Metadata"] = Value::Null;
        document["source"] = Value::Null;
        let parsed = scans::document(document.to_string().as_bytes(), Some(&given));
        assert_eq!(parsed.resources.len(), 1);
    }
}

#[test]
fn malformed_reports_of_scanners_are_rejected_with_their_places() {
    let no_digest = "must contain the sha256 digest of the image; set it with --digest";
    let changed = |mut document: Value, pointer: &str, value: Value| {
        *document.pointer_mut(pointer).unwrap() = value;
        document
    };
    let without = |mut document: Value, parent: &str, name: &str| {
        document.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        document
    };
    for (document, expected) in [
        (json!({}), "must be a report of Grype or Trivy".to_owned()),
        (json!({ "SchemaVersion": 1 }), "SchemaVersion: must be 2".to_owned()),
        (changed(grype(), "/source", Value::Null), format!("source.target: {no_digest}")),
        (
            changed(trivy(), "/Metadata/RepoDigests", json!(["nginx@sha512:0"])),
            format!("Metadata.RepoDigests: {no_digest}"),
        ),
        (without(grype(), "/descriptor", "timestamp"), "descriptor.timestamp: is required".to_owned()),
        (without(trivy(), "", "CreatedAt"), "CreatedAt: is required".to_owned()),
        (
            changed(trivy(), "/CreatedAt", json!("now")),
            "CreatedAt: must be an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z".to_owned(),
        ),
        (
            changed(grype(), "/matches/1/vulnerability/id", json!("")),
            "matches[1].vulnerability.id: is required".to_owned(),
        ),
        (
            changed(trivy(), "/Results/1/Vulnerabilities/0/VulnerabilityID", json!("")),
            "Results[1].Vulnerabilities[0].VulnerabilityID: is required".to_owned(),
        ),
    ] {
        let parsed = scans::document(document.to_string().as_bytes(), None);
        assert!(parsed.resources.is_empty());
        assert_eq!(refusals(&parsed), [expected]);
    }
    for document in [changed(grype(), "/matches", json!({})), changed(trivy(), "/Results", json!("none")), json!([])] {
        let parsed = scans::document(document.to_string().as_bytes(), None);
        assert!(refusals(&parsed)[0].contains("must be a report in JSON"), "{parsed:?}");
    }
    assert_eq!(scans::document(b"{", None).refused[0].place, "line 1 column 1");
}

#[test]
fn a_long_report_stays_within_the_bounds_of_a_resource() {
    let mut document = grype();
    let one = &mut document["matches"][0]["vulnerability"];
    one["description"] = "é".repeat(2_000).into();
    one["urls"] = (0..100).map(|n| format!("https://example.com/{n}")).chain(["h".repeat(2_000)]).collect();
    let report = scan(&document).report;
    let first = &report.vulnerabilities[0];
    assert!(first.description.len() <= 2_003 && first.description.ends_with('…'));
    assert_eq!(first.related_urls.len(), 20);
}

#[test]
fn build_reports_are_read_alone_or_in_an_array() {
    let repo = format!("{}/0123456789abcdef", "a".repeat(40));
    let full = json!({
        "repo": repo, "buildId": "42", "result": "Failure", "startedAt": "2026-01-02T03:04:05Z",
        "completedAt": "2026-01-02T03:05:06Z", "digest": digest('a'), "mediaType": "m", "config": { "a": 1 },
        "lockedConfig": "locked", "warnings": ["w"], "log": "l\n", "apkoVersion": "0.30.0",
    });
    let parsed = builds::document(full.to_string().as_bytes());
    assert_eq!(refusals(&parsed), [""; 0]);
    let build = &parsed.resources[0].resource;
    assert_eq!((&*build.repo, build.report.build_id.as_str()), (repo.as_str(), "42"));
    assert_eq!((build.report.config.as_str(), build.report.locked_config.as_str()), ("{\"a\":1}", "locked"));
    assert_eq!(
        (build.report.result, build.report.start_time),
        (BuildResult::ResultFailure, at("2026-01-02T03:04:05Z"))
    );
    let minimal = json!({ "repo": repo, "buildId": "43", "startedAt": "2026-01-02T03:04:05Z" });
    let parsed = builds::document(json!([full, minimal]).to_string().as_bytes());
    assert_eq!((parsed.resources.len(), parsed.resources[1].place.as_str()), (2, "[1]"));
    for (key, value, expected) in [
        ("repo", json!("nginx"), "[0]: repo: must"),
        ("buildId", json!(""), "[0]: buildId: is required"),
        ("result", json!("SUCCESS"), "[0]: result: must be Success, Failure or Unknown"),
        ("digest", json!("sha256:0"), "[0]: digest: digest must match"),
        ("startedAt", json!("now"), "[0]: startedAt: must be an RFC 3339 timestamp"),
        ("completedAt", json!("now"), "[0]: completedAt: must be an RFC 3339 timestamp"),
        ("config", json!([1]), "[0]: config: must be a text or an object"),
        ("color", json!("red"), "[0]: must be a build report in JSON: unknown field `color`"),
        ("log", json!(1), "[0]: must be a build report in JSON: invalid type"),
    ] {
        let mut document = json!([full, minimal]);
        document[0][key] = value;
        let parsed = builds::document(document.to_string().as_bytes());
        assert_eq!(parsed.resources.len(), 1, "{key}");
        let refused = refusals(&parsed);
        assert!(refused.len() == 1 && refused[0].starts_with(expected), "{refused:?}");
    }
    assert_eq!(builds::document(b"[{]").refused[0].place, "line 1 column 3");
}

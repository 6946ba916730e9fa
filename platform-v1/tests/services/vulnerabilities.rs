//! Vulnerability reports and counts.

use platform_core::resources::advisory::PublicAdvisories;
use platform_v1::resources::{RawVulnerabilityReport, VulnerabilityReport};

use super::{
    scenes::{HIGH, MEDIUM, day, digest, fixed, found},
    *,
};

/// A world with a repo `nginx` that has the tag `latest` of an image `a…` with two packages.
struct Scene {
    world: World,
    repo: Uid,
}

impl Scene {
    fn new() -> Self {
        Self::of(World::new())
    }

    fn of(world: World) -> Self {
        let repo = world.new_repo(&world.org.clone(), "nginx");
        world.new_tag(&repo, "latest", &digest('a'));
        world.new_image(&repo, &digest('a'), &[("nginx", "1.28.0-r0", ""), ("libssl3", "3.5.0-r1", "openssl")]);
        Self { world, repo }
    }

    fn org(&self) -> &str {
        &self.world.org
    }

    /// Adds three vulnerabilities: of nginx from day 1, of libssl3 from day 2 and fixed on day 4 in a later version,
    /// and of nginx from day 3 to day 5, when it is fixed in the installed version.
    fn with_advisories(self) -> Self {
        let (world, org) = (&self.world, self.world.org.clone());
        world.new_advisory(&org, "CGA-1", "nginx", &["CVE-2026-1", "GHSA-1"], &[(1, "detection", found())]);
        let openssl = [(2, "detection", found()), (4, "fixed", fixed("3.5.1-r0"))];
        world.new_advisory(&org, "CGA-2", "openssl", &["CVE-2026-2"], &openssl);
        let nginx = [(3, "detection", found()), (5, "fixed", fixed("1.28.0-r0"))];
        world.new_advisory(&org, "CGA-3", "nginx", &["CVE-2026-3"], &nginx);
        world.new_metadata("CVE-2026-1", &[], HIGH);
        world.new_metadata("GHSA-2", &["CVE-2026-2"], MEDIUM);
        self
    }

    fn reports(&self, request: Value) -> Vec<Value> {
        items(&self.world.call("Vulnerabilities.ListVulnReports", request).unwrap()).to_vec()
    }

    fn counts(&self, request: Value) -> Vec<Value> {
        items(&self.world.call("Vulnerabilities.ListVulnCountReports", request).unwrap()).to_vec()
    }

    /// Imports a report of a scanner with vulnerabilities of these ids and levels.
    fn scan(&self, digit: char, scanner: &str, at: &str, vulnerabilities: &[(&str, &str)]) -> Uid {
        let vulnerability = |(id, level): &(&str, &str)| json!({ "id": id, "severity": format!("LEVEL_{level}") });
        let vulnerabilities: Vec<_> = vulnerabilities.iter().map(vulnerability).collect();
        let report = json!({
            "digest": digest(digit), "scanner": { "name": format!("SCANNER_{scanner}"), "version": "1.0" },
            "createTime": at, "vulnerabilities": vulnerabilities,
        });
        self.world.import::<VulnerabilityReport>(&self.repo, report)
    }
}

fn ids(report: &Value) -> Vec<&str> {
    report["vulnerabilities"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

/// Returns the days and the numbers of vulnerabilities of counts.
fn by_day(counts: &[Value]) -> Vec<(String, usize)> {
    let count =
        |one: &Value| (one["date"].as_str().unwrap()[8..10].to_owned(), one["cveIds"].as_array().unwrap().len());
    counts.iter().map(count).collect()
}

#[test]
fn without_a_scan_a_report_is_computed_from_packages_advisories_and_metadata() {
    let scene = Scene::new().with_advisories();
    let reports = scene.reports(json!({ "repoId": scene.repo }));
    let [report] = &reports[..] else { panic!("{reports:?}") };
    let purls = |package: &str| {
        ["aarch64", "x86_64"].map(|architecture| format!("pkg:apk/wolfi/{package}?arch={architecture}"))
    };
    assert_eq!(
        *report,
        json!({
            "digest": digest('a'),
            "scanner": { "name": "UNKNOWN", "version": "", "dbBuildTime": null },
            "createdAt": report["createdAt"],
            "vulnerabilities": [
                {
                    "id": "CVE-2026-1", "aliases": ["CGA-1", "GHSA-1"], "purls": purls("nginx@1.28.0-r0"),
                    "description": "about CVE-2026-1", "details": "", "severity": "HIGH",
                    "cvss": [{ "score": "7.5", "version": "3.1" }],
                    "fix": { "versions": [], "state": "NOT_FIXED" },
                    "relatedUrls": ["https://example.com/CVE-2026-1"], "locations": [],
                },
                {
                    "id": "CVE-2026-2", "aliases": ["CGA-2"], "purls": purls("libssl3@3.5.0-r1"),
                    "description": "about GHSA-2", "details": "", "severity": "MEDIUM",
                    "cvss": [{ "score": "5.3", "version": "3.1" }],
                    "fix": { "versions": ["3.5.1-r0"], "state": "FIXED" },
                    "relatedUrls": ["https://example.com/GHSA-2"], "locations": [],
                },
            ],
        })
    );
    assert!(report["createdAt"].as_str().unwrap().starts_with("1970-01-01T"));
}

#[test]
fn a_computed_report_follows_changes_of_the_image_the_advisories_and_the_metadata() {
    let scene = Scene::new();
    let (world, org) = (&scene.world, scene.org());
    let levels = || {
        let reports = scene.reports(json!({ "repoId": scene.repo }));
        let of = |one: &Value| format!("{} {}", one["id"].as_str().unwrap(), one["severity"].as_str().unwrap());
        reports[0]["vulnerabilities"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(levels(), [""; 0]);
    world.new_advisory(org, "CGA-1", "nginx", &["CVE-2026-1"], &[(1, "detection", found())]);
    assert_eq!(levels(), ["CVE-2026-1 UNKNOWN"]);
    assert_eq!(levels(), ["CVE-2026-1 UNKNOWN"], "as cached");
    world.new_metadata("CVE-2026-1", &[], HIGH);
    assert_eq!(levels(), ["CVE-2026-1 HIGH"]);
    world.new_metadata("CVE-2026-1", &[], MEDIUM);
    assert_eq!(levels(), ["CVE-2026-1 MEDIUM"]);
    world.new_image(&scene.repo, &digest('a'), &[("nginx", "1.28.0-r1", "")]);
    world.new_advisory(org, "CGA-1", "nginx", &["CVE-2026-1"], &[(1, "fixed", fixed("1.28.0-r1"))]);
    assert_eq!(levels(), [""; 0]);
    world.new_image(&scene.repo, &digest('a'), &[("nginx", "1.28.0-r0", "")]);
    assert_eq!(levels(), ["CVE-2026-1 MEDIUM"]);
}

#[test]
fn advisories_of_groups_above_the_repo_and_public_ones_apply() {
    let organization = Uid::from_digest([0xaa; 20]);
    let scene = Scene::of(World::with(|builder| builder.data(PublicAdvisories::of([organization]))));
    let world = &scene.world;
    let other = world.folder("", "other");
    let (folder, sibling) = (world.folder(&other, "folder"), world.folder(&other, "sibling"));
    let repo = world.new_repo(&folder, "nginx");
    world.new_tag(&repo, "latest", &digest('b'));
    world.new_image(&repo, &digest('b'), &[("nginx", "1.28.0-r0", "")]);
    for (group, id) in [(scene.org(), "public"), (&other, "above"), (&folder, "own"), (&sibling, "sibling")] {
        world.new_advisory(group, id, "nginx", &[], &[(1, "detection", found())]);
    }
    assert_eq!(ids(&scene.reports(json!({ "repoId": repo }))[0]), ["above", "own", "public"]);
    assert_eq!(ids(&scene.reports(json!({ "repoId": scene.repo }))[0]), ["public"]);
}

#[test]
fn the_aliases_of_advisories_that_do_not_apply_to_an_image_have_no_effect_on_its_report() {
    let scene = Scene::new();
    let (world, org) = (&scene.world, scene.org().to_owned());
    let (own, sibling) = (world.folder(&org, "own"), world.folder(&org, "sibling"));
    let repos = [(&own, 'b'), (&sibling, 'c')].map(|(folder, digit)| {
        let repo = world.new_repo(folder, "redis");
        world.new_tag(&repo, "latest", &digest(digit));
        world.new_image(&repo, &digest(digit), &[("redis", "8.0-r0", "")]);
        repo
    });
    world.new_advisory(&own, "CGA-1", "redis", &["CVE-2026-1"], &[(1, "detection", found())]);
    world.new_advisory(&sibling, "CGA-2", "redis", &["CVE-2026-1", "GHSA-1"], &[(1, "detection", found())]);
    world.new_metadata("GHSA-1", &[], HIGH);
    let expected = [("UNKNOWN", "", json!([])), ("HIGH", "about GHSA-1", json!(["https://example.com/GHSA-1"]))];
    // One request computes both reports, the others compute or read them alone.
    assert_eq!(scene.counts(json!({ "repo": "redis" })).len(), 2);
    for (repo, (severity, description, urls)) in repos.iter().zip(expected) {
        let report = &scene.reports(json!({ "repoId": repo }))[0]["vulnerabilities"][0];
        assert_eq!(report["id"], "CVE-2026-1");
        assert_eq!((&report["severity"], &report["description"]), (&json!(severity), &json!(description)));
        assert_eq!(report["relatedUrls"], urls);
    }
}

#[test]
fn an_imported_report_replaces_the_computed_one_and_each_filter_narrows_the_list() {
    let scene = Scene::new().with_advisories();
    scene.world.new_tag(&scene.repo, "1.28", &digest('a'));
    scene.world.new_tag(&scene.repo, "old", &digest('c'));
    scene.world.new_image(&scene.repo, &digest('c'), &[("nginx", "1.0", "")]);
    scene.scan('a', "GRYPE", &day(1), &[("CVE-1", "LOW")]);
    scene.scan('a', "TRIVY", &day(2), &[("CVE-1", "LOW"), ("CVE-2", "HIGH")]);
    scene.scan('b', "TRIVY", &day(3), &[]);
    let all = |request: Value| {
        let mut found: Vec<_> = scene
            .reports(request)
            .iter()
            .map(|report| {
                let (digest, name) = (report["digest"].as_str().unwrap(), report["scanner"]["name"].as_str().unwrap());
                format!("{} {name} {}", &digest[7..8], ids(report).len())
            })
            .collect();
        found.sort();
        found
    };
    let repo = &scene.repo;
    assert_eq!(all(json!({ "repoId": repo })), ["a GRYPE 1", "a TRIVY 2", "b TRIVY 0", "c UNKNOWN 2"]);
    assert_eq!(all(json!({ "repoId": repo, "tag": "latest" })), ["a GRYPE 1", "a TRIVY 2"]);
    assert_eq!(all(json!({ "repoId": repo, "tag": "old" })), ["c UNKNOWN 2"]);
    assert_eq!(all(json!({ "repoId": repo, "tag": "none" })), [""; 0]);
    assert_eq!(all(json!({ "digest": digest('b') })), ["b TRIVY 0"]);
    assert_eq!(all(json!({ "digest": digest('c') })), ["c UNKNOWN 2"]);
    assert_eq!(all(json!({ "digest": digest('a'), "tag": "old" })), ["a GRYPE 1", "a TRIVY 2"], "the tag is ignored");
    assert_eq!(all(json!({ "repoId": repo, "digest": digest('c') })), ["c UNKNOWN 2"]);
    assert_eq!(all(json!({ "repoId": repo, "scanner": { "name": "GRYPE" } })), ["a GRYPE 1"]);
    assert_eq!(all(json!({ "repoId": repo, "scanner": { "version": "1.0" } })).len(), 3);
    assert_eq!(all(json!({ "repoId": repo, "scanner": { "version": "2.0" } })), [""; 0]);
    assert_eq!(all(json!({ "repoId": repo, "createdSince": day(2) })), ["b TRIVY 0", "c UNKNOWN 2"]);
    assert_eq!(all(json!({ "repoId": repo, "createdSince": "1980-01-01T00:00:00Z" })), [""; 0]);
    let unknown = format!("{}/0123456789abcdef", scene.org());
    assert_eq!(all(json!({ "repoId": unknown })), [""; 0]);
    assert_eq!(all(json!({ "digest": digest('9') })), [""; 0]);
}

#[test]
fn a_list_of_reports_requires_a_repo_or_a_digest() {
    let scene = Scene::new();
    let list = |request: Value| violation(scene.world.call("Vulnerabilities.ListVulnReports", request));
    assert_eq!(list(json!({ "tag": "latest" })).0, "repoId");
    assert_eq!(list(json!({ "repoId": "nginx" })).0, "repoId");
    let rule = "digest must match \"^sha256:[0-9a-f]{64}$\"";
    assert_eq!(list(json!({ "digest": "sha256:0" })), ("digest".to_owned(), rule.to_owned()));
    assert_eq!(list(json!({ "repoId": scene.repo, "scanner": { "name": "SNYK" } })).0, "scanner.name");
    assert_eq!(list(json!({ "repoId": scene.repo, "createdSince": "yesterday" })).0, "createdSince");
}

#[test]
fn reports_of_a_caller_are_those_of_repos_with_the_capability() {
    let scene = Scene::new().with_advisories();
    scene.scan('b', "GRYPE", &day(1), &[]);
    let other = scene.world.folder("", "other");
    let list = |group: &str, capability: &str, method: &str, request: Value| {
        let reply = scene.world.call_with(group, &[capability], method, request)?;
        Ok::<_, Error>(items(&reply).len())
    };
    let (reports, counts) = ("Vulnerabilities.ListVulnReports", "Vulnerabilities.ListVulnCountReports");
    assert_eq!(list(scene.org(), "vuln_report.list", reports, json!({ "repoId": scene.repo })).unwrap(), 2);
    assert_eq!(list(&other, "vuln_report.list", reports, json!({ "repoId": scene.repo })).unwrap(), 0);
    assert_eq!(list(scene.org(), "repo.list", reports, json!({ "repoId": scene.repo })).unwrap(), 0);
    let folder = scene.world.folder(scene.org(), "folder");
    assert_eq!(list(&folder, "vuln_report.list", counts, json!({})).unwrap(), 0);
}

#[test]
fn every_listed_report_without_a_scanner_can_be_had_raw() {
    let scene = Scene::new().with_advisories();
    let [report] = &*scene.reports(json!({ "repoId": scene.repo, "tag": "latest" })) else { panic!("one report") };
    let raw = |more: Value| {
        let mut request = json!({ "digest": report["digest"] });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        scene.world.call("Vulnerabilities.GetRawVulnReport", request)
    };
    let found = raw(json!({ "scanner": "UNKNOWN", "createdAt": report["createdAt"] })).unwrap();
    assert_eq!((&found["scanner"], &found["createdAt"]), (&report["scanner"], &report["createdAt"]));
    let text = found["rawReport"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), *report);
    assert_eq!(raw(json!({})).unwrap()["scanner"]["name"], "UNKNOWN");
    assert_eq!(raw(json!({ "scanner": "GRYPE" })).unwrap_err().code(), Code::NotFound);
    // Once a scanner has made a report, only its own is listed.
    scene.scan('a', "GRYPE", &day(1), &[]);
    assert_eq!(raw(json!({})).unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_raw_report_is_that_of_the_digest_the_scanner_and_the_time() {
    let scene = Scene::new();
    let first = scene.scan('a', "GRYPE", &day(1), &[]);
    let second = scene.scan('a', "TRIVY", &day(2), &[]);
    scene.scan('a', "TRIVY", &day(3), &[]);
    for (report, text) in [(&first, "{\"matches\":[]}"), (&second, "{\"Results\":[]}")] {
        let raw = RawVulnerabilityReport::of(text.as_bytes()).unwrap();
        scene.world.import::<RawVulnerabilityReport>(report, serde_json::to_value(raw).unwrap());
    }
    let raw = |request: Value| scene.world.call("Vulnerabilities.GetRawVulnReport", request);
    assert_eq!(
        raw(json!({ "digest": digest('a'), "scanner": "GRYPE" })).unwrap(),
        json!({
            "digest": digest('a'), "scanner": { "name": "GRYPE", "version": "1.0", "dbBuildTime": null },
            "createdAt": day(1), "rawReport": "{\"matches\":[]}", "rawReportUrl": "",
        })
    );
    assert_eq!(raw(json!({ "digest": digest('a') })).unwrap()["createdAt"], day(2), "the latest that was kept");
    assert_eq!(raw(json!({ "digest": digest('a'), "createdAt": day(1) })).unwrap()["createdAt"], day(1));
    let code = |request: Value| raw(request).unwrap_err().code();
    assert_eq!(code(json!({ "digest": digest('a'), "createdAt": day(3) })), Code::NotFound);
    assert_eq!(code(json!({ "digest": digest('b') })), Code::NotFound);
    assert_eq!(violation(raw(json!({}))).0, "digest");
    assert_eq!(violation(raw(json!({ "digest": "latest" }))).0, "digest");
    let request = json!({ "digest": digest('a') });
    let method = "Vulnerabilities.GetRawVulnReport";
    let other = scene.world.folder("", "other");
    let elsewhere = scene.world.call_with(&other, &["vuln_report.list"], method, request.clone());
    assert_eq!(elsewhere.unwrap_err().code(), Code::NotFound);
    let without = scene.world.call_with(scene.org(), &["repo.list"], method, request);
    assert_eq!(without.unwrap_err().code(), Code::PermissionDenied);
}

#[test]
fn the_report_of_an_image_has_a_match_for_each_package() {
    let scene = Scene::new().with_advisories();
    let get = |digit: char| {
        scene.world.call("Registry.GetVulnReport", json!({ "repoId": scene.repo, "digest": digest(digit) }))
    };
    let report = get('a').unwrap();
    let matches = report["vulnerabilityMatches"].as_array().unwrap();
    assert_eq!(matches.len(), 4, "two packages for two architectures");
    assert_eq!(
        matches[3],
        json!({
            "vulnerability": {
                "id": "CVE-2026-2", "description": "about GHSA-2", "severity": "MEDIUM", "source": "",
                "cvss": [{ "score": "5.3", "version": "3.1" }], "cpeUri": [],
                "relatedUrls": ["https://example.com/GHSA-2"], "advisories": {},
                "relatedVulnerabilities": [{ "id": "CGA-2", "source": "" }], "displayId": "CVE-2026-2",
            },
            "pkg": {
                "id": "pkg:apk/wolfi/libssl3@3.5.0-r1?arch=x86_64", "name": "libssl3", "version": "3.5.0-r1",
                "license": "", "description": "", "purl": "pkg:apk/wolfi/libssl3@3.5.0-r1?arch=x86_64",
            },
            "fix": { "versions": ["3.5.1-r0"], "state": "FIXED" },
        })
    );
    assert_eq!(report["scanner"], json!({ "name": "unknown", "version": "" }));
    assert_eq!((&report["vulnerabilityDbLastBuildTime"], &report["rawVulnReport"]), (&Value::Null, &json!("")));
    let scan = scene.scan('a', "GRYPE", &day(1), &[("CVE-9", "NEGLIGIBLE")]);
    let raw = serde_json::to_value(RawVulnerabilityReport::of(b"{}").unwrap()).unwrap();
    scene.world.import::<RawVulnerabilityReport>(&scan, raw);
    assert_eq!(
        get('a').unwrap(),
        json!({
            "id": scan, "vulnerabilityDbLastBuildTime": null, "vulnerabilityMatches": [],
            "scanner": { "name": "grype", "version": "1.0" }, "reportGeneration": day(1), "rawVulnReport": "e30=",
            "lastSeen": day(1),
        })
    );
    assert_eq!(get('b').unwrap_err().code(), Code::NotFound);
    let get = |request: Value| scene.world.call("Registry.GetVulnReport", request);
    let unknown = format!("{}/0123456789abcdef", scene.org());
    assert_eq!(get(json!({ "repoId": unknown, "digest": digest('a') })).unwrap_err().code(), Code::NotFound);
    assert_eq!(violation(get(json!({ "repoId": scene.repo, "digest": "a" }))).0, "digest");
    let held = ["repo.list"];
    let request = json!({ "repoId": scene.repo, "digest": digest('a') });
    let denied = scene.world.call_with(scene.org(), &held, "Registry.GetVulnReport", request).unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
}

#[test]
fn a_report_with_more_than_16_mib_of_matches_is_not_returned() {
    let scene = Scene::new();
    let report = |purls: usize, description: usize| {
        let vulnerability = json!({
            "id": "CVE-1", "description": "d".repeat(description),
            "purls": (0..purls).map(|package| format!("pkg:apk/wolfi/p{package}@1")).collect::<Vec<_>>(),
        });
        let report = json!({
            "digest": digest('a'), "scanner": { "name": "SCANNER_GRYPE" }, "createTime": day(1),
            "vulnerabilities": vec![vulnerability; 10],
        });
        let report: VulnerabilityReport = serde_json::from_value(report).unwrap();
        block_on(scene.world.platform.put(&scene.world.operator, &scene.repo, [report])).unwrap().refused
    };
    let get = || scene.world.call("Registry.GetVulnReport", json!({ "repoId": scene.repo, "digest": digest('a') }));
    assert!(report(700, 2_000).is_empty());
    assert_eq!(get().unwrap()["vulnerabilityMatches"].as_array().unwrap().len(), 7_000);
    assert!(report(1_000, 2_000).is_empty());
    assert_eq!(get().map(drop).unwrap_err().code(), Code::ResourceExhausted);
    let long = report(1, 3_000);
    assert_eq!(long[0].error.violations()[0].field, "vulnerabilities[0].description");
}

#[test]
fn only_the_reports_of_the_selected_images_count_against_the_maximum() {
    let scene = Scene::new();
    let other = scene.world.new_repo(scene.org(), "other");
    let report = |seconds: usize| {
        let at = Timestamp::EPOCH.plus_millis(1000 * i64::try_from(seconds).unwrap());
        let report = json!({ "digest": digest('a'), "scanner": { "name": "SCANNER_GRYPE" }, "createTime": at });
        serde_json::from_value::<VulnerabilityReport>(report).unwrap()
    };
    let import = |repo: &Uid, seconds: std::ops::Range<usize>| {
        for first in seconds.clone().step_by(500) {
            let some = (first..seconds.end.min(first + 500)).map(report);
            let reply = block_on(scene.world.platform.put(&scene.world.operator, repo, some)).unwrap();
            assert!(reply.refused.is_empty());
        }
    };
    import(&other, 0..5_000);
    import(&scene.repo, 0..1);
    assert_eq!(scene.counts(json!({ "repo": "nginx" })).len(), 1);
    import(&scene.repo, 1..5_001);
    let rejected = violation(scene.world.call("Vulnerabilities.ListVulnCountReports", json!({ "repo": "nginx" })));
    assert!(rejected.1.contains("at most 5000 imported reports"), "{rejected:?}");
}

#[test]
fn counts_are_as_of_the_end_of_each_day_and_of_the_last_moment() {
    let scene = Scene::new().with_advisories();
    let counts = scene.counts(json!({ "from": day(1), "to": "1964-07-06T00:00:00Z" }));
    let expected = [("01", 1), ("02", 2), ("03", 3), ("04", 3), ("05", 2), ("06", 2)];
    assert_eq!(by_day(&counts), expected.map(|(day, count)| (day.to_owned(), count)));
    assert_eq!(
        counts[2],
        json!({
            "repo": "nginx", "tag": "latest", "date": day(3),
            "vulnCounts": [
                { "severity": "UNKNOWN", "count": 1 }, { "severity": "LOW", "count": 0 },
                { "severity": "MEDIUM", "count": 1 }, { "severity": "HIGH", "count": 1 },
                { "severity": "CRITICAL", "count": 0 }, { "severity": "NEGLIGIBLE", "count": 0 },
            ],
            "sizeBytes": "10",
            "cveIds": ["CVE-2026-1", "CVE-2026-2", "CVE-2026-3"], "lowCveIds": [], "medCveIds": ["CVE-2026-2"],
            "highCveIds": ["CVE-2026-1"], "critCveIds": [], "negligibleCveIds": [], "unknownCveIds": ["CVE-2026-3"],
        })
    );
    let before = scene.counts(json!({ "from": day(3), "to": "1964-07-03T00:00:00.000Z" }));
    assert_eq!(by_day(&before), [("03".to_owned(), 3)], "an event at the moment counts");
    let before = scene.counts(json!({ "to": "1964-07-02T23:59:59.999Z" }));
    assert_eq!(by_day(&before), [("02".to_owned(), 2)]);
    assert_eq!(by_day(&scene.counts(json!({}))), [("01".to_owned(), 2)], "now");
    assert_eq!(by_day(&scene.counts(json!({ "to": "1970-01-03T00:00:00Z", "from": "1970-01-01T00:00:00Z" }))).len(), 1);
}

#[test]
fn counts_use_the_latest_scan_up_to_each_moment() {
    let scene = Scene::new().with_advisories();
    scene.scan(
        'a',
        "GRYPE",
        "1964-07-02T12:00:00Z",
        &[("CVE-7", "LOW"), ("CVE-7", "CRITICAL"), ("CVE-8", "NEGLIGIBLE")],
    );
    scene.scan('a', "TRIVY", "1964-07-04T12:00:00Z", &[]);
    let counts = scene.counts(json!({ "from": day(1), "to": "1964-07-05T00:00:00Z" }));
    let expected = [("01", 1), ("02", 2), ("03", 2), ("04", 0), ("05", 0)];
    assert_eq!(by_day(&counts), expected.map(|(day, count)| (day.to_owned(), count)));
    assert_eq!((&counts[1]["critCveIds"], &counts[1]["negligibleCveIds"]), (&json!(["CVE-7"]), &json!(["CVE-8"])));
    let last = scene.counts(json!({ "to": "1964-07-02T11:59:59Z" }));
    assert_eq!(last[0]["cveIds"], json!(["CVE-2026-1", "CVE-2026-2"]), "computed before the first scan");
}

#[test]
fn all_tags_of_an_image_have_the_counts_of_its_scan() {
    let scene = Scene::new().with_advisories();
    scene.world.new_tag(&scene.repo, "1.28", &digest('a'));
    scene.scan('a', "GRYPE", &day(2), &[("CVE-2026-8", "CRITICAL")]);
    let counts = scene.counts(json!({ "to": day(3) }));
    let found: Vec<_> = counts.iter().map(|one| (one["tag"].as_str().unwrap(), &one["cveIds"])).collect();
    let ids = json!(["CVE-2026-8"]);
    assert_eq!(found, [("1.28", &ids), ("latest", &ids)]);
}

#[test]
fn counts_are_of_the_images_that_the_filter_selects() {
    let scene = Scene::new().with_advisories();
    let (world, org) = (&scene.world, scene.org().to_owned());
    world.new_tag(&scene.repo, "1.28", &digest('a'));
    world.new_tag(&scene.repo, "unknown", &digest('e'));
    world.new_tag(&scene.repo, "sha256-aa.sig", &digest('a'));
    let other = world.new_repo(&world.folder(&org, "folder"), "redis");
    world.new_tag(&other, "latest", &digest('b'));
    world.new_image(&other, &digest('b'), &[]);
    let selected = |request: Value| {
        let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let counts = scene.counts(request);
        counts.iter().map(|one| format!("{}:{}", text(one, "repo"), text(one, "tag"))).collect::<Vec<_>>()
    };
    assert_eq!(selected(json!({})), ["nginx:1.28", "nginx:latest", "redis:latest"]);
    assert_eq!(selected(json!({ "repo": "nginx" })), ["nginx:1.28", "nginx:latest"]);
    assert_eq!(selected(json!({ "repo": scene.repo, "tag": "1.28" })), [format!("{}:1.28", scene.repo)]);
    assert_eq!(selected(json!({ "tag": "latest" })), ["nginx:latest", "redis:latest"]);
    let references = json!([{ "repo": "redis" }, { "repo": "nginx", "tag": "1.28" }, { "repo": "nginx", "tag": "9" }]);
    assert_eq!(selected(json!({ "references": references })), ["nginx:1.28", "redis:latest"]);
    let both = json!({ "repo": "nginx", "tag": "latest", "references": [{ "repo": "redis", "tag": "latest" }] });
    assert_eq!(selected(both), ["nginx:latest", "redis:latest"]);
    assert_eq!(selected(json!({ "repo": "nginx", "tag": "sha256-aa.sig" })), ["nginx:sha256-aa.sig"]);
    for unknown in [json!({ "repo": "none" }), json!({ "repo": "nginx", "tag": "none" })] {
        assert_eq!(selected(unknown), [""; 0]);
    }
}

#[test]
fn a_range_that_is_reversed_too_long_or_malformed_is_rejected() {
    let scene = Scene::new();
    for method in ["ListVulnCountReports", "ListCumulativeVulnCountReports"] {
        let list = |request: Value| violation(scene.world.call(&format!("Vulnerabilities.{method}"), request));
        let rule = |field: &str, rule: &str| (field.to_owned(), rule.to_owned());
        assert_eq!(list(json!({ "from": day(2), "to": day(1) })), rule("to", "must not be before from"));
        let (from, to) = ("1964-01-01T00:00:00Z", "1965-01-01T00:00:00Z");
        assert_eq!(list(json!({ "from": from, "to": to })), rule("to", "must be at most 365 days after from"));
        assert_eq!(list(json!({ "from": "1971-01-01T00:00:00Z" })), rule("from", "must not be in the future"));
        assert_eq!(list(json!({ "from": "today" })).0, "from");
        assert_eq!(list(json!({ "references": [{ "tag": "latest" }] })).0, "references[0].repo");
        assert_eq!(list(json!({ "references": vec![json!({ "repo": "a" }); 101] })).0, "references");
    }
    let whole = json!({ "from": "1964-01-01T00:00:00Z", "to": "1964-12-31T23:59:59.999Z" });
    assert_eq!(scene.counts(whole).len(), 366, "both days are included");
}

#[test]
fn cumulative_counts_are_all_vulnerabilities_since_the_first_day() {
    let scene = Scene::new().with_advisories();
    let (world, org) = (&scene.world, scene.org().to_owned());
    let other = world.new_repo(&org, "other");
    world.new_tag(&other, "latest", &digest('b'));
    world.new_image(&other, &digest('b'), &[("zlib", "1", ""), ("nginx", "1.28.0-r0", "")]);
    world.new_advisory(
        &org,
        "CGA-9",
        "zlib",
        &[],
        &[(2, "detection", found()), (3, "falsePositiveDetermination", json!({}))],
    );
    let list = |request: Value| {
        items(&world.call("Vulnerabilities.ListCumulativeVulnCountReports", request).unwrap()).to_vec()
    };
    let (from, to) = (day(1), "1964-07-05T12:00:00Z");
    let one = list(json!({ "repo": "nginx", "tag": "latest", "from": from, "to": to }));
    let expected = |counts: [usize; 5]| {
        counts.into_iter().zip(1..).map(|(count, day)| (format!("{day:02}"), count)).collect::<Vec<_>>()
    };
    assert_eq!(by_day(&one), expected([1, 2, 3, 3, 3]));
    assert_eq!(
        (&one[0]["repo"], &one[0]["tag"], &one[0]["sizeBytes"]),
        (&json!("nginx"), &json!("latest"), &json!("10"))
    );
    let all = list(json!({ "from": from, "to": to }));
    assert_eq!(by_day(&all), expected([1, 3, 4, 4, 4]), "each vulnerability counts once");
    assert_eq!((&all[0]["repo"], &all[0]["sizeBytes"]), (&json!(""), &json!("20")));
    assert_eq!(list(json!({ "repo": "nginx" })).len(), 30);
    assert_eq!(list(json!({ "repo": "none" })), [] as [Value; 0]);
}

#[test]
fn more_vulnerabilities_times_days_than_a_request_may_examine_are_rejected_before_they_are() {
    let scene = Scene::new();
    let packages: Vec<_> = (0..20).map(|number| format!("package-{number}")).collect();
    let packages: Vec<_> = packages.iter().map(|name| (name.as_str(), "1", "")).collect();
    scene.world.new_image(&scene.repo, &digest('b'), &packages);
    for tag in 0..900 {
        scene.world.new_tag(&scene.repo, &format!("v{tag}"), &digest('b'));
    }
    for method in ["ListVulnCountReports", "ListCumulativeVulnCountReports"] {
        let list = |request: Value| scene.world.call(&format!("Vulnerabilities.{method}"), request);
        let year = |request: Value| {
            let mut range = json!({ "from": "1964-01-01T00:00:00Z", "to": "1964-12-31T00:00:00Z" });
            range.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
            range
        };
        let (field, rule) = violation(list(year(json!({}))));
        assert_eq!(field, "repo");
        let limit = "must select images with at most 5000000 vulnerabilities times days; ";
        assert!(rule.starts_with(limit) && rule.ends_with("and the request has 366 days"), "{rule}");
        let references = json!({ "references": [{ "repo": "nginx" }] });
        assert_eq!(violation(list(year(references))).0, "references");
        list(year(json!({ "repo": "nginx", "tag": "v7" }))).unwrap();
    }
}

#[test]
fn more_images_than_a_request_may_select_are_rejected_with_the_field_to_narrow() {
    let scene = Scene::new();
    for tag in 0..1000 {
        scene.world.new_tag(&scene.repo, &format!("v{tag}"), &digest('a'));
    }
    let counts = |request: Value| violation(scene.world.call("Vulnerabilities.ListVulnCountReports", request));
    let rule = "must select at most 1000 images".to_owned();
    assert_eq!(counts(json!({})), ("repo".to_owned(), rule.clone()));
    assert_eq!(counts(json!({ "references": [{ "repo": "nginx" }] })), ("references".to_owned(), rule));
    assert_eq!(scene.counts(json!({ "tag": "v7" })).len(), 1);
}

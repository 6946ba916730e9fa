//! Reads for integrations (`docs/api.md`, Documents, Vulnerability metadata and Resolved vulnerabilities).

use platform_core::resources::{
    advisory::{Document, PublicAdvisories, VulnerabilityMetadata},
    registry::{
        Digest, Image,
        image::{ImagePackage, ImagePlatform},
    },
    vulnerabilities::Advisory,
};
use platform_engine::{
    error::Code,
    kind::{Imported, Resource},
    options::RequestOptions,
    platform::{ActionReply, Rendered},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{World, block_on, code, digest, object, text, violated_fields};

/// Creates a world with a group whose advisories are public.
fn world() -> World {
    World::with(|builder| builder.data(PublicAdvisories::of([Uid::from_digest([0xaa; 20])])))
}

fn put(world: &World, group: &str, id: &str, name: &str, events: Value) {
    let advisory = json!({
        "advisoryId": id, "artifactName": name, "origin": "openssl", "packageNamespace": "wolfi",
        "aliases": [format!("CVE-{id}")], "events": events,
    });
    world.put(group, serde_json::from_value::<Advisory>(advisory).unwrap());
}

fn event(at: &str, form: &str, state: &str, data: Value) -> Value {
    json!({ "createTime": at, form: data, "reviewState": state })
}

const APPROVED: &str = "REVIEW_STATE_APPROVED";
const AT: &str = "2026-01-01T00:00:00Z";

fn rendered(world: &World, request: Value) -> Rendered {
    let action = &Document::ACTIONS[0];
    match block_on(world.platform.run_rendered(None, Document::KIND, action, &object(request), RequestOptions::none()))
        .unwrap()
    {
        ActionReply::Rendered(rendered) => rendered,
        other => panic!("expected a rendered reply, got {other:?}"),
    }
}

#[test]
fn documents_show_approved_events_of_public_advisories_by_origin_package() {
    let world = world();
    assert_eq!(world.run(None, "ListDocuments", json!({})).unwrap(), json!({ "documents": [] }));
    let fixed = event(AT, "fixed", APPROVED, json!({ "fixedVersion": "3.1.0-r0", "note": "internal" }));
    let pending = event(AT, "detection", "REVIEW_STATE_PENDING", json!({ "manual": {} }));
    let patched = event(AT, "patched", APPROVED, json!({ "patchedVersions": ["1"] }));
    let scan = event(AT, "detection", APPROVED, json!({ "scanv1": { "subpackage": "s", "component": "c" } }));
    put(&world, &world.org, "2", "openssl", json!([fixed, pending, patched]));
    put(&world, &world.group(&world.org), "1", "libssl3", json!([scan]));
    put(&world, &world.org, "3", "openssl", json!([pending]));
    put(&world, &world.organization(), "4", "openssl", json!([fixed]));
    let documents = world.run(None, "ListDocuments", json!({})).unwrap();
    assert_eq!(
        documents,
        json!({ "documents": [{ "id": "openssl", "advisories": [
            {
                "id": "1",
                "events": [{
                    "timestamp": "2026-01-01T00:00:00.000Z",
                    "detection": { "scanv1": { "subpackageName": "s", "componentName": "c" } },
                }],
                "aliases": ["CVE-1"],
                "packageNamespace": "wolfi",
            },
            {
                "id": "2",
                "events": [{ "timestamp": "2026-01-01T00:00:00.000Z", "fixed": { "fixedVersion": "3.1.0-r0" } }],
                "aliases": ["CVE-2"],
                "packageNamespace": "wolfi",
            },
        ] }] })
    );
    let ids = |request| -> Vec<String> {
        let documents = world.run(None, "ListDocuments", request).unwrap();
        let documents = documents["documents"].as_array().unwrap().clone();
        documents
            .iter()
            .flat_map(|one| one["advisories"].as_array().unwrap())
            .map(|one| text(one, "id").to_owned())
            .collect()
    };
    assert_eq!(ids(json!({ "id": "openssl" })), ["1", "2"]);
    assert_eq!(ids(json!({ "id": "libssl3" })), [""; 0]);
    assert_eq!(ids(json!({ "cves": ["CVE-2", "CVE-4", "CVE-9"] })), ["2"]);
    assert_eq!(ids(json!({ "id": "openssl", "cves": ["CVE-1"] })), ["1"]);
}

#[test]
fn without_public_groups_there_are_no_documents() {
    let world = World::new();
    put(&world, &world.org, "1", "openssl", json!([event(AT, "fixed", APPROVED, json!({}))]));
    assert_eq!(world.run(None, "ListDocuments", json!({})).unwrap(), json!({ "documents": [] }));
    assert_eq!(world.run(None, "ListDocuments", json!({ "id": "openssl" })).unwrap(), json!({ "documents": [] }));
}

#[test]
fn documents_are_cached_with_an_etag_until_an_advisory_changes() {
    let world = world();
    let fixed = event(AT, "fixed", APPROVED, json!({}));
    put(&world, &world.org, "1", "openssl", json!([fixed]));
    let (first, second) = (rendered(&world, json!({})), rendered(&world, json!({})));
    assert_eq!(first, second);
    assert_eq!(first.body.as_ptr(), second.body.as_ptr(), "the same bytes are shared");
    put(&world, &world.org, "1", "openssl", json!([fixed]));
    assert_eq!(rendered(&world, json!({})).body.as_ptr(), first.body.as_ptr(), "nothing changed");
    put(&world, &world.org, "2", "openssl", json!([fixed]));
    let third = rendered(&world, json!({}));
    assert_ne!(third.etag, first.etag);
    assert!(third.etag.starts_with("W/\"") && third.etag.ends_with('"'));
    let removed = Advisory { artifact_name: "openssl".to_owned(), advisory_id: "2".to_owned(), ..Advisory::default() };
    let uid = removed.uid_in(&world.org);
    block_on(world.platform.remove::<Advisory>(&world.operator, &uid)).unwrap();
    assert_eq!(rendered(&world, json!({})).etag, first.etag, "the same as before the change");
}

#[test]
fn any_caller_can_list_metadata_by_id() {
    let world = World::new();
    for id in ["CVE-2", "GHSA-1", "CVE-1"] {
        world.put("", VulnerabilityMetadata { id: id.to_owned(), aliases: vec!["X".to_owned()], ..Default::default() });
    }
    let unbound = world.identity(&world.org);
    let ids = |query: &[(&str, &str)]| -> Vec<String> {
        let page = world.list(&unbound, "VulnerabilityMetadata", query).unwrap();
        assert!(page.items.iter().all(|one| one.get("aliases").is_none()));
        page.items.iter().map(|one| text(one, "id").to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["CVE-1", "CVE-2", "GHSA-1"]);
    assert_eq!(ids(&[("order_by", "id desc"), ("page_size", "2")]), ["GHSA-1", "CVE-2"]);
    assert_eq!(ids(&[("id", "CVE-2")]), ["CVE-2"]);
    assert_eq!(ids(&[("ids", "CVE-2"), ("ids", "CVE-1"), ("ids", "CVE-7")]), ["CVE-1", "CVE-2"]);
    assert_eq!(ids(&[("ids", "CVE-2"), ("id", "CVE-1")]), [""; 0]);
    let many: Vec<_> = (0..1_001).map(|n| format!("CVE-{n}")).collect();
    let query: Vec<_> = many.iter().map(|id| ("ids", id.as_str())).collect();
    assert_eq!(violated_fields(world.list(&unbound, "VulnerabilityMetadata", &query)), ["ids"]);
    assert!(world.list(&unbound, "VulnerabilityMetadata", &query[..1_000]).is_ok());
    assert_eq!(violated_fields(world.list(&unbound, "VulnerabilityMetadata", &[("uidp.ids", "a")])), ["uidp.ids"]);
    assert_eq!(code(world.list(&unbound, "VulnerabilityMetadata", &[("page_token", "x")])), Code::InvalidArgument);
}

/// Imports an image with these packages, tagged in a new repo; returns the repo.
fn image(world: &World, group: &str, tag: &str, packages: &[(&str, &str, &str)]) -> Uid {
    let repo = world.repo(group);
    let packages = packages.iter().map(|(name, version, origin)| ImagePackage {
        name: (*name).to_owned(),
        version: (*version).to_owned(),
        origin: (*origin).to_owned(),
    });
    let platform = ImagePlatform {
        architecture: "amd64".to_owned(),
        digest: Digest::opaque(digest('1')),
        packages: packages.collect(),
        size: 1,
    };
    world.put(&repo, Image { digest: Digest::opaque(digest('0')), platforms: vec![platform], ..Image::default() });
    world.tag(&repo, tag);
    repo
}

#[test]
fn daily_reports_have_the_vulnerabilities_fixed_in_installed_packages() {
    let world = world();
    let fix = |at: &str, version: &str| event(at, "fixed", APPROVED, json!({ "fixedVersion": version }));
    put(&world, &world.org, "1", "openssl", json!([fix("2026-01-01T23:59:59Z", "3.1.0-r0")]));
    put(&world, &world.org, "2", "openssl", json!([fix("2026-01-03T00:00:00Z", "3.1.0-r1")]));
    put(&world, &world.org, "3", "openssl", json!([fix("2026-01-03T00:00:00Z", "3.2.0-r0")]));
    put(&world, &world.org, "4", "curl", json!([fix("2026-01-01T00:00:00Z", "1-r0")]));
    put(&world, &world.org, "5", "libssl3", json!([fix("2026-01-04T00:00:01Z", "1-r0")]));
    let pending = json!([event(AT, "fixed", "REVIEW_STATE_PENDING", json!({ "fixedVersion": "1-r0" }))]);
    put(&world, &world.org, "6", "openssl", pending);
    let group = world.group(&world.org);
    let repo = image(&world, &group, "latest", &[("libssl3", "3.1.0-r1", "openssl")]);
    let reader = world.member("viewer", &group);
    let reports = |caller, refs: Value| {
        let request =
            json!({ "imageRefs": refs, "startTime": "2026-01-01T12:00:00Z", "endTime": "2026-01-04T00:00:00Z" });
        world.run(Some(caller), "ListResolvedVulnsReports", request).unwrap()["resolvedVulnsReports"].clone()
    };
    let found = reports(&reader, json!([{ "repo": repo }]));
    let empty = |day: &str| json!({ "date": format!("2026-01-{day}T00:00:00.000Z") });
    let with = |day: &str, id: &str| {
        let mut report = empty(day);
        report["resolvedVulns"] = json!([{ "id": id, "aliases": [format!("CVE-{id}")] }]);
        report
    };
    assert_eq!(found, json!([with("01", "1"), empty("02"), with("03", "2"), empty("04")]));
    let name = text(&world.get(&world.operator, "Repo", &repo).unwrap(), "name").to_owned();
    assert_eq!(reports(&reader, json!([{ "repo": name, "tags": ["latest"] }])), found);
    let nothing = json!([empty("01"), empty("02"), empty("03"), empty("04")]);
    assert_eq!(reports(&reader, json!([{ "repo": name, "tags": ["other"] }])), nothing);
    assert_eq!(reports(&reader, json!([{ "repo": "nosuch" }])), nothing);
    assert_eq!(reports(&world.identity(&group), json!([{ "repo": repo }])), nothing);
}

#[test]
fn reports_cover_at_most_366_days_and_100_images() {
    let world = World::new();
    let ask = |refs: Value, start: &str, end: &str| {
        let request = json!({ "imageRefs": refs, "startTime": start, "endTime": end });
        world.run(Some(&world.operator), "ListResolvedVulnsReports", request)
    };
    let one = || json!([{ "repo": "a" }]);
    let year = ask(one(), "2026-01-01T00:00:00Z", "2027-01-01T23:00:00Z").unwrap();
    assert_eq!(year["resolvedVulnsReports"].as_array().unwrap().len(), 366);
    assert_eq!(violated_fields(ask(one(), "2026-01-01T00:00:00Z", "2027-01-02T00:00:00Z")), ["endTime"]);
    assert_eq!(violated_fields(ask(one(), "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z")), ["endTime"]);
    let tags = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let two = json!([{ "repo": "a", "tags": tags(51) }, { "repo": "b", "tags": tags(50) }]);
    assert_eq!(violated_fields(ask(two, AT, AT)), ["imageRefs"]);
    let none = world.run(Some(&world.operator), "ListResolvedVulnsReports", json!({}));
    assert_eq!(violated_fields(none), ["imageRefs", "startTime", "endTime"]);
}

//! Lists of advisories (`docs/api.md`, Advisories): each filter and their combinations.

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    vulnerabilities::{Advisory, AdvisoryEvent, Severity, severity::SeverityType},
};
use platform_testkit::CountingStore;
use serde_json::{Value, json};

use crate::common::{BEGIN, Page, World, block_on, text, violated_fields};

/// Creates four advisories; the last one is withdrawn.
fn world() -> World {
    let world = World::new();
    let put = |mut one: Value| {
        one["artifactType"] = "apk".into();
        let advisory: Advisory = serde_json::from_value(one).unwrap();
        world.put(&world.org, advisory);
    };
    let event = |at: &str, form: &str, author: &str, state: &str| json!({ "createTime": at, form: {}, "author": author, "reviewer": format!("{author} too"), "reviewState": state });
    let (pending, approved) = ("REVIEW_STATE_PENDING", "REVIEW_STATE_APPROVED");
    let [first, second, third] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"];
    put(json!({
        "advisoryId": "CGA-1", "artifactName": "openssl", "artifactArchitecture": "x86_64", "aliases": ["CVE-1", "GHSA-1"],
        "componentName": "LibCrypto", "componentType": "so", "componentLocation": "/usr/lib", "legacyAdvisoryId": "OLD-1",
        // Written out of order: their times decide which event is the most recent.
        "events": [event(second, "fixed", "ada", approved), event(first, "detection", "bot", approved)],
    }));
    put(json!({
        "advisoryId": "CGA-2", "artifactName": "libssl3", "origin": "openssl", "aliases": ["CVE-1"],
        "events": [event(first, "detection", "ada", approved), event(third, "fixed", "grace", pending)],
    }));
    put(json!({
        "advisoryId": "CGA-3", "artifactName": "curl", "artifactArchitecture": "aarch64", "aliases": ["CVE-2"],
        "events": [event(first, "patched", "grace", approved)],
    }));
    put(json!({
        "advisoryId": "CGA-4", "artifactName": "curl", "aliases": ["CVE-1"], "deleteTime": third,
        "events": [event(first, "fixed", "ada", approved)],
    }));
    world
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn listed(world: &World, query: Pairs<'_>) -> Vec<String> {
    let page: Page = world.list(&world.operator, "Advisory", query).unwrap();
    let mut ids: Vec<_> = page.items.iter().map(|one| text(one, "advisoryId").replace("CGA-", "")).collect();
    assert_eq!(page.total, ids.len() as u64, "{query:?}");
    ids.sort();
    ids
}

#[test]
fn each_filter_selects_its_matches_and_different_filters_combine_by_and() {
    let world = world();
    let cases: &[(Pairs<'_>, &[&str])] = &[
        (&[], &["1", "2", "3"]),
        (&[("advisoryIds", "CGA-1"), ("advisoryIds", "CGA-3"), ("advisory_ids", "CGA-4")], &["1", "3"]),
        (&[("legacyAdvisoryIds", "OLD-1")], &["1"]),
        (&[("artifactNames", "openssl"), ("artifactNames", "curl")], &["1", "3"]),
        (&[("artifactTypes", "apk")], &["1", "2", "3"]),
        (&[("artifactArchitectures", "aarch64")], &["3"]),
        (&[("componentNames", "LibCrypto")], &["1"]),
        (&[("componentNames", "libcrypto")], &[]),
        (&[("componentTypes", "so")], &["1"]),
        (&[("componentLocations", "/usr/lib")], &["1"]),
        (&[("aliases", "CVE-1")], &["1", "2"]),
        (&[("aliases", "CVE-1"), ("aliases", "GHSA-1"), ("aliases", "CVE-2")], &["1", "2", "3"]),
        (&[("origin", "openssl")], &["1", "2"]),
        (&[("origin", "openssl"), ("artifactNames", "curl")], &["1", "2"]),
        (&[("origin", "libssl3")], &[]),
        (&[("origin", ""), ("artifactNames", "curl")], &["3"]),
        (&[("eventReviewStates", "REVIEW_STATE_PENDING")], &["2"]),
        (&[("eventReviewStates", "2")], &["1", "2", "3"]),
        (&[("eventAuthors", "ada")], &["1", "2"]),
        (&[("eventAuthors", "bot"), ("eventAuthors", "grace")], &["1", "2", "3"]),
        (&[("excludeEventAuthors", "ada")], &["3"]),
        (&[("excludeEventAuthors", "bot"), ("eventAuthors", "ada")], &["2"]),
        (&[("eventReviewers", "bot too")], &["1"]),
        (&[("eventTypes", "EVENT_TYPE_FILTER_FIXED")], &["1", "2"]),
        (&[("eventTypes", "EVENT_TYPE_FILTER_PATCHED"), ("eventTypes", "1")], &["1", "2", "3"]),
        // Filters are evaluated independently: different events may match them.
        (&[("eventTypes", "EVENT_TYPE_FILTER_FIXED"), ("eventAuthors", "bot")], &["1"]),
        (&[("latestEventType", "EVENT_TYPE_FILTER_FIXED")], &["1"]),
        (&[("latestEventType", "EVENT_TYPE_FILTER_DETECTION")], &["2"]),
        (&[("latestEventType", "EVENT_TYPE_FILTER_UNSPECIFIED")], &["1", "2", "3"]),
        (&[("latestEventType", "EVENT_TYPE_FILTER_DETECTION"), ("artifactNames", "openssl")], &[]),
        (&[("query", "ssl")], &["1", "2"]),
        (&[("query", "LIBCRYPTO")], &["1"]),
        (&[("query", "ghsa-")], &["1"]),
        (&[("query", "cve-1"), ("artifactNames", "libssl3")], &["2"]),
        (&[("query", "opensslLibCrypto")], &[]),
    ];
    for (query, expected) in cases {
        assert_eq!(listed(&world, query), *expected, "{query:?}");
    }
}

#[test]
fn required_fields_of_an_advisory_are_returned_even_when_empty() {
    let world = World::new();
    let events = vec![AdvisoryEvent::default()];
    let found =
        Advisory { artifact_name: "curl".to_owned(), advisory_id: "CGA-4".to_owned(), events, ..Advisory::default() };
    world.put(&world.org, found);
    let page: Page = world.list(&world.operator, "Advisory", &[]).unwrap();
    let uid = text(&page.items[0], "uid").to_owned();
    for shown in [page.items[0].clone(), world.get(&world.operator, "Advisory", &uid).unwrap()] {
        for name in
            ["author", "artifactType", "artifactArchitecture", "componentName", "componentLocation", "componentType"]
        {
            assert_eq!(shown[name], "", "{name}");
        }
        let event = &shown["events"][0];
        assert_eq!((&event["author"], &event["reviewState"]), (&json!(""), &json!("REVIEW_STATE_UNSPECIFIED")));
        assert!(shown.get("aliases").is_none() && event.get("reviewer").is_none(), "{shown}");
    }
}

#[test]
fn an_unspecified_type_or_state_in_a_list_parameter_is_rejected() {
    let world = world();
    for (name, value) in [("eventTypes", "EVENT_TYPE_FILTER_UNSPECIFIED"), ("eventReviewStates", "0")] {
        assert_eq!(violated_fields(world.list(&world.operator, "Advisory", &[(name, value)])), [name]);
    }
}

#[test]
fn a_withdrawn_advisory_is_returned_by_a_get() {
    let world = world();
    let found = Advisory { artifact_name: "curl".to_owned(), advisory_id: "CGA-4".to_owned(), ..Advisory::default() };
    let uid = platform_engine::kind::Imported::uid_in(&found, &world.org);
    assert_eq!(text(&world.get(&world.operator, "Advisory", &uid).unwrap(), "deleteTime"), "2026-01-03T00:00:00.000Z");
}

#[test]
fn severities_are_looked_up_through_aliases_when_an_advisory_is_read() {
    let world = world();
    let uid = uid_of_first(&world);
    assert_eq!(world.get(&world.operator, "Advisory", &uid).unwrap().get("severities"), None);
    let severity = |scale, score: &str| Severity { scale, score: score.to_owned() };
    let (third, fourth) =
        (severity(SeverityType::TypeCvssV3, "CVSS:3.1/A"), severity(SeverityType::TypeCvssV4, "CVSS:4.0/B"));
    let metadata = |id: &str, aliases: &[&str], severities: &[&Severity]| VulnerabilityMetadata {
        id: id.to_owned(),
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        severities: severities.iter().map(|severity| (*severity).clone()).collect(),
        ..Default::default()
    };
    world.put("", metadata("GHSA-1", &[], &[&fourth]));
    world.put("", metadata("GO-2026-1", &["CVE-1"], &[&third, &fourth]));
    world.put("", metadata("CVE-9", &["CVE-8"], &[&third]));
    let expected = json!([
        { "type": "TYPE_CVSS_V3", "score": "CVSS:3.1/A" },
        { "type": "TYPE_CVSS_V4", "score": "CVSS:4.0/B" },
    ]);
    assert_eq!(world.get(&world.operator, "Advisory", &uid).unwrap()["severities"], expected);
    let page = world.list(&world.operator, "Advisory", &[("aliases", "CVE-1")]).unwrap();
    assert!(page.items.iter().all(|one| one["severities"] == expected), "{page:?}");
}

#[test]
fn values_stored_for_filters_and_documents_are_not_returned() {
    let world = world();
    let page = world.list(&world.operator, "Advisory", &[]).unwrap();
    assert_eq!(page.items.len(), 3);
    assert!(page.items.iter().all(|one| one.get("origin").is_none() && one.get("packageNamespace").is_none()));
    assert!(world.get(&world.operator, "Advisory", &uid_of_first(&world)).unwrap().get("origin").is_none());
}

fn uid_of_first(world: &World) -> String {
    world.list(&world.operator, "Advisory", &[("advisoryIds", "CGA-1")]).unwrap().uids().remove(0)
}

/// Returns the counts of each day: open, fixed, not affected, not planned.
fn trend(world: &World, uid: &str, days: u32) -> Vec<[i64; 4]> {
    let reply = world.run(Some(&world.operator), "CountAdvisories", json!({ "uid": uid, "days": days })).unwrap();
    let fields = ["open", "fixed", "notAffected", "notPlanned"];
    reply["days"].as_array().unwrap().iter().map(|day| fields.map(|field| day[field].as_i64().unwrap())).collect()
}

fn put(world: &World, group: &str, id: &str, withdrawn: Option<i64>, events: &[(i64, &str, &str)]) {
    let at = |days_ago: i64| BEGIN.plus_millis(-days_ago * 24 * 60 * 60 * 1000).to_string();
    let events: Vec<_> = events
        .iter()
        .map(|(days_ago, form, state)| {
            json!({ "createTime": at(*days_ago), *form: {}, "reviewState": format!("REVIEW_STATE_{state}") })
        })
        .collect();
    let mut one = json!({ "advisoryId": id, "artifactName": "openssl", "events": events });
    if let Some(withdrawn) = withdrawn {
        one["deleteTime"] = at(withdrawn).into();
    }
    world.put(group, serde_json::from_value::<Advisory>(one).unwrap());
}

#[test]
fn a_trend_has_the_states_of_the_advisories_of_a_group_and_below_at_the_end_of_each_day() {
    let world = World::new();
    let (below, other) = (world.group(&world.org), world.group(&world.org));
    put(&world, &below, "1", None, &[(2, "detection", "APPROVED"), (1, "fixed", "APPROVED")]);
    put(&world, &below, "2", None, &[(40, "detection", "APPROVED")]);
    // Two events on one day: the last one decides. Pending events do not count.
    put(
        &world,
        &below,
        "3",
        None,
        &[(1, "detection", "APPROVED"), (1, "falsePositiveDetermination", "APPROVED"), (0, "fixed", "PENDING")],
    );
    put(&world, &below, "4", Some(0), &[(2, "fixNotPlanned", "APPROVED")]);
    put(&world, &other, "5", None, &[(0, "truePositiveDetermination", "APPROVED")]);
    assert_eq!(trend(&world, &below, 4), [[1, 0, 0, 0], [2, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 0]]);
    assert_eq!(trend(&world, &world.org, 1), [[2, 1, 1, 0]]);
    let reply = world.run(Some(&world.operator), "CountAdvisories", json!({ "uid": below })).unwrap();
    let days = reply["days"].as_array().unwrap();
    assert_eq!(
        (days.len(), text(&days[29], "date")),
        (30, format!("{}T00:00:00.000Z", &BEGIN.to_string()[..10]).as_str())
    );
    for days in [-1, 93] {
        let request = json!({ "uid": below, "days": days });
        assert_eq!(violated_fields(world.run(Some(&world.operator), "CountAdvisories", request)), ["days"]);
    }
}

#[test]
fn a_trend_reads_no_advisory_and_costs_the_same_for_any_number() {
    let (store, calls) = CountingStore::in_memory();
    let world = World::over(store);
    let reads = || {
        let before = calls.reads();
        trend(&world, &world.org, 30);
        calls.reads() - before
    };
    // The first call also reads the grants of the caller.
    reads();
    let none = reads();
    for id in 0..200 {
        put(&world, &world.org, &id.to_string(), None, &[(id % 30, "detection", "APPROVED")]);
    }
    assert_eq!(reads(), none);
}

/// Returns the counts by severity of each day, in a state: critical, high, medium, low, without a severity.
fn by_severity(world: &World, uid: &str, days: u32, state: &str) -> Vec<[i64; 5]> {
    let request = json!({ "uid": uid, "days": days, "state": state });
    let reply = world.run(Some(&world.operator), "CountAdvisories", request).unwrap();
    let fields = ["critical", "high", "medium", "low", "unrated"];
    reply["days"].as_array().unwrap().iter().map(|day| fields.map(|field| day[field].as_i64().unwrap())).collect()
}

const CRITICAL: &str = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H";
const HIGH: &str = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N";
const LOW: &str = "CVSS:3.1/AV:L/AC:H/PR:L/UI:R/S:U/C:L/I:N/A:N";

fn rate(world: &World, id: &str, aliases: &[&str], scores: &[&str]) {
    let severities =
        scores.iter().map(|score| Severity { scale: SeverityType::TypeCvssV3, score: (*score).to_owned() });
    let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    let severities = severities.collect();
    world.put("", VulnerabilityMetadata { id: id.to_owned(), aliases, severities, ..Default::default() });
}

#[test]
fn a_trend_has_the_severities_of_the_advisories_in_a_state() {
    let world = World::new();
    // Metadata is there before the advisories, or comes after them.
    rate(&world, "CVE-1", &[], &[LOW, CRITICAL]);
    put(&world, &world.org, "CVE-1", None, &[(2, "detection", "APPROVED"), (1, "fixed", "APPROVED")]);
    put(&world, &world.org, "CVE-2", None, &[(1, "detection", "APPROVED")]);
    put(&world, &world.org, "CVE-3", None, &[(0, "detection", "APPROVED")]);
    put(&world, &world.org, "CVE-4", Some(0), &[(1, "detection", "APPROVED")]);
    rate(&world, "GHSA-2", &["CVE-2"], &[HIGH]);
    rate(&world, "CVE-4", &[], &[HIGH]);
    let none = [0; 5];
    assert_eq!(by_severity(&world, &world.org, 4, "OPEN"), [none, [1, 0, 0, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 0, 1]]);
    assert_eq!(by_severity(&world, &world.org, 2, "FIXED"), [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]);
    assert_eq!(by_severity(&world, &world.org, 1, "NOT_PLANNED"), [none]);
    let request = json!({ "uid": world.org, "state": "CLOSED" });
    assert_eq!(violated_fields(world.run(Some(&world.operator), "CountAdvisories", request)), ["state"]);

    // The severity of a vulnerability changes, and an entry loses a name.
    rate(&world, "CVE-1", &[], &[LOW]);
    rate(&world, "GHSA-2", &["CVE-3"], &[HIGH]);
    assert_eq!(by_severity(&world, &world.org, 1, "FIXED"), [[0, 0, 0, 1, 0]]);
    assert_eq!(by_severity(&world, &world.org, 1, "OPEN"), [[0, 1, 0, 0, 1]]);
    let page = world.list(&world.operator, "Advisory", &[("advisoryIds", "CVE-3")]).unwrap();
    assert_eq!(page.items[0]["severities"][0]["score"], HIGH);
    // Without metadata, nothing is known.
    let removed = block_on(world.platform.remove_all::<VulnerabilityMetadata>(&world.operator, "")).unwrap();
    assert_eq!(removed, 3);
    assert_eq!(by_severity(&world, &world.org, 1, "FIXED"), [[0, 0, 0, 0, 1]]);
    assert_eq!(by_severity(&world, &world.org, 1, "OPEN"), [[0, 0, 0, 0, 2]]);
}

#[test]
fn metadata_updates_any_number_of_advisories_and_changes_no_time() {
    let world = World::new();
    let at = |world: &World| world.list(&world.operator, "Advisory", &[("page_size", "200")]).unwrap().items;
    let count = 1_100;
    for id in 0..count {
        let one = json!({ "advisoryId": format!("CGA-{id}"), "artifactName": "a", "aliases": ["CVE-1"],
            "events": [{ "createTime": BEGIN.to_string(), "detection": {}, "reviewState": "REVIEW_STATE_APPROVED" }] });
        world.put(&world.org, serde_json::from_value::<Advisory>(one).unwrap());
    }
    let before = at(&world);
    rate(&world, "CVE-1", &[], &[HIGH]);
    assert_eq!(by_severity(&world, &world.org, 1, "OPEN"), [[0, count, 0, 0, 0]]);
    let times = |items: &[Value]| items.iter().map(|one| text(one, "updateTime").to_owned()).collect::<Vec<_>>();
    assert_eq!(times(&before), times(&at(&world)));
}

//! Writes, lists and reviews of advisories and their events.

use std::{collections::BTreeSet, thread};

use platform_core::resources::vulnerabilities::{Advisory, AdvisoryEvent};

use super::*;

/// Returns a world whose operator may write advisories, which no built-in role allows.
fn world() -> World {
    let world = World::new();
    let writes = ["advisories.create", "advisories.update", "advisories.delete", "advisories.approve"];
    world.grant(&writes);
    world
}

/// Creates an advisory about a package, and returns it.
fn create(world: &World, package: &str, more: Value) -> Value {
    let mut advisory = json!({ "artifactName": package });
    advisory.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.call("Advisories.Create", json!({ "parentId": world.org, "advisory": advisory })).unwrap()
}

fn id(value: &Value) -> &str {
    value["id"].as_str().unwrap()
}

fn add(world: &World, advisory: &Value, event: Value) -> Result<Value> {
    world.call("Advisories.CreateAdvisoryEvent", json!({ "parentId": advisory["id"], "advisoryEvent": event }))
}

fn events(world: &World, advisory: &str) -> Vec<Value> {
    let reply = world.call("Advisories.ListAdvisoryEvents", json!({ "parentId": advisory })).unwrap();
    assert_eq!(reply["parentId"], advisory);
    items(&reply).to_vec()
}

#[test]
fn an_advisory_is_shown_as_it_was_created_with_an_id_an_author_and_times() {
    let world = world();
    let sent = json!({
        "id": "ignored", "artifactType": "apk", "artifactName": "openssl", "artifactArchitecture": "x86_64",
        "componentName": "libcrypto", "componentLocation": "/usr/lib/libcrypto.so.3", "componentType": "so",
        "createdAt": "2020-01-01T00:00:00Z", "aliases": ["CVE-2026-1", "GHSA-1"], "advisoryId": "CGA-own",
        "legacyAdvisoryID": "OLD-1", "author": "ada@example.com",
    });
    let created = world.call("Advisories.Create", json!({ "parentId": world.org, "advisory": sent })).unwrap();
    let (uid, public, at) = (id(&created), created["advisoryId"].as_str().unwrap(), &created["createdAt"]);
    assert_eq!(uid.rsplit_once('/').unwrap().0, world.org);
    let is_public = public.len() == 18 && public.starts_with("CGA-") && public != "CGA-own";
    assert!(is_public && at != "2020-01-01T00:00:00.000Z", "{created}");
    let expected = json!({
        "id": uid, "artifactType": "apk", "artifactName": "openssl", "artifactArchitecture": "x86_64",
        "componentName": "libcrypto", "componentLocation": "/usr/lib/libcrypto.so.3", "componentType": "so",
        "createdAt": at, "updatedAt": at, "aliases": ["CVE-2026-1", "GHSA-1"], "events": [], "advisoryId": public,
        "author": "ada@example.com",
    });
    assert_eq!(created, expected);
    let listed = world.call("Advisories.List", json!({ "id": uid })).unwrap();
    assert_eq!(listed, json!({ "id": "", "items": [expected], "nextPageToken": "", "totalCount": "1" }));
    let stored = world.get("Advisory", uid).unwrap();
    assert_eq!((&stored["artifactName"], &stored["componentName"]), (&json!("openssl"), &json!("libcrypto")));
    assert_eq!(create(&world, "curl", json!({}))["author"], *world.operator.identity, "the author is the caller");
}

#[test]
fn an_event_of_each_type_is_shown_as_it_was_created() {
    let world = world();
    let advisory = create(&world, "openssl", json!({}));
    let scan = json!({
        "scanner": "s", "subpackageName": "p", "componentId": "i", "componentName": "c", "componentVersion": "v",
        "componentType": "t", "componentLocation": "l", "artifactVersion": "a", "scannerVersion": "sv",
        "grypeDbBuilt": "b", "grypeDbChecksum": "x",
    });
    let fixed = json!({
        "fixedVersion": "1", "note": "n", "scannerVersion": "s", "grypeDbBuilt": "b", "grypeDbChecksum": "c",
    });
    let types = [
        ("detection", json!({ "nvdapi": { "cpeSearched": "s", "cpeFound": "f" } })),
        ("detection", json!({ "manual": {} })),
        ("detection", json!({ "scanv1": scan })),
        ("fixed", fixed),
        ("falsePositiveDetermination", json!({ "type": "INLINE_MITIGATIONS_EXIST", "note": "n" })),
        ("analysisNotPlanned", json!({ "note": "n" })),
        ("fixNotPlanned", json!({ "note": "n" })),
        ("pendingUpstreamFix", json!({ "note": "n" })),
        ("truePositiveDetermination", json!({ "note": "" })),
        ("patched", json!({ "patchedVersions": ["1", "2"], "note": "n" })),
        ("componentLocationChanged", json!({ "previousLocation": "/a", "newLocation": "/b", "note": "n" })),
    ];
    let mut added = Vec::new();
    for (name, value) in &types {
        let sent = json!({ "findings": "e30=", "author": "bot", "reviewer": "ada", "issue": "https://a.example/1" });
        let mut event = sent.clone();
        event[*name] = value.clone();
        let shown = add(&world, &advisory, event.clone()).unwrap();
        event["id"] = shown["id"].clone();
        event["timestamp"] = shown["timestamp"].clone();
        event["status"] = "PENDING".into();
        assert_eq!(shown, event, "{name}");
        let (parent, _) = id(&shown).rsplit_once('/').unwrap();
        assert_eq!(parent, id(&advisory));
        assert_eq!(events(&world, id(&shown)), [event], "one event, by its own uid");
        added.push(shown);
    }
    let unique: BTreeSet<_> = added.iter().map(id).collect();
    assert_eq!(unique.len(), types.len());
    assert_eq!(events(&world, id(&advisory)), added);
    let listed = world.call("Advisories.List", json!({ "id": id(&advisory) })).unwrap();
    assert_eq!(items(&listed)[0]["events"], Value::from(added));
    // Version 2 has no changes of paths.
    let stored = world.get("Advisory", id(&advisory)).unwrap();
    assert_eq!(stored["events"].as_array().unwrap().len(), types.len() - 1);
    assert!(!stored.to_string().contains("LocationChanged"), "{stored}");
}

#[test]
fn an_event_without_optional_values_has_the_defaults_of_a_new_one() {
    let world = world();
    let advisory = create(&world, "openssl", json!({ "events": [{ "fixNotPlanned": {} }] }));
    let [event] = events(&world, id(&advisory)).try_into().unwrap();
    assert_eq!(advisory["events"], json!([event]));
    let expected = json!({
        "id": event["id"], "timestamp": event["timestamp"], "fixNotPlanned": { "note": "" }, "findings": "",
        "author": *world.operator.identity, "reviewer": "", "status": "PENDING",
    });
    assert_eq!(event, expected);
}

#[test]
fn an_update_replaces_everything_but_the_events_the_ids_and_the_creation() {
    let world = world();
    let more = json!({ "artifactType": "apk", "componentName": "libcrypto", "aliases": ["CVE-1"], "events": [{ "fixed": {} }] });
    let created = create(&world, "openssl", more);
    let sent = json!({ "id": id(&created), "artifactName": "openssl", "artifactArchitecture": "aarch64", "aliases": ["CVE-2"] });
    let updated = world.call("Advisories.Update", sent.clone()).unwrap();
    let mut expected = created.clone();
    expected["artifactType"] = "".into();
    expected["artifactArchitecture"] = "aarch64".into();
    expected["aliases"] = json!(["CVE-2"]);
    expected["updatedAt"] = updated["updatedAt"].clone();
    expected.as_object_mut().unwrap().shift_remove("componentName");
    assert_eq!(updated, expected);
    assert!(updated["updatedAt"].as_str() > created["updatedAt"].as_str());
    assert_eq!(world.call("Advisories.Update", sent).unwrap(), updated, "the same update changes nothing");
    let renamed = json!({ "id": id(&created), "artifactName": "curl" });
    let refused = violation(world.call("Advisories.Update", renamed));
    assert_eq!(refused, ("artifactName".to_owned(), "is immutable".to_owned()));
}

#[test]
fn writes_keep_what_only_imports_know() {
    let world = world();
    let imported = Advisory {
        advisory_id: "CGA-1".to_owned(),
        artifact_name: "libssl3".to_owned(),
        origin: "openssl".to_owned(),
        package_namespace: "wolfi".to_owned(),
        legacy_advisory_id: "OLD-1".to_owned(),
        ..Advisory::default()
    };
    block_on(world.platform.put(&world.operator, &world.org, [imported])).unwrap();
    let listed = || world.call("Advisories.List", json!({ "origin": "openssl" })).unwrap();
    let advisory = items(&listed())[0].clone();
    world.call("Advisories.Update", json!({ "id": id(&advisory), "artifactName": "libssl3" })).unwrap();
    add(&world, &advisory, json!({ "fixed": {} })).unwrap();
    let after = listed();
    let [after] = items(&after) else { panic!("{after}") };
    assert_eq!((&after["legacyAdvisoryID"], &after["advisoryId"]), (&json!("OLD-1"), &json!("CGA-1")));
    assert_eq!(after["events"].as_array().unwrap().len(), 1);
}

#[test]
fn a_deleted_advisory_is_withdrawn_and_no_longer_exists_in_version_1() {
    let world = world();
    let advisory = create(&world, "openssl", json!({ "events": [{ "fixed": {} }] }));
    let event = id(&events(&world, id(&advisory))[0]).to_owned();
    let by_id = json!({ "id": id(&advisory) });
    assert_eq!(world.call("Advisories.Delete", by_id.clone()).unwrap(), json!({}));
    assert!(world.get("Advisory", id(&advisory)).unwrap()["deleteTime"].is_string(), "version 2 shows it by its uid");
    assert_eq!(items(&world.call("Advisories.List", by_id.clone()).unwrap()), [] as [Value; 0]);
    assert_eq!(events(&world, id(&advisory)), [] as [Value; 0]);
    let missing = |result: Result<Value>| assert_eq!(result.unwrap_err().code(), Code::NotFound);
    missing(world.call("Advisories.Delete", by_id.clone()));
    missing(world.call("Advisories.Update", json!({ "id": id(&advisory), "artifactName": "openssl" })));
    missing(add(&world, &advisory, json!({ "fixed": {} })));
    missing(world.call("Advisories.UpdateAdvisoryEvent", json!({ "id": event, "status": "PENDING", "fixed": {} })));
    let unknown = format!("{}/0123456789abcdef", world.org);
    missing(world.call("Advisories.Delete", json!({ "id": unknown })));
    missing(world.call("Advisories.UpdateAdvisoryEvent", json!({ "id": world.org, "status": "PENDING", "fixed": {} })));
    let nowhere = json!({ "parentId": unknown, "advisory": { "artifactName": "a" } });
    missing(world.call("Advisories.Create", nowhere));
    assert_eq!(events(&world, &unknown), [] as [Value; 0]);
}

#[test]
fn violations_name_the_fields_of_the_request() {
    let world = world();
    let created = create(&world, "openssl", json!({ "events": [{ "fixed": {} }] }));
    let event = id(&events(&world, id(&created))[0]).to_owned();
    let advisory = |advisory: Value| json!({ "parentId": world.org, "advisory": advisory });
    let event_of = |event: Value| json!({ "parentId": id(&created), "advisoryEvent": event });
    let deep = format!("{}{}", world.org, "/0123456789abcdef".repeat(30));
    let (create, add, update) = ("Create", "CreateAdvisoryEvent", "UpdateAdvisoryEvent");
    let one_type = "must be exactly one type of event";
    let cases = [
        (create, json!({ "advisory": { "artifactName": "a" } }), "parentId", "is required"),
        (create, json!({ "parentId": "x" }), "parentId", "must be a uid"),
        (create, json!({ "parentId": deep, "advisory": { "artifactName": "a" } }), "parentId", "must lie less than 31"),
        (create, json!({ "parentId": world.org }), "advisory.artifactName", "is required"),
        (create, json!({ "parentId": world.org, "advisory": 1 }), "advisory", "must be an object"),
        (create, advisory(json!({ "artifact": "a" })), "advisory.artifact", "unknown field"),
        (create, advisory(json!({ "artifactName": 1 })), "advisory.artifactName", "must be a string"),
        (create, advisory(json!({ "artifactName": "a", "events": [{}] })), "advisory.events[0].type", one_type),
        (
            create,
            advisory(json!({ "artifactName": "a", "events": [{ "fixed": {}, "status": "DONE" }] })),
            "advisory.events[0].status",
            "must be one of UNKNOWN, PENDING",
        ),
        ("Update", json!({ "artifactName": "a" }), "id", "is required"),
        ("Update", json!({ "id": id(&created), "aliases": "a" }), "aliases", "must be an array"),
        ("Delete", json!({}), "id", "is required"),
        ("Delete", json!({ "id": "x" }), "id", "must be a uid"),
        (add, event_of(json!({})), "advisoryEvent.type", one_type),
        (add, event_of(json!({ "fixed": {}, "patched": {} })), "advisoryEvent.patched", "cannot be set together with"),
        (add, event_of(json!({ "fixed": { "version": "1" } })), "advisoryEvent.fixed.version", "unknown field"),
        (
            add,
            event_of(json!({ "detection": { "scanv1": { "subpackageName": 1 } } })),
            "advisoryEvent.detection.scanv1.subpackageName",
            "must be a string",
        ),
        (add, event_of(json!({ "fixed": {}, "findings": "?" })), "advisoryEvent.findings", "must be base64"),
        (update, json!({ "fixed": {} }), "id", "is required"),
        (update, json!({ "id": event, "fixed": {} }), "status", "is required"),
        (update, json!({ "id": event, "status": "PENDING" }), "type", one_type),
        ("ListAdvisoryEvents", json!({}), "parentId", "is required"),
        ("List", json!({ "id": "x" }), "id", "must be a uid"),
        ("List", json!({ "eventTypes": ["EVENT_TYPE_FILTER_UNSPECIFIED"] }), "eventTypes", "must not contain"),
        ("List", json!({ "eventStatuses": ["UNKNOWN"] }), "eventStatuses", "must not contain"),
        ("List", json!({ "orderBy": "NAME_ASC" }), "orderBy", "must be one of ORDER_BY_UNSPECIFIED"),
        (
            "List",
            json!({ "latestEventType": "EVENT_TYPE_FILTER_COMPONENT_LOCATION_CHANGED" }),
            "latestEventType",
            "is not supported by this installation",
        ),
    ];
    for (method, request, field, rule) in cases {
        let (found, description) = violation(world.call(&format!("Advisories.{method}"), request.clone()));
        assert!(found == field && description.starts_with(rule), "{method} {request}: {found}: {description}");
    }
}

#[test]
fn only_a_caller_who_may_approve_sets_the_result_of_a_review_which_is_final() {
    let world = world();
    let writer = world.holder(&world.org, &["advisories.create", "advisories.update"]);
    let approver = world.holder(&world.org, &["advisories.update", "advisories.approve"]);
    let advisory = create(&world, "openssl", json!({}));
    let event = |status: &str| json!({ "parentId": id(&advisory), "advisoryEvent": { "fixed": {}, "status": status } });
    let denied = |result: Result<Value>| assert_eq!(result.unwrap_err().code(), Code::PermissionDenied);
    for status in ["APPROVED", "REQUEST_CHANGES", "REJECTED"] {
        denied(world.call_as(&writer, "Advisories.CreateAdvisoryEvent", event(status)));
    }
    let approved = json!({ "artifactName": "a", "events": [{ "fixed": {}, "status": "APPROVED" }] });
    denied(world.call_as(&writer, "Advisories.Create", json!({ "parentId": world.org, "advisory": approved })));
    let added = world.call_as(&writer, "Advisories.CreateAdvisoryEvent", event("PENDING")).unwrap();
    let set = |caller: &Caller, status: &str, version: &str| {
        let sent = json!({ "id": id(&added), "status": status, "fixed": { "fixedVersion": version } });
        world.call_as(caller, "Advisories.UpdateAdvisoryEvent", sent)
    };
    denied(set(&writer, "APPROVED", "1"));
    let changed = set(&approver, "REQUEST_CHANGES", "1").unwrap();
    assert_eq!(
        (&changed["status"], &changed["reviewer"], &changed["author"], &changed["timestamp"]),
        (&json!("REQUEST_CHANGES"), &json!(*approver.identity), &json!(*writer.identity), &added["timestamp"])
    );
    assert_eq!(set(&writer, "PENDING", "2").unwrap()["status"], "PENDING", "the author asks for another review");
    let approved = set(&approver, "APPROVED", "2").unwrap();
    assert_eq!(world.get("Advisory", id(&advisory)).unwrap()["events"][0]["reviewState"], "REVIEW_STATE_APPROVED");
    assert_eq!(world.call("Advisories.UpdateAdvisoryEvent", approved.clone()).unwrap(), approved, "no change");
    for status in ["PENDING", "REJECTED"] {
        assert_eq!(set(&approver, status, "2").unwrap_err().code(), Code::FailedPrecondition);
    }
    assert_eq!(set(&world.operator, "APPROVED", "3").unwrap_err().code(), Code::FailedPrecondition);
}

#[test]
fn only_approvers_change_the_subject_of_an_approved_event() {
    let world = world();
    let writer = world.holder(&world.org, &["advisories.create", "advisories.update"]);
    for (status, code) in [("APPROVED", Some(Code::PermissionDenied)), ("PENDING", None)] {
        let more = json!({
            "aliases": ["CVE-1"], "artifactType": "apk", "artifactArchitecture": "x86_64",
            "events": [{ "falsePositiveDetermination": {}, "status": status }],
        });
        let advisory = create(&world, status, more);
        for (field, value) in [
            ("aliases", json!(["CVE-2"])),
            ("artifactArchitecture", "aarch64".into()),
            ("artifactType", "image".into()),
        ] {
            let mut sent = advisory.clone();
            sent[field] = value;
            let updated = world.call_as(&writer, "Advisories.Update", sent.clone());
            assert_eq!(updated.err().map(|error| error.code()), code, "{status} {field}");
            world.call("Advisories.Update", sent).unwrap();
            world.call("Advisories.Update", advisory.clone()).unwrap();
        }
        let mut sent = advisory.clone();
        sent["componentName"] = "libcrypto".into();
        world.call_as(&writer, "Advisories.Update", sent).unwrap();
    }
}

#[test]
fn only_approvers_name_the_reviewer_of_a_pending_event() {
    let world = world();
    let writer = world.holder(&world.org, &["advisories.create", "advisories.update"]);
    let advisory = create(&world, "openssl", json!({}));
    let event = json!({ "fixed": {}, "reviewer": "ada" });
    let request = json!({ "parentId": id(&advisory), "advisoryEvent": event });
    let added = world.call_as(&writer, "Advisories.CreateAdvisoryEvent", request).unwrap();
    assert_eq!(added["reviewer"], "");
    let sent = json!({ "id": id(&added), "status": "PENDING", "fixed": {}, "reviewer": "ada" });
    let updated = world.call_as(&writer, "Advisories.UpdateAdvisoryEvent", sent.clone()).unwrap();
    assert_eq!(updated["reviewer"], "");
    assert_eq!(world.call("Advisories.UpdateAdvisoryEvent", sent).unwrap()["reviewer"], "ada");
}

#[test]
fn events_that_are_added_at_once_are_all_kept() {
    let world = world();
    let advisory = create(&world, "openssl", json!({}));
    thread::scope(|scope| {
        for at in 0..8 {
            let (world, advisory) = (&world, &advisory);
            scope.spawn(move || add(world, advisory, json!({ "fixed": { "note": format!("{at}") } })).unwrap());
        }
    });
    let events = events(&world, id(&advisory));
    let notes: BTreeSet<_> = events.iter().map(|event| event["fixed"]["note"].as_str().unwrap().to_owned()).collect();
    assert_eq!(notes.len(), 8);
}

#[test]
fn an_advisory_has_at_most_1000_events() {
    let world = world();
    let events = vec![AdvisoryEvent { fixed: Some(Default::default()), ..AdvisoryEvent::default() }; 999];
    let imported =
        Advisory { advisory_id: "CGA-1".to_owned(), artifact_name: "curl".to_owned(), events, ..Advisory::default() };
    block_on(world.platform.put(&world.operator, &world.org, [imported])).unwrap();
    let listed = world.call("Advisories.List", json!({})).unwrap();
    let advisory = &items(&listed)[0];
    add(&world, advisory, json!({ "fixed": {} })).unwrap();
    let full = add(&world, advisory, json!({ "fixed": {} })).unwrap_err();
    assert_eq!(full.code(), Code::FailedPrecondition);
    assert!(full.message().contains("at most 1000 events"), "{full}");
    let all = json!({ "artifactName": "a", "events": vec![json!({ "fixed": {} }); 1001] });
    let (field, _) = violation(world.call("Advisories.Create", json!({ "parentId": world.org, "advisory": all })));
    assert_eq!(field, "advisory.events");
}

#[test]
fn each_filter_selects_its_matches() {
    let world = world();
    let group = world.group("folder");
    let event = |name: &str, author: &str, status: &str| json!({ name: {}, "author": author, "reviewer": format!("{author} too"), "status": status });
    let first = json!({
        "artifactType": "apk", "artifactArchitecture": "x86_64", "componentName": "libcrypto", "componentType": "so",
        "componentLocation": "/usr/lib", "aliases": ["CVE-1", "GHSA-1"],
        "events": [event("fixed", "ada", "APPROVED")],
    });
    let first = create(&world, "openssl", first);
    let second = json!({ "artifactName": "curl", "aliases": ["CVE-2"], "events": [event("detection", "bot", "PENDING"), event("componentLocationChanged", "bot", "APPROVED")] });
    let second = world.call("Advisories.Create", json!({ "parentId": group, "advisory": second })).unwrap();
    let legacy = Advisory {
        advisory_id: "CGA-3".to_owned(),
        artifact_name: "libssl3".to_owned(),
        legacy_advisory_id: "OLD-3".to_owned(),
        origin: "openssl".to_owned(),
        ..Advisory::default()
    };
    block_on(world.platform.put(&world.operator, &world.org, [legacy])).unwrap();
    let names = |filter: Value| {
        let reply = world.call("Advisories.List", filter).unwrap();
        let mut names: Vec<_> =
            items(&reply).iter().map(|one| one["artifactName"].as_str().unwrap().to_owned()).collect();
        assert_eq!(reply["totalCount"], names.len().to_string());
        names.sort();
        names.join(" ")
    };
    let cases = [
        (json!({}), "curl libssl3 openssl"),
        (json!({ "advisoryIds": [first["advisoryId"], second["advisoryId"]] }), "curl openssl"),
        (json!({ "legacyAdvisoryIds": ["OLD-3"] }), "libssl3"),
        (json!({ "id": first["id"] }), "openssl"),
        (json!({ "id": format!("{group}/0123456789abcdef") }), ""),
        (json!({ "uidp": { "childrenOf": group } }), "curl"),
        (json!({ "artifactType": ["apk"] }), "openssl"),
        (json!({ "artifactName": ["curl", "openssl"] }), "curl openssl"),
        (json!({ "componentName": ["libcrypto"] }), "openssl"),
        (json!({ "componentType": ["so"] }), "openssl"),
        (json!({ "componentLocation": ["/usr/lib"] }), "openssl"),
        (json!({ "aliases": ["CVE-2", "GHSA-1"] }), "curl openssl"),
        (json!({ "artifactArchitecture": ["x86_64"] }), "openssl"),
        (json!({ "eventStatuses": ["PENDING"] }), "curl"),
        (json!({ "eventAuthor": ["ada"] }), "openssl"),
        (json!({ "eventReviewer": ["bot too"] }), "curl"),
        (json!({ "eventTypes": ["EVENT_TYPE_FILTER_FIXED"] }), "openssl"),
        (json!({ "eventTypes": ["EVENT_TYPE_FILTER_COMPONENT_LOCATION_CHANGED"] }), "curl"),
        (json!({ "eventTypes": ["EVENT_TYPE_FILTER_FIXED", "EVENT_TYPE_FILTER_DETECTION"] }), "curl openssl"),
        (json!({ "excludeEventAuthor": ["ada"] }), "curl libssl3"),
        (json!({ "latestEventType": "EVENT_TYPE_FILTER_FIXED" }), "openssl"),
        (json!({ "latestEventType": "EVENT_TYPE_FILTER_DETECTION" }), ""),
        (json!({ "origin": "openssl" }), "libssl3 openssl"),
        (json!({ "eventAuthor": ["ada"], "artifactName": ["curl"] }), ""),
    ];
    for (filter, expected) in cases {
        assert_eq!(names(filter.clone()), expected, "{filter}");
    }
}

#[test]
fn lists_have_each_order_and_pages() {
    let world = world();
    let [a, b, c] = [("b", "CVE-3"), ("c", "CVE-1"), ("a", "CVE-2")]
        .map(|(package, alias)| create(&world, package, json!({ "aliases": [alias] })));
    world
        .call(
            "Advisories.Update",
            json!({ "id": id(&b), "artifactName": "c", "aliases": ["CVE-1"], "artifactType": "apk" }),
        )
        .unwrap();
    let mut by_id = [&a, &b, &c].map(id);
    by_id.sort_unstable();
    let listed = |order: &str, size: i64, token: &str| {
        let request = json!({ "orderBy": order, "pageSize": size, "pageToken": token });
        let reply = world.call("Advisories.List", request).unwrap();
        let ids: Vec<_> = items(&reply).iter().map(|one| id(one).to_owned()).collect();
        (ids, reply["nextPageToken"].as_str().unwrap().to_owned())
    };
    let reversed = |ids: [&str; 3]| Vec::from_iter(ids.into_iter().rev().map(str::to_owned));
    let orders = [
        ("ORDER_BY_UNSPECIFIED", by_id),
        ("ID_ASC", by_id),
        ("CREATED_AT_ASC", [id(&a), id(&b), id(&c)]),
        ("UPDATED_AT_ASC", [id(&a), id(&c), id(&b)]),
        ("ALIASES_ASC", [id(&b), id(&c), id(&a)]),
        ("DELETED_AT_ASC", by_id),
        ("DELETED_AT_DESC", by_id),
    ];
    for (order, expected) in orders {
        assert_eq!(listed(order, 10, "").0, expected, "{order}");
        if let Some(order) = order.strip_suffix("_ASC").filter(|order| *order != "DELETED_AT") {
            assert_eq!(listed(&format!("{order}_DESC"), 10, "").0, reversed(expected), "{order}");
        }
    }
    let (first, token) = listed("ALIASES_ASC", 2, "");
    let (second, end) = listed("ALIASES_ASC", 2, &token);
    assert_eq!(([first, second].concat(), end.as_str()), (orders[4].1.map(str::to_owned).to_vec(), ""));
    let other = json!({ "orderBy": "ALIASES_ASC", "pageToken": token, "eventTypes": ["EVENT_TYPE_FILTER_FIXED"] });
    assert_eq!(violation(world.call("Advisories.List", other)).0, "page_token", "a token is for one list");
}

#[test]
fn each_method_requires_its_capability_at_the_advisory() {
    let world = world();
    let advisory = create(&world, "openssl", json!({ "events": [{ "fixed": {} }] }));
    let event = id(&events(&world, id(&advisory))[0]).to_owned();
    let unknown = format!("{}/0123456789abcdef", world.org);
    let all = ["advisories.create", "advisories.update", "advisories.delete", "advisories.list"];
    let requests = |uid: &str| {
        [
            ("Create", all[0], json!({ "parentId": world.org, "advisory": { "artifactName": "a" } })),
            ("CreateAdvisoryEvent", all[0], json!({ "parentId": uid, "advisoryEvent": { "fixed": {} } })),
            ("Update", all[1], json!({ "id": uid, "artifactName": "openssl" })),
            ("UpdateAdvisoryEvent", all[1], json!({ "id": event, "fixed": {}, "status": "PENDING" })),
            ("ListAdvisoryEvents", all[3], json!({ "parentId": uid })),
            ("Delete", all[2], json!({ "id": uid })),
        ]
    };
    let others =
        all.map(|one| world.holder(&world.org, &all.into_iter().filter(|other| *other != one).collect::<Vec<_>>()));
    for (known, missing) in requests(id(&advisory)).into_iter().zip(requests(&unknown)) {
        let (method, capability, request) = known;
        let method = format!("Advisories.{method}");
        let without = &others[all.iter().position(|one| *one == capability).unwrap()];
        let denied = world.call_as(without, &method, request.clone()).unwrap_err();
        let same = world.call_as(without, &method, missing.2).unwrap_err();
        assert_eq!((denied.code(), denied.to_string()), (Code::PermissionDenied, same.to_string()), "{method}");
        let with = world.holder(&world.org, &[capability]);
        world.call_as(&with, &method, request).unwrap();
    }
    let nobody = world.holder(&world.org, &[]);
    assert_eq!(items(&world.call_as(&nobody, "Advisories.List", json!({})).unwrap()), [] as [Value; 0]);
}

#[test]
fn an_advisory_and_its_events_count_by_the_severity_of_the_vulnerability() {
    let world = world();
    world.new_metadata("CVE-2026-1", &[], super::scenes::HIGH);
    let today = || {
        let service = world.platform.registered().iter().find(|one| one.kind.name == "AdvisoryTrend").unwrap();
        let request = json!({ "uid": world.org, "days": 1 });
        let request = request.as_object().unwrap();
        let caller = Some(&world.operator);
        let reply = block_on(world.platform.run(caller, service.kind, &service.actions[0], request)).unwrap();
        ["open", "high", "unrated"].map(|name| reply["days"][0][name].as_i64().unwrap())
    };
    let rated = create(&world, "openssl", json!({ "aliases": ["CVE-2026-1"] }));
    let other = create(&world, "openssl", json!({}));
    for advisory in [&rated, &other] {
        add(&world, advisory, json!({ "detection": {}, "status": "APPROVED" })).unwrap();
    }
    assert_eq!(today(), [2, 1, 1]);
    let mut replaced = other.clone();
    replaced["aliases"] = json!(["CVE-2026-1"]);
    ["createdAt", "updatedAt", "events"].iter().for_each(|name| drop(replaced.as_object_mut().unwrap().remove(*name)));
    world.call("Advisories.Update", replaced).unwrap();
    assert_eq!(today(), [2, 2, 0]);
}

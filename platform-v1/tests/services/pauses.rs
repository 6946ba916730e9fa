//! Long work pauses, so that its thread can answer other requests.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use platform_core::resources::{advisory::PublicAdvisories, vulnerabilities::Advisory};
use platform_engine::{
    BoxFuture,
    kind::Run,
    offload::{Inline, Offload, SLICE, Work},
};

use super::*;

/// Counts the pauses.
#[derive(Debug, Clone, Default)]
struct Pauses(Arc<AtomicUsize>);

impl Offload for Pauses {
    fn run<'a>(&'a self, share: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
        Inline.run(share, work)
    }

    fn pause(&self) -> BoxFuture<'static, ()> {
        self.0.fetch_add(1, Relaxed);
        Inline.pause()
    }
}

impl Pauses {
    /// Checks that there was a pause for each slice since the last check.
    fn check(&self, what: &str, bytes: usize) {
        let pauses = self.0.swap(0, Relaxed);
        assert!(bytes > 4 * SLICE, "{what}: {bytes} bytes say nothing");
        assert!(pauses >= bytes / SLICE, "{what}: {pauses} pauses for {bytes} bytes");
    }
}

#[test]
fn lists_of_version_1_pause_after_each_slice() {
    let pauses = Pauses::default();
    let world = World::with(|builder| builder.offload(pauses.clone()));
    let mut repo = String::new();
    for number in 0..200 {
        let name = format!("r{number}");
        let sent = json!({ "name": name, "description": "d".repeat(500), "readme": "r".repeat(900) });
        let created = world.call("Registry.CreateRepo", json!({ "parentId": world.org, "repo": sent })).unwrap();
        created["id"].as_str().unwrap().clone_into(&mut repo);
        let group = json!({ "parent": world.org, "group": { "name": name, "description": "d".repeat(500) } });
        world.call("Groups.Create", group).unwrap();
    }
    for number in 0..200 {
        let tag = json!({ "name": format!("{}{number}", "t".repeat(100)), "digest": format!("sha256:{number:064x}") });
        world.call("Registry.CreateTag", json!({ "repoId": repo, "tag": tag })).unwrap();
    }
    for (method, request) in [
        ("Registry.ListRepos", json!({})),
        ("Groups.List", json!({})),
        ("Registry.ListTags", json!({ "uidp": { "childrenOf": repo } })),
    ] {
        pauses.0.store(0, Relaxed);
        pauses.check(method, world.call(method, request).unwrap().to_string().len());
    }
    // A page of a transport.
    let service = platform_v1::services::SERVICES.iter().find(|one| one.kind.service == "Registry").unwrap();
    let action = service.actions.iter().find(|action| action.name == "ListRepos").unwrap();
    assert!(matches!(action.run, Run::Pages(_)));
    let request = Default::default();
    let page = block_on(world.platform.run_page(Some(&world.operator), service.kind, action, &request, "")).unwrap();
    pauses.check("a page", page.items.iter().map(|item| item.len()).sum());
    let slices: Vec<_> = page.slices().map(|items| items.iter().map(|item| item.len()).sum::<usize>()).collect();
    let longest = page.items.iter().map(|item| item.len()).max().unwrap();
    assert!(slices.iter().all(|bytes| *bytes < SLICE + longest), "{slices:?}");
    assert_eq!(page.slices().map(<[_]>::len).sum::<usize>(), page.items.len());
}

#[test]
fn pages_of_version_1_pause_in_each_conversion_and_when_they_are_encoded() {
    let pauses = Pauses::default();
    let world = World::with(|builder| builder.offload(pauses.clone()));
    let event = json!({
        "createTime": "2025-01-01T00:00:00Z", "reviewState": "REVIEW_STATE_APPROVED",
        "truePositiveDetermination": { "note": "a".repeat(900) },
    });
    let advisory = |number: usize| {
        let advisory = json!({
            "advisoryId": format!("CGA-{number}"), "artifactName": "nginx", "artifactType": "apk",
            "events": vec![event.clone(); 12],
        });
        serde_json::from_value::<Advisory>(advisory).unwrap()
    };
    let organization = Uid::opaque(world.org.as_str());
    block_on(world.platform.put(&world.operator, &organization, (0..100).map(advisory))).unwrap();
    pauses.0.store(0, Relaxed);
    let page = world.call("Advisories.List", json!({ "pageSize": 100 })).unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 100);
    // The resources are read and converted, read again with the events that only version 1 has, and encoded.
    pauses.check("a page of advisories", 3 * page.to_string().len());
}

#[test]
fn documents_pause_when_they_are_made_and_when_they_are_selected() {
    let pauses = Pauses::default();
    let organization = Uid::from_digest([0xaa; 20]);
    let world =
        World::with(|builder| builder.offload(pauses.clone()).data(PublicAdvisories::of([organization.clone()])));
    let event = json!({
        "createTime": "2025-01-01T00:00:00Z", "reviewState": "REVIEW_STATE_APPROVED",
        "truePositiveDetermination": { "note": "a".repeat(900) },
    });
    let advisory = |number: usize| {
        let advisory = json!({
            "advisoryId": format!("CGA-{number}"), "artifactName": "nginx", "artifactType": "apk",
            "packageNamespace": "wolfi", "aliases": [format!("CVE-{number}")], "events": vec![event.clone(); 12],
        });
        serde_json::from_value::<Advisory>(advisory).unwrap()
    };
    block_on(world.platform.put(&world.operator, &organization, (0..300).map(advisory))).unwrap();
    let kind = world.platform.registered().iter().find(|one| one.kind.name == "Document").unwrap();
    let list = |request: Value| {
        let request = request.as_object().unwrap();
        block_on(world.platform.run(None, kind.kind, &kind.actions[0], request)).unwrap().to_string().len()
    };
    pauses.0.store(0, Relaxed);
    let all = list(json!({}));
    pauses.check("all documents", all);
    let cves: Vec<_> = (0..300).map(|number| format!("CVE-{number}")).collect();
    assert_eq!(list(json!({ "cves": cves })), all);
    // To copy and to hash a part takes a fraction of the time that it takes to make it.
    pauses.check("selected documents", all / 16);
    assert_eq!(list(json!({})), all);
    assert_eq!(pauses.0.load(Relaxed), 0, "the documents are cached");
    // Version 1 shows them in another form, which is cached too.
    let call = |request: Value| world.call("SecurityAdvisory.ListDocuments", request).unwrap().to_string().len();
    let all = call(json!({}));
    pauses.check("all documents of version 1", all);
    assert_eq!(call(json!({ "cves": cves })), all);
    pauses.check("selected documents of version 1", all / 16);
    assert_eq!(call(json!({})), all);
    assert_eq!(pauses.0.load(Relaxed), 0, "the documents are cached");
}

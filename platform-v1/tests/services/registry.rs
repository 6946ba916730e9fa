//! Repos, tags, deployments, settings and statuses.

use platform_core::resources::registry::{Repo, Tag};
use platform_v1::resources::{SyncStatus, sync_status::SyncState};

use super::*;

fn digest(n: u8) -> String {
    format!("sha256:{}", format!("{n:02x}").repeat(32))
}

impl World {
    pub(crate) fn repo(&self, name: &str) -> String {
        let created = self.call("Registry.CreateRepo", json!({ "parentId": self.org, "repo": { "name": name } }));
        created.unwrap()["id"].as_str().unwrap().to_owned()
    }

    fn tag(&self, repo: &str, tag: Value) -> Value {
        self.call("Registry.CreateTag", json!({ "repoId": repo, "tag": tag })).unwrap()
    }
}

#[test]
fn a_repo_has_its_readme_and_the_names_of_version_1() {
    let world = World::new();
    let sent = json!({
        "name": "nginx", "catalogTier": "FIPS", "bundles": ["application"], "readme": "# nginx\n\nA web server.",
        "aliases": ["web/nginx:latest"], "activeTags": ["1.29"], "description": "A web server",
        "customOverlay": {
            "contents": { "packages": ["curl"] },
            "accounts": { "users": [{ "userName": "web", "uid": 5, "gid": 6 }], "groups": [{ "groupName": "web" }] },
        },
    });
    let repo = world.call("Registry.CreateRepo", json!({ "parentId": world.org, "repo": sent })).unwrap();
    let id = repo["id"].as_str().unwrap();
    assert_eq!((&repo["catalogTier"], &repo["readme"]), (&json!("FIPS"), &sent["readme"]));
    assert_eq!(repo["sync_config"], Value::Null);
    assert_eq!(repo["customOverlay"]["accounts"]["users"][0]["userName"], "web");
    assert_eq!(repo["customOverlay"]["accounts"]["groups"][0]["groupName"], "web");
    let stored = block_on(world.platform.get::<Repo>(&world.operator, id)).unwrap();
    assert_eq!(json!(stored.catalog_tier), "CATALOG_TIER_FIPS");
    let listed = world.call("Registry.ListRepos", json!({ "id": id })).unwrap();
    assert_eq!(items(&listed)[0], repo);
    let replaced = world.call("Registry.UpdateRepo", json!({ "id": id, "name": "nginx" })).unwrap();
    for (field, empty) in [("readme", json!("")), ("catalogTier", json!("UNKNOWN")), ("customOverlay", Value::Null)] {
        assert_eq!(replaced[field], empty, "{field}");
    }
    let above = json!({ "uidp": { "childrenOf": world.org }, "name": "nginx" });
    assert_eq!(items(&world.call("Registry.ListRepos", above).unwrap()).len(), 1);
    assert_eq!(world.call("Registry.DeleteRepo", json!({ "id": id })).unwrap(), json!({}));
    assert_eq!(world.call("Registry.DeleteRepo", json!({ "id": id })).unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_create_replaces_a_repo_of_the_same_name_unless_that_is_prevented() {
    let world = World::new();
    let id = world.repo("nginx");
    let create = |repo: Value, prevent: bool| {
        world.call("Registry.CreateRepo", json!({ "parentId": world.org, "repo": repo, "preventExisting": prevent }))
    };
    let again = create(json!({ "name": "nginx", "description": "d", "readme": "text" }), false).unwrap();
    assert_eq!((&again["id"], &again["description"]), (&json!(id), &json!("d")));
    // Only the readme differs.
    let again = create(json!({ "name": "nginx", "description": "d", "readme": "other" }), false).unwrap();
    assert_eq!(again["readme"], "other");
    assert_eq!(create(json!({ "name": "nginx" }), true).unwrap_err().code(), Code::AlreadyExists);
    let creator = world.holder(&world.org, &["repo.create"]);
    let request = |name: &str| json!({ "parentId": world.org, "repo": { "name": name } });
    let refused = world.call_as(&creator, "Registry.CreateRepo", request("nginx")).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "replacing requires what an update requires");
    assert!(world.call_as(&creator, "Registry.CreateRepo", request("new")).is_ok());
    assert!(create(json!({ "name": "other" }), true).is_ok());
}

#[test]
fn violations_of_a_repo_name_its_fields_of_version_1() {
    let world = World::new();
    let create = |repo: Value| world.call("Registry.CreateRepo", json!({ "parentId": world.org, "repo": repo }));
    assert_eq!(violation(create(json!({ "name": "a", "readme": "<script>x</script>" }))).0, "readme");
    assert_eq!(violation(create(json!({ "name": "a", "readme": 7 }))).0, "readme");
    assert_eq!(violation(create(json!({ "name": "a", "sync_config": { "source": "none" } }))).0, "sync_config.source");
    assert_eq!(violation(create(json!({ "name": "a", "catalogTier": "GOLD" }))).0, "catalogTier");
    let user = json!({ "accounts": { "users": [{ "userName": "" }] } });
    assert_eq!(
        violation(create(json!({ "name": "a", "customOverlay": user }))).0,
        "customOverlay.accounts.users[0].userName"
    );
    assert_eq!(items(&world.call("Registry.ListRepos", json!({ "name": "a" })).unwrap()), [] as [Value; 0]);
}

#[test]
fn a_caller_of_version_1_sets_when_a_repo_stops_following() {
    let world = World::new();
    let source = world.repo("source");
    world
        .call("Registry.UpdateRepo", json!({ "id": source, "name": "source", "catalogTier": "BASE", "readme": "text" }))
        .unwrap();
    let follow = |config: Value| {
        let repo = json!({ "name": "follower", "sync_config": config });
        world.call("Registry.CreateRepo", json!({ "parentId": world.org, "repo": repo }))
    };
    let created =
        follow(json!({ "source": source, "expiration": "1970-12-12T00:00:00Z", "gracePeriod": true })).unwrap();
    let config = &created["sync_config"];
    assert_eq!((&config["expiration"], &config["gracePeriod"]), (&json!("1970-12-12T00:00:00.000Z"), &json!(true)));
    // The values of the follower itself: only version 2 shows the inherited ones.
    assert_eq!((&created["catalogTier"], &created["readme"]), (&json!("UNKNOWN"), &json!("")));
    let id = created["id"].as_str().unwrap();
    let own = json!({ "id": id, "name": "follower", "catalogTier": "FIPS", "readme": "own", "sync_config": config });
    let own = world.call("Registry.UpdateRepo", own).unwrap();
    assert_eq!((&own["catalogTier"], &own["readme"]), (&json!("FIPS"), &json!("own")));
    let shown = block_on(world.platform.get::<Repo>(&world.operator, id)).unwrap();
    assert_eq!(json!(shown.catalog_tier), "CATALOG_TIER_BASE");
    assert_eq!(shown.sync_config.unwrap().expiration_time.unwrap().to_string(), "1970-12-12T00:00:00.000Z");
    let update = |config: Value| {
        world.call("Registry.UpdateRepo", json!({ "id": id, "name": "follower", "sync_config": config }))
    };
    let kept = update(json!({ "source": source, "expiration": "1970-12-12T00:00:00Z", "apkoOverlay": "o" })).unwrap();
    assert_eq!(
        (&kept["sync_config"]["expiration"], &kept["sync_config"]["apkoOverlay"]),
        (&config["expiration"], &json!("o"))
    );
    assert_eq!(kept["sync_config"]["gracePeriod"], false, "a PUT resets what it leaves out");
    let renewed = update(json!({ "source": source })).unwrap();
    assert!(renewed["sync_config"]["expiration"].as_str().unwrap().starts_with("1970-01-15T"), "14 days by default");
    for (expiration, rule) in
        [("1971-12-12T00:00:00Z", "must be at most 365 days ahead"), ("1969-12-12T00:00:00Z", "must be in the future")]
    {
        let refused = update(json!({ "source": source, "expiration": expiration }));
        assert_eq!(violation(refused), ("sync_config.expiration".to_owned(), rule.to_owned()));
    }
    let count = |id: &str| world.call("Registry.GetRepoCountBySource", json!({ "id": id })).unwrap()["count"].clone();
    assert_eq!((count(&source), count(&world.org), count(id)), (json!("1"), json!("1"), json!("0")));
    let ended = world.call("Registry.UpdateRepo", json!({ "id": id, "name": "follower" })).unwrap();
    assert_eq!(ended["sync_config"], Value::Null);
    assert_eq!(count(&source), "0");
}

#[test]
fn version_2_still_ignores_what_version_1_sets() {
    let world = World::new();
    let source = world.repo("source");
    let registered = world.platform.registered().iter().find(|one| one.kind.name == "Repo").unwrap();
    let config = json!({ "source": source, "expirationTime": "1970-12-12T00:00:00Z", "gracePeriod": true });
    let body = json!({ "name": "follower", "syncConfig": config });
    let parent = world.org.as_str();
    let repo = world.platform.create_erased(
        &world.operator,
        registered,
        parent,
        body.as_object().unwrap(),
        RequestOptions::none(),
    );
    let repo: Value = serde_json::from_slice(&block_on(repo).unwrap().body).unwrap();
    assert!(repo["syncConfig"]["expirationTime"].as_str().unwrap().starts_with("1970-01-15T"), "{repo}");
    assert_ne!(repo["syncConfig"]["gracePeriod"], true, "{repo}");
}

#[test]
fn a_tag_is_created_without_a_digest_and_keeps_the_one_it_has() {
    let world = World::new();
    let repo = world.repo("nginx");
    let tag = world.tag(&repo, json!({ "name": "latest", "bundles": ["base"] }));
    assert_eq!((&tag["digest"], &tag["bundles"]), (&json!(""), &json!(["base"])));
    let id = tag["id"].as_str().unwrap();
    let shown = world.platform.registered().iter().find(|one| one.kind.name == "Tag").unwrap();
    let shown = block_on(world.platform.get_erased(&world.operator, shown, id, RequestOptions::none())).unwrap();
    assert!(String::from_utf8_lossy(&shown.body).contains(r#""digest":"""#), "version 2 shows it empty");
    let create = Tag { name: "other".to_owned(), ..Tag::default() };
    let refused = block_on(world.platform.create(&world.operator, &Uid::parse(&repo).unwrap(), &create)).unwrap_err();
    assert_eq!(refused.violations()[0].field, "digest", "version 2 requires it");
    let moved = world.tag(&repo, json!({ "name": "latest", "digest": digest(1) }));
    assert_eq!((&moved["id"], &moved["digest"]), (&json!(id), &json!(digest(1))), "a create moves a tag");
    let kept = world.tag(&repo, json!({ "name": "latest", "deprecated": true }));
    assert_eq!((&kept["digest"], &kept["deprecated"]), (&json!(digest(1)), &json!(true)));
    let updated = world.call("Registry.UpdateTag", json!({ "id": id, "name": "stable", "deprecated": true })).unwrap();
    assert_eq!((&updated["digest"], &updated["bundles"]), (&json!(digest(1)), &json!([])));
    assert_eq!((&updated["id"], &updated["name"]), (&json!(id), &json!("stable")), "a renamed tag keeps its id");
    world.tag(&repo, json!({ "name": "latest" }));
    let taken = world.call("Registry.UpdateTag", json!({ "id": id, "name": "latest" })).unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    let bad = world.call("Registry.UpdateTag", json!({ "id": id, "name": "stable", "digest": "sha256:x" }));
    assert_eq!(violation(bad).0, "digest");
    assert_eq!(world.call("Registry.DeleteTag", json!({ "id": id })).unwrap(), json!({}));
    assert_eq!(world.call("Registry.DeleteTag", json!({ "id": id })).unwrap_err().code(), Code::NotFound);
    assert_eq!(items(&world.call("Registry.ListTags", json!({ "id": id })).unwrap()), [] as [Value; 0]);
}

#[test]
fn lists_of_tags_include_all_families_that_they_do_not_exclude() {
    let world = World::new();
    let repo = world.repo("nginx");
    for name in ["latest", "sha256-abc.sig", "1-20260102", "1-r3"] {
        world.tag(&repo, json!({ "name": name, "digest": digest(1) }));
    }
    let list = |exclude: &str| {
        let filter = json!({ "uidp": { "childrenOf": repo }, exclude: true });
        let reply = world.call("Registry.ListTags", filter).unwrap();
        let mut names: Vec<_> = items(&reply).iter().map(|tag| tag["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(list("excludeDates"), ["1-r3", "latest", "sha256-abc.sig"]);
    assert_eq!(list("exclude_epochs"), ["1-20260102", "latest", "sha256-abc.sig"]);
    assert_eq!(list("excludeReferrers"), ["1-20260102", "1-r3", "latest"]);
    let by_digest = world.call("Registry.ListTags", json!({ "digest": digest(1), "name": "latest" })).unwrap();
    assert_eq!(items(&by_digest).len(), 1);
}

#[test]
fn the_history_of_a_tag_has_each_image_that_it_referred_to() {
    let world = World::new();
    let repo = world.repo("nginx");
    let tag = world.tag(&repo, json!({ "name": "latest", "digest": digest(1) }));
    world.tag(&repo, json!({ "name": "latest", "digest": digest(2) }));
    world.call("Registry.UpdateTag", json!({ "id": tag["id"], "name": "latest", "deprecated": true })).unwrap();
    let history = |mut filter: Value| {
        filter["parentId"] = tag["id"].clone();
        items(&world.call("Registry.ListTagHistory", filter).unwrap()).to_vec()
    };
    let all = history(json!({}));
    assert_eq!(all.iter().map(|one| &one["digest"]).collect::<Vec<_>>(), [&json!(digest(2)), &json!(digest(1))]);
    assert_eq!(history(json!({ "start": all[0]["updateTimestamp"] })), all[..1], "the start is included");
    assert_eq!(history(json!({ "end": all[0]["updateTimestamp"] })), all[1..], "the end is not");
    assert_eq!(violation(world.call("Registry.ListTagHistory", json!({}))).0, "parentId");
    world.call("Registry.DeleteRepo", json!({ "id": repo })).unwrap();
    assert!(history(json!({})).is_empty());
}

#[test]
fn the_summary_of_a_repo_names_its_latest_tag_and_version() {
    let world = World::new();
    let repo = world.repo("nginx");
    let summary = |filter: Value| world.call("Registry.GetRepoTagsSummary", filter);
    let empty = summary(json!({ "repoId": repo })).unwrap();
    assert_eq!((&empty["tagCount"], empty.get("latestTag")), (&json!("0"), None));
    let updated =
        || world.call("Registry.GetUpdateStatus", json!({ "repoId": repo })).unwrap()["recentlyUpdated"].clone();
    assert_ne!(updated(), true);
    for (name, image) in [("latest", 1), ("1.29", 1), ("1.29.3", 1), ("1.29.3-r0", 1), ("1.28.9", 2)] {
        world.tag(&repo, json!({ "name": name, "digest": digest(image) }));
    }
    let all = summary(json!({ "repoId": repo, "excludeEpochs": true })).unwrap();
    assert_eq!((&all["tagCount"], &all["latestVersion"]), (&json!("4"), &json!("1.29.3")));
    assert_eq!(all["latestTag"]["name"], "latest");
    assert_eq!(updated(), true);
    let missing = json!({ "repoId": format!("{}/0000000000000000", world.org) });
    assert_eq!(summary(missing.clone()).unwrap_err().code(), Code::NotFound);
    assert_eq!(world.call("Registry.GetUpdateStatus", missing).unwrap_err().code(), Code::NotFound);
}

#[test]
fn the_latest_version_is_found_among_many_tags_of_the_same_image() {
    let world = World::new();
    let repo = world.repo("nginx");
    // Tags are in the order of their uids, which are random: not all versions are among the first of 450.
    for tag in 0..450 {
        world.tag(&repo, json!({ "name": format!("t{tag}"), "digest": digest(1) }));
    }
    world.tag(&repo, json!({ "name": "latest", "digest": digest(1) }));
    for version in ["1", "1.2", "1.2.3", "1.2.3.4", "1.2.3.4.5"] {
        world.tag(&repo, json!({ "name": version, "digest": digest(1) }));
        let summary = world.call("Registry.GetRepoTagsSummary", json!({ "repoId": repo })).unwrap();
        assert_eq!(summary["latestVersion"], version);
    }
}

#[test]
fn a_deployment_is_created_once_and_then_replaced() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.grant(&["registry.deployments.create", "registry.deployments.update"]);
    let get = || world.call("Registry.GetDeployment", json!({ "repoId": repo }));
    assert_eq!(get().unwrap(), json!({ "id": repo, "charts": [] }));
    let charts =
        json!([{ "repo": "https://charts.example.com", "chart": "web" }, { "repo": "oci://b", "source": "s" }]);
    let create = || world.call("Registry.CreateDeployment", json!({ "parentId": repo, "charts": charts }));
    assert_eq!(create().unwrap(), json!({ "id": repo, "charts": charts }));
    assert_eq!(create().unwrap_err().code(), Code::AlreadyExists);
    let update = |request: Value| world.call("Registry.UpdateDeployment", request);
    assert_eq!(update(json!({ "repoId": repo })).unwrap(), json!({ "id": repo, "charts": [] }));
    assert_eq!(get().unwrap(), json!({ "id": repo, "charts": [] }));
    let bad = update(json!({ "repoId": repo, "charts": [{ "chart": "web" }] }));
    assert_eq!(violation(bad), ("charts[0].repo".to_owned(), "is required".to_owned()));
    let other = format!("{}/0000000000000000", world.org);
    assert_eq!(world.call("Registry.GetDeployment", json!({ "repoId": other })).unwrap_err().code(), Code::NotFound);
}

#[test]
fn an_organization_has_registry_settings_from_the_start() {
    let world = World::new();
    world.grant(&["registry.settings.update"]);
    let get = |id: &str| world.call("Registry.GetRegistrySettings", json!({ "registryId": id }));
    assert_eq!(
        get(&world.org).unwrap(),
        json!({ "registryId": world.org, "uniqueTags": false, "eolGracePeriod": false })
    );
    let update =
        |id: &str| world.call("Registry.UpdateRegistrySettings", json!({ "registryId": id, "uniqueTags": true }));
    assert_eq!(update(&world.org).unwrap()["uniqueTags"], true);
    assert_eq!(get(&world.org).unwrap()["uniqueTags"], true);
    let source = world.repo("source");
    let repo = json!({ "name": "follower", "sync_config": { "source": source } });
    let repo = world.call("Registry.CreateRepo", json!({ "parentId": world.org, "repo": repo })).unwrap();
    assert_eq!(repo["sync_config"]["uniqueTags"], true);
    let folder = world.call("Groups.Create", json!({ "parent": world.org, "group": { "name": "a" } })).unwrap();
    let refused = update(folder["id"].as_str().unwrap());
    assert_eq!(violation(refused).0, "registryId");
}

#[test]
fn the_status_of_a_copy_is_unknown_until_one_is_imported() {
    let world = World::new();
    let repo = world.repo("nginx");
    let get = || world.call("Registry.GetSyncStatus", json!({ "repoId": repo })).unwrap();
    assert_eq!(get(), json!({ "status": "UNKNOWN", "createTime": null }));
    let list = || world.call("Registry.ListSyncStatuses", json!({ "registryId": world.org })).unwrap();
    assert!(items(&list()).is_empty());
    let status = SyncStatus { state: SyncState::Failed, request_time: Some(Timestamp::EPOCH), ..SyncStatus::default() };
    block_on(world.platform.put(&world.operator, &repo, [status])).unwrap();
    let shown = json!({ "status": "FAILED", "createTime": "1970-01-01T00:00:00.000Z" });
    assert_eq!(get(), shown);
    assert_eq!(items(&list()), [json!({ "repoId": repo, "repoStatus": shown })]);
}

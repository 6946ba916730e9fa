//! Build reports, and builds, which are not supported.

use platform_v1::resources::BuildReport;

use super::{scenes::digest, *};

/// Imports reports of builds: two of a repo, one of which failed, and two of another that failed.
fn scene() -> (World, [Uid; 2], Vec<Uid>) {
    let world = World::new();
    let repos = [world.new_repo(&world.org, "one"), world.new_repo(&world.folder(&world.org, "folder"), "other")];
    let build = |repo: usize, id: &str, day: u32, result: &str| {
        let start = format!("1969-06-{day:02}T00:00:00Z");
        let report = json!({ "buildId": id, "startTime": start, "result": format!("RESULT_{result}"), "log": "a\nb" });
        world.import::<BuildReport>(&repos[repo], report)
    };
    let builds = vec![
        build(0, "1", 1, "SUCCESS"),
        build(0, "2", 4, "FAILURE"),
        build(1, "3", 2, "FAILURE"),
        build(1, "4", 3, "FAILURE"),
    ];
    (world, repos, builds)
}

#[test]
fn a_build_report_has_the_names_of_version_1() {
    let world = World::new();
    let repo = world.new_repo(&world.org, "nginx");
    let id = world.import::<BuildReport>(
        &repo,
        json!({
            "buildId": "42", "mediaType": "m", "config": "{}", "lockedConfig": "{\"a\":1}", "result": "RESULT_FAILURE",
            "warnings": ["w"], "log": "l\n", "digest": digest('a'), "builderVersion": "0.30.0",
            "startTime": "1969-01-01T00:00:00Z", "completeTime": "1969-01-01T00:01:00Z",
        }),
    );
    let report = json!({
        "id": id, "mediaType": "m", "config": "{}", "lockedConfig": "{\"a\":1}", "result": "Failure", "warnings": ["w"],
        "log": "l\n", "digest": digest('a'), "apkoVersion": "0.30.0", "startedAt": "1969-01-01T00:00:00.000Z",
        "completedAt": "1969-01-01T00:01:00.000Z",
    });
    let list = |request: Value| world.call("Registry.ListBuildReports", request).unwrap();
    assert_eq!(list(json!({ "uidp": { "descendantsOf": id } })), json!({ "reports": [report] }));
    assert_eq!(list(json!({ "excludeLogs": true }))["reports"][0]["log"], "");
    let minimal = world.import::<BuildReport>(&repo, json!({ "buildId": "1", "startTime": "1969-02-01T00:00:00Z" }));
    assert_eq!(
        list(json!({}))["reports"][0],
        json!({
            "id": minimal, "mediaType": "", "config": "", "lockedConfig": "", "result": "Unknown", "warnings": [],
            "log": "", "digest": "", "apkoVersion": "", "startedAt": "1969-02-01T00:00:00.000Z", "completedAt": null,
        })
    );
}

#[test]
fn build_reports_are_listed_by_repo_and_start_the_latest_first() {
    let (world, repos, builds) = scene();
    let list = |request: Value| {
        let reply = world.call("Registry.ListBuildReports", request).unwrap();
        let place = |one: &Value| builds.iter().position(|uid| one["id"] == uid.as_str()).unwrap() + 1;
        reply["reports"].as_array().unwrap().iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(list(json!({})), [2, 4, 3, 1]);
    assert_eq!(list(json!({ "pageSize": 2 })), [2, 4]);
    assert_eq!(list(json!({ "uidp": { "childrenOf": repos[0] } })), [2, 1]);
    assert_eq!(list(json!({ "uidp": { "descendantsOf": world.org } })), [2, 4, 3, 1]);
    assert_eq!(list(json!({ "uidp": { "ids": [builds[2]] } })), [3]);
    let (since, before) = ("1969-06-02T00:00:00Z", "1969-06-04T00:00:00Z");
    assert_eq!(list(json!({ "startedSince": since })), [2, 4, 3]);
    assert_eq!(list(json!({ "startedBefore": before })), [4, 3, 1]);
    assert_eq!(list(json!({ "startedSince": since, "startedBefore": before, "pageSize": 1 })), [4]);
    let unknown = format!("{}/0123456789abcdef", world.org);
    assert_eq!(list(json!({ "uidp": { "childrenOf": unknown } })), [0_usize; 0]);
}

#[test]
fn all_of_many_build_reports_are_listed_once() {
    let world = World::new();
    let repo = world.new_repo(&world.org, "nginx");
    for build in 0..450 {
        let start = format!("1969-01-01T00:00:{:02}Z", build % 60);
        world.import::<BuildReport>(&repo, json!({ "buildId": build.to_string(), "startTime": start }));
    }
    let count = |request: Value| {
        let reply = world.call("Registry.ListBuildReports", request).unwrap();
        let mut ids: Vec<_> = reply["reports"].as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
        ids.sort();
        ids.dedup();
        ids.len()
    };
    assert_eq!((count(json!({})), count(json!({ "pageSize": 300 }))), (450, 300));
    assert_eq!(count(json!({ "pageSize": 201, "startedBefore": "1969-01-01T00:00:30Z" })), 201);
}

#[test]
fn the_build_status_counts_failures_by_repo() {
    let (world, repos, _) = scene();
    let status = |request: Value| {
        let reply = world.call("Registry.GetBuildStatus", request).unwrap();
        let total = |repo: &Uid| {
            let found = reply["failures"].as_array().unwrap().iter().find(|one| one["repoId"] == repo.as_str());
            found.map_or(0, |one| one["total"].as_i64().unwrap())
        };
        [total(&repos[0]), total(&repos[1])]
    };
    assert_eq!(status(json!({})), [1, 2]);
    assert_eq!(status(json!({ "uidp": { "childrenOf": repos[1] } })), [0, 2]);
    assert_eq!(status(json!({ "startedBefore": "1969-06-03T00:00:00Z" })), [0, 1]);
    assert_eq!(status(json!({ "pageSize": 2 })), [1, 1]);
    let empty = world.call("Registry.GetBuildStatus", json!({ "startedSince": "1969-07-01T00:00:00Z" })).unwrap();
    assert_eq!(empty, json!({ "failures": [] }));
}

#[test]
fn requests_for_build_reports_with_invalid_bounds_are_rejected() {
    let (world, repos, _) = scene();
    for method in ["Registry.ListBuildReports", "Registry.GetBuildStatus"] {
        let list = |request: Value| violation(world.call(method, request));
        let reversed = json!({ "startedSince": "1969-06-02T00:00:00Z", "startedBefore": "1969-06-01T00:00:00Z" });
        assert_eq!(list(reversed), ("startedBefore".to_owned(), "must not be before startedSince".to_owned()));
        assert_eq!(list(json!({ "pageSize": -1 })).0, "pageSize");
        assert_eq!(list(json!({ "startedSince": "now" })).0, "startedSince");
        assert_eq!(list(json!({ "uidp": { "childrenOf": "x" } })).0, "uidp.children_of");
    }
    let list = |group: &str, capability: &str| {
        let reply = world.call_with(group, &[capability], "Registry.ListBuildReports", json!({})).unwrap();
        reply["reports"].as_array().unwrap().len()
    };
    assert_eq!(list(repos[1].parent().unwrap().as_str(), "build_report.list"), 2);
    assert_eq!(list(&world.org, "repo.list"), 0);
}

#[test]
fn builds_are_refused_with_the_reason_to_callers_who_could_build() {
    let world = World::new();
    let repo = world.new_repo(&world.org, "nginx");
    let request = json!({ "repoUidp": repo, "config": { "contents": { "packages": ["nginx"] } } });
    for (method, capabilities) in [
        ("Apko.ResolveConfig", &["apk.list"][..]),
        ("Apko.BuildImage", &["apk.list", "manifest.create", "repo.update"]),
    ] {
        let error = world.call_with(&world.org, capabilities, method, request.clone()).unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented);
        assert!(error.message().contains("does not build images"), "{error}");
        let denied = world.call_with(&world.org, &["repo.list"], method, request.clone()).unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied);
        assert_eq!(violation(world.call(method, json!({}))).0, "repoUidp");
    }
}

//! End-of-life tags and versions of packages.

use platform_v1::resources::PackageVersions;

use super::{scenes::digest, *};

/// Imports versions of python: the life of 3.12 has not ended, 3.9 is in a grace period of six months, 3.8 is after it,
/// 3.7 cannot be built, and the end of 2.7 is not known.
fn python(world: &World) {
    let version = |version: &str, eol: &str| json!({ "version": version, "eolDate": eol, "releaseDate": "1960-01-02" });
    let mut versions = vec![version("3.12", "1975-01-01"), version("3.9", "1969-10-31"), version("3.8", "1969-01-31")];
    versions.push(json!({ "version": "3.7", "eolDate": "1969-11-30", "eolBroken": true }));
    versions.push(json!({ "version": "2.7", "eol": true }));
    world.import::<PackageVersions>(
        "",
        json!({
            "package": "python", "versions": versions, "latestVersion": "3.12.4", "gracePeriodMonths": 6,
            "updateTime": "1969-12-01T00:00:00Z",
        }),
    );
}

fn tags(world: &World, request: Value) -> Vec<Value> {
    items(&world.call("Registry.ListEolTags", request).unwrap()).to_vec()
}

#[test]
fn a_tag_has_the_status_of_the_version_of_its_main_package() {
    let world = World::new();
    python(&world);
    let repo = world.new_repo(&world.org, "python");
    let releases = [("3.12", 'a'), ("3.9", 'b'), ("3.8", 'c'), ("3.7", 'd'), ("2.7", 'e'), ("4.0", 'f')];
    for (version, digit) in releases {
        world.new_tag(&repo, &format!("v{version}"), &digest(digit));
        let (main, release) = (format!("python-{version}"), format!("{version}.1-r0"));
        world.new_image(&repo, &digest(digit), &[(&main, &release, "python"), ("zlib", "1.3-r0", "")]);
    }
    let found = tags(&world, json!({ "uidp": { "childrenOf": repo } }));
    let status = |tag: &str| {
        let found = found.iter().find(|one| one["name"] == tag).unwrap();
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        [text("mainPackageName"), text("tagStatus"), text("graceStatus"), text("gracePeriodExpiryDate")]
    };
    assert_eq!(status("v3.12"), ["python-3.12", "TAG_ACTIVE", "GRACE_NOT_ELIGIBLE", ""]);
    assert_eq!(status("v3.9"), ["python-3.9", "TAG_INACTIVE", "GRACE_ELIGIBLE", "1970-04-30T00:00:00.000Z"]);
    assert_eq!(status("v3.8"), ["python-3.8", "TAG_INACTIVE", "GRACE_EXPIRED", "1969-07-31T00:00:00.000Z"]);
    assert_eq!(status("v3.7"), ["python-3.7", "TAG_INACTIVE", "GRACE_BROKEN", ""]);
    assert_eq!(status("v2.7"), ["python-2.7", "TAG_INACTIVE", "GRACE_EXPIRED", ""]);
    assert_eq!(status("v4.0"), ["python-4.0", "TAG_ACTIVE", "GRACE_NOT_ELIGIBLE", ""]);
    let tag = found.iter().find(|one| one["name"] == "v3.9").unwrap();
    assert_eq!(
        *tag,
        json!({
            "id": tag["id"], "name": "v3.9", "mainPackageName": "python-3.9", "tagStatus": "TAG_INACTIVE",
            "mainPackageVersion": {
                "eolDate": "1969-10-31", "exists": false, "fips": false, "legacyLts": "", "lts": false,
                "releaseDate": "1960-01-02", "version": "3.9", "eolBroken": false, "latestVersion": "",
                "versionSource": null,
            },
            "graceStatus": "GRACE_ELIGIBLE", "gracePeriodExpiryDate": "1970-04-30T00:00:00.000Z",
        })
    );
}

#[test]
fn a_tag_is_in_grace_when_the_settings_of_its_organization_have_a_grace_period() {
    let world = World::new();
    python(&world);
    let repo = world.new_repo(&world.org, "python");
    world.new_tag(&repo, "3.9", &digest('a'));
    let grace = || {
        let found = tags(&world, json!({ "name": "3.9" })).remove(0);
        [found["tagStatus"].clone(), found["graceStatus"].clone()]
    };
    assert_eq!(grace(), ["TAG_INACTIVE", "GRACE_ELIGIBLE"]);
    world.grant(&["registry.settings.update"]);
    let settings = json!({ "registryId": world.org, "eolGracePeriod": true });
    world.call("Registry.UpdateRegistrySettings", settings).unwrap();
    assert_eq!(grace(), ["TAG_IN_GRACE", "GRACE_ACTIVE"]);
}

#[test]
fn without_data_a_tag_is_inactive_when_it_is_deprecated() {
    let world = World::new();
    let repo = world.new_repo(&world.org, "nginx");
    world.new_tag(&repo, "latest", &digest('a'));
    let old = world.new_tag(&repo, "old", &digest('b'));
    let registered = world.platform.registered().iter().find(|one| one.kind.name == "Tag").unwrap();
    let deprecated = json!({ "name": "old", "digest": digest('b'), "deprecated": true });
    let deprecated = deprecated.as_object().unwrap();
    block_on(world.platform.create_erased(&world.operator, registered, &repo, deprecated, RequestOptions::none()))
        .unwrap();
    let found = tags(&world, json!({}));
    let old = found.iter().find(|one| one["id"] == old.as_str()).unwrap();
    assert_eq!(
        *old,
        json!({
            "id": old["id"], "name": "old", "mainPackageName": "", "tagStatus": "TAG_INACTIVE",
            "mainPackageVersion": null, "graceStatus": "GRACE_NOT_ELIGIBLE", "gracePeriodExpiryDate": null,
        })
    );
    let latest = found.iter().find(|one| one["name"] == "latest").unwrap();
    assert_eq!(latest["tagStatus"], "TAG_ACTIVE");
}

#[test]
fn without_a_main_package_the_name_of_the_tag_says_the_version() {
    let world = World::new();
    python(&world);
    let repo = world.new_repo(&world.org, "python");
    world.new_tag(&repo, "3.8-dev", &digest('a'));
    world.new_tag(&repo, "latest", &digest('a'));
    let found = tags(&world, json!({ "name": "3.8-dev" }));
    assert_eq!(found[0]["mainPackageVersion"]["version"], "3.8");
    assert_eq!((&found[0]["mainPackageName"], &found[0]["tagStatus"]), (&json!("python"), &json!("TAG_INACTIVE")));
    let found = tags(&world, json!({ "name": "latest" }));
    assert_eq!((&found[0]["mainPackageVersion"], &found[0]["tagStatus"]), (&Value::Null, &json!("TAG_ACTIVE")));
}

#[test]
fn tags_are_listed_in_pages_and_by_their_filters() {
    let world = World::new();
    let repo = world.new_repo(&world.org, "nginx");
    for name in ["latest", "1.2-20260102", "1.2.3-r0", "sha256-aa.sig"] {
        world.new_tag(&repo, name, &digest('a'));
    }
    let names = |request: Value| {
        let mut names: Vec<_> =
            tags(&world, request).iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(json!({})), ["1.2-20260102", "1.2.3-r0", "latest"]);
    assert_eq!(names(json!({ "excludeDates": true })), ["1.2.3-r0", "latest"]);
    assert_eq!(names(json!({ "excludeEpochs": true })), ["1.2-20260102", "latest"]);
    assert_eq!(names(json!({ "exclude_dates": true, "exclude_epochs": true })), ["latest"]);
    assert_eq!(names(json!({ "name": "1.2.3-r0", "excludeEpochs": true })), ["1.2.3-r0"]);
    let unknown = format!("{}/0123456789abcdef", world.org);
    assert_eq!(names(json!({ "uidp": { "childrenOf": unknown } })), [""; 0]);
    assert_eq!(names(json!({ "uidp": { "descendantsOf": world.org } })).len(), 3);
    let (mut token, mut pages) = (String::new(), Vec::new());
    loop {
        let request = json!({ "pageSize": "2", "pageToken": token });
        let page = world.call("Registry.ListEolTags", request).unwrap();
        pages.push(items(&page).len());
        page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [2, 1]);
    let list = |request: Value| violation(world.call("Registry.ListEolTags", request));
    assert_eq!(list(json!({ "pageSize": -1 })).0, "page_size");
    assert_eq!(list(json!({ "pageToken": "x" })).0, "page_token");
    let other = world.folder("", "other");
    let reply = world.call_with(&other, &["tag.list"], "Registry.ListEolTags", json!({})).unwrap();
    assert!(items(&reply).is_empty(), "{reply}");
}

#[test]
fn the_versions_of_a_package_are_listed_by_whether_their_lives_have_ended() {
    let world = World::new();
    let get = |package: &str| world.call("Registry.GetPackageVersionMetadata", json!({ "package": package }));
    assert_eq!(get("python").unwrap_err().code(), Code::NotFound);
    python(&world);
    let metadata = get("python").unwrap();
    let versions = |name: &str| {
        let versions = metadata[name].as_array().unwrap().iter();
        versions.map(|one| one["version"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(versions("versions"), ["3.12"]);
    assert_eq!(versions("eolVersions"), ["3.9", "3.8", "3.7", "2.7"]);
    assert_eq!((&metadata["latestVersion"], &metadata["gracePeriodMonths"]), (&json!("3.12.4"), &json!(6)));
    assert_eq!(metadata["lastUpdatedTimestamp"], "1969-12-01T00:00:00.000Z");
    assert_eq!(metadata["versions"][0]["eolDate"], "1975-01-01");
    let source = json!({ "ref": "v1", "sha": "abc" });
    let versions = json!([{ "version": "1", "source": source }]);
    world.import::<PackageVersions>("", json!({ "package": "a/b", "versions": versions }));
    assert_eq!(get("a/b").unwrap()["versions"][0]["versionSource"], source);
    assert_eq!(violation(get("")), ("package".to_owned(), "is required".to_owned()));
    let request = json!({ "package": "python" });
    let method = "Registry.GetPackageVersionMetadata";
    assert!(world.call_with(&world.org, &["version.list"], method, request.clone()).is_ok());
    let denied = world.call_with(&world.org, &["tag.list"], method, request).unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
}

//! Repos, readmes and tags (`docs/api.md`, Repos and Tags).

use platform_engine::{
    access::Caller,
    error::{Code, Result},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{BEGIN, World, code, digest, object, text, uid_of, violated_fields};

const DAY: i64 = 24 * 60 * 60 * 1000;

fn create(world: &World, caller: &Caller, group: &str, body: Value) -> Result<Value> {
    world.create(caller, "Repo", group, body)
}

fn follower(world: &World, caller: &Caller, source: &str) -> Result<Value> {
    let body = json!({ "name": format!("follower {}", world.serial()), "syncConfig": { "source": source } });
    create(world, caller, &world.org, body)
}

/// Creates a world with an organization `catalog` that has a repo `nginx` with all fields set.
fn world_with_a_source() -> (World, Uid, Uid) {
    let world = World::new();
    let there = uid_of(&world.create(&world.operator, "Group", "", json!({ "name": "catalog" })).unwrap());
    let body = json!({
        "name": "nginx", "description": "a web server", "catalogTier": "CATALOG_TIER_BASE", "bundles": ["base"],
        "aliases": ["nginx:latest"], "activeTags": ["1"],
    });
    let source = uid_of(&create(&world, &world.operator, &there, body).unwrap());
    (world, there, source)
}

#[test]
fn repo_names_are_unique_in_their_group() {
    let world = World::new();
    let named = |group: &str| create(&world, &world.operator, group, json!({ "name": "nginx" }));
    named(&world.org).unwrap();
    assert_eq!(code(named(&world.org)), Code::AlreadyExists);
    named(&world.group(&world.org)).unwrap();
    let other = world.repo(&world.org);
    let renamed = world.update(&world.operator, "Repo", &other, json!({ "name": "nginx" }), None);
    assert_eq!(code(renamed), Code::AlreadyExists);
}

#[test]
fn names_descriptions_bundles_aliases_and_active_tags_must_match_their_patterns() {
    let world = World::new();
    let with = |field: &str, value: Value| {
        let mut body = json!({ "name": format!("repo {}", world.serial()) });
        body[field] = value;
        create(&world, &world.operator, &world.org, body)
    };
    for (field, good, bad) in [
        ("name", json!("a.b_c-d 0"), vec![json!("A"), json!("a/b"), json!("ü"), json!("a\n"), json!(" \u{0}")]),
        (
            "description",
            json!("Größe: 5 µm"),
            vec![json!("a\nb"), json!("a\tb"), json!("x".repeat(513)), json!("\u{0}")],
        ),
        ("bundles", json!(["ai-gpu", "fips"]), vec![json!(["gold"]), json!([""]), json!("base")]),
        ("aliases", json!(["a/b:1.2"]), vec![json!(["nginx"]), json!(["a/:x"]), json!([":x"])]),
        ("activeTags", json!(["latest"]), vec![json!(["-a"]), json!([""]), json!(["a:b"]), json!(["x".repeat(129)])]),
        ("catalogTier", json!("CATALOG_TIER_AI"), vec![json!("AI"), json!(7), json!(-1)]),
    ] {
        with(field, good).unwrap();
        for bad in bad {
            let fields = violated_fields(with(field, bad.clone()));
            assert!(
                fields.iter().all(|found| found.starts_with(field)) && fields.len() == 1,
                "{field} {bad}: {fields:?}"
            );
        }
    }
    assert_eq!(with("catalogTier", json!(0)).unwrap().get("catalogTier"), None);
}

#[test]
fn a_follower_shows_the_current_values_of_its_source_and_its_own_description() {
    let (world, _, source) = world_with_a_source();
    let inherited = ["catalogTier", "bundles", "aliases", "activeTags", "description"];
    let repo = follower(&world, &world.operator, &source).unwrap();
    let same = |repo: &Value| {
        let source = world.get(&world.operator, "Repo", &source).unwrap();
        inherited.iter().all(|field| repo.get(*field) == source.get(*field))
    };
    let config = json!({
        "source": source, "uniqueTags": false, "expirationTime": BEGIN.plus_millis(14 * DAY).to_string(), "gracePeriod": false,
    });
    assert_eq!(repo["syncConfig"], config);
    assert!(same(&repo));
    let change =
        json!({ "catalogTier": "CATALOG_TIER_FIPS", "bundles": [], "activeTags": ["2"], "description": "new" });
    world.update(&world.operator, "Repo", &source, change, None).unwrap();
    let read = world.get(&world.operator, "Repo", text(&repo, "uid")).unwrap();
    assert!(same(&read), "{read}");
    let listed = world.list(&world.operator, "Repo", &[("uidp.ids", text(&repo, "uid"))]).unwrap();
    assert_eq!(listed.items, [read]);
    let own = world.update(&world.operator, "Repo", text(&repo, "uid"), json!({ "description": "own" }), None).unwrap();
    assert_eq!(text(&own, "description"), "own");
}

#[test]
fn inherited_values_of_a_follower_cannot_be_changed() {
    let (world, _, source) = world_with_a_source();
    let repo = follower(&world, &world.operator, &source).unwrap();
    let uid = text(&repo, "uid");
    let other = json!({
        "catalogTier": "CATALOG_TIER_AI", "bundles": ["ai"], "aliases": ["a:b"], "activeTags": ["x"],
    });
    for (field, value) in object(other.clone()) {
        let updated = world.update(&world.operator, "Repo", uid, json!({ &field: value }), None);
        assert_eq!(violated_fields(updated), std::slice::from_ref(&field));
        let body = json!({ "name": "x", "syncConfig": { "source": source }, &field: value });
        assert_eq!(violated_fields(create(&world, &world.operator, &world.org, body)), [field]);
    }
    assert_eq!(
        violated_fields(world.update(&world.operator, "Repo", uid, other, Some("catalogTier,bundles"))).len(),
        2
    );
    for mask in [None, Some("*")] {
        let written = world.update(&world.operator, "Repo", uid, repo.clone(), mask).unwrap();
        assert_eq!(written["syncConfig"], repo["syncConfig"]);
    }
}

#[test]
fn a_source_is_a_uid_or_the_names_of_organization_and_repo_with_an_optional_host() {
    let (world, there, source) = world_with_a_source();
    for text in [&*source, "catalog/nginx", "registry.example.com/catalog/nginx", &format!("{there}/nginx")] {
        let repo = follower(&world, &world.operator, text).unwrap();
        assert_eq!(repo["syncConfig"]["source"], json!(source), "{text}");
    }
    for unknown in ["nginx", "catalog/", "/nginx", "catalog/httpd", "other/nginx", "", &*there, "a/b/c/d"] {
        assert_eq!(violated_fields(follower(&world, &world.operator, unknown)), ["syncConfig.source"], "{unknown}");
    }
    let twin = uid_of(&world.create(&world.operator, "Group", "", json!({ "name": "catalog" })).unwrap());
    create(&world, &world.operator, &twin, json!({ "name": "nginx" })).unwrap();
    assert_eq!(violated_fields(follower(&world, &world.operator, "catalog/nginx")), ["syncConfig.source"]);
}

#[test]
fn following_a_repo_requires_pull_access() {
    let (world, there, source) = world_with_a_source();
    let ada = world.person("ada", None);
    world.bind(&ada, &crate::common::built_in("editor"), &world.org);
    let missing = format!("{there}/0000000000000000");
    let rejection = |source: &str| world.status(&follower(&world, &ada, source).unwrap_err());
    for named in [&*source, "catalog/nginx"] {
        assert_eq!(rejection(named), rejection(&missing), "{named}");
    }
    world.bind(&ada, &crate::common::built_in("registry.pull"), &there);
    follower(&world, &ada, &source).unwrap();
}

#[test]
fn a_repo_that_stops_following_has_its_own_values_and_can_be_updated() {
    let (world, _, source) = world_with_a_source();
    let repo = follower(&world, &world.operator, &source).unwrap();
    let free = world.update(&world.operator, "Repo", text(&repo, "uid"), json!({ "syncConfig": null }), None).unwrap();
    for field in ["syncConfig", "catalogTier", "bundles", "aliases", "activeTags", "description"] {
        assert_eq!(free.get(field), None, "{field}");
    }
    let body = json!({ "catalogTier": "CATALOG_TIER_AI" });
    world.update(&world.operator, "Repo", text(&repo, "uid"), body, None).unwrap();
}

#[test]
fn sync_destinations_can_be_changed_without_changing_source_or_expiry() {
    let (world, _, source) = world_with_a_source();
    let repo = follower(&world, &world.operator, &source).unwrap();
    world.clock.advance(DAY);
    let body = json!({ "syncConfig": { "google": "g", "amazon": "a", "azure": "z", "expirationTime": "2030-01-01T00:00:00Z" } });
    let updated = world.update(&world.operator, "Repo", text(&repo, "uid"), body, None).unwrap();
    let (before, after) = (&repo["syncConfig"], &updated["syncConfig"]);
    assert_eq!((&after["source"], &after["expirationTime"]), (&before["source"], &before["expirationTime"]));
    assert_eq!(["google", "amazon", "azure"].map(|name| text(after, name)), ["g", "a", "z"]);
    let body = json!({ "syncConfig": { "source": "" } });
    let cleared = world.update(&world.operator, "Repo", text(&repo, "uid"), body, None);
    assert_eq!(violated_fields(cleared), ["syncConfig.source"]);
}

#[test]
fn an_overlay_with_reserved_names_or_invalid_files_is_rejected() {
    let world = World::new();
    let with = |overlay: Value| {
        let body = json!({ "name": format!("repo {}", world.serial()), "customOverlay": overlay });
        create(&world, &world.operator, &world.org, body)
    };
    let keyring =
        |name: &str, content: &str| json!({ "contents": { "runtimeKeyring": [{ "name": name, "content": content }] } });
    let key = "-----BEGIN RSA PUBLIC KEY-----\nMAYCAQACAQA=\n-----END RSA PUBLIC KEY-----\n";
    with(keyring("key.rsa.pub", key)).unwrap();
    with(json!({ "environment": { "PATH": "" }, "annotations": { "a": "b" } })).unwrap();
    for (overlay, fields) in [
        (json!({ "environment": { "CHAINGUARD_X": "1" } }), vec!["customOverlay.environment"]),
        (json!({ "annotations": { "dev.chainguard.x": "1" } }), vec!["customOverlay.annotations"]),
        (json!({ "annotations": { "org.opencontainers.image": "1" } }), vec!["customOverlay.annotations"]),
        (keyring(".hidden", key), vec!["customOverlay.contents.runtimeKeyring[0].name"]),
        (keyring("../key", key), vec!["customOverlay.contents.runtimeKeyring[0].name"]),
        (keyring("key", "x"), vec!["customOverlay.contents.runtimeKeyring[0].content"]),
        (
            keyring("", ""),
            vec!["customOverlay.contents.runtimeKeyring[0].name", "customOverlay.contents.runtimeKeyring[0].content"],
        ),
        (
            json!({ "certificates": { "additional": [{ "name": "a", "content": "x" }] } }),
            vec!["customOverlay.certificates.additional[0].content"],
        ),
        (
            json!({ "accounts": { "users": [{ "uid": 1 }, 5] } }),
            vec!["customOverlay.accounts.users[0].username", "customOverlay.accounts.users[1]"],
        ),
    ] {
        assert_eq!(violated_fields(with(overlay.clone())), fields, "{overlay}");
    }
}

#[test]
fn delete_of_a_repo_cascades_to_its_tags_and_readme() {
    let world = World::new();
    let (repo, other) = (world.repo(&world.org), world.repo(&world.org));
    for repo in [&repo, &other] {
        world.tag(repo, "latest");
        world.update(&world.operator, "RepoReadme", repo, json!({ "content": "# a" }), None).unwrap();
    }
    world.delete(&world.operator, "Repo", &repo).unwrap();
    assert_eq!(code(world.get(&world.operator, "RepoReadme", &repo)), Code::NotFound);
    let left = world.walk(&world.operator, "Tag", &[]);
    assert!(left.len() == 1 && text(&left[0], "uid").starts_with(&*other));
}

#[test]
fn a_readme_must_be_safe_markdown_and_requires_no_internal_capability() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let editor = world.member("editor", &world.org);
    let write = |content: &str| world.update(&editor, "RepoReadme", &repo, json!({ "content": content }), None);
    let written = write("# nginx\n\n\tcode\n").unwrap();
    assert_eq!((text(&written, "content"), text(&written, "uid")), ("# nginx\n\n\tcode\n", &*repo));
    for bad in ["<script>alert(1)</script>", "[a](javascript:alert(1))", "a\u{0}b"] {
        assert_eq!(violated_fields(write(bad)), ["content"], "{bad}");
    }
    assert_eq!(write("").unwrap().get("content"), None);
    let missing = format!("{}/0000000000000000", world.org);
    let missing = world.update(&editor, "RepoReadme", &missing, json!({ "content": "a" }), None);
    assert_eq!(code(missing), Code::NotFound);
}

#[test]
fn a_follower_shows_the_readme_of_its_source_and_rejects_another() {
    let (world, _, source) = world_with_a_source();
    let repo = follower(&world, &world.operator, &source).unwrap();
    let repo = text(&repo, "uid");
    let content = |repo: &str| world.get(&world.operator, "RepoReadme", repo).unwrap().get("content").cloned();
    assert_eq!(content(repo), None);
    world.update(&world.operator, "RepoReadme", &source, json!({ "content": "hello" }), None).unwrap();
    assert_eq!(content(repo), Some(json!("hello")));
    let own = world.update(&world.operator, "RepoReadme", repo, json!({ "content": "own" }), None);
    assert_eq!(violated_fields(own), ["content"]);
}

#[test]
fn creating_an_existing_tag_moves_it_and_keeps_its_uid() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let create = |body: Value| world.create(&world.operator, "Tag", &repo, body).unwrap();
    let first = create(json!({ "name": "latest", "digest": digest('1'), "deprecated": true, "bundles": ["base"] }));
    world.clock.advance(1_000);
    let moved = create(json!({ "name": "latest", "digest": digest('2') }));
    assert_eq!(
        moved,
        json!({
            "uid": first["uid"], "name": "latest", "digest": digest('2'), "createTime": first["createTime"],
            "updateTime": BEGIN.plus_millis(1_000).to_string(), "deprecated": false,
        })
    );
    assert_eq!(world.list(&world.operator, "Tag", &[]).unwrap().items, [moved]);
    let elsewhere = world.repo(&world.org);
    let other = world.create(&world.operator, "Tag", &elsewhere, json!({ "name": "latest", "digest": digest('1') }));
    assert_ne!(other.unwrap()["uid"], first["uid"]);
}

#[test]
fn tag_names_and_digests_must_match_their_patterns() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let create = |name: &str, digest: &str| {
        world.create(&world.operator, "Tag", &repo, json!({ "name": name, "digest": digest }))
    };
    for good in ["latest", "_x", "1.2.3-r0", &"a".repeat(128)] {
        create(good, &digest('0')).unwrap();
    }
    for bad in ["", ".a", "-a", "a/b", "a:b", "ü", &"a".repeat(129)] {
        assert_eq!(violated_fields(create(bad, &digest('0'))), ["name"], "{bad}");
    }
    for bad in ["", "sha256:", "latest", &digest('G'), &digest('A'), &digest('0')[1..], &format!("{}0", digest('0'))] {
        assert_eq!(violated_fields(create("a", bad)), ["digest"], "{bad}");
    }
    assert_eq!(violated_fields(create("", "")), ["name", "digest"]);
}

#[test]
fn a_tag_can_only_be_created_in_a_repo() {
    let world = World::new();
    let body = || json!({ "name": "a", "digest": digest('0') });
    let in_a_group = world.create(&world.operator, "Tag", &world.org, body()).unwrap_err();
    assert_eq!(world.status(&in_a_group)["details"][1]["resourceType"], "registry.platform.test/Repo");
    let tag = world.tag(&world.repo(&world.org), "latest");
    assert_eq!(code(world.create(&world.operator, "Tag", &tag, body())), Code::NotFound);
    assert_eq!(code(world.create(&world.operator, "Repo", &tag, json!({ "name": "a" }))), Code::NotFound);
}

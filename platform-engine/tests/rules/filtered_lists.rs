//! Lists with a filter (`docs/api.md`, Filters): the types of fields, access, page tokens and the bound on what is read.
//! The suite of kinds compares filters over each field with a model.

use platform_core::resources::{advisory::VulnerabilityMetadata, iam::Group, registry::Repo};
use platform_engine::{
    aip::filter::{Filter, parse},
    error::Error,
    kind::Resource,
    uid::Uid,
};
use serde_json::json;

use crate::common::{World, block_on, uid_of, violated_fields};

/// Returns a world with repos of these names and descriptions.
fn with_repos(repos: &[(&str, &str)]) -> World {
    let world = World::new();
    for (name, description) in repos {
        let bundle = if *name == "redis" { "ai" } else { "fips" };
        let body = json!({ "name": name, "description": description, "bundles": ["base", bundle] });
        world.create(&world.operator, "Repo", &world.org, body).unwrap();
    }
    world
}

fn names(world: &World, filter: &str) -> Vec<String> {
    let query = [("filter", filter), ("order_by", "name")];
    let page = world.list(&world.operator, "Repo", &query).unwrap_or_else(|error| panic!("{filter}: {error}"));
    assert_eq!(page.total, page.items.len() as u64, "{filter}");
    page.names()
}

fn rule(world: &World, kind: &str, filter: &str) -> String {
    let listed = world.list(&world.operator, kind, &[("filter", filter)]);
    let error: Error = listed.map(|page| panic!("{filter}: {} resources", page.total)).unwrap_err();
    let [violation] = error.violations() else { panic!("{filter}: {error}") };
    assert_eq!(violation.field, "filter");
    violation.description.clone()
}

#[test]
fn a_filter_combines_comparisons_and_searches_the_texts() {
    let world = with_repos(&[("nginx", "A web server"), ("redis", "A cache"), ("engine x", "")]);
    for (filter, expected) in [
        ("", &["engine x", "nginx", "redis"][..]),
        ("name = nginx", &["nginx"]),
        ("name:*ngi*", &["engine x", "nginx"]),
        ("name = \"*ngi*\" AND description:*", &["nginx"]),
        ("name != nginx", &["engine x", "redis"]),
        ("NOT name = nginx OR name:n*", &["engine x", "nginx", "redis"]),
        ("-name:*x", &["redis"]),
        ("name = (nginx OR redis)", &["nginx", "redis"]),
        ("name >= \"nginx\"", &["nginx", "redis"]),
        ("name < nginx", &["engine x"]),
        ("bundles:ai", &["redis"]),
        ("bundles:(base AND f*)", &["engine x", "nginx"]),
        ("createTime > 1970-01-01T00:00:00Z name:r*", &["redis"]),
        ("create_time < 1970-01-01T00:00:00+01:00", &[]),
        ("WEB", &["nginx"]),
        ("a*server", &["nginx"]),
        ("web server", &["nginx"]),
        ("cache OR NGINX", &["nginx", "redis"]),
        ("syncConfig:*", &[]),
        ("syncConfig.uniqueTags = false", &[]),
        ("NOT syncConfig.uniqueTags = true", &["engine x", "nginx", "redis"]),
        ("catalogTier = CATALOG_TIER_UNSPECIFIED", &["engine x", "nginx", "redis"]),
        ("catalogTier:*", &[]),
        ("uid = 0000000000000000000000000000000000000000", &[]),
    ] {
        assert_eq!(names(&world, filter), expected, "{filter}");
    }
    let uid = world.list(&world.operator, "Repo", &[("name", "redis")]).unwrap().uids().remove(0);
    assert_eq!(names(&world, &format!("uid = {uid}")), ["redis"]);
    assert_eq!(names(&world, &format!("uid = {uid} AND name = nginx")), [""; 0]);
    assert_eq!(names(&world, &uid), [""; 0], "a search does not read uids");
    // Filters and parameters combine by AND.
    let both = [("filter", "name:*ngi*"), ("name", "redis")];
    assert_eq!(world.list(&world.operator, "Repo", &both).unwrap().total, 0);
}

#[test]
fn a_field_that_lists_do_not_show_or_a_value_of_another_type_is_rejected_with_its_position() {
    let world = World::new();
    for (kind, filter, expected) in [
        (
            "Repo",
            "nam = x",
            "must not compare `nam`: lists of repos have the fields uid, name, description, catalogTier, \
          bundles, aliases, activeTags, syncConfig, customOverlay, createTime, updateTime (at character 1)",
        ),
        ("Repo", "name = a AND name.x = 1", "must not have `x` after `name`, which has no fields (at character 14)"),
        ("Repo", "syncConfig.x:*", "must not compare `x`: `syncConfig` have the fields"),
        ("Repo", "syncConfig = x", "must not use `=` with `syncConfig`: it is a message, of which a field is compared"),
        ("Repo", "bundles = base", "must use `:` with `bundles`, which is or is in a list, such as `bundles:value`"),
        ("Repo", "catalogTier = BASE", "must be one of CATALOG_TIER_UNSPECIFIED"),
        ("Repo", "catalogTier > CATALOG_TIER_BASE", "must not use `>` with `catalogTier`: its values have no order"),
        (
            "Repo",
            "createTime > yesterday",
            "must be an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z (at character 14)",
        ),
        ("Repo", "createTime = 2026*", "must not have a wildcard, which only texts have (at character 14)"),
        ("Repo", "name > a*", "must not have a wildcard where texts are ordered"),
        ("Repo", "syncConfig.uniqueTags = yes", "must be `true` or `false` (at character 25)"),
        (
            "RoleBinding",
            "owner",
            "must compare a field: lists of roleBindings have no texts to search (at character 1)",
        ),
        ("Group", "resourceLimits.Repo.x = 1", "must not have `x` after `resourceLimits.Repo`, which has no fields"),
        ("Group", "resourceLimits.Repo > many", "must be a whole number of 64 bits (at character 23)"),
        ("Repo", "name = (a OR b = c)", "must have a name or a value here, and not `=` (at character 16)"),
        ("Repo", "size(name) > 1", "must not call `size`: no function is known (at character 1)"),
        // Secrets and what only requests have: a filter must not find out what replies do not show.
        ("GroupInvite", "ttl = 60s", "must not compare `ttl`: lists of groupInvites have the fields"),
        ("IdentityProvider", "oidc.clientSecret = x", "must not compare `clientSecret`: `oidc` have the fields"),
        ("GroupInvite", "code = x", "must not compare `code`: lists of groupInvites have the fields"),
        ("Advisory", "origin = x", "must not compare `origin`: lists of advisories have the fields"),
    ] {
        let found = rule(&world, kind, filter);
        assert!(found.starts_with(expected), "{kind} {filter}: {found}");
    }
}

#[test]
fn a_filter_is_evaluated_on_defaults_lists_maps_and_messages() {
    for (kind, filter, resource, expected) in [
        (Repo::KIND, "catalogTier = CATALOG_TIER_UNSPECIFIED", json!({}), true),
        (
            Repo::KIND,
            "catalogTier = CATALOG_TIER_UNSPECIFIED",
            json!({ "catalogTier": "CATALOG_TIER_UNSPECIFIED" }),
            true,
        ),
        (Repo::KIND, "catalogTier = CATALOG_TIER_UNSPECIFIED", json!({ "catalogTier": "CATALOG_TIER_BASE" }), false),
        (Repo::KIND, "catalogTier = CATALOG_TIER_BASE", json!({}), false),
        (Repo::KIND, "catalogTier = 0", json!({}), true),
        (Repo::KIND, "catalogTier = 0", json!({ "catalogTier": "CATALOG_TIER_BASE" }), false),
        (Repo::KIND, "bundles:*", json!({ "bundles": [""] }), true),
        (Repo::KIND, "bundles:*", json!({ "bundles": [] }), false),
        (Repo::KIND, "syncConfig:uniqueTags", json!({ "syncConfig": { "uniqueTags": true } }), true),
        (Repo::KIND, "syncConfig:uniqueTags", json!({ "syncConfig": { "uniqueTags": false, "source": "a" } }), false),
        (Group::KIND, "resourceLimits.Repo > 3", json!({ "resourceLimits": { "Repo": 4, "Tag": 1 } }), true),
        (Group::KIND, "resourceLimits.Tag > 3", json!({ "resourceLimits": { "Repo": 4, "Tag": 1 } }), false),
        (Group::KIND, "resourceLimits:Tag", json!({ "resourceLimits": { "Repo": 4 } }), false),
    ] {
        let compiled = Filter::compile(&parse(filter).unwrap().unwrap(), kind).unwrap();
        assert_eq!(compiled.passes(&resource), expected, "{filter} {resource}");
    }
}

#[test]
fn a_filter_neither_shows_nor_counts_what_the_caller_may_not_see() {
    let world = with_repos(&[("nginx", "")]);
    let other = world.organization();
    for name in ["nginx", "nginx two"] {
        world.create(&world.operator, "Repo", &other, json!({ "name": name })).unwrap();
    }
    let (member, stranger) = (world.member("owner", &other), world.member("owner", &world.organization()));
    for filter in ["name:nginx*", "name = nginx OR name = \"nginx two\"", "NOT description:*", "nginx"] {
        let total = |caller| world.list(caller, "Repo", &[("filter", filter)]).unwrap().total;
        assert_eq!((total(&world.operator), total(&member), total(&stranger)), (3, 2, 0), "{filter}");
    }
    let hidden = world.list(&world.operator, "Repo", &[("name", "nginx")]).unwrap().uids();
    for uid in hidden.iter().filter(|uid| !uid.starts_with(&*other)) {
        let query = format!("uid = {uid}");
        assert_eq!(world.list(&member, "Repo", &[("filter", &query)]).unwrap().total, 0);
    }
    assert_eq!(violated_fields(world.list(&stranger, "Repo", &[("filter", "x=1")])), ["filter"]);
}

#[test]
fn a_page_token_is_bound_to_the_filter_and_not_to_its_spelling() {
    let world = with_repos(&[("a1", ""), ("a2", ""), ("a3", ""), ("b", "")]);
    let list = |filter: &str, token: &str| {
        world.list(&world.operator, "Repo", &[("filter", filter), ("page_size", "1"), ("page_token", token)])
    };
    for filter in ["name = (a1 OR a2)", "name:a*", "name:*a* description = \"\""] {
        let token = list(filter, "").unwrap().next.unwrap();
        assert_eq!(list(&format!(" {filter} "), &token).unwrap().items.len(), 1);
        for other in ["", "name:*", "name = (a1 OR a3)"] {
            assert_eq!(violated_fields(list(other, &token)), ["page_token"], "{filter} {other}");
        }
    }
}

#[test]
fn a_filtered_walk_returns_each_match_once_in_each_order_whatever_else_is_written() {
    let world = World::new();
    let mut stable = Vec::new();
    for at in 0..30 {
        let body = json!({ "name": format!("n{:02}", at * 7 % 30), "description": format!("d{}", at % 3) });
        stable.push(uid_of(&world.create(&world.operator, "Repo", &world.org, body).unwrap()));
    }
    for filter in ["description = d1", "name:n* description:(d1 OR d2)", "name >= n10 AND name < n20", "d1"] {
        for order in ["uid", "uid desc", "name", "name desc", "createTime", "createTime desc"] {
            let all =
                world.walk(&world.operator, "Repo", &[("filter", filter), ("order_by", order), ("page_size", "200")]);
            let (mut walked, mut token) = (Vec::new(), String::new());
            loop {
                let query = [("filter", filter), ("order_by", order), ("page_size", "4"), ("page_token", &token)];
                let page = world.list(&world.operator, "Repo", &query).unwrap();
                walked.extend(page.items);
                // Before and after what has been walked, but not so many that the walk does not end.
                for name in ["m", "n99", "z"].into_iter().filter(|_| walked.len() < 12) {
                    let body = json!({ "name": format!("{name} {}", world.serial()), "description": "d1" });
                    world.create(&world.operator, "Repo", &world.org, body).unwrap();
                }
                match page.next {
                    Some(next) => token = next,
                    None => break,
                }
            }
            let is_stable = |item: &&serde_json::Value| stable.contains(&uid_of(item));
            let walked: Vec<_> = walked.iter().filter(is_stable).map(uid_of).collect();
            let all: Vec<Uid> = all.iter().filter(is_stable).map(uid_of).collect();
            assert!(!all.is_empty() && walked == all, "{filter} {order}: {walked:?} {all:?}");
        }
    }
}

#[test]
fn a_filter_without_an_index_reads_a_bounded_number_of_resources_and_one_with_an_index_any() {
    let world = World::new();
    let metadata = |n: usize| VulnerabilityMetadata {
        id: format!("CVE-{:02}-{n:05}", n / 100),
        summary: format!("summary {}", n % 10),
        ..Default::default()
    };
    let put = |range: std::ops::Range<usize>| {
        let all: Vec<_> = range.map(metadata).collect();
        let reply = block_on(world.platform.put(&world.operator, "", all)).unwrap();
        assert_eq!(reply.refused.len(), 0);
    };
    let total = |filter: &str| {
        world
            .list(&world.operator, "VulnerabilityMetadata", &[("filter", filter), ("page_size", "1")])
            .map(|page| page.total)
    };
    // Nobody needs a token for this list, so that it reads fewer resources than others.
    put(0..1_000);
    assert_eq!(total("summary:*3").unwrap(), 100);
    assert_eq!(total("summary >= \"summary 5\"").unwrap(), 500);
    assert_eq!(total("CVE-03-00303").unwrap(), 1);
    assert_eq!(total("summary").unwrap(), 0, "a search does not read texts of several lines");
    put(1_000..1_001);
    let refused = rule(&world, "VulnerabilityMetadata", "summary:*3 AND details:*");
    assert_eq!(
        refused,
        "must select fewer resources: no index answers summary : \"*3\" and details : \"*\", and more \
         than 1000 resources, or 32 MiB of them, would have to be read; narrow the list with `uidp.descendants_of`, or \
         compare uid, id, createTime, updateTime"
    );
    // A filter key, a range of a sort key, and a range that is too long.
    assert_eq!(total("id = CVE-03-00303").unwrap(), 1);
    assert_eq!(total("id = (CVE-03-00303 OR CVE-04-00404) AND summary:*3").unwrap(), 1);
    assert_eq!(total("id = \"CVE-03-*\" AND summary:*3").unwrap(), 10);
    assert_eq!(total("id >= CVE-09 AND summary:*3").unwrap(), 10);
    assert_eq!(total("id = \"\" AND summary:*3").unwrap(), 0);
    assert_eq!(violated_fields(total("id >= CVE-00 AND summary:*3")), ["filter"]);
    assert_eq!(total("id >= CVE-00-00002 AND summary:*3 AND id < CVE-01").unwrap(), 10);
}

#[test]
fn a_part_of_a_name_is_found_among_any_number_of_resources() {
    let world = World::new();
    // One more than a filter without an index may read.
    for n in 0..10_001 {
        let name = if n % 1_000 == 7 { format!("nginx {n:05} fips") } else { format!("repo {n:05}") };
        world.create(&world.operator, "Repo", &world.org, json!({ "name": name })).unwrap();
    }
    let list = |filter: &str| {
        let query = [("filter", filter), ("page_size", "2"), ("order_by", "name desc")];
        world.list(&world.operator, "Repo", &query)
    };
    for filter in ["name:*ginx*", "name = \"nginx*\"", "name:*fips", "name = \"*gin*0*ips*\""] {
        let page = list(filter).unwrap();
        assert_eq!((page.total, page.names()), (10, vec!["nginx 09007 fips".into(), "nginx 08007 fips".into()]));
        assert!(page.next.is_some(), "{filter}");
    }
    // With conditions that no index answers, of which the other one leaves few resources.
    for filter in ["name:*ginx* description = \"\"", "name:*ginx* (name:*5007* OR name:*6007*)", "name:*ginx* name:*7*"]
    {
        assert!(list(filter).is_ok_and(|page| page.total > 0), "{filter}");
    }
    assert_eq!(list("name:*ginx* name:*redis*").unwrap().total, 0);
    assert_eq!(list("name:*repo*").unwrap().total, 9_991);
    // A part that is too short for the index, a negation, and letters in the other case.
    assert_eq!(violated_fields(list("name:*gi*")), ["filter"]);
    assert_eq!(violated_fields(list("NOT name:*ginx*")), ["filter"]);
    assert_eq!(list("name:*GINX*").unwrap().total, 0);
}

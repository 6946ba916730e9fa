//! Grants are live: what is given counts at once, and what is taken away counts no more, for requests in flight too.

use platform_core::error::Code;
use serde_json::json;

use crate::common::{World, built_in, code};

#[test]
fn a_grant_counts_as_soon_as_it_is_acknowledged_for_a_caller_who_was_refused_before() {
    let world = World::new();
    let (caller, repo) = (world.identity(&world.org), world.repo(&world.org));
    assert_eq!(code(world.get(&caller, "Repo", &repo)), Code::PermissionDenied);
    assert_eq!(code(world.create(&caller, "Repo", &world.org, json!({ "name": "a" }))), Code::PermissionDenied);
    assert_eq!(
        code(world.create(&caller, "Group", "first organisation", json!({ "name": "a" }))),
        Code::PermissionDenied
    );
    world.bind(&caller, &built_in("owner"), &world.org);
    world.get(&caller, "Repo", &repo).unwrap();
    world.create(&caller, "Repo", &world.org, json!({ "name": "a" })).unwrap();
    world.create(&caller, "Group", "first organisation", json!({ "name": "a" })).unwrap();
}

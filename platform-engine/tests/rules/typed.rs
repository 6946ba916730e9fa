//! The typed methods for embedders, and the bootstrap of an installation.

use std::sync::Arc;

use platform_core::{
    iam::{Bootstrap, Iam},
    resources::{
        iam::{Group, OrgStatus, RoleBinding},
        registry::Repo,
    },
};
use platform_engine::{error::Code, kind::Resource, request::ListRequest, store::memory::MemoryStore};
use platform_testkit::SeededEntropy;
use serde_json::Map;

use crate::{
    common::{World, block_on, code, violated_fields},
    sample::Sample,
};

#[test]
fn typed_methods_create_get_update_list_and_delete() {
    let world = World::new();
    let (platform, operator) = (&world.platform, &world.operator);
    let nginx = Repo { name: "nginx".to_owned(), bundles: vec!["base".to_owned()], ..Repo::default() };
    let created: Repo = block_on(platform.create(operator, &world.org, &nginx)).unwrap();
    assert_eq!((&*created.name, created.create_time), ("nginx", Some(platform.now())));
    let read: Repo = block_on(platform.get(operator, &created.uid)).unwrap();
    assert_eq!(read, created);

    let change = Repo { name: "httpd".to_owned(), description: "d".to_owned(), ..Repo::default() };
    let updated = block_on(platform.update(operator, &created.uid, &change, "description")).unwrap();
    assert_eq!(updated, Repo { description: "d".to_owned(), ..created.clone() });
    let updated = block_on(platform.update(operator, &created.uid, &change, "*")).unwrap();
    assert_eq!((&*updated.name, updated.bundles.len()), ("httpd", 0));

    let request = ListRequest::from_json(Repo::KIND, Map::new()).unwrap();
    let listed = block_on(platform.list::<Repo>(operator, &request)).unwrap();
    assert_eq!((listed.resources, listed.total_count, listed.next_page_token), (vec![updated], 1, None));
    block_on(platform.delete::<Repo>(operator, &created.uid)).unwrap();
    assert_eq!(code(block_on(platform.get::<Repo>(operator, &created.uid))), Code::NotFound);
    let bad = Repo { name: "No Name".to_owned(), ..Repo::default() };
    assert_eq!(violated_fields(block_on(platform.create(operator, &world.org, &bad))), ["name"]);
}

#[test]
fn input_only_fields_reach_the_kind_and_are_never_returned() {
    let world = World::new();
    let sample = Sample { name: "a".to_owned(), secret: "hush".to_owned(), ..Sample::default() };
    let created: Sample = block_on(world.platform.create(&world.operator, &world.org, &sample)).unwrap();
    assert_eq!((&*created.secret, created.secret_length), ("", 4));
    let longer = Sample { secret: "hush hush".to_owned(), ..Sample::default() };
    let updated = block_on(world.platform.update(&world.operator, &created.uid, &longer, "secret")).unwrap();
    assert_eq!((&*updated.name, &*updated.secret, updated.secret_length), ("a", "", 9));
    let read = world.get(&world.operator, "Sample", &created.uid).unwrap();
    assert_eq!(read.get("secret"), None);
}

#[test]
fn an_unregistered_kind_is_an_internal_error_without_details() {
    let world = World::new();
    let store = Arc::new(MemoryStore::new());
    let platform =
        platform_core::builder(store, world.clock.clone(), SeededEntropy::new(2)).ephemeral_keys().build().unwrap();
    let first = Bootstrap {
        organization: world.org.clone(),
        organization_name: "first".to_owned(),
        operator: world.operator.identity.clone(),
    };
    block_on(Iam::of(&platform).bootstrap(&first)).unwrap();
    let error = block_on(platform.get::<Sample>(&world.operator, &world.org)).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Internal, "Internal error"));
}

#[test]
fn a_repeated_bootstrap_changes_nothing() {
    let world = World::new();
    let first = Bootstrap {
        organization: world.org.clone(),
        organization_name: "another name".to_owned(),
        operator: world.operator.identity.clone(),
    };
    let all = || ["Group", "Role", "RoleBinding", "Identity"].map(|kind| world.walk(&world.operator, kind, &[]));
    let before = all();
    world.clock.advance(1_000);
    block_on(Iam::of(&world.platform).bootstrap(&first)).unwrap();
    block_on(Iam::of(&world.platform).write_built_in_roles()).unwrap();
    assert_eq!(all(), before);
    let group: Group = block_on(world.platform.get(&world.operator, &world.org)).unwrap();
    assert_eq!((&*group.name, group.status), ("first organization", OrgStatus::OrgStatusReady));
    let bindings = block_on(
        world
            .platform
            .list::<RoleBinding>(&world.operator, &ListRequest::from_json(RoleBinding::KIND, Map::new()).unwrap()),
    );
    assert_eq!(bindings.unwrap().total_count, 1);
}

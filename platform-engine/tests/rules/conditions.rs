//! Conditional requests and writes that change nothing (`docs/api.md`, Conditional requests and Updates).

use platform_core::resources::registry::Repo;
use platform_engine::{
    access::Caller,
    error::{Code, Error, Result},
    etag::{Reply, Tag, Tags},
    options::{Preconditions, RequestOptions},
};
use platform_testkit::{Call, GatedStore};
use pollster::block_on;
use serde_json::{Value, json};

use crate::common::{World, built_in, code, digest, object, uid_of};

fn tags(value: &str) -> Option<Tags> {
    Some(Tags::parse(value.as_bytes()).unwrap())
}

fn if_match(value: &str) -> RequestOptions {
    RequestOptions::default().preconditions(Preconditions { if_match: tags(value), if_none_match: None })
}

fn if_none_match(value: &str) -> RequestOptions {
    RequestOptions::default().preconditions(Preconditions { if_match: None, if_none_match: tags(value) })
}

impl World {
    fn read(&self, kind: &str, uid: &str, options: &RequestOptions) -> Result<Reply> {
        block_on(self.platform.get_erased(&self.operator, self.kind(kind), uid, options))
    }

    fn tag_of(&self, kind: &str, uid: &str) -> Tag {
        self.read(kind, uid, RequestOptions::none()).unwrap().tag.unwrap()
    }

    fn write(&self, caller: &Caller, kind: &str, uid: &str, body: Value, options: &RequestOptions) -> Result<Reply> {
        block_on(self.platform.update_erased(caller, self.kind(kind), uid, &object(body), None, options))
    }

    fn remove(&self, caller: &Caller, kind: &str, uid: &str, options: &RequestOptions) -> Result<()> {
        block_on(self.platform.delete_erased(caller, self.kind(kind), uid, options)).map(drop)
    }
}

/// Returns the reason and the etag of an error.
fn mismatch(error: Error) -> (Code, &'static str, Option<String>) {
    let info = error.status("platform.test").details[0].clone();
    (error.code(), error.reason(), info["metadata"]["etag"].as_str().map(str::to_owned))
}

#[test]
fn a_write_with_a_tag_succeeds_once_and_then_names_the_current_tag() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let first = world.tag_of("Repo", &repo);
    let write = |text: &str, tag: &str| {
        world.write(&world.operator, "Repo", &repo, json!({ "description": text }), &if_match(tag))
    };
    let second = write("a", &first.to_string()).unwrap().tag.unwrap();
    assert_ne!(first, second);
    assert_eq!(world.tag_of("Repo", &repo), second);
    let refused = write("b", &first.to_string()).unwrap_err();
    assert_eq!(mismatch(refused), (Code::Aborted, "ETAG_MISMATCH", Some(second.to_string())));
    // A weak tag is not compared strongly, and one of several suffices.
    assert_eq!(code(write("b", &format!("W/{second}"))), Code::Aborted);
    write("b", &format!("{first}, {second}")).unwrap();
    write("c", "*").unwrap();
    let stale = if_match(&second.to_string());
    assert_eq!(code(world.remove(&world.operator, "Repo", &repo, &stale)), Code::Aborted);
    let current = if_match(&world.tag_of("Repo", &repo).to_string());
    world.remove(&world.operator, "Repo", &repo, &current).unwrap();
    assert_eq!(code(world.remove(&world.operator, "Repo", &repo, &current)), Code::NotFound);
}

#[test]
fn if_none_match_on_a_write_names_the_states_that_it_does_not_change() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let tag = world.tag_of("Repo", &repo).to_string();
    for value in ["*", &tag, &format!("W/{tag}")] {
        let options = if_none_match(value);
        let refused = world.write(&world.operator, "Repo", &repo, json!({ "description": "a" }), &options);
        assert_eq!(refused.unwrap_err().reason(), "ETAG_MISMATCH", "{value}");
        assert_eq!(world.remove(&world.operator, "Repo", &repo, &options).unwrap_err().reason(), "ETAG_MISMATCH");
    }
    let options = if_none_match("\"0\"");
    world.write(&world.operator, "Repo", &repo, json!({ "description": "a" }), &options).unwrap();
}

#[test]
fn a_read_requires_the_revision_of_if_match() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let tag = world.tag_of("Repo", &repo);
    world.read("Repo", &repo, &if_match(&tag.to_string())).unwrap();
    let refused = world.read("Repo", &repo, &if_match("\"0\"")).unwrap_err();
    assert_eq!(mismatch(refused), (Code::Aborted, "ETAG_MISMATCH", Some(tag.to_string())));
    // The transport compares it with the tag of the reply.
    world.read("Repo", &repo, &if_none_match(&tag.to_string())).unwrap();
}

#[test]
fn a_change_between_the_comparison_and_the_commit_is_a_mismatch() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let repo = world.repo(&world.org);
    let options = if_match(&world.tag_of("Repo", &repo).to_string());
    let other =
        || drop(world.update(&world.operator, "Repo", &repo, json!({ "description": "theirs" }), None).unwrap());
    let write = || world.write(&world.operator, "Repo", &repo, json!({ "description": "mine" }), &options);
    assert_eq!(gate.interleave(Call::Commit, write, other).unwrap_err().reason(), "ETAG_MISMATCH");
    assert_eq!(world.get(&world.operator, "Repo", &repo).unwrap()["description"], "theirs");
    let options = if_match(&world.tag_of("Repo", &repo).to_string());
    let other = || drop(world.update(&world.operator, "Repo", &repo, json!({ "description": "again" }), None).unwrap());
    let delete = || world.remove(&world.operator, "Repo", &repo, &options);
    assert_eq!(gate.interleave(Call::Commit, delete, other).unwrap_err().reason(), "ETAG_MISMATCH");
    world.get(&world.operator, "Repo", &repo).unwrap();
}

#[test]
fn a_computed_value_changes_the_tag_and_is_no_conflict() {
    let world = World::new();
    let identity = world.identity(&world.org).identity;
    let body = json!({ "identityUid": identity, "roleUid": built_in("viewer") });
    let binding = uid_of(&world.create(&world.operator, "RoleBinding", &world.org, body).unwrap());
    let before = world.tag_of("RoleBinding", &binding);
    // A role binding shows the name of its identity.
    world.update(&world.operator, "Identity", &identity, json!({ "name": "renamed" }), None).unwrap();
    let after = world.tag_of("RoleBinding", &binding);
    assert!(before != after && before.revision() == after.revision(), "{before} {after}");
    world.remove(&world.operator, "RoleBinding", &binding, &if_match(&before.to_string())).unwrap();
}

#[test]
fn a_singleton_that_was_never_written_has_a_tag_that_its_first_write_changes() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let never = world.tag_of("RepoReadme", &repo);
    assert_eq!(never.revision(), 0);
    let write = |tag: &Tag| {
        let options = if_match(&tag.to_string());
        world.write(&world.operator, "RepoReadme", &repo, json!({ "content": "# a" }), &options)
    };
    let written = write(&never).unwrap().tag.unwrap();
    assert_eq!(write(&never).unwrap_err().reason(), "ETAG_MISMATCH");
    write(&written).unwrap();
}

#[test]
fn the_current_tag_is_only_for_callers_who_may_read_the_resource() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let caller = world.holder(&world.org, &["repo.delete"]);
    let options = if_match("\"0\"");
    let refused = world.remove(&caller, "Repo", &repo, &options).unwrap_err();
    assert_eq!(mismatch(refused), (Code::Aborted, "ETAG_MISMATCH", None));
    // Who may not write learns nothing.
    let stranger = world.identity(&world.org);
    for uid in [repo.as_str(), &format!("{}/0000000000000000", world.org)] {
        let refused = world.remove(&stranger, "Repo", uid, &options).unwrap_err();
        assert_eq!(mismatch(refused), (Code::PermissionDenied, "PERMISSION_DENIED", None));
    }
}

#[test]
fn a_method_that_checks_no_precondition_rejects_it_and_changes_nothing() {
    let world = World::new();
    for options in [if_match("\"1\""), if_none_match("*"), if_none_match("\"1\"")] {
        let create = |kind: &str, parent: &str, body: Value| {
            block_on(world.platform.create_erased(&world.operator, world.kind(kind), parent, &object(body), &options))
        };
        assert_eq!(code(create("Repo", &world.org, json!({ "name": "a" }))), Code::FailedPrecondition);
        let repo = world.repo(&world.org);
        let tag = json!({ "name": "a", "digest": digest('0') });
        assert_eq!(code(create("Tag", &repo, tag)), Code::FailedPrecondition);
        for registered in world.platform.registered() {
            for action in registered.actions.iter().filter(|action| !action.http.is_safe()) {
                let (caller, empty) = (Some(&world.operator), object(json!({})));
                let run = world.platform.run_rendered(caller, registered.kind, action, &empty, &options);
                let error = block_on(run).expect_err(action.name);
                let is_expected = matches!(error.code(), Code::FailedPrecondition | Code::InvalidArgument);
                assert!(is_expected, "{}: {error}", action.name);
            }
        }
        assert_eq!(world.list(&world.operator, "Repo", &[("name", "a")]).unwrap().total, 0);
        assert_eq!(world.list(&world.operator, "Tag", &[]).unwrap().total, 0);
    }
}

#[test]
fn a_typed_update_takes_the_revision_that_was_read() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let none = RequestOptions::none();
    let read = block_on(world.platform.get_with::<Repo>(&world.operator, &repo, none)).unwrap();
    let options = RequestOptions::default().preconditions(Preconditions::of_revision(read.revision));
    let update = |text: &str| {
        let repo = Repo { description: text.to_owned(), ..read.resource.clone() };
        block_on(world.platform.update_with(&world.operator, &repo.uid.clone(), &repo, "description", &options))
    };
    let updated = update("a").unwrap();
    assert!(updated.revision > read.revision && updated.resource.description == "a");
    assert_eq!(update("b").unwrap_err().reason(), "ETAG_MISMATCH");
}

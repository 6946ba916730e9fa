//! Concurrent requests: one of two conflicting writes succeeds, writes are atomic, and walks never miss resources.

use std::{
    collections::BTreeSet,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use platform_engine::{
    error::{Code, Result},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use serde_json::{Value, json};

use crate::common::{World, built_in, digest, text, uid_of};

const ROUNDS: usize = 60;

/// Runs both concurrently and returns their results.
fn race<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let a = scope.spawn(|| {
            barrier.wait();
            a()
        });
        barrier.wait();
        let b = b();
        (a.join().expect("no panic"), b)
    })
}

#[test]
fn exactly_one_of_many_concurrent_creates_of_one_name_succeeds() {
    let world = World::new();
    for (kind, body) in [
        ("Repo", json!({ "name": "one" })),
        ("Group", json!({ "name": "one" })),
        ("Role", json!({ "name": "one", "capabilities": ["CAP_REPO_LIST"] })),
    ] {
        let parent = world.group(&world.org);
        let barrier = Barrier::new(8);
        let done: Vec<Result<Value>> = thread::scope(|scope| {
            let creators: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        world.create(&world.operator, kind, &parent, body.clone())
                    })
                })
                .collect();
            creators.into_iter().map(|creator| creator.join().unwrap()).collect()
        });
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "{kind}");
        for error in done.into_iter().filter_map(Result::err) {
            assert_eq!(error.code(), Code::AlreadyExists);
        }
        assert_eq!(world.list(&world.operator, kind, &[("uidp.children_of", &*parent)]).unwrap().total, 1);
    }
}

#[test]
fn concurrent_creates_of_one_tag_all_succeed_and_leave_one_tag() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let barrier = Barrier::new(8);
    let uids: BTreeSet<_> = thread::scope(|scope| {
        let (world, repo, barrier) = (&world, &repo, &barrier);
        let creators: Vec<_> = ('0'..'8')
            .map(|digit| {
                scope.spawn(move || {
                    barrier.wait();
                    let body = json!({ "name": "latest", "digest": digest(digit) });
                    uid_of(&world.create(&world.operator, "Tag", repo, body).unwrap())
                })
            })
            .collect();
        creators.into_iter().map(|creator| creator.join().unwrap()).collect()
    });
    assert_eq!(uids.len(), 1);
    assert_eq!(world.list(&world.operator, "Tag", &[]).unwrap().total, 1);
}

#[test]
fn a_tag_that_is_created_concurrently_is_moved() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let repo = world.repo(&world.org);
    let create = |digit| {
        let body = json!({ "name": "latest", "digest": digest(digit) });
        world.create(&world.operator, "Tag", &repo, body).unwrap()
    };
    let mut first = None;
    let second = gate.interleave(Call::Commit, || create('2'), || first = Some(create('1')));
    assert_eq!((&second["uid"], text(&second, "digest")), (&first.unwrap()["uid"], &*digest('2')));
}

/// The kind of a parent, the kind of a child, and the body of the child.
type Child<'a> = (&'a str, &'a str, Value);

#[test]
fn a_delete_concurrent_with_the_create_of_a_child_leaves_no_orphan() {
    let world = World::new();
    let tag = json!({ "name": "a", "digest": digest('0') });
    let identity = json!({ "name": "a", "claimMatch": { "issuer": "i", "subject": "s" } });
    let binding = json!({ "identityUid": world.operator.identity, "roleUid": built_in("viewer") });
    let children: [Child<'_>; 6] = [
        ("Group", "Repo", json!({ "name": "a" })),
        ("Group", "Group", json!({ "name": "a" })),
        ("Group", "Identity", identity),
        ("Group", "Role", json!({ "name": "a", "capabilities": ["CAP_REPO_LIST"] })),
        ("Group", "RoleBinding", binding),
        ("Repo", "Tag", tag),
    ];
    for (parent_kind, kind, body) in children {
        for _ in 0..ROUNDS {
            let parent = if parent_kind == "Group" { world.group(&world.org) } else { world.repo(&world.org) };
            let (created, deleted) = race(
                || world.create(&world.operator, kind, &parent, body.clone()),
                || world.delete(&world.operator, parent_kind, &parent),
            );
            let left = world.list(&world.operator, kind, &[("uidp.children_of", &*parent)]).unwrap().total;
            let exists = world.get(&world.operator, parent_kind, &parent).is_ok();
            match (created, deleted) {
                (Ok(_), Err(error)) => {
                    assert_eq!((error.code(), left, exists), (Code::FailedPrecondition, 1, true), "{kind}");
                }
                (Err(error), Ok(())) => assert_eq!((error.code(), left, exists), (Code::NotFound, 0, false), "{kind}"),
                // The child was created first and deleted with its parent.
                (Ok(_), Ok(())) => {
                    assert!(left == 0 && !exists && matches!(kind, "Tag" | "RoleBinding"), "{kind}");
                }
                (Err(error), Err(other)) => panic!("{kind}: {error}, {other}"),
            }
        }
    }
}

#[test]
fn of_an_interleaved_delete_and_create_of_a_child_the_later_commit_fails() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let group = world.group(&world.org);
    let create = || world.create(&world.operator, "Repo", &group, json!({ "name": "a" }));
    let delete = || world.delete(&world.operator, "Group", &group);
    let mut repo = None;
    let blocked = gate.interleave(Call::Commit, delete, || repo = Some(uid_of(&create().unwrap())));
    assert_eq!(blocked.unwrap_err().code(), Code::FailedPrecondition);
    world.delete(&world.operator, "Repo", &repo.unwrap()).unwrap();
    let orphan = gate.interleave(Call::Commit, create, || delete().unwrap());
    assert_eq!(orphan.unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_role_or_identity_deleted_while_it_is_bound_has_no_binding() {
    let world = World::new();
    for _ in 0..ROUNDS {
        let (role, identity) = (world.role(&world.org, &["repo.list"]), world.identity(&world.org).identity);
        let body = json!({ "identityUid": identity, "roleUid": role });
        let bind = || world.create(&world.operator, "RoleBinding", &world.org, body.clone());
        let (bound, deleted) = race(bind, || world.delete(&world.operator, "Role", &role));
        assert_ne!(bound.is_ok(), deleted.is_ok(), "{bound:?} {deleted:?}");

        let role = world.role(&world.org, &["repo.list"]);
        let body = json!({ "identityUid": identity, "roleUid": role });
        let bind = || world.create(&world.operator, "RoleBinding", &world.org, body.clone());
        let (_, deleted) = race(bind, || world.delete(&world.operator, "Identity", &identity));
        deleted.unwrap();
        assert_eq!(world.list(&world.operator, "RoleBinding", &[("identity", &*identity)]).unwrap().total, 0);
    }
}

#[test]
fn a_follower_never_shows_values_that_its_source_inherits_by_a_concurrent_following() {
    let world = World::new();
    let top = world.repo(&world.org);
    world.update(&world.operator, "Repo", &top, json!({ "aliases": ["top:1"] }), None).unwrap();
    for _ in 0..ROUNDS {
        let (middle, bottom) = (world.repo(&world.org), world.repo(&world.org));
        let follow = |follower: &Uid, source: &Uid| {
            world.update(&world.operator, "Repo", follower, json!({ "syncConfig": { "source": source } }), None)
        };
        let (above, below) = race(|| follow(&middle, &top), || follow(&bottom, &middle));
        assert_eq!(above.unwrap()["aliases"], json!(["top:1"]));
        assert_eq!(below.unwrap().get("aliases"), None);
        assert_eq!(world.get(&world.operator, "Repo", &bottom).unwrap().get("aliases"), None);
    }
}

#[test]
fn concurrent_registrations_of_one_person_yield_one_identity() {
    let world = World::new();
    let uids: BTreeSet<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| world.person("ada", None).identity)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(uids.len(), 1);
}

#[test]
fn a_walk_returns_each_resource_that_exists_throughout_once_despite_writes_between_pages() {
    for order in ["name", "name desc", "uid", "uid desc", "createTime", "updateTime desc"] {
        let world = World::new();
        let stable: BTreeSet<Uid> = (0..30).map(|_| world.repo(&world.org)).collect();
        let mut transient: Vec<Uid> = (0..15).map(|_| world.repo(&world.org)).collect();
        let mut seen: Vec<Uid> = Vec::new();
        let mut token = String::new();
        loop {
            let query = [("order_by", order), ("page_size", "4"), ("page_token", &token)];
            let page = world.list(&world.operator, "Repo", &query).unwrap();
            seen.extend(page.items.iter().map(uid_of));
            let Some(next) = page.next else { break };
            token = next;
            // Other repos are created, moved in the order and deleted, including the one that the page token refers to.
            world.clock.advance(5);
            let deleted = transient.remove(0);
            world.delete(&world.operator, "Repo", &deleted).unwrap();
            let names = [format!("a {}", world.serial()), format!("z {}", world.serial())];
            for name in names {
                transient
                    .push(uid_of(&world.create(&world.operator, "Repo", &world.org, json!({ "name": name })).unwrap()));
            }
            let moved = json!({ "name": format!("m {}", world.serial()) });
            world.update(&world.operator, "Repo", &transient[0], moved, None).unwrap();
        }
        let seen_stable: Vec<_> = seen.into_iter().filter(|uid| stable.contains(uid)).collect();
        assert_eq!(seen_stable.len(), stable.len(), "{order}");
        assert_eq!(seen_stable.into_iter().collect::<BTreeSet<_>>(), stable, "{order}");
    }
}

#[test]
fn walks_concurrent_with_writes_return_every_stable_resource_and_a_correct_total() {
    let world = World::new();
    let stable: BTreeSet<String> = (0..40).map(|_| world.repo(&world.org).to_string()).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let transient = world.repo(&world.org);
                world
                    .update(
                        &world.operator,
                        "Repo",
                        &transient,
                        json!({ "name": format!("m {}", world.serial()) }),
                        None,
                    )
                    .unwrap();
                world.delete(&world.operator, "Repo", &transient).unwrap();
            }
        });
        for round in 0..30 {
            let order = ["name", "name desc", "uid desc", "createTime"][round % 4];
            let all = world.walk(&world.operator, "Repo", &[("order_by", order), ("page_size", "7")]);
            let seen: Vec<_> =
                all.iter().map(|repo| text(repo, "uid").to_owned()).filter(|uid| stable.contains(uid)).collect();
            assert_eq!(seen.len(), stable.len(), "{order}");
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), stable, "{order}");
            // The writer has at most one transient repo at a time.
            let total = world.list(&world.operator, "Repo", &[]).unwrap().total;
            assert!((40..=41).contains(&total), "{total}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

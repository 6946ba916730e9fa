//! What happens at the same time: one of two wins, nothing is left half done, and a walk misses nothing that stands.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use platform_core::{
    error::{Code, Result},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, digest, text, uid_of},
    paused::{Call, Paused},
};

const ROUNDS: usize = 60;

/// Begins both at once and returns what became of each.
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
fn of_many_creators_of_one_name_exactly_one_wins() {
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
fn of_many_creators_of_one_tag_all_move_it_and_there_is_one() {
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
fn a_tag_that_someone_else_creates_in_between_is_moved() {
    let store = Paused::default();
    let gate = store.gate();
    let world = World::over(Arc::new(store));
    let repo = world.repo(&world.org);
    let create = |digit| {
        let body = json!({ "name": "latest", "digest": digest(digit) });
        world.create(&world.operator, "Tag", &repo, body).unwrap()
    };
    let mut first = None;
    let second = gate.between(Call::Commit, || create('2'), || first = Some(create('1')));
    assert_eq!((&second["uid"], text(&second, "digest")), (&first.unwrap()["uid"], &*digest('2')));
}

/// A parent's delete beside a child's create: what a child is made of.
type Child<'a> = (&'a str, &'a str, Value);

#[test]
fn a_delete_beside_the_create_of_a_child_leaves_no_orphan() {
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
            let stands = world.get(&world.operator, parent_kind, &parent).is_ok();
            match (created, deleted) {
                (Ok(_), Err(error)) => {
                    assert_eq!((error.code(), left, stands), (Code::FailedPrecondition, 1, true), "{kind}");
                }
                (Err(error), Ok(())) => assert_eq!((error.code(), left, stands), (Code::NotFound, 0, false), "{kind}"),
                // The child was there first and went with its parent.
                (Ok(_), Ok(())) => {
                    assert!(left == 0 && !stands && matches!(kind, "Tag" | "RoleBinding"), "{kind}");
                }
                (Err(error), Err(other)) => panic!("{kind}: {error}, {other}"),
            }
        }
    }
}

#[test]
fn each_order_of_a_delete_and_the_create_of_a_child_has_its_answer() {
    let store = Paused::default();
    let gate = store.gate();
    let world = World::over(Arc::new(store));
    let group = world.group(&world.org);
    let create = || world.create(&world.operator, "Repo", &group, json!({ "name": "a" }));
    let delete = || world.delete(&world.operator, "Group", &group);
    let mut repo = None;
    let blocked = gate.between(Call::Commit, delete, || repo = Some(uid_of(&create().unwrap())));
    assert_eq!(blocked.unwrap_err().code(), Code::FailedPrecondition);
    world.delete(&world.operator, "Repo", &repo.unwrap()).unwrap();
    let orphan = gate.between(Call::Commit, create, || delete().unwrap());
    assert_eq!(orphan.unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_role_or_identity_that_is_deleted_while_it_is_bound_is_not_bound() {
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
fn of_a_follower_and_its_source_that_follow_at_once_the_follower_shows_nothing_of_what_its_source_follows() {
    let world = World::new();
    let top = world.repo(&world.org);
    world.update(&world.operator, "Repo", &top, json!({ "aliases": ["top:1"] }), None).unwrap();
    for _ in 0..ROUNDS {
        let (middle, bottom) = (world.repo(&world.org), world.repo(&world.org));
        let follow = |who: &Uid, whom: &Uid| {
            world.update(&world.operator, "Repo", who, json!({ "syncConfig": { "source": whom } }), None)
        };
        let (above, below) = race(|| follow(&middle, &top), || follow(&bottom, &middle));
        assert_eq!(above.unwrap()["aliases"], json!(["top:1"]));
        assert_eq!(below.unwrap().get("aliases"), None);
        assert_eq!(world.get(&world.operator, "Repo", &bottom).unwrap().get("aliases"), None);
    }
}

#[test]
fn of_many_who_register_as_one_person_all_are_that_person() {
    let world = World::new();
    let uids: BTreeSet<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| world.person("ada", None).identity)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(uids.len(), 1);
}

#[test]
fn a_walk_sees_each_resource_that_stands_throughout_once_whatever_is_written_between_its_pages() {
    for order in ["name", "name desc", "uid", "uid desc", "createTime", "updateTime desc"] {
        let world = World::new();
        let standing: BTreeSet<Uid> = (0..30).map(|_| world.repo(&world.org)).collect();
        let mut passing: Vec<Uid> = (0..15).map(|_| world.repo(&world.org)).collect();
        let mut seen: Vec<Uid> = Vec::new();
        let mut token = String::new();
        loop {
            let query = [("order_by", order), ("page_size", "4"), ("page_token", &token)];
            let page = world.list(&world.operator, "Repo", &query).unwrap();
            seen.extend(page.items.iter().map(uid_of));
            let Some(next) = page.next else { break };
            token = next;
            // Others come before and after, change their place, and go, the one that the token points at too.
            world.clock.advance(5);
            let gone = passing.remove(0);
            world.delete(&world.operator, "Repo", &gone).unwrap();
            let names = [format!("a {}", world.serial()), format!("z {}", world.serial())];
            for name in names {
                passing
                    .push(uid_of(&world.create(&world.operator, "Repo", &world.org, json!({ "name": name })).unwrap()));
            }
            let moved = json!({ "name": format!("m {}", world.serial()) });
            world.update(&world.operator, "Repo", &passing[0], moved, None).unwrap();
        }
        let seen_standing: Vec<_> = seen.into_iter().filter(|uid| standing.contains(uid)).collect();
        assert_eq!(seen_standing.len(), standing.len(), "{order}");
        assert_eq!(seen_standing.into_iter().collect::<BTreeSet<_>>(), standing, "{order}");
    }
}

#[test]
fn walks_beside_a_busy_writer_miss_nothing_that_stands_and_count_what_there_is() {
    let world = World::new();
    let standing: BTreeSet<String> = (0..40).map(|_| world.repo(&world.org).to_string()).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let passing = world.repo(&world.org);
                world
                    .update(&world.operator, "Repo", &passing, json!({ "name": format!("m {}", world.serial()) }), None)
                    .unwrap();
                world.delete(&world.operator, "Repo", &passing).unwrap();
            }
        });
        for round in 0..30 {
            let order = ["name", "name desc", "uid desc", "createTime"][round % 4];
            let all = world.walk(&world.operator, "Repo", &[("order_by", order), ("page_size", "7")]);
            let seen: Vec<_> =
                all.iter().map(|repo| text(repo, "uid").to_owned()).filter(|uid| standing.contains(uid)).collect();
            assert_eq!(seen.len(), standing.len(), "{order}");
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), standing, "{order}");
            // One commit at a time: there is at most one that passes.
            let total = world.list(&world.operator, "Repo", &[]).unwrap().total;
            assert!((40..=41).contains(&total), "{total}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

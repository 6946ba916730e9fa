//! Lists: pages, page tokens, orders, skip and totals (`docs/api.md`, Lists).

use bytes::Bytes;
use platform_core::resources::{iam::Role, registry::Repo};
use platform_engine::{access::Caller, aip::page_token::PageKeys, error::Code, kind::Resource, uid::Uid, write::Write};
use serde_json::json;

use crate::common::{BEGIN, Page, World, block_on, built_in, code, text, uid_of, violated_fields};

const DAY: i64 = 24 * 60 * 60 * 1000;

/// Creates a world with a group of `count` repos, named by their number.
fn world_with_repos(count: usize) -> (World, Uid) {
    let world = World::new();
    let group = world.group(&world.org);
    for number in 0..count {
        let body = json!({ "name": format!("repo {number:03}") });
        world.create(&world.operator, "Repo", &group, body).unwrap();
    }
    (world, group)
}

fn names(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| format!("repo {number:03}")).collect()
}

#[test]
fn page_size_defaults_to_50_and_is_capped_at_200() {
    let (world, _) = world_with_repos(205);
    let page = |size: &str| world.list(&world.operator, "Repo", &[("page_size", size)]).unwrap().items.len();
    let sizes = [("", 50), ("0", 50), ("1", 1), ("50", 50), ("200", 200), ("201", 200), ("2147483647", 200)];
    for (asked, got) in sizes {
        assert_eq!(page(asked), got, "{asked:?}");
    }
    assert_eq!(world.list(&world.operator, "Repo", &[]).unwrap().items.len(), 50);
}

#[test]
fn a_negative_or_malformed_page_size_or_skip_is_rejected_by_name() {
    let world = World::new();
    for bad in ["-1", "2147483648", "1e3", " 5", "0x5", "5.5", "many", "+5"] {
        for name in ["page_size", "skip"] {
            let listed = world.list(&world.operator, "Repo", &[(name, bad)]);
            assert_eq!(violated_fields(listed), [name], "{bad}");
        }
    }
    let both = world.list(&world.operator, "Repo", &[("page_size", "-1"), ("skip", "-1"), ("order_by", "size")]);
    assert_eq!(violated_fields(both), ["page_size", "skip", "order_by"]);
}

#[test]
fn all_pages_together_are_the_whole_list_and_each_has_the_total() {
    let (world, _) = world_with_repos(25);
    for size in ["1", "5", "7", "24", "25", "26"] {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let query = [("order_by", "name"), ("page_size", size), ("page_token", &token)];
            let page = world.list(&world.operator, "Repo", &query).unwrap();
            assert_eq!((page.total, page.skipped), (25, 0));
            assert!(!page.items.is_empty(), "only the page of an empty list is empty");
            found.extend(page.names());
            match page.next {
                Some(next) => token = next,
                None => break,
            }
        }
        assert_eq!(found, names(0..25), "{size}");
    }
}

#[test]
fn a_list_without_visible_resources_is_empty_and_not_an_error() {
    let (world, group) = world_with_repos(3);
    let unbound = world.identity(&world.org);
    for query in [&[][..], &[("uidp.descendants_of", &*group)], &[("name", "repo 000")]] {
        let page = world.list(&unbound, "Repo", query).unwrap();
        assert_eq!((page.items.len(), page.total, page.next), (0, 0, None));
    }
}

#[test]
fn a_page_token_is_bound_to_its_caller_kind_scope_filters_and_order() {
    let (world, group) = world_with_repos(5);
    let viewer = world.member("viewer", &world.org);
    let scope = ("uidp.descendants_of", &*group);
    let first = [scope, ("order_by", "name"), ("page_size", "2")];
    let token = world.list(&viewer, "Repo", &first).unwrap().next.unwrap();
    let next = |caller: &Caller, kind: &str, query: &[(&str, &str)]| {
        let query: Vec<_> = query.iter().copied().chain([("page_token", &*token)]).collect();
        world.list(caller, kind, &query)
    };
    assert_eq!(next(&viewer, "Repo", &first).unwrap().names(), names(2..4));
    let foreign = [
        next(&world.operator, "Repo", &first),
        next(&viewer, "Group", &first),
        next(&viewer, "Repo", &[("order_by", "name")]),
        next(&viewer, "Repo", &[("uidp.descendants_of", &*world.org), ("order_by", "name")]),
        next(&viewer, "Repo", &[("uidp.children_of", &*group), ("order_by", "name")]),
        next(&viewer, "Repo", &[scope, ("order_by", "name"), ("name", "repo 001")]),
        next(&viewer, "Repo", &[scope, ("order_by", "name desc")]),
        next(&viewer, "Repo", &[scope]),
    ];
    for rejected in foreign {
        assert_eq!(violated_fields(rejected), ["page_token"]);
    }
}

#[test]
fn an_equivalent_list_request_accepts_the_page_token() {
    let (world, group) = world_with_repos(5);
    let repos = world.walk(&world.operator, "Repo", &[("order_by", "name")]);
    let ids: Vec<_> = repos.iter().map(|repo| text(repo, "uid")).collect();
    let asked = |order: &[(&'static str, &str)], token: &str| {
        let query: Vec<_> = order.iter().copied().chain([("page_size", "2"), ("page_token", token)]).collect();
        world.list(&world.operator, "Repo", &query)
    };
    let equivalent = [
        vec![("uidp.descendants_of", &*group), ("uidp.ids", ids[0]), ("uidp.ids", ids[1]), ("uidp.ids", ids[2])],
        vec![("uidp.ids", ids[2]), ("uidp.ids", ids[1]), ("uidp.ids", ids[0]), ("uidp.descendants_of", &*group)],
        vec![
            ("uidp.ids", ids[0]),
            ("uidp.ids", ids[0]),
            ("uidp.ids", ids[1]),
            ("uidp.ids", ids[2]),
            ("uidp.descendantsOf", &*group),
            ("order_by", "uid asc"),
            ("name", ""),
            ("uidp.in_root", "false"),
        ],
    ];
    let token = asked(&equivalent[0], "").unwrap().next.unwrap();
    for query in &equivalent {
        let page = asked(query, &token).unwrap();
        assert_eq!((page.items.len(), page.total), (1, 3), "{query:?}");
    }
}

#[test]
fn page_size_and_skip_may_change_between_pages() {
    let (world, _) = world_with_repos(20);
    let page = |query: &[(&str, &str)]| {
        let query: Vec<_> = query.iter().copied().chain([("order_by", "name")]).collect();
        world.list(&world.operator, "Repo", &query).unwrap()
    };
    let first = page(&[("page_size", "2")]);
    let second = page(&[("page_size", "3"), ("page_token", &first.next.unwrap())]);
    assert_eq!(second.names(), names(2..5));
    let third = page(&[("page_size", "2"), ("skip", "4"), ("page_token", &second.next.unwrap())]);
    assert_eq!((third.names(), third.skipped, third.total), (names(9..11), 4, 20));
    let fourth = page(&[("page_token", &third.next.unwrap())]);
    assert_eq!((fourth.names(), fourth.skipped), (names(11..20), 0));
}

#[test]
fn skip_counts_from_the_page_token_or_the_start_and_is_echoed_even_past_the_end() {
    let (world, _) = world_with_repos(5);
    let page = |skip: &str| {
        world.list(&world.operator, "Repo", &[("order_by", "name desc"), ("skip", skip), ("page_size", "2")]).unwrap()
    };
    for (skip, expected) in
        [("0", vec![4, 3]), ("1", vec![3, 2]), ("4", vec![0]), ("5", vec![]), ("2147483647", vec![])]
    {
        let page = page(skip);
        assert_eq!(page.names(), names(expected.into_iter()), "{skip}");
        assert_eq!((page.skipped.to_string(), page.total), (skip.to_owned(), 5));
    }
}

#[test]
fn a_page_token_modified_at_any_position_is_rejected() {
    let (world, _) = world_with_repos(3);
    let token = world.list(&world.operator, "Repo", &[("page_size", "1")]).unwrap().next.unwrap();
    let mut forged: Vec<String> = (0..token.len())
        .map(|at| {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            String::from_utf8(bytes).unwrap()
        })
        .collect();
    forged.extend([token.clone() + "A", token[1..].to_owned(), format!("{token}="), "x".to_owned(), " ".to_owned()]);
    for forged in forged {
        let listed = world.list(&world.operator, "Repo", &[("page_size", "1"), ("page_token", &forged)]);
        assert_eq!(violated_fields(listed), ["page_token"], "{forged}");
    }
}

#[test]
fn a_page_token_older_than_three_days_restarts_the_list() {
    let (world, _) = world_with_repos(4);
    let query = [("order_by", "name"), ("page_size", "2")];
    let token = world.list(&world.operator, "Repo", &query).unwrap().next.unwrap();
    let with_token = [query[0], query[1], ("page_token", &*token)];
    world.clock.set(BEGIN.plus_millis(3 * DAY));
    assert_eq!(world.list(&world.operator, "Repo", &with_token).unwrap().names(), names(2..4));
    world.clock.set(BEGIN.plus_millis(3 * DAY + 1));
    let restarted = world.list(&world.operator, "Repo", &with_token).unwrap();
    assert_eq!(restarted.names(), names(0..2));
    // Only age restarts a list: an old token of another list is still rejected.
    let other = world.list(&world.operator, "Repo", &[("page_token", &token)]);
    assert_eq!(violated_fields(other), ["page_token"]);
}

#[test]
fn a_page_token_survives_a_key_rotation_and_is_rejected_once_its_key_is_removed() {
    let (world, _) = world_with_repos(4);
    world.platform.set_page_keys(PageKeys::new([(1, [1; 32])]));
    let query = [("order_by", "name"), ("page_size", "2")];
    let token = world.list(&world.operator, "Repo", &query).unwrap().next.unwrap();
    let with_token = [query[0], query[1], ("page_token", &*token)];
    world.platform.set_page_keys(PageKeys::new([(2, [2; 32]), (1, [1; 32])]));
    assert_eq!(world.list(&world.operator, "Repo", &with_token).unwrap().names(), names(2..4));
    world.platform.set_page_keys(PageKeys::new([(2, [2; 32])]));
    assert_eq!(violated_fields(world.list(&world.operator, "Repo", &with_token)), ["page_token"]);
}

#[test]
fn access_is_evaluated_again_for_each_page() {
    let (world, group) = world_with_repos(6);
    let sibling = world.group(&world.org);
    world.create(&world.operator, "Repo", &sibling, json!({ "name": "repo 100" })).unwrap();
    let caller = world.identity(&world.org);
    let binding = world.bind(&caller, &built_in("viewer"), &group);
    let query = [("order_by", "name"), ("page_size", "2")];
    let first = world.list(&caller, "Repo", &query).unwrap();
    assert_eq!((first.names(), first.total), (names(0..2), 6));
    let token = first.next.unwrap();
    let with_token = [query[0], query[1], ("page_token", &*token)];

    world.bind(&caller, &built_in("viewer"), &sibling);
    assert_eq!(world.list(&caller, "Repo", &with_token).unwrap().total, 7);
    world.delete(&world.operator, "RoleBinding", &binding).unwrap();
    let rest = world.list(&caller, "Repo", &with_token).unwrap();
    assert_eq!((rest.names(), rest.total, rest.next), (vec!["repo 100".to_owned()], 1, None));
}

#[test]
fn order_by_accepts_one_field_in_any_spelling_and_an_optional_direction() {
    let (world, _) = world_with_repos(3);
    let order = |order: &str| world.list(&world.operator, "Repo", &[("order_by", order)]);
    for good in
        ["name", "name asc", "name desc", " name  desc ", "created_at desc", "create_time", "updatedAt", "uid", ""]
    {
        assert_eq!(order(good).unwrap().total, 3, "{good:?}");
    }
    for bad in ["size", "name descending", "name,uid", "desc", "name desc uid", "-name", "name;drop table", "NAME"] {
        assert_eq!(violated_fields(order(bad)), ["order_by"], "{bad:?}");
    }
}

#[test]
fn ties_are_broken_by_uid_and_descending_is_the_exact_reverse() {
    let (world, _) = world_with_repos(12);
    let uids = |order: &str| {
        let all = world.walk(&world.operator, "Repo", &[("order_by", order), ("page_size", "5")]);
        all.iter().map(|repo| text(repo, "uid").to_owned()).collect::<Vec<_>>()
    };
    // All were created at the same time.
    let ascending = uids("created_at");
    assert!(ascending.is_sorted());
    let mut descending = uids("created_at desc");
    descending.reverse();
    assert_eq!(ascending, descending);
}

#[test]
fn a_repeated_or_unknown_parameter_is_rejected() {
    let world = World::new();
    let org = &*world.org;
    let bad: [(&[(&str, &str)], &str); 7] = [
        (&[("name", "a"), ("name", "a")], "name"),
        (&[("page_size", "1"), ("pageSize", "1")], "page_size"),
        (&[("uidp.descendants_of", org), ("uidp.descendantsOf", org)], "uidp.descendants_of"),
        (&[("uidp.in_root", "true"), ("uidp.in_root", "true")], "uidp.in_root"),
        (&[("uidp", "x")], "uidp"),
        (&[("uidp.name", "x")], "uidp.name"),
        (&[("digest", "x")], "digest"),
    ];
    for (query, field) in bad {
        assert_eq!(violated_fields(world.list(&world.operator, "Repo", query)), [field], "{query:?}");
    }
    let all = world.list(&world.operator, "Repo", &[("nam", "a"), ("skip", "1"), ("skip", "2"), ("x.y", "z")]);
    assert_eq!(violated_fields(all), ["nam", "skip", "x.y"]);
}

#[test]
fn a_request_with_an_invalid_page_size_and_page_token_is_rejected() {
    let world = World::new();
    let listed = world.list(&world.operator, "Repo", &[("page_token", "forged"), ("page_size", "-1")]);
    assert_eq!(code(listed), Code::InvalidArgument);
}

/// Writes a resource to the store without validation.
fn put_unvalidated<R: Resource>(world: &World, uid: &Uid, resource: &R) {
    let mut write = Write::default();
    write.put(uid, resource, Bytes::new()).unwrap();
    block_on(world.platform.store().commit(write.into_commit())).unwrap();
}

/// Walks a list and returns the number of resources of each page, and of all pages.
fn pages(world: &World, kind: &str, order: &str) -> (Vec<usize>, usize) {
    let (mut sizes, mut uids, mut token) = (Vec::new(), std::collections::BTreeSet::new(), String::new());
    loop {
        let query = [("order_by", order), ("page_size", "200"), ("page_token", &token)];
        let page = world.list(&world.operator, kind, &query).unwrap();
        sizes.push(page.items.len());
        uids.extend(page.items.iter().map(uid_of));
        match page.next {
            Some(next) => token = next,
            None => return (sizes, uids.len()),
        }
    }
}

#[test]
fn a_page_has_at_most_4_mib_and_the_next_page_token_leads_to_the_rest() {
    let world = World::unguarded();
    for _ in 0..10 {
        let uid = world.repo(&world.org);
        let repo =
            Repo { uid: uid.clone(), name: uid.to_string(), aliases: vec!["a".repeat(999_000)], ..Repo::default() };
        put_unvalidated(&world, &uid, &repo);
    }
    world.repo(&world.org);
    for order in ["uid", "name desc", "createTime"] {
        let (sizes, all) = pages(&world, "Repo", order);
        assert_eq!(all, 11);
        assert!(sizes.iter().all(|size| *size <= 5) && sizes.len() == 3, "{order}: {sizes:?}");
    }
    let page = world.list(&world.operator, "Repo", &[("skip", "10")]).unwrap();
    assert_eq!((page.items.len(), page.total, page.next), (1, 11, None));
}

#[test]
fn resources_embedded_in_a_resource_count_towards_the_bytes_of_a_page() {
    let world = World::unguarded();
    let role = world.role(&world.org, &["repo.list"]);
    let long = Role { uid: role.clone(), description: "d".repeat(1_000_000), ..Role::default() };
    put_unvalidated(&world, &role, &long);
    let bindings: Vec<_> = (0..10).map(|_| world.bind(&world.identity(&world.org), &role, &world.org)).collect();
    let of_the_role = |page: &Page| page.items.iter().filter(|item| bindings.contains(&uid_of(item))).count();
    let first = world.list(&world.operator, "RoleBinding", &[("order_by", "uid")]).unwrap();
    assert_eq!(first.total, bindings.len() as u64 + 1);
    assert!(of_the_role(&first) <= 4 && first.next.is_some(), "{}", of_the_role(&first));
    for order in ["uid", "uid desc", "createTime", "updateTime desc"] {
        let (sizes, all) = pages(&world, "RoleBinding", order);
        assert_eq!(all as u64, first.total);
        assert!(sizes.len() >= 3, "{order}: {sizes:?}");
    }
}

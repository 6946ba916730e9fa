//! Hierarchy filters and the filters of kinds (`docs/api.md`, Hierarchy filters, Tags).

use platform_engine::uid::Uid;
use serde_json::json;

use crate::common::{World, digest, text, violated_fields};

/// An organization, a folder in it and a folder in that folder, with a repo in each.
struct Tree {
    world: World,
    top: Uid,
    middle: Uid,
    bottom: Uid,
}

impl Tree {
    fn new() -> Self {
        let world = World::new();
        let top = world.organization();
        let middle = world.group(&top);
        let bottom = world.group(&middle);
        for group in [&top, &middle, &bottom] {
            world.repo(group);
        }
        Self { world, top, middle, bottom }
    }

    /// Returns the uids of a list, without the initial resources of the world.
    fn listed(&self, kind: &str, query: &[(&str, &str)]) -> Vec<String> {
        let page = self.world.list(&self.world.operator, kind, query).unwrap();
        assert_eq!(page.total as usize, page.items.len());
        page.uids().into_iter().filter(|uid| uid.starts_with(&*self.top)).collect()
    }

    fn groups(&self, query: &[(&str, &str)]) -> Vec<String> {
        self.listed("Group", query)
    }

    fn parents_of_repos(&self, query: &[(&str, &str)]) -> Vec<Uid> {
        self.listed("Repo", query).iter().map(|uid| Uid::parse(uid).unwrap().parent().unwrap()).collect()
    }
}

#[test]
fn descendants_of_includes_the_resource_itself_and_children_of_only_direct_children() {
    let tree = Tree::new();
    let (top, middle, bottom) = (&*tree.top, &*tree.middle, &*tree.bottom);
    assert_eq!(tree.groups(&[("uidp.descendants_of", top)]), [top, middle, bottom]);
    assert_eq!(tree.groups(&[("uidp.descendants_of", middle)]), [middle, bottom]);
    assert_eq!(tree.groups(&[("uidp.children_of", top)]), [middle]);
    assert_eq!(tree.groups(&[("uidp.children_of", bottom)]), [""; 0]);
    let mut below = tree.parents_of_repos(&[("uidp.descendants_of", middle)]);
    below.sort();
    assert_eq!(below, [tree.middle.clone(), tree.bottom.clone()]);
    assert_eq!(tree.parents_of_repos(&[("uidp.children_of", middle)]), std::slice::from_ref(&tree.middle));
    let repo = &tree.listed("Repo", &[("uidp.children_of", bottom)])[0];
    assert_eq!(tree.listed("Repo", &[("uidp.descendants_of", repo)]), std::slice::from_ref(repo));
}

#[test]
fn ancestors_of_excludes_the_resource_itself_and_in_root_selects_resources_without_a_group() {
    let tree = Tree::new();
    let (top, middle, bottom) = (&*tree.top, &*tree.middle, &*tree.bottom);
    assert_eq!(tree.groups(&[("uidp.ancestors_of", bottom)]), [top, middle]);
    assert_eq!(tree.groups(&[("uidp.ancestors_of", top)]), [""; 0]);
    assert_eq!(tree.groups(&[("uidp.in_root", "true")]), [top]);
    assert_eq!(tree.groups(&[("uidp.children_of", "/")]), [top]);
    assert_eq!(tree.groups(&[("uidp.in_root", "false")]), [top, middle, bottom]);
    assert_eq!(tree.listed("Repo", &[("uidp.in_root", "true")]), [""; 0]);
}

#[test]
fn ids_selects_these_uids_and_silently_omits_invisible_and_missing_ones() {
    let tree = Tree::new();
    let (top, bottom) = (&*tree.top, &*tree.bottom);
    let missing = format!("{top}/0000000000000000");
    let query = [("uidp.ids", bottom), ("uidp.ids", &*missing), ("uidp.ids", top), ("uidp.ids", bottom)];
    assert_eq!(tree.groups(&query), [top, bottom]);
    let stranger = tree.world.member("owner", &tree.world.organization());
    let page = tree.world.list(&stranger, "Group", &query).unwrap();
    assert_eq!((page.items.len(), page.total), (0, 0));
    let many: Vec<_> = (0..999).map(|n| format!("{top}/{n:016x}")).collect();
    let many: Vec<_> = many.iter().map(|uid| ("uidp.ids", &**uid)).chain([("uidp.ids", bottom)]).collect();
    assert_eq!(tree.groups(&many), [bottom]);
}

#[test]
fn hierarchy_filters_combine_by_and() {
    let tree = Tree::new();
    let (top, middle, bottom) = (&*tree.top, &*tree.middle, &*tree.bottom);
    assert_eq!(tree.groups(&[("uidp.descendants_of", middle), ("uidp.ancestors_of", bottom)]), [middle]);
    assert_eq!(tree.groups(&[("uidp.descendants_of", middle), ("uidp.children_of", top)]), [middle]);
    assert_eq!(tree.groups(&[("uidp.descendants_of", middle), ("uidp.in_root", "true")]), [""; 0]);
    assert_eq!(tree.groups(&[("uidp.ids", middle), ("uidp.ids", top), ("uidp.in_root", "true")]), [top]);
}

#[test]
fn a_hierarchy_filter_rejects_a_truncated_or_malformed_uid() {
    let tree = Tree::new();
    let truncated = &tree.bottom[..tree.bottom.len() - 1];
    for name in ["uidp.descendants_of", "uidp.children_of", "uidp.ancestors_of", "uidp.ids"] {
        for bad in [truncated, "x", "%", "*", "/x", "//"] {
            let listed = tree.world.list(&tree.world.operator, "Group", &[(name, bad)]);
            assert_eq!(violated_fields(listed), [name], "{bad}");
        }
    }
}

#[test]
fn a_name_filter_matches_exactly_and_an_empty_one_is_ignored() {
    let world = World::new();
    for name in ["a", "ab", "b a"] {
        world.create(&world.operator, "Repo", &world.org, json!({ "name": name })).unwrap();
    }
    for (name, expected) in [("a", vec!["a"]), ("A", vec![]), ("%", vec![]), ("", vec!["a", "ab", "b a"])] {
        let page = world.list(&world.operator, "Repo", &[("name", name), ("order_by", "name")]).unwrap();
        assert_eq!(
            (page.names(), page.total),
            (expected.iter().map(|n| (*n).to_owned()).collect(), expected.len() as u64)
        );
    }
}

#[test]
fn tags_of_three_families_are_hidden_unless_requested_by_family_or_exact_name() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let all = ["1.2", "1.2-20260102", "1.2-r3", "latest", "sha256-abc", "sha256-abc-r1"];
    for name in all {
        world.tag(&repo, name);
    }
    let listed = |query: &[(&str, &str)]| {
        let query: Vec<_> = query.iter().copied().chain([("order_by", "name"), ("uidp.children_of", &*repo)]).collect();
        let page = world.list(&world.operator, "Tag", &query).unwrap();
        assert_eq!(page.total as usize, page.items.len());
        page.names()
    };
    let (yes, no) = ("true", "false");
    assert_eq!(listed(&[]), ["1.2", "latest"]);
    assert_eq!(listed(&[("include_dates", no), ("include_epochs", no)]), ["1.2", "latest"]);
    assert_eq!(listed(&[("include_dates", yes)]), ["1.2", "1.2-20260102", "latest"]);
    assert_eq!(listed(&[("includeEpochs", yes)]), ["1.2", "1.2-r3", "latest"]);
    assert_eq!(listed(&[("include_referrers", yes)]), ["1.2", "latest", "sha256-abc"]);
    let both = [("include_referrers", yes), ("include_epochs", yes)];
    assert_eq!(listed(&both), ["1.2", "1.2-r3", "latest", "sha256-abc", "sha256-abc-r1"]);
    assert_eq!(listed(&[both[0], both[1], ("include_dates", yes)]), all);
    for name in all {
        assert_eq!(listed(&[("name", name)]), [name]);
    }
}

#[test]
fn updated_since_is_exclusive_and_digest_matches_exactly() {
    let world = World::new();
    let repo = world.repo(&world.org);
    for (name, digit) in [("a", '1'), ("b", '2'), ("c", '1')] {
        let body = json!({ "name": name, "digest": digest(digit) });
        world.create(&world.operator, "Tag", &repo, body).unwrap();
        world.clock.advance(1_000);
    }
    let tags = world.walk(&world.operator, "Tag", &[("order_by", "name")]);
    let listed = |query: &[(&str, &str)]| world.list(&world.operator, "Tag", query).unwrap();
    let since = |tag: usize| listed(&[("updated_since", text(&tags[tag], "updateTime")), ("order_by", "name")]).names();
    assert_eq!(since(0), ["b", "c"]);
    assert_eq!(since(2), [""; 0]);
    assert_eq!(listed(&[("digest", &digest('1')), ("order_by", "name")]).names(), ["a", "c"]);
    let both = [("digest", &*digest('1')), ("updatedSince", text(&tags[1], "updateTime"))];
    assert_eq!(listed(&both).names(), ["c"]);
    let bad = world.list(&world.operator, "Tag", &[("updated_since", "yesterday"), ("include_dates", "maybe")]);
    assert_eq!(violated_fields(bad), ["updatedSince", "includeDates"]);
}

#[test]
fn different_filters_of_a_kind_combine_by_and_and_a_repeated_one_by_or() {
    let world = World::new();
    for (name, labels) in [("a", json!(["red"])), ("b", json!(["red", "blue"])), ("c", json!(["green"]))] {
        world.create(&world.operator, "Sample", &world.org, json!({ "name": name, "labels": labels })).unwrap();
    }
    let listed = |query: &[(&str, &str)]| {
        let query: Vec<_> = query.iter().copied().chain([("order_by", "name")]).collect();
        world.list(&world.operator, "Sample", &query).unwrap().names()
    };
    assert_eq!(listed(&[("labels", "red")]), ["a", "b"]);
    assert_eq!(listed(&[("labels", "blue"), ("labels", "green")]), ["b", "c"]);
    assert_eq!(listed(&[("labels", "red"), ("name", "b")]), ["b"]);
}

//! Reads all resources: every list in every order, both ways, with various page sizes, compared with totals and gets.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{common::Api, known::Seen};

/// A kind whose lists are read.
struct Walked {
    /// The prefix of its names in [`Seen`].
    kind: &'static str,
    path: &'static str,
    plural: &'static str,
    orders: &'static [&'static str],
}

const ALL: &[&str] = &["uid", "name", "createTime", "updateTime"];

const WALKED: [Walked; 5] = [
    Walked { kind: "group", path: "/iam/v2/groups", plural: "groups", orders: ALL },
    Walked { kind: "identity", path: "/iam/v2/identities", plural: "identities", orders: ALL },
    Walked { kind: "repo", path: "/registry/v2/repos", plural: "repos", orders: ALL },
    Walked { kind: "tag", path: "/registry/v2/tags", plural: "tags", orders: ALL },
    Walked {
        kind: "binding",
        path: "/iam/v2/roleBindings",
        plural: "roleBindings",
        orders: &["uid", "createTime", "updateTime"],
    },
];

/// Returns a folder and all of its descendants, after checking that lists, totals and gets agree.
///
/// # Panics
/// Panics if they do not agree, if a name occurs twice, or if a resource has no parent.
pub(crate) fn everything(api: &Api, folder: &str, rng: &mut fastrand::Rng) -> Seen {
    let mut seen = Seen::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for kind in &WALKED {
        let bodies = in_every_order(api, kind, &format!("uidp.descendants_of={folder}"), rng);
        for body in &bodies {
            let uid = text(body, "uid");
            let (parent, _) = uid.rsplit_once('/').unwrap();
            // Parents are listed before their children: groups first, repos before tags.
            let parent_name = names.get(parent);
            assert!(uid == folder || parent_name.is_some(), "an orphan: {body}");
            let own = match kind.kind {
                "binding" => format!("{} {}", parent_name.unwrap(), body["identity"]["uid"].as_str().unwrap()),
                "tag" => format!("{} {}", parent_name.unwrap(), text(body, "name")),
                _ => text(body, "name").to_owned(),
            };
            names.insert(uid.to_owned(), own.clone());
            let name = format!("{} {own}", kind.kind);
            let twice = seen.insert(name, body.clone());
            assert!(twice.is_none(), "two resources of one name: {body} {twice:?}");
        }
        some_by_get(api, kind, &bodies, rng);
        some_by_parent_and_name(api, kind, &bodies, rng);
    }
    seen
}

/// Reads a list in all of its orders, both ways, and returns it ordered by uid.
fn in_every_order(api: &Api, kind: &Walked, scope: &str, rng: &mut fastrand::Rng) -> Vec<Value> {
    let mut by_uid = walk(api, kind, scope, "uid", 200);
    for order in kind.orders {
        let size = if rng.u8(..4) == 0 { rng.usize(3..50) } else { 200 };
        let mut sorted = by_uid.clone();
        sorted.sort_by(|a, b| (text(a, order), text(a, "uid")).cmp(&(text(b, order), text(b, "uid"))));
        assert_eq!(walk(api, kind, scope, order, size), sorted, "{} by {order}", kind.plural);
        sorted.reverse();
        assert_eq!(walk(api, kind, scope, &format!("{order}%20desc"), size), sorted, "{} by {order} desc", kind.plural);
        if *order == "uid" {
            sorted.reverse();
            by_uid = sorted;
        }
    }
    by_uid
}

/// Reads all pages of a list.
fn walk(api: &Api, kind: &Walked, scope: &str, order: &str, size: usize) -> Vec<Value> {
    let (mut walked, mut token, mut totals) = (Vec::new(), String::new(), Vec::new());
    loop {
        let path = format!("{}?{scope}&order_by={order}&page_size={size}&page_token={token}", kind.path);
        let page = api.get(&path).ok();
        walked.extend(page[kind.plural].as_array().unwrap().iter().cloned());
        totals.push(page["totalCount"].as_str().unwrap().to_owned());
        match page["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    for total in totals {
        assert_eq!(total, walked.len().to_string(), "the total of {} {scope} by {order}", kind.plural);
    }
    walked
}

fn some_by_get(api: &Api, kind: &Walked, bodies: &[Value], rng: &mut fastrand::Rng) {
    for body in rng.choose_multiple(bodies, 5) {
        assert_eq!(api.get(&format!("{}/{}", kind.path, text(body, "uid"))).ok(), *body);
    }
}

fn some_by_parent_and_name(api: &Api, kind: &Walked, bodies: &[Value], rng: &mut fastrand::Rng) {
    for body in rng.choose_multiple(bodies, 3) {
        let (parent, _) = text(body, "uid").rsplit_once('/').unwrap();
        let below = |body: &&Value| text(body, "uid").rsplit_once('/').unwrap().0 == parent;
        let siblings: Vec<_> = bodies.iter().filter(below).cloned().collect();
        let scope = format!("uidp.children_of={parent}");
        assert_eq!(walk(api, kind, &scope, "uid", 200), siblings, "{}", kind.plural);
        if kind.kind != "binding" {
            let scope = format!("{scope}&name={}", text(body, "name").replace(' ', "%20"));
            assert_eq!(walk(api, kind, &scope, "uid", 200), std::slice::from_ref(body));
        }
    }
}

/// The last seen creation and update times of each resource, by uid.
#[derive(Debug, Default)]
pub(crate) struct Times(BTreeMap<String, (String, String)>);

impl Times {
    /// Checks that no update precedes the creation, that creation times never change, and that update times never
    /// decrease.
    pub(crate) fn check(&mut self, seen: &Seen) {
        let mut now = BTreeMap::new();
        for body in seen.values() {
            let (created, updated) = (text(body, "createTime").to_owned(), text(body, "updateTime").to_owned());
            assert!(created <= updated, "{body}");
            if let Some((created_before, updated_before)) = self.0.get(text(body, "uid")) {
                assert!(*created_before == created && *updated_before <= updated, "{updated_before}: {body}");
            }
            now.insert(text(body, "uid").to_owned(), (created, updated));
        }
        self.0 = now;
    }
}

fn text<'b>(body: &'b Value, field: &str) -> &'b str {
    body[field].as_str().unwrap_or_else(|| panic!("{field} of {body}"))
}

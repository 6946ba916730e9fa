//! Compares access decisions and lists with an oracle that is slow and obviously correct: it has every record and
//! binding, and derives each answer from the rules of `docs/api.md`, Access, record by record.
//!
//! All random choices derive from a seed, which a failure prints.

use std::collections::BTreeSet;

use platform_engine::{
    access::{Caller, Narrowing},
    error::{Code, Result},
    kind::{Authorization, Verb},
    store::{Query, Scope},
    uid::Uid,
};
use platform_testkit::Rng;
use platform_v1::services::SERVICES;
use serde_json::{Map, Value, json};

use crate::common::{World, block_on, built_in, text};

const KINDS: [&str; 6] = ["Group", "Identity", "Role", "RoleBinding", "Repo", "Tag"];

type Names = BTreeSet<&'static str>;

/// All records and bindings of a world.
struct Oracle {
    records: Vec<(&'static str, String)>,
    bindings: Vec<Binding>,
    operator: String,
}

struct Binding {
    identity: String,
    group: String,
    capabilities: Names,
}

/// A caller, and the narrowing of its token in the form that the oracle uses.
struct Principal {
    caller: Caller,
    narrowing: Option<Vec<(String, Names)>>,
}

/// Returns the segments of a uid. A uid is at or below another if it starts with all segments of the other.
fn segments(uid: &str) -> Vec<&str> {
    uid.split('/').collect()
}

fn at_or_below(uid: &str, top: &str) -> bool {
    segments(uid).starts_with(&segments(top))
}

fn in_no_group(uid: &str) -> bool {
    segments(uid).len() == 1
}

impl Oracle {
    fn of(world: &World) -> Self {
        let all = |kind| {
            let page = block_on(world.platform.store().list(&Query::new(kind, Scope::All))).unwrap();
            page.items.into_iter().map(|item| serde_json::from_slice::<Value>(&item.body).unwrap()).collect::<Vec<_>>()
        };
        let roles = all("Role");
        let capabilities_of = |uid: &str| -> Names {
            let role = roles.iter().find(|role| text(role, "uid") == uid).expect("the role");
            let ids = role["capabilities"].as_array().unwrap().iter().map(|id| id.as_str().unwrap());
            ids.map(|id| world.platform.capabilities().by_id(id).unwrap().name()).collect()
        };
        let binding = |body: &Value| Binding {
            identity: text(body, "identityUid").to_owned(),
            group: text(body, "uid").rsplit_once('/').unwrap().0.to_owned(),
            capabilities: capabilities_of(text(body, "roleUid")),
        };
        let uids = |kind| all(kind).into_iter().map(move |body| (kind, text(&body, "uid").to_owned()));
        Self {
            bindings: all("RoleBinding").iter().map(binding).collect(),
            records: KINDS.into_iter().flat_map(uids).collect(),
            operator: world.operator.identity.to_string(),
        }
    }

    /// Returns the capabilities that a caller holds at a uid.
    fn held(&self, principal: &Principal, uid: &str) -> Names {
        let identity = &*principal.caller.identity;
        let mut held = Names::new();
        for binding in self.bindings.iter().filter(|binding| binding.identity == identity) {
            // A person reaches everything; any other identity only the group that it was created in and its
            // descendants.
            let home = identity.rsplit_once('/').map(|(home, _)| home);
            let within_reach = home.is_none_or(|home| at_or_below(uid, home));
            if at_or_below(uid, &binding.group) && within_reach {
                held.extend(&binding.capabilities);
            }
        }
        if let Some(narrowing) = &principal.narrowing {
            let allowed: Names = narrowing
                .iter()
                .filter(|(group, _)| at_or_below(uid, group))
                .flat_map(|(_, capabilities)| capabilities.iter().copied())
                .collect();
            held = held.intersection(&allowed).copied().collect();
        }
        held
    }

    fn allows(&self, principal: &Principal, kind: &str, verb: Verb, needed: &Names, uid: &str) -> bool {
        let is_operator = *principal.caller.identity == *self.operator && principal.narrowing.is_none();
        let reads = matches!(verb, Verb::Get | Verb::List);
        match kind {
            "Role" if in_no_group(uid) && reads => {
                self.records.iter().any(|(_, place)| self.held(principal, place).is_superset(needed))
            }
            // The uid of a create is the parent.
            "Identity" if in_no_group(uid) && is_operator && verb != Verb::Create => true,
            // A narrowed token must name the capabilities, at any group.
            "Identity" if in_no_group(uid) && reads && *principal.caller.identity == *uid => {
                let named = |narrowing: &Vec<(String, Names)>| narrowing.iter().any(|(_, all)| all.is_superset(needed));
                principal.narrowing.as_ref().is_none_or(named)
            }
            _ => self.held(principal, uid).is_superset(needed),
        }
    }
}

/// Creates random groups, resources, roles and bindings.
fn world_of(rng: &mut Rng) -> (World, Vec<Uid>, Vec<Uid>) {
    let world = World::new();
    let mut groups = vec![world.org.clone(), world.organization()];
    for _ in 0..10 {
        let parent = rng.pick::<Uid>(&groups).clone();
        groups.push(world.group(&parent));
    }
    let mut identities: Vec<_> = (0..3).map(|n| world.person(&format!("person {n}"), None).identity).collect();
    identities.extend((0..7).map(|_| world.identity(rng.pick::<Uid>(&groups)).identity));
    for _ in 0..8 {
        let repo = world.repo(rng.pick::<Uid>(&groups));
        world.tag(&repo, "latest");
        world.tag(&repo, "old");
    }
    let mut roles: Vec<_> = ["owner", "viewer", "registry.push"].map(|name| Uid::opaque(built_in(name))).into();
    for _ in 0..6 {
        let capabilities: Vec<_> = (0..=rng.below(5)).map(|_| *rng.pick(POOL)).collect();
        roles.push(world.role(rng.pick::<Uid>(&groups), &capabilities));
    }
    for _ in 0..90 {
        let body = json!({ "identityUid": rng.pick(&identities), "roleUid": rng.pick(&roles) });
        // Some are rejected: the role or identity belongs elsewhere, or the binding exists.
        let _ = world.create(&world.operator, "RoleBinding", rng.pick::<Uid>(&groups), body);
    }
    identities.push(world.operator.identity.clone());
    (world, groups, identities)
}

/// The capabilities that the methods of these kinds require.
const POOL: &[&str] = &[
    "groups.list",
    "groups.create",
    "groups.update",
    "groups.delete",
    "identity.list",
    "identity.create",
    "identity.update",
    "identity.delete",
    "roles.list",
    "roles.create",
    "roles.update",
    "roles.delete",
    "role_bindings.list",
    "role_bindings.create",
    "role_bindings.update",
    "role_bindings.delete",
    "repo.list",
    "repo.create",
    "repo.update",
    "repo.delete",
    "tag.list",
    "tag.create",
    "tag.delete",
];

/// Returns a random caller; one in three has a narrowed token.
fn caller(rng: &mut Rng, groups: &[Uid], identities: &[Uid]) -> Principal {
    let caller = Caller::new(rng.pick(identities).clone());
    if !rng.one_in(3) {
        return Principal { caller, narrowing: None };
    }
    let narrowing: Vec<(String, Names)> = (0..1 + rng.below(3))
        .map(|_| (rng.pick::<Uid>(groups).to_string(), POOL.iter().filter(|_| !rng.one_in(3)).copied().collect()))
        .collect();
    // A token has at most one entry for each group.
    let narrowing: std::collections::BTreeMap<_, _> = narrowing.into_iter().collect();
    let by_name =
        |names: &Names| names.iter().map(|name| platform_core::capabilities::by_name(name).unwrap()).collect();
    let groups = narrowing.iter().map(|(group, names)| (Uid::opaque(group.clone()), by_name(names)));
    Principal { caller: caller.narrowed(Narrowing::new(groups)), narrowing: Some(narrowing.into_iter().collect()) }
}

/// Calls a method in a way that changes nothing, and returns whether the caller was allowed.
fn is_allowed(world: &World, caller: &Caller, kind: &str, verb: Verb, uid: &str) -> bool {
    let done: Result<()> = match verb {
        Verb::Get => world.get(caller, kind, uid).map(drop),
        // A body without the required fields, and an empty mask.
        Verb::Create => world.create(caller, kind, uid, json!({})).map(drop),
        Verb::Update => world.update(caller, kind, uid, json!({}), Some("")).map(drop),
        Verb::Delete => world.delete(caller, kind, uid),
        Verb::List => panic!("lists have their own test"),
    };
    allowed(done, format_args!("{kind} {verb:?} {uid}"))
}

/// Returns whether a call was allowed.
fn allowed(done: Result<()>, call: std::fmt::Arguments<'_>) -> bool {
    match done.map_err(|error| error.code()) {
        Ok(()) | Err(Code::InvalidArgument | Code::NotFound) => true,
        Err(Code::PermissionDenied) => false,
        Err(other) => panic!("{call}: {other:?}"),
    }
}

/// As [`is_allowed`] with the method of version 1; `None` if it has none.
fn is_allowed_by_version_1(world: &World, caller: &Caller, kind: &str, verb: Verb, uid: &str) -> Option<bool> {
    let (service, action, field) = SERVICES.iter().find_map(|service| {
        service.actions.iter().find_map(|action| match action.authorization {
            Authorization::As(of, by, field) if of.name == kind && by == verb => Some((service.kind, action, field)),
            _ => None,
        })
    })?;
    // A create or update without the required fields.
    let request = Map::from_iter([(field.to_owned(), json!(uid))]);
    let done = block_on(world.platform.run(Some(caller), service, action, &request)).map(drop);
    Some(allowed(done, format_args!("{}.{} {uid}", service.service, action.name)))
}

/// The list of a kind in version 1: the service and the method.
fn list_of_version_1(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "Group" => ("Groups", "List"),
        "Identity" => ("Identities", "List"),
        "Role" => ("Roles", "List"),
        "RoleBinding" => ("RoleBindings", "List"),
        "Repo" => ("Registry", "ListRepos"),
        "Tag" => ("Registry", "ListTags"),
        other => panic!("{other}"),
    }
}

/// Returns the ids in all pages of a list of version 1 with these hierarchy filters.
fn ids_by_version_1(world: &World, caller: &Caller, kind: &str, query: &[(&str, &str)]) -> Vec<String> {
    let (service, list) = list_of_version_1(kind);
    let service = SERVICES.iter().find(|registered| registered.kind.service == service).unwrap();
    let list = service.actions.iter().find(|action| action.name == list).unwrap();
    let mut uidp = Map::new();
    for (key, value) in query {
        let key = key.strip_prefix("uidp.").unwrap();
        match key {
            "ids" => match uidp.entry(key).or_insert_with(|| json!([])) {
                Value::Array(ids) => ids.push(json!(value)),
                _ => unreachable!(),
            },
            "in_root" => drop(uidp.insert(key.to_owned(), json!(*value == "true"))),
            _ => drop(uidp.insert(key.to_owned(), json!(value))),
        }
    }
    let request = Map::from_iter([("uidp".to_owned(), uidp.into())]);
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let page = world.platform.run_page(Some(caller), service.kind, list, &request, &token);
        let page = block_on(page).unwrap();
        let items = page.items.iter().map(|item| serde_json::from_slice::<Value>(item).unwrap());
        ids.extend(items.map(|item| text(&item, "id").to_owned()));
        match page.next_page_token {
            Some(next) => token = next,
            None => return ids,
        }
    }
}

#[test]
fn more_than_100000_random_access_decisions_match_the_oracle() {
    let (mut decisions, mut allowed) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (world, groups, identities) = world_of(&mut rng);
        let oracle = Oracle::of(&world);
        for _ in 0..2_000 {
            let principal = caller(&mut rng, &groups, &identities);
            let kind = *rng.pick(&KINDS);
            let verb = *rng.pick(&[Verb::Get, Verb::Create, Verb::Update, Verb::Delete]);
            let Some(method) = world.kind(kind).kind.method(verb) else { continue };
            let needed: Names = method.capabilities.iter().map(|capability| capability.name()).collect();
            let uid = match rng.below(3) {
                0 => rng.pick(&oracle.records).1.clone(),
                _ => {
                    let of_kind: Vec<_> = oracle.records.iter().filter(|(other, _)| *other == kind).collect();
                    rng.pick(&of_kind).1.clone()
                }
            };
            // A delete uses a missing uid: the decision is the same, and nothing is deleted.
            let uid = if verb == Verb::Delete { uid + "/ffffffffffffffff" } else { uid };
            let expected = oracle.allows(&principal, kind, verb, &needed, &uid);
            let found = is_allowed(&world, &principal.caller, kind, verb, &uid);
            assert_eq!(found, expected, "seed {seed}: {kind} {verb:?} {uid} as {:?}", principal.caller);
            if let Some(found) = is_allowed_by_version_1(&world, &principal.caller, kind, verb, &uid) {
                assert_eq!(found, expected, "seed {seed}: v1 {kind} {verb:?} {uid} as {:?}", principal.caller);
            }
            decisions += 1;
            allowed += usize::from(found);
        }
    }
    println!("{decisions} decisions, {allowed} of them allowed");
    assert!(decisions > 100_000 && allowed > decisions / 10 && allowed < decisions / 2);
}

/// A hierarchy filter as query parameters, and as a predicate for the oracle.
type UidpFilter = (Vec<(&'static str, String)>, Box<dyn Fn(&str) -> bool>);

fn filter(rng: &mut Rng, uids: &[String]) -> UidpFilter {
    let uid = rng.pick(uids).clone();
    let parent = |uid: &str| uid.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    match rng.below(6) {
        0 => (vec![("uidp.descendants_of", uid.clone())], Box::new(move |other| at_or_below(other, &uid))),
        1 => (
            vec![("uidp.children_of", uid.clone())],
            Box::new(move |other| parent(other).is_some_and(|parent| parent == uid)),
        ),
        2 => (vec![("uidp.children_of", "/".to_owned())], Box::new(in_no_group)),
        3 => (vec![("uidp.in_root", "true".to_owned())], Box::new(in_no_group)),
        4 => (
            vec![("uidp.ancestors_of", uid.clone())],
            Box::new(move |other| *other != *uid && at_or_below(&uid, other)),
        ),
        _ => {
            let ids: Vec<_> = (0..20).map(|_| rng.pick(uids).clone()).collect();
            (
                ids.iter().map(|id| ("uidp.ids", id.clone())).collect(),
                Box::new(move |other| ids.iter().any(|id| id == other)),
            )
        }
    }
}

#[test]
fn random_lists_and_their_totals_match_the_oracle() {
    let (mut lists, mut shown) = (0, 0);
    for seed in 100..140 {
        let mut rng = Rng::new(seed);
        let (world, groups, identities) = world_of(&mut rng);
        let oracle = Oracle::of(&world);
        let uids: Vec<_> = oracle.records.iter().map(|(_, uid)| uid.clone()).collect();
        for _ in 0..150 {
            let principal = caller(&mut rng, &groups, &identities);
            let kind = *rng.pick(&KINDS);
            let method = world.kind(kind).kind.method(Verb::List).unwrap();
            let needed: Names = method.capabilities.iter().map(|capability| capability.name()).collect();
            let filters: Vec<_> = (0..rng.below(3)).map(|_| filter(&mut rng, &uids)).collect();
            let mut names = BTreeSet::new();
            if !filters.iter().all(|(pairs, _)| names.insert(pairs[0].0)) {
                continue;
            }
            let expected: BTreeSet<_> = oracle
                .records
                .iter()
                .filter(|(other, uid)| *other == kind && filters.iter().all(|(_, passes)| passes(uid)))
                .filter(|(_, uid)| oracle.allows(&principal, kind, Verb::List, &needed, uid))
                .map(|(_, uid)| uid.clone())
                .collect();
            let query: Vec<_> =
                filters.iter().flat_map(|(pairs, _)| pairs).map(|(key, value)| (*key, &**value)).collect();
            let by_version_1 = ids_by_version_1(&world, &principal.caller, kind, &query);
            let query: Vec<_> = query.into_iter().chain([("page_size", "200")]).collect();
            let page = world.list(&principal.caller, kind, &query).unwrap();
            let found = page.uids();
            assert_eq!(found, by_version_1, "seed {seed}: v1 {kind} {query:?} as {:?}", principal.caller);
            assert_eq!(
                found,
                expected.into_iter().collect::<Vec<_>>(),
                "seed {seed}: {kind} {query:?} as {:?}",
                principal.caller
            );
            assert_eq!(page.total, found.len() as u64);
            lists += 1;
            shown += found.len();
        }
    }
    println!("{lists} lists, {shown} resources shown");
    assert!(lists > 4_000 && shown > 4_000);
}

//! Access decisions and lists held against an oracle that is slow and obviously right: it knows every record and
//! binding, and works each answer out from the rules of `docs/api.md`, Access, record by record.
//!
//! Everything is drawn from a seed, which a failure names.

use std::collections::BTreeSet;

use platform_core::{
    access::{Caller, Capability, Narrowing},
    error::{Code, Result},
    kind::Verb,
    store::{Query, Scope},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{Dice, World, block_on, built_in, text};

const KINDS: [&str; 6] = ["Group", "Identity", "Role", "RoleBinding", "Repo", "Tag"];

type Names = BTreeSet<&'static str>;

/// Everything that there is, as the oracle knows it.
struct Truth {
    records: Vec<(&'static str, String)>,
    bindings: Vec<Binding>,
    operator: String,
}

struct Binding {
    identity: String,
    group: String,
    capabilities: Names,
}

/// A caller, and what the oracle must know of the token.
struct Who {
    caller: Caller,
    narrowing: Option<Vec<(String, Names)>>,
}

/// The segments of a uid. One uid is at or below another when it begins with all of the other's.
fn segments(uid: &str) -> Vec<&str> {
    uid.split('/').collect()
}

fn at_or_below(uid: &str, top: &str) -> bool {
    segments(uid).starts_with(&segments(top))
}

fn in_no_group(uid: &str) -> bool {
    segments(uid).len() == 1
}

impl Truth {
    fn of(world: &World) -> Self {
        let all = |kind| {
            let page = block_on(world.platform.store().list(&Query::new(kind, Scope::All))).unwrap();
            page.items.into_iter().map(|item| serde_json::from_slice::<Value>(&item.body).unwrap()).collect::<Vec<_>>()
        };
        let roles = all("Role");
        let capabilities_of = |uid: &str| -> Names {
            let role = roles.iter().find(|role| text(role, "uid") == uid).expect("the role");
            let ids = role["capabilities"].as_array().unwrap().iter().map(|id| id.as_str().unwrap());
            ids.map(|id| Capability::by_id(id).unwrap().name()).collect()
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

    /// What a caller holds at a uid.
    fn held(&self, who: &Who, uid: &str) -> Names {
        let identity = &*who.caller.identity;
        let mut held = Names::new();
        for binding in self.bindings.iter().filter(|binding| binding.identity == identity) {
            // A person reaches everything; another identity the group that it was created in and what is below.
            let home = identity.rsplit_once('/').map(|(home, _)| home);
            let within_reach = home.is_none_or(|home| at_or_below(uid, home));
            if at_or_below(uid, &binding.group) && within_reach {
                held.extend(&binding.capabilities);
            }
        }
        if let Some(narrowing) = &who.narrowing {
            let allowed: Names = narrowing
                .iter()
                .filter(|(group, _)| at_or_below(uid, group))
                .flat_map(|(_, capabilities)| capabilities.iter().copied())
                .collect();
            held = held.intersection(&allowed).copied().collect();
        }
        held
    }

    fn allows(&self, who: &Who, kind: &str, verb: Verb, needed: &Names, uid: &str) -> bool {
        let is_operator = *who.caller.identity == *self.operator && who.narrowing.is_none();
        let reads = matches!(verb, Verb::Get | Verb::List);
        match kind {
            "Role" if in_no_group(uid) && reads => {
                self.records.iter().any(|(_, place)| self.held(who, place).is_superset(needed))
            }
            // Of a create, this is the parent.
            "Identity" if in_no_group(uid) && is_operator && verb != Verb::Create => true,
            "Identity" if in_no_group(uid) && reads && *who.caller.identity == *uid => true,
            _ => self.held(who, uid).is_superset(needed),
        }
    }
}

/// Makes groups, resources, roles and bindings at random.
fn world_of(dice: &mut Dice) -> (World, Vec<Uid>, Vec<Uid>) {
    let world = World::new();
    let mut groups = vec![world.org.clone(), world.organisation()];
    for _ in 0..10 {
        let parent = dice.pick::<Uid>(&groups).clone();
        groups.push(world.group(&parent));
    }
    let mut identities: Vec<_> = (0..3).map(|n| world.person(&format!("person {n}"), None).identity).collect();
    identities.extend((0..7).map(|_| world.identity(dice.pick::<Uid>(&groups)).identity));
    for _ in 0..8 {
        let repo = world.repo(dice.pick::<Uid>(&groups));
        world.tag(&repo, "latest");
        world.tag(&repo, "old");
    }
    let mut roles: Vec<_> = ["owner", "viewer", "registry.push"].map(|name| Uid::opaque(built_in(name))).into();
    for _ in 0..6 {
        let capabilities: Vec<_> = (0..=dice.below(5)).map(|_| *dice.pick(POOL)).collect();
        roles.push(world.role(dice.pick::<Uid>(&groups), &capabilities));
    }
    for _ in 0..90 {
        let body = json!({ "identityUid": dice.pick(&identities), "roleUid": dice.pick(&roles) });
        // Refused where the role or identity is of another place, or a second time.
        let _ = world.create(&world.operator, "RoleBinding", dice.pick::<Uid>(&groups), body);
    }
    identities.push(world.operator.identity.clone());
    (world, groups, identities)
}

/// The capabilities that the methods of these kinds need.
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

/// A caller, one in three with a token that narrows.
fn caller(dice: &mut Dice, groups: &[Uid], identities: &[Uid]) -> Who {
    let caller = Caller::new(dice.pick(identities).clone());
    if !dice.once_in(3) {
        return Who { caller, narrowing: None };
    }
    let narrowing: Vec<(String, Names)> = (0..1 + dice.below(3))
        .map(|_| (dice.pick::<Uid>(groups).to_string(), POOL.iter().filter(|_| !dice.once_in(3)).copied().collect()))
        .collect();
    // A token names a group once.
    let narrowing: std::collections::BTreeMap<_, _> = narrowing.into_iter().collect();
    let by_name = |names: &Names| names.iter().map(|name| Capability::by_name(name).unwrap()).collect();
    let groups = narrowing.iter().map(|(group, names)| (Uid::opaque(group.clone()), by_name(names)));
    Who { caller: caller.narrowed(Narrowing::new(groups)), narrowing: Some(narrowing.into_iter().collect()) }
}

/// Asks the platform in a way that changes nothing; tells whether the caller was allowed.
fn ask(world: &World, caller: &Caller, kind: &str, verb: Verb, uid: &str) -> bool {
    let done: Result<()> = match verb {
        Verb::Get => world.get(caller, kind, uid).map(drop),
        // A body without what is required, and a mask of nothing.
        Verb::Create => world.create(caller, kind, uid, json!({})).map(drop),
        Verb::Update => world.update(caller, kind, uid, json!({}), Some("")).map(drop),
        Verb::Delete => world.delete(caller, kind, uid),
        Verb::List => panic!("lists are asked as a whole"),
    };
    match done.map_err(|error| error.code()) {
        Ok(()) | Err(Code::InvalidArgument | Code::NotFound) => true,
        Err(Code::PermissionDenied) => false,
        Err(other) => panic!("{kind} {verb:?} {uid}: {other:?}"),
    }
}

#[test]
fn a_hundred_thousand_random_decisions_are_those_of_an_obviously_right_oracle() {
    let (mut decisions, mut allowed) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let (world, groups, identities) = world_of(&mut dice);
        let truth = Truth::of(&world);
        for _ in 0..2_000 {
            let who = caller(&mut dice, &groups, &identities);
            let kind = *dice.pick(&KINDS);
            let verb = *dice.pick(&[Verb::Get, Verb::Create, Verb::Update, Verb::Delete]);
            let Some(method) = world.kind(kind).kind.method(verb) else { continue };
            let needed: Names = method.capabilities.iter().map(|capability| capability.name()).collect();
            let uid = match dice.below(3) {
                0 => dice.pick(&truth.records).1.clone(),
                _ => {
                    let of_kind: Vec<_> = truth.records.iter().filter(|(other, _)| *other == kind).collect();
                    dice.pick(&of_kind).1.clone()
                }
            };
            // What is not there is decided as what is, and cannot be deleted.
            let uid = if verb == Verb::Delete { uid + "/ffffffffffffffff" } else { uid };
            let expected = truth.allows(&who, kind, verb, &needed, &uid);
            let found = ask(&world, &who.caller, kind, verb, &uid);
            assert_eq!(found, expected, "seed {seed}: {kind} {verb:?} {uid} as {:?}", who.caller);
            decisions += 1;
            allowed += usize::from(found);
        }
    }
    println!("{decisions} decisions, {allowed} of them allowed");
    assert!(decisions > 100_000 && allowed > decisions / 10 && allowed < decisions / 2);
}

/// A hierarchy filter as query parameters, and as the oracle understands it.
type UidpFilter = (Vec<(&'static str, String)>, Box<dyn Fn(&str) -> bool>);

fn filter(dice: &mut Dice, uids: &[String]) -> UidpFilter {
    let uid = dice.pick(uids).clone();
    let parent = |uid: &str| uid.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    match dice.below(6) {
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
            let ids: Vec<_> = (0..20).map(|_| dice.pick(uids).clone()).collect();
            (
                ids.iter().map(|id| ("uidp.ids", id.clone())).collect(),
                Box::new(move |other| ids.iter().any(|id| id == other)),
            )
        }
    }
}

#[test]
fn random_lists_have_exactly_what_the_oracle_shows_and_count_it() {
    let (mut lists, mut shown) = (0, 0);
    for seed in 100..140 {
        let mut dice = Dice::new(seed);
        let (world, groups, identities) = world_of(&mut dice);
        let truth = Truth::of(&world);
        let uids: Vec<_> = truth.records.iter().map(|(_, uid)| uid.clone()).collect();
        for _ in 0..150 {
            let who = caller(&mut dice, &groups, &identities);
            let kind = *dice.pick(&KINDS);
            let method = world.kind(kind).kind.method(Verb::List).unwrap();
            let needed: Names = method.capabilities.iter().map(|capability| capability.name()).collect();
            let filters: Vec<_> = (0..dice.below(3)).map(|_| filter(&mut dice, &uids)).collect();
            let mut names = BTreeSet::new();
            if !filters.iter().all(|(pairs, _)| names.insert(pairs[0].0)) {
                continue;
            }
            let expected: BTreeSet<_> = truth
                .records
                .iter()
                .filter(|(other, uid)| *other == kind && filters.iter().all(|(_, passes)| passes(uid)))
                .filter(|(_, uid)| truth.allows(&who, kind, Verb::List, &needed, uid))
                .map(|(_, uid)| uid.clone())
                .collect();
            let query: Vec<_> =
                filters.iter().flat_map(|(pairs, _)| pairs).map(|(key, value)| (*key, &**value)).collect();
            let query: Vec<_> = query.into_iter().chain([("page_size", "200")]).collect();
            let page = world.list(&who.caller, kind, &query).unwrap();
            let found = page.uids();
            assert_eq!(
                found,
                expected.into_iter().collect::<Vec<_>>(),
                "seed {seed}: {kind} {query:?} as {:?}",
                who.caller
            );
            assert_eq!(page.total, found.len() as u64);
            lists += 1;
            shown += found.len();
        }
    }
    println!("{lists} lists, {shown} resources shown");
    assert!(lists > 4_000 && shown > 4_000);
}

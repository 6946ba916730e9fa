//! The access matrix: the outcome of every method for typical callers, as a table for reviewers in
//! `tests/access_matrix.txt`.

use platform_engine::{
    access::Caller,
    error::Code,
    kind::{Action, Authorization, Kind, Verb},
    uid::Uid,
};

use crate::{
    all_kinds,
    common::{World, built_in, code},
    fixtures::fixture,
    requests::request,
    snapshot::assert_snapshot,
};

/// An organization with two folders, and the callers of the matrix.
pub(crate) struct Cast {
    pub(crate) world: World,
    places: [Uid; 3],
    pub(crate) actors: Vec<(&'static str, Caller)>,
}

impl Cast {
    pub(crate) fn new() -> Self {
        let world = World::new();
        let organization = world.organization();
        let (folder, sibling) = (world.group(&organization), world.group(&organization));
        let stranger = world.member("owner", &world.organization());
        let limited = world.identity(&folder);
        world.bind(&limited, &built_in("owner"), &organization);
        let below = world.identity(&organization);
        world.bind(&below, &built_in("owner"), &folder);
        let actors = vec![
            ("owner", world.member("owner", &organization)),
            ("editor", world.member("editor", &organization)),
            ("viewer", world.member("viewer", &organization)),
            ("stranger", stranger),
            ("limited", limited),
            ("below", below),
            ("unbound", world.identity(&organization)),
        ];
        Self { world, places: [organization, folder, sibling], actors }
    }

    /// Returns a line of the table: one mark per place for each actor.
    pub(crate) fn line(&self, label: &str, allowed: impl Fn(&Uid, &Caller) -> Option<bool>) -> String {
        let mut line = format!("  {label:<26}");
        for (_, actor) in &self.actors {
            let mark = |place: &Uid| match allowed(place, actor) {
                Some(true) => '\u{2714}',
                Some(false) => '\u{2718}',
                None => ' ',
            };
            line.push_str(&format!(" {:<9}", self.places.iter().map(mark).collect::<String>()));
        }
        line.trim_end().to_owned() + "\n"
    }
}

const LEGEND: &str = "\
The access matrix. Each cell has three marks: for a resource of the organization itself, of a folder in it, and of a
sibling of that folder. A list is allowed if it shows the resource. A single mark: the method does not apply to folders.

owner, editor, viewer  created in the organization and bound there to the built-in role of that name
stranger               the owner of another organization
limited                created in the folder and bound as owner to the organization
below                  created in the organization and bound as owner to the folder
unbound                created in the organization, without bindings

";

#[test]
fn the_access_matrix_matches_the_committed_file() {
    let cast = Cast::new();
    let mut found = LEGEND.to_owned();
    let names = cast.actors.iter().map(|(name, _)| format!(" {name:<9}")).collect::<String>();
    found.push_str(format!("{:<28}{names}", "").trim_end());
    found.push('\n');
    for registered in all_kinds() {
        let kind = registered.kind;
        found.push_str(&format!("{}\n", kind.name));
        let fixture = fixture(kind.name);
        for verb in [Verb::List, Verb::Get, Verb::Create, Verb::Update, Verb::Delete] {
            if kind.method(verb).is_none() {
                continue;
            }
            found.push_str(&cast.line(verb.name(), |place, actor| {
                let applicable = place.is_root() || !fixture.in_organizations_only;
                applicable.then(|| fixture.suite(&cast.world, place).attempt(actor, verb))
            }));
        }
        for action in registered.actions {
            found.push_str(&cast.line(action.name, |place, actor| {
                let concerns_a_group = matches!(
                    action.authorization,
                    Authorization::At(..) | Authorization::Anywhere(_) | Authorization::FiltersResult(_)
                );
                (concerns_a_group || place.is_root()).then(|| attempt_action(&cast.world, kind, action, place, actor))
            }));
        }
    }
    assert_snapshot("tests/access_matrix.txt", &found);
}

/// Runs an action at a group and returns whether it was allowed.
fn attempt_action(world: &World, kind: &Kind, action: &'static Action, group: &Uid, caller: &Caller) -> bool {
    let done = world.run(Some(caller), action.name, request(world, action.name, group));
    match done.map_err(|error| error.code()) {
        // These callers have no mail domain: NOT_FOUND means that the action was allowed and found no organization.
        Ok(_) | Err(Code::NotFound) => true,
        Err(Code::PermissionDenied) => false,
        Err(other) => panic!("{} {}: {other:?}", kind.name, action.name),
    }
}

#[test]
fn actions_without_a_token_are_unauthenticated_unless_public() {
    let world = World::new();
    for action in all_kinds().flat_map(|registered| registered.actions) {
        let done = world.run(None, action.name, request(&world, action.name, &world.org));
        match action.authorization {
            Authorization::Public => drop(done.unwrap()),
            _ => assert_eq!(code(done), Code::Unauthenticated, "{}", action.name),
        }
    }
}

//! Who may do what, as a table that a reviewer reads: `tests/access_matrix.txt`.

use platform_core::{
    access::Caller,
    error::Code,
    kind::{Action, Authorization, Kind, Verb},
    resources::KINDS,
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, code, digest},
    kinds::fixtures::{FIXTURES, attempt},
    snapshot::assert_snapshot,
};

/// An organisation with two folders, and those who try.
struct Cast {
    world: World,
    places: [Uid; 3],
    actors: Vec<(&'static str, Caller)>,
}

impl Cast {
    fn new() -> Self {
        let world = World::new();
        let organisation = world.organisation();
        let (folder, beside) = (world.group(&organisation), world.group(&organisation));
        let stranger = world.member("owner", &world.organisation());
        let cut = world.identity(&folder);
        world.bind(&cut, &built_in("owner"), &organisation);
        let below = world.identity(&organisation);
        world.bind(&below, &built_in("owner"), &folder);
        let actors = vec![
            ("owner", world.member("owner", &organisation)),
            ("editor", world.member("editor", &organisation)),
            ("viewer", world.member("viewer", &organisation)),
            ("stranger", stranger),
            ("cut", cut),
            ("below", below),
            ("nobody", world.identity(&organisation)),
        ];
        Self { world, places: [organisation, folder, beside], actors }
    }

    /// Returns a line of the table: for each actor, a mark for each place.
    fn line(&self, label: &str, allowed: impl Fn(&Uid, &Caller) -> Option<bool>) -> String {
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
Who may do what. Each cell has three marks: at a resource of the organisation itself, of a folder in it, and of a folder
beside that one. A list is allowed where it shows the resource. A single mark: the method is at no place.

owner, editor, viewer  made in the organisation and bound there to the built-in role of that name
stranger               the owner of another organisation
cut                    made in the folder and bound as owner to the organisation
below                  made in the organisation and bound as owner to the folder
nobody                 made in the organisation and bound to nothing

";

#[test]
fn the_matrix_of_who_may_do_what_is_the_committed_one() {
    let cast = Cast::new();
    let mut found = LEGEND.to_owned();
    let names = cast.actors.iter().map(|(name, _)| format!(" {name:<9}")).collect::<String>();
    found.push_str(format!("{:<28}{names}", "").trim_end());
    found.push('\n');
    for registered in KINDS {
        let kind = registered.kind;
        found.push_str(&format!("{}\n", kind.name));
        let fixture = FIXTURES.iter().find(|fixture| fixture.kind == kind.name);
        for verb in [Verb::List, Verb::Get, Verb::Create, Verb::Update, Verb::Delete] {
            let (Some(fixture), Some(_)) = (fixture, kind.method(verb)) else { continue };
            found.push_str(&cast.line(verb.name(), |place, actor| {
                let there = place.is_root() || !fixture.in_organisations_only;
                there.then(|| attempt(&cast.world, fixture, place, actor, verb))
            }));
        }
        for action in registered.actions {
            found.push_str(&cast.line(action.name, |place, actor| {
                let at_a_place = matches!(
                    action.authorization,
                    Authorization::At(..) | Authorization::Anywhere(_) | Authorization::FiltersResult(_)
                );
                (at_a_place || place.is_root()).then(|| attempt_action(&cast.world, kind, action, place, actor))
            }));
        }
    }
    assert_snapshot("access_matrix.txt", &found);
}

/// Tries an action at a group; tells whether it was allowed.
fn attempt_action(world: &World, kind: &Kind, action: &'static Action, group: &Uid, caller: &Caller) -> bool {
    let done = world.run(Some(caller), action.name, request(world, action.name, group));
    match done.map_err(|error| error.code()) {
        // These callers have no mail domain, which is all that these actions say of them.
        Ok(_) | Err(Code::NotFound) => true,
        Err(Code::PermissionDenied) => false,
        Err(other) => panic!("{} {}: {other:?}", kind.name, action.name),
    }
}

/// A request of an action at a group.
fn request(world: &World, action: &str, group: &Uid) -> Value {
    match action {
        "LookupGroup" | "CheckEligibility" | "EndSignIns" | "Ping" | "ListDocuments" => json!({}),
        "RequestGroupAccess" => json!({ "groupUid": group }),
        "RepairOwner" => {
            let heir = world.person(&format!("heir {}", world.serial()), None);
            json!({ "groupUid": group, "identityUid": heir.identity })
        }
        "LookupIdentity" => json!({ "issuer": "i", "subject": "s" }),
        "UpdateIdentityMetadata" => json!({ "identityMetadata": { "company": "c" } }),
        "BatchCreateRoleBindings" => {
            let binding =
                json!({ "identityUid": world.identity(group).identity, "roleUid": built_in("actions.viewer") });
            json!({ "parent": group, "requests": [{ "roleBinding": binding }] })
        }
        "GetArchitectures" | "GetSize" => {
            json!({ "repoUid": world.image(&world.repo(group)).0, "digest": digest('a') })
        }
        "GetArtifactCount" => json!({ "ecosystems": ["ECOSYSTEM_JAVA"] }),
        "ListResolvedVulnsReports" => {
            let at = "2026-01-01T00:00:00Z";
            json!({ "imageRefs": [{ "repo": "nginx" }], "startTime": at, "endTime": at })
        }
        "CheckAccountAssociation" => json!({ "uid": group, "providerType": "ACCOUNT_PROVIDER_TYPE_AMAZON" }),
        "AcceptTerms" => json!({ "group": group, "documentIds": ["skills-tos.v1"] }),
        "ListTermsAcceptances" => json!({ "group": group }),
        "BatchDeleteExternalGroupRoleMappings" => {
            let provider = format!("{group}/0000000000000000");
            json!({ "parent": provider, "names": [format!("{provider}/0000000000000000")] })
        }
        "GenerateScimToken" | "RevokeScimToken" => {
            json!({ "identityProviderUid": format!("{group}/0000000000000000") })
        }
        "RegenerateScimToken" => {
            json!({ "identityProviderUid": format!("{group}/0000000000000000"), "etag": "e" })
        }
        "ResumeDelivery" | "RedeliverDeadLetter" => json!({ "uid": format!("{group}/0000000000000000") }),
        "SetScimEnabled" => {
            json!({ "identityProviderUid": format!("{group}/0000000000000000"), "enabled": true, "etag": "e" })
        }
        other => panic!("{other} needs a request in tests/engine/access_matrix.rs"),
    }
}

#[test]
fn without_a_token_nothing_answers_but_what_is_open_to_all() {
    let world = World::new();
    for action in KINDS.iter().flat_map(|registered| registered.actions) {
        let done = world.run(None, action.name, request(&world, action.name, &world.org));
        match action.authorization {
            Authorization::Public => drop(done.unwrap()),
            _ => assert_eq!(code(done), Code::Unauthenticated, "{}", action.name),
        }
    }
}

//! A narrowed token allows no method whose capability it lacks, also where the method is about the caller itself.
//!
//! All methods of all kinds are called, by callers who may call them with a token that is not narrowed.

use std::collections::BTreeSet;

use platform_core::{capabilities, iam::Iam};
use platform_engine::{
    access::{Caller, Capability, CapabilitySet, Narrowing},
    error::{Code, Result},
    kind::{Action, Authorization, Registered, Roots, Verb},
    uid::Uid,
};
use platform_v1::services::SERVICES;
use serde_json::{Map, Value, json};

use crate::{
    all_kinds,
    common::{ISSUER, World, block_on, built_in, code, owner_capabilities, text},
    fixtures::fixtures,
    requests::request,
};

/// An organization and an owner, who is a person with an email address of the organization's domain.
struct Scene {
    world: World,
    org: Uid,
    owner: Caller,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let org = world.organization();
        let verified = json!({ "name": "own.test", "verified": true, "kind": "ORG_KIND_DEV" });
        world.update(&world.operator, "Group", &org, verified, None).unwrap();
        let owner = world.person("owner", Some("owner@own.test"));
        world.bind(&owner, &built_in("owner"), &org);
        Self { world, org, owner }
    }

    /// Returns the owner with a token that allows only these capabilities in the organization.
    fn narrowed(&self, allowed: impl IntoIterator<Item = Capability>) -> Caller {
        let allowed: CapabilitySet = allowed.into_iter().collect();
        self.owner.clone().narrowed(Narrowing::new([(self.org.clone(), allowed)]))
    }

    /// Returns the owner with a token that allows everything but this capability.
    fn without(&self, missing: Capability) -> Caller {
        self.narrowed(self.world.platform.capabilities().iter().filter(|capability| *capability != missing))
    }

    /// Returns requests of an action: about a resource of the organization, and about the owner itself.
    fn requests(&self, action: &Action) -> Vec<Map<String, Value>> {
        let general = request(&self.world, action.name, &self.org).as_object().unwrap().clone();
        let mut own = general.clone();
        for field in action.request.iter().filter(|field| field.name.starts_with("identity")) {
            if general.contains_key(field.name) && general[field.name].is_string() {
                own.insert(field.name.to_owned(), json!(self.owner.identity));
            }
        }
        if own == general { vec![general] } else { vec![general, own] }
    }

    fn run(
        &self,
        caller: &Caller,
        registered: &Registered,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<Value> {
        block_on(self.world.platform.run(Some(caller), registered.kind, action, request))
    }
}

fn needed(action: &Action) -> &'static [Capability] {
    match action.authorization {
        Authorization::At(_, needed) | Authorization::Anywhere(needed) | Authorization::FiltersResult(needed) => needed,
        _ => &[],
    }
}

#[test]
fn a_standard_method_is_denied_to_a_token_without_any_of_its_capabilities() {
    let scene = Scene::new();
    let nothing = scene.narrowed([]);
    for fixture in fixtures() {
        let suite = fixture.suite(&scene.world, &scene.org);
        for method in suite.kind().methods.iter().filter(|method| !method.open && method.served) {
            let what = format!("{} of {}", method.verb.name(), fixture.kind);
            assert!(!suite.attempt(&nothing, method.verb), "{what} with a token for nothing");
            for missing in method.capabilities {
                assert!(!suite.attempt(&scene.without(*missing), method.verb), "{what} without {}", missing.name());
            }
            let owned = owner_capabilities();
            if method.capabilities.iter().all(|needed| owned.contains(needed)) {
                assert!(
                    suite.attempt(&scene.narrowed(scene.world.platform.capabilities().iter()), method.verb),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn a_person_s_own_resource_is_shown_only_to_tokens_with_the_capability_to_read_it() {
    let scene = Scene::new();
    let personal = all_kinds().filter(|registered| registered.kind.roots == Roots::Personal);
    let mut read = 0;
    for registered in personal {
        let kind = registered.kind;
        for method in kind.methods {
            let own = |caller: &Caller| match method.verb {
                Verb::Get => scene.world.get(caller, kind.name, &scene.owner.identity).map(|found| vec![found]),
                Verb::List => scene.world.list(caller, kind.name, &[]).map(|page| {
                    page.items.into_iter().filter(|item| text(item, "uid") == scene.owner.identity.as_str()).collect()
                }),
                Verb::Update => scene
                    .world
                    .update(caller, kind.name, &scene.owner.identity, json!({}), None)
                    .map(|found| vec![found]),
                Verb::Create | Verb::Delete => Err(platform_engine::error::Error::denied()),
            };
            let shows = |caller: &Caller| match own(caller) {
                Ok(found) => !found.is_empty(),
                Err(error) => {
                    assert_eq!(error.code(), Code::PermissionDenied, "{} {}", method.verb.name(), kind.name);
                    false
                }
            };
            let what = format!("{} of {}", method.verb.name(), kind.name);
            let reads = matches!(method.verb, Verb::Get | Verb::List);
            assert_eq!(shows(&scene.owner), reads, "{what}");
            assert_eq!(shows(&scene.narrowed(method.capabilities.iter().copied())), reads, "{what}");
            assert!(!shows(&scene.narrowed([])), "{what} with a token for nothing");
            for missing in method.capabilities {
                assert!(!shows(&scene.without(*missing)), "{what} without {}", missing.name());
            }
            read += usize::from(reads);
        }
    }
    assert_eq!(read, 2, "the identity is read by a get and a list");
}

/// Actions that a token for nothing may call, because their replies depend on the request alone or show only resources
/// that the token may read.
const SHOW_NOTHING: &[&str] = &["LookupIdentity", "ExplainAccess"];

#[test]
fn an_action_is_denied_to_a_token_without_its_capability_and_one_about_the_caller_to_every_narrowed_token() {
    let scene = Scene::new();
    let stranger = scene.world.person("stranger", None);
    let mut denied = BTreeSet::new();
    for registered in all_kinds() {
        for action in registered.actions {
            for request in scene.requests(action) {
                let what = format!("{} with {request:?}", action.name);
                match action.authorization {
                    Authorization::Public => continue,
                    _ if SHOW_NOTHING.contains(&action.name) => continue,
                    Authorization::FiltersResult(needed) => {
                        // Shows no more than to a caller without any role.
                        let to_stranger = scene.run(&stranger, registered, action, &request).unwrap();
                        for caller in needed.iter().map(|missing| scene.without(*missing)).chain([scene.narrowed([])]) {
                            assert_eq!(
                                scene.run(&caller, registered, action, &request).unwrap(),
                                to_stranger,
                                "{what}"
                            );
                        }
                        continue;
                    }
                    _ => {}
                }
                assert_eq!(
                    code(scene.run(&scene.narrowed([]), registered, action, &request)),
                    Code::PermissionDenied,
                    "{what}"
                );
                for missing in needed(action) {
                    let done = scene.run(&scene.without(*missing), registered, action, &request);
                    assert_eq!(code(done), Code::PermissionDenied, "{what} without {}", missing.name());
                }
                // With a whole token, the owner is not denied.
                if !matches!(scene.run(&scene.owner, registered, action, &request), Err(error) if error.code() == Code::PermissionDenied)
                {
                    denied.insert(action.name);
                }
            }
        }
    }
    for own in [
        "EndSignIns",
        "RevokeTokens",
        "UpdateIdentityMetadata",
        "LookupGroup",
        "CheckEligibility",
        "RequestGroupAccess",
    ] {
        assert!(denied.contains(own), "{own} is not allowed to the person itself: {denied:?}");
    }
}

#[test]
fn no_token_that_is_narrowed_may_act_for_its_person_as_a_whole() {
    let scene = Scene::new();
    // Everything that the person may do, but by name.
    let all = scene.narrowed(scene.world.platform.capabilities().iter());
    let run = |action: &str| scene.world.run(Some(&all), action, request(&scene.world, action, &scene.org));
    for action in ["EndSignIns", "UpdateIdentityMetadata", "LookupGroup", "CheckEligibility", "RequestGroupAccess"] {
        assert_eq!(code(run(action)), Code::PermissionDenied, "{action}");
    }
    let own = json!({ "identityUid": all.identity });
    assert_eq!(code(scene.world.run(Some(&all), "RevokeTokens", own)), Code::PermissionDenied);
    assert_eq!(code(scene.world.create(&all, "Group", "", json!({ "name": "new" }))), Code::PermissionDenied);
    assert_eq!(code(block_on(Iam::of(&scene.world.platform).unregister(&all))), Code::PermissionDenied);
}

#[test]
fn a_method_of_a_service_of_version_1_is_denied_to_a_token_for_nothing() {
    let scene = Scene::new();
    let nothing = scene.narrowed([]);
    let mut allowed = BTreeSet::new();
    for service in SERVICES {
        for action in service.actions {
            let request = match action.authorization {
                Authorization::At(field, _) => Map::from_iter([(field.to_owned(), json!(scene.org))]),
                Authorization::As(_, verb, field) => {
                    let missing = format!("{}/0000000000000000", scene.org);
                    let uid = if verb == Verb::Create { scene.org.to_string() } else { missing };
                    Map::from_iter([(field.to_owned(), json!(uid))])
                }
                // The fields of the others are uids of groups.
                _ => action.request.iter().map(|field| (field.name.to_owned(), json!(scene.org))).collect(),
            };
            let done = scene.run(&nothing, service, action, &request);
            match (action.authorization, done.map_err(|error| error.code())) {
                (Authorization::Public | Authorization::FiltersResult(_), _) | (_, Err(Code::PermissionDenied)) => {}
                // It shows only identities that the token may read; the next test is about the caller's own.
                (Authorization::Authenticated, Err(Code::NotFound)) if action.name == "Lookup" => {}
                (_, done) => drop(allowed.insert(format!("{}: {done:?}", action.name))),
            }
        }
    }
    assert_eq!(allowed, BTreeSet::new());
}

#[test]
fn a_lookup_of_version_1_finds_one_s_own_identity_only_with_the_capability_to_read_it() {
    let scene = Scene::new();
    let all = SERVICES.iter().flat_map(|service| service.actions.iter().map(move |action| (service, action)));
    let (service, action) = all.into_iter().find(|(_, action)| action.name == "Lookup").unwrap();
    let own = Map::from_iter([("issuer".to_owned(), json!(ISSUER)), ("subject".to_owned(), json!("owner"))]);
    let look_up = |caller: &Caller| scene.run(caller, service, action, &own);
    let [read, bindings] = ["identity.list", "role_bindings.list"].map(|name| capabilities::by_name(name).unwrap());
    assert_eq!(look_up(&scene.owner).unwrap()["id"], json!(scene.owner.identity));
    assert_eq!(look_up(&scene.narrowed([read])).unwrap()["id"], json!(scene.owner.identity));
    // As of any person whose binding the token may read.
    assert_eq!(look_up(&scene.narrowed([bindings])).unwrap()["id"], json!(scene.owner.identity));
    assert_eq!(code(look_up(&scene.narrowed([]))), Code::NotFound);
    // The operator finds everybody.
    let unbound = scene.world.person("unbound", None).identity;
    let own = Map::from_iter([("issuer".to_owned(), json!(ISSUER)), ("subject".to_owned(), json!("unbound"))]);
    let look_up = |caller: &Caller| scene.run(caller, service, action, &own);
    assert_eq!(look_up(&scene.world.operator).unwrap()["id"], json!(unbound));
    assert_eq!(code(look_up(&scene.owner)), Code::NotFound);
}

//! Every removal and restriction of access is in force at the next request of a caller whose grants are cached: all
//! ways to restrict, all fields that callers' grants depend on, and all methods of all kinds.

use std::collections::{BTreeMap, BTreeSet};

use platform_core::{
    iam::Iam,
    resources::{KINDS, iam::DirectoryUser},
};
use platform_engine::{
    access::{Caller, Credential, Grants, Session},
    error::{Code, Result},
    kind::{Access, Http, Verb},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    all_kinds,
    common::{BEGIN, ISSUER, World, block_on, built_in, code, digest, object, text, uid_of},
    fixtures::fixtures,
    requests::request,
};

/// The ways by which callers have access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// An identity of the organization with a role binding.
    Binding,
    /// A person with a role binding, and with another one in another organization.
    BindingOfPerson,
    /// A sign-in by a provider whose default role has the capabilities.
    DefaultRole,
    /// A sign-in by a provider that maps an external group to the role.
    Mapping,
    /// The same, where the provider's directory provisions the user.
    Directory,
}

use By::{Binding, BindingOfPerson, DefaultRole, Directory, Mapping};

const ALL: &[By] = &[Binding, BindingOfPerson, DefaultRole, Mapping, Directory];
const BOUND: &[By] = &[Binding, BindingOfPerson];
const SIGNED_IN: &[By] = &[DefaultRole, Mapping, Directory];
const MAPPED: &[By] = &[Mapping, Directory];

const HELD: &[&str] = &["repo.list", "repo.create", "repo.update", "repo.delete", "tag.create"];
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A caller of each sort with access to a repo, whose grants are cached.
struct Scene {
    world: World,
    folder: Uid,
    repo: Uid,
    role: Uid,
    callers: BTreeMap<By, Caller>,
    bindings: BTreeMap<By, Uid>,
    providers: BTreeMap<By, Uid>,
    mappings: BTreeMap<By, Uid>,
    user: Uid,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        // A directory can admit its users only where others own the organization.
        for _ in 0..2 {
            world.member("owner", &world.org);
        }
        // Each sort of caller has its grants at a folder or at the organization; the repo is below both.
        let folder = world.group(&world.org);
        let repo = world.repo(&folder);
        let role = world.role(&world.org, HELD);
        let there = world.organization();
        let person = world.person("ada", None);
        world.bind(&person, &built_in("viewer"), &there);
        let mut callers = BTreeMap::from([(Binding, world.identity(&world.org)), (BindingOfPerson, person)]);
        let bindings = BOUND.iter().map(|by| (*by, world.bind(&callers[by], &role, &folder))).collect();
        let mut scene = Self {
            folder,
            repo,
            role,
            callers: BTreeMap::new(),
            bindings,
            providers: BTreeMap::new(),
            mappings: BTreeMap::new(),
            user: Uid::default(),
            world,
        };
        for by in SIGNED_IN {
            callers.insert(*by, scene.sign_in(*by));
        }
        let credential = Credential { id: Some(TOKEN.to_owned()), issued: BEGIN, generation: Some(0) };
        scene.callers =
            callers.into_iter().map(|(by, caller)| (by, caller.with_credential(credential.clone()))).collect();
        for (by, caller) in &scene.callers {
            scene.world.get(caller, "Repo", &scene.repo).unwrap_or_else(|error| panic!("{by:?}: {error}"));
        }
        scene
    }

    fn sign_in(&mut self, by: By) -> Caller {
        let world = &self.world;
        let provider = world.provider(&world.org);
        let mut session = Session { provider: provider.clone(), issuer: ISSUER.to_owned(), ..Session::default() };
        if by == DefaultRole {
            world
                .update(&world.operator, "IdentityProvider", &provider, json!({ "defaultRole": self.role }), None)
                .unwrap();
        } else {
            let body = json!({ "externalGroupId": "team", "roleUid": self.role, "scope": world.org });
            let mapping = world.create(&world.operator, "ExternalGroupRoleMapping", &provider, body).unwrap();
            self.mappings.insert(by, uid_of(&mapping));
            session.groups_claim = "groups".to_owned();
            session.groups = vec!["team".to_owned()];
        }
        if by == Directory {
            set_scim(world, &provider, true).unwrap();
            let user = DirectoryUser {
                user_name: "grace".to_owned(),
                external_id: "g".to_owned(),
                active: true,
                ..DirectoryUser::default()
            };
            self.user = block_on(Iam::of(&world.platform).create_directory_user(&provider, user)).unwrap().uid;
            session.user = Some(self.user.clone());
        }
        self.providers.insert(by, provider);
        world.person(&format!("{by:?}"), None).signed_in(session)
    }

    /// Calls the operator's method on a resource, which must succeed.
    fn update(&self, kind: &str, uid: &str, body: Value) {
        self.world.update(&self.world.operator, kind, uid, body, None).unwrap();
    }

    fn delete(&self, kind: &str, uid: &str) {
        self.world.delete(&self.world.operator, kind, uid).unwrap();
    }

    fn revoke(&self, mut request: Value) {
        for caller in self.callers.values() {
            request["identityUid"] = json!(caller.identity);
            self.world.run(Some(&self.world.operator), "RevokeTokens", request.clone()).unwrap();
        }
    }

    /// Changes the user of the directory, as SCIM does.
    fn change_user(&self, change: impl Fn(&mut DirectoryUser)) {
        let changed = |mut user: DirectoryUser| {
            change(&mut user);
            Ok(user)
        };
        let provider = &self.providers[&Directory];
        block_on(Iam::of(&self.world.platform).update_directory_user(provider, self.user.last_segment(), changed))
            .unwrap();
    }

    /// Tries a request of each sort: those that read one record, those that read a list, and those that commit.
    fn attempts(&self, caller: &Caller) -> [(&'static str, Result<Value>); 6] {
        let world = &self.world;
        [
            ("Get", world.get(caller, "Repo", &self.repo)),
            ("List", world.list(caller, "Repo", &[]).map(|page| page.items.into())),
            (
                "Create",
                world.create(caller, "Repo", &self.folder, json!({ "name": format!("new {}", world.serial()) })),
            ),
            (
                "Update",
                world.update(caller, "Repo", &self.repo, json!({ "description": format!("{}", world.serial()) }), None),
            ),
            ("Upsert", world.create(caller, "Tag", &self.repo, json!({ "name": "latest", "digest": digest('0') }))),
            ("Delete", world.delete(caller, "Repo", &self.repo).map(|()| Value::Null)),
        ]
    }

    /// Checks that the caller has no access to the repo.
    #[track_caller]
    fn assert_denied(&self, by: By, way: &str) {
        for (attempt, done) in self.attempts(&self.callers[&by]) {
            match done {
                Ok(listed) if attempt == "List" => assert_eq!(listed, json!([]), "{by:?} after {way}"),
                Err(error) if matches!(error.code(), Code::PermissionDenied | Code::Unauthenticated) => {}
                done => panic!("{attempt} of {by:?} after {way}: {done:?}"),
            }
        }
    }

    /// Checks for each caller that the platform decides by the grants that the store has now.
    #[track_caller]
    fn assert_current(&self, after: &str) {
        for (by, caller) in &self.callers {
            assert_current(&self.world, caller, &format!("{by:?} after {after}"));
        }
    }

    /// Returns the resources that the callers' grants depend on, with their kinds.
    fn resources(&self) -> Vec<(&'static str, Uid)> {
        let of = |kind, uids: &BTreeMap<By, Uid>| uids.values().map(move |uid| (kind, uid.clone())).collect::<Vec<_>>();
        let identities = self.callers.values().map(|caller| ("Identity", caller.identity.clone()));
        let mut all: Vec<_> = identities.chain([("Role", self.role.clone()), ("Group", self.folder.clone())]).collect();
        all.extend(of("RoleBinding", &self.bindings));
        all.extend(of("ExternalGroupRoleMapping", &self.mappings));
        all.extend(of("IdentityProvider", &self.providers));
        all
    }
}

fn set_scim(world: &World, provider: &Uid, enabled: bool) -> Result<Value> {
    let request = json!({ "identityProviderUid": provider });
    let issued = world.run(Some(&world.operator), "GenerateScimToken", request);
    let shown = world.get(&world.operator, "IdentityProvider", provider).unwrap();
    let etag = issued.ok().map_or_else(|| shown["scim"]["etag"].clone(), |issued| issued["etag"].clone());
    let request = json!({ "identityProviderUid": provider, "enabled": enabled, "etag": etag });
    world.run(Some(&world.operator), "SetScimEnabled", request)
}

/// Checks that the platform decides about a caller by the grants that the store has now, not by older cached ones.
#[track_caller]
fn assert_current(world: &World, caller: &Caller, context: &str) {
    let credential = caller.credential.as_deref();
    let is_revoked = |grants: &Grants| credential.is_some_and(|credential| !grants.revocations().admit(credential));
    let stored = match block_on(world.platform.read_grants(caller)) {
        Ok(grants) if is_revoked(&grants) => Err(Code::Unauthenticated),
        Ok(grants) => Ok(described(&grants)),
        Err(error) => Err(error.code()),
    };
    let used = block_on(world.platform.current_grants(caller));
    let used = used.map(|grants| described(&grants)).map_err(|error| error.code());
    assert_eq!(used, stored, "{context}");
}

fn described(grants: &Grants) -> BTreeSet<String> {
    grants.bound().map(|(group, held)| format!("{group} {held:?}")).collect()
}

/// A way to restrict access.
struct Way {
    name: &'static str,
    /// The methods of kinds that it calls.
    methods: &'static [&'static str],
    /// The callers that lose their access.
    restricts: &'static [By],
    restrict: fn(&Scene),
}

const fn way(
    name: &'static str,
    methods: &'static [&'static str],
    restricts: &'static [By],
    restrict: fn(&Scene),
) -> Way {
    Way { name, methods, restricts, restrict }
}

/// All ways to restrict access.
const WAYS: &[Way] = &[
    way("the binding is deleted", &["DeleteRoleBinding"], BOUND, |scene| {
        scene.bindings.values().for_each(|binding| scene.delete("RoleBinding", binding));
    }),
    way("the binding gets another role", &["UpdateRoleBinding"], BOUND, |scene| {
        let lesser = json!({ "roleUid": built_in("actions.viewer") });
        scene.bindings.values().for_each(|binding| scene.update("RoleBinding", binding, lesser.clone()));
    }),
    way("the binding gets another identity", &["UpdateRoleBinding"], BOUND, |scene| {
        for binding in scene.bindings.values() {
            let other = scene.world.identity(&scene.world.org).identity;
            scene.update("RoleBinding", binding, json!({ "identityUid": other }));
        }
    }),
    way("the role loses its capabilities", &["UpdateRole"], ALL, |scene| {
        scene.update("Role", &scene.role, json!({ "capabilities": ["CAP_IAM_GROUPS_LIST"] }));
    }),
    way("the group is deleted", &["DeleteGroup"], BOUND, |scene| {
        scene.delete("Repo", &scene.repo);
        scene.delete("Group", &scene.folder);
    }),
    way("the identity is deleted", &["DeleteIdentity"], ALL, |scene| {
        scene.callers.values().for_each(|caller| scene.delete("Identity", &caller.identity));
    }),
    way("the person unregisters", &[], &[BindingOfPerson, DefaultRole, Mapping, Directory], |scene| {
        for by in [BindingOfPerson, DefaultRole, Mapping, Directory] {
            block_on(Iam::of(&scene.world.platform).unregister(&scene.callers[&by])).unwrap();
        }
    }),
    way("the person unregisters and registers again", &[], &[BindingOfPerson], |scene| {
        block_on(Iam::of(&scene.world.platform).unregister(&scene.callers[&BindingOfPerson])).unwrap();
        scene.world.person("ada", None);
    }),
    way("the token is revoked", &["RevokeTokens"], ALL, |scene| scene.revoke(json!({ "tokenId": TOKEN }))),
    way("the tokens before a time are revoked", &["RevokeTokens"], ALL, |scene| {
        scene.revoke(json!({ "beforeTime": BEGIN }));
    }),
    way("all tokens are revoked", &["RevokeTokens"], ALL, |scene| scene.revoke(json!({}))),
    way("the provider is deleted", &["DeleteIdentityProvider"], SIGNED_IN, |scene| {
        scene.providers.values().for_each(|provider| scene.delete("IdentityProvider", provider));
    }),
    way("the provider gets another issuer", &["UpdateIdentityProvider"], SIGNED_IN, |scene| {
        let other = json!({ "oidc": { "issuer": "https://other.test" } });
        scene.providers.values().for_each(|provider| scene.update("IdentityProvider", provider, other.clone()));
    }),
    way("the provider gets another claim of groups", &["UpdateIdentityProvider"], MAPPED, |scene| {
        let other = json!({ "oidc": { "groupsClaim": "roles" } });
        scene.providers.values().for_each(|provider| scene.update("IdentityProvider", provider, other.clone()));
    }),
    way("the provider gets another default role", &["UpdateIdentityProvider"], &[DefaultRole], |scene| {
        let lesser = json!({ "defaultRole": built_in("actions.viewer") });
        scene.update("IdentityProvider", &scene.providers[&DefaultRole], lesser);
    }),
    way("the provider admits users of its directory only", &["SetScimEnabled"], &[DefaultRole, Mapping], |scene| {
        for by in [DefaultRole, Mapping] {
            set_scim(&scene.world, &scene.providers[&by], true).unwrap();
        }
    }),
    way("the mapping is deleted", &["DeleteExternalGroupRoleMapping"], MAPPED, |scene| {
        scene.mappings.values().for_each(|mapping| scene.delete("ExternalGroupRoleMapping", mapping));
    }),
    way("the mappings are deleted in a batch", &["BatchDeleteExternalGroupRoleMappings"], MAPPED, |scene| {
        for (by, mapping) in &scene.mappings {
            let request = json!({ "parent": scene.providers[by], "names": [mapping] });
            scene.world.run(Some(&scene.world.operator), "BatchDeleteExternalGroupRoleMappings", request).unwrap();
        }
    }),
    way("SCIM deactivates the user", &[], &[Directory], |scene| scene.change_user(|user| user.active = false)),
    way("SCIM deletes the user", &[], &[Directory], |scene| {
        let provider = &scene.providers[&Directory];
        block_on(Iam::of(&scene.world.platform).delete_directory_user(provider, scene.user.last_segment())).unwrap();
    }),
];

#[test]
fn every_way_to_restrict_access_is_in_force_at_the_next_request() {
    for way in WAYS {
        let scene = Scene::new();
        (way.restrict)(&scene);
        scene.assert_current(way.name);
        way.restricts.iter().for_each(|by| scene.assert_denied(*by, way.name));
        // The way restricts nobody else.
        for by in ALL.iter().filter(|by| !way.restricts.contains(by) && way.name != "the group is deleted") {
            let seen = scene.world.list(&scene.callers[by], "Repo", &[]);
            assert_ne!(seen.unwrap().total, 0, "{by:?} after {}", way.name);
        }
    }
}

#[test]
fn the_access_by_an_email_address_ends_with_the_address() {
    let world = World::new();
    let verified = json!({ "name": "a.test", "verified": true, "kind": "ORG_KIND_DEV" });
    world.update(&world.operator, "Group", &world.org, verified, None).unwrap();
    let ada = world.person("ada", Some("ada@a.test"));
    let look_up = || world.run(Some(&ada), "LookupGroup", json!({}));
    look_up().unwrap();
    // The issuer states another address.
    world.person("ada", Some("ada@b.test"));
    assert_eq!(code(look_up()), Code::NotFound);
    let ask = world.run(Some(&ada), "RequestGroupAccess", json!({ "groupUid": world.org }));
    assert_eq!(code(ask), Code::NotFound);
    assert_eq!(world.run(Some(&ada), "CheckEligibility", json!({})).unwrap()["eligible"], false);
}

/// Methods that write data of the domain and never take access away.
const NEVER_RESTRICT: &[&str] = &[
    "CreateGroup",
    "UpdateGroup",
    "CreateIdentity",
    // The relationship of an identity decides who gets tokens; those that were issued stay valid until they expire.
    "UpdateIdentity",
    "CreateRole",
    // A role that is given by anything cannot be deleted.
    "DeleteRole",
    "CreateRoleBinding",
    "CreateIdentityProvider",
    "CreateExternalGroupRoleMapping",
    "BatchCreateRoleBindings",
    "RepairOwner",
    // They belong to the directory, not to the persons that it provisions.
    "GenerateScimToken",
    "RegenerateScimToken",
    "RevokeScimToken",
    // An invite gives a role when it is redeemed, and never after.
    "CreateGroupInvite",
    "DeleteGroupInvite",
    // The identities of services have no capabilities by it.
    "CreateAccountAssociation",
    "UpdateAccountAssociation",
    "DeleteAccountAssociation",
    "CheckAccountAssociation",
    // They end refresh tokens; an access token is revoked by `RevokeTokens`.
    "EndSignIns",
    "DeleteGroupAccessRequest",
    "RequestGroupAccess",
    "UpdateIdentityMetadata",
    "AcceptTerms",
    "SetResourceLimit",
    "RemoveResourceLimit",
];

#[test]
fn every_method_that_writes_in_the_domain_of_access_has_a_way_or_never_restricts() {
    let mut methods = BTreeSet::new();
    let of_access = KINDS.iter().filter(|registered| registered.kind.domain.name == "iam");
    for registered in of_access {
        for verb in [Verb::Create, Verb::Update, Verb::Delete] {
            if registered.kind.method(verb).is_some() {
                methods.insert(format!("{}{}", verb.name(), registered.kind.name));
            }
        }
        let writes = registered.actions.iter().filter(|action| action.http != Http::Get);
        methods.extend(writes.map(|action| action.name.to_owned()));
    }
    let tried: BTreeSet<_> = WAYS.iter().flat_map(|way| way.methods).map(|name| (*name).to_owned()).collect();
    let others: BTreeSet<_> = NEVER_RESTRICT.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(tried.intersection(&others).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(tried.union(&others).cloned().collect::<BTreeSet<_>>(), methods);
    // Nothing else gives power for good: a kind with such fields is in the domain of access.
    let elsewhere = all_kinds().filter(|registered| registered.kind.domain.name != "iam");
    for registered in
        elsewhere.filter(|registered| registered.kind.methods.iter().any(|method| method.verb != Verb::List))
    {
        let gives = registered.kind.fields.iter().filter(|field| field.privileged);
        let names: Vec<_> = gives.map(|field| format!("{}.{}", registered.kind.name, field.name)).collect();
        assert!(names.iter().all(|name| PRIVILEGED_ELSEWHERE.contains(&&**name)), "{names:?}");
    }
}

/// Fields that give power in other domains. A follower of a repo ends with the right to pull, which the tests of
/// followers revoke.
const PRIVILEGED_ELSEWHERE: &[&str] = &["Repo.syncConfig"];

#[test]
fn after_an_update_of_any_field_and_after_a_delete_the_grants_in_use_are_those_of_the_store() {
    let values: BTreeMap<_, Vec<Value>> = {
        let world = World::new();
        let of = |fixture: crate::fixtures::Fixture| {
            let pairs = fixture.pairs(&world, &world.org).into_iter();
            (fixture.kind, pairs.flat_map(|pair| [pair.b, pair.a]).collect())
        };
        fixtures().filter(|fixture| fixture.kind != "GroupAccessRequest").map(of).collect()
    };
    let mut updated = BTreeSet::new();
    for index in 0..Scene::new().resources().len() {
        let scene = Scene::new();
        let (kind, uid) = scene.resources().swap_remove(index);
        let table = scene.world.kind(kind).kind;
        for field in table.fields.iter().filter(|field| matches!(field.access, Access::Mutable | Access::InputOnly)) {
            for body in &values[kind] {
                let Some(value) = body.get(field.name) else { continue };
                let body = json!({ field.name: value });
                // The values are of resources in another world, so that some are rejected.
                if scene.world.update(&scene.world.operator, kind, &uid, body, Some(field.name)).is_ok() {
                    scene.assert_current(&format!("an update of {kind}.{}", field.name));
                    updated.insert(format!("{kind}.{}", field.name));
                }
            }
        }
        if scene.world.delete(&scene.world.operator, kind, &uid).is_ok() {
            scene.assert_current(&format!("a delete of {kind}"));
            updated.insert(kind.to_owned());
        }
    }
    for expected in ["Role.capabilities", "IdentityProvider.oidc", "Identity.claimMatch", "RoleBinding", "Identity"] {
        assert!(updated.contains(expected), "{expected} is not among {updated:?}");
    }
}

#[test]
fn after_any_method_of_any_kind_the_grants_in_use_are_those_of_the_store() {
    let scene = Scene::new();
    let world = &scene.world;
    let owner = world.member("owner", &world.org);
    for fixture in fixtures() {
        for verb in [Verb::Create, Verb::Update, Verb::Delete] {
            if world.kind(fixture.kind).kind.method(verb).is_some() {
                fixture.suite(world, &world.org).attempt(&owner, verb);
                scene.assert_current(&format!("{}{}", verb.name(), fixture.kind));
                assert_current(world, &owner, fixture.kind);
            }
        }
    }
    let writes = all_kinds().flat_map(|registered| registered.actions).filter(|action| action.http != Http::Get);
    for action in writes.filter(|action| known_request(action.name)) {
        let identities = scene.callers.values().map(|caller| &caller.identity);
        for identity in identities {
            let mut request = object(request(world, action.name, &world.org));
            // An action on an identity is called for each caller.
            if request.contains_key("identityUid") {
                request.insert("identityUid".to_owned(), json!(identity));
            }
            // Whether it succeeds does not matter: it must not leave grants that are out of date.
            drop(world.run(Some(&world.operator), action.name, request.into()));
            scene.assert_current(action.name);
        }
    }
    assert!(text(&world.get(&world.operator, "Group", &world.org).unwrap(), "uid") == world.org.as_str());
}

/// Returns whether an action is one of the kinds of this crate's tests: that of the sample kind has no request.
fn known_request(action: &str) -> bool {
    KINDS.iter().flat_map(|registered| registered.actions).any(|known| known.name == action)
}

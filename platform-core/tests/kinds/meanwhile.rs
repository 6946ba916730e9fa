//! A write that relies on another record is refused when that record ends before the write is committed, at whatever time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use platform_core::{iam::Iam, resources::iam::DirectoryUser};
use platform_engine::{
    access::{Caller, Credential},
    error::{Code, Result},
    uid::Uid,
};
use platform_testkit::{Call, Gate, GatedStore};
use serde_json::{Value, json};

use crate::common::{BEGIN, World, block_on, code, text, uid_of};

const DOCUMENT: &str = "sfdpa.v1";
const DOMAIN: &str = "example.com";

/// The records that the writes rely on.
struct Scene {
    world: World,
    gate: Arc<Gate>,
    /// A verified organization with nothing but its owner, the operator.
    organization: Uid,
    /// An empty folder of another organization, which has the other records.
    folder: Uid,
    role: Uid,
    /// An identity of a service.
    service: Uid,
    provider: Uid,
    person: Caller,
    invite: Value,
}

impl Scene {
    fn new() -> Self {
        let (store, gate) = GatedStore::in_memory();
        let world = World::over(store);
        let operator = &world.operator;
        let verified = json!({ "name": DOMAIN, "verified": true, "kind": "ORG_KIND_CUSTOMER" });
        let service = json!({ "name": "a", "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" });
        let role = world.role(&world.org, &["repo.list"]);
        let invite = json!({ "roleUid": role, "ttl": "3600s" });
        Self {
            organization: uid_of(&world.create(operator, "Group", "", verified).unwrap()),
            folder: world.group(&world.org),
            service: uid_of(&world.create(operator, "Identity", &world.org, service).unwrap()),
            provider: world.provider(&world.org),
            person: world.person("ada", Some(&format!("ada@{DOMAIN}"))),
            invite: world.create(operator, "GroupInvite", &world.org, invite).unwrap(),
            role,
            gate,
            world,
        }
    }

    fn create(&self, kind: &str, parent: &str, body: Value) -> Result<()> {
        self.world.create(&self.world.operator, kind, parent, body).map(drop)
    }

    fn run(&self, caller: &Caller, action: &str, request: Value) -> Result<()> {
        self.world.run(Some(caller), action, request).map(drop)
    }

    fn redeem(&self) -> Result<()> {
        let credential = Credential::issued_at(Some(BEGIN));
        let iam = Iam::of(&self.world.platform);
        let code = text(&self.invite, "code");
        block_on(iam.redeem_invite_by(&self.person.identity, Some(&credential), code)).map(drop)
    }

    fn delete(&self, kind: &str, uid: &str) {
        self.world.delete(&self.world.operator, kind, uid).unwrap();
    }
}

type Write = fn(&Scene) -> Result<()>;
type End = fn(&Scene);

/// Records that a write relies on: a name, its end, and the code of the refusal.
type Ends = &'static [(&'static str, End, Code)];

const WRITES: [(&str, Write, Ends); 12] = [
    (
        "a binding",
        |scene| {
            let body = json!({ "identityUid": scene.service, "roleUid": scene.role });
            scene.create("RoleBinding", &scene.world.org, body)
        },
        &[("role", DELETE_ROLE, Code::InvalidArgument), ("identity", DELETE_SERVICE, Code::InvalidArgument)],
    ),
    (
        "an invite",
        |scene| scene.create("GroupInvite", &scene.world.org, json!({ "roleUid": scene.role, "ttl": "60s" })),
        &[("role", DELETE_ROLE, Code::InvalidArgument)],
    ),
    (
        "a provider",
        |scene| {
            let oidc = json!({ "issuer": "https://issuer.test", "clientId": "c", "pkceEnabled": true });
            let body = json!({ "name": "p", "defaultRole": scene.role, "oidc": oidc });
            scene.create("IdentityProvider", &scene.world.org, body)
        },
        &[("role", DELETE_ROLE, Code::InvalidArgument)],
    ),
    (
        "a mapping",
        |scene| {
            let body = json!({ "externalGroupId": "g", "roleUid": scene.role, "scope": scene.world.org });
            scene.create("ExternalGroupRoleMapping", &scene.provider, body)
        },
        &[("role", DELETE_ROLE, Code::InvalidArgument), ("provider", DELETE_PROVIDER, Code::NotFound)],
    ),
    (
        "an association",
        |scene| {
            let bindings = json!({ "chainguard": { "serviceBindings": { "INGESTER": scene.service } }, "name": "a" });
            scene.create("AccountAssociation", &scene.world.org, bindings)
        },
        &[("identity", DELETE_SERVICE, Code::InvalidArgument)],
    ),
    (
        "a request for access",
        |scene| scene.run(&scene.person, "RequestGroupAccess", json!({ "groupUid": scene.organization })),
        &[("group", DELETE_ORGANIZATION, Code::NotFound)],
    ),
    (
        "a repair",
        |scene| {
            let request = json!({ "groupUid": scene.organization, "identityUid": scene.person.identity });
            scene.run(&scene.world.operator, "RepairOwner", request)
        },
        &[("group", DELETE_ORGANIZATION, Code::NotFound), ("person", DELETE_PERSON, Code::NotFound)],
    ),
    (
        "an acceptance",
        |scene| {
            let request = json!({ "group": scene.folder, "documentIds": [DOCUMENT] });
            scene.run(&scene.world.operator, "AcceptTerms", request)
        },
        &[("group", |scene| scene.delete("Group", &scene.folder), Code::NotFound)],
    ),
    (
        "metadata",
        |scene| {
            let request = json!({ "identityMetadata": { "company": "c" } });
            scene.run(&scene.person, "UpdateIdentityMetadata", request)
        },
        &[("person", DELETE_PERSON, Code::Unauthenticated)],
    ),
    (
        "a sign-in",
        |scene| scene.world.sign_in(&scene.person.identity, [b"family", b"token"], 1_000).map(drop),
        &[("person", DELETE_PERSON, Code::Unauthenticated)],
    ),
    (
        "a user",
        |scene| {
            let user = DirectoryUser { user_name: "ada".to_owned(), ..DirectoryUser::default() };
            block_on(Iam::of(&scene.world.platform).create_directory_user(&scene.provider, user)).map(drop)
        },
        &[("provider", DELETE_PROVIDER, Code::NotFound)],
    ),
    (
        "a redemption",
        Scene::redeem,
        &[
            ("invite", |scene| scene.delete("GroupInvite", text(&scene.invite, "uid")), Code::InvalidArgument),
            ("role", DELETE_ROLE, Code::InvalidArgument),
            ("person", DELETE_PERSON, Code::InvalidArgument),
            ("token", REVOKE_TOKENS, Code::InvalidArgument),
        ],
    ),
];

const DELETE_ROLE: End = |scene| scene.delete("Role", &scene.role);
const DELETE_SERVICE: End = |scene| scene.delete("Identity", &scene.service);
const DELETE_PERSON: End = |scene| scene.delete("Identity", &scene.person.identity);
const DELETE_PROVIDER: End = |scene| scene.delete("IdentityProvider", &scene.provider);
const DELETE_ORGANIZATION: End = |scene| scene.delete("Group", &scene.organization);
const REVOKE_TOKENS: End =
    |scene| scene.run(&scene.person, "RevokeTokens", json!({ "identityUid": scene.person.identity })).unwrap();

#[test]
fn a_write_is_refused_when_a_record_that_it_relies_on_ends_before_its_commit() {
    for (what, write, ends) in WRITES {
        write(&Scene::new()).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (record, end, refusal) in ends {
            let scene = Scene::new();
            let done = scene.gate.interleave(Call::Commit, || write(&scene), || end(&scene));
            assert_eq!(code(done), *refusal, "{what} without its {record}");
        }
    }
}

#[test]
fn a_write_is_refused_when_a_record_that_it_relies_on_ends_between_two_of_its_reads() {
    let cases = WRITES.iter().flat_map(|(what, write, ends)| ends.iter().map(move |end| (what, write, end)));
    for (what, write, (record, end, _)) in cases {
        for nth in 0.. {
            let (scene, is_done, has_ended) = (Scene::new(), AtomicBool::new(false), AtomicBool::new(false));
            let first = || {
                let done = write(&scene);
                is_done.store(true, SeqCst);
                (done, has_ended.load(SeqCst))
            };
            let then = || {
                if !is_done.load(SeqCst) {
                    end(&scene);
                    has_ended.store(true, SeqCst);
                }
            };
            let (done, ended_before) = scene.gate.interleave_nth(Call::Get, nth, first, then);
            if !ended_before {
                assert!(nth > 0, "{what} reads its {record}");
                break;
            }
            assert!(done.is_err(), "{what} without its {record} from read {nth} on");
        }
    }
}

//! Following a repo is a grant: on whose access it depends, how long it lasts and how it ends (`docs/api.md`, Repos).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use platform_engine::{
    access::{Caller, Session},
    error::{Code, Result},
    uid::Uid,
};
use platform_testkit::{Call, CountingStore, GatedStore};
use serde_json::{Value, json};

use crate::{
    common::{BEGIN, ISSUER, World, built_in, code, text, uid_of, violated_fields},
    deliveries::{pending_summaries, subscribe},
};

const DAY: i64 = 24 * 60 * 60 * 1000;

const INHERITED: [&str; 4] = ["catalogTier", "bundles", "aliases", "activeTags"];

/// Two organizations: one with a repo, and one with an editor who can pull from that repo.
struct Tenants {
    world: World,
    /// The organization of the source.
    there: Uid,
    source: Uid,
    /// An editor of the first organization, `world.org`.
    ada: Caller,
    /// Ada's binding at the organization of the source.
    binding: Uid,
}

impl Tenants {
    fn new() -> Self {
        Self::over(World::new())
    }

    fn over(world: World) -> Self {
        let there = world.organization();
        let body = json!({
            "name": "nginx", "description": "before", "catalogTier": "CATALOG_TIER_BASE", "bundles": ["base"],
            "aliases": ["nginx:latest"], "activeTags": ["1"],
        });
        let source = uid_of(&world.create(&world.operator, "Repo", &there, body).unwrap());
        world.update(&world.operator, "RepoReadme", &source, json!({ "content": "before" }), None).unwrap();
        let ada = world.person("ada", None);
        world.bind(&ada, &built_in("editor"), &world.org);
        let binding = world.bind(&ada, &built_in("registry.pull"), &there);
        Self { world, there, source, ada, binding }
    }

    fn follow(&self, caller: &Caller, source: &str) -> Result<Value> {
        let body = json!({ "name": format!("follower {}", self.world.serial()), "syncConfig": { "source": source } });
        self.world.create(caller, "Repo", &self.world.org, body)
    }

    fn follower(&self) -> Uid {
        uid_of(&self.follow(&self.ada, &self.source).unwrap())
    }

    fn get(&self, uid: &str) -> Value {
        self.world.get(&self.world.operator, "Repo", uid).unwrap()
    }

    fn readme(&self, uid: &str) -> Value {
        self.world.get(&self.world.operator, "RepoReadme", uid).unwrap()
    }

    fn update(&self, uid: &str, body: Value) -> Result<Value> {
        self.world.update(&self.world.operator, "Repo", uid, body, None)
    }

    fn revoke(&self) {
        self.world.delete(&self.world.operator, "RoleBinding", &self.binding).unwrap();
    }

    /// Writes a text into the source and its readme.
    fn publish(&self, text: &str) {
        let body = json!({ "description": text, "aliases": [format!("{}:1", text.replace(' ', "-"))] });
        self.update(&self.source, body).unwrap();
        self.world.update(&self.world.operator, "RepoReadme", &self.source, json!({ "content": text }), None).unwrap();
    }

    /// Asserts that a follower shows the values and the readme of its source.
    #[track_caller]
    fn assert_shows_source(&self, uid: &str) {
        let (source, repo) = (self.get(&self.source), self.get(uid));
        for field in INHERITED.iter().chain(&["description"]) {
            assert_eq!(repo.get(*field), source.get(*field), "{field}");
        }
        assert_eq!(self.readme(uid).get("content"), self.readme(&self.source).get("content"));
    }

    /// Asserts that a follower shows nothing of its source, keeps its `syncConfig`, and can be written.
    #[track_caller]
    fn assert_shows_own(&self, uid: &str) {
        let repo = self.get(uid);
        for field in INHERITED.iter().chain(&["description"]) {
            assert_eq!(repo.get(*field), None, "{field}");
        }
        assert_eq!(repo["syncConfig"]["source"], json!(self.source));
        assert_eq!(self.readme(uid).get("content"), None);
        let listed = self.world.list(&self.world.operator, "Repo", &[("uidp.ids", uid)]).unwrap();
        assert_eq!(listed.items, [repo]);
        let own =
            json!({ "catalogTier": "CATALOG_TIER_AI", "bundles": ["ai"], "aliases": ["a:b"], "activeTags": ["x"] });
        let written = self.update(uid, own.clone()).unwrap();
        INHERITED.iter().for_each(|field| assert_eq!(written[*field], own[*field]));
        self.world.update(&self.world.operator, "RepoReadme", uid, json!({ "content": "own" }), None).unwrap();
        assert_eq!(self.readme(uid)["content"], "own");
    }
}

#[test]
fn a_follower_shows_its_own_values_once_the_identity_that_set_the_source_cannot_pull() {
    let tenants = Tenants::new();
    let repo = tenants.follower();
    tenants.assert_shows_source(&repo);
    tenants.revoke();
    tenants.publish("after the revocation");
    tenants.assert_shows_own(&repo);
}

#[test]
fn a_follower_shows_its_source_again_when_the_identity_can_pull_again_and_keeps_its_own_values() {
    let tenants = Tenants::new();
    let repo = tenants.follower();
    tenants.revoke();
    let own = json!({ "aliases": ["own:1"] });
    tenants.update(&repo, own.clone()).unwrap();
    let binding = tenants.world.bind(&tenants.ada, &built_in("registry.pull"), &tenants.there);
    tenants.assert_shows_source(&repo);
    tenants.world.delete(&tenants.world.operator, "RoleBinding", &binding).unwrap();
    assert_eq!(tenants.get(&repo)["aliases"], own["aliases"]);
}

#[test]
fn a_follower_shows_its_own_values_once_the_identity_is_deleted_even_if_the_person_registers_again() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let robot = world.member("editor", &world.org);
    let own_source = world.repo(&world.org);
    world.update(&world.operator, "Repo", &own_source, json!({ "aliases": ["a:b"] }), None).unwrap();
    let by_robot = tenants.follow(&robot, &own_source).unwrap();
    assert_eq!(by_robot["aliases"], json!(["a:b"]));
    world.delete(&world.operator, "Identity", &robot.identity).unwrap();
    assert_eq!(tenants.get(text(&by_robot, "uid")).get("aliases"), None);

    let repo = tenants.follower();
    world.delete(&world.operator, "Identity", &tenants.ada.identity).unwrap();
    world.clock.advance(1000);
    let again = world.person("ada", None);
    assert_eq!(again.identity, tenants.ada.identity);
    world.bind(&again, &built_in("registry.pull"), &tenants.there);
    tenants.assert_shows_own(&repo);
}

#[test]
fn a_following_lasts_14_days_and_setting_the_source_again_renews_it() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let subscription = subscribe(world, &world.org);
    let repo = tenants.follower();
    world.clock.set(BEGIN.plus_millis(14 * DAY - 1));
    tenants.assert_shows_source(&repo);
    let set = |caller: &Caller| {
        let body = json!({ "syncConfig": { "source": tenants.source } });
        world.update(caller, "Repo", &repo, body, None)
    };
    let renewed = set(&tenants.ada).unwrap();
    let until = BEGIN.plus_millis(28 * DAY - 1).to_string();
    assert_eq!(text(&renewed["syncConfig"], "expirationTime"), until);
    assert_eq!(text(&renewed, "updateTime"), world.platform.now().to_string());
    assert_eq!(pending_summaries(world, &subscription).len(), 2, "events of the create and of the renewal");
    tenants.update(&repo, json!({ "syncConfig": { "google": "g" } })).unwrap();
    world.clock.set(BEGIN.plus_millis(28 * DAY - 2));
    tenants.assert_shows_source(&repo);
    world.clock.set(BEGIN.plus_millis(28 * DAY - 1));
    tenants.publish("after the expiration");
    tenants.assert_shows_own(&repo);
    set(&tenants.ada).unwrap();
    tenants.publish("renewed");
    assert_eq!(tenants.get(&repo)["aliases"], json!(["renewed:1"]));
}

#[test]
fn setting_the_source_again_requires_pull_access_and_makes_the_following_depend_on_the_caller() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let repo = tenants.follower();
    let set = |caller: &Caller, mask: Option<&str>| {
        let body = json!({ "name": "follower", "syncConfig": { "source": tenants.source } });
        world.update(caller, "Repo", &repo, body, mask)
    };
    let grace = world.person("grace", None);
    world.bind(&grace, &built_in("editor"), &world.org);
    for mask in [None, Some("*"), Some("syncConfig"), Some("syncConfig.source")] {
        assert_eq!(violated_fields(set(&grace, mask)), ["syncConfig.source"], "{mask:?}");
    }
    world.update(&grace, "Repo", &repo, json!({ "syncConfig": { "google": "g" } }), None).unwrap();
    tenants.assert_shows_source(&repo);
    world.bind(&grace, &built_in("registry.pull"), &tenants.there);
    set(&grace, None).unwrap();
    tenants.revoke();
    tenants.assert_shows_source(&repo);
    assert_eq!(violated_fields(set(&tenants.ada, None)), ["syncConfig.source"]);
}

#[test]
fn a_token_narrowed_to_less_than_pull_access_cannot_follow() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let all = world.role(&world.org, &["repo.create", "repo.list"]);
    let narrowed = platform_engine::access::Narrowing::new([
        (world.org.clone(), capabilities_of(world, &all)),
        (tenants.there.clone(), [platform_core::capabilities::by_name("repo.list").unwrap()].into_iter().collect()),
    ]);
    let narrowed = tenants.ada.clone().narrowed(narrowed);
    assert_eq!(violated_fields(tenants.follow(&narrowed, &tenants.source)), ["syncConfig.source"]);
}

fn capabilities_of(world: &World, role: &str) -> platform_engine::access::CapabilitySet {
    let role = world.get(&world.operator, "Role", role).unwrap();
    let ids = role["capabilities"].as_array().unwrap().iter();
    ids.map(|id| platform_core::capabilities::by_id(id.as_str().unwrap()).unwrap()).collect()
}

#[test]
fn rights_from_a_sign_in_count_while_the_provider_gives_them() {
    for end in ["the default role", "the mapping", "the provider"] {
        let tenants = Tenants::new();
        let world = &tenants.world;
        let provider = world.provider(&tenants.there);
        let oidc = json!({ "issuer": ISSUER, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true });
        let pull = if end == "the mapping" { "actions.viewer" } else { "registry.pull" };
        let body = json!({ "defaultRole": built_in(pull), "oidc": oidc });
        world.update(&world.operator, "IdentityProvider", &provider, body, None).unwrap();
        let mapping =
            json!({ "externalGroupId": "pullers", "roleUid": built_in("registry.pull"), "scope": tenants.there });
        let mapping = (end == "the mapping")
            .then(|| world.create(&world.operator, "ExternalGroupRoleMapping", &provider, mapping));
        let grace = world.person("grace", None);
        world.bind(&grace, &built_in("editor"), &world.org);
        let groups = vec!["pullers".to_owned()];
        let session = Session {
            provider: provider.clone(),
            issuer: ISSUER.to_owned(),
            user: None,
            groups_claim: "groups".to_owned(),
            groups,
        };
        assert_eq!(violated_fields(tenants.follow(&grace, &tenants.source)), ["syncConfig.source"]);
        let signed_in = grace.signed_in(session);
        let repo = uid_of(&tenants.follow(&signed_in, &tenants.source).unwrap());
        tenants.assert_shows_source(&repo);
        match mapping {
            Some(mapping) => {
                let mapping = uid_of(&mapping.unwrap());
                world.delete(&world.operator, "ExternalGroupRoleMapping", &mapping).unwrap();
            }
            None if end == "the provider" => world.delete(&world.operator, "IdentityProvider", &provider).unwrap(),
            None => {
                let body = json!({ "defaultRole": built_in("actions.viewer") });
                world.update(&world.operator, "IdentityProvider", &provider, body, None).unwrap();
            }
        }
        tenants.publish("afterwards");
        tenants.assert_shows_own(&repo);
    }
}

#[test]
fn the_owner_of_the_source_can_list_its_followers_and_end_a_following() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let [first, second] = [tenants.follower(), tenants.follower()];
    let owner = world.member("owner", &tenants.there);
    let listed = || world.list(&owner, "RepoFollower", &[("uidp.children_of", &*tenants.source)]).unwrap().items;
    let of = |repo: &Uid| listed().into_iter().find(|follower| text(follower, "repoUid") == &**repo);
    assert_eq!(listed().len(), 2);
    let follower = of(&first).unwrap();
    let known: Vec<_> = follower.as_object().unwrap().keys().cloned().collect();
    assert_eq!(known, ["uid", "repoUid", "expirationTime", "createTime", "updateTime"]);
    for caller in [world.member("owner", &world.org), world.member("viewer", &tenants.there), tenants.ada.clone()] {
        assert_eq!(world.walk(&caller, "RepoFollower", &[]), [] as [Value; 0]);
        let denied = world.delete(&caller, "RepoFollower", text(&follower, "uid"));
        assert_eq!(code(denied), Code::PermissionDenied);
    }
    world.delete(&owner, "RepoFollower", text(&follower, "uid")).unwrap();
    tenants.publish("after the end");
    tenants.assert_shows_own(&first);
    tenants.assert_shows_source(&second);
    assert_eq!((of(&first), listed().len()), (None, 1));
    assert_eq!(code(world.delete(&owner, "RepoFollower", text(&follower, "uid"))), Code::NotFound);
}

#[test]
fn a_following_is_listed_until_the_follower_is_deleted_or_changes_or_clears_its_source() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let [first, second, third] = [tenants.follower(), tenants.follower(), tenants.follower()];
    let listed = |source: &Uid| world.walk(&world.operator, "RepoFollower", &[("uidp.children_of", source)]).len();
    assert_eq!(listed(&tenants.source), 3);
    world.delete(&world.operator, "Repo", &first).unwrap();
    tenants.update(&second, json!({ "syncConfig": null })).unwrap();
    assert_eq!(listed(&tenants.source), 1);
    let other = world.repo(&world.org);
    tenants.update(&third, json!({ "syncConfig": { "source": other } })).unwrap();
    assert_eq!((listed(&tenants.source), listed(&other)), (0, 1));
}

#[test]
fn a_followed_repo_can_be_deleted_and_its_followers_then_show_their_own_values() {
    let tenants = Tenants::new();
    let repo = tenants.follower();
    tenants.world.delete(&tenants.world.operator, "Repo", &tenants.source).unwrap();
    assert_eq!(tenants.world.walk(&tenants.world.operator, "RepoFollower", &[]), [] as [Value; 0]);
    let left = tenants.get(&repo);
    assert_eq!((left.get("aliases"), &left["syncConfig"]["source"]), (None, &json!(tenants.source)));
    assert_eq!(tenants.readme(&repo).get("content"), None);
    tenants.update(&repo, json!({ "aliases": ["own:1"] })).unwrap();
    let again = json!({ "syncConfig": { "source": tenants.source } });
    assert_eq!(violated_fields(tenants.update(&repo, again)), ["syncConfig.source"]);
    tenants.world.delete(&tenants.world.operator, "Repo", &repo).unwrap();
}

#[test]
fn a_followed_repo_may_follow_another_and_shares_only_its_own_values() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let repo = tenants.follower();
    let upstream = world.repo(&tenants.there);
    world.update(&world.operator, "Repo", &upstream, json!({ "aliases": ["upstream:1"] }), None).unwrap();
    let owner = world.member("owner", &tenants.there);
    let follow = json!({ "syncConfig": { "source": upstream } });
    let source = world.update(&owner, "Repo", &tenants.source, follow, None).unwrap();
    assert_eq!(source["aliases"], json!(["upstream:1"]));
    assert_eq!(tenants.get(&repo)["aliases"], json!(["nginx:latest"]), "only the values of its direct source");
    tenants.update(&repo, json!({ "syncConfig": { "source": tenants.source } })).unwrap();
    let itself = json!({ "syncConfig": { "source": repo } });
    assert_eq!(violated_fields(tenants.update(&repo, itself)), ["syncConfig.source"]);
}

#[test]
fn clearing_an_inherited_value_is_rejected_but_omitting_it_is_allowed() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let repo = tenants.follower();
    let empty = json!({ "catalogTier": "CATALOG_TIER_UNSPECIFIED", "bundles": [], "aliases": [], "activeTags": null });
    for field in INHERITED {
        let body = json!({ field: empty[field] });
        assert_eq!(violated_fields(tenants.update(&repo, body.clone())), [field]);
        let masked = world.update(&world.operator, "Repo", &repo, json!({}), Some(field));
        assert_eq!(violated_fields(masked), [field]);
        let same = json!({ field: tenants.get(&tenants.source)[field] });
        let before = tenants.get(&repo);
        world.clock.advance(1000);
        assert_eq!(tenants.update(&repo, same).unwrap(), before, "sending the shown value changes nothing");
    }
    let whole = json!({ "name": "renamed", "syncConfig": { "source": tenants.source } });
    let renamed = world.update(&world.operator, "Repo", &repo, whole, Some("*")).unwrap();
    assert_eq!((text(&renamed, "name"), &renamed["aliases"]), ("renamed", &json!(["nginx:latest"])));
    let clear = world.update(&world.operator, "RepoReadme", &repo, json!({ "content": "" }), None);
    assert_eq!(violated_fields(clear), ["content"]);
    let shown = world.update(&world.operator, "RepoReadme", &repo, json!({ "content": "before" }), None).unwrap();
    assert_eq!(shown["content"], "before");
}

#[test]
fn a_readme_has_the_times_of_its_repo_until_its_first_write() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let times = |readme: &Value| ["createTime", "updateTime"].map(|name| text(readme, name).to_owned());
    let readme = || times(&world.get(&world.operator, "RepoReadme", &repo).unwrap());
    let at = |millis: i64| BEGIN.plus_millis(millis).to_string();
    assert_eq!(readme(), [at(0), at(0)]);
    world.clock.advance(1000);
    world.update(&world.operator, "Repo", &repo, json!({ "description": "d" }), None).unwrap();
    assert_eq!(readme(), [at(0), at(1000)]);
    world.clock.set(BEGIN.plus_millis(-5000));
    let written = world.update(&world.operator, "RepoReadme", &repo, json!({ "content": "a" }), None).unwrap();
    assert_eq!(times(&written), [at(0), at(1000)], "times never decrease");
    world.clock.set(BEGIN.plus_millis(7000));
    world.update(&world.operator, "Repo", &repo, json!({ "description": "e" }), None).unwrap();
    assert_eq!(readme(), [at(0), at(1000)]);
    let tenants = Tenants::new();
    let follower = tenants.follower();
    assert_eq!(times(&tenants.readme(&follower)), [at(0), at(0)]);
}

#[test]
fn a_page_of_followers_costs_one_lookup_per_identity_and_organization_and_not_per_repo() {
    let (store, calls) = CountingStore::in_memory();
    let tenants = Tenants::over(World::over(store));
    let world = &tenants.world;
    for _ in 0..50 {
        tenants.follower();
    }
    let list = || {
        let before = calls.reads();
        let page = world.list(&world.operator, "Repo", &[("page_size", "50"), ("uidp.descendants_of", &*world.org)]);
        let items = page.unwrap().items;
        assert_eq!(items.len(), 50);
        assert!(items.iter().all(|repo| repo["aliases"] == json!(["nginx:latest"])));
        calls.reads() - before
    };
    list();
    assert_eq!(
        list(),
        4,
        "the page, its followings, the sources with the epochs of their identities, and the settings"
    );
    for n in 0..5 {
        let person = world.person(&format!("person {n}"), None);
        world.bind(&person, &built_in("editor"), &world.org);
        world.bind(&person, &built_in("registry.pull"), &tenants.there);
        for _ in 0..10 {
            tenants.follow(&person, &tenants.source).unwrap();
        }
    }
    list();
    assert_eq!(list(), 4, "the grants of each identity are cached");
    // A change of the role of each invalidates the cached grants, which are then read once.
    let custom = world.role(&tenants.there, &["repo.list"]);
    let groups = json!({ "capabilities": ["CAP_IAM_GROUPS_LIST"] });
    world.update(&world.operator, "Role", &custom, groups, None).unwrap();
    assert!(list() <= 2 * (3 + 6 * 4), "a few reads for each identity");
    assert_eq!(list(), 4);
}

#[test]
fn a_read_interleaved_with_a_revocation_never_shows_values_written_after_it() {
    for (call, nth) in [Call::Get, Call::List].into_iter().flat_map(|call| (0..8).map(move |nth| (call, nth))) {
        for warm in [true, false] {
            let (store, gate) = GatedStore::in_memory();
            let tenants = Tenants::over(World::over(store));
            let world = &tenants.world;
            let repo = tenants.follower();
            if warm {
                tenants.assert_shows_source(&repo);
            } else {
                // Raises the epoch of Ada's grants, which invalidates the cached ones.
                world.bind(&tenants.ada, &built_in("viewer"), &tenants.there);
            }
            let read = || {
                let listed = world.list(&world.operator, "Repo", &[("uidp.ids", &*repo)]).unwrap().items;
                format!("{:?} {:?} {:?}", listed, tenants.get(&repo), tenants.readme(&repo))
            };
            let then = || {
                tenants.revoke();
                let bound = world.walk(&world.operator, "RoleBinding", &[("identity", &tenants.ada.identity)]);
                let there = bound.iter().filter(|binding| text(binding, "uid").starts_with(&*tenants.there));
                there.for_each(|b| world.delete(&world.operator, "RoleBinding", text(b, "uid")).unwrap());
                tenants.publish("secret");
            };
            let seen = gate.interleave_nth(call, nth, read, then);
            assert!(!seen.contains("secret"), "{call:?} {nth} {warm}: {seen}");
            tenants.assert_shows_own(&repo);
        }
    }
}

#[test]
fn a_source_is_not_set_if_pull_access_was_revoked_before_the_commit() {
    for nth in 0..6 {
        for call in [Call::Get, Call::Commit] {
            let (store, gate) = GatedStore::in_memory();
            let tenants = Tenants::over(World::over(store));
            let repo = tenants.world.repo(&tenants.world.org);
            let body = json!({ "syncConfig": { "source": tenants.source } });
            let mut set = None;
            let set_source = || tenants.world.update(&tenants.ada, "Repo", &repo, body.clone(), None);
            let done = gate.interleave_nth(call, nth, set_source, || tenants.revoke());
            set.replace(done.is_ok());
            // The write may precede the revocation; the repo then shows no inherited values afterwards.
            assert_eq!(tenants.get(&repo).get("aliases"), None, "{call:?} {nth}");
            if (call, nth) == (Call::Commit, 0) {
                assert_eq!(set, Some(false), "the commit requires pull access");
            }
        }
    }
}

#[test]
fn a_follower_never_shows_values_written_while_pull_access_is_revoked() {
    let tenants = Tenants::new();
    let world = &tenants.world;
    let repo = tenants.follower();
    let done = AtomicBool::new(false);
    let rounds = std::env::var("PLATFORM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let seen = format!("{:?} {:?}", tenants.get(&repo), tenants.readme(&repo));
                    assert!(!seen.contains("secret"), "{seen}");
                }
            });
        }
        let mut binding = tenants.binding.clone();
        for round in 0..rounds {
            world.delete(&world.operator, "RoleBinding", &binding).unwrap();
            tenants.publish(&format!("secret {round}"));
            tenants.publish(&format!("public {round}"));
            binding = world.bind(&tenants.ada, &built_in("registry.pull"), &tenants.there);
            assert_eq!(tenants.readme(&repo)["content"], format!("public {round}"));
        }
        done.store(true, Ordering::SeqCst);
    });
}

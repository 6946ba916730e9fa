//! A coalition of callers with limited powers that attempts every attack to gain more, and an operator who makes
//! changes from time to time.

mod attacks;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
};

use platform_core::{
    resources::iam::{person_uid, role},
    tokens::{RawToken, Register, TokenService},
};
use platform_engine::{
    access::{Authenticator, Caller, Capability},
    error::{Code, Result},
    kind::Registered,
    options::RequestOptions,
    uid::Uid,
};
use platform_keys::{Algorithm, SigningKey};
use platform_oidc::jwks::KeySet;
use serde_json::{Value, json};

use crate::{
    common::{API, OWN, TRUSTED, key},
    fixture::{Fixture, object},
    oracle::{Credentials, Powers, Set, State, text},
};

/// The coalition's own issuer.
pub const EVIL: &str = "https://evil.example";
/// The organization's own issuer, where the coalition has one member.
pub const SSO: &str = "https://sso.example";
/// The subject of that member.
pub const SUBJECT: &str = "mallory";
/// A person of the trusted issuer who owns the organization and does not belong to the coalition.
const BOSS: &str = "boss";
/// The description of the source repos, which only callers with permission to pull from them may read.
const SECRET: &str = "the secret of a source";

/// The capabilities that random roles are composed of.
const POOL: &[&str] = &[
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
    "group_invites.create",
    "identity_providers.list",
    "identity_providers.create",
    "identity_providers.update",
    "identity_providers.delete",
    "identity_providers.scim.manage",
    "account_associations.create",
    "account_associations.update",
    "groups.list",
    "groups.create",
    "groups.update",
    "groups.delete",
    "repo.list",
    "repo.create",
    "repo.update",
    "repo.delete",
    "repo.blobs.get",
    "tag.create",
];

/// A deterministic random number generator: splitmix64.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// The number of attempts and successes of each attack.
#[derive(Debug, Default)]
pub struct Statistics(BTreeMap<&'static str, (u64, u64)>);

impl Statistics {
    fn count(&mut self, attack: &'static str, succeeded: bool) {
        let (attempts, successes) = self.0.entry(attack).or_default();
        *attempts += 1;
        *successes += u64::from(succeeded);
    }

    pub fn add(&mut self, other: &Self) {
        for (attack, (attempts, successes)) in &other.0 {
            let mine = self.0.entry(attack).or_default();
            *mine = (mine.0 + attempts, mine.1 + successes);
        }
    }

    pub fn assert_all_attacks(&self) {
        for attack in ATTACKS {
            let (attempts, successes) = self.0.get(attack.0).copied().unwrap_or_default();
            assert!(successes > 0 && successes < attempts, "{}: {successes} of {attempts}", attack.0);
        }
    }
}

impl Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(attack, (attempts, successes))| writeln!(f, "{attack}: {successes} of {attempts}"))
    }
}

/// Two organizations, the coalition's credentials, and the powers that it is allowed to have.
pub struct World {
    fixture: Fixture,
    evil: SigningKey,
    sso: SigningKey,
    credentials: Credentials,
    /// The coalition's access tokens.
    tokens: Vec<String>,
    /// Its refresh tokens.
    refresh: Vec<String>,
    codes: Vec<String>,
    state: State,
    allowed: Powers,
    pub log: Vec<String>,
    pub statistics: Statistics,
}

/// An attack: its name and its relative frequency.
type Attack = (&'static str, usize);

const ATTACKS: &[Attack] = &[
    ("bind", 6),
    ("rebind", 4),
    ("unbind", 1),
    ("bind many", 3),
    ("create role", 3),
    ("change role", 4),
    ("invite", 4),
    ("redeem", 3),
    ("create provider", 4),
    ("change provider", 6),
    ("map", 4),
    ("unmap", 1),
    ("create identity", 4),
    ("change identity", 10),
    ("delete identity", 1),
    ("associate", 4),
    ("directory token", 6),
    ("directory user", 5),
    ("assume", 8),
    ("assume by own token", 5),
    ("sign in", 6),
    ("narrow", 3),
    ("refresh", 2),
    ("create group", 2),
    ("delete group", 1),
    ("follow", 4),
    ("read follower", 2),
    ("register again", 1),
];

impl World {
    pub async fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, u64::MAX);
        let fixture = Fixture::build(None, Algorithm::Es256).await;
        let (evil, sso) = (key(Algorithm::Es256), key(Algorithm::Es256));
        fixture.publish(EVIL, &[evil.verifying()]);
        fixture.publish(SSO, &[sso.verifying()]);
        let org = fixture.org.clone();
        let other = fixture.group("", "other").await;
        let folder = fixture.group(&org, "folder").await;
        let below = fixture.group(&folder, "below").await;
        let groups = [org.clone(), folder.clone(), below, other.clone()];
        let mut world = Self {
            credentials: Credentials {
                persons: vec!["mallory".to_owned(), "trudy".to_owned()],
                keys: KeySet::new([evil.verifying().clone()]).unwrap().to_json(),
                groups: [("groups", "devs"), ("nickname", "admins")].into(),
                ..Credentials::default()
            },
            fixture,
            evil,
            sso,
            tokens: Vec::new(),
            refresh: Vec::new(),
            codes: Vec::new(),
            state: State::default(),
            allowed: Powers::default(),
            log: Vec::new(),
            statistics: Statistics::default(),
        };
        let operator = world.fixture.operator.clone();
        let mut roles = vec![built_in("owner"), built_in("viewer"), built_in("editor")];
        for n in 0..5 {
            let group = rng.pick(&groups[..2]).clone();
            let body = json!({ "name": format!("role {n}"), "capabilities": capabilities(&mut rng, 20) });
            roles.push(world.create(&operator, "Role", &group, body).await.unwrap());
        }
        // Identities outside the coalition with many capabilities.
        let mut victims = Vec::new();
        for n in 0..4 {
            let group = rng.pick(&groups).clone();
            let keys = KeySet::new([world.sso.verifying().clone()]).unwrap().to_json();
            let relationship = match n {
                0 => json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": keys } }),
                1 => json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }),
                _ => json!({ "claimMatch": { "issuer": TRUSTED, "subject": format!("victim {n}") } }),
            };
            let mut body = object(json!({ "name": format!("victim {n}") }));
            body.extend(object(relationship));
            let victim = world.create(&operator, "Identity", &group, body.into()).await.unwrap();
            let role = if n == 3 { built_in("owner") } else { rng.pick(&roles).clone() };
            let at = if rng.one_in(3) { group.root().to_owned() } else { group.to_string() };
            let bound = json!({ "identityUid": victim, "roleUid": role });
            if world.create(&operator, "RoleBinding", &at, bound).await.is_ok() {
                // An identity with more capabilities that trusts the victim's tokens.
                let trusting = json!({ "name": "trusting", "claimMatch": { "issuer": OWN, "subject": victim } });
                let trusting = world.create(&operator, "Identity", &group, trusting).await.unwrap();
                let bound = json!({ "identityUid": trusting, "roleUid": rng.pick(&[&roles[0], &role]) });
                world.create(&operator, "RoleBinding", &group, bound).await.unwrap();
                victims.push((n, victim, Uid::opaque(at), role));
            }
        }
        let boss = json!({ "identityUid": person_uid(TRUSTED, BOSS), "roleUid": built_in("owner") });
        world.create(&operator, "RoleBinding", &org, boss).await.unwrap();
        for group in [&org, &folder] {
            let issuer = SSO;
            let oidc = json!({ "issuer": issuer, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true });
            let role = match rng.below(3) {
                0 => built_in("owner"),
                1 => built_in("viewer"),
                _ => built_in("actions.viewer"),
            };
            let body = json!({ "name": "sign in", "defaultRole": role, "oidc": oidc });
            let provider = world.create(&operator, "IdentityProvider", group, body).await.unwrap();
            for external in ["admins", "devs"] {
                let role = if external == "admins" { built_in("owner") } else { rng.pick(&roles).clone() };
                let body = json!({ "externalGroupId": external, "roleUid": role, "scope": org });
                let _ = world.create(&operator, "ExternalGroupRoleMapping", &provider, body).await;
            }
            if rng.one_in(2) {
                // Mallory has an account at the issuer, but the directory does not admit them.
                let request = json!({ "identityProviderUid": provider });
                let issued = world.run(&operator, "GenerateScimToken", request).await.unwrap();
                let enable = json!({ "identityProviderUid": provider, "enabled": true, "etag": issued["etag"] });
                world.run(&operator, "SetScimEnabled", enable).await.unwrap();
            }
        }
        let source = json!({ "name": "source", "description": SECRET });
        for group in [&org, &other] {
            world.create(&operator, "Repo", group, source.clone()).await.unwrap();
        }
        world.join(&mut rng, &groups, &roles, &victims).await;
        world.state = world.read().await;
        world.allowed = world.state.powers(&world.credentials);
        world
    }

    /// Gives the coalition its first credentials: persons with a few bindings, or only a stolen, narrowed token.
    async fn join(&mut self, rng: &mut Rng, groups: &[Uid], roles: &[String], victims: &[(i32, String, Uid, String)]) {
        let operator = self.fixture.operator.clone();
        for subject in self.credentials.persons.clone() {
            let upstream = self.fixture.upstream(json!({ "sub": subject }));
            self.fixture.sts.register(&upstream, &Register::default()).await.unwrap();
            if subject == "mallory" && rng.one_in(3) {
                self.steal(rng, victims).await;
                continue;
            }
            // A viewer holds the capabilities that many providers grant by default.
            if rng.one_in(3) {
                let bound = json!({ "identityUid": person_uid(TRUSTED, &subject), "roleUid": built_in("viewer") });
                self.create(&operator, "RoleBinding", &groups[0], bound).await.unwrap();
            }
            for _ in 0..1 + rng.below(3) {
                let group = rng.pick(&groups[..3]);
                let role = if !rng.one_in(3) {
                    let body = json!({ "name": format!("of {subject}"), "capabilities": capabilities(rng, 60) });
                    self.create(&operator, "Role", group, body).await.unwrap_or_else(|_| built_in("viewer"))
                } else {
                    rng.pick(&roles[1..]).clone()
                };
                let bound = json!({ "identityUid": person_uid(TRUSTED, &subject), "roleUid": role });
                let _ = self.create(&operator, "RoleBinding", group, bound).await;
            }
            let reply = self.fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
            self.store_tokens(&reply);
        }
    }

    /// Gives the coalition a narrowed token of an identity of a group, or of the person who owns the organization.
    async fn steal(&mut self, rng: &mut Rng, victims: &[(i32, String, Uid, String)]) {
        let names: Vec<_> = (0..1 + rng.below(6)).map(|_| *rng.pick(POOL)).collect();
        let victim = victims.iter().find(|(n, ..)| *n >= 2).filter(|_| !rng.one_in(3));
        let (subject, whose, group) = match victim {
            Some((n, victim, group, _)) => (format!("victim {n}"), victim.clone(), group.clone()),
            None => (BOSS.to_owned(), person_uid(TRUSTED, BOSS).to_string(), self.fixture.org.clone()),
        };
        let upstream = self.fixture.upstream(json!({ "sub": subject }));
        if victim.is_none() {
            self.fixture.sts.register(&upstream, &Register::default()).await.unwrap();
        }
        let request = json!({ "aud": [API], "identity": whose, "cap": names, "scopes": [group] });
        if let Ok(reply) = self.fixture.exchange(&upstream, request).await {
            let mut powers = Powers::default();
            powers.grant(&group, ids(&names));
            self.credentials.stolen.push((whose, powers));
            self.store_tokens(&reply);
        }
    }

    /// Stores an issued token, and its refresh token if there is one.
    fn store_tokens(&mut self, issued: &RawToken) {
        self.tokens.push(issued.token.expose().to_owned());
        let refresh = issued.refresh_token.expose();
        if !refresh.is_empty() {
            self.refresh.push(refresh.to_owned());
        }
    }

    async fn read(&self) -> State {
        State::read(&*self.fixture.store, self.fixture.platform.now()).await
    }

    fn kind(&self, name: &str) -> Registered {
        *self.fixture.platform.registered().iter().find(|registered| registered.kind.name == name).unwrap()
    }

    async fn create(&self, caller: &Caller, kind: &str, parent: &str, body: Value) -> Result<String> {
        let reply = self
            .fixture
            .platform
            .create_erased(caller, &self.kind(kind), parent, &object(body), RequestOptions::none())
            .await?;
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        Ok(text(&body, "uid").to_owned())
    }

    async fn update(&self, caller: &Caller, kind: &str, uid: &str, body: Value) -> Result<()> {
        let body = object(body);
        // Updates without a mask, with one, and with `*`. Derived from the body, so that repeating a step repeats the
        // choice.
        let mask = match body.values().map(|value| value.to_string().len()).sum::<usize>() % 3 {
            0 => None,
            1 => Some("*".to_owned()),
            _ => Some(body.keys().map(String::as_str).collect::<Vec<_>>().join(",")),
        };
        self.fixture
            .platform
            .update_erased(caller, &self.kind(kind), uid, &body, mask.as_deref(), RequestOptions::none())
            .await
            .map(drop)
    }

    async fn delete(&self, caller: &Caller, kind: &str, uid: &str) -> Result<()> {
        self.fixture.platform.delete_erased(caller, &self.kind(kind), uid, RequestOptions::none()).await.map(drop)
    }

    async fn run(&self, caller: &Caller, action: &str, request: Value) -> Result<Value> {
        let mut kinds = self.fixture.platform.registered().iter();
        let found = kinds.find_map(|one| Some((one.kind, one.actions.iter().find(|known| known.name == action)?)));
        let (kind, action) = found.unwrap();
        self.fixture.platform.run(Some(caller), kind, action, &object(request)).await
    }

    /// Runs one step, and then checks that the coalition holds no more than it is allowed to.
    pub async fn step(&mut self, seed: u64, step: u64) -> std::result::Result<(), String> {
        let mut rng = Rng::new(seed, step);
        if rng.one_in(12) {
            let done = self.operator_acts(&mut rng).await;
            self.log.push(format!("{step}: the operator: {done}"));
            self.state = self.read().await;
            // From now on, new grants are allowed and revoked ones are not.
            self.allowed = self.state.powers(&self.credentials);
        }
        let credential = rng.pick(&self.tokens).clone();
        let Ok(caller) = self.fixture.verifier.authenticate(&credential).await else { return Ok(()) };
        let mut at = rng.below(ATTACKS.iter().map(|attack| attack.1).sum());
        let attack = ATTACKS.iter().find(|attack| {
            let here = at < attack.1;
            at = at.saturating_sub(attack.1);
            here
        });
        let attack = attack.unwrap().0;
        let count_before = self.tokens.len();
        let (what, result) = self.run_attack(attack, &mut rng, &caller, &credential).await;
        let Some(result) = result else { return Ok(()) };
        if let Err(error) = &result
            && matches!(error.code(), Code::Internal | Code::Unknown | Code::DataLoss)
        {
            return Err(format!("{what}: {error:?}"));
        }
        self.statistics.count(attack, result.is_ok());
        if result.is_ok() {
            self.log.push(format!("{step}: {attack}: {what} as {}", caller.identity));
            self.state = self.read().await;
            let excess = self.state.powers(&self.credentials).minus(&self.allowed);
            if !excess.is_empty() {
                return Err(format!("the coalition holds capabilities that were not granted: {excess:?}"));
            }
        }
        self.check_grants(&caller).await?;
        for issued in &self.tokens[count_before..] {
            let caller = self.fixture.verifier.authenticate(issued).await;
            let caller = caller.map_err(|error| format!("{what}: {error:?}"))?;
            self.check_grants(&caller).await?;
            if caller.narrowing.is_none() && !caller.identity.is_root() {
                self.credentials.issued.insert(caller.identity.to_string());
            }
        }
        Ok(())
    }

    /// Checks the platform's own view of a caller's capabilities.
    async fn check_grants(&self, caller: &Caller) -> std::result::Result<(), String> {
        let Ok(grants) = self.fixture.platform.current_grants(caller).await else { return Ok(()) };
        for (group, held) in grants.bound() {
            let held = caller.narrowing.as_ref().map_or(held, |narrowing| held.intersection(narrowing.at(group)));
            let excess = Set::of(self.fixture.platform.capabilities().in_set(held).map(Capability::id))
                .minus(self.allowed.at(group));
            if !excess.is_empty() {
                return Err(format!(
                    "{} holds capabilities at {group} that were not granted: {excess:?}",
                    caller.identity
                ));
            }
        }
        Ok(())
    }
}

fn built_in(name: &str) -> String {
    role::built_in_uid(name).expect("a built-in role").to_string()
}

fn ids(names: &[&str]) -> Set {
    Set::of(names.iter().map(|name| platform_core::capabilities::by_name(name).expect("a capability").id()))
}

/// Returns the ids of up to `max` random capabilities, at least one.
fn capabilities(rng: &mut Rng, max: usize) -> Vec<&'static str> {
    let names: BTreeSet<_> = (0..1 + rng.below(max)).map(|_| *rng.pick(POOL)).collect();
    names.into_iter().map(|name| platform_core::capabilities::by_name(name).expect("a capability").id()).collect()
}

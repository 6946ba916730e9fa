//! A coalition of callers with some power, who do whatever they can to get more, and an operator who changes what there
//! is from time to time.

mod ways;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
};

use platform_core::{
    access::{Authenticator, Caller, Capability},
    error::{Code, Result},
    kind::Registered,
    resources::iam::{person_uid, role},
    timestamp::Timestamp,
    tokens::{RawToken, Register, TokenService},
    uid::Uid,
};
use platform_oidc::{Algorithm, jwks::KeySet, key::SigningKey};
use serde_json::{Value, json};

use crate::{
    common::{API, OWN, TRUSTED, key},
    oracle::{Credentials, Powers, Set, State, text},
    setting::{Setting, object},
};

/// The coalition's own issuer.
pub const EVIL: &str = "https://evil.example";
/// The organisation's own issuer, of which the coalition has one member.
pub const SSO: &str = "https://sso.example";
/// Who that member is there.
pub const SUBJECT: &str = "mallory";
/// A person of the trusted issuer who owns the organisation, and is not of the coalition.
const BOSS: &str = "boss";
/// What only those read who may pull from a source.
const SECRET: &str = "the secret of a source";

/// What roles are made of.
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

/// Numbers that repeat from run to run: splitmix64.
pub struct Dice(u64);

impl Dice {
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

    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// How often each way was tried, and how often it was open.
#[derive(Debug, Default)]
pub struct Tried(BTreeMap<&'static str, (u64, u64)>);

impl Tried {
    fn count(&mut self, way: &'static str, open: bool) {
        let (tried, done) = self.0.entry(way).or_default();
        *tried += 1;
        *done += u64::from(open);
    }

    pub fn add(&mut self, other: &Self) {
        for (way, (tried, done)) in &other.0 {
            let mine = self.0.entry(way).or_default();
            *mine = (mine.0 + tried, mine.1 + done);
        }
    }

    pub fn assert_all_ways(&self) {
        for way in WAYS {
            let (tried, done) = self.0.get(way.0).copied().unwrap_or_default();
            assert!(done > 0 && done < tried, "{}: {done} of {tried}", way.0);
        }
    }
}

impl Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(way, (tried, done))| writeln!(f, "{way}: {done} of {tried}"))
    }
}

/// Two organisations, those who act, and what they may come to hold.
pub struct World {
    setting: Setting,
    evil: SigningKey,
    sso: SigningKey,
    credentials: Credentials,
    /// The coalition's access tokens.
    tokens: Vec<String>,
    /// Its refresh tokens.
    refresh: Vec<String>,
    codes: Vec<String>,
    state: State,
    closure: Powers,
    pub log: Vec<String>,
    pub tried: Tried,
}

/// What can be done: the name, and its share of all that is tried.
type Way = (&'static str, usize);

const WAYS: &[Way] = &[
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
        let mut dice = Dice::new(seed, u64::MAX);
        let setting = Setting::build(None, Algorithm::Es256).await;
        let (evil, sso) = (key(Algorithm::Es256), key(Algorithm::Es256));
        setting.publish(EVIL, &[evil.verifying()]);
        setting.publish(SSO, &[sso.verifying()]);
        let org = setting.org.clone();
        let other = setting.group("", "other").await;
        let folder = setting.group(&org, "folder").await;
        let below = setting.group(&folder, "below").await;
        let groups = [org.clone(), folder.clone(), below, other.clone()];
        let mut world = Self {
            credentials: Credentials {
                persons: vec!["mallory".to_owned(), "trudy".to_owned()],
                keys: KeySet::new([evil.verifying().clone()]).unwrap().to_json(),
                groups: [("groups", "devs"), ("nickname", "admins")].into(),
                ..Credentials::default()
            },
            setting,
            evil,
            sso,
            tokens: Vec::new(),
            refresh: Vec::new(),
            codes: Vec::new(),
            state: State::default(),
            closure: Powers::default(),
            log: Vec::new(),
            tried: Tried::default(),
        };
        let operator = world.setting.operator.clone();
        let mut roles = vec![built_in("owner"), built_in("viewer"), built_in("editor")];
        for n in 0..5 {
            let group = dice.pick(&groups[..2]).clone();
            let body = json!({ "name": format!("role {n}"), "capabilities": capabilities(&mut dice, 20) });
            roles.push(world.create(&operator, "Role", &group, body).await.unwrap());
        }
        // Those who are not of the coalition, and hold much.
        let mut victims = Vec::new();
        for n in 0..4 {
            let group = dice.pick(&groups).clone();
            let keys = KeySet::new([world.sso.verifying().clone()]).unwrap().to_json();
            let relationship = match n {
                0 => json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": keys } }),
                1 => json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }),
                _ => json!({ "claimMatch": { "issuer": TRUSTED, "subject": format!("victim {n}") } }),
            };
            let mut body = object(json!({ "name": format!("victim {n}") }));
            body.extend(object(relationship));
            let victim = world.create(&operator, "Identity", &group, body.into()).await.unwrap();
            let role = if n == 3 { built_in("owner") } else { dice.pick(&roles).clone() };
            let at = if dice.once_in(3) { group.root().to_owned() } else { group.to_string() };
            let bound = json!({ "identityUid": victim, "roleUid": role });
            if world.create(&operator, "RoleBinding", &at, bound).await.is_ok() {
                // Who acts as the victim may act as another identity too, which holds more.
                let trusting = json!({ "name": "trusting", "claimMatch": { "issuer": OWN, "subject": victim } });
                let trusting = world.create(&operator, "Identity", &group, trusting).await.unwrap();
                let bound = json!({ "identityUid": trusting, "roleUid": dice.pick(&[&roles[0], &role]) });
                world.create(&operator, "RoleBinding", &group, bound).await.unwrap();
                victims.push((n, victim, Uid::opaque(at), role));
            }
        }
        let boss = json!({ "identityUid": person_uid(TRUSTED, BOSS), "roleUid": built_in("owner") });
        world.create(&operator, "RoleBinding", &org, boss).await.unwrap();
        for group in [&org, &folder] {
            let issuer = SSO;
            let oidc = json!({ "issuer": issuer, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true });
            let role = match dice.below(3) {
                0 => built_in("owner"),
                1 => built_in("viewer"),
                _ => built_in("actions.viewer"),
            };
            let body = json!({ "name": "sign in", "defaultRole": role, "oidc": oidc });
            let provider = world.create(&operator, "IdentityProvider", group, body).await.unwrap();
            for external in ["admins", "devs"] {
                let role = if external == "admins" { built_in("owner") } else { dice.pick(&roles).clone() };
                let body = json!({ "externalGroupId": external, "roleUid": role, "scope": org });
                let _ = world.create(&operator, "ExternalGroupRoleMapping", &provider, body).await;
            }
            if dice.once_in(2) {
                // Mallory is at the issuer, and the directory does not let them in.
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
        world.join(&mut dice, &groups, &roles, &victims).await;
        world.state = world.read().await;
        world.closure = world.state.powers(&world.credentials);
        world
    }

    /// Gives the coalition what it begins with: persons who are bound here and there, or nothing but a stolen token that
    /// was narrowed.
    async fn join(
        &mut self,
        dice: &mut Dice,
        groups: &[Uid],
        roles: &[String],
        victims: &[(i32, String, Uid, String)],
    ) {
        let operator = self.setting.operator.clone();
        for subject in self.credentials.persons.clone() {
            let upstream = self.setting.upstream(json!({ "sub": subject }));
            self.setting.sts.register(&upstream, &Register::default()).await.unwrap();
            if subject == "mallory" && dice.once_in(3) {
                self.steal(dice, victims).await;
                continue;
            }
            // Who may see everything holds what many a provider gives to those who sign in.
            if dice.once_in(3) {
                let bound = json!({ "identityUid": person_uid(TRUSTED, &subject), "roleUid": built_in("viewer") });
                self.create(&operator, "RoleBinding", &groups[0], bound).await.unwrap();
            }
            for _ in 0..1 + dice.below(3) {
                let group = dice.pick(&groups[..3]);
                let role = if !dice.once_in(3) {
                    let body = json!({ "name": format!("of {subject}"), "capabilities": capabilities(dice, 60) });
                    self.create(&operator, "Role", group, body).await.unwrap_or_else(|_| built_in("viewer"))
                } else {
                    dice.pick(&roles[1..]).clone()
                };
                let bound = json!({ "identityUid": person_uid(TRUSTED, &subject), "roleUid": role });
                let _ = self.create(&operator, "RoleBinding", group, bound).await;
            }
            let reply = self.setting.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
            self.keep(&reply);
        }
    }

    /// Gives the coalition a token that was narrowed, of an identity of a group or of a person who owns all.
    async fn steal(&mut self, dice: &mut Dice, victims: &[(i32, String, Uid, String)]) {
        let names: Vec<_> = (0..1 + dice.below(6)).map(|_| *dice.pick(POOL)).collect();
        let victim = victims.iter().find(|(n, ..)| *n >= 2).filter(|_| !dice.once_in(3));
        let (subject, whose, group) = match victim {
            Some((n, victim, group, _)) => (format!("victim {n}"), victim.clone(), group.clone()),
            None => (BOSS.to_owned(), person_uid(TRUSTED, BOSS).to_string(), self.setting.org.clone()),
        };
        let upstream = self.setting.upstream(json!({ "sub": subject }));
        if victim.is_none() {
            self.setting.sts.register(&upstream, &Register::default()).await.unwrap();
        }
        let request = json!({ "aud": [API], "identity": whose, "cap": names, "scopes": [group] });
        if let Ok(reply) = self.setting.exchange(&upstream, request).await {
            let mut powers = Powers::default();
            powers.give(&group, ids(&names));
            self.credentials.stolen.push((whose, powers));
            self.keep(&reply);
        }
    }

    /// Keeps a token, and the refresh token that came with it.
    fn keep(&mut self, issued: &RawToken) {
        self.tokens.push(issued.token.expose().to_owned());
        let refresh = issued.refresh_token.expose();
        if !refresh.is_empty() {
            self.refresh.push(refresh.to_owned());
        }
    }

    async fn read(&self) -> State {
        State::read(&*self.setting.store, self.setting.platform.now()).await
    }

    fn kind(&self, name: &str) -> Registered {
        *self.setting.platform.registered().iter().find(|registered| registered.kind.name == name).unwrap()
    }

    async fn create(&self, caller: &Caller, kind: &str, parent: &str, body: Value) -> Result<String> {
        let reply = self.setting.platform.create_erased(caller, &self.kind(kind), parent, &object(body)).await?;
        let body: Value = serde_json::from_slice(&reply).unwrap();
        Ok(text(&body, "uid").to_owned())
    }

    async fn update(&self, caller: &Caller, kind: &str, uid: &str, body: Value) -> Result<()> {
        let body = object(body);
        // Without a mask, with one, and with `*`; the body decides which, so that a step is the same again.
        let mask = match body.values().map(|value| value.to_string().len()).sum::<usize>() % 3 {
            0 => None,
            1 => Some("*".to_owned()),
            _ => Some(body.keys().map(String::as_str).collect::<Vec<_>>().join(",")),
        };
        self.setting.platform.update_erased(caller, &self.kind(kind), uid, &body, mask.as_deref()).await.map(drop)
    }

    async fn delete(&self, caller: &Caller, kind: &str, uid: &str) -> Result<()> {
        self.setting.platform.delete_erased(caller, &self.kind(kind), uid).await
    }

    async fn run(&self, caller: &Caller, action: &str, request: Value) -> Result<Value> {
        let mut kinds = self.setting.platform.kinds();
        let found = kinds.find_map(|kind| Some((kind, kind.actions.iter().find(|known| known.name == action)?)));
        let (kind, action) = found.unwrap();
        self.setting.platform.run(Some(caller), kind, action, &object(request)).await
    }

    /// Does one thing, and then looks whether the coalition has come to hold what it must not.
    pub async fn step(&mut self, seed: u64, step: u64) -> std::result::Result<(), String> {
        let mut dice = Dice::new(seed, step);
        if dice.once_in(12) {
            let done = self.operator_acts(&mut dice).await;
            self.log.push(format!("{step}: the operator: {done}"));
            self.state = self.read().await;
            // What is given now may be had, and what is taken away may not.
            self.closure = self.state.powers(&self.credentials);
        }
        let credential = dice.pick(&self.tokens).clone();
        let Ok(caller) = self.setting.verifier.authenticate(&credential).await else { return Ok(()) };
        let mut at = dice.below(WAYS.iter().map(|way| way.1).sum());
        let way = WAYS.iter().find(|way| {
            let here = at < way.1;
            at = at.saturating_sub(way.1);
            here
        });
        let way = way.unwrap().0;
        let had = self.tokens.len();
        let (what, done) = self.go(way, &mut dice, &caller, &credential).await;
        let Some(done) = done else { return Ok(()) };
        if let Err(error) = &done
            && matches!(error.code(), Code::Internal | Code::Unknown | Code::DataLoss)
        {
            return Err(format!("{what}: {error:?}"));
        }
        self.tried.count(way, done.is_ok());
        if done.is_ok() {
            self.log.push(format!("{step}: {way}: {what} as {}", caller.identity));
            self.state = self.read().await;
            let beyond = self.state.powers(&self.credentials).beyond(&self.closure);
            if !beyond.is_empty() {
                return Err(format!("the coalition holds what it was not given: {beyond:?}"));
            }
        }
        self.holds_what_was_given(&caller).await?;
        for issued in &self.tokens[had..] {
            let caller = self.setting.verifier.authenticate(issued).await;
            let caller = caller.map_err(|error| format!("{what}: {error:?}"))?;
            self.holds_what_was_given(&caller).await?;
            if caller.narrowing.is_none() && !caller.identity.is_root() {
                self.credentials.issued.insert(caller.identity.to_string());
            }
        }
        Ok(())
    }

    /// Looks at what the platform itself says that a caller holds.
    async fn holds_what_was_given(&self, caller: &Caller) -> std::result::Result<(), String> {
        let Ok(grants) = self.setting.platform.current_grants(caller).await else { return Ok(()) };
        for (group, held) in grants.bound() {
            let held = caller.narrowing.as_ref().map_or(held, |narrowing| held.intersection(narrowing.at(group)));
            let beyond = Set::of(held.iter().map(Capability::id)).beyond(self.closure.at(group));
            if !beyond.is_empty() {
                return Err(format!("{} holds at {group} what nobody gave: {beyond:?}", caller.identity));
            }
        }
        Ok(())
    }
}

fn built_in(name: &str) -> String {
    let roles = role::built_in(Timestamp::EPOCH);
    roles.into_iter().find(|role| role.name == name).expect("a built-in role").uid.to_string()
}

fn ids(names: &[&str]) -> Set {
    Set::of(names.iter().map(|name| Capability::by_name(name).expect("a capability").id()))
}

/// The ids of some capabilities, at least one.
fn capabilities(dice: &mut Dice, most: usize) -> Vec<&'static str> {
    let names: BTreeSet<_> = (0..1 + dice.below(most)).map(|_| *dice.pick(POOL)).collect();
    names.into_iter().map(|name| Capability::by_name(name).expect("a capability").id()).collect()
}

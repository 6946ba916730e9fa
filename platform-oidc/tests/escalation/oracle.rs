//! Computes the powers of a coalition from the stored records alone: slow, simple, and independent of the code under
//! test.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
};

use platform_core::resources::iam::{person_uid, provider_person_uid};
use platform_engine::{
    store::{Key, Query, Scope, Store},
    timestamp::Timestamp,
    uid::Uid,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    common::{OWN, TRUSTED},
    walk::{EVIL, SSO, SUBJECT},
};

/// A set of capabilities, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Set([u64; 4]);

impl Set {
    pub fn of<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        static BITS: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
            platform_core::capabilities::all().enumerate().map(|(at, known)| (known.id(), at)).collect()
        });
        let mut set = Self::default();
        for id in ids {
            let at = BITS[id];
            set.0[at / 64] |= 1 << (at % 64);
        }
        set
    }

    pub fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// Returns the ids of the capabilities in `self` and not in `other`.
    pub fn minus(self, other: Self) -> Vec<&'static str> {
        if (0..4).all(|at| self.0[at] & !other.0[at] == 0) {
            return Vec::new();
        }
        let all = platform_core::capabilities::all().enumerate();
        all.filter(|(at, _)| (self.0[at / 64] & !other.0[at / 64]) >> (at % 64) & 1 == 1)
            .map(|(_, known)| known.id())
            .collect()
    }
}

/// The capabilities held at groups, which apply to their descendants too.
#[derive(Debug, Clone, Default)]
pub struct Powers(BTreeMap<String, Set>);

fn at_or_below(uid: &str, top: &str) -> bool {
    uid == top || uid.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

fn parent(uid: &str) -> Option<&str> {
    uid.rsplit_once('/').map(|(parent, _)| parent)
}

impl Powers {
    pub fn grant(&mut self, group: &str, set: Set) {
        let held = self.0.entry(group.to_owned()).or_default();
        *held = held.or(set);
    }

    fn grant_all(&mut self, more: Self) {
        for (group, set) in more.0 {
            self.grant(&group, set);
        }
    }

    pub fn at(&self, uid: &str) -> Set {
        let above = self.0.iter().filter(|(group, _)| at_or_below(uid, group));
        above.fold(Set::default(), |all, (_, set)| all.or(*set))
    }

    /// Returns the groups where `self` has more capabilities than `other`, with the ids of those.
    pub fn minus(&self, other: &Self) -> Vec<(String, Vec<&'static str>)> {
        let more = self.0.iter().map(|(group, set)| (group.clone(), set.minus(other.at(group))));
        more.filter(|(_, more)| !more.is_empty()).collect()
    }

    /// Returns the intersection.
    fn and(&self, other: &Self) -> Self {
        let groups: BTreeSet<_> = self.0.keys().chain(other.0.keys()).cloned().collect();
        Self(groups.into_iter().map(|group| (group.clone(), self.at(&group).and(other.at(&group)))).collect())
    }
}

/// The stored records.
#[derive(Debug, Default)]
pub struct State {
    kinds: BTreeMap<&'static str, Vec<Value>>,
    roles: HashMap<String, Set>,
    /// The hashes of the directory tokens of each provider.
    scim: BTreeMap<String, Vec<String>>,
    now: i64,
}

/// The credentials of a coalition.
#[derive(Debug, Default)]
pub struct Credentials {
    /// The subjects for which it has tokens of the trusted issuer.
    pub persons: Vec<String>,
    /// Its stolen tokens: the identity of each, and the powers that the token is narrowed to.
    pub stolen: Vec<(String, Powers)>,
    /// The identities of groups for which it has tokens; these stay valid until they expire, however the identities
    /// change.
    pub issued: BTreeSet<String>,
    /// Its directory (SCIM) tokens.
    pub scim: Vec<String>,
    /// The public half of its own key, in the format of static keys.
    pub keys: String,
    /// The claims about its member at the organization's issuer: external groups by the name of the claim.
    pub groups: BTreeMap<&'static str, &'static str>,
}

pub const KINDS: [&str; 10] = [
    "Group",
    "Identity",
    "Role",
    "RoleBinding",
    "GroupInvite",
    "IdentityProvider",
    "ExternalGroupRoleMapping",
    "DirectoryUser",
    "AccountAssociation",
    "Repo",
];

impl State {
    pub async fn read(store: &dyn Store, now: Timestamp) -> Self {
        let mut state = Self { now: now.millis(), ..Self::default() };
        for kind in KINDS {
            let page = store.list(&Query::new(kind, Scope::All)).await.unwrap();
            let bodies = page.items.iter().map(|item| serde_json::from_slice(&item.body).unwrap()).collect();
            state.kinds.insert(kind, bodies);
        }
        state.roles = state.kinds["Role"].iter().map(role).collect();
        let providers = state.all("IdentityProvider").iter().map(|body| Uid::opaque(text(body, "uid")));
        let keys: Vec<_> = providers.map(|uid| Key::new("IdentityProvider", uid)).collect();
        for record in store.get(&keys, &[]).await.unwrap().records.into_iter().flatten() {
            let private: Value = serde_json::from_slice(&record.private).unwrap();
            let hashes = ["tokenHash", "previousTokenHash"].map(|name| text(&private, name).to_owned());
            state.scim.insert(record.key.uid.to_string(), hashes.into());
        }
        state
    }

    pub fn all(&self, kind: &str) -> &[Value] {
        &self.kinds[kind]
    }

    fn role(&self, uid: &str) -> Set {
        self.roles.get(uid).copied().unwrap_or_default()
    }

    /// Returns the powers of an identity from its role bindings.
    fn bound(&self, identity: &str) -> Powers {
        let mut powers = Powers::default();
        for binding in self.all("RoleBinding").iter().filter(|binding| text(binding, "identityUid") == identity) {
            let group = parent(text(binding, "uid")).unwrap();
            let set = self.role(text(binding, "roleUid"));
            match parent(identity) {
                // A registered person is not limited to a group.
                None => powers.grant(group, set),
                // Any other identity is limited to the group that it was created in and its descendants.
                Some(limit) if at_or_below(group, limit) => powers.grant(group, set),
                Some(limit) if at_or_below(limit, group) => powers.grant(limit, set),
                Some(_) => {}
            }
        }
        powers
    }

    /// Returns the powers of all identities that the coalition can act as.
    pub fn powers(&self, credentials: &Credentials) -> Powers {
        let mut all = Powers::default();
        let mut identities: BTreeSet<String> =
            credentials.persons.iter().map(|subject| person_uid(TRUSTED, subject).to_string()).collect();
        identities.extend(credentials.issued.iter().cloned());
        for provider in self.all("IdentityProvider") {
            self.add_sign_in(credentials, provider, &mut identities, &mut all);
        }
        for (identity, narrowed) in &credentials.stolen {
            all.grant_all(self.bound(identity).and(narrowed));
        }
        for identity in self.service_identities() {
            all.grant_all(self.bound(identity));
        }
        // Iterate to a fixed point: one identity may allow acting as the next.
        let named = self.trusted_by_name();
        let mut counted = BTreeSet::new();
        loop {
            for identity in identities.difference(&counted) {
                all.grant_all(self.bound(identity));
            }
            counted.clone_from(&identities);
            let managed = named.iter().filter(|uid| manages(&all, uid)).map(|uid| (*uid).to_owned());
            let controlled: BTreeSet<_> = identities.iter().cloned().chain(managed).collect();
            let more =
                self.all("Identity").iter().filter(|identity| self.can_assume(credentials, identity, &controlled));
            let more: Vec<_> = more.map(|identity| text(identity, "uid").to_owned()).collect();
            identities.extend(more);
            if identities.len() == counted.len() {
                return all;
            }
        }
    }

    /// Returns the identities that account associations allow the installation's services to act as. The coalition is
    /// assumed to control those services.
    fn service_identities(&self) -> impl Iterator<Item = &str> {
        let bindings = self.all("AccountAssociation").iter();
        let bindings = bindings.filter_map(|found| found["chainguard"]["serviceBindings"].as_object()).flatten();
        bindings.filter_map(|(service, uid)| {
            let named = uid.as_str()?;
            let identity = self.all("Identity").iter().find(|identity| text(identity, "uid") == named)?;
            (text(identity, "servicePrincipal").strip_prefix("SERVICE_PRINCIPAL_") == Some(service)).then_some(named)
        })
    }

    /// Returns the identities whose tokens other identities trust by name.
    fn trusted_by_name(&self) -> BTreeSet<&str> {
        let matches = self.all("Identity").iter().filter_map(|identity| identity.get("claimMatch"));
        let own = matches.filter(|wanted| text(wanted, "issuer") == OWN || wanted.get("issuerPattern").is_some());
        own.map(|wanted| text(wanted, "subject")).filter(|subject| !subject.is_empty()).collect()
    }

    /// Returns whether the coalition can act as an identity of a group. It is assumed to satisfy every condition of a
    /// claim match other than issuer and subject.
    fn can_assume(&self, credentials: &Credentials, identity: &Value, controlled: &BTreeSet<String>) -> bool {
        if parent(text(identity, "uid")).is_none() {
            return false;
        }
        if let Some(keys) = identity.get("staticKeys") {
            let until = Timestamp::parse(text(keys, "expirationTime")).unwrap().millis();
            return text(keys, "issuerKeys") == credentials.keys && self.now < until;
        }
        let Some(wanted) = identity.get("claimMatch") else { return false };
        // Every pattern that these walks use matches everything.
        let is_match =
            |literal: &str, pattern: &str, value: &str| text(wanted, literal) == value || wanted.get(pattern).is_some();
        let from = |issuer: &str| is_match("issuer", "issuerPattern", issuer);
        let named = |subject: &str| is_match("subject", "subjectPattern", subject);
        from(EVIL)
            || (from(TRUSTED) && credentials.persons.iter().any(|subject| named(subject)))
            || (from(SSO) && named(SUBJECT))
            || (from(OWN) && controlled.iter().any(|uid| named(uid)))
    }

    /// Adds the powers that a provider grants to the coalition, and the identities that it can sign in as.
    fn add_sign_in(
        &self,
        credentials: &Credentials,
        provider: &Value,
        identities: &mut BTreeSet<String>,
        all: &mut Powers,
    ) {
        let (uid, oidc) = (text(provider, "uid"), &provider["oidc"]);
        let (issuer, claim) = (text(oidc, "issuer"), text(oidc, "groupsClaim"));
        let evil = match issuer {
            EVIL => true,
            SSO => false,
            _ => return,
        };
        let enabled = provider["scim"]["enabled"] == true;
        let controls_directory =
            credentials.scim.iter().any(|token| self.scim[uid].contains(&hex::encode(Sha256::digest(token))));
        let mut users = self.all("DirectoryUser").iter().filter(|user| parent(text(user, "uid")) == Some(uid));
        let is_admitted = match enabled {
            true if controls_directory => true,
            // The issuer is the coalition's own and can use the subject of any directory user.
            true if evil => users.any(|user| user["active"] == true),
            true => users.any(|user| text(user, "externalId") == SUBJECT && user["active"] == true),
            false => true,
        };
        if !is_admitted {
            return;
        }
        let provider_uid = Uid::opaque(uid);
        identities.insert(provider_person_uid(&provider_uid, issuer, SUBJECT).to_string());
        if evil {
            for person in self.all("Identity") {
                let subject = text(&person["claimMatch"], "subject");
                let derived = provider_person_uid(&provider_uid, issuer, subject).to_string();
                if derived == text(person, "uid") {
                    identities.insert(derived);
                }
            }
        }
        all.grant(parent(uid).unwrap(), self.role(text(provider, "defaultRole")));
        for mapping in self.all("ExternalGroupRoleMapping").iter().filter(|map| parent(text(map, "uid")) == Some(uid)) {
            let named = text(mapping, "externalGroupId");
            if !claim.is_empty() && (evil || credentials.groups.get(claim) == Some(&named)) {
                all.grant(text(mapping, "scope"), self.role(text(mapping, "roleUid")));
            }
        }
    }
}

/// Returns whether these powers control an identity: if nothing is bound to it, its updaters decide who acts as it. An
/// identity that trusts its tokens also trusts its updaters.
fn manages(all: &Powers, identity: &str) -> bool {
    let update = Set::of(["CAP_IAM_IDENTITY_UPDATE"]);
    parent(identity).is_some_and(|limit| update.minus(all.at(limit)).is_empty())
}

fn role(body: &Value) -> (String, Set) {
    let ids = body["capabilities"].as_array().into_iter().flatten();
    (text(body, "uid").to_owned(), Set::of(ids.filter_map(Value::as_str)))
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

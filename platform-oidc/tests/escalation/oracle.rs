//! What a coalition can do, worked out from the stored records alone: slow, simple, and without the code that decides.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
};

use platform_core::{
    access::Capability,
    resources::iam::{person_uid, provider_person_uid},
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

/// A set of capabilities, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Set([u64; 4]);

impl Set {
    pub fn of<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        static BITS: LazyLock<HashMap<&str, usize>> =
            LazyLock::new(|| Capability::all().enumerate().map(|(at, known)| (known.id(), at)).collect());
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

    /// The ids of what is here and not there.
    pub fn beyond(self, other: Self) -> Vec<&'static str> {
        if (0..4).all(|at| self.0[at] & !other.0[at] == 0) {
            return Vec::new();
        }
        let all = Capability::all().enumerate();
        all.filter(|(at, _)| (self.0[at / 64] & !other.0[at / 64]) >> (at % 64) & 1 == 1)
            .map(|(_, known)| known.id())
            .collect()
    }
}

/// What is held at groups, and so below them.
#[derive(Debug, Clone, Default)]
pub struct Powers(BTreeMap<String, Set>);

fn at_or_below(uid: &str, top: &str) -> bool {
    uid == top || uid.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

fn parent(uid: &str) -> Option<&str> {
    uid.rsplit_once('/').map(|(parent, _)| parent)
}

impl Powers {
    pub fn give(&mut self, group: &str, set: Set) {
        let held = self.0.entry(group.to_owned()).or_default();
        *held = held.or(set);
    }

    fn give_all(&mut self, more: Self) {
        for (group, set) in more.0 {
            self.give(&group, set);
        }
    }

    pub fn at(&self, uid: &str) -> Set {
        let above = self.0.iter().filter(|(group, _)| at_or_below(uid, group));
        above.fold(Set::default(), |all, (_, set)| all.or(*set))
    }

    /// Where these are more than those, and what.
    pub fn beyond(&self, other: &Self) -> Vec<(String, Vec<&'static str>)> {
        let more = self.0.iter().map(|(group, set)| (group.clone(), set.beyond(other.at(group))));
        more.filter(|(_, more)| !more.is_empty()).collect()
    }

    /// These as far as those allow them.
    fn and(&self, other: &Self) -> Self {
        let groups: BTreeSet<_> = self.0.keys().chain(other.0.keys()).cloned().collect();
        Self(groups.into_iter().map(|group| (group.clone(), self.at(&group).and(other.at(&group)))).collect())
    }
}

/// The records, as they are stored.
#[derive(Debug, Default)]
pub struct State {
    kinds: BTreeMap<&'static str, Vec<Value>>,
    roles: HashMap<String, Set>,
    /// The hashes of each provider's directory tokens.
    scim: BTreeMap<String, Vec<String>>,
    now: i64,
}

/// What a coalition has besides the records.
#[derive(Debug, Default)]
pub struct Credentials {
    /// Subjects of the trusted issuer whose tokens it has.
    pub persons: Vec<String>,
    /// Tokens that it stole: whose they are, and what they are narrowed to.
    pub stolen: Vec<(String, Powers)>,
    /// Identities of groups that it has tokens of, which are good until they expire, however the identities change.
    pub issued: BTreeSet<String>,
    /// Tokens of directories.
    pub scim: Vec<String>,
    /// The public part of its own key, as static keys have it.
    pub keys: String,
    /// What the organisation's issuer says of its member: external groups by the claim that names them.
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

    /// What an identity holds by what is bound to it.
    fn bound(&self, identity: &str) -> Powers {
        let mut powers = Powers::default();
        for binding in self.all("RoleBinding").iter().filter(|binding| text(binding, "identityUid") == identity) {
            let group = parent(text(binding, "uid")).unwrap();
            let set = self.role(text(binding, "roleUid"));
            match parent(identity) {
                // A registered person reaches everything.
                None => powers.give(group, set),
                // Another identity reaches the group that it was created in, and what is below.
                Some(home) if at_or_below(group, home) => powers.give(group, set),
                Some(home) if at_or_below(home, group) => powers.give(home, set),
                Some(_) => {}
            }
        }
        powers
    }

    /// Everything that the coalition holds, whichever of its identities it acts as.
    pub fn powers(&self, of: &Credentials) -> Powers {
        let mut all = Powers::default();
        let mut who: BTreeSet<String> =
            of.persons.iter().map(|subject| person_uid(TRUSTED, subject).to_string()).collect();
        who.extend(of.issued.iter().cloned());
        for provider in self.all("IdentityProvider") {
            self.signed_in(of, provider, &mut who, &mut all);
        }
        for (identity, narrowed) in &of.stolen {
            all.give_all(self.bound(identity).and(narrowed));
        }
        for identity in self.served() {
            all.give_all(self.bound(identity));
        }
        // One identity may lead to the next.
        let named = self.named_by_others();
        let mut counted = BTreeSet::new();
        loop {
            for identity in who.difference(&counted) {
                all.give_all(self.bound(identity));
            }
            counted.clone_from(&who);
            let managed = named.iter().filter(|uid| manages(&all, uid)).map(|uid| (*uid).to_owned());
            let vouching: BTreeSet<_> = who.iter().cloned().chain(managed).collect();
            let more = self.all("Identity").iter().filter(|identity| self.assumes(of, identity, &vouching));
            let more: Vec<_> = more.map(|identity| text(identity, "uid").to_owned()).collect();
            who.extend(more);
            if who.len() == counted.len() {
                return all;
            }
        }
    }

    /// The identities that account associations let the installation's services act as; the coalition is taken to be
    /// those services.
    fn served(&self) -> impl Iterator<Item = &str> {
        let bindings = self.all("AccountAssociation").iter();
        let bindings = bindings.filter_map(|found| found["chainguard"]["serviceBindings"].as_object()).flatten();
        bindings.filter_map(|(service, uid)| {
            let named = uid.as_str()?;
            let identity = self.all("Identity").iter().find(|identity| text(identity, "uid") == named)?;
            (text(identity, "servicePrincipal").strip_prefix("SERVICE_PRINCIPAL_") == Some(service)).then_some(named)
        })
    }

    /// The identities whose tokens other identities trust by name.
    fn named_by_others(&self) -> BTreeSet<&str> {
        let matches = self.all("Identity").iter().filter_map(|identity| identity.get("claimMatch"));
        let own = matches.filter(|wanted| text(wanted, "issuer") == OWN || wanted.get("issuerPattern").is_some());
        own.map(|wanted| text(wanted, "subject")).filter(|subject| !subject.is_empty()).collect()
    }

    /// Whether the coalition can act as an identity of a group. What a claim match asks for besides issuer and subject,
    /// the coalition is taken to have.
    fn assumes(&self, of: &Credentials, identity: &Value, vouching: &BTreeSet<String>) -> bool {
        if parent(text(identity, "uid")).is_none() {
            return false;
        }
        if let Some(keys) = identity.get("staticKeys") {
            let until = Timestamp::parse(text(keys, "expirationTime")).unwrap().millis();
            return text(keys, "issuerKeys") == of.keys && self.now < until;
        }
        let Some(wanted) = identity.get("claimMatch") else { return false };
        // Every pattern of these walks matches everything.
        let fits =
            |literal: &str, pattern: &str, value: &str| text(wanted, literal) == value || wanted.get(pattern).is_some();
        let from = |issuer: &str| fits("issuer", "issuerPattern", issuer);
        let named = |subject: &str| fits("subject", "subjectPattern", subject);
        from(EVIL)
            || (from(TRUSTED) && of.persons.iter().any(|subject| named(subject)))
            || (from(SSO) && named(SUBJECT))
            || (from(OWN) && vouching.iter().any(|uid| named(uid)))
    }

    /// Adds what a provider gives to the coalition, and as whom it then acts.
    fn signed_in(&self, of: &Credentials, provider: &Value, who: &mut BTreeSet<String>, all: &mut Powers) {
        let (uid, oidc) = (text(provider, "uid"), &provider["oidc"]);
        let (issuer, claim) = (text(oidc, "issuer"), text(oidc, "groupsClaim"));
        let evil = match issuer {
            EVIL => true,
            SSO => false,
            _ => return,
        };
        let enabled = provider["scim"]["enabled"] == true;
        let tells = of.scim.iter().any(|token| self.scim[uid].contains(&hex::encode(Sha256::digest(token))));
        let mut users = self.all("DirectoryUser").iter().filter(|user| parent(text(user, "uid")) == Some(uid));
        let let_in = match enabled {
            true if tells => true,
            // The issuer is the coalition's own and calls its person what the directory does.
            true if evil => users.any(|user| user["active"] == true),
            true => users.any(|user| text(user, "externalId") == SUBJECT && user["active"] == true),
            false => true,
        };
        if !let_in {
            return;
        }
        let provider_uid = Uid::opaque(uid);
        who.insert(provider_person_uid(&provider_uid, issuer, SUBJECT).to_string());
        if evil {
            for person in self.all("Identity") {
                let subject = text(&person["claimMatch"], "subject");
                let derived = provider_person_uid(&provider_uid, issuer, subject).to_string();
                if derived == text(person, "uid") {
                    who.insert(derived);
                }
            }
        }
        all.give(parent(uid).unwrap(), self.role(text(provider, "defaultRole")));
        for mapping in self.all("ExternalGroupRoleMapping").iter().filter(|map| parent(text(map, "uid")) == Some(uid)) {
            let named = text(mapping, "externalGroupId");
            if !claim.is_empty() && (evil || of.groups.get(claim) == Some(&named)) {
                all.give(text(mapping, "scope"), self.role(text(mapping, "roleUid")));
            }
        }
    }
}

/// Whether these powers decide in the end who acts as an identity: once nothing is bound to it, whoever may update it.
/// To trust its tokens is to trust them.
fn manages(all: &Powers, identity: &str) -> bool {
    let update = Set::of(["CAP_IAM_IDENTITY_UPDATE"]);
    parent(identity).is_some_and(|home| update.beyond(all.at(home)).is_empty())
}

fn role(body: &Value) -> (String, Set) {
    let ids = body["capabilities"].as_array().into_iter().flatten();
    (text(body, "uid").to_owned(), Set::of(ids.filter_map(Value::as_str)))
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

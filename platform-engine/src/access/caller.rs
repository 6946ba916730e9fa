//! Callers: identities that a token has proved, and what the token narrows them to.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::CapabilitySet;
use crate::{
    entropy::Entropy,
    timestamp::Timestamp,
    uid::{self, Uid},
};

/// An identity that somebody has proved to act as. Whoever makes one vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The identity.
    pub identity: Uid,
    /// What the token allows of what the identity may do; none when all of it.
    pub narrowing: Option<Arc<Narrowing>>,
    /// The sign-in by an organisation's own identity provider that gives more than what is bound; none otherwise.
    pub session: Option<Arc<Session>>,
    /// Which registration of a person the caller acts as.
    pub acts_as: ActsAs,
}

/// Identifies one registration of a person: random, and drawn when the person registers.
///
/// A person's uid is derived from the issuer and the subject, so that a person who is deleted and registers again has
/// the same uid. Tokens, sign-ins and invites name the registration that they were issued to, and count for no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RegistrationId([u8; 16]);

impl RegistrationId {
    /// Returns a random id.
    pub fn draw(entropy: &dyn Entropy) -> Self {
        let mut id = [0; 16];
        entropy.fill(&mut id);
        Self(id)
    }
}

impl fmt::Display for RegistrationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for RegistrationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<RegistrationId> for String {
    fn from(id: RegistrationId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RegistrationId {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut id = [0; 16];
        hex::decode_to_slice(text, &mut id)?;
        Ok(Self(id))
    }
}

/// Which registration of a person a caller acts as (`docs/api.md`, Registered persons).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActsAs {
    /// The current one: the issuer vouches for the person now.
    #[default]
    Current,
    /// The one of this id, and no later one.
    Registration(RegistrationId),
    /// One without an id, or one that existed at this time, compared in whole seconds: a token of that time has no id.
    AsOf(Timestamp),
}

/// A person's sign-in by an organisation's own identity provider, as a token of ours tells of it. What it gives is
/// worked out from the provider as it stands (`docs/api.md`, Sign-in by an identity provider).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Session {
    /// The uid of the provider.
    #[serde(rename = "identityProvider")]
    pub provider: Uid,
    /// The issuer that the provider had, which vouched for the person.
    pub issuer: String,
    /// The person's entry in the provider's directory; none where the directory does not tell of users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Uid>,
    /// The claim that names the person's external groups, as the provider had it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub groups_claim: String,
    /// The external groups in that claim. They count while the provider reads the same claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

impl Session {
    /// Returns the approximate size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let groups = self.groups.iter().map(|group| size_of::<String>() + group.len());
        let user = self.user.as_ref().map_or(0, |user| user.len());
        let texts = self.provider.len() + self.issuer.len() + self.groups_claim.len();
        size_of::<Self>() + texts + user + groups.sum::<usize>()
    }
}

impl Caller {
    /// Returns the identity as a caller, not narrowed.
    pub const fn new(identity: Uid) -> Self {
        Self { identity, narrowing: None, session: None, acts_as: ActsAs::Current }
    }

    /// Returns the caller with what a token narrows it to.
    #[must_use]
    pub fn narrowed(self, narrowing: Narrowing) -> Self {
        Self { narrowing: Some(Arc::new(narrowing)), ..self }
    }

    /// Returns the caller with the sign-in that a token tells of.
    #[must_use]
    pub fn signed_in(self, session: Session) -> Self {
        Self { session: Some(Arc::new(session)), ..self }
    }

    /// Returns the caller as one who acts as this registration of the person.
    #[must_use]
    pub fn acting_as(self, acts_as: ActsAs) -> Self {
        Self { acts_as, ..self }
    }
}

/// The most that a token allows: capabilities at or below groups. It takes away and never gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowing(HashMap<Uid, CapabilitySet>);

impl Narrowing {
    /// Returns what these groups' capabilities narrow to.
    pub fn new(groups: impl IntoIterator<Item = (Uid, CapabilitySet)>) -> Self {
        Self(groups.into_iter().collect())
    }

    /// Returns what is allowed at a uid: what its group and all above it allow.
    pub fn at(&self, uid: &str) -> CapabilitySet {
        let above = std::iter::successors(Some(uid), |uid| uid::parent(uid));
        above.filter_map(|group| self.0.get(group)).fold(CapabilitySet::EMPTY, |all, set| all.union(*set))
    }

    /// Returns the groups that it names.
    pub fn groups(&self) -> impl Iterator<Item = &Uid> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_session_counts_every_text() {
        let text = || "x".repeat(1000);
        let empty = Session::default().bytes();
        for session in [
            Session { provider: Uid::opaque(text()), ..Session::default() },
            Session { issuer: text(), ..Session::default() },
            Session { user: Some(Uid::opaque(text())), ..Session::default() },
            Session { groups_claim: text(), ..Session::default() },
        ] {
            assert_eq!(session.bytes(), empty + 1000, "{session:?}");
        }
        let groups = vec![text(), text()];
        assert_eq!(Session { groups, ..Session::default() }.bytes(), empty + 2 * (1000 + size_of::<String>()));
    }
}

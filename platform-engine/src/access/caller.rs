//! Callers: identities that a token has proved, and the limits of the token.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Capability, CapabilitySet, Credential};
use crate::{
    entropy::Entropy,
    timestamp::Timestamp,
    uid::{self, Uid},
};

/// An authenticated identity. The code that constructs a caller is responsible for the authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The identity.
    pub identity: Uid,
    /// The limits of the token; `None` if the token allows everything that the identity may do.
    pub narrowing: Option<Arc<Narrowing>>,
    /// The sign-in through an organization's own identity provider, which can add to the grants of role bindings.
    pub session: Option<Arc<Session>>,
    /// The registration of the person that the caller acts as.
    pub acts_as: ActsAs,
    /// The token, which may be revoked; `None` for a caller that was authenticated in another way.
    pub credential: Option<Arc<Credential>>,
    /// The version of the API that is called, by which events name the method and the message; `None` for the first of
    /// the domain.
    pub version: Option<&'static str>,
}

/// Identifies one registration of a person. It is random, and generated when the person registers.
///
/// A person's uid is derived from the issuer and the subject, so a person who is deleted and registers again has
/// the same uid. Tokens, sign-ins and invites name the registration that they were issued to, and are valid for no
/// other.
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

/// The registration of a person that a caller acts as (`docs/api.md`, Registered persons).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ActsAs {
    /// The current registration: the issuer has authenticated the person just now.
    #[default]
    Current,
    /// The registration with this id only.
    Registration(RegistrationId),
    /// A registration without an id, or one that already existed at this time, compared in whole seconds. For a token
    /// that was issued at this time and has no registration id.
    AsOf(Timestamp),
}

/// A person's sign-in through an organization's own identity provider, as the platform's tokens carry it. The grants of
/// the sign-in depend on the provider's current state (`docs/api.md`, Sign-in by an identity provider).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Session {
    /// The uid of the provider.
    #[serde(rename = "identityProvider")]
    pub provider: Uid,
    /// The provider's issuer at the time of the sign-in.
    pub issuer: String,
    /// The person's user in the provider's directory; `None` if the directory does not provision users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Uid>,
    /// The name of the claim with the person's external groups, as the provider was configured at the sign-in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub groups_claim: String,
    /// The external groups in that claim. They apply as long as the provider is configured with the same claim.
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
    /// Returns the identity as a caller without narrowing or sign-in.
    pub const fn new(identity: Uid) -> Self {
        Self { identity, narrowing: None, session: None, acts_as: ActsAs::Current, credential: None, version: None }
    }

    /// Returns the caller with the limits of a token.
    #[must_use]
    pub fn narrowed(self, narrowing: Narrowing) -> Self {
        Self { narrowing: Some(Arc::new(narrowing)), ..self }
    }

    /// Returns the caller with the sign-in that a token carries.
    #[must_use]
    pub fn signed_in(self, session: Session) -> Self {
        Self { session: Some(Arc::new(session)), ..self }
    }

    /// Returns the caller, acting as this registration of the person.
    #[must_use]
    pub fn acting_as(self, acts_as: ActsAs) -> Self {
        Self { acts_as, ..self }
    }

    /// Returns the caller, authenticated by this token.
    #[must_use]
    pub fn with_credential(self, credential: impl Into<Arc<Credential>>) -> Self {
        Self { credential: Some(credential.into()), ..self }
    }

    /// Returns the caller, calling this version of the API.
    #[must_use]
    pub fn calling(self, version: &'static str) -> Self {
        Self { version: Some(version), ..self }
    }
}

/// The limits of a token: the capabilities that it allows at and below groups. It restricts grants and never adds to
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowing(HashMap<Uid, CapabilitySet>);

impl Narrowing {
    /// Returns limits that allow these capabilities at and below these groups, and nothing else.
    pub fn new(groups: impl IntoIterator<Item = (Uid, CapabilitySet)>) -> Self {
        Self(groups.into_iter().collect())
    }

    /// Returns the capabilities that are allowed at a uid: those at the uid itself and at its ancestors.
    pub fn at(&self, uid: &str) -> CapabilitySet {
        let above = std::iter::successors(Some(uid), |uid| uid::parent(uid));
        above.filter_map(|group| self.0.get(group)).fold(CapabilitySet::EMPTY, |all, set| all.union(*set))
    }

    /// Returns whether all of these capabilities are allowed at one of the groups.
    pub(crate) fn allows_somewhere(&self, capabilities: &[Capability]) -> bool {
        self.0.values().any(|allowed| allowed.contains_all(capabilities))
    }

    /// Returns the groups with capabilities, in no particular order.
    pub fn groups(&self) -> impl Iterator<Item = &Uid> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_session_includes_every_text() {
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

//! Revoked tokens and ended sessions of an identity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// The properties of a caller's token by which it can be revoked (`docs/api.md`, Revocation of tokens).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The id of the token, if it has one.
    pub id: Option<String>,
    /// When the token was issued. For a token that was issued in exchange for others, when the first one was issued.
    pub issued: Timestamp,
    /// How often all tokens of the identity had been [revoked](Revocations::revoke_all) when the token was issued;
    /// `None` if the issuer did not know, and for tokens of other issuers.
    pub generation: Option<u64>,
}

impl Credential {
    /// Returns the credential of a caller that an issuer has authenticated at this time, by a token that does not know
    /// of revocations. A token without a time counts as issued before every revocation.
    pub fn issued_at(time: Option<Timestamp>) -> Self {
        Self { id: None, issued: time.unwrap_or(Timestamp::MIN), generation: None }
    }
}

/// The revocations of an identity's tokens, and of the sessions of browsers that hold them in a cookie.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Revocations {
    /// How often all tokens were revoked. Tokens that carry this number need no comparison of clocks.
    generation: u64,
    /// When all tokens were last revoked, for tokens that do not carry the number.
    #[serde(skip_serializing_if = "Option::is_none")]
    all_time: Option<Timestamp>,
    /// All tokens that were issued at this time or before are revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    before_time: Option<Timestamp>,
    /// The ids of revoked tokens, and when the last of them has expired.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tokens: BTreeMap<String, Timestamp>,
    /// How often all sessions of browsers were ended.
    #[serde(skip_serializing_if = "is_zero")]
    session_generation: u64,
    /// The ids of sessions of browsers that were ended, and when the last of their cookies has expired.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sessions: BTreeMap<String, Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Revocations {
    /// The maximum number of tokens that are revoked one by one at the same time, so that grants stay small. Our
    /// choice.
    pub const MAX_TOKENS: usize = 100;

    /// The maximum number of sessions of browsers that are ended one by one at the same time, so that grants stay
    /// small. Our choice.
    pub const MAX_SESSIONS: usize = 100;

    /// Returns how often all tokens were revoked.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether nothing was revoked.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a token is not revoked. Times are compared in whole seconds, as tokens have them.
    pub fn admit(&self, credential: &Credential) -> bool {
        let is_after = |time: Option<Timestamp>| time.is_none_or(|time| credential.issued.seconds() > time.seconds());
        let is_of_generation = match credential.generation {
            Some(generation) => generation == self.generation,
            None => is_after(self.all_time),
        };
        let by_id = credential.id.as_ref().is_some_and(|id| self.tokens.contains_key(id));
        is_of_generation && is_after(self.before_time) && !by_id
    }

    /// Returns how often all sessions of browsers were ended. A new session carries this number, so that no clocks of
    /// several servers are compared.
    pub const fn session_generation(&self) -> u64 {
        self.session_generation
    }

    /// Returns whether a session of a browser, which began at this generation, was not ended.
    pub fn admit_session(&self, id: &str, generation: u64) -> bool {
        generation == self.session_generation && !self.sessions.contains_key(id)
    }

    /// Ends the session of a browser with this id, whose cookie expires at `until` at the latest. Forgets sessions that
    /// have expired. Ends all sessions if [`MAX_SESSIONS`](Self::MAX_SESSIONS) others were ended: a person can always
    /// sign out.
    pub fn end_session(&mut self, id: &str, until: Timestamp, now: Timestamp) {
        self.sessions.retain(|_, until| now < *until);
        if self.sessions.len() < Self::MAX_SESSIONS || self.sessions.contains_key(id) {
            self.sessions.insert(id.to_owned(), until);
        } else {
            self.end_sessions();
        }
    }

    fn end_sessions(&mut self) {
        self.sessions.clear();
        self.session_generation = self.session_generation.saturating_add(1);
    }

    /// Revokes all tokens that were issued so far, and ends all sessions of browsers.
    pub fn revoke_all(&mut self, now: Timestamp) {
        self.generation = self.generation.saturating_add(1);
        self.all_time = self.all_time.max(self.before_time).max(Some(now));
        self.before_time = None;
        self.tokens.clear();
        self.end_sessions();
    }

    /// Revokes all tokens that were issued at this time or before.
    pub fn revoke_before(&mut self, time: Timestamp) {
        self.before_time = self.before_time.max(Some(time));
    }

    /// Revokes the token with this id, which expires at `until` at the latest. Forgets tokens that have expired.
    /// Returns `false`, and changes nothing else, if [`MAX_TOKENS`](Self::MAX_TOKENS) other tokens are revoked.
    #[must_use]
    pub fn revoke_token(&mut self, id: &str, until: Timestamp, now: Timestamp) -> bool {
        self.tokens.retain(|_, until| now < *until);
        let fits = self.tokens.len() < Self::MAX_TOKENS || self.tokens.contains_key(id);
        if fits {
            self.tokens.insert(id.to_owned(), until);
        }
        fits
    }

    /// Returns the approximate size in memory in bytes, beyond that of the struct.
    pub(crate) fn bytes(&self) -> usize {
        self.tokens.keys().chain(self.sessions.keys()).map(|id| id.len() + 2 * size_of::<(String, Timestamp)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn token(id: &str, seconds: i64, generation: Option<u64>) -> Credential {
        Credential { id: Some(id.to_owned()), issued: at(seconds), generation }
    }

    #[test]
    fn a_revocation_of_all_tokens_needs_no_clock_for_tokens_that_carry_its_number() {
        let mut revocations = Revocations::default();
        let (early, ahead) = (token("a", 10, Some(0)), token("b", 999, Some(0)));
        assert!(revocations.admit(&early) && revocations.admit(&ahead));
        revocations.revoke_all(at(20));
        assert!(!revocations.admit(&early) && !revocations.admit(&ahead), "whatever the issuer's clock was");
        assert!(revocations.admit(&token("c", 20, Some(1))), "in the same second");
        assert!(!revocations.admit(&token("d", 30, Some(2))), "of a state that was lost");
    }

    #[test]
    fn tokens_without_the_number_are_revoked_by_their_second() {
        let mut revocations = Revocations::default();
        revocations.revoke_all(Timestamp::from_millis(20_900));
        assert!(!revocations.admit(&token("a", 20, None)) && revocations.admit(&token("b", 21, None)));
        assert!(!revocations.admit(&Credential::issued_at(None)), "a token without a time");
    }

    #[test]
    fn a_revocation_by_time_applies_to_all_tokens_and_outlasts_an_earlier_time() {
        let mut revocations = Revocations::default();
        revocations.revoke_before(at(20));
        revocations.revoke_before(at(15));
        for generation in [Some(0), None] {
            assert!(!revocations.admit(&token("a", 20, generation)));
            assert!(revocations.admit(&token("b", 21, generation)));
        }
        revocations.revoke_all(at(10));
        assert!(!revocations.admit(&token("c", 20, None)), "the clock of this server is behind");
        assert!(revocations.admit(&token("d", 12, Some(1))), "its number is enough");
        revocations.revoke_all(at(11));
        assert!(!revocations.admit(&token("e", 20, None)), "the clock is behind again");
    }

    #[test]
    fn single_tokens_are_revoked_until_they_expire_and_their_number_is_bounded() {
        let mut revocations = Revocations::default();
        let revoke = |revocations: &mut Revocations, id: usize, now: i64| {
            revocations.revoke_token(&id.to_string(), at(now + 100), at(now))
        };
        for id in 0..Revocations::MAX_TOKENS {
            assert!(revoke(&mut revocations, id, 0));
        }
        assert!(!revocations.admit(&token("7", 50, Some(0))) && revocations.admit(&token("999", 50, Some(0))));
        assert!(revoke(&mut revocations, 7, 0), "a repeated revocation needs no more room");
        assert!(!revoke(&mut revocations, 999, 99));
        assert!(revoke(&mut revocations, 999, 100), "expired tokens are forgotten");
        assert_eq!(revocations.tokens.len(), 1);
        revocations.revoke_all(at(200));
        assert!(revocations.tokens.is_empty(), "no token of an earlier generation is valid");
    }

    #[test]
    fn an_ended_session_is_dead_at_once_and_others_are_not() {
        let mut revocations = Revocations::default();
        assert!(revocations.admit_session("a", 0) && revocations.is_empty());
        revocations.end_session("a", at(100), at(50));
        assert!(!revocations.admit_session("a", 0) && revocations.admit_session("b", 0));
        let kept: Revocations = serde_json::from_str(&serde_json::to_string(&revocations).unwrap()).unwrap();
        assert_eq!(kept, revocations);
        revocations.revoke_all(at(60));
        assert!(!revocations.admit_session("a", 0) && !revocations.admit_session("b", 0));
        assert!(revocations.admit_session("c", revocations.session_generation()));
    }

    #[test]
    fn the_number_of_ended_sessions_is_bounded_and_a_sign_out_never_fails() {
        let mut revocations = Revocations::default();
        for id in 0..Revocations::MAX_SESSIONS {
            revocations.end_session(&id.to_string(), at(100), at(0));
        }
        revocations.end_session("7", at(100), at(1));
        assert!(revocations.admit_session("other", 0), "a repeated sign-out needs no more room");
        revocations.end_session("last", at(200), at(2));
        for id in ["7", "last", "other"] {
            assert!(!revocations.admit_session(id, 0), "{id}: all sessions were ended");
        }
        assert!(revocations.admit_session("new", 1));
        assert!(revocations.sessions.is_empty(), "no session of an earlier generation is valid");
        for id in 0..Revocations::MAX_SESSIONS {
            revocations.end_session(&id.to_string(), at(100), at(3));
        }
        revocations.end_session("later", at(200), at(100));
        assert!(revocations.admit_session("new", 1) && revocations.sessions.len() == 1, "expired ones are forgotten");
    }
}

//! Sign-ins in progress and headless sessions: in memory, bounded, and each usable once.
//!
//! A restart ends them, and persons start again. Only hashes of the secrets are keys, so that a lookup takes no time
//! that depends on a secret.

use std::{collections::HashMap, hash::Hash};

use parking_lot::Mutex;
use platform_core::tokens::{HeadlessCode, HeadlessSession, Held, RawToken, Redemption, SIGN_IN_SECONDS, SignIn};
use platform_engine::{
    error::{Error, Result},
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use sha2::{Digest, Sha256};

/// The maximum number of entries at each step. Our choice; what is held for each one bounds them per address.
const MAX_ENTRIES: usize = 4096;

type Fingerprint = [u8; 32];

fn fingerprint(secret: &str) -> Fingerprint {
    Sha256::digest(secret).into()
}

/// A sign-in whose browser was sent to the provider.
pub(super) struct Sent {
    pub(super) request: SignIn,
    pub(super) provider: Option<Uid>,
    pub(super) issuer: String,
    pub(super) nonce: Secret,
    /// The code verifier of PKCE.
    pub(super) verifier: Secret,
    /// The secret of the browser's cookie.
    pub(super) browser: Secret,
    pub(super) held: Held,
}

/// A sign-in that the person can confirm.
pub(super) struct Confirmable {
    pub(super) request: SignIn,
    pub(super) provider: Option<Uid>,
    pub(super) issuer: String,
    pub(super) nonce: Secret,
    pub(super) id_token: Secret,
    /// The claims of the UserInfo endpoint that are added to those of the id token, as a JSON object.
    pub(super) user_info: Secret,
    pub(super) person: Uid,
    pub(super) name: String,
    pub(super) registered: bool,
    pub(super) form_token: Secret,
    pub(super) held: (Held, Held),
}

/// All sign-ins in progress, and the headless sessions and tokens that were not read yet.
#[derive(Default)]
pub(super) struct Pending(Mutex<Steps>);

#[derive(Default)]
struct Steps {
    /// By the hash of `state`.
    sent: Expiring<Fingerprint, Sent>,
    /// By the hash of the browser's secret.
    confirmable: Expiring<Fingerprint, Confirmable>,
    /// By the code.
    sessions: Expiring<[u8; 32], (HeadlessSession, (Held, Held))>,
    /// By the hash of the code.
    granted: Expiring<Fingerprint, (SignIn, RawToken, (Held, Held))>,
}

impl Pending {
    pub(super) fn forget_expired(&self, now: Timestamp) {
        let mut steps = self.0.lock();
        steps.sent.forget_expired(now);
        steps.confirmable.forget_expired(now);
        steps.sessions.forget_expired(now);
        steps.granted.forget_expired(now);
    }

    pub(super) fn begin(&self, now: Timestamp, state: &Secret, sent: Sent) -> Result<()> {
        self.0.lock().sent.insert(now, fingerprint(state.expose()), sent)
    }

    /// Removes the sign-in with this state, if this browser began it. For another browser it stays.
    pub(super) fn take_sent(&self, now: Timestamp, state: &str, browser: &str) -> Option<Sent> {
        let began = |sent: &Sent| fingerprint(sent.browser.expose()) == fingerprint(browser);
        self.0.lock().sent.take(now, &fingerprint(state), began)
    }

    pub(super) fn complete(&self, now: Timestamp, browser: &Secret, open: Confirmable) -> Result<()> {
        self.0.lock().confirmable.insert(now, fingerprint(browser.expose()), open)
    }

    /// Returns what `read` makes of the sign-in that this browser can confirm.
    pub(super) fn confirmable<T>(
        &self,
        now: Timestamp,
        browser: &str,
        read: impl FnOnce(&Confirmable) -> T,
    ) -> Option<T> {
        self.0.lock().confirmable.get(now, &fingerprint(browser)).map(read)
    }

    /// Removes the sign-in that this browser can confirm, if it satisfies `is_allowed`.
    pub(super) fn take_confirmable(
        &self,
        now: Timestamp,
        browser: &str,
        is_allowed: impl FnOnce(&Confirmable) -> bool,
    ) -> Option<Confirmable> {
        self.0.lock().confirmable.take(now, &fingerprint(browser), is_allowed)
    }

    /// Keeps the session of a code until it is read.
    ///
    /// # Errors
    /// ALREADY_EXISTS when there is one, because another person may have confirmed the same code.
    pub(super) fn keep_session(
        &self,
        now: Timestamp,
        code: HeadlessCode,
        session: HeadlessSession,
        held: (Held, Held),
    ) -> Result<()> {
        let mut steps = self.0.lock();
        if steps.sessions.get(now, code.key()).is_some() {
            return Err(Error::already_exists("This code was confirmed already"));
        }
        steps.sessions.insert(now, *code.key(), (session, held))
    }

    /// Keeps tokens until their code is redeemed.
    pub(super) fn grant(
        &self,
        now: Timestamp,
        code: &Secret,
        request: SignIn,
        tokens: RawToken,
        held: (Held, Held),
    ) -> Result<()> {
        self.0.lock().granted.insert(now, fingerprint(code.expose()), (request, tokens, held))
    }

    /// Removes the tokens of a code, if this request may redeem it. For another one they stay. `audiences` returns
    /// the audiences of the tokens of a sign-in with these.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `audience` for an audience that the token does not have. The tokens stay.
    pub(super) fn redeem(
        &self,
        now: Timestamp,
        request: &Redemption,
        audiences: impl FnOnce(&[String]) -> Vec<String>,
    ) -> Result<Option<RawToken>> {
        let mut steps = self.0.lock();
        let key = fingerprint(request.code.expose());
        let granted = steps.granted.get(now, &key).filter(|(sign_in, ..)| sign_in.is_redeemed_by(request));
        let Some((sign_in, ..)) = granted else { return Ok(None) };
        let audiences = audiences(&sign_in.audiences);
        if !request.audiences.iter().all(|audience| audiences.contains(audience)) {
            return Err(Error::invalid_field("audience", "must be among the audiences of the sign-in"));
        }
        Ok(steps.granted.take(now, &key, |_| true).map(|(_, tokens, _)| tokens))
    }

    pub(super) fn take_session(&self, now: Timestamp, code: &HeadlessCode) -> Option<HeadlessSession> {
        self.0.lock().sessions.take(now, code.key(), |_| true).map(|(session, _)| session)
    }
}

/// Entries that expire after [`SIGN_IN_SECONDS`].
struct Expiring<K, V>(HashMap<K, (Timestamp, V)>);

impl<K, V> Default for Expiring<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

fn is_current(began: Timestamp, now: Timestamp) -> bool {
    // The absolute difference: an entry must not live longer because the clock was set back.
    now.millis().abs_diff(began.millis()) < SIGN_IN_SECONDS.unsigned_abs() * 1000
}

impl<K: Eq + Hash, V> Expiring<K, V> {
    fn forget_expired(&mut self, now: Timestamp) {
        self.0.retain(|_, (began, _)| is_current(*began, now));
    }

    fn insert(&mut self, now: Timestamp, key: K, value: V) -> Result<()> {
        if self.0.len() >= MAX_ENTRIES {
            self.forget_expired(now);
        }
        if self.0.len() >= MAX_ENTRIES {
            return Err(Error::exhausted());
        }
        self.0.insert(key, (now, value));
        Ok(())
    }

    fn get(&self, now: Timestamp, key: &K) -> Option<&V> {
        self.0.get(key).filter(|(began, _)| is_current(*began, now)).map(|(_, value)| value)
    }

    /// Removes and returns an entry that has not expired and satisfies `is_allowed`.
    fn take(&mut self, now: Timestamp, key: &K, is_allowed: impl FnOnce(&V) -> bool) -> Option<V> {
        self.get(now, key).filter(|value| is_allowed(value))?;
        self.0.remove(key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_are_bounded_and_are_taken_once() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut entries = Expiring::default();
        entries.insert(at(1000), 0, "a").unwrap();
        assert_eq!(entries.get(at(1599), &0), Some(&"a"));
        assert_eq!((entries.get(at(1600), &0), entries.get(at(400), &0)), (None, None));
        assert_eq!(entries.take(at(1000), &0, |_| false), None);
        assert_eq!(entries.take(at(1000), &0, |_| true), Some("a"));
        assert_eq!(entries.take(at(1000), &0, |_| true), None);
        for key in 0..MAX_ENTRIES {
            entries.insert(at(1000), key, "a").unwrap();
        }
        assert!(entries.insert(at(1599), MAX_ENTRIES, "a").is_err());
        assert!(entries.insert(at(1600), MAX_ENTRIES, "a").is_ok());
        assert_eq!(entries.0.len(), 1);
    }
}

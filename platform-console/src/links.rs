//! One-time links: each signs the user in who opens it first.

use std::{collections::HashMap, fmt};

use parking_lot::Mutex;
use platform_engine::{
    entropy::Entropy,
    error::{Code, Error, Result},
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use sha2::{Digest, Sha256};

/// The time in seconds for which a link can be opened.
pub const LINK_SECONDS: i64 = 15 * 60;

/// The maximum number of links at a time. Our choice.
const MAX_LINKS: usize = 4096;

/// One-time links that were made and not opened yet. They are in memory only, so a restart of the server ends them, and
/// a link is opened at the server that made it.
///
/// An identity has one link at a time; a new one replaces it.
#[derive(Default)]
pub struct Links(Mutex<HashMap<Uid, Link>>);

struct Link {
    /// The SHA-256 of the code, so that a search takes no time that depends on the code.
    code: [u8; 32],
    token: Secret,
    made: Timestamp,
}

impl Link {
    fn is_current(&self, now: Timestamp) -> bool {
        // The absolute difference: a link must not last longer because the clock was set back.
        now.millis().abs_diff(self.made.millis()) < LINK_SECONDS.unsigned_abs() * 1000
    }
}

impl Links {
    /// Makes a link that signs its user in with this token of this identity. Returns its code, 32 random bytes in hex,
    /// which [`url`](Self::url) puts into the link.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when too many links have not been opened.
    pub fn make(&self, entropy: &dyn Entropy, now: Timestamp, identity: &Uid, token: Secret) -> Result<Secret> {
        let mut random = [0; 32];
        entropy.fill(&mut random);
        let code = hex::encode(random);
        let mut links = self.0.lock();
        links.retain(|_, link| link.is_current(now));
        if links.len() >= MAX_LINKS && !links.contains_key(identity) {
            return Err(Error::new(Code::ResourceExhausted, "Too many one-time links have not been opened"));
        }
        let link = Link { code: hash(&code), token, made: now };
        links.insert(identity.clone(), link);
        Ok(Secret::new(code))
    }

    /// Returns the identity of a link that was not opened yet.
    pub(crate) fn identity(&self, now: Timestamp, code: &str) -> Option<Uid> {
        let code = hash(code);
        let links = self.0.lock();
        links.iter().find(|(_, link)| link.code == code && link.is_current(now)).map(|(identity, _)| identity.clone())
    }

    /// Returns the token of a link, once.
    pub(crate) fn take(&self, now: Timestamp, code: &str) -> Option<Secret> {
        let code = hash(code);
        let mut links = self.0.lock();
        links.retain(|_, link| link.is_current(now));
        let identity = links.iter().find(|(_, link)| link.code == code).map(|(identity, _)| identity.clone())?;
        links.remove(&identity).map(|link| link.token)
    }

    /// Returns the link with a code, for a server at this URL. The code is in the fragment, which browsers do not send.
    pub fn url(server: &str, code: &Secret) -> String {
        format!("{server}/console#link={}", code.expose())
    }
}

fn hash(code: &str) -> [u8; 32] {
    Sha256::digest(code).into()
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("open", &self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use platform_testkit::SeededEntropy;

    use super::*;

    #[test]
    fn a_link_is_opened_once_and_within_15_minutes() {
        let (links, entropy, start) = (Links::default(), SeededEntropy::new(1), Timestamp::EPOCH);
        let identity = Uid::from_digest([1; 20]);
        let make = || links.make(&entropy, start, &identity, Secret::new("token")).unwrap();
        let after = |seconds: i64| start.plus_millis(seconds * 1000);
        let code = make();
        assert_eq!((links.take(after(899), "other"), links.identity(after(899), "other")), (None, None));
        assert_eq!(links.identity(after(899), code.expose()).as_ref(), Some(&identity), "this does not open it");
        assert_eq!(links.identity(after(900), code.expose()), None);
        assert_eq!(links.take(after(899), code.expose()), Some(Secret::new("token")));
        assert_eq!(links.take(after(899), code.expose()), None, "it was opened");
        let (first, second) = (make(), make());
        assert_eq!(links.take(start, first.expose()), None, "a new link replaces the one before");
        assert_eq!(links.take(after(900), second.expose()), None, "it has expired");
        assert!(!format!("{links:?}").contains("token"));
    }

    #[test]
    fn a_link_lasts_no_longer_after_the_clock_was_set_back() {
        let (entropy, start) = (SeededEntropy::new(1), Timestamp::EPOCH);
        let identity = Uid::from_digest([1; 20]);
        let (hour, year) = (3600, 365 * 24 * 3600);
        for (seconds, is_current) in [(0, true), (-899, true), (-900, false), (-hour, false), (-year, false)] {
            let (links, now) = (Links::default(), start.plus_millis(seconds * 1000));
            let code = links.make(&entropy, start, &identity, Secret::new("token")).unwrap();
            assert_eq!(links.identity(now, code.expose()).is_some(), is_current, "{seconds}");
            assert_eq!(links.take(now, code.expose()).is_some(), is_current, "{seconds}");
        }
    }
}

//! Short-lived copies of access tokens, for pages in browsers.

use std::time::Duration;

use platform_engine::{
    error::{Error, Result},
    timestamp::Timestamp,
};

use crate::{authenticator::refusal, error::TokenError, issuer::IssuedToken, verifier::Verifier};

/// A short-lived copy of an access token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortened {
    /// The copy.
    pub token: IssuedToken,
    /// When the original expires.
    pub original_expires: Timestamp,
}

impl Verifier {
    /// Verifies an access token and returns a copy that expires after `ttl`, and not after the original. All other
    /// claims are those of the original: the identity, limits and sign-in, and also `jti` and `iat`, so that revoking
    /// the original revokes its copies.
    ///
    /// The token of another issuer is returned as it is, because only that issuer can sign a copy.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a token that [`Verifier::verify`] does not accept, UNAVAILABLE without its issuer's keys.
    pub async fn shorten(&self, token: &str, ttl: Duration) -> Result<Shortened> {
        let verified = self.verify(token).await.map_err(refusal)?;
        let original_expires = verified.expires;
        let Some(issuer) = self.own().filter(|_| verified.own) else {
            let token = IssuedToken { token: token.to_owned(), expires: original_expires };
            return Ok(Shortened { token, original_expires });
        };
        let now = self.now();
        if original_expires <= now {
            return Err(refusal(TokenError::Expired));
        }
        let expires = original_expires.min(now.plus_millis(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)));
        let token = issuer.copy_of(&verified.claims, expires).map_err(Error::internal)?;
        Ok(Shortened { token, original_expires })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use platform_engine::uid::Uid;
    use platform_keys::{Algorithm, Keys};
    use platform_testkit::{SeededEntropy, TestClock};
    use serde_json::json;

    use super::*;
    use crate::{AccessToken, Issuer, VerifierOptions};

    const SERVER: &str = "https://server.example";

    #[tokio::test]
    async fn a_copy_has_the_claims_of_its_original_and_expires_with_it() {
        let (clock, entropy) = (TestClock::at(Timestamp::from_millis(1_700_000_000_000)), SeededEntropy::new(1));
        let keys = Arc::new(Keys::generate(Algorithm::Es256, &clock, &entropy).unwrap());
        let issuer = Arc::new(Issuer::new(SERVER, keys, Arc::new(clock.clone()), Arc::new(entropy)).unwrap());
        let options = VerifierOptions {
            own: Some(Arc::clone(&issuer)),
            trusted: Vec::new(),
            audiences: vec![SERVER.to_owned()],
            cache_bytes: VerifierOptions::CACHE_BYTES,
        };
        let verifier = Verifier::new(options, Arc::new(clock.clone())).unwrap();
        let subject = Uid::from_digest([1; 20]);
        let claims = json!({ "cap": {}, "email": "ada@example.com" });
        let hour = Duration::from_secs(3600);
        let claims = claims.as_object().unwrap().clone();
        let request = AccessToken { subject: &subject, audiences: &[SERVER, "other"], ttl: hour, claims };
        let original = issuer.access_token(&request).unwrap();
        let before = verifier.verify(&original.token).await.unwrap();

        let copy = verifier.shorten(&original.token, Duration::from_secs(600)).await.unwrap();
        let after = verifier.verify(&copy.token.token).await.unwrap();
        assert_eq!(after.caller(), before.caller());
        assert!(after.caller().narrowing.is_some());
        for claim in ["email", "aud", "jti", "iat"] {
            assert_eq!(after.claims[claim], before.claims[claim], "{claim}");
        }
        assert_eq!(after.expires.seconds(), clock_seconds(before.issued) + 600);
        assert_eq!(copy.original_expires, before.expires);

        let rest = verifier.shorten(&original.token, 2 * hour).await.unwrap();
        assert_eq!(rest.token.expires, original.expires);
        let copy_of_copy = verifier.shorten(&copy.token.token, hour).await.unwrap();
        assert_eq!(copy_of_copy.token.expires, copy.token.expires);
        assert!(verifier.shorten("x", hour).await.is_err());
        // The verifier accepts an expired token within the leeway, but a copy would have no time left.
        clock.advance(3_600_000);
        verifier.verify(&original.token).await.unwrap();
        assert!(verifier.shorten(&original.token, hour).await.is_err());
    }

    fn clock_seconds(issued: Option<Timestamp>) -> i64 {
        issued.unwrap().seconds()
    }
}

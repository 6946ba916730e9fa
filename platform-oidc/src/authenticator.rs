//! The verifier as what the platform's transports ask: from a token to a caller.

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose};
use platform_core::{
    access::{Authenticator, Caller, CapabilitySet, Narrowing},
    error::{Code, Error, Result},
    uid::Uid,
};
use serde_json::Value;

use crate::{error::TokenError, verifier::Verifier};

#[async_trait]
impl Authenticator for Verifier {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        match self.verify(token).await {
            Ok(verified) => Ok(Caller { identity: verified.principal.clone(), narrowing: verified.narrowing.clone() }),
            Err(error @ TokenError::Unavailable) => {
                Err(Error::new(Code::Unavailable, format!("Not authenticated: {error}")))
            }
            Err(error) => Err(Error::unauthenticated(format!("Not authenticated: {error}"))),
        }
    }
}

/// Reads the claim `cap` of an own access token: an object from groups to sets of bits, in base64url with padding, of
/// an 8-byte count of bits and then 64-bit words, all big-endian; bit i is in word i / 64 at i mod 64.
///
/// It takes away and never gives (`docs/api.md`, Tokens); a token without it is not narrowed.
pub(crate) fn narrowing(cap: &Value) -> Result<Narrowing, TokenError> {
    let malformed = TokenError::Claim("cap");
    let groups = cap.as_object().ok_or(malformed)?;
    let mut narrowing = Vec::new();
    for (group, bits) in groups {
        let group = Uid::parse(group).map_err(|_| malformed)?;
        let bits = bits.as_str().and_then(bits_of).ok_or(malformed)?;
        narrowing.push((group, bits));
    }
    Ok(Narrowing::new(narrowing))
}

fn bits_of(text: &str) -> Option<CapabilitySet> {
    let bytes = general_purpose::URL_SAFE.decode(text).ok()?;
    let (count, words) = bytes.split_first_chunk::<8>()?;
    let count = u64::from_be_bytes(*count);
    let (words, []) = words.as_chunks::<8>() else { return None };
    let mut set = CapabilitySet::EMPTY;
    for bit in 0..=u8::MAX {
        let word = words.get(usize::from(bit / 64)).map_or(0, |word| u64::from_be_bytes(*word));
        if u64::from(bit) < count && word & (1 << (bit % 64)) != 0 {
            set.insert_bit(bit);
        }
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use platform_core::access::cap;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_published_encoding_of_capabilities_is_read() {
        let one = bits_of("AAAAAAAAADIAAAAAAAAACA==").unwrap();
        assert_eq!(one, CapabilitySet::from_iter([cap("groups.list")]));
        let three = bits_of("AAAAAAAAAEMEAAAAAAAACAAAAAAAAAAE").unwrap();
        assert_eq!(three, CapabilitySet::from_iter([cap("groups.list"), cap("repo.list"), cap("tag.list")]));
    }

    #[test]
    fn a_claim_of_any_other_form_makes_the_token_invalid() {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        for bad in [
            json!([]),
            json!("x"),
            json!({ "x": "AAAAAAAAADIAAAAAAAAACA==" }),
            json!({ group: 1 }),
            json!({ group: "AAAA" }),
        ] {
            assert!(narrowing(&bad).is_err(), "{bad}");
        }
        assert_eq!(narrowing(&json!({})), Ok(Narrowing::default()));
    }
}

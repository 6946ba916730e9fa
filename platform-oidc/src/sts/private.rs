//! What only this server's own tokens say: the claim `cap` in its published encoding, and the claim `internal`.

use base64::{Engine, engine::general_purpose::URL_SAFE};
use platform_core::{
    access::{CapabilitySet, Narrowing, RegistrationId, Session},
    uid::Uid,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::TokenError;

/// The most bytes of the claim `cap` as JSON; our choice: 4 KiB, so that tokens fit into headers everywhere.
pub(super) const MAX_CAP: usize = 4096;

/// The fewest bits that are written, as the published encoding has it.
const MIN_BITS: u64 = 50;

/// What an own access token says that no other token may.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// What it narrows to.
    pub(crate) narrowing: Option<Narrowing>,
    /// The sign-in that it was issued for.
    pub(crate) session: Option<Session>,
    /// The registration of a person that it was issued for.
    pub(crate) registration: Option<RegistrationId>,
}

/// Reads what an own access token says.
///
/// The claim `cap` takes away and never gives (`docs/api.md`, Tokens); a token without it is not narrowed, nor is one
/// whose `internal.capIsLive` says that it only tells what was held when the token was issued.
pub(crate) fn read(claims: &Map<String, Value>) -> Result<Said, TokenError> {
    let internal = match claims.get("internal") {
        None => None,
        Some(Value::Object(internal)) => Some(internal),
        Some(_) => return Err(TokenError::Claim("internal")),
    };
    let (session, registration) = (of(internal, "session")?, of(internal, "registration")?);
    let narrowing = claims.get("cap").map(narrowing).transpose()?;
    let live = internal.and_then(|internal| internal.get("capIsLive")) == Some(&Value::Bool(true));
    Ok(Said { narrowing: narrowing.filter(|_| !live), session, registration })
}

/// Reads a member of the claim `internal`, if it is there.
fn of<T: DeserializeOwned>(internal: Option<&Map<String, Value>>, name: &str) -> Result<Option<T>, TokenError> {
    let member = internal.and_then(|internal| internal.get(name)).cloned().map(serde_json::from_value);
    member.transpose().map_err(|_| TokenError::Claim("internal"))
}

/// Returns the claim `internal`; none when there is nothing to say.
pub(super) fn internal(
    cap_is_live: bool,
    session: Option<&Session>,
    registration: Option<RegistrationId>,
) -> Option<Value> {
    let mut internal = Map::new();
    if cap_is_live {
        internal.insert("capIsLive".to_owned(), true.into());
    }
    if let Some(session) = session {
        internal.insert("session".to_owned(), json!(session));
    }
    if let Some(registration) = registration {
        internal.insert("registration".to_owned(), json!(registration));
    }
    (!internal.is_empty()).then(|| internal.into())
}

/// Reads the claim `cap`: an object from groups to sets of bits, in base64url with padding, of an 8-byte count of
/// bits and then 64-bit words, all big-endian; bit i is in word i / 64 at i mod 64.
pub(super) fn narrowing(cap: &Value) -> Result<Narrowing, TokenError> {
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

/// Writes the claim `cap`; none when it would be longer than [`MAX_CAP`].
pub(super) fn cap(groups: &[(Uid, CapabilitySet)]) -> Option<Value> {
    let entry = |(group, held): &(Uid, CapabilitySet)| (group.to_string(), Value::from(text_of(held)));
    let length = |(group, held): &(Uid, CapabilitySet)| group.len() + text_of(held).len() + 6;
    let total = groups.iter().map(length).sum::<usize>() + 1;
    (total <= MAX_CAP).then(|| groups.iter().map(entry).collect::<Map<_, _>>().into())
}

fn text_of(held: &CapabilitySet) -> String {
    let mut words = [0_u64; 4];
    let mut count = MIN_BITS;
    for capability in held.iter() {
        let bit = capability.bit();
        count = count.max(u64::from(bit) + 1);
        if let Some(word) = words.get_mut(usize::from(bit / 64)) {
            *word |= 1 << (bit % 64);
        }
    }
    let used = usize::try_from(count.div_ceil(64)).unwrap_or_default();
    let words = words.into_iter().take(used).flat_map(u64::to_be_bytes);
    URL_SAFE.encode(count.to_be_bytes().into_iter().chain(words).collect::<Vec<_>>())
}

fn bits_of(text: &str) -> Option<CapabilitySet> {
    let bytes = URL_SAFE.decode(text).ok()?;
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
    use platform_core::access::{Capability, cap as capability};

    use super::*;

    const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

    fn set(names: &[&'static str]) -> CapabilitySet {
        names.iter().filter_map(|name| Capability::by_name(name)).collect()
    }

    #[test]
    fn the_published_encoding_of_capabilities_is_read_and_written() {
        for (text, names) in [
            ("AAAAAAAAADIAAAAAAAAACA==", &["groups.list"][..]),
            ("AAAAAAAAAEEEAAAAAAAACAAAAAAAAAAE", &[]),
            ("AAAAAAAAAEMEAAAAAAAACAAAAAAAAAAE", &["groups.list", "repo.list", "tag.list"]),
        ] {
            if !names.is_empty() {
                assert_eq!(bits_of(text), Some(set(names)));
                assert_eq!(text_of(&set(names)), text);
            }
        }
        assert_eq!(bits_of(&text_of(&CapabilitySet::EMPTY)), Some(CapabilitySet::EMPTY));
        let all: CapabilitySet = Capability::all().collect();
        assert_eq!(bits_of(&text_of(&all)), Some(all));
        assert!(set(&["groups.list"]).contains(capability("groups.list")));
    }

    #[test]
    fn a_claim_of_any_other_form_makes_the_token_invalid() {
        for bad in [
            json!([]),
            json!("x"),
            json!({ "x": "AAAAAAAAADIAAAAAAAAACA==" }),
            json!({ GROUP: 1 }),
            json!({ GROUP: "AAAA" }),
        ] {
            assert!(narrowing(&bad).is_err(), "{bad}");
        }
        assert_eq!(narrowing(&json!({})), Ok(Narrowing::default()));
        for bad in [
            json!({ "internal": 1 }),
            json!({ "internal": { "session": {} } }),
            json!({ "internal": { "registration": "" } }),
            json!({ "internal": { "registration": "0123" } }),
            json!({ "internal": { "registration": 7 } }),
            json!({ "internal": { "session": { "identityProvider": GROUP, "issuer": "i", "x": 1 } } }),
        ] {
            assert!(read(bad.as_object().unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_claim_is_left_out_where_it_would_exceed_4_kib_and_its_length_is_counted_right() {
        for count in 0..60 {
            let groups: Vec<_> =
                (0..count).map(|n| (Uid::opaque(format!("{GROUP}/{n:016x}")), set(&["repo.list"]))).collect();
            let whole: Map<String, Value> = groups.iter().map(|(g, h)| (g.to_string(), text_of(h).into())).collect();
            let length = Value::from(whole).to_string().len();
            assert_eq!(cap(&groups).is_some(), length <= MAX_CAP, "{count} groups, {length} bytes");
        }
    }

    #[test]
    fn a_claim_narrows_unless_the_token_says_that_it_only_tells() {
        let cap = json!({ GROUP: "AAAAAAAAADIAAAAAAAAACA==" });
        let narrows = |claims: Value| read(claims.as_object().unwrap()).unwrap().narrowing.is_some();
        assert!(narrows(json!({ "cap": cap })));
        assert!(narrows(json!({ "cap": cap, "internal": {} })));
        assert!(narrows(json!({ "cap": cap, "internal": { "capIsLive": "true" } })));
        assert!(!narrows(json!({ "cap": cap, "internal": { "capIsLive": true } })));
        assert!(!narrows(json!({})));
    }
}

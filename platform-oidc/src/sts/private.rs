//! Private claims of this server's own tokens: `cap` in its published encoding, and `internal`.

use base64::{Engine, engine::general_purpose::URL_SAFE};
use platform_engine::{
    access::{CapabilitySet, Narrowing, RegistrationId, Session},
    uid::Uid,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::TokenError;

/// The maximum length of the claim `cap`, in bytes of JSON; our choice: 4 KiB, so that tokens fit into HTTP headers
/// everywhere.
pub(super) const MAX_CAP: usize = 4096;

/// The minimum number of bits in an encoded set, as in the published encoding.
const MIN_BITS: u64 = 50;

/// The private claims of one of the server's own access tokens.
#[derive(Debug, Default)]
pub(crate) struct PrivateClaims {
    /// The narrowing by `cap`.
    pub(crate) narrowing: Option<Narrowing>,
    /// The sign-in that the token was issued for.
    pub(crate) session: Option<Session>,
    /// The registration of the person that the token was issued for.
    pub(crate) registration: Option<RegistrationId>,
    /// When the first of the tokens was issued that this one was exchanged for, in seconds.
    pub(crate) since: Option<i64>,
    /// How often the tokens of the identity had been revoked; `None` for a token with [`offline_claims`].
    pub(crate) generation: Option<u64>,
}

impl PrivateClaims {
    /// Parses the private claims of one of the server's own access tokens.
    ///
    /// The claim `cap` only removes capabilities and never adds any (`docs/api.md`, Tokens). A token is not narrowed if
    /// it has no such claim, or if its `internal.capIsLive` marks the claim as informational: the capabilities at the
    /// time of issue.
    pub(crate) fn parse(claims: &Map<String, Value>) -> Result<Self, TokenError> {
        let internal = match claims.get("internal") {
            None => None,
            Some(Value::Object(internal)) => Some(internal),
            Some(_) => return Err(TokenError::Claim("internal")),
        };
        let (session, registration) = (member(internal, "session")?, member(internal, "registration")?);
        let narrowing = claims.get("cap").map(decode_cap).transpose()?;
        let cap_is_live = internal.and_then(|internal| internal.get("capIsLive")) == Some(&Value::Bool(true));
        let since = member(internal, "since")?;
        let generation = match member(internal, "offline")? {
            Some(true) => None,
            _ => Some(member(internal, "generation")?.unwrap_or_default()),
        };
        Ok(Self { narrowing: narrowing.filter(|_| !cap_is_live), session, registration, since, generation })
    }
}

/// Parses a member of the claim `internal`, if it is present.
fn member<T: DeserializeOwned>(internal: Option<&Map<String, Value>>, name: &str) -> Result<Option<T>, TokenError> {
    let value = internal.and_then(|internal| internal.get(name)).cloned().map(serde_json::from_value);
    value.transpose().map_err(|_| TokenError::Claim("internal"))
}

/// The contents of the claim `internal`.
#[derive(Debug, Default)]
pub(super) struct Internal<'a> {
    pub(super) cap_is_live: bool,
    pub(super) session: Option<&'a Session>,
    pub(super) registration: Option<RegistrationId>,
    pub(super) since: Option<i64>,
    pub(super) generation: u64,
}

impl Internal<'_> {
    /// Returns the claim, or `None` if it would be empty.
    pub(super) fn encode(&self) -> Option<Value> {
        let mut internal = Map::new();
        if self.cap_is_live {
            internal.insert("capIsLive".to_owned(), true.into());
        }
        let members = [
            ("session", self.session.map(|session| json!(session))),
            ("registration", self.registration.map(|registration| json!(registration))),
            ("since", self.since.map(Value::from)),
            ("generation", Some(self.generation).filter(|generation| *generation > 0).map(Value::from)),
        ];
        internal.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        (!internal.is_empty()).then(|| internal.into())
    }
}

/// Returns the claims of an access token that is issued without knowledge of the identity's revocations. Such a token
/// is revoked by its time alone (`docs/api.md`, Revocation of tokens).
pub fn offline_claims() -> Map<String, Value> {
    Map::from_iter([("internal".to_owned(), json!({ "offline": true }))])
}

/// Decodes the claim `cap`: an object from groups to sets of bits. Each set is base64url with padding of an 8-byte
/// count of bits followed by 64-bit words, all big-endian; bit i is in word i / 64 at position i mod 64.
pub(super) fn decode_cap(cap: &Value) -> Result<Narrowing, TokenError> {
    let malformed = TokenError::Claim("cap");
    let groups = cap.as_object().ok_or(malformed)?;
    let mut narrowing = Vec::new();
    for (group, bits) in groups {
        let group = Uid::parse(group).map_err(|_| malformed)?;
        let bits = bits.as_str().and_then(decode_set).ok_or(malformed)?;
        narrowing.push((group, bits));
    }
    Ok(Narrowing::new(narrowing))
}

/// Encodes the claim `cap`; returns `None` if it would be longer than [`MAX_CAP`].
pub(super) fn encode_cap(groups: &[(Uid, CapabilitySet)]) -> Option<Value> {
    let entry = |(group, held): &(Uid, CapabilitySet)| (group.to_string(), Value::from(encode_set(held)));
    let length = |(group, held): &(Uid, CapabilitySet)| group.len() + encode_set(held).len() + 6;
    let total = groups.iter().map(length).sum::<usize>() + 1;
    (total <= MAX_CAP).then(|| groups.iter().map(entry).collect::<Map<_, _>>().into())
}

fn encode_set(held: &CapabilitySet) -> String {
    let bits = (0..).step_by(64).zip(held.words()).map(|(first, word)| match word {
        0 => 0,
        word => first + u64::from(word.ilog2()) + 1,
    });
    let count = bits.max().unwrap_or_default().max(MIN_BITS);
    let used = usize::try_from(count.div_ceil(64)).unwrap_or_default();
    let words = held.words().iter().copied().take(used).flat_map(u64::to_be_bytes);
    URL_SAFE.encode(count.to_be_bytes().into_iter().chain(words).collect::<Vec<_>>())
}

fn decode_set(text: &str) -> Option<CapabilitySet> {
    let bytes = URL_SAFE.decode(text).ok()?;
    let (count, words) = bytes.split_first_chunk::<8>()?;
    let count = u64::from_be_bytes(*count);
    let (words, []) = words.as_chunks::<8>() else { return None };
    // Bits from `count` on do not count.
    let mask = |first: u64| match count.saturating_sub(first) {
        0 => 0,
        rest if rest < 64 => (1 << rest) - 1,
        _ => u64::MAX,
    };
    let words = (0..).step_by(64).zip(words).map(|(first, word)| u64::from_be_bytes(*word) & mask(first));
    Some(CapabilitySet::from_words(words))
}

#[cfg(test)]
mod tests {
    use platform_core::capabilities::{self, cap};

    use super::*;

    const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

    fn set(names: &[&'static str]) -> CapabilitySet {
        names.iter().filter_map(|name| capabilities::by_name(name)).collect()
    }

    #[test]
    fn capability_sets_use_the_published_encoding() {
        for (text, names) in [
            ("AAAAAAAAADIAAAAAAAAACA==", &["groups.list"][..]),
            ("AAAAAAAAAEEEAAAAAAAACAAAAAAAAAAE", &[]),
            ("AAAAAAAAAEMEAAAAAAAACAAAAAAAAAAE", &["groups.list", "repo.list", "tag.list"]),
        ] {
            if !names.is_empty() {
                assert_eq!(decode_set(text), Some(set(names)));
                assert_eq!(encode_set(&set(names)), text);
            }
        }
        assert_eq!(decode_set(&encode_set(&CapabilitySet::EMPTY)), Some(CapabilitySet::EMPTY));
        let all: CapabilitySet = capabilities::all().collect();
        assert_eq!(decode_set(&encode_set(&all)), Some(all));
        assert!(set(&["groups.list"]).contains(cap("groups.list")));
    }

    #[test]
    fn malformed_private_claims_are_rejected() {
        for bad in [
            json!([]),
            json!("x"),
            json!({ "x": "AAAAAAAAADIAAAAAAAAACA==" }),
            json!({ GROUP: 1 }),
            json!({ GROUP: "AAAA" }),
        ] {
            assert!(decode_cap(&bad).is_err(), "{bad}");
        }
        assert_eq!(decode_cap(&json!({})), Ok(Narrowing::default()));
        for bad in [
            json!({ "internal": 1 }),
            json!({ "internal": { "session": {} } }),
            json!({ "internal": { "registration": "" } }),
            json!({ "internal": { "registration": "0123" } }),
            json!({ "internal": { "registration": 7 } }),
            json!({ "internal": { "since": "1" } }),
            json!({ "internal": { "generation": -1 } }),
            json!({ "internal": { "offline": 1 } }),
            json!({ "internal": { "session": { "identityProvider": GROUP, "issuer": "i", "x": 1 } } }),
        ] {
            assert!(PrivateClaims::parse(bad.as_object().unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_cap_claim_is_omitted_above_exactly_4_kib() {
        for count in 0..60 {
            let groups: Vec<_> =
                (0..count).map(|n| (Uid::opaque(format!("{GROUP}/{n:016x}")), set(&["repo.list"]))).collect();
            let whole: Map<String, Value> = groups.iter().map(|(g, h)| (g.to_string(), encode_set(h).into())).collect();
            let length = Value::from(whole).to_string().len();
            assert_eq!(encode_cap(&groups).is_some(), length <= MAX_CAP, "{count} groups, {length} bytes");
        }
    }

    #[test]
    fn the_cap_claim_narrows_unless_it_is_marked_as_live() {
        let cap = json!({ GROUP: "AAAAAAAAADIAAAAAAAAACA==" });
        let narrows = |claims: Value| PrivateClaims::parse(claims.as_object().unwrap()).unwrap().narrowing.is_some();
        assert!(narrows(json!({ "cap": cap })));
        assert!(narrows(json!({ "cap": cap, "internal": {} })));
        assert!(narrows(json!({ "cap": cap, "internal": { "capIsLive": "true" } })));
        assert!(!narrows(json!({ "cap": cap, "internal": { "capIsLive": true } })));
        assert!(!narrows(json!({})));
    }
}

//! Strict parsing of a token's claims.

use platform_engine::{clock::Clock, timestamp::Timestamp};
use serde_json::{Map, Value};

use crate::{error::TokenError, json};

/// The tolerated clock difference between an issuer and this server (`docs/api.md`).
pub(crate) const LEEWAY_MILLIS: i64 = 60_000;
/// The maximum length of a subject, in bytes. OpenID Connect allows 255; some issuers put whole branch names in it. Our
/// choice.
const MAX_SUBJECT: usize = 1024;
/// The maximum length of an email address, in bytes (RFC 5321 section 4.5.3.1, with the `@`).
const MAX_EMAIL: usize = 320;

/// A token's claims, parsed and of the right types. [`Claims::check`] validates them.
pub(crate) struct Claims {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
    pub(crate) issued: Option<Timestamp>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) email: Option<String>,
    pub(crate) email_verified: bool,
    pub(crate) all: Map<String, Value>,
}

impl Claims {
    /// Parses claims (RFC 7519 section 4.1). `iss`, `sub`, `aud` and `exp` are required.
    ///
    /// Times must be whole seconds from 1970 to 9999; a fraction, an exponent or a string is rejected (our choice,
    /// since parsers differ about them). An email address counts as verified only with `email_verified: true`, the
    /// boolean.
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Claim`].
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, TokenError> {
        let all = json::object(payload)
            .ok_or(TokenError::Malformed("the claims must be a JSON object without duplicate keys"))?;
        let email = all.get("email").and_then(Value::as_str).filter(|email| is_bounded_text(email, MAX_EMAIL));
        Ok(Self {
            issuer: required(&all, "iss")?.to_owned(),
            subject: Some(required(&all, "sub")?)
                .filter(|subject| is_bounded_text(subject, MAX_SUBJECT))
                .ok_or(TokenError::Claim("sub"))?
                .to_owned(),
            audiences: audiences(&all).ok_or(TokenError::Claim("aud"))?,
            expires: time(&all, "exp")?.ok_or(TokenError::Claim("exp"))?,
            issued: time(&all, "iat")?,
            not_before: time(&all, "nbf")?,
            email: email.map(str::to_owned),
            email_verified: all.get("email_verified") == Some(&Value::Bool(true)),
            all,
        })
    }

    /// Checks that the token is valid now and has at least one of these audiences.
    ///
    /// # Errors
    /// [`TokenError::Expired`], [`TokenError::NotYetValid`], [`TokenError::Audience`].
    pub(crate) fn check(&self, clock: &dyn Clock, audiences: &[String]) -> Result<(), TokenError> {
        self.check_times(clock)?;
        let shared = self.audiences.iter().any(|audience| audiences.contains(audience));
        if shared { Ok(()) } else { Err(TokenError::Audience) }
    }

    /// Checks that the token is valid now.
    ///
    /// # Errors
    /// [`TokenError::Expired`], [`TokenError::NotYetValid`].
    pub(crate) fn check_times(&self, clock: &dyn Clock) -> Result<(), TokenError> {
        let now = clock.now();
        if now >= self.valid_until() {
            return Err(TokenError::Expired);
        }
        if now < self.valid_from() {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }

    /// Returns the first instant at which the token is valid, leeway included.
    pub(crate) fn valid_from(&self) -> Timestamp {
        let from = self.issued.max(self.not_before).unwrap_or(Timestamp::MIN);
        from.plus_millis(-LEEWAY_MILLIS)
    }

    /// Returns the first instant at which the token is no longer valid, leeway included.
    pub(crate) fn valid_until(&self) -> Timestamp {
        self.expires.plus_millis(LEEWAY_MILLIS)
    }
}

fn required<'a>(all: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, TokenError> {
    all.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).ok_or(TokenError::Claim(name))
}

/// Returns whether a text has at most `max` bytes and no control characters.
pub(crate) fn is_bounded_text(text: &str, max: usize) -> bool {
    text.len() <= max && !text.contains(char::is_control)
}

fn audiences(all: &Map<String, Value>) -> Option<Vec<String>> {
    match all.get("aud")? {
        Value::String(audience) => Some(vec![audience.clone()]),
        Value::Array(audiences) => audiences.iter().map(|audience| audience.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn time(all: &Map<String, Value>, name: &'static str) -> Result<Option<Timestamp>, TokenError> {
    let Some(claim) = all.get(name) else { return Ok(None) };
    let seconds = claim.as_i64().filter(|seconds| (0..=Timestamp::MAX.seconds()).contains(seconds));
    seconds.map(|seconds| Some(Timestamp::from_millis(seconds * 1000))).ok_or(TokenError::Claim(name))
}

#[cfg(test)]
mod tests {
    use platform_testkit::TestClock;
    use serde_json::json;

    use super::*;

    fn at(millis: i64) -> TestClock {
        TestClock::at(Timestamp::from_millis(millis))
    }

    fn claims(changes: Value) -> Value {
        let mut claims = json!({"iss": "https://a", "sub": "me", "aud": "api", "exp": 2000});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        claims
    }

    fn parse(changes: Value) -> Result<Claims, TokenError> {
        Claims::parse(claims(changes).to_string().as_bytes())
    }

    #[test]
    fn claims_of_the_wrong_type_are_rejected() {
        for (name, values) in [
            ("iss", vec![json!(null), json!(""), json!(1), json!(["https://a"])]),
            ("sub", vec![json!(null), json!(""), json!(1), json!("a\0b"), json!("a\nb"), json!("x".repeat(1025))]),
            ("aud", vec![json!(null), json!(1), json!({"api": 1}), json!(["api", 1]), json!([["api"]])]),
            (
                "exp",
                vec![
                    json!(null),
                    json!("2000"),
                    json!("0x7d0"),
                    json!(true),
                    json!([2000]),
                    json!(-1),
                    json!(i64::MIN),
                    json!(i64::MAX),
                    json!(u64::MAX),
                    json!(253_402_300_800_i64),
                    json!(2000.0),
                    json!(2000.5),
                    json!(1e300),
                ],
            ),
            ("nbf", vec![json!(null), json!("0"), json!(-1), json!(0.5), json!(u64::MAX), json!([])]),
            ("iat", vec![json!(null), json!("0"), json!(-1), json!(0.5), json!(u64::MAX), json!({})]),
        ] {
            for value in values {
                let error = parse(json!({name: value})).map(drop).unwrap_err();
                assert_eq!(error, TokenError::Claim(name), "{name}: {value}");
            }
        }
        assert!(Claims::parse(br#"{"iss":"https://a","sub":"me","aud":"api","exp":2e3}"#).is_err());
        for missing in ["iss", "sub", "aud", "exp"] {
            let mut claims = claims(json!({}));
            claims.as_object_mut().unwrap().remove(missing);
            let error = Claims::parse(claims.to_string().as_bytes()).map(drop).unwrap_err();
            assert_eq!(error, TokenError::Claim(missing));
        }
        for payload in [&b""[..], b"{}x", b"[]", b"foo", br#"{"exp":1,"exp":2}"#, br#"{"act":{"sub":1,"sub":2}}"#] {
            assert!(Claims::parse(payload).is_err());
        }
    }

    #[test]
    fn times_have_exactly_one_minute_of_leeway() {
        let check = |changes, millis| parse(changes).unwrap().check(&at(millis), &["api".to_owned()]);
        let expiring = || json!({"exp": 2000});
        assert_eq!(check(expiring(), 2_059_999), Ok(()));
        assert_eq!(check(expiring(), 2_060_000), Err(TokenError::Expired));
        for name in ["nbf", "iat"] {
            let ahead = || json!({name: 1500});
            assert_eq!(check(ahead(), 1_440_000), Ok(()));
            assert_eq!(check(ahead(), 1_439_999), Err(TokenError::NotYetValid), "{name}");
        }
        assert_eq!(check(json!({"exp": 0}), -1_000_000_000_000), Ok(()));
        assert_eq!(check(json!({"exp": 253_402_300_799_i64}), Timestamp::MAX.millis()), Err(TokenError::Expired));
    }

    #[test]
    fn one_common_audience_is_required_and_sufficient() {
        let check = |audience, ours: &[&str]| {
            let ours: Vec<String> = ours.iter().map(|audience| (*audience).to_owned()).collect();
            parse(json!({"aud": audience})).unwrap().check(&at(0), &ours).is_ok()
        };
        assert!(check(json!("api"), &["api"]));
        assert!(check(json!("api"), &["other", "api"]));
        assert!(check(json!(["other", "api"]), &["api"]));
        for audience in [json!("API"), json!("api "), json!("api/"), json!("ap"), json!("apis"), json!(""), json!([])] {
            assert!(!check(audience.clone(), &["api"]), "{audience}");
        }
        assert!(!check(json!("api"), &[]));
    }

    #[test]
    fn only_the_boolean_true_verifies_an_email_address() {
        let verified = |value| parse(json!({"email": "a@b", "email_verified": value})).unwrap().email_verified;
        assert!(verified(json!(true)));
        for value in [json!("true"), json!(1), json!(false), json!(null), json!([true])] {
            assert!(!verified(value.clone()), "{value}");
        }
        assert_eq!(parse(json!({"email": 1})).unwrap().email, None);
        assert_eq!(parse(json!({"email": "a\r\nb@c"})).unwrap().email, None);
    }
}

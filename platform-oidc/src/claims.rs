//! Strict parsing of a token's claims.

use platform_engine::{clock::Clock, timestamp::Timestamp};
use serde_json::{Map, Value};

use crate::{error::TokenError, json};

/// The tolerated clock difference between an issuer and this server (`docs/api.md`).
pub(crate) const LEEWAY_MILLIS: i64 = 60_000;
/// The maximum length of a subject, in bytes. OpenID Connect allows 255; some issuers put whole branch names in it. Our
/// choice.
const MAX_SUBJECT: usize = 1024;
/// The maximum number of dots in the path of a claim; our choice.
const MAX_LEVELS: usize = 16;
/// The maximum length of an email address, in bytes (RFC 5321 section 4.5.3.1, with the `@`).
const MAX_EMAIL: usize = 320;

/// A token's claims, parsed and of the right types. [`Claims::check`] validates them.
pub(crate) struct Claims {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
    /// `iat`, rounded down: by it a token counts as revoked, so that a fraction never makes it newer.
    pub(crate) issued: Option<Timestamp>,
    /// The later one of `iat` and `nbf`, rounded up.
    starts: Option<Timestamp>,
    pub(crate) email: Option<String>,
    pub(crate) email_verified: bool,
    pub(crate) all: Map<String, Value>,
}

impl Claims {
    /// Parses claims (RFC 7519 section 4.1). `iss`, `sub`, `aud` and `exp` are required.
    ///
    /// Times are numbers of seconds from 1970 to 9999, which may have a fraction or an exponent (RFC 7519 section 2).
    /// They are rounded to milliseconds so that a token is never valid for longer. An email address counts as verified
    /// with `email_verified: true`, the boolean or, as some issuers write it, the text.
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Claim`].
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, TokenError> {
        let all = json::object(payload)
            .ok_or(TokenError::Malformed("the claims must be a JSON object without duplicate keys"))?;
        let (email, email_verified) = email(&all);
        let (expires, issued, not_before) = (time(&all, "exp")?, time(&all, "iat")?, time(&all, "nbf")?);
        Ok(Self {
            issuer: required(&all, "iss")?.to_owned(),
            subject: Some(required(&all, "sub")?)
                .filter(|subject| is_bounded_text(subject, MAX_SUBJECT))
                .ok_or(TokenError::Claim("sub"))?
                .to_owned(),
            audiences: audiences(&all).ok_or(TokenError::Claim("aud"))?,
            expires: expires.ok_or(TokenError::Claim("exp"))?.down,
            issued: issued.map(|issued| issued.down),
            starts: issued.map(|issued| issued.up).max(not_before.map(|not_before| not_before.up)),
            email,
            email_verified,
            all,
        })
    }

    /// Adds claims about the person from another answer of the issuer. Those of the token stay.
    pub(crate) fn complete(&mut self, more: Map<String, Value>) {
        if !self.all.contains_key("email") {
            self.all.shift_remove("email_verified");
        }
        for (name, value) in more {
            self.all.entry(name).or_insert(value);
        }
        (self.email, self.email_verified) = email(&self.all);
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
        self.starts.unwrap_or(Timestamp::MIN).plus_millis(-LEEWAY_MILLIS)
    }

    /// Returns the first instant at which the token is no longer valid, leeway included.
    pub(crate) fn valid_until(&self) -> Timestamp {
        self.expires.plus_millis(LEEWAY_MILLIS)
    }
}

/// Returns the address, and whether the issuer has verified it.
fn email(all: &Map<String, Value>) -> (Option<String>, bool) {
    let email = all.get("email").and_then(Value::as_str).filter(|email| is_bounded_text(email, MAX_EMAIL));
    let verified = all.get("email_verified");
    (email.map(str::to_owned), verified.is_some_and(|verified| *verified == true || *verified == "true"))
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

/// Returns the claim with this name or, if there is none, the one at this path: names joined by dots.
///
/// A name may have dots of its own: at each level the longest name counts that the object has. A path has at most
/// [`MAX_LEVELS`] dots; our choice.
pub(crate) fn find<'c>(claims: &'c Map<String, Value>, path: &str) -> Option<&'c Value> {
    if let Some(found) = claims.get(path) {
        return Some(found);
    }
    if path.matches('.').count() > MAX_LEVELS {
        return None;
    }
    path.rmatch_indices('.')
        .find_map(|(dot, _)| {
            let (name, rest) = path.split_at_checked(dot)?;
            Some((claims.get(name)?.as_object()?, rest.strip_prefix('.')?))
        })
        .and_then(|(inner, rest)| find(inner, rest))
}

/// A time of a token in milliseconds, rounded in both directions.
#[derive(Clone, Copy)]
struct Time {
    down: Timestamp,
    up: Timestamp,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "milliseconds to 9999 have 48 bits")]
fn time(all: &Map<String, Value>, name: &'static str) -> Result<Option<Time>, TokenError> {
    let Some(claim) = all.get(name) else { return Ok(None) };
    let last = Timestamp::MAX.seconds();
    let [down, up] = match (claim.as_i64(), claim.as_f64()) {
        (Some(seconds), _) if (0..=last).contains(&seconds) => [seconds * 1000; 2],
        (None, Some(seconds)) if (0.0..=last as f64).contains(&seconds) => {
            let millis = seconds * 1000.0;
            [millis.floor() as i64, millis.ceil() as i64]
        }
        _ => return Err(TokenError::Claim(name)),
    };
    Ok(Some(Time { down: Timestamp::from_millis(down), up: Timestamp::from_millis(up) }))
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
                    json!(253_402_300_799.5),
                    json!(-0.5),
                    json!(1e300),
                ],
            ),
            ("nbf", vec![json!(null), json!("0"), json!(-1), json!(-0.5), json!(u64::MAX), json!([])]),
            ("iat", vec![json!(null), json!("0"), json!(-1), json!(-0.5), json!(u64::MAX), json!({})]),
        ] {
            for value in values {
                let error = parse(json!({name: value})).map(drop).unwrap_err();
                assert_eq!(error, TokenError::Claim(name), "{name}: {value}");
            }
        }
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
    fn times_with_a_fraction_or_an_exponent_are_rounded_against_the_token() {
        // The number, and its milliseconds rounded down and up.
        for (number, down, up) in [
            ("2000", 2_000_000, 2_000_000),
            ("2000.0", 2_000_000, 2_000_000),
            ("2e3", 2_000_000, 2_000_000),
            ("2.0005E3", 2_000_500, 2_000_500),
            ("2000.5", 2_000_500, 2_000_500),
            ("2000.123456", 2_000_123, 2_000_124),
            ("1795852810.0", 1_795_852_810_000, 1_795_852_810_000),
            ("1.795852810e9", 1_795_852_810_000, 1_795_852_810_000),
            ("1795852810.9996", 1_795_852_810_999, 1_795_852_811_000),
            ("0.25", 250, 250),
            ("-0.0", 0, 0),
        ] {
            let claims = |name: &str| {
                let claims = format!(r#"{{"iss":"https://a","sub":"me","aud":"api","exp":9e9,"{name}":{number}}}"#);
                Claims::parse(claims.replace(r#""exp":9e9,"exp""#, r#""exp""#).as_bytes()).unwrap()
            };
            let at = Timestamp::from_millis;
            assert_eq!(claims("exp").valid_until(), at(down + LEEWAY_MILLIS), "{number}");
            assert_eq!(claims("nbf").valid_from(), at(up - LEEWAY_MILLIS), "{number}");
            assert_eq!(claims("iat").valid_from(), at(up - LEEWAY_MILLIS), "{number}");
            assert_eq!(claims("iat").issued, Some(at(down)), "{number}");
        }
    }

    #[test]
    fn a_claim_is_found_by_its_name_first_and_by_a_path_then() {
        let claims = json!({
            "realm_access": { "roles": ["a"] },
            "realm_access.roles": "literal",
            "kubernetes.io": { "namespace": "n", "pod": { "name": "p" }, "pod.name": "dotted" },
            "kubernetes": { "io": { "namespace": "other" } },
            "https://example.com/claims.groups": "url",
            "resource_access": { "my.client": { "roles": ["b"] } },
            "text": "t",
            "": { "": 1 },
        });
        let claims = claims.as_object().unwrap();
        for (path, found) in [
            ("realm_access.roles", Some(json!("literal"))),
            ("resource_access.my.client.roles", Some(json!(["b"]))),
            ("kubernetes.io.namespace", Some(json!("n"))),
            ("kubernetes.io.pod.name", Some(json!("dotted"))),
            ("https://example.com/claims.groups", Some(json!("url"))),
            ("text", Some(json!("t"))),
            ("text.more", None),
            ("kubernetes.io.missing", None),
            ("realm_access", Some(json!({ "roles": ["a"] }))),
            ("realm_access.", None),
            (".roles", None),
            (".", Some(json!(1))),
        ] {
            assert_eq!(find(claims, path), found.as_ref(), "{path}");
        }
        let deep = (0..=MAX_LEVELS + 1).fold(json!(1), |inner, _| json!({ "a": inner }));
        let path = |levels: usize| vec!["a"; levels + 1].join(".");
        assert!(find(deep.as_object().unwrap(), &path(MAX_LEVELS)).is_some());
        assert_eq!(find(deep.as_object().unwrap(), &path(MAX_LEVELS + 1)), None);
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
    fn only_true_as_a_boolean_or_a_text_verifies_an_email_address() {
        let verified = |value| parse(json!({"email": "a@b", "email_verified": value})).unwrap().email_verified;
        assert!(verified(json!(true)));
        assert!(verified(json!("true")), "as Apple and others write it");
        for value in
            [json!("True"), json!("true "), json!("1"), json!(""), json!(1), json!(false), json!(null), json!([true])]
        {
            assert!(!verified(value.clone()), "{value}");
        }
        assert_eq!(parse(json!({"email": 1})).unwrap().email, None);
        assert_eq!(parse(json!({"email": "a\r\nb@c"})).unwrap().email, None);
    }
}

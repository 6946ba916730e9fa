//! Every time in a token or a sign-in is tried at both ends of its window, alone and with each other time missing, with
//! and without a cached result, and with a clock that has stepped back.

use platform_core::tokens::{Finished, Redemption, SignInService, TokenService};
use platform_engine::{access::Authenticator, error::Code, seal::Secret, timestamp::Timestamp, uid::Uid};
use platform_keys::{Algorithm, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    aws::{Signed, caller_of_aws},
    common::{API, NOW, OWN, at, claims as claims_with, encode, key},
    exchange::static_keys,
    fixture::{Fixture, token},
    providers::{TENANT, Tenant, tenant},
    sign_in::{CALLBACK, Setting, client},
};

/// The tolerated difference between the clocks of an issuer and of this server, in seconds (`docs/api.md`).
const LEEWAY: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
const ROBOTS: &str = "https://robots.example";

/// A check of the times of a JWT.
#[derive(Debug, Clone, Copy)]
enum Check {
    /// A token of a trusted issuer, by the verifier.
    Trusted,
    /// A token of this server, by the verifier.
    Own,
    /// An exchange for an identity by its claim match.
    ClaimMatch,
    /// An exchange for an identity by its static keys.
    StaticKeys,
    /// An exchange for a registered person.
    Person,
    /// An exchange for a person of an organization's provider.
    ProviderPerson,
    /// The description of a token.
    WhoAmI,
    /// The registration of a person.
    Register,
}

const CHECKS: [Check; 8] = [
    Check::Trusted,
    Check::Own,
    Check::ClaimMatch,
    Check::StaticKeys,
    Check::Person,
    Check::ProviderPerson,
    Check::WhoAmI,
    Check::Register,
];

/// All that the checks need.
struct Scene {
    fixture: Fixture,
    tenant: Tenant,
    robots: SigningKey,
    alice: Uid,
    robot: Uid,
    serial: std::cell::Cell<u64>,
}

impl Scene {
    async fn new() -> Self {
        let fixture = Fixture::new().await;
        let tenant = tenant(&fixture, TENANT, json!({})).await;
        let robots = key(Algorithm::Es256);
        let mut body = static_keys(&robots, ROBOTS, "robot");
        // Beyond the times of all tokens here.
        body["staticKeys"]["expirationTime"] = json!(at(NOW + 300 * DAY));
        let robot = fixture.identity(&fixture.org, body).await;
        let alice = fixture.alice().await;
        fixture.sts.register(&fixture.upstream(json!({})), &Default::default()).await.unwrap();
        Self { fixture, tenant, robots, alice, robot, serial: 0.into() }
    }

    /// Returns a token for a check with these times; `None` for a missing one.
    fn token(&self, check: Check, iat: Option<i64>, nbf: Option<i64>, exp: Option<i64>) -> String {
        // No two tokens are equal, so that no result of another one is cached.
        self.serial.set(self.serial.get() + 1);
        let mut claims = json!({ "iat": iat, "nbf": nbf, "exp": exp, "n": self.serial.get() });
        let mut with = |more: Value| claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match check {
            Check::Own => with(json!({ "iss": OWN, "sub": self.alice })),
            Check::StaticKeys => with(json!({ "iss": ROBOTS, "sub": "robot" })),
            Check::ProviderPerson => with(json!({ "iss": TENANT, "aud": "client" })),
            _ => {}
        }
        match check {
            Check::Own => self.fixture.own_keys.signing().sign("at+jwt", &claims_with(claims)).unwrap(),
            Check::StaticKeys => token(&self.robots, claims),
            Check::ProviderPerson => self.tenant.token(claims),
            _ => self.fixture.upstream(claims),
        }
    }

    async fn accepts(&self, check: Check, token: &str) -> bool {
        let fixture = &self.fixture;
        let done = match check {
            Check::Trusted | Check::Own => fixture.verifier.authenticate(token).await.map(drop),
            Check::ClaimMatch => fixture.assume(token, &self.alice).await.map(drop),
            Check::StaticKeys => fixture.assume(token, &self.robot).await.map(drop),
            Check::Person => fixture.exchange(token, json!({ "aud": [API] })).await.map(drop),
            Check::ProviderPerson => fixture.exchange(token, self.tenant.request()).await.map(drop),
            Check::WhoAmI => fixture.sts.who_am_i(token).await.map(drop),
            Check::Register => fixture.sts.register(token, &Default::default()).await.map(drop),
        };
        match done {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), Code::Unauthenticated, "{check:?}: {error}");
                false
            }
        }
    }
}

/// Returns the moments at and around the ends of a window in milliseconds, whether the window contains them, and a name.
fn ends(from: Option<i64>, until: i64) -> Vec<(i64, bool, &'static str)> {
    let begin =
        from.into_iter().flat_map(|from| [(from - 1, false, "just before it begins"), (from, true, "as it begins")]);
    begin.chain([(until - 1, true, "just before it ends"), (until, false, "as it ends")]).collect()
}

#[tokio::test]
async fn the_times_of_a_token_bound_it_alone_and_together() {
    let scene = Scene::new().await;
    let clock = &scene.fixture.clock;
    for check in CHECKS {
        for iat in [None, Some(NOW), Some(NOW + 200)] {
            for nbf in [None, Some(NOW + 100)] {
                let exp = NOW + 1000;
                let from = iat.max(nbf).map(|starts| (starts - LEEWAY) * 1000);
                let until = (exp + LEEWAY) * 1000;
                let cached = scene.token(check, iat, nbf, Some(exp));
                for (moment, is_valid, when) in ends(from, until) {
                    let what = format!("{check:?} with iat {iat:?} and nbf {nbf:?}, {when}");
                    clock.set(Timestamp::from_millis(moment));
                    let fresh = scene.token(check, iat, nbf, Some(exp));
                    assert_eq!(scene.accepts(check, &fresh).await, is_valid, "{what}");
                    // The result of an earlier verification is used within the same times.
                    clock.set(at(NOW + 500));
                    assert!(scene.accepts(check, &cached).await, "{what}");
                    clock.set(Timestamp::from_millis(moment));
                    assert_eq!(scene.accepts(check, &cached).await, is_valid, "{what}, cached");
                }
                for (back, name) in [(HOUR, "an hour"), (YEAR, "a year")] {
                    clock.set(at(NOW + 500));
                    let token = scene.token(check, iat, nbf, Some(exp));
                    assert!(scene.accepts(check, &token).await);
                    clock.set(at(NOW + 500 - back));
                    // Without a time at which it begins, a token is valid until it expires.
                    let is_valid = from.is_none();
                    let what = format!("{check:?} with iat {iat:?} and nbf {nbf:?}, {name} back");
                    assert_eq!(scene.accepts(check, &token).await, is_valid, "{what}");
                }
                clock.set(at(NOW + 500));
                let endless = scene.token(check, iat, nbf, None);
                assert!(!scene.accepts(check, &endless).await, "{check:?} without exp");
            }
        }
    }
}

#[tokio::test]
async fn a_token_of_an_exchange_begins_and_ends_with_the_clock_of_this_server() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let issued = fixture.assume(&fixture.upstream(json!({ "exp": NOW + 2 * HOUR })), &alice).await.unwrap();
    let issued = issued.token.expose();
    let accepts = async |moment: i64| {
        fixture.clock.set(Timestamp::from_millis(moment));
        let is_accepted = fixture.verifier.authenticate(issued).await.is_ok();
        assert_eq!(fixture.sts.who_am_i(issued).await.is_ok(), is_accepted, "at {moment}");
        is_accepted
    };
    for (moment, is_valid, when) in ends(Some((NOW - LEEWAY) * 1000), (NOW + HOUR + LEEWAY) * 1000) {
        assert_eq!(accepts(moment).await, is_valid, "{when}");
    }
    for back in [HOUR, YEAR] {
        assert!(accepts(NOW * 1000).await && !accepts((NOW - back) * 1000).await, "{back} s back");
    }
}

#[tokio::test]
async fn an_exchange_of_a_token_of_this_server_ends_with_the_token_without_leeway() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let issued = fixture.assume(&fixture.upstream(json!({ "exp": NOW + 2 * HOUR })), &alice).await.unwrap();
    // A token is issued for whole seconds, at least one.
    for (moment, is_valid, when) in ends(Some((NOW - LEEWAY) * 1000), (NOW + HOUR) * 1000) {
        fixture.clock.set(Timestamp::from_millis(moment));
        let exchanged = fixture.exchange(issued.token.expose(), json!({ "aud": [API] })).await;
        assert_eq!(exchanged.is_ok(), is_valid, "{when}");
        if let Ok(exchanged) = exchanged {
            assert!(exchanged.expiry <= at(NOW + HOUR), "{when}");
        }
    }
}

#[tokio::test]
async fn static_keys_are_used_until_they_expire() {
    let fixture = Fixture::new().await;
    let robots = key(Algorithm::Es256);
    let mut body = static_keys(&robots, ROBOTS, "robot");
    body["staticKeys"]["expirationTime"] = json!(at(NOW + 500));
    let robot = fixture.identity(&fixture.org, body).await;
    let accepts = async |moment: i64| {
        fixture.clock.set(Timestamp::from_millis(moment));
        // Without other times than the required one.
        let token = token(&robots, json!({ "iss": ROBOTS, "sub": "robot", "iat": null, "exp": NOW + YEAR }));
        fixture.assume(&token, &robot).await.is_ok()
    };
    for (moment, is_valid, when) in ends(None, (NOW + 500) * 1000) {
        // The last second is too short for a token, which is issued in whole seconds.
        let moment = if is_valid { moment - 999 } else { moment };
        assert_eq!(accepts(moment).await, is_valid, "{when}");
    }
    for back in [HOUR, YEAR] {
        assert!(accepts((NOW - back) * 1000).await, "keys have no time at which they begin");
    }
}

#[tokio::test]
async fn a_signed_request_to_aws_is_valid_for_15_minutes_and_from_5_minutes_before() {
    let fixture = Fixture::new().await;
    let identity = caller_of_aws(&fixture).await;
    let signed = Signed::new(&identity).credential();
    let accepts = async |moment: i64| {
        fixture.clock.set(Timestamp::from_millis(moment));
        fixture.assume(&signed, &identity).await.is_ok()
    };
    for (moment, is_valid, when) in ends(Some((NOW - 300) * 1000), (NOW + 900) * 1000) {
        assert_eq!(accepts(moment).await, is_valid, "{when}");
    }
    for back in [HOUR, YEAR] {
        assert!(accepts(NOW * 1000).await && !accepts((NOW - back) * 1000).await, "{back} s back");
    }
}

#[tokio::test]
async fn a_refresh_token_is_valid_for_30_days_from_the_sign_in_however_often_it_is_used() {
    let fixture = Fixture::new().await;
    fixture.sts.register(&fixture.upstream(json!({})), &Default::default()).await.unwrap();
    let sign_in = async || {
        fixture.clock.set(at(NOW));
        let tokens = fixture.exchange(&fixture.upstream(json!({})), json!({ "aud": [API] })).await.unwrap();
        tokens.refresh_token.expose().to_owned()
    };
    let refresh = async |token: &str, moment: i64| {
        fixture.clock.set(Timestamp::from_millis(moment));
        let next = fixture.refresh(token, json!({ "aud": [API] })).await;
        next.map(|next| next.refresh_token.token.expose().to_owned()).map_err(|error| error.code())
    };
    let end = (NOW + 30 * DAY) * 1000;
    // The last second is too short for an access token.
    let next = refresh(&sign_in().await, end - 1000).await.unwrap();
    assert_eq!(refresh(&next, end).await, Err(Code::Unauthenticated));
    let last = sign_in().await;
    for moment in [end, end - DAY * 1000] {
        // Its use at the end has ended the sign-in, also for a clock that steps back.
        assert_eq!(refresh(&last, moment).await, Err(Code::Unauthenticated));
    }
    for back in [HOUR, YEAR] {
        let next = refresh(&sign_in().await, (NOW - back) * 1000).await.unwrap();
        // It ends when it would have.
        assert_eq!(refresh(&next, end).await, Err(Code::Unauthenticated), "{back} s back");
    }
}

/// A step of a sign-in in a browser, which must be taken within ten minutes after the step before.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The provider's response, with the signed state.
    Response,
    /// The confirmation of the person, with the cookie.
    Confirmation,
    /// The code, which the program redeems.
    Code,
    /// The code of a headless client.
    Headless,
}

#[tokio::test]
async fn every_step_of_a_sign_in_is_taken_within_ten_minutes_in_either_direction_of_the_clock() {
    const TEN_MINUTES: i64 = 600 * 1000;
    for step in [Step::Response, Step::Confirmation, Step::Code, Step::Headless] {
        // The times are compared in both directions, so that a step back makes nothing last longer.
        let moments = [
            (TEN_MINUTES - 1, true),
            (TEN_MINUTES, false),
            (-TEN_MINUTES + 1, true),
            (-TEN_MINUTES, false),
            (-HOUR * 1000, false),
            (-YEAR * 1000, false),
        ];
        for (after, is_valid) in moments {
            let setting = Setting::new().await;
            let clock = &setting.fixture.clock;
            // So that the id token itself is valid at each of these moments.
            let claims = json!({ "iat": null, "exp": NOW + DAY });
            let verifier = encode([7; 32]);
            let challenge = encode(Sha256::digest(&verifier));
            let (_, headless) = client();
            let query = match step {
                Step::Headless => vec![("headless_code", headless.as_str())],
                Step::Code => vec![CALLBACK, ("code_challenge", &challenge), ("code_challenge_method", "S256")],
                _ => vec![CALLBACK],
            };
            let wait = || clock.set(Timestamp::from_millis(NOW * 1000 + after));
            let is_taken = if matches!(step, Step::Response) {
                let sent = setting.begin(&query).await.unwrap();
                let code = setting.authorize(&sent, claims);
                wait();
                setting.complete(setting.response(&sent, &code), &sent.browser).await.is_ok()
            } else {
                let browser = setting.up_to_confirmation(&query, claims).await.unwrap();
                if matches!(step, Step::Confirmation) {
                    wait();
                    setting.allow(&browser).await.is_ok()
                } else {
                    let finished = setting.allow(&browser).await.unwrap();
                    wait();
                    match finished {
                        Finished::Code(_, code) => {
                            let verifier = Secret::new(verifier);
                            let redemption =
                                Redemption { code, verifier, redirect_uri: None, client: None, audiences: Vec::new() };
                            setting.fixture.sts.redeem(&redemption).await.is_ok()
                        }
                        _ => setting.headless(&headless).await.is_ok(),
                    }
                }
            };
            assert_eq!(is_taken, is_valid, "{step:?} {after} ms later");
        }
    }
}

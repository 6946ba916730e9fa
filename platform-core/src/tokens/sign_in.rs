//! The interface to browser sign-ins: the parameters of `/oauth`, and the steps of a sign-in (`docs/api.md`, Browser
//! sign-in).

mod standard;
mod target;

use std::{any::Any, fmt};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use platform_engine::request::from_query;
use serde::{Serialize, Serializer};

use self::standard::{REDIRECT_URI, RESPONSE_TYPE};

pub use self::target::{CodeChallenge, HeadlessCode, Loopback};
use super::{
    Code, Debug, Error, Field, Input, Narrow, RawToken, Result, Secret, Uid, Value, grant::RESOURCE, without_unknown,
};

/// The steps of a browser sign-in. `browser` is always the secret in the browser's cookie, which binds a sign-in
/// to the browser that began it.
#[async_trait]
pub trait SignInService: Debug + Send + Sync + 'static {
    /// Returns the public URL of this server, without a trailing slash.
    fn url(&self) -> &str;

    /// Forgets the sign-ins and headless sessions that have expired, and what was [held](Held) for them. Called before
    /// more is held for a new one.
    fn forget_expired(&self);

    /// Begins a sign-in. `held` is kept until the sign-in ends.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown identity provider, and when none is configured; UNAVAILABLE when the provider cannot be
    /// reached; RESOURCE_EXHAUSTED with too many open sign-ins.
    async fn begin(&self, request: SignIn, held: Held) -> Result<Begun>;

    /// Completes the provider's part of a sign-in: exchanges the code for the person's id token and verifies it.
    /// Returns the secret of the browser's next cookie. A response is accepted once.
    ///
    /// # Errors
    /// A failure without a target when the response does not belong to a sign-in that this browser began with this
    /// provider; otherwise a failure of the provider.
    async fn complete(&self, response: ProviderResponse, browser: &str, held: Held) -> Result<Secret, Failure>;

    /// Returns what the person is asked to confirm.
    ///
    /// # Errors
    /// UNAUTHENTICATED when this browser has no sign-in to confirm.
    async fn confirmation(&self, browser: &str) -> Result<Confirmation>;

    /// Ends a sign-in with the person's answer. If the person agrees, the tokens are issued; a headless client gets the
    /// access token by [`TokenService::headless_session`](super::TokenService::headless_session).
    ///
    /// # Errors
    /// A failure without a target for a wrong `form_token` and when this browser has no sign-in to confirm; otherwise
    /// PERMISSION_DENIED when the person refuses, NOT_FOUND when the person is not registered and must not be, and the
    /// errors of an exchange.
    async fn confirm(&self, browser: &str, form_token: &str, agrees: bool) -> Result<Finished, Failure>;

    /// Returns the tokens of a code, once, to the program that [may redeem](SignIn::is_redeemed_by) it.
    ///
    /// # Errors
    /// UNAUTHENTICATED for any other request, and 10 minutes after the person's answer; by default UNIMPLEMENTED.
    async fn redeem(&self, _request: &Redemption) -> Result<RawToken> {
        Err(Error::new(Code::Unimplemented, "This service issues no codes"))
    }

    /// Returns whether there is a verified organization of this name.
    ///
    /// # Errors
    /// Those of the store.
    async fn has_verified_organization(&self, name: &str) -> Result<bool>;
}

/// Resources that are held for a sign-in and released when it is dropped, such as a part of a memory budget.
pub type Held = Box<dyn Any + Send + Sync>;

/// The time for which a sign-in can be completed, and for which a headless session can be read: 10 minutes.
pub const SIGN_IN_SECONDS: i64 = 600;

/// The maximum length of a parameter of [`SignIn`], in bytes; our choice.
const MAX_PARAMETER: usize = 1024;

fn is_word(text: &str) -> bool {
    text.len() <= MAX_PARAMETER && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns whether a text is a `state` (RFC 6749 appendix A.5) that is not too long.
fn is_state(text: &str) -> bool {
    text.len() <= MAX_PARAMETER && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// The parameters of `GET /oauth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// Where the tokens go.
    pub target: Target,
    /// The name by which the client calls itself; empty if it has none.
    pub client: String,
    /// The identity provider that the person signs in with.
    pub provider: Provider,
    /// The identity to act as after the sign-in; `None` for the person.
    pub identity: Option<Uid>,
    /// The audiences of the token; empty for that of the API.
    pub audiences: Vec<String>,
    /// The group that the token is narrowed to, if any.
    pub narrow: Narrow,
    /// Whether the client asks for a refresh token.
    pub refresh: bool,
    /// Whether a person who is not registered is rejected instead of registered.
    pub skip_registration: bool,
    /// The code of an invite to redeem.
    pub invite: Option<Secret>,
    /// The parameters `connection` and `screen_hint`, which are passed on to the operator's provider.
    pub hints: Vec<(&'static str, String)>,
}

/// The request of a program for the tokens of its code (RFC 6749 section 4.1.3, RFC 7636 section 4.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redemption {
    /// `code`.
    pub code: Secret,
    /// `code_verifier`.
    pub verifier: Secret,
    /// `redirect_uri`.
    pub redirect_uri: Option<String>,
    /// `client_id`.
    pub client: Option<String>,
    /// The audiences that the token must have (RFC 8707 section 2.2); any, if empty.
    pub audiences: Vec<String>,
}

/// Where the tokens of a sign-in go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A program that listens on the person's machine.
    Loopback(Loopback),
    /// A program elsewhere, which holds the private key of this code.
    Headless(HeadlessCode),
}

/// The identity provider of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provider {
    /// The operator's.
    Operator,
    /// The identity provider with this uid.
    Uid(Uid),
    /// The only identity provider of the verified organization with this name.
    Organization(String),
}

impl SignIn {
    /// The parameters.
    pub const FIELDS: &'static [Field] = &[
        Field::string("exit").about("How the sign-in ends: `redirect`, the only way."),
        Field::string("redirect").about(
            "The client's callback: `http`, `localhost`, `127.0.0.1` or `[::1]`, any port, the path `/callback`. Not \
             together with `headless_code`.",
        ),
        Field::string("clientId").about("The name by which the client calls itself, which the person confirms."),
        Field::string("connection").about("Passed on to the operator's identity provider."),
        Field::string("idpId").about(
            "The uid of the identity provider to sign in by, or the name of a verified organization that has exactly \
             one; if absent, the operator's.",
        ),
        Field::string("identity")
            .documented_pattern(Uid::PATTERN)
            .about("The identity to act as; if absent, the person."),
        Field::string("audience").about("The audiences of the token, separated by commas; if absent, the API."),
        Field::bool("createRefreshToken").about("Whether the client asks for a refresh token."),
        Field::bool("skipRegistration").about("Whether a person who is not registered is rejected."),
        Field::string("invite").about("The code of an invite to redeem."),
        Field::string("screenHint").about("Passed on to the operator's identity provider."),
        Field::string("scope").documented_pattern(Uid::PATTERN).about("The group that the token is narrowed to."),
        Field::string("headlessCode")
            .about("The X25519 public key of a client without a callback, in base64url without padding."),
        Field::string("state").about("Returned to the callback, so that the client recognizes its own sign-in."),
        Field::string("codeChallenge")
            .about("The code challenge of PKCE: the callback gets a code for `/oauth/token` instead of the tokens."),
        Field::string("codeChallengeMethod").about("`S256`, the only method."),
        RESPONSE_TYPE,
        REDIRECT_URI,
        RESOURCE,
    ];

    /// Parses the parameters from a query.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with all violations: unknown and repeated parameters, and invalid values. An authorization request
    /// of OAuth 2.0 may have unknown parameters.
    pub fn read(pairs: &[(String, String)]) -> Result<Self> {
        let is_of_standard = |(name, _): &(String, String)| RESPONSE_TYPE.is_named(name) || REDIRECT_URI.is_named(name);
        let is_standard = pairs.iter().any(is_of_standard);
        let read = if is_standard {
            from_query(Self::FIELDS, &without_unknown(Self::FIELDS, pairs.to_vec())?)?
        } else {
            from_query(Self::FIELDS, pairs)?
        };
        let mut input = Input::read(Self::FIELDS, read);
        let provider = input.provider();
        let target = if is_standard { input.standard_target() } else { input.target() };
        let mut hints = Vec::new();
        for (field, name) in [("connection", "connection"), ("screenHint", "screen_hint")] {
            if let Some(hint) = input.word(field) {
                if provider != Provider::Operator {
                    input.add(name, "must not be set together with idp_id");
                }
                hints.push((name, hint));
            }
        }
        if input.text("exit").is_some_and(|exit| exit != "redirect") {
            input.add("exit", "must be redirect");
        }
        let list = input.text("audience");
        let named = list.iter().flat_map(|list| list.split(','));
        let mut audiences: Vec<_> = named.map(|audience| audience.trim().to_owned()).collect();
        audiences.extend(input.resources());
        input.check_audiences("audience", &audiences);
        let (narrow, offline) = if is_standard {
            let scope = input.scope();
            (scope.narrow, scope.offline)
        } else {
            (Narrow { scopes: input.uid("scope").into_iter().collect(), capabilities: Vec::new() }, false)
        };
        let read = Self {
            client: input.word("clientId").unwrap_or_default(),
            identity: input.uid("identity"),
            audiences,
            narrow,
            refresh: input.flag("createRefreshToken") || offline,
            skip_registration: input.flag("skipRegistration"),
            invite: input.word("invite").map(Secret::new),
            provider,
            hints,
            // Replaced only where there is a violation.
            target: target.unwrap_or_else(|| Target::Loopback(Loopback::default())),
        };
        input.none_or(read)
    }
}

impl Input {
    fn add(&mut self, field: &str, rule: &str) {
        self.0.violations.add(field, rule);
    }

    fn flag(&self, name: &str) -> bool {
        self.0.value(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns a text without spaces and control characters, so that it cannot imitate the page that shows it.
    fn word(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        if !is_word(&text) {
            self.add(name, "must be at most 1024 visible ASCII characters without spaces");
        }
        Some(text)
    }

    /// Returns `state`, which no page shows.
    fn state(&mut self) -> Option<String> {
        let state = self.text("state")?;
        if !is_state(&state) {
            self.add("state", "must be at most 1024 visible ASCII characters and spaces");
        }
        Some(state)
    }

    fn provider(&mut self) -> Provider {
        let Some(text) = self.text("idpId") else { return Provider::Operator };
        match Uid::parse(&text) {
            Ok(uid) if !uid.is_root() => Provider::Uid(uid),
            _ if (1..=MAX_PARAMETER).contains(&text.len()) => Provider::Organization(text),
            _ => {
                self.add("idp_id", "must be the uid of an identity provider or the name of an organization");
                Provider::Operator
            }
        }
    }

    fn target(&mut self) -> Option<Target> {
        let callback =
            "must be http://localhost, http://127.0.0.1 or http://[::1] with any port and the path /callback";
        let (found, field, rule) = match (self.text("redirect"), self.text("headlessCode")) {
            (Some(redirect), None) => (Loopback::parse(&redirect).map(Target::Loopback), "redirect", callback),
            (None, Some(code)) => {
                let rule = "must be an X25519 public key of 32 bytes, in base64url without padding";
                (HeadlessCode::parse(&code).map(Target::Headless), "headless_code", rule)
            }
            (None, None) => (None, "redirect", "is required, or headless_code"),
            (Some(_), Some(_)) => (None, "redirect", "must not be set together with headless_code"),
        };
        if found.is_none() {
            self.add(field, rule);
        }
        let state = self.state();
        let challenge = self.text("codeChallenge").map(|text| CodeChallenge::parse(&text));
        if challenge.as_ref().is_some_and(Option::is_none) {
            self.add("code_challenge", "must be 32 bytes in base64url without padding");
        }
        if self.text("codeChallengeMethod").is_some_and(|method| method != "S256" || challenge.is_none()) {
            self.add("code_challenge_method", "must be S256, together with code_challenge");
        }
        match found {
            Some(Target::Loopback(callback)) => Some(Target::Loopback(Loopback {
                state: state.unwrap_or_default(),
                challenge: challenge.flatten(),
                ..callback
            })),
            found => {
                for (field, is_set) in [("state", state.is_some()), ("code_challenge", challenge.is_some())] {
                    if is_set && found.is_some() {
                        self.add(field, "must not be set together with headless_code");
                    }
                }
                found
            }
        }
    }
}

/// A sign-in that was begun.
#[derive(Debug)]
pub struct Begun {
    /// The URL of the identity provider, to which the browser is redirected.
    pub url: Secret,
    /// The secret for the browser's cookie.
    pub browser: Secret,
}

/// The response of an identity provider, which the browser delivers.
#[derive(Debug, Default)]
pub struct ProviderResponse {
    /// The uid in the path of the callback; `None` for the operator's provider.
    pub provider: Option<Uid>,
    /// `state`.
    pub state: Secret,
    /// `code`.
    pub code: Option<Secret>,
    /// `iss` (RFC 9207).
    pub issuer: Option<String>,
    /// `error`.
    pub error: Option<String>,
}

/// The details that a person confirms before tokens are issued.
#[derive(Debug)]
pub struct Confirmation {
    /// The parameters of the sign-in.
    pub request: SignIn,
    /// The audiences of the token.
    pub audiences: Vec<String>,
    /// The issuer that the person signed in with.
    pub issuer: String,
    /// The uid of the person.
    pub person: Uid,
    /// The person's name or email address or, without these, the subject.
    pub name: String,
    /// Whether the person is registered already.
    pub registered: bool,
    /// The token that the form sends back.
    pub form_token: Secret,
}

/// A sign-in that has ended.
#[derive(Debug)]
pub enum Finished {
    /// The tokens for the callback.
    Tokens(Loopback, Box<RawToken>),
    /// The code for the callback, for which [`SignInService::redeem`] returns the tokens.
    Code(Loopback, Secret),
    /// The headless client can read its session.
    Headless,
}

/// A sign-in that failed: the error, and the target to which it is reported, if the failure belongs to a sign-in of
/// this browser.
#[derive(Debug)]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// The target of the sign-in.
    pub target: Option<Target>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, target: None }
    }
}

/// The token of a headless sign-in, encrypted for the key in the client's code.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadlessSession {
    /// The server's ephemeral X25519 public key: the bytes of its base64url without padding.
    #[serde(serialize_with = "as_base64")]
    pub ecdh_public_key: Vec<u8>,
    /// The nonce of 12 bytes, and the access token encrypted with AES-256-GCM under the shared X25519 secret.
    #[serde(serialize_with = "as_base64")]
    pub encrypted_idtoken: Vec<u8>,
}

impl HeadlessSession {
    /// The fields of the request for a session.
    pub const REQUEST: &'static [Field] =
        &[Field::string("code").required().about("The client's X25519 public key, in base64url without padding.")];
}

fn as_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

impl fmt::Debug for HeadlessSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadlessSession").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &[(&str, &str)]) -> Result<SignIn> {
        let pairs: Vec<_> = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        SignIn::read(&pairs)
    }

    fn fields_of(query: &[(&str, &str)]) -> Vec<String> {
        let error = read(query).unwrap_err();
        error.violations().iter().map(|violation| violation.field.clone()).collect()
    }

    const CALLBACK: (&str, &str) = ("redirect", "http://localhost:8123/callback");

    #[test]
    fn the_parameters_of_published_clients_are_read() {
        let (group, identity) = ("1".repeat(40), "2".repeat(40));
        let request = read(&[
            ("exit", "redirect"),
            ("redirect", "http://localhost:8123/callback?token=true&error=true"),
            ("client_id", "auth0"),
            ("audience", "https://a,https://b"),
            ("identity", &identity),
            ("scope", &group),
            ("create_refresh_token", "true"),
            ("skip_registration", "true"),
            ("invite", "code"),
            ("connection", "github"),
            ("screen_hint", "signup"),
        ])
        .unwrap();
        assert_eq!(request.target, Target::Loopback(Loopback::parse("http://localhost:8123/callback").unwrap()));
        assert_eq!((request.client.as_str(), &request.provider), ("auth0", &Provider::Operator));
        assert_eq!(request.audiences, ["https://a", "https://b"]);
        assert_eq!((request.identity, request.narrow.scopes), (Some(Uid::opaque(identity)), vec![Uid::opaque(group)]));
        assert!(request.refresh && request.skip_registration);
        assert_eq!(request.invite.unwrap().expose(), "code");
        assert_eq!(request.hints, [("connection", "github".to_owned()), ("screen_hint", "signup".to_owned())]);

        let request = read(&[("redirect", "http://127.0.0.1:1/callback"), ("idp_id", "example.com")]).unwrap();
        assert_eq!(request.provider, Provider::Organization("example.com".to_owned()));
        assert!(request.audiences.is_empty() && !request.refresh && !request.skip_registration);
    }

    #[test]
    fn unknown_repeated_and_invalid_parameters_are_named() {
        for (query, fields) in [
            (&[][..], &["redirect"][..]),
            (&[CALLBACK, ("nonce", "x")], &["nonce"]),
            (&[CALLBACK, CALLBACK], &["redirect"]),
            (&[("redirect", "https://evil.example/callback")], &["redirect"]),
            (&[CALLBACK, ("headless_code", "x")], &["redirect"]),
            (&[("headless_code", "x")], &["headless_code"]),
            (&[CALLBACK, ("exit", "close")], &["exit"]),
            (&[CALLBACK, ("identity", "x")], &["identity"]),
            (&[CALLBACK, ("scope", "x")], &["scope"]),
            (&[CALLBACK, ("audience", "a,,b")], &["audience"]),
            (&[CALLBACK, ("client_id", "click Allow")], &["clientId"]),
            (&[CALLBACK, ("create_refresh_token", "maybe")], &["createRefreshToken"]),
            (&[CALLBACK, ("idp_id", "acme"), ("connection", "github")], &["connection"]),
        ] {
            assert_eq!(fields_of(query), fields, "{query:?}");
        }
    }
}

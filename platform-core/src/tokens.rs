//! The interface to a token issuer: validated requests, and replies (`docs/api.md`, Token exchange).
//!
//! Transports parse requests with the types of this module and pass them to a [`TokenService`]. This crate does not
//! issue or verify tokens itself.

mod grant;
mod sign_in;

use std::fmt::Debug;

use async_trait::async_trait;
use platform_engine::{
    access::{Capabilities, Capability, CapabilitySet},
    error::{Code, Error, Result},
    fields,
    kind::Field,
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::resources::iam::role::{self, MAX_CAPABILITIES};

pub use self::{
    grant::{ACCESS_TOKEN, Grant, GrantType, without_unknown},
    sign_in::{
        Begun, CodeChallenge, Confirmation, Failure, Finished, HeadlessCode, HeadlessSession, Held, Loopback, Provider,
        ProviderResponse, Redemption, SIGN_IN_SECONDS, SignIn, SignInService, Target,
    },
};

/// The methods of the contract's services `SecurityTokenService` and `Auth`. `credential` is always the bearer token.
#[async_trait]
pub trait TokenService: Debug + Send + Sync + 'static {
    /// Rejects a credential that is malformed, without I/O. Transports call this before they read the rest of a
    /// request.
    ///
    /// # Errors
    /// UNAUTHENTICATED.
    fn check_form(&self, _credential: &str, _of: CredentialOf) -> Result<()> {
        Ok(())
    }

    /// Exchanges an upstream token for a token of this platform.
    ///
    /// # Errors
    /// UNAUTHENTICATED when the upstream token does not prove the requested identity, the same whether or not the
    /// identity exists; NOT_FOUND for a person who is not registered; INVALID_ARGUMENT; UNAVAILABLE when an
    /// issuer or AWS cannot be reached; FAILED_PRECONDITION when an issuer's documents are refused.
    async fn exchange(&self, credential: &str, request: &Exchange) -> Result<RawToken>;

    /// Exchanges a refresh token for an access token and the next refresh token. A refresh token can be used once.
    ///
    /// # Errors
    /// UNAUTHENTICATED; the reuse of a refresh token ends its sign-in, with all tokens issued for it.
    async fn refresh(&self, credential: &str, request: &Refresh) -> Result<TokenPair>;

    /// Describes a token: its identity and its capabilities.
    ///
    /// # Errors
    /// UNAUTHENTICATED.
    async fn who_am_i(&self, credential: &str) -> Result<WhoAmI>;

    /// Registers the person named by an upstream token, and redeems an invite code. If the code is rejected, the person
    /// is registered nevertheless.
    ///
    /// # Errors
    /// UNAUTHENTICATED, INVALID_ARGUMENT, ALREADY_EXISTS when the person already has the role of the invite.
    async fn register(&self, credential: &str, request: &Register) -> Result<Registration>;

    /// Deletes the calling person, whose uid must be `id`.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED for any other uid.
    async fn unregister(&self, credential: &str, id: &str) -> Result<()>;

    /// Returns the session of a headless sign-in that a person has confirmed, once. Needs no credential: only the
    /// client can decrypt the token.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a malformed code; NOT_FOUND before the sign-in is confirmed, after the session was read,
    /// and after it has expired; by default UNIMPLEMENTED.
    async fn headless_session(&self, _code: &str) -> Result<HeadlessSession> {
        Err(Error::new(Code::Unimplemented, "This service does not support browser sign-in"))
    }
}

/// The method that a credential is for, which determines its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialOf {
    /// [`TokenService::refresh`]: a refresh token.
    Refresh,
    /// Every other method: a JWT.
    Token,
}

/// The maximum number of audiences of a request; our choice.
pub const MAX_AUDIENCES: usize = 16;
/// The maximum length of an audience in bytes; our choice.
pub const MAX_AUDIENCE: usize = 512;

/// A request for a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The audiences of the new token; empty for that of the API, which only a [`Grant`] can ask for.
    pub audiences: Vec<String>,
    /// The identity to act as; `None` for the registered person named by the upstream token.
    pub identity: Option<Uid>,
    /// The organization's own identity provider that the person signed in by.
    pub identity_provider: Option<Uid>,
    /// Restrictions of the new token.
    pub narrow: Narrow,
}

/// Restrictions of a token, as requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrow {
    /// The groups, without duplicates; empty for no restriction.
    pub scopes: Vec<Uid>,
    /// The names of the capabilities, such as `repo.list`; empty for no restriction.
    pub capabilities: Vec<String>,
}

const AUDIENCES: Field = Field::strings("aud").required().about("The audiences of the new token, 1 to 16.");
const SCOPE: Field =
    Field::string("scope").documented_pattern(Uid::PATTERN).about("One more group, in addition to `scopes`.");
const CAPABILITIES: Field = Field::strings("cap")
    .about("Capabilities that the new token is narrowed to, such as `repo.list`.")
    .max_items(MAX_CAPABILITIES);
const SCOPES: Field =
    Field::strings("scopes").documented_pattern(Uid::PATTERN).about("Groups that the new token is narrowed to.");

impl Exchange {
    /// The fields of the request.
    pub const FIELDS: &'static [Field] = &[
        AUDIENCES,
        Field::string("identity")
            .documented_pattern(Uid::PATTERN)
            .about("The identity to act as; if absent, the person named by the token."),
        SCOPE,
        CAPABILITIES,
        SCOPES,
        Field::string("identityProvider")
            .documented_pattern(Uid::PATTERN)
            .about("The identity provider of an organization that the person signed in by."),
    ];

    /// Parses a request from its proto3 JSON.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with all violations.
    pub fn read(request: Map<String, Value>) -> Result<Self> {
        let mut input = Input::read(Self::FIELDS, request);
        let read = Self {
            audiences: input.audiences(),
            identity: input.uid("identity"),
            identity_provider: input.uid("identityProvider"),
            narrow: input.narrow(),
        };
        input.none_or(read)
    }
}

/// A request for the next tokens of a sign-in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refresh {
    /// The audiences of the new token; empty for those of the sign-in, which only a [`Grant`] can ask for.
    pub audiences: Vec<String>,
    /// Restrictions of the new token, in addition to those of the sign-in.
    pub narrow: Narrow,
}

impl Refresh {
    /// The fields of the request.
    pub const FIELDS: &'static [Field] = &[AUDIENCES, SCOPE, CAPABILITIES, SCOPES];

    /// Parses a request from its proto3 JSON.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with all violations.
    pub fn read(request: Map<String, Value>) -> Result<Self> {
        let mut input = Input::read(Self::FIELDS, request);
        let read = Self { audiences: input.audiences(), narrow: input.narrow() };
        input.none_or(read)
    }
}

/// A request to register.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Register {
    /// The code of an invite to redeem.
    pub code: Option<Secret>,
    /// The uid that the person expects to have.
    pub identity: Option<Uid>,
}

impl Register {
    /// The fields of the request.
    pub const FIELDS: &'static [Field] = &[
        Field::string("code").about("The code of an invite to redeem."),
        Field::string("identityId").documented_pattern(Uid::PATTERN).about("The uid that the person expects to have."),
    ];

    /// Parses a request from its proto3 JSON.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with all violations.
    pub fn read(request: Map<String, Value>) -> Result<Self> {
        let mut input = Input::read(Self::FIELDS, request);
        let read = Self { code: input.text("code").map(Secret::new), identity: input.uid("identityId") };
        input.none_or(read)
    }
}

/// A request in canonical form, with its violations.
struct Input(fields::Input);

impl Input {
    fn read(table: &'static [Field], request: Map<String, Value>) -> Self {
        Self(fields::read(table, &Capabilities::default(), request, None))
    }

    fn none_or<T>(self, read: T) -> Result<T> {
        self.0.violations.none_or(read)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.value(name).and_then(Value::as_str).map(str::to_owned)
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let list = self.0.value(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn audiences(&mut self) -> Vec<String> {
        let audiences = self.texts("aud");
        if audiences.is_empty() {
            self.0.violations.add("aud", "Audience must be specified");
        } else {
            self.check_audiences("aud", &audiences);
        }
        audiences
    }

    fn check_audiences(&mut self, field: &str, audiences: &[String]) {
        let is_valid = |audience: &String| !audience.is_empty() && audience.len() <= MAX_AUDIENCE;
        if audiences.len() > MAX_AUDIENCES || !audiences.iter().all(is_valid) {
            let rule = format!("must be at most {MAX_AUDIENCES} strings of 1 to {MAX_AUDIENCE} bytes");
            self.0.violations.add(field, rule);
        }
    }

    fn uid(&mut self, name: &str) -> Option<Uid> {
        let text = self.text(name)?;
        let uid = Uid::parse(&text);
        uid.inspect_err(|rule| self.0.violations.add(name, rule.to_string())).ok()
    }

    fn narrow(&mut self) -> Narrow {
        let mut scopes = Vec::new();
        for text in self.text("scope").into_iter().chain(self.texts("scopes")) {
            match Uid::parse(&text) {
                Ok(uid) if scopes.contains(&uid) => {}
                Ok(uid) => scopes.push(uid),
                Err(rule) => self.0.violations.add("scopes", rule.to_string()),
            }
        }
        Narrow { scopes, capabilities: self.texts("cap") }
    }
}

/// The reply of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RawToken {
    /// The access token.
    pub token: Secret,
    /// The refresh token; empty if there is none.
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub refresh_token: Secret,
    /// When the access token expires.
    pub expiry: Timestamp,
}

/// The reply of a refresh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenPair {
    /// The access token.
    pub token: Issued,
    /// The next refresh token.
    pub refresh_token: Issued,
}

/// A token and the time when it expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Issued {
    /// The token.
    pub token: Secret,
    /// When it expires.
    pub expiry: Timestamp,
}

/// The reply of a registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// The person's uid.
    pub identity: Uid,
    /// The group of the redeemed invite; empty without an invite.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
}

/// The description of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhoAmI {
    /// The token's issuer.
    pub issuer: String,
    /// The token's subject.
    pub subject: String,
    /// The token's audiences.
    pub audience: Vec<String>,
    /// When the token expires.
    pub expiry: Timestamp,
    /// When the token was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Timestamp>,
    /// The capabilities that the token has now, by group, in the order of their uids.
    pub capabilities: Vec<GroupCapabilities>,
    /// The person's email address, if the issuer has verified it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// The profile of the person, from the token's claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// The capabilities held at a group: the name of the built-in role that has exactly these capabilities, or their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupCapabilities {
    /// The group's uid.
    pub group: Uid,
    /// The name of the built-in role; empty if none has exactly these capabilities.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// The names of the capabilities; empty if a role is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<&'static str>,
}

/// The profile of a person, from a token's claims.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// The full name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The URL of a picture.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub picture: String,
    /// The given name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub given_name: String,
    /// The family name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub family_name: String,
}

impl GroupCapabilities {
    /// Returns the description of the capabilities held at a group, as a role if one has exactly these.
    pub fn new(known: &Capabilities, group: Uid, held: CapabilitySet) -> Self {
        let (role, capabilities) = match role::built_in_name(known, held) {
            Some(role) => (role.to_owned(), Vec::new()),
            None => (String::new(), known.in_set(held).map(Capability::name).collect()),
        };
        Self { group, role, capabilities }
    }
}

impl Narrow {
    /// Returns the set of the requested capabilities; `None` for no restriction.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a name that no capability has.
    pub fn capability_set(&self, known: &Capabilities) -> Result<Option<CapabilitySet>> {
        let unknown = || Error::invalid_field("cap", "must be names of capabilities, such as repo.list");
        let find = |name: &String| known.by_name(name).ok_or_else(unknown);
        let set = self.capabilities.iter().map(find).collect::<Result<CapabilitySet>>()?;
        Ok((!self.capabilities.is_empty()).then_some(set))
    }

    /// Returns the error for a narrowing that is too large to be written into a token.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, always.
    pub fn too_large<T>(&self) -> Result<T> {
        Err(Error::invalid_field("scopes", "must have fewer groups, so that the list fits into a token"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exchange(request: Value) -> Result<Exchange> {
        Exchange::read(request.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn an_exchange_reads_every_field() {
        let (group, identity) = ("1".repeat(40), "2".repeat(40));
        let provider = format!("{group}/1234567890abcdef");
        let read = exchange(json!({
            "aud": ["one", "two"],
            "identity": identity,
            "identityProvider": provider,
            "scope": group,
            "scopes": [provider],
            "cap": ["repo.list"],
        }));
        let narrow = Narrow {
            scopes: vec![Uid::opaque(group), Uid::opaque(provider.clone())],
            capabilities: vec!["repo.list".to_owned()],
        };
        let expected = Exchange {
            audiences: vec!["one".to_owned(), "two".to_owned()],
            identity: Some(Uid::opaque(identity)),
            identity_provider: Some(Uid::opaque(provider)),
            narrow,
        };
        assert_eq!(read.unwrap(), expected);
        for field in ["identity", "identityProvider", "scope"] {
            assert!(exchange(json!({ "aud": ["one"], field: "not a uid" })).is_err(), "{field}");
        }
    }

    #[test]
    fn audiences_are_1_to_16_strings_of_1_to_512_bytes() {
        let texts = |count: usize, len: usize| json!({ "aud": vec!["x".repeat(len); count] });
        for (count, len) in [(1, 1), (1, 512), (16, 1), (16, 512)] {
            assert_eq!(exchange(texts(count, len)).unwrap().audiences.len(), count);
        }
        for (count, len) in [(0, 1), (1, 0), (1, 513), (17, 1)] {
            assert!(exchange(texts(count, len)).is_err(), "{count} of {len} bytes");
        }
        assert!(exchange(json!({ "aud": ["x", ""] })).is_err());
    }
}

//! Requests to `/oauth/token` in the form of OAuth 2.0 (`docs/api.md`, OAuth clients). Each grant type is a conversion to
//! the request of a service that has another form, too.

use std::collections::HashSet;

use platform_engine::{error::Violations, kind::Type};

use super::{Exchange, Field, Input, Map, Narrow, Redemption, Refresh, Result, Secret, Uid, Value};

/// The type of an access token (RFC 8693 section 3).
pub const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The type of a JWT, which every access token of this platform is.
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// The scopes of OpenID Connect that every client may ask for. They have no effect on a token: programs get no id token,
/// and `/auth/v1/ok` describes the person.
const OPENID_SCOPES: [&str; 4] = ["openid", "email", "profile", OFFLINE_ACCESS];
/// The scope that asks a sign-in for a refresh token (OpenID Connect Core section 11).
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// More audiences.
pub(super) const RESOURCE: Field = Field::strings("resource").about("Audiences that are absolute URIs (RFC 8707).");

/// The maximum length of a credential in bytes: that of the body that it is in (`docs/api.md`, Limits).
const MAX_CREDENTIAL: usize = 16 << 10;

/// The value of `grant_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantType {
    /// The code of a browser sign-in (RFC 6749 section 4.1.3).
    AuthorizationCode,
    /// A refresh token (RFC 6749 section 6).
    RefreshToken,
    /// The exchange of an upstream token (RFC 8693).
    TokenExchange,
}

impl GrantType {
    /// All grant types.
    pub const ALL: [Self; 3] = [Self::AuthorizationCode, Self::RefreshToken, Self::TokenExchange];

    /// Returns the value of `grant_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AuthorizationCode => "authorization_code",
            Self::RefreshToken => "refresh_token",
            Self::TokenExchange => "urn:ietf:params:oauth:grant-type:token-exchange",
        }
    }

    /// Finds the grant type with a name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grant| grant.name() == name)
    }
}

/// A request for tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// For [`SignInService::redeem`](super::SignInService::redeem).
    Code(Redemption),
    /// For [`TokenService::refresh`](super::TokenService::refresh), with the refresh token.
    Refresh(Secret, Refresh),
    /// For [`TokenService::exchange`](super::TokenService::exchange), with the subject token and the type of the new
    /// token that the client asks for.
    Exchange(Secret, Exchange, &'static str),
}

impl Grant {
    /// The parameters of all grant types.
    pub const FIELDS: &'static [Field] = &[
        Field::string("grantType")
            .required()
            .about("`authorization_code`, `refresh_token` or `urn:ietf:params:oauth:grant-type:token-exchange`."),
        Field::string("code").about("The code of a sign-in."),
        Field::string("codeVerifier").about("The code verifier of PKCE."),
        Field::string("redirectUri").about("The `redirect_uri` of the authorization request."),
        Field::string("clientId").about("The `client_id` of the authorization request."),
        Field::string("refreshToken").max_len(MAX_CREDENTIAL).about("The refresh token."),
        Field::string("subjectToken").max_len(MAX_CREDENTIAL).about("The upstream token to exchange."),
        Field::string("subjectTokenType").about(
            "The type of the upstream token: `urn:ietf:params:oauth:token-type:` and `jwt`, `id_token` or \
                    `access_token`.",
        ),
        Field::string("requestedTokenType").about("The type of the new token: an `access_token`, which is a `jwt`."),
        Field::string("actorToken").about("Not supported."),
        Field::string("actorTokenType").about("Not supported."),
        Field::strings("audience").about(
            "The audiences of the new token, at most 16 with those of `resource`; if absent, those of the sign-in or \
             that of the API. With a code they must be among those of the sign-in, all of which the token has.",
        ),
        RESOURCE,
        Field::string("scope")
            .max_len(MAX_CREDENTIAL)
            .about("The groups that the new token is narrowed to, separated by spaces."),
        super::CAPABILITIES,
        Field::string("identity")
            .documented_pattern(Uid::PATTERN)
            .about("The identity to act as; if absent, the person named by the upstream token."),
        Field::string("identityProvider")
            .documented_pattern(Uid::PATTERN)
            .about("The identity provider of an organization that the person signed in by."),
    ];

    /// Parses the parameters of a grant type. Those of other grant types have no effect.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with all violations.
    pub fn read(grant: GrantType, request: Map<String, Value>) -> Result<Self> {
        let mut input = Input::read(Self::FIELDS, request);
        let read = match grant {
            GrantType::AuthorizationCode => Self::Code(Redemption {
                code: input.secret("code"),
                verifier: input.secret("codeVerifier"),
                redirect_uri: input.filled("redirectUri"),
                client: input.filled("clientId"),
                audiences: input.targets(),
            }),
            GrantType::RefreshToken => {
                let token = input.secret("refreshToken");
                Self::Refresh(token, Refresh { audiences: input.targets(), narrow: input.scope().narrow })
            }
            GrantType::TokenExchange => {
                let (token, requested) = (input.secret("subjectToken"), input.token_types());
                let request = Exchange {
                    audiences: input.targets(),
                    identity: input.uid("identity"),
                    identity_provider: input.uid("identityProvider"),
                    narrow: input.scope().narrow,
                };
                Self::Exchange(token, request, requested)
            }
        };
        input.none_or(read)
    }
}

/// Removes the parameters that OAuth 2.0 has servers ignore: those that these fields do not have, and those without a value
/// (RFC 6749 sections 3.1 and 3.2). Unlike the other endpoints, because standard clients send parameters that mean
/// nothing here.
///
/// # Errors
/// INVALID_ARGUMENT for a parameter that is specified more than once, known or not.
pub fn without_unknown(fields: &[Field], mut pairs: Vec<(String, String)>) -> Result<Vec<(String, String)>> {
    let (mut violations, mut seen) = (Violations::default(), HashSet::new());
    pairs.retain(|(name, value)| {
        let field = fields.iter().find(|field| field.is_named(name));
        let is_list = field.is_some_and(|field| matches!(field.ty, Type::List(_)));
        if !seen.insert(name.clone()) && !is_list {
            violations.add(name.as_str(), "is specified more than once");
        }
        field.is_some() && !value.is_empty()
    });
    violations.none_or(pairs)
}

/// The value of `scope`: groups, and scopes of OpenID Connect.
pub(super) struct ReadScope {
    pub(super) narrow: Narrow,
    /// Whether it has [`OFFLINE_ACCESS`].
    pub(super) offline: bool,
}

impl Input {
    /// Returns a text, and `None` for an empty one.
    fn filled(&self, name: &str) -> Option<String> {
        self.text(name).filter(|text| !text.is_empty())
    }

    /// Returns a credential, which must not be empty.
    fn secret(&mut self, name: &str) -> Secret {
        let text = self.filled(name);
        if text.is_none() && !self.0.violations.concern(name) {
            self.0.violations.add(name, "is required");
        }
        text.map(Secret::new).unwrap_or_default()
    }

    /// Reads the groups of `scope`, and the capabilities.
    pub(super) fn scope(&mut self) -> ReadScope {
        let (mut scopes, mut offline) = (Vec::new(), false);
        for word in self.text("scope").unwrap_or_default().split(' ').filter(|word| !word.is_empty()) {
            match Uid::parse(word) {
                _ if OPENID_SCOPES.contains(&word) => offline |= word == OFFLINE_ACCESS,
                Ok(uid) if scopes.contains(&uid) => {}
                Ok(uid) => scopes.push(uid),
                Err(_) => {
                    self.0.violations.add("scope", "must be uids of groups or scopes of OpenID Connect");
                    break;
                }
            }
        }
        ReadScope { narrow: Narrow { scopes, capabilities: self.texts("cap") }, offline }
    }

    /// Reads the audiences, which may be absent.
    fn targets(&mut self) -> Vec<String> {
        let mut audiences = self.texts("audience");
        audiences.extend(self.resources());
        self.check_audiences("audience", &audiences);
        audiences
    }

    /// Reads the audiences of `resource` (RFC 8707 section 2).
    pub(super) fn resources(&mut self) -> Vec<String> {
        let resources = self.texts("resource");
        let is_uri = |resource: &String| {
            let scheme = resource.split_once(':').map_or("", |(scheme, _)| scheme);
            let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            is_scheme && scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && !resource.contains('#')
        };
        if !resources.iter().all(is_uri) {
            self.0.violations.add("resource", "must be an absolute URI without a fragment");
        }
        resources
    }

    /// Checks the types of the tokens of an exchange, and returns that of the new token.
    fn token_types(&mut self) -> &'static str {
        match self.filled("subjectTokenType").as_deref() {
            Some(JWT | ID_TOKEN | ACCESS_TOKEN) => {}
            None => self.0.violations.add("subjectTokenType", "is required"),
            Some(_) => self.0.violations.add("subjectTokenType", "must be the type of a jwt, id_token or access_token"),
        }
        for name in ["actorToken", "actorTokenType"] {
            if self.filled(name).is_some() {
                self.0.violations.add(name, "must not be set: delegation is not supported");
            }
        }
        match self.filled("requestedTokenType").as_deref() {
            None | Some(ACCESS_TOKEN) => ACCESS_TOKEN,
            Some(JWT) => JWT,
            Some(_) => {
                self.0.violations.add("requestedTokenType", "must be the type of an access_token or jwt");
                ACCESS_TOKEN
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(grant: GrantType, request: Value) -> Result<Grant> {
        Grant::read(grant, request.as_object().cloned().unwrap_or_default())
    }

    fn fields_of(grant: GrantType, request: Value) -> Vec<String> {
        let error = read(grant, request).unwrap_err();
        error.violations().iter().map(|violation| violation.field.clone()).collect()
    }

    #[test]
    fn every_grant_type_is_found_by_its_name_alone() {
        for grant in GrantType::ALL {
            assert_eq!(GrantType::find(grant.name()), Some(grant));
        }
        for unknown in ["", "password", "client_credentials", "Authorization_code", "token-exchange"] {
            assert_eq!(GrantType::find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_code_is_redeemed_with_what_the_client_has_sent() {
        let request = json!({ "code": "c", "codeVerifier": "v", "redirect_uri": "http://127.0.0.1:1/", "clientId": "",
                "audience": ["a"], "resource": ["urn:b"] });
        let expected = Redemption {
            code: Secret::new("c"),
            verifier: Secret::new("v"),
            redirect_uri: Some("http://127.0.0.1:1/".to_owned()),
            client: None,
            audiences: vec!["a".to_owned(), "urn:b".to_owned()],
        };
        assert_eq!(read(GrantType::AuthorizationCode, request).unwrap(), Grant::Code(expected));
        assert_eq!(fields_of(GrantType::AuthorizationCode, json!({ "code": "" })), ["code", "codeVerifier"]);
    }

    #[test]
    fn a_refresh_keeps_the_audiences_and_groups_of_the_sign_in_unless_it_names_some() {
        let group = "1".repeat(40);
        let Grant::Refresh(token, request) = read(GrantType::RefreshToken, json!({ "refreshToken": "r" })).unwrap()
        else {
            panic!("another grant")
        };
        assert_eq!((token.expose(), request), ("r", Refresh::default()));
        let scope = format!("openid {group} offline_access {group}");
        let request = json!({ "refreshToken": "r", "scope": scope, "audience": ["a"], "resource": ["urn:b"] });
        let Grant::Refresh(_, request) = read(GrantType::RefreshToken, request).unwrap() else {
            panic!("another grant")
        };
        assert_eq!(request.audiences, ["a", "urn:b"]);
        assert_eq!(request.narrow.scopes, [Uid::opaque(group)]);
        assert_eq!(fields_of(GrantType::RefreshToken, json!({ "subjectToken": "s" })), ["refreshToken"]);
    }

    #[test]
    fn an_exchange_names_the_types_of_its_tokens_and_supports_no_actor() {
        let exchange = |more: Value| {
            let mut request = json!({ "subjectToken": "s", "subjectTokenType": JWT });
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            request
        };
        let identity = "2".repeat(40);
        let request = exchange(json!({ "identity": identity, "cap": ["repo.list"], "requestedTokenType": JWT }));
        let Grant::Exchange(token, request, issued) = read(GrantType::TokenExchange, request).unwrap() else {
            panic!("another grant")
        };
        assert_eq!((token.expose(), issued), ("s", JWT));
        assert_eq!((request.identity, request.audiences), (Some(Uid::opaque(identity)), Vec::<String>::new()));
        assert_eq!(request.narrow.capabilities, ["repo.list"]);
        for (more, field) in [
            (json!({ "subjectTokenType": "urn:ietf:params:oauth:token-type:saml2" }), "subjectTokenType"),
            (json!({ "subjectTokenType": "urn:ietf:params:oauth:token-type:refresh_token" }), "subjectTokenType"),
            (json!({ "subjectTokenType": "" }), "subjectTokenType"),
            (json!({ "requestedTokenType": "urn:ietf:params:oauth:token-type:refresh_token" }), "requestedTokenType"),
            (json!({ "actorToken": "a" }), "actorToken"),
            (json!({ "resource": ["/path"] }), "resource"),
            (json!({ "resource": ["https://a/#b"] }), "resource"),
            (json!({ "resource": [":a"] }), "resource"),
            (json!({ "audience": vec!["a"; 10], "resource": vec!["b:"; 7] }), "audience"),
            (json!({ "audience": ["a".repeat(513)] }), "audience"),
            (json!({ "scope": "repo:read x" }), "scope"),
            (json!({ "identity": "x" }), "identity"),
            (json!({ "subjectToken": 1 }), "subjectToken"),
        ] {
            assert_eq!(fields_of(GrantType::TokenExchange, exchange(more.clone())), [field], "{more}");
        }
        assert!(read(GrantType::TokenExchange, exchange(json!({ "subjectToken": "a".repeat(16 << 10) }))).is_ok());
        let all = fields_of(GrantType::TokenExchange, json!({}));
        assert_eq!(all, ["subjectToken", "subjectTokenType"]);
    }

    #[test]
    fn unknown_parameters_are_ignored_and_repeated_ones_are_not() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let sent = vec![pair("client_secret", "s"), pair("code", "c"), pair("x", ""), pair("redirect_uri", "")];
        assert_eq!(without_unknown(Grant::FIELDS, sent).unwrap(), [pair("code", "c")]);
        for name in ["x", "code"] {
            assert!(without_unknown(Grant::FIELDS, vec![pair(name, "1"), pair(name, "")]).is_err(), "{name}");
        }
        let audiences = vec![pair("audience", "a"), pair("audience", "b")];
        assert_eq!(without_unknown(Grant::FIELDS, audiences.clone()).unwrap(), audiences);
    }
}

//! The server as a relying party: the authorization request, the exchange of the code, and the checks of the id token
//! (OpenID Connect Core section 3.1, with PKCE by RFC 7636).

use std::sync::Arc;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use http::{
    HeaderValue, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use platform_core::{iam::Iam, resources::iam::normalize_issuer, tokens::Provider};
use platform_engine::{
    error::{Code, Error, Result},
    seal::Secret,
    uid::Uid,
};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    claims::Claims,
    discovery::{self, Endpoints, TrustedIssuer},
    error::TokenError,
    fetch_limits::FetchPermit,
    jws::MAX_TOKEN,
    sts::{Sts, not_authorized, token_error},
};

/// The maximum length of a token endpoint's answer, in bytes; our choice.
const MAX_ANSWER: usize = 64 * 1024;

/// The members of a token endpoint's answer that are read. A repeated one is an error; others are ignored, repeated or
/// not (RFC 6749 section 5.1).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    id_token: Value,
    access_token: Value,
    error: Value,
}

/// This server as the client of a provider.
pub(super) struct Party {
    /// The uid of an organization's provider; `None` for the operator's.
    pub(super) uid: Option<Uid>,
    pub(super) issuer: TrustedIssuer,
    pub(super) endpoints: Arc<Endpoints>,
    /// Whether the operator trusts the issuer, so that requests to it have no limits.
    trusted: bool,
    client_id: String,
    client_secret: Option<Secret>,
    /// The scopes in addition to `openid`, `email` and `profile`.
    scopes: Vec<String>,
    /// The claim with the groups; empty if there is none.
    pub(super) groups_claim: String,
}

/// The tokens that a provider gives for a code.
pub(super) struct Redeemed {
    pub(super) id_token: Secret,
    pub(super) access_token: Option<Secret>,
}

impl Sts {
    /// Returns this server as the client of the chosen provider.
    ///
    /// # Errors
    /// NOT_FOUND, UNAVAILABLE when the provider cannot be reached, RESOURCE_EXHAUSTED.
    pub(super) async fn party(&self, choice: &Provider) -> Result<Party> {
        let iam = Iam::of(&self.platform);
        let uid = match choice {
            Provider::Operator => return self.operator_party().await,
            Provider::Uid(uid) => Some(uid.clone()),
            Provider::Organization(name) => match iam.verified_organization(name).await? {
                Some(organization) => iam.only_identity_provider(&organization).await?.map(|provider| provider.uid),
                None => None,
            },
        };
        let uid = uid.ok_or_else(no_provider)?;
        let (provider, client_secret) = iam.provider_and_secret(&uid).await?.ok_or_else(no_provider)?;
        // This server's own tokens are not id tokens, so it cannot be the issuer of a provider.
        let oidc = provider.oidc.filter(|oidc| oidc.issuer != self.issuer.url()).ok_or_else(no_provider)?;
        let (issuer, endpoints, trusted) = match self.verifier.trusted(&oidc.issuer) {
            Some(trusted) => (trusted.clone(), operator_endpoints(trusted).await?, true),
            None => {
                let found = self.issuers.endpoints(provider.uid.root(), &oidc.issuer).await;
                let (issuer, endpoints) = found.map_err(token_error)?;
                (issuer, endpoints, false)
            }
        };
        let (uid, client_id) = (Some(provider.uid), oidc.client_id);
        let (scopes, groups_claim) = (oidc.additional_scopes, oidc.groups_claim);
        Ok(Party { uid, issuer, endpoints, trusted, client_id, client_secret, scopes, groups_claim })
    }

    async fn operator_party(&self) -> Result<Party> {
        let none = || {
            let why = "No identity provider is configured for this sign-in. The operator can configure one with \
                       --sign-in-issuer; a program can name an organization's own by idp_id";
            Error::new(Code::NotFound, why)
        };
        let provider = self.sign_in_provider.as_ref().ok_or_else(none)?;
        let issuer = self.verifier.trusted(&provider.issuer).ok_or_else(none)?.clone();
        Ok(Party {
            uid: None,
            endpoints: operator_endpoints(&issuer).await?,
            issuer,
            trusted: true,
            client_id: provider.client_id.clone(),
            client_secret: provider.client_secret.clone(),
            scopes: Vec::new(),
            groups_claim: String::new(),
        })
    }

    /// Returns this server as the client of the provider that a sign-in was begun with.
    ///
    /// # Errors
    /// UNAUTHENTICATED when the provider now has another issuer, and as [`Sts::party`].
    pub(super) async fn same_party(&self, provider: Option<&Uid>, issuer: &str) -> Result<Party> {
        let party = self.party(&chosen(provider)).await?;
        if party.issuer.url() == issuer { Ok(party) } else { Err(not_authorized()) }
    }

    /// Returns a permit to send a request of a sign-in to this URL of the provider.
    pub(super) fn permit(&self, party: &Party, url: &str) -> Result<FetchPermit, TokenError> {
        match &party.uid {
            Some(uid) if !party.trusted => self.issuers.acquire(uid.root(), url),
            _ => Ok(FetchPermit::Operator),
        }
    }

    /// Exchanges a code for the tokens.
    pub(super) async fn exchange_code(&self, party: &Party, code: &Secret, verifier: &Secret) -> Result<Redeemed> {
        let url = party.endpoints.token.as_deref().ok_or_else(|| token_error(discovery::no_token_endpoint()))?;
        let request = party.token_request(self.issuer.url(), url, code, verifier)?;
        let permit = self.permit(party, url).map_err(token_error)?;
        let answer = party.issuer.send(permit, request, MAX_ANSWER).await.map_err(token_error)?;
        let body: Answer = serde_json::from_slice(answer.body()).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match (answer.status(), text(&body.id_token)) {
            (StatusCode::OK, Some(id_token)) => {
                let access_token = text(&body.access_token).filter(|token| token.len() <= MAX_TOKEN).map(Secret::new);
                Ok(Redeemed { id_token: Secret::new(id_token), access_token })
            }
            (status, _) => {
                let code = text(&body.error);
                let error = code.as_deref().map(shown).unwrap_or_default();
                // Tenants can configure any number of broken providers; warnings are for problems of the operator's.
                match party.uid {
                    None => tracing::warn!(%status, error, "the identity provider rejects the exchange of a code"),
                    Some(_) => tracing::debug!(%status, error, "an identity provider rejects the exchange of a code"),
                }
                let why = code.as_deref().unwrap_or("no id token");
                let is_passing = status.is_server_error() || PASSING_STATUS.contains(&status);
                Err(if is_passing { postponed(why) } else { refusal(why) })
            }
        }
    }
}

async fn operator_endpoints(issuer: &TrustedIssuer) -> Result<Arc<Endpoints>> {
    issuer.endpoints(&|| Ok(FetchPermit::Operator)).await.map_err(token_error)
}

impl Party {
    /// Returns this server's callback for the provider. Each provider has its own, so that a provider cannot present
    /// the code of another one as its own.
    fn redirect_uri(&self, url: &str) -> String {
        match &self.uid {
            Some(uid) => format!("{url}/oauth/callback/{uid}"),
            None => format!("{url}/oauth/callback"),
        }
    }

    /// Returns the URL of the authorization request.
    pub(super) fn authorization_url(
        &self,
        url: &str,
        hints: &[(&'static str, String)],
        state: &Secret,
        nonce: &Secret,
        verifier: &Secret,
    ) -> Result<String> {
        let none = || Error::new(Code::NotFound, "The identity provider does not support browser sign-in");
        let endpoint = self.endpoints.authorization.as_deref().ok_or_else(none)?;
        let scopes: Vec<&str> =
            ["openid", "email", "profile"].into_iter().chain(self.scopes.iter().map(String::as_str)).collect();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose()));
        let mut query = Serializer::new(String::new());
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", &self.redirect_uri(url))
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", state.expose())
            .append_pair("nonce", nonce.expose())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .extend_pairs(hints);
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{separator}{}", query.finish()))
    }

    /// Returns the request that exchanges a code at this endpoint.
    fn token_request(&self, own_url: &str, endpoint: &str, code: &Secret, verifier: &Secret) -> Result<Request<Bytes>> {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code.expose())
            .append_pair("redirect_uri", &self.redirect_uri(own_url))
            .append_pair("code_verifier", verifier.expose());
        let mut request = Request::post(endpoint)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match &self.client_secret {
            Some(secret) if !self.endpoints.secret_in_body => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(&self.client_id), encoded(secret.expose()));
                let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)));
                let mut value = value.map_err(Error::internal)?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            Some(secret) => {
                form.append_pair("client_id", &self.client_id).append_pair("client_secret", secret.expose());
            }
            None => drop(form.append_pair("client_id", &self.client_id)),
        }
        request.body(Bytes::from(form.finish())).map_err(Error::internal)
    }

    /// Checks that an id token is for this client and for this sign-in (OpenID Connect Core section 3.1.3.7).
    pub(super) fn check_claims(&self, claims: &Claims, nonce: &Secret) -> Result<()> {
        let is_nonce = |found: &str| bool::from(found.as_bytes().ct_eq(nonce.expose().as_bytes()));
        let authorized = claims.all.get("azp");
        // Without `azp`, several audiences are accepted: the nonce and the code are of this sign-in, so that a token for
        // another client cannot be replayed here.
        let is_for_us = claims.audiences.contains(&self.client_id)
            && authorized.is_none_or(|authorized| authorized.as_str() == Some(&self.client_id));
        let is_valid = normalize_issuer(&claims.issuer) == self.issuer.url()
            && is_for_us
            && claims.all.get("nonce").and_then(Value::as_str).is_some_and(is_nonce);
        if is_valid { Ok(()) } else { Err(refusal("the id token is for another sign-in")) }
    }
}

/// Returns the choice that leads to a provider again.
fn chosen(provider: Option<&Uid>) -> Provider {
    provider.cloned().map_or(Provider::Operator, Provider::Uid)
}

/// Returns the error for a sign-in whose identity provider does not exist.
fn no_provider() -> Error {
    Error::new(Code::NotFound, "There is no such identity provider to sign in by")
}

/// The errors of a provider after which another sign-in may succeed (RFC 6749 section 4.1.2.1).
const PASSING: [&str; 2] = ["server_error", "temporarily_unavailable"];
/// The statuses of the client after which another sign-in may succeed.
const PASSING_STATUS: [StatusCode; 3] =
    [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];

/// Returns the error for a provider that cannot complete a sign-in for now.
fn postponed(why: &str) -> Error {
    let why = shown(why);
    Error::new(
        Code::Unavailable,
        format!("The identity provider cannot complete the sign-in now: {why}. Sign in again"),
    )
}

/// Returns the error for a provider that refuses a sign-in, or cannot complete it for now.
pub(super) fn refusal(why: &str) -> Error {
    if PASSING.contains(&why) {
        return postponed(why);
    }
    Error::unauthenticated(format!("The identity provider refused the sign-in: {}", shown(why)))
}

/// Returns an error code of a provider as far as it is safe to show: at most 64 letters, digits, spaces and `_`.
fn shown(code: &str) -> String {
    let is_plain = |found: &char| found.is_ascii_alphanumeric() || " _".contains(*found);
    code.chars().filter(is_plain).take(64).collect()
}

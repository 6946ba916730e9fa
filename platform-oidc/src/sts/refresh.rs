//! Refresh tokens: single-use secrets that keep a person signed in.
//!
//! A refresh token is JSON in standard base64, from which clients read `exp`. It is authenticated by two secrets: one
//! for the whole sign-in (the token family) and one for the latest token alone. A token that has the family's secret
//! and an old secret was used before, which ends the sign-in; a forged token has no effect.

use base64::{Engine, engine::general_purpose::STANDARD};
use platform_core::{
    iam::Iam,
    resources::iam::NewSignIn,
    tokens::{Issued, Refresh, TokenPair},
};
use platform_engine::{
    access::{ActsAs, Caller, Credential, RegistrationId, Session},
    error::{Error, Result},
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{SIGN_IN_TTL, Sts, grant::Grant, private, proof::Proof};
use crate::{json, jws::MAX_TOKEN};

/// The length of each secret, in random bytes.
const SECRET_LEN: usize = 32;

/// The secrets of a refresh token, and the sign-in that they belong to.
struct Token {
    sign_in: Uid,
    family: [u8; SECRET_LEN],
    secret: [u8; SECRET_LEN],
}

/// The stored state of a sign-in, from which access tokens are issued. Its JSON names are the storage format.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct State {
    act: Value,
    #[serde(rename = "about")]
    profile: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Session>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationId>,
    /// How often the person's tokens had been revoked when the sign-in began.
    #[serde(skip_serializing_if = "is_zero")]
    generation: u64,
    /// When the token was issued with which the sign-in began, in seconds, if that was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The single error for every invalid refresh token.
fn invalid_token() -> Error {
    Error::unauthenticated("The refresh token is not valid")
}

/// Rejects a credential that does not have the form of a refresh token.
pub(super) fn check_form(credential: &str) -> Result<()> {
    Token::parse(credential).map(drop).ok_or_else(invalid_token)
}

impl Sts {
    /// Starts a sign-in and returns its first refresh token.
    pub(super) async fn start_sign_in(&self, proof: &Proof, audiences: &[String], grant: &Grant) -> Result<Secret> {
        let lifetime = i64::try_from(SIGN_IN_TTL.as_millis()).unwrap_or(i64::MAX);
        let expire_time = self.clock.now().plus_millis(lifetime);
        let session = proof.caller.session.as_deref().cloned();
        let Grant { narrowing: cap, registration, generation, since, .. } = grant;
        let (act, profile) = (proof.act.clone(), proof.profile.clone());
        let (cap, registration) = (cap.clone(), *registration);
        let state = State { act, profile, session, cap, registration, generation: *generation, since: *since };
        let (family, secret) = (self.random_secret(), self.random_secret());
        let new_sign_in = NewSignIn {
            identity: &proof.caller.identity,
            issuer: proof.act.get("iss").and_then(Value::as_str).unwrap_or_default(),
            audiences,
            expire_time,
            family: &family,
            token: &secret,
            state: serde_json::to_value(state).map_err(Error::internal)?,
        };
        let sign_in = Iam::of(&self.platform).begin_sign_in(new_sign_in).await?.uid;
        Ok(self.encode(&Token { sign_in, family, secret }, audiences, expire_time))
    }

    /// Exchanges a refresh token for an access token and the next refresh token.
    pub(super) async fn refresh_tokens(&self, credential: &str, request: &Refresh) -> Result<TokenPair> {
        request.narrow.capability_set(self.platform.capabilities())?;
        let token = Token::parse(credential).ok_or_else(invalid_token)?;
        let presented = Iam::of(&self.platform).present_sign_in(&token.sign_in, &token.family, &token.secret).await?;
        let sign_in = &presented.sign_in;
        let audiences = if request.audiences.is_empty() { &sign_in.audiences } else { &request.audiences };
        if !audiences.iter().all(|audience| sign_in.audiences.contains(audience)) {
            return Err(Error::invalid_field("aud", "must contain only audiences of the sign-in"));
        }
        let state: State = serde_json::from_value(presented.state.clone()).map_err(Error::internal)?;
        // For a person of an organization's provider, resolving the grants checks the provider and the directory. For
        // any other person, the operator must still trust the issuer.
        if state.session.is_none() && self.verifier.trusted(&sign_in.issuer).is_none() {
            return Err(invalid_token());
        }
        let narrowing = state.cap.as_ref().map(private::decode_cap).transpose().map_err(Error::internal)?;
        let signed_in = sign_in.create_time.unwrap_or(Timestamp::MIN);
        let acts_as = state.registration.map_or(ActsAs::AsOf(signed_in), ActsAs::Registration);
        // A revocation of all tokens ends the sign-in too, and one by time ends those that began before.
        let issued = state.since.map_or(signed_in, |since| Timestamp::from_millis(since.saturating_mul(1000)));
        let credential = Credential { id: None, issued, generation: Some(state.generation) };
        let mut caller = Caller::new(presented.identity.clone()).acting_as(acts_as).with_credential(credential);
        caller.narrowing = narrowing.map(Into::into);
        caller.session = state.session.map(Into::into);
        let identity = Iam::of(&self.platform).identity(&caller.identity).await?.ok_or_else(invalid_token)?;
        let expires = sign_in.expire_time;
        let proof = Proof { caller, identity, act: state.act, profile: state.profile, expires, refreshable: true };
        let grant = self.grant(&proof, audiences, &request.narrow).await?;

        // Renewed last, so that a request that fails earlier does not use up the refresh token. Of concurrent requests
        // with one token at most one succeeds here.
        let next = Token { secret: self.random_secret(), ..token };
        Iam::of(&self.platform).renew_sign_in(&presented, &next.family, &next.secret).await?;
        if let Err(error) = Iam::of(&self.platform).record_last_seen(&proof.identity).await {
            tracing::warn!(%error, "cannot record when an identity was last seen");
        }
        let refresh_expiry = expires.unwrap_or(Timestamp::MIN);
        Ok(TokenPair {
            token: Issued { token: Secret::new(grant.token.token), expiry: grant.token.expires },
            refresh_token: Issued {
                token: self.encode(&next, &sign_in.audiences, refresh_expiry),
                expiry: refresh_expiry,
            },
        })
    }

    fn random_secret(&self) -> [u8; SECRET_LEN] {
        let mut secret = [0; SECRET_LEN];
        self.platform.entropy().fill(&mut secret);
        secret
    }

    fn encode(&self, token: &Token, audiences: &[String], expires: Timestamp) -> Secret {
        let json = json!({
            "iss": self.issuer.url(),
            "sub": token.sign_in.parent(),
            "aud": audiences,
            "iat": self.clock.now().seconds(),
            "exp": expires.seconds(),
            "sid": token.sign_in,
            "fam": hex::encode(token.family),
            "key": hex::encode(token.secret),
        });
        Secret::new(STANDARD.encode(json.to_string()))
    }
}

impl Token {
    fn parse(credential: &str) -> Option<Self> {
        let bytes = STANDARD.decode(credential).ok().filter(|_| credential.len() <= MAX_TOKEN)?;
        let claims = json::object(&bytes)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let secret = |name: &str| hex::decode(text(name)?).ok()?.try_into().ok();
        let sign_in = Uid::parse(text("sid")?).ok().filter(|uid| !uid.is_root())?;
        Some(Self { sign_in, family: secret("fam")?, secret: secret("key")? })
    }
}

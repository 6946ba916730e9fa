//! Refresh tokens: secrets that keep a person signed in, each good once.
//!
//! What clients see is JSON in standard base64, of which they read `exp`; what makes it good are two secrets, one that
//! all tokens of a sign-in share and one of the latest alone. So a token that was used up is known for what it is, and
//! ends the sign-in, while one that was made up is known for nothing.

use base64::{Engine, engine::general_purpose::STANDARD};
use platform_core::{
    access::{ActsAs, Caller, RegistrationId, Session},
    error::{Error, Result},
    iam::Iam,
    resources::iam::NewSignIn,
    seal::Secret,
    timestamp::Timestamp,
    tokens::{Issued, Refresh, TokenPair},
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{SIGN_IN_TTL, Sts, grant::Grant, private, proof::Proof};
use crate::{json, jws::MAX_TOKEN};

/// How many random bytes each secret has.
const SECRET: usize = 32;

/// What a refresh token says. Its order is that in which it is written.
struct Token {
    sign_in: Uid,
    family: [u8; SECRET],
    secret: [u8; SECRET],
}

/// What is remembered of a sign-in, to issue its access tokens by.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct State {
    act: Value,
    about: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Session>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationId>,
}

/// One answer for whatever is no refresh token.
fn refused() -> Error {
    Error::unauthenticated("The refresh token is not valid")
}

/// Refuses what is not a refresh token by its form.
pub(super) fn check_form(credential: &str) -> Result<()> {
    Token::read(credential).map(drop).ok_or_else(refused)
}

impl Sts {
    /// Begins a sign-in and returns its first refresh token.
    pub(super) async fn begin(&self, proof: &Proof, audiences: &[String], grant: &Grant) -> Result<Secret> {
        let life = i64::try_from(SIGN_IN_TTL.as_millis()).unwrap_or(i64::MAX);
        let expire_time = self.clock.now().plus_millis(life);
        let session = proof.caller.session.as_deref().cloned();
        let (cap, registration) = (grant.narrowing.clone(), grant.registration);
        let state = State { act: proof.act.clone(), about: proof.about.clone(), session, cap, registration };
        let (family, secret) = (self.draw(), self.draw());
        let begun = NewSignIn {
            identity: &proof.caller.identity,
            issuer: proof.act.get("iss").and_then(Value::as_str).unwrap_or_default(),
            audiences,
            expire_time,
            family: &family,
            token: &secret,
            state: serde_json::to_value(state).map_err(Error::internal)?,
        };
        let sign_in = Iam::of(&self.platform).begin_sign_in(begun).await?.uid;
        Ok(self.written(&Token { sign_in, family, secret }, audiences, expire_time))
    }

    /// Exchanges a refresh token for an access token and the next refresh token.
    pub(super) async fn refreshed(&self, credential: &str, request: &Refresh) -> Result<TokenPair> {
        let token = Token::read(credential).ok_or_else(refused)?;
        let presented = Iam::of(&self.platform).present_sign_in(&token.sign_in, &token.family, &token.secret).await?;
        let sign_in = &presented.sign_in;
        if !request.audiences.iter().all(|audience| sign_in.audiences.contains(audience)) {
            return Err(Error::invalid_field("aud", "must be among the audiences that the sign-in was for"));
        }
        let state: State = serde_json::from_value(presented.state.clone()).map_err(Error::internal)?;
        // A person of an organisation's provider is looked at with their grants; for any other the operator vouches.
        if state.session.is_none() && self.verifier.trusted(&sign_in.issuer).is_none() {
            return Err(refused());
        }
        let narrowing = state.cap.as_ref().map(private::narrowing).transpose().map_err(Error::internal)?;
        let signed_in = sign_in.create_time.unwrap_or(Timestamp::MIN);
        let acts_as = state.registration.map_or(ActsAs::AsOf(signed_in), ActsAs::Registration);
        let mut caller = Caller::new(presented.identity.clone()).acting_as(acts_as);
        caller.narrowing = narrowing.map(Into::into);
        caller.session = state.session.map(Into::into);
        let identity = Iam::of(&self.platform).identity(&caller.identity).await?.ok_or_else(refused)?;
        let until = sign_in.expire_time;
        let proof = Proof { caller, identity, act: state.act, about: state.about, until, refreshable: true };
        let grant = self.grant(&proof, &request.audiences, &request.narrow).await?;

        let next = Token { secret: self.draw(), ..token };
        Iam::of(&self.platform).renew_sign_in(&presented, &next.family, &next.secret).await?;
        if let Err(error) = Iam::of(&self.platform).saw(&proof.identity).await {
            tracing::warn!(%error, "cannot note when an identity was last seen");
        }
        let expires = until.unwrap_or(Timestamp::MIN);
        Ok(TokenPair {
            token: Issued { token: Secret::new(grant.token.token), expiry: grant.token.expires },
            refresh_token: Issued { token: self.written(&next, &sign_in.audiences, expires), expiry: expires },
        })
    }

    fn draw(&self) -> [u8; SECRET] {
        let mut secret = [0; SECRET];
        self.platform.entropy().fill(&mut secret);
        secret
    }

    fn written(&self, token: &Token, audiences: &[String], expires: Timestamp) -> Secret {
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
    fn read(credential: &str) -> Option<Self> {
        let bytes = STANDARD.decode(credential).ok().filter(|_| credential.len() <= MAX_TOKEN)?;
        let claims = json::object(&bytes)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let secret = |name: &str| hex::decode(text(name)?).ok()?.try_into().ok();
        let sign_in = Uid::parse(text("sid")?).ok().filter(|uid| !uid.is_root())?;
        Some(Self { sign_in, family: secret("fam")?, secret: secret("key")? })
    }
}

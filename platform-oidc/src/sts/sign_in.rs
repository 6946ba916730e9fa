//! Browser sign-ins: this server is the relying party of an identity provider, and the person confirms before it
//! issues tokens to a program (`docs/api.md`, Browser sign-in).
//!
//! A sign-in has three steps. `begin` redirects the browser to the provider; `complete` exchanges the provider's code
//! for an id token and verifies it; `confirm` issues the tokens. Each step ends the previous one and gives the browser
//! another cookie, so a step can be taken once, and only by the browser that took the step before.

mod headless;
mod relying_party;
mod user_info;

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::{
    iam::{Iam, Person},
    resources::iam::{Identity, person_uid, provider_person_uid},
    tokens::{
        Begun, Confirmation, Exchange, Failure, Finished, HeadlessCode, HeadlessSession, Held, Narrow,
        ProviderResponse, RawToken, Redemption, SignIn, SignInService, Target, TokenService,
    },
};
use platform_engine::{
    access::{Caller, Credential},
    error::{Code, Error, Result},
    kind::Resource,
    seal::Secret,
    uid::Uid,
};
use serde_json::Value;
use subtle::ConstantTimeEq;

use self::relying_party::{Party, Redeemed};
use super::{
    Sts, not_authorized,
    pending::{Confirmable, Sent},
    proof::{Proof, act, name, profile},
    token_error,
};
use crate::{claims::Claims, json, jws::Jws, verifier::check_typ};

/// Returns the error when a browser has no sign-in at this step, the same for every reason.
fn no_sign_in() -> Error {
    Error::unauthenticated(
        "This browser has no such sign-in: it was completed, has expired, or was begun in another browser or at another \
         address of this server. Start again from the program",
    )
}

#[async_trait]
impl SignInService for Sts {
    fn url(&self) -> &str {
        self.issuer.url()
    }

    fn forget_expired(&self) {
        self.sign_ins.forget_expired(self.clock.now());
    }

    async fn begin(&self, request: SignIn, held: Held) -> Result<Begun> {
        let party = self.party(&request.provider).await?;
        let (state, nonce, browser) = (self.random_text(), self.random_text(), self.random_text());
        let verifier = self.random_text();
        let url = party.authorization_url(self.issuer.url(), &request.hints, &state, &nonce, &verifier)?;
        let (provider, issuer) = (party.uid, party.issuer.url().to_owned());
        let sent = Sent { request, provider, issuer, nonce, verifier, browser: browser.clone(), held };
        self.sign_ins.begin(self.clock.now(), &state, sent)?;
        Ok(Begun { url: Secret::new(url), browser })
    }

    async fn complete(&self, response: ProviderResponse, browser: &str, held: Held) -> Result<Secret, Failure> {
        let sent = self.sign_ins.take_sent(self.clock.now(), response.state.expose(), browser);
        let sent = sent.ok_or_else(no_sign_in)?;
        // A code that another provider issued must not be sent to this one (RFC 9207, RFC 9700 section 4.4).
        let is_of = |issuer: &String| *issuer == sent.issuer;
        if response.provider != sent.provider || response.issuer.as_ref().is_some_and(|issuer| !is_of(issuer)) {
            return Err(Error::unauthenticated("The response is of another identity provider").into());
        }
        let target = sent.request.target.clone();
        let completed = self.complete_sent(sent, response, held).await;
        completed.map_err(|error| Failure { error, target: Some(target) })
    }

    async fn confirmation(&self, browser: &str) -> Result<Confirmation> {
        let shown = |open: &Confirmable| Confirmation {
            request: open.request.clone(),
            audiences: self.audiences_or_default(&open.request.audiences),
            issuer: open.issuer.clone(),
            person: open.person.clone(),
            name: open.name.clone(),
            registered: open.registered,
            form_token: open.form_token.clone(),
        };
        self.sign_ins.confirmable(self.clock.now(), browser, shown).ok_or_else(no_sign_in)
    }

    async fn confirm(&self, browser: &str, form_token: &str, agrees: bool) -> Result<Finished, Failure> {
        let is_of_form = |open: &Confirmable| open.form_token.expose().as_bytes().ct_eq(form_token.as_bytes()).into();
        let open = self.sign_ins.take_confirmable(self.clock.now(), browser, is_of_form);
        let open = open.ok_or_else(no_sign_in)?;
        let target = open.request.target.clone();
        let refused = || Error::new(Code::PermissionDenied, "The person refused the sign-in");
        let finished = if agrees { self.finish(open).await } else { Err(refused()) };
        finished.map_err(|error| Failure { error, target: Some(target) })
    }

    async fn redeem(&self, request: &Redemption) -> Result<RawToken> {
        let audiences = |named: &[String]| self.audiences_or_default(named);
        let tokens = self.sign_ins.redeem(self.clock.now(), request, audiences)?;
        tokens.ok_or_else(|| {
            let message = "There are no tokens for this code, verifier, client and redirect URI: not yet, or no longer";
            Error::unauthenticated(message)
        })
    }

    async fn has_verified_organization(&self, name: &str) -> Result<bool> {
        Ok(Iam::of(&self.platform).verified_organization(name).await?.is_some())
    }
}

impl Sts {
    /// Exchanges the code, verifies the id token, and stores both until the person confirms.
    async fn complete_sent(&self, sent: Sent, response: ProviderResponse, held: Held) -> Result<Secret> {
        if let Some(error) = &response.error {
            return Err(relying_party::refusal(error));
        }
        let code = response.code.ok_or_else(|| relying_party::refusal("no code"))?;
        let party = self.same_party(sent.provider.as_ref(), &sent.issuer).await?;
        if party.endpoints.iss_in_response && response.issuer.is_none() {
            return Err(relying_party::refusal("no iss"));
        }
        let Redeemed { id_token, access_token } = self.exchange_code(&party, &code, &sent.verifier).await?;
        let mut claims = self.verify_id_token(&party, id_token.expose(), &sent.nonce).await?;
        let user_info = self.user_info(&party, access_token.as_ref(), &claims).await;
        claims.complete(user_info.clone());
        let person = party.person_uid(&claims);
        let registered = Iam::of(&self.platform).identity(&person).await?.is_some();
        let texts = [name(&claims.all), claims.email.clone()].into_iter().flatten();
        let name = texts.chain([claims.subject.clone()]).find(|text| text.len() <= 320).unwrap_or_default();
        let (browser, form_token) = (self.random_text(), self.random_text());
        let open = Confirmable {
            request: sent.request,
            provider: sent.provider,
            issuer: sent.issuer,
            nonce: sent.nonce,
            id_token,
            user_info: Secret::new(Value::Object(user_info).to_string()),
            person,
            name,
            registered,
            form_token,
            held: (sent.held, held),
        };
        self.sign_ins.complete(self.clock.now(), &browser, open)?;
        Ok(browser)
    }

    /// Verifies an id token: the claims first, because a token that does not match must not trigger a fetch of keys.
    async fn verify_id_token(&self, party: &Party, id_token: &str, nonce: &Secret) -> Result<Claims> {
        let jws = Jws::parse(id_token).map_err(token_error)?;
        let claims = Claims::parse(&jws.payload).map_err(token_error)?;
        claims.check_times(&*self.clock).map_err(token_error)?;
        party.check_claims(&claims, nonce)?;
        check_typ(jws.typ.as_deref(), false).map_err(token_error)?;
        let organization = party.uid.as_ref().map(Uid::root).unwrap_or_default();
        self.check_signature(organization, party.issuer.url(), &jws).await?;
        Ok(claims)
    }

    /// Registers the person if necessary, redeems the invite, and issues the tokens.
    async fn finish(&self, open: Confirmable) -> Result<Finished> {
        let party = self.same_party(open.provider.as_ref(), &open.issuer).await?;
        let mut claims = self.verify_id_token(&party, open.id_token.expose(), &open.nonce).await?;
        claims.complete(json::object(open.user_info.expose().as_bytes()).unwrap_or_default());
        let iam = Iam::of(&self.platform);
        if open.request.skip_registration && iam.identity(&open.person).await?.is_none() {
            return Err(Error::new(Code::NotFound, "The person is not registered")
                .of_resource(Identity::KIND, open.person.as_str()));
        }
        if let Target::Headless(code) = &open.request.target {
            // An unusable key is rejected before anything is stored.
            headless::encrypt(code, "", self.platform.entropy())?;
        }
        let mut proof = self.prove_signed_in(&party, open.id_token.expose(), &claims).await?;
        if let Some(code) = &open.request.invite {
            match iam.redeem_invite_by(&open.person, proof.caller.credential.as_deref(), code.expose()).await {
                // The person already has the role.
                Err(error) if error.code() == Code::AlreadyExists => {}
                redeemed => drop(redeemed?),
            }
        }
        // A headless client gets no refresh token.
        proof.refreshable &= open.request.refresh && matches!(open.request.target, Target::Loopback(_));
        let tokens = self.issue_to(&open.request, proof).await?;
        match open.request.target.clone() {
            Target::Loopback(callback) if callback.challenge().is_some() => {
                let code = self.random_text();
                self.sign_ins.grant(self.clock.now(), &code, open.request, tokens, open.held)?;
                Ok(Finished::Code(callback, code))
            }
            Target::Loopback(callback) => Ok(Finished::Tokens(callback, Box::new(tokens))),
            Target::Headless(code) => {
                let session = headless::encrypt(&code, tokens.token.expose(), self.platform.entropy())?;
                self.sign_ins.keep_session(self.clock.now(), code, session, open.held)?;
                Ok(Finished::Headless)
            }
        }
    }

    /// Proves the person of a verified id token, as an exchange of it does, and registers the person.
    async fn prove_signed_in(&self, party: &Party, id_token: &str, claims: &Claims) -> Result<Proof> {
        if let Some(provider) = &party.uid {
            let jws = Jws::parse(id_token).map_err(token_error)?;
            return self.prove_provider_person(&jws, claims, provider, None).await;
        }
        let uid = party.person_uid(claims);
        let (name, email) = (name(&claims.all), claims.email.as_deref());
        let credential = Arc::new(Credential::issued_at(claims.issued));
        let person = Person {
            uid: &uid,
            issuer: party.issuer.url(),
            subject: &claims.subject,
            name: name.as_deref(),
            email: email.filter(|_| claims.email_verified),
            email_unverified: email.filter(|_| !claims.email_verified),
            credential: Some(&credential),
        };
        Iam::of(&self.platform).register(&person).await?;
        let identity = Iam::of(&self.platform).identity(&uid).await?.ok_or_else(not_authorized)?;
        let (caller, act, profile) = (Caller::new(uid).with_credential(credential), act(claims), profile(claims));
        Ok(Proof { caller, identity, act, profile, expires: None, refreshable: true })
    }

    /// Issues the tokens of the person or, if the sign-in names another identity, those of that identity, under the
    /// rules for an exchange of the person's own token.
    async fn issue_to(&self, request: &SignIn, proof: Proof) -> Result<RawToken> {
        let audiences = self.audiences_or_default(&request.audiences);
        let Some(identity) = request.identity.as_ref().filter(|identity| **identity != proof.caller.identity) else {
            return self.issue(&proof, &audiences, &request.narrow).await;
        };
        let own = self.grant(&proof, self.verifier.audiences(), &Narrow::default()).await?.token.token;
        let (identity, narrow) = (Some(identity.clone()), request.narrow.clone());
        self.exchange(&own, &Exchange { audiences, identity, identity_provider: None, narrow }).await
    }

    /// Returns the session of a headless sign-in, once.
    pub(super) fn read_headless_session(&self, code: &str) -> Result<HeadlessSession> {
        let rule = "must be an X25519 public key of 32 bytes, in base64url without padding";
        let code = HeadlessCode::parse(code).ok_or_else(|| Error::invalid_field("code", rule))?;
        let session = self.sign_ins.take_session(self.clock.now(), &code);
        session.ok_or_else(|| Error::new(Code::NotFound, "There is no session for this code: not yet, or no longer"))
    }

    /// Returns 32 random bytes in base64url.
    fn random_text(&self) -> Secret {
        let mut random = [0; 32];
        self.platform.entropy().fill(&mut random);
        Secret::new(URL_SAFE_NO_PAD.encode(random))
    }
}

impl Party {
    /// Returns the uid of the person with these claims.
    fn person_uid(&self, claims: &Claims) -> Uid {
        match &self.uid {
            Some(provider) => provider_person_uid(provider, &claims.issuer, &claims.subject),
            None => person_uid(&claims.issuer, &claims.subject),
        }
    }
}

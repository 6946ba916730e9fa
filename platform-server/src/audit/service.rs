//! Authenticators and token services that note callers and issued tokens.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::tokens::{
    Begun, Confirmation, CredentialOf, Exchange, Failure, Finished, HeadlessSession, Held, ProviderResponse, RawToken,
    Redemption, Refresh, Register, Registration, SignIn, SignInService, TokenPair, TokenService, WhoAmI,
};
use platform_engine::{
    access::{Authenticator, Caller, Credential},
    error::Result,
    seal::Secret,
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{Event, Issued, Upstream, note};

/// An authenticator that notes the callers of requests.
#[derive(Debug)]
pub(crate) struct Authenticated<A>(pub(crate) Arc<A>);

#[async_trait]
impl<A: Authenticator> Authenticator for Authenticated<A> {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        let caller = self.0.authenticate(token).await?;
        note(|notes| notes.add_caller(&caller));
        Ok(caller)
    }
}

/// A token service that notes the tokens that it issues.
#[derive(Debug)]
pub(crate) struct IssuedBy<S>(pub(crate) Arc<S>);

/// Returns the claims of a JWT, which has been verified or issued; none for anything else, such as a signed request to
/// AWS.
fn claims(token: &str) -> Map<String, Value> {
    let payload = token.split('.').nth(1).and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    payload.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
}

fn claim(claims: &Map<String, Value>, name: &str) -> Option<String> {
    claims.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// Notes an issued token, and the upstream token for which it was issued.
fn note_issued(event: Event, token: &Secret, upstream: Option<&str>) {
    note(|notes| {
        let issued = claims(token.expose());
        let upstream = upstream.map(claims).filter(|claims| !claims.is_empty());
        let upstream = upstream.map(|claims| {
            let [iss, sub, jti] = ["iss", "sub", "jti"].map(|name| claim(&claims, name));
            Upstream { iss, sub, jti }
        });
        let (identity, token) = (claim(&issued, "sub"), claim(&issued, "jti"));
        notes.issued = Some(Issued { event, identity, token, upstream });
    });
}

/// Notes why a sign-in has failed: the browser is sent to a page that says so.
fn note_failure(failure: &Failure) {
    note(|notes| notes.failed = Some(failure.error.code()));
}

#[async_trait]
impl<S: TokenService> TokenService for IssuedBy<S> {
    fn check_form(&self, credential: &str, of: CredentialOf) -> Result<()> {
        self.0.check_form(credential, of)
    }

    async fn exchange(&self, credential: &str, request: &Exchange) -> Result<RawToken> {
        let issued = self.0.exchange(credential, request).await?;
        note_issued(Event::Exchange, &issued.token, Some(credential));
        Ok(issued)
    }

    async fn refresh(&self, credential: &str, request: &Refresh) -> Result<TokenPair> {
        let issued = self.0.refresh(credential, request).await?;
        note_issued(Event::Refresh, &issued.token.token, None);
        Ok(issued)
    }

    async fn who_am_i(&self, credential: &str) -> Result<WhoAmI> {
        self.0.who_am_i(credential).await
    }

    async fn register(&self, credential: &str, request: &Register) -> Result<Registration> {
        self.0.register(credential, request).await
    }

    async fn unregister(&self, credential: &str, id: &str) -> Result<()> {
        self.0.unregister(credential, id).await?;
        // Persons delete themselves.
        let mut used = Credential::issued_at(None);
        used.id = claim(&claims(credential), "jti");
        note(|notes| notes.caller = Some((Uid::opaque(id), Some(Arc::new(used)))));
        Ok(())
    }

    async fn headless_session(&self, code: &str) -> Result<HeadlessSession> {
        self.0.headless_session(code).await
    }
}

#[async_trait]
impl<S: SignInService> SignInService for IssuedBy<S> {
    fn url(&self) -> &str {
        self.0.url()
    }

    fn forget_expired(&self) {
        self.0.forget_expired();
    }

    async fn begin(&self, request: SignIn, held: Held) -> Result<Begun> {
        self.0.begin(request, held).await
    }

    async fn complete(&self, response: ProviderResponse, browser: &str, held: Held) -> Result<Secret, Failure> {
        self.0.complete(response, browser, held).await.inspect_err(note_failure)
    }

    async fn confirmation(&self, browser: &str) -> Result<Confirmation> {
        self.0.confirmation(browser).await
    }

    async fn confirm(&self, browser: &str, form_token: &str, agrees: bool) -> Result<Finished, Failure> {
        let person = self.0.confirmation(browser).await.ok().map(|open| open.person.to_string());
        let finished = self.0.confirm(browser, form_token, agrees).await.inspect_err(note_failure)?;
        match &finished {
            Finished::Tokens(_, issued) => note_issued(Event::SignIn, &issued.token, None),
            // The token is redeemed for the code, or only the client can decrypt it.
            Finished::Code(..) | Finished::Headless => note(|notes| {
                notes.issued = Some(Issued { event: Event::SignIn, identity: person, token: None, upstream: None });
            }),
        }
        Ok(finished)
    }

    async fn redeem(&self, request: &Redemption) -> Result<RawToken> {
        let issued = self.0.redeem(request).await?;
        note_issued(Event::SignIn, &issued.token, None);
        Ok(issued)
    }

    async fn has_verified_organization(&self, name: &str) -> Result<bool> {
        self.0.has_verified_organization(name).await
    }
}

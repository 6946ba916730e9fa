//! Invite codes, SCIM tokens and the client secrets of identity providers.

use platform_engine::{
    access::Credential,
    error::{Code, Error, Result},
    kind::Resource,
    seal::Secret,
    uid::Uid,
};

use super::Iam;
use crate::resources::iam::{IdentityProvider, Redeemed, ScimAccess, group_invite, identity_provider};

impl Iam<'_> {
    /// Redeems the code of a group invite for a registered person: creates a binding to the invite's role and deletes a
    /// single-use invite, in one commit. Of concurrent requests with the code of a single-use invite, one succeeds.
    ///
    /// The binding is created on behalf of the inviter, so it never gives capabilities that the inviter does not hold
    /// there now, even if the role has been changed since. If the inviter had signed in by an organization's own
    /// identity provider, the provider's current default role and mappings apply to the external groups that the
    /// inviter had then. An invite for an email address requires that the person has this address, verified, compared
    /// without regard to the case of ASCII letters (`docs/api.md`, Group invites).
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `code`, the same for a code that is unknown, used up, expired or for another person, for an
    /// inviter who could not give the role now, and for a person who is not registered; ALREADY_EXISTS when the person
    /// already has the role there, which does not use up the invite.
    pub async fn redeem_invite(&self, person: &Uid, code: &str) -> Result<Redeemed> {
        self.redeem_invite_by(person, None, code).await
    }

    /// As [`redeem_invite`](Self::redeem_invite), for a person who was authenticated by this token.
    ///
    /// # Errors
    /// As [`redeem_invite`](Self::redeem_invite), with the error on `code` for a token that was revoked too.
    pub async fn redeem_invite_by(
        &self,
        person: &Uid,
        credential: Option<&Credential>,
        code: &str,
    ) -> Result<Redeemed> {
        let done = async {
            let (invite, inviter) = self.0.without_caller(async |cx| group_invite::find(cx, code).await).await?;
            self.0
                .with_caller(&inviter, |cx| {
                    let (invite, person, code) = (invite.clone(), person.clone(), code.to_owned());
                    Box::pin(async move { group_invite::redeem(cx, &invite, &person, credential, &code).await })
                })
                .await
                .map_err(|error| match error.code() {
                    // The inviter was deleted, or the session of the inviter has ended.
                    Code::Unauthenticated => group_invite::invalid_code(),
                    _ => error,
                })
        };
        done.await.map_err(|error: Error| error.of_domain("iam"))
    }

    /// Verifies a SCIM token and returns its identity provider, and whether provisioning is enabled there. Only hashes
    /// are compared, in constant time.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a token that is unknown, expired, revoked or replaced, and those of the store.
    pub async fn verify_scim_token(&self, token: &str) -> Result<ScimAccess> {
        self.0.without_caller(async |cx| identity_provider::verify_scim_token(cx, token).await).await
    }

    /// Returns an identity provider with its client secret, if it has one, for use in sign-ins; `None` for one that
    /// does not exist. Both are of one state of the provider, so that a secret never goes to another issuer. No API
    /// method returns the secret.
    ///
    /// # Errors
    /// INTERNAL when the key that sealed the secret is not available, and those of the store.
    pub async fn provider_and_secret(&self, provider: &Uid) -> Result<Option<(IdentityProvider, Option<Secret>)>> {
        self.0
            .without_caller(async |cx| {
                let Some(record) = cx.record(IdentityProvider::KIND, provider).await? else { return Ok(None) };
                let found = serde_json::from_slice(&record.body).map_err(Error::internal)?;
                let secret = identity_provider::client_secret(cx, provider, &record.private)?;
                Ok(Some((found, secret)))
            })
            .await
    }
}

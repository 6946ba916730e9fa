//! What a presented secret comes to: an invite's code, a directory's token; and a secret that is kept to be presented.

use super::Iam;
use crate::{
    error::{Code, Error, Result},
    kind::Resource,
    resources::iam::{IdentityProvider, Redeemed, ScimAccess, group_invite, identity_provider},
    seal::Secret,
    uid::Uid,
};

impl Iam<'_> {
    /// Redeems the code of a group invite for a registered person: binds them to the role that it promises, in one
    /// commit, which uses up a single-use invite. Of any number who bring the code of one at once, one gets in.
    ///
    /// The binding is made as by the person who invited: it gives nothing that they do not hold there at this moment,
    /// whatever the role has become since. Where they had signed in by an organisation's own identity provider, the
    /// provider's default role and mappings of this moment count for the external groups that they had then. An invite for a mail address is for who has that address, verified,
    /// compared without regard to the case of ASCII letters (`docs/api.md`, Group invites).
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `code`, one answer for a code that is unknown, used up, out of time, for someone else or of
    /// an inviter who could not give the role now, and for a person who is not registered; ALREADY_EXISTS when the
    /// person has the role there, which uses up nothing.
    pub async fn redeem_invite(&self, person: &Uid, code: &str) -> Result<Redeemed> {
        let done = async {
            let (invite, inviter) = self.0.without_caller(async |cx| group_invite::find(cx, code).await).await?;
            self.0
                .with_caller(&inviter, |cx| {
                    let (invite, person, code) = (invite.clone(), person.clone(), code.to_owned());
                    Box::pin(async move { group_invite::redeem(cx, &invite, &person, &code).await })
                })
                .await
                .map_err(|error| match error.code() {
                    // The one who invited, or what they signed in by, is gone.
                    Code::Unauthenticated => group_invite::refused(),
                    _ => error,
                })
        };
        done.await.map_err(|error: Error| error.of_domain("iam"))
    }

    /// Tells which identity provider a presented SCIM token was issued for, and whether it may be used. Only hashes
    /// are compared, in constant time.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a token that is unknown, expired, revoked or replaced, and those of the store.
    pub async fn verify_scim_token(&self, token: &str) -> Result<ScimAccess> {
        self.0.without_caller(async |cx| identity_provider::verify_scim_token(cx, token).await).await
    }

    /// Returns the client secret of an identity provider, for who signs persons in by it; none when it has none. No
    /// method of the API returns it.
    ///
    /// # Errors
    /// NOT_FOUND, INTERNAL when the key that sealed it is gone, and those of the store.
    pub async fn client_secret(&self, provider: &Uid) -> Result<Option<Secret>> {
        self.0
            .without_caller(async |cx| {
                let record = cx.record(IdentityProvider::KIND, provider).await?;
                let record = record.ok_or_else(|| Error::not_found(IdentityProvider::KIND, provider.as_str()))?;
                identity_provider::client_secret(cx, provider, &record.private)
            })
            .await
    }
}

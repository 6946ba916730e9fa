//! What an identity provider's own directory does with its token: users told of, changed and taken away.
//!
//! Whoever calls these has verified the directory's token ([`Iam::verify_scim_token`]); no capabilities are
//! asked for.

use super::Iam;
use crate::{
    error::{Error, Result},
    kind::Resource,
    resources::iam::{DirectoryUser, DirectoryUsers, directory_user},
    uid::Uid,
};

impl Iam<'_> {
    /// Lists users of a provider's directory in the order of their uids, at most `limit` from the one at `skip`, and
    /// tells how many there are.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn directory_users(
        &self,
        provider: &Uid,
        users: &DirectoryUsers,
        skip: u64,
        limit: usize,
    ) -> Result<(Vec<DirectoryUser>, u64)> {
        self.0.without_caller(async |cx| directory_user::list(cx, provider, users, skip, limit).await).await
    }

    /// Returns the user of this SCIM id, which is the last segment of the uid.
    ///
    /// # Errors
    /// NOT_FOUND, and those of the store.
    pub async fn directory_user(&self, provider: &Uid, id: &str) -> Result<DirectoryUser> {
        self.standing_user(provider, id).await.map(|(user, _)| user)
    }

    /// Tells of a new user.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, ALREADY_EXISTS for a name or external id that another user of the directory has.
    pub async fn create_directory_user(&self, provider: &Uid, user: DirectoryUser) -> Result<DirectoryUser> {
        self.0.without_caller(async |cx| directory_user::put(cx, provider, None, user).await).await
    }

    /// Replaces a user by what `change` makes of the one that stands, in one step; it may be called several times. A
    /// user who is no longer active is let in nowhere from then on, and what they signed in to has ended.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT, ALREADY_EXISTS, FAILED_PRECONDITION for the last owner of the organization who would
    /// no longer be let in, ABORTED when too many change one user at once.
    pub async fn update_directory_user(
        &self,
        provider: &Uid,
        id: &str,
        change: impl Fn(DirectoryUser) -> Result<DirectoryUser>,
    ) -> Result<DirectoryUser> {
        for _ in 0..crate::context::MAX_ATTEMPTS {
            let (user, revision) = self.standing_user(provider, id).await?;
            let changed = change(user.clone())?;
            if changed == user {
                return Ok(user);
            }
            let expected = Some((user, revision));
            match self.0.without_caller(async |cx| directory_user::put(cx, provider, expected, changed).await).await {
                Err(error) if error.is_stale() => {}
                done => return done,
            }
        }
        Err(Error::busy())
    }

    /// Deletes a user; what they signed in to has ended.
    ///
    /// # Errors
    /// NOT_FOUND, FAILED_PRECONDITION for the last owner of the organization, ABORTED when too many change one user at
    /// once, and those of the store.
    pub async fn delete_directory_user(&self, provider: &Uid, id: &str) -> Result<()> {
        for _ in 0..crate::context::MAX_ATTEMPTS {
            let expected = self.standing_user(provider, id).await?;
            match self.0.without_caller(async |cx| directory_user::delete(cx, provider, expected).await).await {
                Err(error) if error.is_stale() => {}
                done => return done,
            }
        }
        Err(Error::busy())
    }

    async fn standing_user(&self, provider: &Uid, id: &str) -> Result<(DirectoryUser, u64)> {
        let missing = || Error::not_found(DirectoryUser::KIND, id);
        let uid = Uid::parse(&format!("{provider}/{id}")).map_err(|_| missing())?;
        if uid.parent().as_ref() != Some(provider) {
            return Err(missing());
        }
        let record = self.0.without_caller(async |cx| cx.record(DirectoryUser::KIND, &uid).await).await?;
        let record = record.ok_or_else(missing)?;
        Ok((serde_json::from_slice(&record.body).map_err(Error::internal)?, record.revision))
    }
}

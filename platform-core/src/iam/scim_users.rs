//! SCIM user provisioning: creates, replaces and deletes the users of an identity provider's directory.
//!
//! These methods do not check capabilities: call them only after [`Iam::verify_scim_token`] has accepted the
//! directory's token.

use platform_engine::{
    context::retry,
    error::{Error, Result},
    kind::Resource,
    uid::Uid,
};

use super::Iam;
use crate::resources::iam::{DirectoryUser, DirectoryUsers, directory_user};

impl Iam<'_> {
    /// Lists users of a provider's directory in the order of their uids, at most `limit` after skipping `skip`, and
    /// returns the total count as well.
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

    /// Reads the users of a provider's directory in the order of their uids, at most `limit` after `after`, and returns
    /// the uid to read on after, or `None` at the end. For a scan, which a change of the directory does not disturb.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn scan_directory_users(
        &self,
        provider: &Uid,
        after: Option<Uid>,
        limit: usize,
    ) -> Result<(Vec<DirectoryUser>, Option<Uid>)> {
        self.0.without_caller(async |cx| directory_user::scan(cx, provider, after, limit).await).await
    }

    /// Returns the user with this SCIM id, which is the last segment of the uid.
    ///
    /// # Errors
    /// NOT_FOUND, and those of the store.
    pub async fn directory_user(&self, provider: &Uid, id: &str) -> Result<DirectoryUser> {
        self.read_directory_user(provider, id).await.map(|(user, _)| user)
    }

    /// Creates a user.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, ALREADY_EXISTS for a name or external id that another user of the directory has,
    /// RESOURCE_EXHAUSTED beyond the organization's quota.
    pub async fn create_directory_user(&self, provider: &Uid, user: DirectoryUser) -> Result<DirectoryUser> {
        retry(|| self.0.without_caller(async |cx| directory_user::put(cx, provider, None, user.clone()).await)).await
    }

    /// Atomically replaces a user by the result of `change`, which gets the current user and may be called several
    /// times.
    ///
    /// A user who becomes inactive can no longer sign in, and their sessions end.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT, ALREADY_EXISTS, FAILED_PRECONDITION if the organization's last owner could no
    /// longer sign in, ABORTED when too many requests change one user at once.
    pub async fn update_directory_user(
        &self,
        provider: &Uid,
        id: &str,
        change: impl Fn(DirectoryUser) -> Result<DirectoryUser>,
    ) -> Result<DirectoryUser> {
        retry(|| async {
            let (user, revision) = self.read_directory_user(provider, id).await?;
            let changed = change(user.clone())?;
            if changed == user {
                return Ok(user);
            }
            let expected = Some((user, revision));
            self.0.without_caller(async |cx| directory_user::put(cx, provider, expected, changed).await).await
        })
        .await
    }

    /// Deletes a user and ends their sessions.
    ///
    /// # Errors
    /// NOT_FOUND, FAILED_PRECONDITION for the last owner of the organization, ABORTED when too many requests change one
    /// user at once, and those of the store.
    pub async fn delete_directory_user(&self, provider: &Uid, id: &str) -> Result<()> {
        retry(|| async {
            let expected = self.read_directory_user(provider, id).await?;
            self.0.without_caller(async |cx| directory_user::delete(cx, provider, expected).await).await
        })
        .await
    }

    /// Returns a user with the revision of its record.
    async fn read_directory_user(&self, provider: &Uid, id: &str) -> Result<(DirectoryUser, u64)> {
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

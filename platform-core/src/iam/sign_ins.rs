//! Registration of persons, their sign-ins with refresh tokens, and their deletion.

use std::collections::BTreeSet;

use platform_engine::{
    access::{Caller, Credential, RegistrationId},
    context::retry,
    error::{Error, Result},
    kind::{Registered, Resource},
    store::{Key, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

use super::Iam;
use crate::{
    iam::identity_epoch,
    resources::iam::{
        ClaimMatch, ExternalGroupRoleMapping, Identity, IdentityProvider, NewSignIn, Presented, SignIn, group,
        identity, sign_in,
    },
};

/// A person as described by a token issuer.
#[derive(Debug, Clone, Copy)]
pub struct Person<'a> {
    /// The uid, which the token verifier derives from issuer and subject (and, for an organization's own identity
    /// provider, the provider).
    pub uid: &'a Uid,
    /// The issuer.
    pub issuer: &'a str,
    /// The subject, by which the issuer identifies the person.
    pub subject: &'a str,
    /// The display name.
    pub name: Option<&'a str>,
    /// The email address, if the issuer has verified it.
    pub email: Option<&'a str>,
    /// The email address, if the issuer has not verified it.
    pub email_unverified: Option<&'a str>,
    /// The token that describes the person, if any: a revoked one changes nothing.
    pub credential: Option<&'a Credential>,
}

/// The maximum length of a person's name in bytes; our choice.
const MAX_NAME: usize = 256;

fn is_valid_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

/// The interval in which `lastSeenTime` is updated at most once: an hour.
const LAST_SEEN_INTERVAL_MILLIS: i64 = 60 * 60 * 1000;

impl Iam<'_> {
    /// Registers a person, so that tokens of this issuer with this subject act as that person. A short form of
    /// [`register`](Self::register).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn register_person(&self, uid: &Uid, issuer: &str, subject: &str, email: Option<&str>) -> Result<()> {
        self.register(&Person { uid, issuer, subject, name: None, email, email_unverified: None, credential: None })
            .await
    }

    /// Registers a person. For a person who is already registered, it only updates the name and the email addresses
    /// that the issuer states.
    ///
    /// A name that is longer than 256 bytes or has control characters is ignored. A person without a name is named
    /// `registered person`.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a token that was revoked, and those of the store.
    pub async fn register(&self, person: &Person<'_>) -> Result<()> {
        retry(|| self.register_once(person)).await
    }

    async fn register_once(&self, person: &Person<'_>) -> Result<()> {
        self.0
            .without_caller(async |cx| {
                let now = Some(self.0.now());
                let key = Key::new(Identity::KIND.name, person.uid.clone());
                let email = person.email.unwrap_or_default().to_owned();
                let email_unverified = person.email_unverified.unwrap_or_default().to_owned();
                let name = person.name.map(str::trim).filter(|name| is_valid_name(name));
                let mut write = Write::default();
                match cx.record(Identity::KIND, person.uid).await? {
                    Some(record) => {
                        identity::check_not_revoked(&record.private, person.credential)?;
                        let before: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
                        let mut identity = before.clone();
                        if !email.is_empty() || !email_unverified.is_empty() {
                            (identity.email, identity.email_unverified) = (email, email_unverified);
                        }
                        name.into_iter().for_each(|name| name.clone_into(&mut identity.name));
                        if identity == before {
                            return Ok(());
                        }
                        write.require_or_retry(Require::Revision(key, record.revision));
                        identity.update_time = identity.update_time.max(now);
                        write.replace(&record, &identity, record.private.clone())?;
                    }
                    None => {
                        write.require_or_retry(Require::Absent(key));
                        let claims = ClaimMatch {
                            issuer: person.issuer.to_owned(),
                            subject: person.subject.to_owned(),
                            ..ClaimMatch::default()
                        };
                        let identity = Identity {
                            uid: person.uid.clone(),
                            name: name.unwrap_or("registered person").to_owned(),
                            email,
                            email_unverified,
                            claim_match: Some(claims),
                            last_seen_time: now,
                            create_time: now,
                            update_time: now,
                            ..Identity::default()
                        };
                        let organizations = identity::organizations_before(cx, person.uid, &mut write).await?;
                        let registration = RegistrationId::draw(self.0.entropy());
                        write.put(person.uid, &identity, identity::private_of(registration, organizations)?)?;
                    }
                }
                write.raise(identity_epoch(person.uid));
                cx.commit(write).await.map(drop)
            })
            .await
    }

    /// Deletes the calling person with their role bindings and sign-ins. A person who registers again gets the same
    /// uid, but nothing that was issued before becomes valid again.
    ///
    /// # Errors
    /// PERMISSION_DENIED for an identity of a group and for a narrowed token, UNAUTHENTICATED when the person does not
    /// exist.
    pub async fn unregister(&self, caller: &Caller) -> Result<()> {
        const IDENTITY: Registered = Registered::of::<Identity>();
        if !caller.identity.is_root() || caller.narrowing.is_some() {
            return Err(Error::denied());
        }
        let done = self.0.with_caller(caller, |cx| Box::pin(cx.delete(&IDENTITY, caller.identity.clone())));
        done.await.map_err(|error| error.of_domain(Identity::KIND.domain.name))
    }

    /// Returns an identity as it is stored, or `None` if it does not exist. Checks no capabilities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn identity(&self, uid: &Uid) -> Result<Option<Identity>> {
        self.0.without_caller(async |cx| cx.read::<Identity>(uid).await).await
    }

    /// Returns what people call an identity: its name, and the email address if it has one; empty if it does not exist.
    /// Checks no capabilities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn label(&self, uid: &Uid) -> Result<String> {
        let identity = self.identity(uid).await?.unwrap_or_default();
        Ok(match identity.email.as_str() {
            "" => identity.name,
            email => format!("{} ({email})", identity.name),
        })
    }

    /// Returns an identity provider as it is stored, or `None` if it does not exist. Checks no capabilities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn identity_provider(&self, uid: &Uid) -> Result<Option<IdentityProvider>> {
        self.0.without_caller(async |cx| cx.read::<IdentityProvider>(uid).await).await
    }

    /// Returns the external groups that a provider's mappings name. Checks no capabilities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn mapped_groups(&self, provider: &Uid) -> Result<BTreeSet<String>> {
        let mappings = Query::new(ExternalGroupRoleMapping::KIND.name, Scope::Children(provider.clone()));
        let find = || self.0.without_caller(async |cx| cx.find::<ExternalGroupRoleMapping>(mappings.clone()).await);
        Ok(find().await?.into_iter().map(|mapping| mapping.external_group_id).collect())
    }

    /// Returns the uid of the verified organization of this name, compared bytewise. Checks no capabilities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn verified_organization(&self, name: &str) -> Result<Option<Uid>> {
        let found = self.0.without_caller(async |cx| group::verified_organization(cx, name).await).await?;
        Ok(found.map(|group| group.uid))
    }

    /// Returns the identity provider directly in an organization, if there is exactly one. Checks no capabilities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn only_identity_provider(&self, organization: &Uid) -> Result<Option<IdentityProvider>> {
        let scope = Scope::Children(organization.clone());
        let query = Query { limit: 2, ..Query::new(IdentityProvider::KIND.name, scope) };
        let found = self.0.without_caller(async |cx| cx.find::<IdentityProvider>(query.clone()).await).await?;
        Ok(<[_; 1]>::try_from(found).ok().map(|[only]| only))
    }

    /// Records that an identity got a token: sets `lastSeenTime`, at most once an hour. If the identity is changed
    /// concurrently, the other change wins and this one is dropped; the next token sets the time. A read-only server
    /// does not set it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn record_last_seen(&self, identity: &Identity) -> Result<()> {
        let now = self.0.now();
        let recent = identity.last_seen_time.is_some_and(|seen| now < seen.plus_millis(LAST_SEEN_INTERVAL_MILLIS));
        if recent {
            return Ok(());
        }
        let recorded = self.0.without_caller(async |cx| {
            let Some(record) = cx.record(Identity::KIND, &identity.uid).await? else { return Ok(()) };
            let mut current: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            current.last_seen_time = current.last_seen_time.max(Some(now));
            let mut write = Write::default();
            write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
            write.replace(&record, &current, record.private.clone())?;
            cx.commit(write).await.map(drop)
        });
        match recorded.await {
            Err(error) if error.is_stale() || error.is_read_only() => Ok(()),
            result => result,
        }
    }

    /// Begins a sign-in, which refresh tokens extend. A person has at most 100 at a time: a new one ends the oldest.
    ///
    /// # Errors
    /// UNAUTHENTICATED for an unknown person, ABORTED when too many sign-ins of one person begin at once, and errors of
    /// the store.
    pub async fn begin_sign_in(&self, new: NewSignIn<'_>) -> Result<SignIn> {
        retry(|| self.0.without_caller(async |cx| sign_in::begin(cx, new.clone()).await)).await
    }

    /// Returns the sign-in of the refresh token with these secrets. Only hashes are compared, in constant time. A token
    /// of the sign-in that is not the latest ends the sign-in.
    ///
    /// # Errors
    /// UNAUTHENTICATED, the same for every reason, and those of the store.
    pub async fn present_sign_in(&self, uid: &Uid, family: &[u8], token: &[u8]) -> Result<Presented> {
        self.0.without_caller(async |cx| sign_in::present(cx, uid, family, token).await).await
    }

    /// Replaces the presented refresh token by one with the secret `next`. Of concurrent requests with the same token
    /// at most one succeeds, and the second ends the sign-in.
    ///
    /// # Errors
    /// As [`present_sign_in`](Self::present_sign_in).
    pub async fn renew_sign_in(&self, presented: &Presented, family: &[u8], next: &[u8]) -> Result<()> {
        self.0.without_caller(async |cx| sign_in::renew(cx, presented, family, next).await).await
    }

    /// Ends a session of a browser with this id, whose cookie expires at `until` at the latest. Every server refuses it
    /// when this method returns: they compare it with
    /// [`Revocations::admit_session`](platform_engine::access::Revocations::admit_session).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn end_session(&self, identity: &Uid, id: &str, until: Timestamp) -> Result<()> {
        retry(|| self.0.without_caller(async |cx| identity::end_session(cx, identity, id, until).await)).await
    }

    /// Ends a sign-in.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn end_sign_in(&self, uid: &Uid) -> Result<()> {
        self.0.without_caller(async |cx| sign_in::end(cx, uid).await).await
    }
}

//! Followers of a repo, and the values that they may show of it (`docs/api.md`, Repos).
//!
//! A *following* is the relation between a repo, the follower, and the repo that it follows, the source. Its record is
//! a child of the source, so that the owner of the source can see and delete it. Its private part names the identity
//! whose right to pull the following depends on; every read of the following repo checks that right.

use bytes::Bytes;
use platform_engine::{
    access::{ActsAs, Caller, Capability, RegistrationId, Session},
    context::Context,
    error::{Error, Result},
    kind::{Field, Kind, Method, Param, Parent, Resource, derived_uid},
    store::{Delete, Key, Record},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};

use super::super::domain;
use super::Repo;
use crate::capabilities::cap;

/// A repo that follows another. Our own kind: the contract has the follower's `syncConfig`, but nothing that shows it
/// to the owner of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepoFollower {
    /// The uid of the repo that is followed and a segment that is derived from the follower's uid.
    pub uid: Uid,
    /// The uid of the follower.
    pub repo_uid: Uid,
    /// When the following expires unless it is renewed.
    pub expiration_time: Option<Timestamp>,
    /// When the following began.
    pub create_time: Option<Timestamp>,
    /// When the following was last renewed.
    pub update_time: Option<Timestamp>,
}

/// The capabilities that a caller needs at a repo to follow it, which are those to pull from it.
pub(super) const PULL: &[Capability] = &[cap("repo.list"), cap("repo.blobs.get")];

impl Resource for RepoFollower {
    const KIND: &'static Kind = &Kind::new("RepoFollower", "repoFollowers", "RepoFollowersService", domain::REGISTRY)
        .parent(Parent::Of(Repo::KIND))
        .methods(&[
            Method::list(&[cap("repo.update")])
                .params(&[Param::exact("repoUid").about("Only the follower with this uid.")]),
            Method::get(&[cap("repo.update")]),
            Method::delete(&[cap("repo.update")]),
        ])
        .fields(&[
            Field::UID,
            Field::string("repoUid").about("The uid of the follower.").output_only(),
            Field::timestamp("expirationTime").about("When the following expires unless it is renewed.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // The caller on whose behalf the repo follows another one.
        Ok(private)
    }

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/fedcba9876543210/0123456789abcdef"),
            repo_uid: Uid::opaque("7f0c2b1d44617e3f2603851537be0123af4a57d8/0123456789abcdef"),
            expiration_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The private part of a follower: the identity whose right to pull the following depends on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Granted {
    identity: Uid,
    /// The registration of the identity, if a person: one who registers again does not have the right.
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationId>,
    /// The session that the right came from; `None` if the role bindings of the identity were enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Session>,
}

impl Granted {
    /// Returns the identity as a caller. `renewed` is the time when the following was last renewed.
    fn caller(self, renewed: Timestamp) -> Caller {
        let caller = Caller::new(self.identity);
        let caller = caller.acting_as(self.registration.map_or(ActsAs::AsOf(renewed), ActsAs::Registration));
        match self.session {
            Some(session) => caller.signed_in(session),
            None => caller,
        }
    }
}

/// Returns the uid of the record that `repo` follows `source`.
fn uid_of(source: &Uid, repo: &Uid) -> Uid {
    derived_uid(source, &[repo])
}

/// Begins or renews a following until this time, by the caller's right to pull, which must have been checked before.
pub(super) async fn begin(
    cx: &Context<'_>,
    write: &mut Write,
    source: &Uid,
    repo: &Uid,
    until: Timestamp,
) -> Result<()> {
    if source.ancestry().count() >= Uid::MAX_SEGMENTS {
        return Err(Error::invalid_field("syncConfig.source", "is nested too deeply to be followed"));
    }
    let uid = uid_of(source, repo);
    let record = cx.record(RepoFollower::KIND, &uid).await?;
    let stored: Option<RepoFollower> =
        record.as_ref().map(|record| serde_json::from_slice(&record.body)).transpose().map_err(Error::internal)?;
    let stored = stored.unwrap_or_default();
    let (caller, now) = (cx.demand_caller()?, cx.now());
    let identity = &caller.identity;
    // The session is only stored if the role bindings alone do not give the right.
    let session = match &caller.session {
        Some(session) if !cx.platform().grants(identity).await?.at(source).contains_all(PULL) => {
            Some(Session::clone(session))
        }
        _ => None,
    };
    let granted = Granted { identity: identity.clone(), registration: cx.registration(), session };
    let follower = RepoFollower {
        uid,
        repo_uid: repo.clone(),
        expiration_time: Some(until),
        create_time: stored.create_time.or(Some(now)),
        update_time: stored.update_time.max(Some(now)),
    };
    let private = serde_json::to_vec(&granted).map(Bytes::from).map_err(Error::internal)?;
    match record {
        Some(record) => write.replace(&record, &follower, private),
        None => write.put(&follower.uid, &follower, private),
    }
}

/// Ends a following, if it has not ended yet.
pub(super) fn end(write: &mut Write, source: &Uid, repo: &Uid) {
    write.delete(Delete::Key(Key::new(RepoFollower::KIND.name, uid_of(source, repo))));
}

/// A following that must still be checked against the rights of its identity.
struct Claim {
    source: Uid,
    /// The index of the identity in the list of those that are looked up.
    at: usize,
}

/// The resource of its source that a repo may show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown<R> {
    /// No resource: the repo does not follow another, the following has ended or expired, or the identity that it
    /// depends on can no longer pull.
    Nothing,
    /// The resource with the uid of the source; `None` if it does not exist.
    Source(Option<R>),
}

/// Returns, for each of these repos, the resource of the kind `R` with the uid of its source, if the repo may show it.
///
/// Values and rights are read from one snapshot of the store, so that values written after the right ended are never
/// shown. The rights of each identity at an organization are looked up only once, however many of the repos depend on
/// them.
///
/// # Errors
/// Those of the store.
pub(super) async fn shown<R: Resource>(cx: &Context<'_>, repos: &[Repo]) -> Result<Vec<Shown<R>>> {
    let source_of = |repo: &Repo| repo.sync_config.as_ref().map(|config| Uid::opaque(&*config.source));
    let sources: Vec<Option<Uid>> = repos.iter().map(source_of).collect();
    let keys = repos
        .iter()
        .zip(&sources)
        .filter_map(|(repo, source)| Some(Key::new(RepoFollower::KIND.name, uid_of(source.as_ref()?, &repo.uid))));
    let keys: Vec<_> = keys.collect();
    if keys.is_empty() {
        return Ok(vec![Shown::Nothing; repos.len()]);
    }
    let mut records = cx.records(&keys).await?.into_iter();
    let mut askers: Vec<(Caller, Uid)> = Vec::new();
    let mut claims: Vec<Option<Claim>> = Vec::new();
    for source in sources {
        let record = source.as_ref().and_then(|_| records.next().flatten());
        claims.push(match (source, record) {
            (Some(source), Some(record)) => claim(source, &record, cx.now(), &mut askers)?,
            _ => None,
        });
    }
    let mut keys: Vec<_> = claims.iter().flatten().map(|claim| Key::new(R::KIND.name, claim.source.clone())).collect();
    keys.sort();
    keys.dedup();
    let (records, rights) = cx.records_and_grants(&keys, &askers).await?;
    let may_pull = |claim: &Claim| {
        let grants = rights.get(claim.at).and_then(Option::as_ref);
        grants.is_some_and(|grants| grants.at(&claim.source).contains_all(PULL))
    };
    claims
        .into_iter()
        .map(|claim| match claim.filter(may_pull) {
            None => Ok(Shown::Nothing),
            Some(claim) => {
                let record = records.iter().flatten().find(|record| record.key.uid == claim.source);
                let read = |record: &Record| serde_json::from_slice(&record.body).map_err(Error::internal);
                record.map(read).transpose().map(Shown::Source)
            }
        })
        .collect()
}

/// Parses a following and adds its identity to those that are looked up. Returns `None` if the following has expired.
fn claim(source: Uid, record: &Record, now: Timestamp, askers: &mut Vec<(Caller, Uid)>) -> Result<Option<Claim>> {
    let follower: RepoFollower = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    if follower.expiration_time.is_none_or(|end| end <= now) {
        return Ok(None);
    }
    let granted: Granted = serde_json::from_slice(&record.private).map_err(Error::internal)?;
    let renewed = follower.update_time.unwrap_or(Timestamp::MIN);
    let asker = (granted.caller(renewed), Uid::opaque(source.root()));
    let at = askers.iter().position(|known| *known == asker).unwrap_or_else(|| {
        askers.push(asker);
        askers.len() - 1
    });
    Ok(Some(Claim { source, at }))
}

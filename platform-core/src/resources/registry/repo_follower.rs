//! Followers: the repos that follow a repo, and what each of them may show of it (`docs/api.md`, Repos).
//!
//! A record lies below the repo that is followed, so that its owner sees it and can delete it. Its private part is the
//! identity whose right to pull the following depends on, which every read of the follower checks.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Repo;
use crate::{
    access::{ActsAs, Caller, Capability, RegistrationId, Session, cap},
    context::Context,
    error::{Error, Result},
    kind::{Domain, Field, Kind, Method, Param, Parent, Resource, derived_uid},
    store::{Delete, Key, Record},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

/// A repo that follows another. Our own kind: the contract has the follower's `syncConfig`, but nothing that shows it
/// to the owner of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepoFollower {
    /// The uid of the repo that is followed and a segment that is derived from the follower's uid.
    pub uid: Uid,
    /// The uid of the follower.
    pub repo_uid: String,
    /// When the following ends, unless it is renewed.
    pub expiration_time: Option<Timestamp>,
    /// When it began.
    pub create_time: Option<Timestamp>,
    /// When it was last renewed.
    pub update_time: Option<Timestamp>,
}

/// The capabilities that a caller needs at a repo to follow it: those to pull from it.
pub(super) const PULL: &[Capability] = &[cap("repo.list"), cap("repo.blobs.get")];

impl Resource for RepoFollower {
    const KIND: &'static Kind = &Kind::new("RepoFollower", "repoFollowers", "RepoFollowersService", Domain::REGISTRY)
        .parent(Parent::Of("Repo"))
        .methods(&[
            Method::list(&[cap("repo.update")])
                .params(&[Param::exact("repoUid").about("Only the follower with this uid.")]),
            Method::get(&[cap("repo.update")]),
            Method::delete(&[cap("repo.update")]),
        ])
        .fields(&[
            Field::UID,
            Field::string("repoUid").about("The uid of the follower.").output_only(),
            Field::timestamp("expirationTime")
                .about("Until when the repo is followed, unless that is renewed.")
                .output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/fedcba9876543210/0123456789abcdef"),
            repo_uid: "7f0c2b1d44617e3f2603851537be0123af4a57d8/0123456789abcdef".to_owned(),
            expiration_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The identity whose right to pull a following depends on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Granted {
    identity: Uid,
    /// Which registration of a person it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationId>,
    /// The sign-in that the right came from; none where the bindings of the identity were enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Session>,
}

impl Granted {
    /// Returns the caller that a following depends on, if it was last renewed at this time.
    fn caller(self, renewed: Timestamp) -> Caller {
        let caller = Caller::new(self.identity);
        let caller = caller.acting_as(self.registration.map_or(ActsAs::AsOf(renewed), ActsAs::Registration));
        match self.session {
            Some(session) => caller.signed_in(session),
            None => caller,
        }
    }
}

/// Returns the uid of the record that one repo follows another.
fn uid_of(source: &Uid, repo: &Uid) -> Uid {
    derived_uid(source, &[repo])
}

/// Begins to follow, or renews it until then, by the caller's right to pull, which must have been looked at.
pub(super) async fn begin(
    cx: &Context<'_>,
    write: &mut Write,
    source: &Uid,
    repo: &Uid,
    until: Timestamp,
) -> Result<()> {
    if source.ancestry().count() >= Uid::MAX_SEGMENTS {
        return Err(Error::invalid_field("syncConfig.source", "lies too deep to be followed"));
    }
    let uid = uid_of(source, repo);
    let standing = cx.read::<RepoFollower>(&uid).await?.unwrap_or_default();
    let (identity, now) = (&cx.caller().identity, cx.now());
    let session = match &cx.caller().session {
        Some(session) if !cx.platform().grants(identity).await?.at(source).contains_all(PULL) => {
            Some(Session::clone(session))
        }
        _ => None,
    };
    let granted = Granted { identity: identity.clone(), registration: cx.registration(), session };
    let follower = RepoFollower {
        uid,
        repo_uid: repo.to_string(),
        expiration_time: Some(until),
        create_time: standing.create_time.or(Some(now)),
        update_time: standing.update_time.max(Some(now)),
    };
    let private = serde_json::to_vec(&granted).map(Bytes::from).map_err(Error::internal)?;
    write.put(&follower.uid.clone(), &follower, private)
}

/// Ends a following, if it had not ended before.
pub(super) fn end(write: &mut Write, source: &Uid, repo: &Uid) {
    write.delete(Delete::Key(Key::new(RepoFollower::KIND.name, uid_of(source, repo))));
}

/// A record of a following that is still to be checked against the rights of its identity.
struct Claim {
    source: Uid,
    /// The place of the identity among those that are looked up.
    at: usize,
}

/// What a repo may show of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown<R> {
    /// Nothing: it follows none, the following has ended or expired, or its identity can no longer pull.
    Nothing,
    /// This resource under the uid of the repo that it follows; none where that has none.
    Source(Option<R>),
}

/// Returns what each of these repos may show of the one that it follows: the resource of this kind with that uid.
///
/// Values and rights are of one state of the store, so that nothing is shown that was written after the right ended.
/// The rights of each identity at one organization are looked up once, however many of the repos depend on them.
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

/// Reads a following that has not expired, and adds its identity to those that are looked up.
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

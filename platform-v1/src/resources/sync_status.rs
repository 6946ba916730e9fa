//! The statuses of repos that an external process copies from their sources (`docs/api.md`, Statuses).

use platform_core::{
    capabilities::cap,
    resources::{domain, registry::Repo},
};
use platform_engine::{
    access::Capability,
    error::Violations,
    kind::{Field, Imported, Kind, Method, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use strum::VariantNames;

/// The status of the last copy of a repo from its source. Our own kind: only version 1 of the contract shows it.
///
/// Written by [`Platform::put`](platform_engine::platform::Platform::put) with the repo as parent, because this installation does
/// not copy images itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncStatus {
    /// The uid of the repo.
    pub uid: Uid,
    /// The state of the copy.
    pub state: SyncState,
    /// When the copy was requested.
    pub request_time: Option<Timestamp>,
    /// When it was first written.
    pub create_time: Option<Timestamp>,
    /// When it was last written with a change.
    pub update_time: Option<Timestamp>,
}

/// The state of a copy. A copy that has succeeded has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub enum SyncState {
    #[default]
    Unknown,
    Queued,
    InProgress,
    Failed,
}

impl Resource for SyncStatus {
    const KIND: &'static Kind = &Kind::new("SyncStatus", "syncStatuses", "SyncStatusesService", domain::REGISTRY)
        .parent(Parent::Sole(Repo::KIND))
        .methods(&[Method::list(&[cap("repo.list")]).unserved()])
        .fields(&[
            Field::string("uid").about("The repo's uid.").output_only().sort(&["uid"]),
            Field::enumeration("state", SyncState::VARIANTS).about("The state of the copy."),
            Field::timestamp("requestTime").about("When the copy was requested."),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            state: SyncState::Failed,
            request_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

impl Imported for SyncStatus {
    const WRITE: &'static [Capability] = &[cap("repo.update")];

    fn uid_in(&self, repo: &str) -> Uid {
        Uid::opaque(repo)
    }

    fn complete(&mut self, uid: Uid, _: &mut Violations) {
        self.uid = uid;
    }
}

//! Requests of persons to join an organization, which its owners can see (`docs/api.md`, Groups).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use bytes::Bytes;
use platform_engine::{
    context::Context,
    error::{Code, Detail, Error, Result},
    kind::{Column, Field, Kind, Method, Param, Parent, Resource},
    store::{Key, Require},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

use super::super::domain;
use super::{Group, identity};
use crate::capabilities::cap;

/// A request of a registered person to join a group. Our own kind: the contract has the method that requests access,
/// but no resource that shows the requests to the owners.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupAccessRequest {
    /// The uid of the group and a segment, which is the same for every request of one person.
    pub uid: Uid,
    /// The uid of the person.
    pub identity_uid: Uid,
    /// The person's verified email address.
    pub email: String,
    /// When the person first requested access.
    pub create_time: Option<Timestamp>,
    /// When the person last requested access.
    pub update_time: Option<Timestamp>,
}

impl Resource for GroupAccessRequest {
    const KIND: &'static Kind =
        &Kind::new("GroupAccessRequest", "groupAccessRequests", "GroupAccessRequestsService", domain::IAM)
            .parent(Parent::Group)
            .methods(&[
                Method::list(&[cap("group_invites.create")])
                    .params(&[Param::exact_of("identity", "identityUid").about("Only requests of this identity.")]),
                Method::get(&[cap("group_invites.create")]),
                Method::delete(&[cap("group_invites.create")]),
            ])
            .columns(&Column::fields(["email", "identityUid", "createTime"]))
            .fields(&[
                Field::UID,
                Field::string("identityUid").about("The identity that requests to join the group.").output_only(),
                Field::string("email").about("The email address of the identity.").output_only().findable(),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
            ])
            .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            identity_uid: Uid::opaque("7f0c2b1d44617e3f2603851537be0123af4a57d8"),
            email: "ada@example.com".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The interval after which a person can request access to the same group again: a day.
const INTERVAL_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Records a request of the caller to join a group.
///
/// # Errors
/// RESOURCE_EXHAUSTED within a day after the last request, with a RetryInfo; NOT_FOUND for the group.
pub(super) async fn record(cx: &Context<'_>, group: &Uid) -> Result<()> {
    let identity = identity::of_caller(cx)?;
    let now = cx.now();
    let segment = hex::encode(Sha256::digest(identity.uid.as_bytes()).get(..8).unwrap_or_default());
    let uid = Uid::opaque(format!("{group}/{segment}"));
    let key = Key::new(GroupAccessRequest::KIND.name, uid.clone());
    let mut write = Write::default();
    let stored = cx.records(std::slice::from_ref(&key)).await?.into_iter().next().flatten();
    let before = match &stored {
        Some(record) => {
            write.require_or_retry(Require::Revision(key, record.revision));
            serde_json::from_slice(&record.body).map_err(Error::internal)?
        }
        None => {
            write.require_or_retry(Require::Absent(key));
            GroupAccessRequest::default()
        }
    };
    if let Some(last) = before.update_time {
        // The absolute difference: nobody must wait longer because the clock was set back.
        let since = now.millis().abs_diff(last.millis());
        if let Some(millis @ 1..) = INTERVAL_MILLIS.unsigned_abs().checked_sub(since) {
            return Err(Error::new(
                Code::ResourceExhausted,
                "You already requested access to this group within the last day",
            )
            .with(Detail::RetryInfo { millis }));
        }
    }
    let request = GroupAccessRequest {
        uid,
        identity_uid: identity.uid.clone(),
        email: identity.email.clone(),
        create_time: before.create_time.or(Some(now)),
        update_time: before.update_time.max(Some(now)),
    };
    let missing = Error::not_found(Group::KIND, group.as_str());
    write.require_or_fail(Require::Exists(Key::new(Group::KIND.name, group.clone())), missing);
    match stored {
        Some(record) => write.replace(&record, &request, Bytes::new())?,
        None => write.put(&request.uid, &request, Bytes::new())?,
    }
    cx.commit(write).await.map(drop)
}

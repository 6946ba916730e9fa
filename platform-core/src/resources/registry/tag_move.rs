//! The history of tags: the images that they have referred to (`docs/api.md`, Tags).

use platform_engine::{
    context::Context,
    error::Result,
    kind::{DerivedKey, Field, Kind, Method, Param, Parent, Resource},
    store::{Filter, KeyValue},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::{domain, field},
    Digest, Tag,
};
use crate::capabilities::cap;

/// A create of a tag, or its move to another image. Our own kind: version 2 of the contract shows no history. It is here,
/// although only version 1 shows it, because [`Tag`] writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TagMove {
    /// The uid of the tag and a segment.
    pub uid: Uid,
    /// The digest of the image that the tag refers to from then on.
    pub digest: Digest,
    /// When it was moved.
    pub create_time: Option<Timestamp>,
}

impl Resource for TagMove {
    const KIND: &'static Kind = &Kind::new("TagMove", "tagMoves", "TagMovesService", domain::REGISTRY)
        .parent(Parent::Of(Tag::KIND))
        .unlimited()
        .methods(&[Method::list(&[cap("tag.list")])
            .order("createTime desc")
            .params(&[
                Param::narrow(Field::timestamp("start").about("Only moves at this time or later.")),
                Param::narrow(Field::timestamp("end").about("Only moves before this time.")),
            ])
            .narrow(between)
            .unserved()])
        .fields(&[
            Field::UID,
            field::digest("digest").about("The digest of the image that the tag refers to from then on.").output_only(),
            Field::CREATE_TIME,
        ])
        .keys(&[
            DerivedKey::new("time", |body| vec![KeyValue::integer(time_of(body.get("createTime")))]),
            // The store compares keys only with lower bounds.
            DerivedKey::new("timeBackwards", |body| vec![KeyValue::integer(-time_of(body.get("createTime")))]),
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque(
                "63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210/0123456789abcdef",
            ),
            digest: Digest::opaque(format!("sha256:{}", "0123456789abcdef".repeat(4))),
            create_time: Some(Timestamp::EPOCH),
        }
    }
}

impl TagMove {
    /// Adds the move of a tag to the image with this digest. A tag at the maximum depth of the hierarchy has no
    /// history.
    ///
    /// # Errors
    /// INTERNAL when it cannot be written as JSON.
    pub(super) fn record(cx: &Context<'_>, tag: &Uid, digest: Digest, write: &mut Write) -> Result<()> {
        if tag.ancestry().count() >= Uid::MAX_SEGMENTS {
            return Ok(());
        }
        let uid = tag.new_child(cx.platform().entropy());
        write.put(&uid.clone(), &Self { uid, digest, create_time: Some(cx.now()) }, bytes::Bytes::new())
    }
}

/// Returns the filters for moves within a period.
fn between(params: &Map<String, Value>) -> Vec<Filter> {
    let bound = |name: &str| params.get(name).map(|time| time_of(Some(time)));
    let start = bound("start").map(|start| Filter::Above { key: "time", value: KeyValue::integer(start - 1) });
    let end = bound("end").map(|end| Filter::Above { key: "timeBackwards", value: KeyValue::integer(-end) });
    start.into_iter().chain(end).collect()
}

/// Returns a time in milliseconds.
fn time_of(time: Option<&Value>) -> i64 {
    let time = time.and_then(Value::as_str).and_then(|time| Timestamp::parse(time).ok());
    time.map_or(0, Timestamp::millis)
}

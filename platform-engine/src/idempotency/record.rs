//! The records of replies that are kept for repetitions.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{IdempotencyKey, KEPT_MILLIS};
use crate::{
    access::{Caller, RegistrationId},
    entropy::Entropy,
    error::{Error, Result},
    etag::{Reply, Tag, UNCOMMITTED},
    kind::{Domain, Field, Kind, Registered, Resource},
    options::Preconditions,
    seal::SealKeys,
    store::{Key, Record},
    timestamp::Timestamp,
    uid::Uid,
};

/// The kind of the records, for copies of a store. It has no methods, and no platform serves it.
pub const RECORDS: Registered = Registered::of::<Recorded>();

/// A request with a key: two requests are the same if they have the same hash.
#[derive(Debug)]
pub(crate) struct Request {
    key: IdempotencyKey,
    hash: [u8; 32],
}

impl Request {
    /// Returns a request of this caller. `method` names the method and the resource or the parent. JSON objects are equal
    /// whatever the order of their names.
    pub(crate) fn new(
        key: &IdempotencyKey,
        caller: &Caller,
        method: &[&str],
        preconditions: &Preconditions,
        body: &Map<String, Value>,
    ) -> Self {
        let mut hash = Sha256::new();
        // Short values cannot be guessed from the hash without the key.
        add(&mut hash, key.as_str().as_bytes());
        add(&mut hash, caller.version.unwrap_or_default().as_bytes());
        add(&mut hash, &method.len().to_be_bytes());
        method.iter().for_each(|part| add(&mut hash, part.as_bytes()));
        add(&mut hash, format!("{preconditions:?}").as_bytes());
        add_object(&mut hash, body);
        Self { key: key.clone(), hash: hash.finalize().into() }
    }

    /// Returns the key of the record of this request. It is in the organization of the identity, of which the commit
    /// requires something anyway, and belongs to one registration of a person.
    pub(crate) fn record_key(&self, identity: &Uid, registration: Option<RegistrationId>) -> Key {
        let mut hash = Sha256::new();
        let registration = registration.map(|id| id.to_string()).unwrap_or_default();
        for part in ["idempotency", identity.as_str(), &registration, self.key.as_str()] {
            add(&mut hash, part.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let half = digest.first_chunk::<16>().copied().unwrap_or_default();
        Key::new(Recorded::KIND.name, Uid::opaque(format!("{}/{}", identity.root(), hex::encode(half))))
    }

    /// Returns the record of this request and the sealed reply, whose revision is that of the record if the write has
    /// given it one.
    ///
    /// # Errors
    /// INTERNAL when the platform has no key to seal with.
    pub(crate) fn record(
        &self,
        uid: &Uid,
        now: Timestamp,
        reply: &Reply,
        (keys, entropy): (&SealKeys, &dyn Entropy),
    ) -> Result<(Recorded, Bytes)> {
        let (form, revision) = match &reply.tag {
            None => (Form::Untagged, 0),
            Some(tag) if tag.is_stored() => (Form::Stored, tag.revision()),
            Some(tag) => (Form::Completed, tag.revision()),
        };
        let revision = if revision == UNCOMMITTED { OWN } else { revision };
        let plain = [&[form as u8][..], &revision.to_be_bytes(), &reply.body].concat();
        let sealed = keys.seal(entropy, uid, &plain).map_err(Error::internal)?;
        let recorded = Recorded { uid: uid.clone(), create_time: Some(now), request: hex::encode(self.hash) };
        Ok((recorded, sealed.into()))
    }

    /// Returns the recorded reply.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with the reason `IDEMPOTENCY_KEY_REUSED` if the record is that of another request;
    /// FAILED_PRECONDITION of the type `IDEMPOTENCY_REPLY_LOST` if the reply cannot be read any more.
    pub(crate) fn reply(&self, recorded: &Recorded, record: &Record, keys: &SealKeys) -> Result<Reply> {
        if recorded.request != hex::encode(self.hash) {
            return Err(Error::idempotency_key_reused());
        }
        let plain = keys.open(&record.key.uid, &record.private).ok();
        let parsed = plain.as_deref().and_then(|plain| {
            let (form, rest) = plain.split_first()?;
            let (revision, body) = rest.split_first_chunk()?;
            let revision = match u64::from_be_bytes(*revision) {
                OWN => record.revision,
                revision => revision,
            };
            let tag = match *form {
                form if form == Form::Untagged as u8 => None,
                form if form == Form::Stored as u8 => Some(Tag::of_stored(revision)),
                form if form == Form::Completed as u8 => Some(Tag::of_completed(revision, body)),
                _ => return None,
            };
            Some(Reply { body: Bytes::copy_from_slice(body), tag, is_replayed: true })
        });
        parsed.ok_or_else(|| {
            Error::blocked(
                "IDEMPOTENCY_REPLY_LOST",
                "the request was carried out before, but its reply cannot be read any more; read the resource",
            )
        })
    }
}

/// The revision of a reply that has that of its record.
const OWN: u64 = UNCOMMITTED;

/// The tag of a recorded reply.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Form {
    Untagged,
    Stored,
    Completed,
}

/// Adds a part to a hash so that different parts never give the same input.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update(part.len().to_be_bytes());
    hash.update(part);
}

fn add_object(hash: &mut Sha256, object: &Map<String, Value>) {
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(name, _)| name.as_str());
    add(hash, b"{");
    hash.update(members.len().to_be_bytes());
    for (name, value) in members {
        add(hash, name.as_bytes());
        add_value(hash, value);
    }
}

fn add_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(object) => add_object(hash, object),
        Value::Array(items) => {
            add(hash, b"[");
            hash.update(items.len().to_be_bytes());
            items.iter().for_each(|item| add_value(hash, item));
        }
        Value::String(text) => {
            add(hash, b"\"");
            add(hash, text.as_bytes());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => add(hash, value.to_string().as_bytes()),
    }
}

/// The record of a request that was carried out. Its private part is the sealed reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Recorded {
    uid: Uid,
    create_time: Option<Timestamp>,
    /// The hash of the request, in hex.
    request: String,
}

impl Recorded {
    /// Reads the record of a request.
    ///
    /// # Errors
    /// INTERNAL when the body is malformed.
    pub(crate) fn read(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body).map_err(Error::internal)
    }

    /// Returns whether the reply is not kept any longer.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        let created = self.create_time.map_or(i64::MIN, Timestamp::millis);
        now.millis().saturating_sub(created) >= KEPT_MILLIS
    }
}

impl Resource for Recorded {
    const KIND: &'static Kind = &Kind::new(
        "IdempotencyRecord",
        "idempotencyRecords",
        "IdempotencyRecords",
        Domain::new("idempotency", "platform.idempotency"),
    )
    .fields(&[Field::UID, Field::timestamp("createTime"), Field::string("request")])
    .queue();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/000102030405060708090a0b0c0d0e0f"),
            create_time: Some(Timestamp::EPOCH),
            request: "e3b0c442".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample::Fixed;

    fn key(text: &str) -> IdempotencyKey {
        IdempotencyKey::parse(text.as_bytes()).unwrap()
    }

    fn request(key: &IdempotencyKey, body: &Value) -> Request {
        let caller = Caller::new(Uid::opaque("aa"));
        Request::new(key, &caller, &["Note", "Create", "aa"], &Preconditions::default(), body.as_object().unwrap())
    }

    #[test]
    fn two_requests_are_the_same_whatever_the_order_of_their_fields() {
        let one = request(&key("a"), &json!({ "name": "x", "labels": { "a": [1, null], "b": true } }));
        for (body, is_same) in [
            (json!({ "labels": { "b": true, "a": [1, null] }, "name": "x" }), true),
            (json!({ "name": "x", "labels": { "a": [null, 1], "b": true } }), false),
            (json!({ "name": "x", "labels": { "a": [1, null], "b": "true" } }), false),
            (json!({ "name": "x" }), false),
        ] {
            assert_eq!(request(&key("a"), &body).hash == one.hash, is_same, "{body}");
        }
        assert_ne!(request(&key("b"), &json!({})).hash, request(&key("a"), &json!({})).hash);
    }

    #[test]
    fn a_recorded_reply_is_read_with_the_revision_of_its_record_and_only_for_the_same_request() {
        let keys = SealKeys::new([(1, [1; 32])]);
        let asked = request(&key("a"), &json!({ "name": "x" }));
        let body = Bytes::from_static(b"{\"name\":\"x\"}");
        for (tag, shown) in [
            (None, None),
            (Some(Tag::of_stored(UNCOMMITTED)), Some(Tag::of_stored(7))),
            (Some(Tag::of_stored(3)), Some(Tag::of_stored(3))),
            (Some(Tag::of_completed(UNCOMMITTED, &body)), Some(Tag::of_completed(7, &body))),
        ] {
            let reply = Reply { body: body.clone(), tag, is_replayed: false };
            let key = asked.record_key(&Uid::opaque("aa/bb"), None);
            let (recorded, private) = asked.record(&key.uid, Timestamp::EPOCH, &reply, (&keys, &Fixed)).unwrap();
            assert!(!private.windows(body.len()).any(|part| part == body), "the reply is sealed");
            let record = Record { key, revision: 7, rendering: 1, body: Bytes::new(), private };
            let read = asked.reply(&recorded, &record, &keys).unwrap();
            assert_eq!(read, Reply { body: body.clone(), tag: shown, is_replayed: true });
            let other = request(&self::key("a"), &json!({ "name": "y" }));
            assert_eq!(other.reply(&recorded, &record, &keys).unwrap_err().reason(), "IDEMPOTENCY_KEY_REUSED");
            let lost = SealKeys::new([(2, [2; 32])]);
            assert_eq!(asked.reply(&recorded, &record, &lost).unwrap_err().reason(), "FAILED_PRECONDITION");
        }
    }

    #[test]
    fn a_key_belongs_to_one_identity_and_one_registration() {
        let asked = request(&key("a"), &json!({}));
        let (first, second) = (RegistrationId::draw(&Fixed), None);
        let places = [("aa/bb", second), ("aa/cc", second), ("aa", second), ("aa", Some(first))];
        let mut uids: Vec<_> = places.map(|(uid, id)| asked.record_key(&Uid::opaque(uid), id).uid).into();
        assert!(uids.iter().all(|uid| uid.root() == "aa"));
        uids.sort_unstable();
        uids.dedup();
        assert_eq!(uids.len(), 4);
    }

    #[test]
    fn a_record_expires_after_a_day() {
        let recorded = Recorded { create_time: Some(Timestamp::EPOCH), ..Recorded::default() };
        assert!(!recorded.has_expired(Timestamp::from_millis(KEPT_MILLIS - 1)));
        assert!(recorded.has_expired(Timestamp::from_millis(KEPT_MILLIS)));
    }
}

//! A kind, a clock and a source of randomness for the unit tests of this crate. Those of `platform-testkit` are for
//! another build of it.

use serde::{Deserialize, Serialize};

use crate::{
    access::Capability,
    clock::Clock,
    entropy::Entropy,
    kind::{By, Domain, Field, Kind, Method, Param, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};

/// The capability to list notes.
pub(crate) const LIST: Capability = Capability::new(1_000_000, "CAP_NOTES_LIST", "notes.list");
/// The capability to create notes.
pub(crate) const CREATE: Capability = Capability::new(1_000_001, "CAP_NOTES_CREATE", "notes.create");

/// A clock and a source of randomness that are always the same.
#[derive(Debug)]
pub(crate) struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

impl Entropy for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A note in a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Note {
    pub(crate) uid: Uid,
    pub(crate) name: String,
    pub(crate) create_time: Option<Timestamp>,
    pub(crate) update_time: Option<Timestamp>,
}

impl Resource for Note {
    const KIND: &'static Kind = &Kind::new("Note", "notes", "NotesService", Domain::new("notes", "test.notes"))
        .parent(Parent::Group)
        .methods(&[Method::list(&[LIST]).params(&[
            Param::exact("name").about("Only notes with exactly this name."),
            Param::new(Field::timestamp("updatedSince"), By::Above("updateTime")),
            Param::narrow(Field::bool("includeDates")),
        ])])
        .fields(&[
            Field::UID,
            Field::string("name").about("The name.").required().sort(&["name"]),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "a note".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

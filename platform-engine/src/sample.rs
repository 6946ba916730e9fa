//! A kind for the unit tests of this crate.

use serde::{Deserialize, Serialize};

use crate::{
    access::cap,
    kind::{By, Domain, Field, Kind, Method, Param, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};

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
    const KIND: &'static Kind = &Kind::new("Note", "notes", "NotesService", Domain("notes"))
        .parent(Parent::Group)
        .methods(&[Method::list(&[cap("repo.list")]).params(&[
            Param::exact("name").about("Only notes with exactly this name."),
            Param { field: Field::timestamp("updatedSince"), by: By::Above("updateTime") },
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

//! Tickets: your own kind of resource, defined completely in this file.

use platform_core::{
    access::cap,
    kind::{Domain, Field, Kind, Method, Param, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

/// A task in a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ticket {
    /// The uid of the group and one more segment.
    pub(crate) uid: Uid,
    /// A short description of the task.
    pub(crate) title: String,
    /// The state of the task.
    pub(crate) state: State,
    /// When it was created.
    pub(crate) create_time: Option<Timestamp>,
    /// When it was last updated.
    pub(crate) update_time: Option<Timestamp>,
}

/// State of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    /// Not specified.
    #[default]
    #[serde(rename = "STATE_UNSPECIFIED")]
    Unspecified,
    /// Not done yet.
    #[serde(rename = "STATE_OPEN")]
    Open,
    /// Done.
    #[serde(rename = "STATE_DONE")]
    Done,
}

const STATES: &[&str] = &["STATE_UNSPECIFIED", "STATE_OPEN", "STATE_DONE"];

impl Resource for Ticket {
    const KIND: &'static Kind =
        &Kind::new("Ticket", "tickets", "TicketsService", Domain::new("tickets", "example.tickets"))
            .parent(Parent::Group)
            .methods(&[
                Method::list(&[cap("repo.list")]).params(&[Param::exact("state")]),
                Method::get(&[cap("repo.list")]),
                Method::create(&[cap("repo.create")]).event("tickets.ticket.created.v1"),
                Method::update(&[cap("repo.update")]).event("tickets.ticket.updated.v1"),
                Method::delete(&[cap("repo.delete")]).event("tickets.ticket.deleted.v1"),
            ])
            .fields(&[
                Field::UID,
                Field::string("title").required().sort(&["title"]),
                Field::enumeration("state", STATES).sort(&["state"]),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
            ]);

    fn example() -> Self {
        Self { title: "water the plants".to_owned(), state: State::Open, ..Self::default() }
    }
}

//! Tickets: a kind of your own, with its own domain, capabilities, events and action, all in this file.

use platform_engine::{
    BoxFuture,
    access::Capability,
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, By, Domain, Field, Handler, Http, Kind, Method, Param, Parent, Resource, Unique},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

/// Paths begin with `/tickets/v1/`, the protobuf package is `example.tickets.v1`, and the types of events begin with
/// `com.example`.
const TICKETS: Domain = Domain::new("tickets", "example.tickets").event_prefix("com.example");

// Numbers of your own are 1,000,000 to 1,000,255. Tokens contain them, so never reuse one.
const LIST: Capability =
    Capability::new(1_000_000, "CAP_TICKETS_LIST", "tickets.list").in_roles(&["owner", "editor", "viewer"]);
const WRITE: Capability =
    Capability::new(1_000_001, "CAP_TICKETS_WRITE", "tickets.write").in_roles(&["owner", "editor"]);
const CLOSE: Capability = Capability::new(1_000_002, "CAP_TICKETS_CLOSE", "tickets.close").in_roles(&["owner"]);

/// A task in a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ticket {
    /// The uid of the group and one more segment.
    pub uid: Uid,
    /// A short description of the task, unique among the tickets of the group.
    pub title: String,
    /// The state of the task.
    pub state: State,
    /// The time when the task was closed.
    pub close_time: Option<Timestamp>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

/// The state of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum State {
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
    const KIND: &'static Kind = &Kind::new("Ticket", "tickets", "TicketsService", TICKETS)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[LIST]).order("title").params(&[
                Param::new(Field::enumeration("state", STATES), By::Value("state"))
                    .about("Only tickets in this state."),
                Param::exact("title").about("Only tickets with exactly this title."),
            ]),
            Method::get(&[LIST]),
            Method::create(&[WRITE]).event("ticket.created.v1"),
            Method::update(&[WRITE]).event("ticket.updated.v1"),
            Method::delete(&[WRITE]).event("ticket.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            Field::string("title").about("A short description of the task.").required().max_len(200).sort(&["title"]),
            Field::enumeration("state", STATES).about("The state of the task.").sort(&["state"]),
            Field::timestamp("closeTime").about("When the ticket was closed.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::in_parent("ticket.title", "A ticket of this title in the group", "title").by(&["title"])])
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::typed::<CloseTicket>("CloseTicket", Http::Post, "tickets/{uid=**}:close")
            .previewed()
            .authorization(Authorization::At("uid", &[CLOSE]))
            .event("ticket.closed.v1")];

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            title: "water the plants".to_owned(),
            state: State::Done,
            close_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The request of the action `CloseTicket`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CloseTicket {
    /// The uid of the ticket.
    pub uid: Uid,
}

impl Handler for CloseTicket {
    const REQUEST: &'static [Field] = &[Field::string("uid").about("The uid of the ticket.").required()];
    const RESPONSE: &'static [Field] = Ticket::KIND.fields;
    type Request = Self;
    type Response = Ticket;

    fn run<'a>(cx: &'a Context<'a>, request: Self) -> BoxFuture<'a, Result<Ticket>> {
        Box::pin(async move {
            let now = cx.now();
            cx.modify::<Ticket>("CloseTicket", &request.uid, |ticket| {
                if ticket.state == State::Done {
                    return Err(Error::blocked("TICKET_CLOSED", "the ticket is already closed"));
                }
                ticket.state = State::Done;
                ticket.close_time = Some(now);
                Ok(())
            })
            .await
        })
    }
}

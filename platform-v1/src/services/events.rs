//! Subscriptions to events.

use platform_core::resources::events::Subscription;
use platform_engine::{
    conversion::{Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};

use super::{EVENTS, ITEM_ID, UIDP};

/// The service.
pub const SUBSCRIPTIONS: Registered = Registered::service(
    &Kind::service_of("SubscriptionsV1", "subscriptions", "Subscriptions", EVENTS),
    &[
        Action::create_as::<Message>("Create", "subscriptions/{parentId=**}"),
        Action::list_as::<Filter>("List", "subscriptions"),
        Action::delete_as::<Message>("Delete", "subscriptions/{id=**}"),
    ],
);

struct Message;

impl Conversion for Message {
    type Resource = Subscription;
    const DOMAIN: Domain = EVENTS;
    const PATH: &'static str = "subscriptions";
    const MESSAGE: &'static str = "Subscription";
    const ITEM: &'static str = "subscription";
    const FIELDS: &'static [Field] = &[Subscription::KIND.show("uid").named("id"), Subscription::KIND.show("sink")];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[ITEM_ID, UIDP];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The subscriptions, in the order of their uids.")];
}

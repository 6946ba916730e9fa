//! Roles, whose capabilities are names such as `repo.list`.

use platform_core::resources::iam::Role;
use platform_engine::{
    conversion::{Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};

use super::super::{IAM, UIDP};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("RolesV1", "roles", "Roles", IAM),
    &[
        Action::create_as::<Message>("Create", "roles/{parentId=**}"),
        Action::replace_as::<Message>("Update", "roles/{id=**}"),
        Action::list_as::<Filter>("List", "roles"),
        Action::delete_as::<Message>("Delete", "roles/{id=**}"),
    ],
);

pub(super) struct Message;

impl Conversion for Message {
    type Resource = Role;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "roles";
    const MESSAGE: &'static str = "Role";
    const ITEM: &'static str = "role";
    const FIELDS: &'static [Field] = &[
        Role::KIND.show("uid").named("id"),
        Role::KIND.show("name"),
        Role::KIND.show("description"),
        Role::KIND.show("capabilities").ty(Type::List(&Type::String)),
    ];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        Field::string("id").of("uidp.ids").about("Only the role with this uid."),
        Field::string("name").about("Only roles with exactly this name."),
        Field::string("parent").of("uidp.childrenOf").about("Only roles of this group."),
        UIDP,
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The roles, in the order of their uids.")];
}

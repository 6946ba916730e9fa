//! Invites.

use crate::{
    conversion::{Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
    resources::iam::GroupInvite,
    v1::IAM,
};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("GroupInvitesV1", "groupInvites", "GroupInvites", IAM),
    &[
        Action::create_as::<Message>("Create", "group_invites/{group=**}"),
        Action::list_as::<Filter>("List", "group_invites"),
        Action::delete_as::<Stored>("Delete", "group_invites/{id=**}"),
    ],
);

const ROLE: &[Field] = &[
    Field::string("id").of("uid").about("The uid."),
    Field::string("name").about("The name."),
    Field::string("description").about("The description."),
    Field::strings("capabilities").about("The names of the capabilities."),
];

/// The request and the reply of a create: the request has fields that the reply does not show.
struct Message;

impl Conversion for Message {
    type Resource = GroupInvite;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "group_invites";
    const MESSAGE: &'static str = "GroupInvite";
    const PARENT: &'static str = "group";
    const REQUEST: &'static [Field] = &[
        Field::string("group").of("").about("The group to join."),
        GroupInvite::KIND.show("ttl"),
        GroupInvite::KIND.show("roleUid").named("role"),
        GroupInvite::KIND.show("email"),
        GroupInvite::KIND.show("singleUse"),
    ];
    const FIELDS: &'static [Field] = &[
        GroupInvite::KIND.show("uid").named("id"),
        GroupInvite::KIND.show("expirationTime").named("expiration"),
        GroupInvite::KIND.show("keyId"),
        GroupInvite::KIND.show("role").ty(Type::Message(ROLE)),
        GroupInvite::KIND.show("code"),
    ];
}

/// An invite in a list.
struct Stored;

impl Conversion for Stored {
    type Resource = GroupInvite;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "group_invites";
    const MESSAGE: &'static str = "GroupInvite";
    const FIELDS: &'static [Field] = &[
        GroupInvite::KIND.show("uid").named("id"),
        GroupInvite::KIND.show("expirationTime").named("expiration"),
        GroupInvite::KIND.show("keyId"),
        GroupInvite::KIND.show("role").ty(Type::Message(ROLE)),
        GroupInvite::KIND.show("email"),
        GroupInvite::KIND.show("createTime").named("createdAt"),
        GroupInvite::KIND.show("singleUse"),
    ];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Stored;
    const REQUEST: &'static [Field] = &[
        Field::string("group").of("uidp.descendantsOf").about("Only invites to this group and its descendants."),
        Field::string("id").of("uidp.ids").about("Only the invite with this uid."),
        Field::string("keyId").about("Only the invite with this key identifier."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Stored::FIELDS)))
        .about("The invites, in the order of their uids.")];
}

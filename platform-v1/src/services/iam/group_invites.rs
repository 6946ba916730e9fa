//! Invites.

use platform_core::resources::iam::{Group, GroupInvite, group_invite::INVITER_CAPABILITIES, role};
use platform_engine::{
    context::Context,
    conversion::{self, Conversion, ListConversion},
    error::{Error, Result},
    kind::{Action, Authorization, Domain, Field, Kind, Registered, Resource, Type},
};
use serde_json::{Map, Value};

use super::super::IAM;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("GroupInvitesV1", "groupInvites", "GroupInvites", IAM),
    &[
        Action::create_as::<Message>("Create", "group_invites/{group=**}"),
        Action::rpc("CreateWithGroup", |cx, request| Box::pin(create_with_group(cx, request)))
            .request(&[
                Field::string("group").about("The name of the new organization.").unread(),
                GroupInvite::KIND.show("ttl"),
                GroupInvite::KIND.show("roleUid").named("role"),
                GroupInvite::KIND.show("email"),
                GroupInvite::KIND.show("singleUse"),
            ])
            .response(Message::FIELDS)
            .authorization(Authorization::Anywhere(INVITER_CAPABILITIES))
            .one_commit(),
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

/// Creates an organization that has the name in `group`, and an invite to own it. Only the operator may do so.
async fn create_with_group(cx: &Context<'_>, mut request: Map<String, Value>) -> Result<Value> {
    // Before the fields are checked, so that others get the same error for each request.
    if !cx.is_operator() {
        return Err(Error::denied());
    }
    let name = [("group".to_owned(), request.remove("group").unwrap_or_default())];
    let group = conversion::read(cx, NAME, Group::KIND.fields, name.into_iter().collect())?;
    // The role may be left out, which the kind requires.
    request.entry("role").or_insert_with(|| role::owner_uid().to_string().into());
    let invite = conversion::read(cx, Message::REQUEST, GroupInvite::KIND.fields, request)?;
    let group = serde_json::from_value(group.into()).map_err(Error::internal)?;
    let invite = serde_json::from_value(invite.into()).map_err(Error::internal)?;
    let created = GroupInvite::create_with_organization(cx, group, invite).await;
    let created = created.map_err(|error| conversion::renamed(error, Message::REQUEST))?;
    conversion::shown::<Message>(cx, &created).map(Value::from)
}

const NAME: &[Field] = &[Field::string("group").of("name")];

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

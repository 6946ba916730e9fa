//! Groups.

use platform_core::resources::iam::Group;
use platform_engine::{
    conversion::{ActionConversion, Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};

use super::super::{IAM, UIDP};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("GroupsV1", "groups", "Groups", IAM),
    &[
        Action::create_as::<Message>("Create", "groups/{parent=**}"),
        Action::replace_as::<Message>("Update", "groups/{id=**}"),
        Action::list_as::<Filter>("List", "groups"),
        Action::delete_as::<Message>("Delete", "groups/{id=**}"),
        Action::action_as::<Lookup>("LookupGroup", "groups:lookupGroup"),
        Action::action_as::<RequestAccess>("RequestGroupAccess", "groups/{groupId=**}:requestGroupAccess"),
        Action::action_as::<Eligibility>("CheckEligibility", "groups:checkEligibility"),
    ],
);

pub(super) struct Message;

impl Conversion for Message {
    type Resource = Group;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "groups";
    const MESSAGE: &'static str = "Group";
    const PARENT: &'static str = "parent";
    const ITEM: &'static str = "group";
    const FIELDS: &'static [Field] = &[
        Group::KIND.show("uid").named("id"),
        Group::KIND.show("name"),
        Group::KIND.show("description"),
        Group::KIND.show("resourceLimits"),
        Group::KIND.show("verified"),
        Group::KIND.show("kind"),
        Group::KIND.show("status"),
    ];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        Field::string("id").of("uidp.ids").about("Only the group with this uid."),
        UIDP,
        Field::string("name").about("Only groups with exactly this name."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The groups, in the order of their uids.")];
}

struct Lookup;

impl ActionConversion for Lookup {
    type Resource = Group;
    const ACTION: &'static str = "LookupGroup";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "LookupGroupResponse";
    const REQUEST: &'static [Field] = &[];
    const RESPONSE: &'static [Field] = &[Field::message("group", Message::FIELDS).about("The organization.")];
}

struct RequestAccess;

impl ActionConversion for RequestAccess {
    type Resource = Group;
    const ACTION: &'static str = "RequestGroupAccess";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "RequestGroupAccessResponse";
    const REQUEST: &'static [Field] = &[Field::string("groupId").of("groupUid").about("The group to join.")];
    const RESPONSE: &'static [Field] = &[];
}

struct Eligibility;

impl ActionConversion for Eligibility {
    type Resource = Group;
    const ACTION: &'static str = "CheckEligibility";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "CheckEligibilityResponse";
    const REQUEST: &'static [Field] = &[];
    const RESPONSE: &'static [Field] =
        &[Field::bool("eligible").about("Whether the caller may ask to join an organization.")];
}

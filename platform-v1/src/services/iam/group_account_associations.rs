//! Associations of groups with accounts of cloud providers. An association has the uid of its group.

use platform_core::resources::iam::AccountAssociation;
use platform_engine::{
    conversion::{ActionConversion, Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};

use super::super::IAM;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("GroupAccountAssociationsV1", "accountAssociations", "GroupAccountAssociations", IAM),
    &[
        Action::create_as::<Message>("Create", "account_associations/{group=**}"),
        Action::replace_as::<Message>("Update", "account_associations/{group=**}"),
        Action::list_as::<Filter>("List", "account_associations"),
        Action::delete_as::<Message>("Delete", "account_associations/{group=**}"),
        Action::action_as::<Check>("Check", "account_associations/{group=**}:check"),
    ],
);

struct Message;

impl Conversion for Message {
    type Resource = AccountAssociation;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "account_associations";
    const MESSAGE: &'static str = "AccountAssociations";
    const PARENT: &'static str = "group";
    const FIELDS: &'static [Field] = &[
        // It replaces the parent of a create.
        AccountAssociation::KIND.show("uid").named("group"),
        AccountAssociation::KIND.show("name"),
        AccountAssociation::KIND.show("description"),
        AccountAssociation::KIND.show("amazon"),
        AccountAssociation::KIND.show("google"),
        AccountAssociation::KIND.show("chainguard"),
        AccountAssociation::KIND.show("azure"),
        AccountAssociation::KIND.show("github"),
    ];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        Field::string("group").of("uidp.ids").about("Only the association of this group."),
        Field::string("name").about("Only the association with exactly this name."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The associations, in the order of their groups.")];
}

struct Check;

impl ActionConversion for Check {
    type Resource = AccountAssociation;
    const ACTION: &'static str = "CheckAccountAssociation";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "AccountAssociationsStatus";
    const REQUEST: &'static [Field] = &[
        Field::string("group").of("uid").about("The group."),
        Field::enumeration("accountType", &["UNKNOWN", "GOOGLE", "AMAZON", "AZURE"])
            .of("providerType")
            .about("The provider to check."),
    ];
    const RESPONSE: &'static [Field] = &[
        Field::enumeration("ready", &["UNKNOWN", "Ready", "NotReady"])
            .of("status")
            .about("Whether the provider accepts the association."),
        Field::string("reason").about("Why it is not ready."),
        Field::string("message").about("An explanation for people."),
    ];
}

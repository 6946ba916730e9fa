//! Mappings of an identity provider's groups to roles.

use platform_core::resources::iam::ExternalGroupRoleMapping;
use platform_engine::{
    conversion::{ActionConversion, Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};

use super::super::{IAM, UIDP};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("ExternalGroupRoleMappingsV1", "externalGroupRoleMappings", "ExternalGroupRoleMappings", IAM),
    &[
        Action::create_as::<Message>("Create", "externalGroupRoleMappings/{parentId=**}"),
        Action::get_as::<Message>(
            "Get",
            "externalGroupRoleMappings/{uid=**}",
            &[Field::string("uid").about("The mapping.")],
        ),
        Action::list_as::<Filter>("List", "externalGroupRoleMappings"),
        Action::delete_as::<Message>("Delete", "externalGroupRoleMappings/{id=**}"),
        Action::action_as::<BatchDelete>("BatchDelete", "externalGroupRoleMappings:batchDelete"),
    ],
);

struct Message;

impl Conversion for Message {
    type Resource = ExternalGroupRoleMapping;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "externalGroupRoleMappings";
    const MESSAGE: &'static str = "ExternalGroupRoleMapping";
    const ITEM: &'static str = "mapping";
    const FIELDS: &'static [Field] = &[
        ExternalGroupRoleMapping::KIND.show("uid").named("id"),
        ExternalGroupRoleMapping::KIND.show("identityProviderUid").named("identityProviderUidp"),
        ExternalGroupRoleMapping::KIND.show("externalGroupId"),
        ExternalGroupRoleMapping::KIND.show("roleUid").named("roleUidp"),
        ExternalGroupRoleMapping::KIND.show("scope"),
        ExternalGroupRoleMapping::KIND.show("createTime").named("createdAt"),
    ];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        UIDP,
        Field::string("identityProviderUidp")
            .of("identityProviderUid")
            .about("Only mappings of this identity provider."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The mappings, in the order of their uids.")];
}

struct BatchDelete;

impl ActionConversion for BatchDelete {
    type Resource = ExternalGroupRoleMapping;
    const ACTION: &'static str = "BatchDeleteExternalGroupRoleMappings";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "BatchDeleteExternalGroupRoleMappingsResponse";
    const PATH: &'static str = "externalGroupRoleMappings:batchDelete";
    const REQUEST: &'static [Field] = &[
        Field::string("parentId").of("parent").about("The identity provider whose mappings are deleted."),
        Field::strings("ids").of("names").about("The uids of the mappings."),
    ];
    const RESPONSE: &'static [Field] = &[
        Field::string("parentId").of("parent").about("The identity provider."),
        Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
            .of("externalGroupRoleMappings")
            .about("The mappings that were deleted."),
    ];
}

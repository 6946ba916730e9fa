//! Identities.

use crate::{
    conversion::{Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
    resources::iam::Identity,
    v1::{IAM, UIDP},
};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("IdentitiesV1", "identities", "Identities", IAM),
    &[
        Action::create_as::<Message>("Create", "identities/{parentId=**}"),
        Action::replace_as::<Message>("Update", "identities/{id=**}"),
        Action::list_as::<Filter>("List", "identities"),
        Action::delete_as::<Message>("Delete", "identities/{id=**}"),
    ],
);

struct Message;

impl Conversion for Message {
    type Resource = Identity;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "identities";
    const MESSAGE: &'static str = "Identity";
    const ITEM: &'static str = "identity";
    const FIELDS: &'static [Field] = &[
        Identity::KIND.show("uid").named("id"),
        Identity::KIND.show("name"),
        Identity::KIND.show("description"),
        Identity::KIND.show("createTime").named("createdAt"),
        Identity::KIND.show("updateTime").named("updatedAt"),
        Identity::KIND.show("lastSeenTime").named("lastSeen"),
        Identity::KIND.show("claimMatch"),
        Identity::KIND.show("staticKeys").named("static").ty(Type::Message(STATIC)),
        Identity::KIND.show("servicePrincipal").ty(Type::Enum(SERVICE_PRINCIPALS)),
        Identity::KIND.show("awsIdentity"),
    ];
}

const STATIC: &[Field] = &[
    Field::string("issuer").about("The issuer that the token must have."),
    Field::string("subject").about("The subject that the token must have."),
    Field::string("issuerKeys").about("The public keys, as a JSON Web Key Set in text.").multiline(),
    Field::timestamp("expiration").of("expirationTime").about("When the keys expire."),
    Field::strings("audiences").about("The audience that the token must have, at most one."),
];

const SERVICE_PRINCIPALS: &[&str] = &[
    "UNKNOWN",
    "COSIGNED",
    "INGESTER",
    "CATALOG_SYNCER",
    "APKO_BUILDER",
    "ENTITLEMENT_SYNCER",
    "TENANT_SCANNER",
    "SEDIMENTOLOGY",
    "SKILLUP",
    "MATERIALIZER",
    "MICROFLOW",
    "GUARDENER",
    "MICROVM",
    "SKILLS",
];

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] =
        &[UIDP, Field::string("id").of("uidp.ids").about("Only the identity with this uid.")];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The identities, in the order of their uids.")];
}

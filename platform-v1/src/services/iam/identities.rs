//! Identities.

use platform_core::resources::iam::Identity;
use platform_engine::{
    context::Context,
    conversion::{self, Conversion, ListConversion},
    error::{Error, Result},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};
use serde_json::{Map, Value};

use super::super::{IAM, UIDP};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("IdentitiesV1", "identities", "Identities", IAM),
    &[
        Action::create_as::<Message>("Create", "identities/{parentId=**}"),
        Action::replace_as::<Message>("Update", "identities/{id=**}"),
        Action::list_as::<Filter>("List", "identities"),
        Action::get("Lookup", "identities/lookup", |cx, request| Box::pin(lookup(cx, request)))
            .request(&[
                Field::string("issuer").about("The issuer of the identity's tokens.").required(),
                Field::string("subject").about("The subject of the identity's tokens.").required(),
            ])
            .response(Message::FIELDS),
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
    const CREATED_AS_REQUEST: bool = true;
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

async fn lookup(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let found = Identity::of_claims(cx, text("issuer"), text("subject")).await?;
    let found = found.ok_or_else(|| Error::not_found(Identity::KIND, "the identity with this issuer and subject"))?;
    conversion::shown::<Message>(cx, &found).map(Value::from)
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] =
        &[UIDP, Field::string("id").of("uidp.ids").about("Only the identity with this uid.")];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The identities, in the order of their uids.")];
}

//! Identity providers, and the tokens of their directories.

use platform_core::resources::iam::IdentityProvider;
use platform_engine::{
    conversion::{ActionConversion, Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
};

use super::super::{IAM, UIDP};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("IdentityProvidersV1", "identityProviders", "IdentityProviders", IAM),
    &[
        Action::create_as::<Message>("Create", "identityProviders/{parentId=**}"),
        Action::replace_as::<Message>("Update", "identityProviders/{id=**}"),
        Action::list_as::<Filter>("List", "identityProviders"),
        Action::delete_as::<Message>("Delete", "identityProviders/{id=**}"),
        Action::action_as::<Generate>(
            "GenerateScimToken",
            "identityProviders/{identityProviderId=**}:generateScimToken",
        ),
        Action::action_as::<Regenerate>(
            "RegenerateScimToken",
            "identityProviders/{identityProviderId=**}:regenerateScimToken",
        ),
        Action::action_as::<Revoke>("RevokeScimToken", "identityProviders/{identityProviderId=**}:revokeScimToken"),
        Action::action_as::<SetEnabled>("SetScimEnabled", "identityProviders/{identityProviderId=**}:setScimEnabled"),
    ],
);

struct Message;

impl Conversion for Message {
    type Resource = IdentityProvider;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "identityProviders";
    const MESSAGE: &'static str = "IdentityProvider";
    const ITEM: &'static str = "identityProvider";
    const CREATED_AS_REQUEST: bool = true;
    const FIELDS: &'static [Field] = &[
        IdentityProvider::KIND.show("uid").named("id"),
        IdentityProvider::KIND.show("name"),
        IdentityProvider::KIND.show("description"),
        IdentityProvider::KIND.show("defaultRole"),
        IdentityProvider::KIND.show("oidc"),
        IdentityProvider::KIND.show("scim"),
    ];
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        Field::string("id").of("uidp.ids").about("Only the provider with this uid."),
        Field::string("name").about("Only providers with exactly this name."),
        UIDP,
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The providers, in the order of their uids.")];
}

const PROVIDER: Field = Field::string("identityProviderId").of("identityProviderUid").about("The identity provider.");
const EXPIRE_TIME: Field = Field::timestamp("expireTime").about("When the token expires.");
const NEVER_EXPIRES: Field = Field::bool("neverExpires").about("Whether the token never expires.");
const ETAG: Field = Field::string("etag").about("The version of the SCIM state.");
const TOKEN: Field = Field::string("token").about("The token. Only this response has it.");
const ENDPOINT_URL: Field = Field::string("endpointUrl").about("The base URL for the directory's SCIM client.");
const ENABLED: Field = Field::bool("enabled").about("Whether the directory may provision users.").required();

struct Generate;

impl ActionConversion for Generate {
    type Resource = IdentityProvider;
    const ACTION: &'static str = "GenerateScimToken";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "GenerateScimTokenResponse";
    const PATH: &'static str = "identityProviders";
    const REQUEST: &'static [Field] = &[PROVIDER, EXPIRE_TIME, NEVER_EXPIRES];
    const RESPONSE: &'static [Field] = &[TOKEN, ENDPOINT_URL, EXPIRE_TIME, PROVIDER, ETAG];
}

struct Regenerate;

impl ActionConversion for Regenerate {
    type Resource = IdentityProvider;
    const ACTION: &'static str = "RegenerateScimToken";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "RegenerateScimTokenResponse";
    const PATH: &'static str = "identityProviders";
    const REQUEST: &'static [Field] = &[
        PROVIDER,
        Field::new("overlap", Type::Duration).about("How long the previous token stays valid."),
        EXPIRE_TIME,
        ETAG,
        NEVER_EXPIRES,
    ];
    const RESPONSE: &'static [Field] = &[
        TOKEN,
        ENDPOINT_URL,
        EXPIRE_TIME,
        PROVIDER,
        ETAG,
        Field::timestamp("previousTokenExpireTime").about("When the previous token expires."),
        Field::new("requestedOverlap", Type::Duration).about("The overlap of the request."),
    ];
}

struct Revoke;

impl ActionConversion for Revoke {
    type Resource = IdentityProvider;
    const ACTION: &'static str = "RevokeScimToken";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "RevokeScimTokenResponse";
    const PATH: &'static str = "identityProviders";
    const REQUEST: &'static [Field] = &[PROVIDER];
    const RESPONSE: &'static [Field] =
        &[PROVIDER, ETAG, ENABLED, Field::timestamp("revokeTime").about("When the token was revoked.")];
}

struct SetEnabled;

impl ActionConversion for SetEnabled {
    type Resource = IdentityProvider;
    const ACTION: &'static str = "SetScimEnabled";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "SetScimEnabledResponse";
    const PATH: &'static str = "identityProviders";
    const REQUEST: &'static [Field] = &[PROVIDER, ENABLED, ETAG];
    const RESPONSE: &'static [Field] = &[PROVIDER, ENABLED, ETAG];
}

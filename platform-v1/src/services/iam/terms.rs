//! Acceptances of terms.

use platform_core::resources::iam::TermsAcceptance;
use platform_engine::{
    conversion::ActionConversion,
    kind::{Action, Domain, Field, Kind, Registered, Type},
};

use super::super::IAM;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("TermsV1", "terms", "Terms", IAM),
    &[
        Action::action_as::<Accept>("AcceptTerms", "terms/{group=**}"),
        Action::pages_as::<ListAccepted>("ListAccepted", "terms/{group=**}"),
    ],
);

const GROUP: Field = Field::string("group").about("The group.");

struct Accept;

impl ActionConversion for Accept {
    type Resource = TermsAcceptance;
    const ACTION: &'static str = "AcceptTerms";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "AcceptTermsResponse";
    const PATH: &'static str = "terms";
    const REQUEST: &'static [Field] = &[GROUP, Field::strings("documentIds").about("The documents to accept.")];
    const RESPONSE: &'static [Field] =
        &[GROUP, Field::strings("documentIds").about("The documents that are accepted.")];
}

struct ListAccepted;

impl ActionConversion for ListAccepted {
    type Resource = TermsAcceptance;
    const ACTION: &'static str = "ListTermsAcceptances";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "TermsList";
    const REQUEST: &'static [Field] = &[GROUP];
    const RESPONSE: &'static [Field] = &[Field::new(
        "items",
        Type::List(&Type::Message(&[
            Field::string("docId").about("The document that was accepted."),
            Field::string("acceptedBy").about("The identity that accepted it."),
            Field::timestamp("acceptedAt").of("createTime").about("When it was accepted."),
        ])),
    )
    .of("termsAcceptances")
    .about("The acceptances of the group and its ancestors, oldest first.")];
}

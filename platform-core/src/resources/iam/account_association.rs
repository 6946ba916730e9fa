//! Account associations: the cloud and GitHub accounts of a group (`docs/api.md`, Account associations).

use std::collections::BTreeMap;

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result, Violations},
    event::Draft,
    kind::{Action, Authorization, Change, Field, Kind, Method, Param, Parent, Resource, Type, Verb},
    store::{Key, Require},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::Group;
use super::{
    super::{check, domain, field},
    Identity,
};
use crate::{capabilities::cap, iam::may_give_identity};

/// The accounts of a group at cloud providers and GitHub. A group has at most one, under the group's uid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccountAssociation {
    /// The uid of the group.
    pub uid: Uid,
    /// A display name; need not be unique.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The account at AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amazon: Option<Amazon>,
    /// The project at Google Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub google: Option<Google>,
    /// The identities that the installation's services act as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chainguard: Option<ServiceBindings>,
    /// The tenant at Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Azure>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
    /// The GitHub apps that are installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github: Option<GitHub>,
}

/// An account at AWS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Amazon {
    /// 12 digits.
    pub account: String,
}

/// A project at Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Google {
    /// The project's id.
    pub project_id: String,
    /// The project's number.
    pub project_number: String,
}

/// The identities that the installation's services act as in the group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceBindings {
    /// Maps a service principal's name without its prefix, such as `INGESTER`, to the uid of an identity that is
    /// directly in the group and has that service principal as its relationship.
    pub service_bindings: BTreeMap<String, String>,
}

/// A tenant at Azure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Azure {
    /// The tenant's id.
    pub tenant_id: String,
    /// Maps a component's name to the id of its client.
    pub client_ids: BTreeMap<String, String>,
}

/// Apps at GitHub.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GitHub {
    /// Maps an app's id, an integer, to its installations.
    pub app_installations: BTreeMap<String, GitHubAppInstallations>,
}

/// The installations of an app.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GitHubAppInstallations {
    /// The installations.
    pub installations: Vec<GitHubInstallation>,
}

/// An installation of an app.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GitHubInstallation {
    /// The installation's id, an integer.
    pub installation_id: String,
    /// The name of the account that has the app installed.
    pub name: String,
}

/// A provider of cloud accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum AccountProviderType {
    #[default]
    AccountProviderTypeUnspecified,
    AccountProviderTypeGoogle,
    AccountProviderTypeAmazon,
    AccountProviderTypeAzure,
}

/// The result of a check of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum CheckStatus {
    #[default]
    CheckStatusUnspecified,
    CheckStatusReady,
    CheckStatusNotReady,
}

const INSTALLATION: &[Field] = &[
    Field::new("installationId", Type::Int64).about("The installation's numeric identifier.").required(),
    Field::string("name").about("The GitHub account that has the app installed."),
];

const INSTALLATIONS: &[Field] =
    &[Field::new("installations", Type::List(&Type::Message(INSTALLATION))).about("The installations of the app.")];

const FIELDS: &[Field] = &[
    Field::UID.sort(&["uid", "group"]),
    field::NAME.about("A name for the association."),
    field::DESCRIPTION.about("A description for people."),
    Field::message(
        "amazon",
        &[Field::string("account").about("The AWS account number, 12 digits.").required().check(check::aws_account)],
    )
    .about("An AWS account."),
    Field::message(
        "google",
        &[
            Field::string("projectId").about("The project's identifier.").required(),
            Field::string("projectNumber").about("The project's number.").required(),
        ],
    )
    .about("A Google Cloud project."),
    Field::message(
        "chainguard",
        &[Field::string_map("serviceBindings")
            .about(
                "Maps the short name of a service principal, such as `INGESTER`, to the uid of the identity that it \
                 uses. The identity must be directly in the group.",
            )
            .required()
            .uid_of("Identity")
            .check(services)],
    )
    .about("Service principals that act for the group.")
    .privileged(),
    Field::message(
        "azure",
        &[
            Field::string("tenantId").about("The tenant's identifier.").required(),
            Field::string_map("clientIds")
                .about("Maps a component's name to the identifier of the application that it uses.")
                .required(),
        ],
    )
    .about("An Azure tenant."),
    Field::CREATE_TIME,
    Field::UPDATE_TIME,
    Field::message(
        "github",
        &[Field::new("appInstallations", Type::Map(&Type::Message(INSTALLATIONS)))
            .about("Maps an app's identifier to its installations.")
            .check(app_ids)],
    )
    .about("Installations of GitHub apps."),
];

impl Resource for AccountAssociation {
    const KIND: &'static Kind =
        &Kind::new("AccountAssociation", "accountAssociations", "AccountAssociationsService", domain::IAM)
            .parent(Parent::Sole(Group::KIND))
            .methods(&[
                Method::list(&[cap("account_associations.list")])
                    .order("group")
                    .params(&[Param::exact("name").about("Only the association with exactly this name.")]),
                Method::get(&[cap("account_associations.list")]),
                Method::create(&[cap("account_associations.create")]).event("iam.account_associations.created.v1"),
                Method::update(&[cap("account_associations.update")]).event("iam.account_associations.updated.v1"),
                Method::delete(&[cap("account_associations.delete")]).event("iam.account_associations.deleted.v1"),
            ])
            .fields(FIELDS)
            .cascade();

    const ACTIONS: &'static [Action] = &[Action::post(
        "CheckAccountAssociation",
        "accountAssociations/{uid=**}:checkAccountAssociation",
        |cx, request| Box::pin(check_association(cx, request)),
    )
    .request(&[
        field::uid("uid").about("The association's uid, which is that of its group.").required(),
        Field::enumeration("providerType", AccountProviderType::VARIANTS).about("Which provider to check.").required(),
    ])
    .response(&[
        Field::enumeration("status", CheckStatus::VARIANTS).about("Whether the provider accepts the association."),
        Field::string("reason").about("Why it is not ready."),
        Field::string("message").about("An explanation for people."),
    ])
    .authorization(Authorization::At("uid", &[cap("account_associations.list")]))];

    fn example() -> Self {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        let installation =
            GitHubInstallation { installation_id: "51482395".to_owned(), name: "example-code".to_owned() };
        Self {
            uid: Uid::opaque(group),
            name: "example".to_owned(),
            description: "The accounts of the example organization".to_owned(),
            amazon: Some(Amazon { account: "123456789012".to_owned() }),
            google: Some(Google { project_id: "example-project".to_owned(), project_number: "123456789".to_owned() }),
            chainguard: Some(ServiceBindings {
                service_bindings: [("INGESTER".to_owned(), format!("{group}/0123456789abcdef"))].into(),
            }),
            azure: Some(Azure {
                tenant_id: "10000000-0000-0000-0000-000000000000".to_owned(),
                client_ids: [("canary".to_owned(), "20000000-0000-0000-0000-000000000000".to_owned())].into(),
            }),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            github: Some(GitHub {
                app_installations: [(
                    "424242".to_owned(),
                    GitHubAppInstallations { installations: vec![installation] },
                )]
                .into(),
            }),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let bindings = |association: Option<&Self>| association.and_then(|found| found.chainguard.clone());
            let (before, after) = (bindings(change.old.as_ref()), bindings(change.new.as_ref()));
            let Some(after) = after.filter(|after| Some(after) != before.as_ref()) else { return Ok(()) };
            let uids: Vec<_> = after.service_bindings.values().map(|uid| Uid::opaque(uid.as_str())).collect();
            let found = cx.read_all::<Identity>(uids.clone()).await?;
            let mut violations = Violations::default();
            for ((service, uid), identity) in after.service_bindings.keys().zip(uids).zip(found) {
                let field = format!("chainguard.serviceBindings.{service}");
                let rule = "must be an identity directly in the group whose relationship is that service principal";
                let is_for_service = |identity: &Identity| identity.service_principal.short_name() == *service;
                if uid.parent().as_ref() == Some(&change.uid) && identity.as_ref().is_some_and(is_for_service) {
                    let gone = Error::invalid_field(field, rule);
                    change.write.require_or_fail(Require::Exists(Key::new(Identity::KIND.name, uid)), gone);
                } else {
                    violations.add(field, rule);
                }
            }
            violations.none_or(())?;
            // A service acts as the identity that it is bound to.
            let before = before.unwrap_or_default().service_bindings;
            for (service, uid) in &after.service_bindings {
                if before.get(service) != Some(uid) {
                    may_give_identity(cx, &Uid::opaque(uid.as_str()), &mut change.write).await?;
                }
            }
            Ok(())
        })
    }

    /// Addresses the event to the group itself, whose uid the association has. The event of a delete has no body.
    fn customize_event(event: &mut Draft) {
        event.group.clone_from(&event.subject);
        if event.verb == Some(Verb::Delete) {
            event.body.clear();
        }
    }
}

/// Requires short names of service principals as keys and uids as values.
fn services(value: &Value) -> std::result::Result<(), String> {
    for (service, uid) in value.as_object().into_iter().flatten() {
        if !super::identity::is_service(service) {
            return Err(format!("unknown service {service:?}; must be a name such as INGESTER"));
        }
        check::uid(uid)?;
    }
    Ok(())
}

/// Requires integers of 64 bits as keys.
fn app_ids(value: &Value) -> std::result::Result<(), String> {
    let is_id = |key: &String| key.parse::<i64>().is_ok_and(|id| id.to_string() == *key);
    if value.as_object().into_iter().flat_map(Map::keys).all(is_id) {
        Ok(())
    } else {
        Err("must have app ids as keys, which are integers".to_owned())
    }
}

/// Returns whether a provider is configured. The status is never READY, because nothing is sent to a provider.
///
/// # Errors
/// NOT_FOUND when the group has no association. A provider that is not configured is not an error.
async fn check_association(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let uid = Uid::opaque(text("uid"));
    let association = cx.read::<AccountAssociation>(&uid).await?;
    let association = association.ok_or_else(|| Error::not_found(AccountAssociation::KIND, uid.as_str()))?;
    let provider = request.get("providerType").map(AccountProviderType::deserialize).transpose();
    let configured = match provider.map_err(Error::internal)?.unwrap_or_default() {
        AccountProviderType::AccountProviderTypeGoogle => association.google.is_some(),
        AccountProviderType::AccountProviderTypeAmazon => association.amazon.is_some(),
        AccountProviderType::AccountProviderTypeAzure => association.azure.is_some(),
        // The field is required.
        AccountProviderType::AccountProviderTypeUnspecified => false,
    };
    let (reason, message) = if configured {
        (
            "not checked",
            "The configuration for this provider is well formed. This installation does not exchange credentials with \
             providers, so it is unknown whether the provider accepts them",
        )
    } else {
        ("not configured", "The association has no configuration for this provider")
    };
    Ok(json!({ "status": CheckStatus::CheckStatusNotReady, "reason": reason, "message": message }))
}

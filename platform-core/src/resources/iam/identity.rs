//! Identities: the callers of the platform (`docs/api.md`, Identities).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use platform_engine::{
    BoxFuture,
    access::{Capability, RegistrationId, Revocations},
    context::Context,
    error::{Error, Result, Violations},
    kind::{Action, By, Change, DerivedKey, Field, Kind, Method, Param, Parent, Resource, Roots, Verb},
    store::{Delete, KeyValue},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantNames};

use super::{
    super::{check, domain, field},
    names::ROLE_BINDING,
    owner, person_uid,
};
use crate::{
    capabilities::cap,
    iam::{identity_epoch, may_give_identity},
    pattern::Pattern,
};

mod lookup;
mod organizations;
mod revocation;
mod static_keys;

pub use static_keys::StaticKeyPolicy;

pub(crate) use organizations::{
    add_binding, bindings_of, organizations_before, organizations_of, private_in, remove_binding, search,
};
pub(crate) use revocation::{check_not_revoked, end_session, revocations_of};

/// The capability to list identities.
const LIST: &[Capability] = &[cap("identity.list")];

/// A caller of the platform: a service account of a group, assumable with tokens that match its relationship, or a
/// registered person, whose uid has one segment. A group's identity can only access its group and the group's
/// descendants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// The uid of the group and a segment; for a registered person one segment, derived from issuer and subject.
    pub uid: Uid,
    /// A display name; need not be unique.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The email address, if the issuer has verified it.
    pub email: String,
    /// The email address, if the issuer has not verified it.
    pub email_unverified: String,
    /// The company that the identity belongs to.
    pub company: String,
    /// When the identity last got a token, updated at most once an hour; initially the creation time.
    pub last_seen_time: Option<Timestamp>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
    /// Assumable with tokens whose claims match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_match: Option<ClaimMatch>,
    /// Assumable with tokens signed by these keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_keys: Option<StaticKeys>,
    /// Assumable by an identity of AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_identity: Option<AwsIdentity>,
    /// Assumable by a service of the installation.
    pub service_principal: ServicePrincipal,
}

/// The required claims of a token: the issuer or a pattern of it, the subject or a pattern of it, and all further
/// claims.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimMatch {
    /// The issuer.
    pub issuer: String,
    /// A pattern that the issuer must match.
    pub issuer_pattern: String,
    /// The subject.
    pub subject: String,
    /// A pattern that the subject must match.
    pub subject_pattern: String,
    /// The audience; the installation's own if this and the pattern are empty.
    pub audience: String,
    /// A pattern that the audience must match.
    pub audience_pattern: String,
    /// Further claims and their values.
    pub claims: BTreeMap<String, String>,
    /// Further claims and patterns that their values must match.
    pub claim_patterns: BTreeMap<String, String>,
}

/// Keys that sign tokens for this identity only, whichever issuer the tokens name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StaticKeys {
    /// The required issuer of the tokens.
    pub issuer: String,
    /// The required subject of the tokens.
    pub subject: String,
    /// The public keys: a JWK Set as JSON text.
    pub issuer_keys: String,
    /// When the keys expire; at most, and by default, 365 days after they are set.
    pub expiration_time: Option<Timestamp>,
    /// The required audience of the tokens, at most one; the installation's own if empty.
    pub audiences: Vec<String>,
}

/// An identity of AWS: the account, the ARN or a pattern of it, and the user id or a pattern of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsIdentity {
    /// The account, 12 digits.
    pub aws_account: String,
    /// The ARN.
    pub arn: String,
    /// A pattern that the ARN must match.
    pub arn_pattern: String,
    /// The user id.
    pub user_id: String,
    /// A pattern that the user id must match.
    pub user_id_pattern: String,
}

/// A service of the installation. An identity with a service principal cannot be assumed with a token; the value is
/// only stored and returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum ServicePrincipal {
    #[default]
    ServicePrincipalUnspecified,
    ServicePrincipalCosigned,
    ServicePrincipalIngester,
    ServicePrincipalCatalogSyncer,
    ServicePrincipalApkoBuilder,
    ServicePrincipalEntitlementSyncer,
    ServicePrincipalTenantScanner,
    ServicePrincipalSedimentology,
    ServicePrincipalSkillup,
    ServicePrincipalMaterializer,
    ServicePrincipalMicroflow,
    ServicePrincipalGuardener,
    ServicePrincipalMicrovm,
    ServicePrincipalSkills,
}

impl ServicePrincipal {
    /// Returns the name without the common prefix, such as `INGESTER`.
    pub fn short_name(self) -> String {
        let name = serde_json::to_value(self).unwrap_or_default();
        name.as_str().and_then(|name| name.strip_prefix(PREFIX)).unwrap_or_default().to_owned()
    }
}

/// The common prefix of the names of service principals.
const PREFIX: &str = "SERVICE_PRINCIPAL_";

/// Returns whether this is the name of a service principal without the common prefix.
pub(super) fn is_service(short_name: &str) -> bool {
    ServicePrincipal::VARIANTS.iter().skip(1).any(|name| name.strip_prefix(PREFIX) == Some(short_name))
}

/// The type of a relationship, which lists can filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum RelationshipType {
    RelationshipTypeUnspecified,
    RelationshipTypeClaimMatch,
    RelationshipTypeStatic,
    RelationshipTypeAwsIdentity,
    RelationshipTypeServicePrincipal,
}

/// The field of each type of relationship.
const RELATIONSHIPS: [(&str, RelationshipType); 4] = [
    ("claimMatch", RelationshipType::RelationshipTypeClaimMatch),
    ("staticKeys", RelationshipType::RelationshipTypeStatic),
    ("awsIdentity", RelationshipType::RelationshipTypeAwsIdentity),
    ("servicePrincipal", RelationshipType::RelationshipTypeServicePrincipal),
];

/// The maximum lifetime of static keys: 365 days.
const STATIC_KEYS_MILLIS: i64 = 365 * 24 * 60 * 60 * 1000;

impl Identity {
    /// Returns whether it can be assumed: whether it is a registered person, or a token can prove its relationship.
    pub(super) fn is_assumable(&self, now: Timestamp) -> bool {
        let by_keys = self.static_keys.as_ref().is_some_and(|keys| keys.expiration_time.is_some_and(|end| now < end));
        let has_no_relationship = self.service_principal == ServicePrincipal::default()
            && self.static_keys.is_none()
            && self.aws_identity.is_none();
        self.claim_match.is_some() || by_keys || (self.uid.is_root() && has_no_relationship)
    }

    /// Returns the subject that the identity's tokens must have; empty if there is only a pattern or no such rule.
    pub fn subject(&self) -> &str {
        let matched = self.claim_match.as_ref().map(|claims| claims.subject.as_str());
        matched.or_else(|| self.static_keys.as_ref().map(|keys| keys.subject.as_str())).unwrap_or_default()
    }

    /// Returns the issuer that the identity's tokens must have; empty if there is only a pattern or no such rule.
    pub fn issuer(&self) -> &str {
        let matched = self.claim_match.as_ref().map(|claims| claims.issuer.as_str());
        matched.or_else(|| self.static_keys.as_ref().map(|keys| keys.issuer.as_str())).unwrap_or_default()
    }

    /// Returns the fields that determine which tokens can assume the identity, including expiration times.
    fn relationship(&self) -> impl PartialEq + '_ {
        (&self.claim_match, &self.static_keys, &self.aws_identity, self.service_principal)
    }
}

/// Returns the caller's identity as it was read with its grants.
///
/// # Errors
/// INTERNAL when the platform has another authority than [`RoleBindings`](crate::iam::RoleBindings).
pub(super) fn of_caller<'c>(cx: &'c Context<'_>) -> Result<&'c Identity> {
    cx.grants().record().ok_or_else(|| Error::internal("the grants have no identity"))
}

impl Resource for Identity {
    const KIND: &'static Kind = &Kind::new("Identity", "identities", "IdentitiesService", domain::IAM)
        .parent(Parent::Group)
        .methods(&[
            Method::list(LIST).params(&[
                Param::exact("name").about("Only identities with exactly this name."),
                Param::new(
                    Field::enumeration("relationshipType", RelationshipType::VARIANTS)
                        .about("Only identities that are assumed in this way."),
                    By::Value("relationshipType"),
                ),
            ]),
            Method::get(LIST),
            Method::create(&[cap("identity.create")]).event("iam.identity.created.v1"),
            Method::update(&[cap("identity.update")]).event("iam.identity.updated.v1"),
            Method::delete(&[cap("identity.delete")]).event("iam.identity.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            field::NAME.about("The identity's name, as `^[a-z0-9 ._-]{1,}$`."),
            field::DESCRIPTION.about("A description for people."),
            Field::string("email")
                .about("The person's email address, verified by the issuer.")
                .output_only()
                .findable(),
            Field::string("emailUnverified")
                .about("The person's email address, when the issuer has not verified it.")
                .output_only()
                .findable(),
            Field::string("company")
                .about("The company that the identity belongs to.")
                .max_len(check::MAX_DESCRIPTION)
                .check(check::description),
            Field::timestamp("lastSeenTime")
                .about("When the identity last got a token, updated at most once an hour.")
                .output_only()
                .sort(&["lastSeenTime", "lastSeen"]),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
            Field::message("claimMatch", CLAIM_MATCH)
                .about("Assumed with a token of an OpenID Connect issuer whose claims match.")
                .oneof("relationship")
                .privileged(),
            Field::message("staticKeys", STATIC_KEYS)
                .about("Assumed with a token signed by one of these keys.")
                .oneof("relationship")
                .privileged(),
            Field::message("awsIdentity", AWS_IDENTITY)
                .about("Assumed with a signed request to AWS that identifies the caller there.")
                .oneof("relationship")
                .privileged(),
            Field::enumeration("servicePrincipal", ServicePrincipal::VARIANTS)
                .about("Assumed by a service of the installation.")
                .oneof("relationship")
                .privileged(),
        ])
        .keys(&[DerivedKey::new("relationshipType", relationship_type), lookup::CLAIMS])
        .roots(Roots::Personal);

    const ACTIONS: &'static [Action] = &[
        Action::get("LookupIdentity", "identities:lookupIdentity", |_, request| Box::pin(lookup(request)))
            .request(&[
                Field::string("issuer").about("The issuer of the person's tokens.").required(),
                Field::string("subject").about("The subject of the person's tokens.").required(),
            ])
            .response(&[Field::string("uid").about("The uid that the person has, or would have once registered.")]),
        revocation::REVOKE,
    ];

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // The registration of a person, which is not a credential, the organizations, and the ids of revoked tokens.
        Ok(private)
    }

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "ci".to_owned(),
            description: "Builds and pushes images".to_owned(),
            email: "ci@example.com".to_owned(),
            email_unverified: "ci@mail.example.com".to_owned(),
            company: "Example".to_owned(),
            last_seen_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            claim_match: Some(ClaimMatch {
                issuer: "https://issuer.example.com".to_owned(),
                subject: "repo:example/app".to_owned(),
                ..ClaimMatch::default()
            }),
            ..Self::default()
        }
    }

    fn validate(&self, violations: &mut Violations) {
        let forms = usize::from(self.claim_match.is_some())
            + usize::from(self.static_keys.is_some())
            + usize::from(self.aws_identity.is_some())
            + usize::from(self.service_principal != ServicePrincipal::default());
        // A registered person acts with a token of an issuer that the operator trusts, and needs no relationship.
        if forms != 1 && !(forms == 0 && self.uid.is_root()) {
            violations.add(
                "relationship",
                format!("must be exactly one of {}", RELATIONSHIPS.map(|(field, _)| field).join(", ")),
            );
        }
        if let Some(claims) = &self.claim_match {
            claims.validate(violations);
        }
        if let Some(aws) = &self.aws_identity {
            one_of(violations, "awsIdentity", [("arn", &aws.arn), ("arnPattern", &aws.arn_pattern)]);
            one_of(violations, "awsIdentity", [("userId", &aws.user_id), ("userIdPattern", &aws.user_id_pattern)]);
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let sets_expiration = change.sets("staticKeys.expirationTime");
            if change.verb != Verb::Create {
                change.write.raise(identity_epoch(&change.uid));
            }
            let before = change.old.as_ref().filter(|old| old.is_assumable(cx.now()));
            let now_assumable = change.new.as_ref().is_some_and(|new| new.is_assumable(cx.now()));
            if change.new.is_none() && cx.platform().settings().operators.contains(&change.uid) {
                return Err(Error::blocked("OPERATOR", "cannot delete an operator of the installation"));
            }
            if before.is_some() && !now_assumable {
                owner::keep_without_identity(cx, &change.uid, &mut change.write).await?;
            }
            let Some(identity) = &mut change.new else {
                let of_identity = KeyValue::text(&change.uid);
                change.write.delete(Delete::With(ROLE_BINDING, "identityUid", of_identity));
                return Ok(());
            };
            if change.verb == Verb::Create {
                identity.last_seen_time = identity.create_time;
            }
            if let Some(keys) = &mut identity.static_keys {
                static_keys::check(cx, change.old.as_ref().and_then(|old| old.static_keys.as_ref()), keys)?;
                let latest = cx.now().plus_millis(STATIC_KEYS_MILLIS);
                let expiration = *keys.expiration_time.get_or_insert(latest);
                if sets_expiration && expiration > latest {
                    let mut violations = Violations::default();
                    violations.add("staticKeys.expirationTime", "must be at most 365 days from now");
                    violations.none_or(())?;
                }
            }
            let same = change.old.as_ref().is_none_or(|old| old.relationship() == identity.relationship());
            // A registered person acts with a token of their issuer, whatever the relationship is.
            if same || change.uid.is_root() {
                return Ok(());
            }
            may_give_identity(cx, &change.uid, &mut change.write).await
        })
    }
}

/// The maximum number of claims that an identity matches by a pattern. Our choice, so that matching a token is fast.
const MAX_CLAIM_PATTERNS: usize = 16;

/// The private part of an identity, which is stored and never returned.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Private {
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationId>,
    /// The organizations with role bindings; see `organizations.rs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    organizations: Option<BTreeSet<Uid>>,
    #[serde(skip_serializing_if = "Revocations::is_empty")]
    revocations: Revocations,
    /// The values of a later release, which are kept.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl Private {
    fn read(private: &[u8]) -> Result<Self> {
        if private.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(private).map_err(Error::internal)
    }

    fn write(&self) -> Result<Bytes> {
        serde_json::to_vec(self).map(Bytes::from).map_err(Error::internal)
    }
}

/// Returns the private part of a new registered person, who is already bound in these organizations.
pub(crate) fn private_of(registration: RegistrationId, organizations: BTreeSet<Uid>) -> Result<Bytes> {
    Private { registration: Some(registration), organizations: Some(organizations), ..Private::default() }.write()
}

/// Reads the registration of a person from the private part of their record.
pub(crate) fn registration_of(private: &[u8]) -> Result<Option<RegistrationId>> {
    Ok(Private::read(private)?.registration)
}

/// A pattern of a claim.
const fn claim_pattern(name: &'static str) -> Field {
    Field::string(name).costly().check(pattern)
}

const CLAIM_MATCH: &[Field] = &[
    Field::string("issuer").about("The issuer that the token must have.").oneof("iss"),
    claim_pattern("issuerPattern").about("A regular expression (RE2) that the whole issuer must match.").oneof("iss"),
    Field::string("subject").about("The subject that the token must have.").oneof("sub"),
    claim_pattern("subjectPattern").about("A regular expression (RE2) that the whole subject must match.").oneof("sub"),
    Field::string("audience")
        .about("The audience that the token must have; by default that of this installation.")
        .oneof("aud"),
    claim_pattern("audiencePattern")
        .about("A regular expression (RE2) that the whole audience must match.")
        .oneof("aud"),
    Field::string_map("claims").about(
        "Further claims that the token must have, by name or by a path of names joined by dots, and their values.",
    ),
    Field::string_map("claimPatterns")
        .about(
            "Further claims that the token must have, by name or path, and a regular expression (RE2) that the whole value \
             of each must match.",
        )
        .max_items(MAX_CLAIM_PATTERNS)
        .costly()
        .check(patterns),
];

const STATIC_KEYS: &[Field] = &[
    Field::string("issuer").about("The issuer that the token must have.").required(),
    Field::string("subject").about("The subject that the token must have.").required(),
    Field::string("issuerKeys")
        .about("The public keys, as a JSON Web Key Set in text.")
        .required()
        .multiline()
        .check(static_keys::public_keys),
    Field::timestamp("expirationTime")
        .about("When the keys expire: at most, and by default, 365 days after they are set."),
    Field::strings("audiences")
        .about("The audience that the token must have, at most one; by default that of this installation.")
        .max_items(1),
];

const AWS_IDENTITY: &[Field] = &[
    Field::string("awsAccount").about("The AWS account number, 12 digits.").required().check(check::aws_account),
    Field::string("arn").about("The ARN that the caller must have.").oneof("aws_arn"),
    Field::string("arnPattern")
        .about("A regular expression (RE2) that the whole ARN must match.")
        .oneof("aws_arn")
        .costly()
        .check(pattern),
    Field::string("userId").about("The AWS user identifier that the caller must have.").oneof("aws_user_id"),
    Field::string("userIdPattern")
        .about("A regular expression (RE2) that the whole user identifier must match.")
        .oneof("aws_user_id")
        .costly()
        .check(pattern),
];

impl ClaimMatch {
    fn validate(&self, violations: &mut Violations) {
        one_of(violations, "claimMatch", [("issuer", &self.issuer), ("issuerPattern", &self.issuer_pattern)]);
        one_of(violations, "claimMatch", [("subject", &self.subject), ("subjectPattern", &self.subject_pattern)]);
    }
}

fn one_of(violations: &mut Violations, message: &str, forms: [(&str, &String); 2]) {
    if forms.iter().all(|(_, value)| value.is_empty()) {
        let [(first, _), (second, _)] = forms;
        violations.add(format!("{message}.{first}"), format!("is required unless {second} is set"));
    }
}

fn pattern(value: &Value) -> std::result::Result<(), String> {
    Pattern::compile(value.as_str().unwrap_or_default()).map(drop)
}

fn patterns(value: &Value) -> std::result::Result<(), String> {
    value.as_object().into_iter().flat_map(Map::values).try_for_each(pattern)
}

fn relationship_type(body: &Value) -> Vec<KeyValue> {
    let set = RELATIONSHIPS.into_iter().filter(|(field, _)| body.get(*field).is_some());
    set.map(|(_, relationship)| KeyValue::text(relationship.into())).collect()
}

/// Returns the uid of a person, whether or not the person has registered.
async fn lookup(request: Map<String, Value>) -> Result<Value> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    Ok(json!({ "uid": person_uid(text("issuer"), text("subject")) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_and_identities_with_a_claim_match_or_keys_that_have_not_expired_are_assumable() {
        let now = Timestamp::from_millis(1_000);
        let none = Identity::default;
        let claims = Identity { claim_match: Some(ClaimMatch::default()), ..none() };
        let keys = |expiration_time| StaticKeys { expiration_time, ..StaticKeys::default() };
        let keys = |end| Identity { static_keys: Some(keys(end)), ..none() };
        let aws = Identity { aws_identity: Some(AwsIdentity::default()), ..none() };
        let service = Identity { service_principal: ServicePrincipal::ServicePrincipalIngester, ..none() };
        let person = Uid::from_digest([1; 20]);
        let identity = Uid::opaque(format!("{person}/0123456789abcdef"));
        for (case, relationship, as_person, as_identity) in [
            ("none", none(), true, false),
            ("claims", claims, true, true),
            ("keys", keys(Some(now.plus_millis(1))), true, true),
            ("expired keys", keys(Some(now)), false, false),
            ("keys without a time", keys(None), false, false),
            ("AWS", aws, false, false),
            ("service", service, false, false),
        ] {
            let of = |uid: &Uid| Identity { uid: uid.clone(), ..relationship.clone() }.is_assumable(now);
            assert_eq!((of(&person), of(&identity)), (as_person, as_identity), "{case}");
        }
    }
}

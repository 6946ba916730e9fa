//! Profile data that registered persons enter about themselves (`docs/api.md`, Identities).

use bytes::Bytes;
use platform_engine::{
    aip::field_mask::Mask,
    context::Context,
    error::{Error, Result},
    event::Audience,
    fields,
    kind::{Action, Field, Kind, Parent, Resource, Roots, Type, action_event},
    store::{Key, Require},
    timestamp::Timestamp,
    uid::Uid,
    verbs::{is_same, times},
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::domain;
use super::Identity;
use super::identity;

/// Profile data that a caller enters. Each identity has one, under the identity's uid, and no other caller can read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names the fields and says no more")]
pub struct IdentityMetadata {
    pub uid: Uid,
    pub name: String,
    pub given_name: String,
    pub family_name: String,
    pub company: String,
    pub updates_opt_in: bool,
    pub product: String,
    pub job_title: String,
    pub utm_campaign: String,
    pub utm_content: String,
    pub utm_medium: String,
    pub utm_source: String,
    pub utm_term: String,
    pub latest_form_submit_url: String,
    pub latest_internal_referring_url: String,
    /// Accepted, but not stored.
    pub hubspot_utk: String,
    pub self_serve: bool,
    pub create_time: Option<Timestamp>,
    pub update_time: Option<Timestamp>,
}

const FIELDS: &[Field] = &[
    Field::string("uid").about("The caller's uid.").output_only(),
    Field::string("name").about("The person's full name.").output_only(),
    Field::string("givenName").about("The person's given name.").output_only(),
    Field::string("familyName").about("The person's family name.").output_only(),
    Field::string("company").about("The company that the person works for."),
    Field::bool("updatesOptIn").about("Whether the person wants to receive product updates."),
    Field::string("product").about("The product that the person is interested in."),
    Field::string("jobTitle").about("The person's job title."),
    Field::string("utmCampaign").about("The marketing campaign that led the person here."),
    Field::string("utmContent").about("The content of the campaign."),
    Field::string("utmMedium").about("The medium of the campaign."),
    Field::string("utmSource").about("The source of the campaign."),
    Field::string("utmTerm").about("The search term of the campaign."),
    Field::string("latestFormSubmitUrl").about("The page of the last form that the person submitted."),
    Field::string("latestInternalReferringUrl").about("The page that referred the person."),
    Field::string("hubspotUtk").about("A visitor token. Accepted, but not stored.").input_only(),
    Field::bool("selfServe").about("Whether the person signed up without assistance."),
    Field::CREATE_TIME.rest_only(),
    Field::UPDATE_TIME.rest_only(),
];

impl Resource for IdentityMetadata {
    const KIND: &'static Kind = &Kind::new("IdentityMetadata", "identityMetadata", "IdentitiesService", domain::IAM)
        .parent(Parent::Sole(Identity::KIND))
        .unlimited()
        .fields(FIELDS)
        .roots(Roots::Personal)
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::patch("UpdateIdentityMetadata", "identities:updateIdentityMetadata", |cx, request| {
            Box::pin(update(cx, request))
        })
        .previewed()
        .request(&[
            Field::message("identityMetadata", FIELDS).about("The values to set.").required(),
            Field::new("updateMask", Type::FieldMask)
                .about("The fields to set, separated by commas; by default those in the body."),
        ])
        .response(FIELDS)
        .event("iam.identity.metadata.updated.v1")];

    fn example() -> Self {
        let text = || "example".to_owned();
        Self {
            uid: Uid::opaque("7f0c2b1d44617e3f2603851537be0123af4a57d8"),
            name: "Ada Example".to_owned(),
            given_name: "Ada".to_owned(),
            family_name: "Example".to_owned(),
            company: "Example".to_owned(),
            updates_opt_in: true,
            product: text(),
            job_title: "engineer".to_owned(),
            utm_campaign: text(),
            utm_content: text(),
            utm_medium: text(),
            utm_source: text(),
            utm_term: text(),
            latest_form_submit_url: "https://example.com/form".to_owned(),
            latest_internal_referring_url: "https://example.com/".to_owned(),
            hubspot_utk: text(),
            self_serve: true,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// Updates the caller's profile data. The body contains the mask; without a mask, the populated fields are set.
async fn update(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let empty = Map::new();
    let sent = request.get("identityMetadata").and_then(Value::as_object).unwrap_or(&empty);
    let mask = match request.get("updateMask").and_then(Value::as_str) {
        Some(mask) => Mask::parse(mask, FIELDS).map_err(Error::invalid)?,
        None => Mask::Paths(sent.keys().cloned().collect()),
    };
    cx.demand_caller_itself()?;
    let identity = identity::of_caller(cx)?;
    let key = Key::new(IdentityMetadata::KIND.name, identity.uid.clone());
    let mut write = Write::default();
    let exists = Error::unauthenticated("The token's identity does not exist");
    write.require_or_fail(Require::Exists(Key::new("Identity", identity.uid.clone())), exists);
    let stored = cx.records(std::slice::from_ref(&key)).await?.into_iter().next().flatten();
    let old: Value = match &stored {
        Some(record) => {
            write.require_or_retry(Require::Revision(key, record.revision));
            serde_json::from_slice(&record.body).map_err(Error::internal)?
        }
        None => {
            write.require_or_retry(Require::Absent(key));
            json!({ "uid": identity.uid })
        }
    };
    let mut new = mask.apply(FIELDS, old.as_object().unwrap_or(&empty), sent).map_err(Error::invalid)?;
    let (create_time, update_time) = times(&old, cx.now());
    new.insert("createTime".to_owned(), json!(create_time));
    new.insert("updateTime".to_owned(), json!(update_time));
    let metadata: IdentityMetadata = serde_json::from_value(new.into()).map_err(Error::internal)?;
    let mut body = serde_json::to_value(&metadata).map_err(Error::internal)?;
    fields::prune(FIELDS, &mut body);
    if stored.is_some() && is_same(&old, &body) {
        return Ok(old);
    }
    match stored {
        Some(record) => write.replace(&record, &metadata, Bytes::new())?,
        None => write.put(&identity.uid, &metadata, Bytes::new())?,
    }
    let draft = || {
        let mut draft = action_event::<IdentityMetadata>("UpdateIdentityMetadata", &identity.uid, &body)?;
        (draft.message, draft.audience) = (IdentityMetadata::KIND.name.to_owned(), Audience::Internal);
        draft.group = "/".to_owned();
        Ok(draft)
    };
    cx.record_event(&mut write, &identity.uid, draft).await?;
    cx.commit(write).await?;
    Ok(body)
}

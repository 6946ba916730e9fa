//! Acceptances of legal documents by groups (`docs/api.md`, Terms).

use bytes::Bytes;
use platform_engine::{
    context::Context,
    error::{Error, Result, Violations},
    kind::{Action, Authorization, Field, Kind, Parent, Registered, Resource, Type, action_event},
    request::{ListRequest, ORDER_BY, PAGE_SIZE, PAGE_TOKEN, SKIP},
    scope::Scopes,
    store::{Key, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    super::{data_of, domain, field},
    Group,
};
use crate::capabilities::cap;

/// The acceptance of a document by a group, which also applies to the group's descendants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TermsAcceptance {
    /// The uid of the group and a segment that is derived from the document's id.
    pub uid: Uid,
    /// The document's id.
    pub doc_id: String,
    /// The uid of the identity that accepted the document first.
    pub accepted_by: Uid,
    /// The uid of the group.
    pub org_uid: Uid,
    /// When the document was accepted.
    pub create_time: Option<Timestamp>,
    /// The same as `create_time`.
    pub update_time: Option<Timestamp>,
}

/// A document that groups can accept (`docs/api.md`, Terms).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TermsDocument {
    /// The id, such as `skills-tos.v1`, which acceptances refer to.
    pub id: String,
    /// The title.
    pub label: String,
    /// The address of the document; may be empty.
    pub url: String,
}

/// The documents that groups can accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms(pub Vec<TermsDocument>);

impl Default for Terms {
    /// Returns the documents that the published interface names, for an installation without documents of its own.
    /// Their URLs are empty, because only the installation knows them.
    fn default() -> Self {
        let published = [
            ("guardener-tos.v1", "Terms of Service"),
            ("sfdpa.v1", "Data Privacy Agreement"),
            ("skills-tos.v1", "Skills Registry Terms of Service"),
        ]
        .map(|(id, label)| TermsDocument { id: id.to_owned(), label: label.to_owned(), url: String::new() });
        Self(published.into())
    }
}

const FIELDS: &[Field] = &[
    Field::UID.rest_only(),
    Field::string("docId").about("The document that was accepted.").output_only().sort(&["docId"]),
    Field::string("acceptedBy").about("The identity that accepted it.").output_only(),
    Field::string("orgUid").about("The group that it was accepted for.").output_only(),
    Field::CREATE_TIME,
    Field::UPDATE_TIME.rest_only(),
];

const GROUP: Field = field::uid("group").about("The group.").required().uid_of("Group");

impl Resource for TermsAcceptance {
    const KIND: &'static Kind = &Kind::new("TermsAcceptance", "termsAcceptances", "TermsService", domain::IAM)
        .parent(Parent::Group)
        .fields(FIELDS)
        .cascade();

    const ACTIONS: &'static [Action] = &[
        Action::post("AcceptTerms", "terms/{group=**}", |cx, request| Box::pin(accept(cx, request)))
            .previewed()
            .request(&[GROUP, Field::strings("documentIds").about("The documents to accept.").required()])
            .response(&[
                Field::string("group").about("The group.").output_only(),
                Field::strings("documentIds").about("The documents that are accepted.").output_only(),
            ])
            .authorization(Authorization::At("group", &[cap("terms.accept")]))
            .event("iam.terms.accepted.v1"),
        Action::get("ListTermsAcceptances", "terms/{group=**}", |cx, request| Box::pin(list(cx, request)))
            .request(&[GROUP, PAGE_SIZE, PAGE_TOKEN, ORDER_BY, SKIP])
            .response(&[
                Field::new("termsAcceptances", Type::List(&Type::Message(FIELDS)))
                    .about("The acceptances of the group and its ancestors, oldest first."),
                Field::string("nextPageToken").about("Asks for the next page; absent on the last page."),
                Field::new("totalCount", Type::Int64)
                    .about("The number of resources that match and that the caller may see, on all pages."),
                Field::new("skipped", Type::Int32).about("The `skip` of the request."),
            ])
            .authorization(Authorization::At("group", &[cap("terms.list")])),
    ];

    fn example() -> Self {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        Self {
            uid: Uid::opaque(format!("{group}/0123456789abcdef")),
            doc_id: "skills-tos.v1".to_owned(),
            accepted_by: Uid::opaque("7f0c2b1d44617e3f2603851537be0123af4a57d8"),
            org_uid: Uid::opaque(group),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

async fn group_of(cx: &Context<'_>, request: &Map<String, Value>) -> Result<Uid> {
    let group = Uid::opaque(request.get("group").and_then(Value::as_str).unwrap_or_default());
    let found = cx.record(Group::KIND, &group).await?;
    found.map(|_| group.clone()).ok_or_else(|| Error::not_found(Group::KIND, group.as_str()))
}

/// Atomically accepts documents for a group. Existing acceptances are left unchanged.
async fn accept(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let requested =
        request.get("documentIds").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let known = &data_of::<Terms>(cx)?.0;
    let mut violations = Violations::default();
    let mut ids: Vec<&str> = Vec::new();
    for (index, id) in requested.enumerate() {
        if !known.iter().any(|document| document.id == id) {
            violations.add(format!("documentIds[{index}]"), "unknown document");
        } else if !ids.contains(&id) {
            ids.push(id);
        }
    }
    violations.none_or(())?;
    let group = group_of(cx, &request).await?;
    let key = |id: &&str| {
        let segment = hex::encode(Sha256::digest(id).get(..8).unwrap_or_default());
        Key::new(TermsAcceptance::KIND.name, Uid::opaque(format!("{group}/{segment}")))
    };
    let keys: Vec<_> = ids.iter().map(key).collect();
    let stored = cx.records(&keys).await?;
    let (mut write, caller) = (Write::default(), cx.demand_caller()?);
    for ((id, key), _) in ids.iter().zip(keys).zip(stored).filter(|(_, stored)| stored.is_none()) {
        let acceptance = TermsAcceptance {
            uid: key.uid.clone(),
            doc_id: (*id).to_owned(),
            accepted_by: caller.identity.clone(),
            org_uid: group.clone(),
            create_time: Some(cx.now()),
            update_time: Some(cx.now()),
        };
        write.require_or_retry(Require::Absent(key));
        write.put(&acceptance.uid, &acceptance, Bytes::new())?;
    }
    let reply = json!({ "group": group, "documentIds": ids });
    if !write.is_empty() {
        let missing = Error::not_found(Group::KIND, group.as_str());
        write.require_or_fail(Require::Exists(Key::new(Group::KIND.name, group.clone())), missing);
        let draft = || {
            let mut draft = action_event::<TermsAcceptance>("AcceptTerms", &group, &reply)?;
            draft.group = group.to_string();
            Ok(draft)
        };
        cx.record_event(&mut write, &group, draft).await?;
        cx.commit(write).await?;
    }
    Ok(reply)
}

/// Lists the acceptances of a group and its ancestors, oldest first unless the request has another order.
async fn list(cx: &Context<'_>, mut request: Map<String, Value>) -> Result<Value> {
    let group = group_of(cx, &request).await?;
    request.shift_remove("group");
    request.entry("orderBy").or_insert_with(|| "createTime".into());
    // Binds page tokens to the group.
    request.insert("uidp".to_owned(), json!({ "childrenOf": group }));
    let request = ListRequest::from_json(TermsAcceptance::KIND, request)?;
    let scopes = group.ancestry().map(|uid| Scope::Children(Uid::opaque(uid)));
    let registered = Registered::of::<TermsAcceptance>();
    let page = cx.list_in(&registered, &request, Scopes::disjoint(scopes)).await?;
    let items = page.items.iter().map(|item| serde_json::from_slice(item).map_err(Error::internal));
    let mut reply = Map::new();
    reply.insert("termsAcceptances".to_owned(), items.collect::<Result<Vec<Value>>>()?.into());
    reply.extend(page.next_page_token.map(|next| ("nextPageToken".to_owned(), next.into())));
    reply.insert("totalCount".to_owned(), page.total_count.to_string().into());
    reply.insert("skipped".to_owned(), page.skipped.into());
    Ok(reply.into())
}
